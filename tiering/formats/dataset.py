"""A dataset as `tiering.datasets` describes it and the graph stage imports it: big arrays are still on disk.

Stages never import each other; they meet in these types. A reader fills a `Dataset`; the graph stage reads it
and closes it. Arrays may be memory maps of the user's files: treat them as read-only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tiering.artifacts.checksum import sampled_digest
from tiering.artifacts.manifest import Relation, relation_key
from tiering.errors import MissingError
from tiering.formats.features import FeatureTable
from tiering.formats.names import NameTable


@dataclass(frozen=True)
class Fingerprint:
    """Size and digest of samples of a file: a change is noticed at a bounded cost."""

    bytes: int
    sampled: str


def fingerprint(path: str | os.PathLike[str]) -> Fingerprint:
    """Return the fingerprint of a file; reads 64 blocks of it."""
    path = Path(path)
    if not path.is_file():
        raise MissingError(f"{path}: no such file")
    return Fingerprint(path.stat().st_size, sampled_digest(path))


@dataclass(frozen=True)
class FeatureStream:
    """Feature rows that lie in no file as they are: the file is compressed, or the rows are computed.

    An import writes them into the graph artifact, each once, front to back.
    """

    rows: int
    dim: int
    dtype: str
    """Element type, see `tiering.formats.features.FEATURE_DTYPES`; ``bfloat16`` comes as ``uint16``."""
    pieces: Callable[[int, GraphSoFar], Iterator[tuple[int, npt.NDArray[Any]]]]
    """Function from the first row that is not written yet to pieces: the first row of each, and the piece.

    Pieces follow each other up to the last row; the first may begin before the row asked for. The graph is there as
    far as it is written: its adjacency, and the features of the types in `needs`.
    """
    how: str = "streamed"
    """Description for dry runs."""
    memory: int = 0
    """Peak memory of the pieces in bytes."""
    read: int = 0
    """Bytes that are read for all pieces."""
    needs: tuple[str, ...] = ()
    """Node types whose features must be there before."""

    def table(self, folder: Path, node_type: str) -> FeatureTable:
        """Return the table of the rows in the features artifact at `folder`, once they are written."""
        return FeatureTable(folder / "tables" / node_type, self.rows, self.dim, self.dtype)


class GraphSoFar(Protocol):
    """The part of a graph that is written when features are streamed into it."""

    @property
    def threads(self) -> int:
        """Threads of the import."""

    def csc(self, relation: Relation) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
        """Return ``indptr`` and ``indices`` of a relation, by destination."""

    def rows(self, node_type: str) -> npt.NDArray[Any]:
        """Return the feature table of a type, mapped; ``bfloat16`` as ``uint16``."""


@dataclass
class NodeData:
    """The nodes of one type: ids 0..num_nodes-1."""

    num_nodes: int
    features: FeatureTable | FeatureStream | None = None
    labels: npt.NDArray[np.int64] | None = None
    """Shape (num_nodes,), -1 = no label."""
    num_classes: int | None = None
    """Largest label + 1, or ``None`` without labels."""
    splits: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    """``train``, ``val``, ``test`` (those that exist) -> unique node ids in the order of the file."""
    names: NameTable | None = None
    """Names of the nodes, where the source has names in the place of ids."""
    extra: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    """Further arrays of shape (num_nodes,); ``original_id`` when sparse ids were made dense."""


@dataclass
class EdgeData:
    """The edges of one relation in input order: edge k goes from src[k] to dst[k]."""

    relation: Relation
    src: npt.NDArray[Any]
    """Shape (E,), int32 or int64, any stride (a column or row of a memory-mapped file).

    Of edges in lists, one of both ends is a `tiering.formats.column_ids.ColumnIds`; of edges with `decode`, all columns
    are of a type that reads ranges.
    """
    dst: npt.NDArray[Any]
    """Like `src`. The range of the ids is checked where the graph is built, not before."""
    where: str = ""
    """The file the edges come from, for messages."""
    data: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    """Per-edge arrays of shape (E,), e.g. ``weight`` (float), ``type`` (int)."""
    edge_ids: npt.NDArray[np.int64] | None = None
    """Shape (E,): the user's own edge ids; ``None``: the position in the input."""
    decode: Callable[[], dict[str, npt.NDArray[Any]]] | None = None
    """Function that reads columns whole, ``src``, ``dst`` and `data`, where only tasks read their files by ranges."""

    def bring(self) -> None:
        """Decode such columns: replace them by arrays, mapped or in memory."""
        if self.decode is not None:
            columns, self.decode = self.decode(), None
            self.src, self.dst, self.data = columns.pop("src"), columns.pop("dst"), columns

    @property
    def num_edges(self) -> int:
        """Edges of the relation, duplicates and self loops included."""
        return int(self.src.shape[0])

    @property
    def arrays(self) -> list[npt.NDArray[Any]]:
        """Arrays that run along the edges."""
        return [self.dst, self.src, *self.data.values(), *([] if self.edge_ids is None else [self.edge_ids])]


@dataclass
class Dataset:
    """A dataset opened by `tiering.datasets.open_dataset`. Use as a context manager, or call `close`."""

    name: str
    format: str
    """Name of its reader in `tiering.datasets.open.READERS`, such as ``npy``."""
    nodes: dict[str, NodeData]
    edges: list[EdgeData]
    notes: dict[str, Any] = field(default_factory=dict)
    """JSON-ready record of what was inferred, chosen, ignored or changed; goes into the manifest."""
    files: dict[str, Fingerprint] = field(default_factory=dict)
    """Source file (absolute path) -> fingerprint, for provenance."""
    _closers: list[Callable[[], None]] = field(default_factory=list, repr=False)

    @property
    def relations(self) -> list[Relation]:
        """Relations of the dataset, in the order of `edges`."""
        return [edge.relation for edge in self.edges]

    def edge(self, relation: Relation) -> EdgeData:
        """Return the edges of one relation."""
        for edge in self.edges:
            if edge.relation == relation:
                return edge
        known = ", ".join(relation_key(r) for r in self.relations)
        raise MissingError(f"{self.name}: no relation {relation_key(relation)}; there are: {known}")

    def on_close(self, action: Callable[[], None]) -> None:
        """Run `action` when the dataset is closed (removes temporary files)."""
        self._closers.append(action)

    def close(self) -> None:
        """Drop temporary files. Arrays obtained from the dataset must not be used afterwards."""
        while self._closers:
            self._closers.pop()()

    def __enter__(self) -> Dataset:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[EdgeData]:
        return iter(self.edges)
