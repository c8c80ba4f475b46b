"""A dataset that a reader of `tiering.datasets` fills and the graph stage imports; big arrays are still on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.checksum import sampled_digest
from tiering.artifacts.manifest import External, Relation
from tiering.artifacts.remote_path import RemotePath
from tiering.errors import MissingError
from tiering.formats.features import FeatureTable
from tiering.formats.names import NameTable
from tiering.formats.times import GraphTime


def fingerprint(path: Path) -> External:
    """Return a file with its size and a digest of 64 blocks, or a remote file's state, at a bounded cost."""
    if not path.is_file():
        raise MissingError(f"{path}: no such file")
    digest = path.first_state() if isinstance(path, RemotePath) else sampled_digest(path)
    return External(path, path.stat().st_size, digest)


@dataclass(frozen=True)
class FeatureStream:
    """Feature rows that lie in no file as they are: the file is compressed, or the rows are computed.

    `pieces` returns, from a row on, the first row of each piece and the piece; the first may begin before.
    """

    rows: int
    dim: int
    dtype: str  # element type, see `tiering.formats.features.FEATURE_DTYPES`; ``bfloat16`` comes as ``uint16``
    pieces: Callable[[int, GraphSoFar], Iterator[tuple[int, npt.NDArray[Any]]]]
    how: str = "streamed"  # description for dry runs
    memory: int = 0  # peak memory of the pieces in bytes
    read: int = 0  # bytes that are read for all pieces
    needs: tuple[str, ...] = ()  # node types whose features must be there before
    ndim: int = 2  # see `tiering.formats.features.FeatureTable`

    def table(self, folder: Path, node_type: str) -> FeatureTable:
        """Return the table of the rows in the features artifact at `folder`, once they are written."""
        return FeatureTable(folder / "tables" / node_type, self.rows, self.dim, self.dtype, ndim=self.ndim)


@dataclass(frozen=True)
class GraphSoFar:
    """The part of a graph that is written when features are streamed into it."""

    threads: int  # threads of the import
    csc: Callable[[Relation], tuple[npt.NDArray[np.int64], npt.NDArray[Any]]]  # ``indptr`` and ``indices``
    rows: Callable[[str], npt.NDArray[Any]]  # the feature table of a type, mapped; ``bfloat16`` as ``uint16``


@dataclass
class NodeData:
    """The nodes of one type, ids 0..num_nodes-1: `splits` to unique ids, `extra` arrays such as ``original_id``."""

    num_nodes: int
    features: FeatureTable | FeatureStream | None = None
    labels: npt.NDArray[np.int64] | None = None  # shape (num_nodes,), -1 = no label
    num_classes: int | None = None  # largest label + 1, or ``None`` without labels
    splits: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    names: NameTable | None = None  # names of the nodes, where the source has names in the place of ids
    extra: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    counted_by: str = ""  # what says that there are so many: a file or an option

    def describe_count(self) -> str:
        """Return the number of nodes, and what says so."""
        return f"{self.num_nodes} nodes" + (f" as {self.counted_by} says" if self.counted_by else "")


@dataclass
class EdgeData:
    """The edges of one relation in input order: edge k goes from src[k] to dst[k].

    `src` and `dst` have shape (E,), int32 or int64, any stride; of lists, one of them is a `ColumnIds`. `data`: arrays
    of shape (E,), such as ``weight``. `edge_ids`: the user's own; ``None``: positions in the input. `time`: the one of
    `data`, int64 or float64, by which each list is put in order, or, if `is_sorted`, is said to be in order. `decode`
    reads the columns ``src``, ``dst`` and `data` whole, where only tasks read their files by ranges.
    """

    relation: Relation
    src: npt.NDArray[Any]
    dst: npt.NDArray[Any]
    where: str = ""  # the file the edges come from, for messages
    data: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    edge_ids: npt.NDArray[np.int64] | None = None
    time: str | None = None
    is_sorted: bool = False
    decode: Callable[[], dict[str, npt.NDArray[Any]]] | None = None

    def bring(self) -> None:
        """Decode such columns: replace them by arrays, mapped or in memory."""
        if self.decode is not None:
            columns, self.decode = self.decode(), None
            self.src, self.dst, self.data = columns.pop("src"), columns.pop("dst"), {**self.data, **columns}

    @property
    def num_edges(self) -> int:
        """Edges of the relation, duplicates and self loops included."""
        return int(self.src.shape[0])

    @property
    def arrays(self) -> list[npt.NDArray[Any]]:
        """Arrays that run along the edges."""
        return [self.dst, self.src, *self.data.values(), *([] if self.edge_ids is None else [self.edge_ids])]


class ColumnIds:
    """The column of every entry of a CSC (the row, of a CSR), for an array in `EdgeData`; it takes no memory."""

    ndim = 1

    def __init__(self, indptr: npt.NDArray[np.int64], id_bytes: int, where: str = "") -> None:
        self.indptr, self.where, self.dtype = indptr, where, np.dtype(f"int{8 * id_bytes}")
        self.shape: Sequence[int] = (int(indptr[-1]),)
        self.num_columns = int(indptr.shape[0]) - 1  # nodes that have a list, empty or not

    def __getitem__(self, part: slice) -> npt.NDArray[Any]:
        first, stop, _ = part.indices(self.shape[0])
        begin = int(np.searchsorted(self.indptr, first, "right")) - 1
        end = int(np.searchsorted(self.indptr, stop, "left"))
        bounds = np.clip(self.indptr[begin : end + 1], first, stop)
        return np.repeat(np.arange(begin, end, dtype=self.dtype), np.diff(bounds))


def as_lists(ids: Any) -> ColumnIds | None:
    """Return one end of edges as lists, if it is a `ColumnIds`."""
    return ids if isinstance(ids, ColumnIds) else None


@dataclass
class Dataset(AbstractContextManager["Dataset"]):
    """A dataset opened by `tiering.datasets.open.open_dataset`. Use as a context manager, or call `close`.

    `notes` record what was inferred, chosen, ignored or changed, JSON types; `files` are fingerprints by absolute path.
    """

    name: str
    format: str  # name of its reader in `tiering.datasets.open.READERS`, such as ``npy``
    nodes: dict[str, NodeData]
    edges: list[EdgeData]
    notes: dict[str, Any] = field(default_factory=dict)
    files: dict[str, External] = field(default_factory=dict)
    time: GraphTime | None = None
    close_files: Callable[[], None] | None = field(default=None, repr=False)
    streams: list[External] = field(default_factory=list)  # Arrow streams: name, bytes of temporary files, digest
    peak: int = field(default=0, repr=False)  # resident bytes of this process while the files were read, if known

    @property
    def relations(self) -> list[Relation]:
        """Relations of the dataset, in the order of `edges`."""
        return [edge.relation for edge in self.edges]

    def close(self) -> None:
        """Drop temporary files. Arrays obtained from the dataset must not be used afterwards."""
        if self.close_files is not None:
            self.close_files()

    def __exit__(self, *_: object) -> None:
        self.close()
