"""The embeddings artifact: a row for each node by rank, written by inference. See ``data_specs/embeddings.md``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.manifest import Problem, array_problems, body_problem, storage_dtype
from tiering.errors import InputError
from tiering.formats.layout import stored_bytes
from tiering.formats.names import Names
from tiering.formats.order import Order
from tiering.text.description import Part, Table
from tiering.text.units import format_bytes, format_count

ROWS = "rows"  # the file of all rows, type after type
PAGE_BYTES = 4096  # each type's rows begin at a multiple
BATCH_BYTES = 32 << 20  # bytes of vectors in a batch of Arrow, and so in a row group of parquet


@dataclass(frozen=True)
class RowsEntry:
    """The rows of one node type in the file of all rows."""

    rows: int
    dim: int
    dtype: str  # dtype of the numbers: as they are stored, or, with a codec, as they are decoded
    codec: str  # name of a codec without parameters, ``""``: none
    offset: int  # bytes before the first row

    @property
    def row_bytes(self) -> int:
        """Bytes of a row; rows follow each other without gaps."""
        return stored_bytes(self.dim, self.dtype, self.codec)

    @property
    def end(self) -> int:
        """First byte after the rows, rounded up to pages."""
        return self.offset + -(-self.rows * self.row_bytes // PAGE_BYTES) * PAGE_BYTES

    @property
    def stored(self) -> str:
        """Dtype of the numbers in the file."""
        return self.codec or self.dtype

    @classmethod
    def plan(cls, tables: Mapping[str, tuple[int, int, str, str]]) -> dict[str, RowsEntry]:
        """Place types with (rows, dim, dtype, codec) one after the other."""
        entries, offset = {}, 0
        for name, table in tables.items():
            entries[name] = cls(*table, offset)
            offset = entries[name].end
        return entries

    @staticmethod
    def total(entries: Mapping[str, RowsEntry]) -> int:
        """Return the bytes of a file of all rows."""
        return max((entry.end for entry in entries.values()), default=0)

    def to_json(self) -> dict[str, Any]:
        """Form in the manifest."""
        return asdict(self)


class Embeddings(Artifact):
    """Rows by node type and rank, or of some nodes only (`nodes`), with the ids or names of the nodes in the source.

    `tiering.open` returns `tiering.loader.TieredEmbeddings`, which gives tensors too.
    """

    kind = "embeddings"
    part_types = (Order.kind, Names.kind)

    def entry(self, node_type: str | None = None) -> RowsEntry:
        """Return size and place of a type's rows."""
        return RowsEntry(**self.manifest.body["node_types"][self._resolve_type(node_type)])

    def nodes(self, node_type: str | None = None) -> npt.NDArray[np.int64] | None:
        """Return the ranks of the rows, ascending; ``None``: every node has a row."""
        name = f"nodes/{self._resolve_type(node_type)}"
        return self.manifest.array(name) if name in self.manifest.files else None

    @property
    def shape(self) -> tuple[int, int]:
        """Nodes of the only type, whose ranks are the indices, and numbers in a row."""
        return self._order.new_to_old(self._resolve_type(None)).size, self.entry().dim

    def numpy(self, node_type: str | None = None) -> npt.NDArray[Any]:
        """Map the rows read-only, shape (rows, dim), by rank; ``bfloat16`` comes as ``uint16``."""
        entry, dtype = self.entry(node_type), storage_dtype(self.entry(node_type).stored)
        data: npt.NDArray[Any] = self.manifest.array(ROWS)[entry.offset : entry.offset + entry.rows * entry.row_bytes]
        rows = data.reshape(entry.rows, entry.row_bytes)
        return rows[:, : entry.dim * dtype.itemsize].view(dtype)

    def gather_numpy(self, ids: Any, node_type: str | None = None, *, original: bool = False) -> npt.NDArray[Any]:
        """Return the rows of nodes, shape (ids, dim), by rank or, if `original`, by the ids of the source.

        `InputError`: an id is not a node, or its node has no row.
        """
        name = self._resolve_type(node_type)
        wanted = np.asarray(ids.cpu() if hasattr(ids, "cpu") else ids)
        known, count = self.nodes(name), self.entry(name).rows
        total = self._order.new_to_old(name).size
        if (
            wanted.ndim != 1
            or wanted.dtype.kind not in "iu"
            or (wanted.size and not 0 <= wanted.min() <= wanted.max() < total)
        ):
            raise InputError(f"ids: expected whole numbers of one dimension, 0 .. {total - 1}, found {wanted!r}")
        ranks = self._order.old_to_new(name)[wanted] if original else wanted
        places = ranks if known is None else np.minimum(np.searchsorted(known, ranks), max(0, count - 1))
        if known is not None and (count == 0 or (known[places] != ranks).any()):
            missing = wanted[0] if count == 0 else wanted[known[places] != ranks][0]
            raise InputError(f"{self.path}: node {missing} of {name!r} has no row; inference ran for {count} nodes")
        rows: npt.NDArray[Any] = self.numpy(name)[places]
        return rows

    def to_arrow(self, node_type: str | None = None) -> Any:
        """Return the rows by rank as a stream, a ``pyarrow.RecordBatchReader``.

        Columns: ``id``, the node's id or name in the source (int64, uint64 or string); ``vector``, a fixed-size list
        of the numbers as they are stored, ``bfloat16`` as ``float32``. Cost: the rows are read once, front to back; a
        batch of 32 MiB is in memory at a time.
        """
        import pyarrow as pa

        name = self._resolve_type(node_type)
        entry, rows, step = self.entry(name), self.numpy(name), max(1, BATCH_BYTES // self.entry(name).row_bytes)
        wide = entry.stored == "bfloat16"

        def make_batch(begin: int) -> Any:
            part = np.ascontiguousarray(rows[begin : begin + step])
            numbers = (part.astype(np.uint32) << 16).view(np.float32) if wide else part
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(numbers.reshape(-1)), entry.dim)
            return pa.record_batch([self._source_ids(name, begin, begin + len(part)), vectors], ["id", "vector"])

        schema = make_batch(entry.rows).schema
        return pa.RecordBatchReader.from_batches(schema, map(make_batch, range(0, entry.rows, step)))

    def _source_ids(self, name: str, begin: int, end: int) -> Any:
        """Return the ids or names in the source of the nodes of some rows, as an array of Arrow."""
        import pyarrow as pa

        known, names, file = self.nodes(name), cast("Names | None", self.part(Names.kind)), f"ids/{name}"
        if file in self.manifest.files:
            return pa.array(self.manifest.array(file)[begin:end])
        old = self._order.new_to_old(name)[slice(begin, end) if known is None else known[begin:end]].astype(np.int64)
        return pa.array(old) if names is None or name not in names.node_types else names.table(name).take(old)

    @property
    def _order(self) -> Order:
        return cast("Order", self.part(Order.kind))

    def __len__(self) -> int:
        return self.shape[0]

    def _body_problems(self) -> Iterator[Problem]:
        entries, files = [self.entry(name) for name in self.node_types], self.manifest.files
        sizes = {n: (e.rows, e.dim, e.dtype, e.codec) for n, e in zip(self.node_types, entries, strict=True)}
        planned = RowsEntry.plan(sizes)
        if list(planned.values()) != entries:
            yield body_problem("body.node_types", "the types are not contiguous")
        elif ROWS not in files or files[ROWS].bytes != (entries[-1].end if entries else 0):
            yield body_problem(f"files.{ROWS}", f"expected a file of {entries[-1].end} bytes", "size")
        for name in self.node_types:
            for file, dtypes in ((f"nodes/{name}", ["int64"]), (f"ids/{name}", ["int64", "uint64"])):
                if file in files:
                    yield from array_problems(self.manifest, file, (self.entry(name).rows,), dtypes)

    def _structure_problems(self) -> Iterator[Problem]:
        for name in self.node_types:
            ids = self.nodes(name)
            if ids is not None and ids.size and (ids[0] < 0 or np.any(np.diff(ids) <= 0)):
                yield Problem(f"nodes/{name}", "the ranks do not increase", "value")

    def _summarize_content(self) -> dict[str, Any]:
        types = {
            name: {**self.entry(name).to_json(), "row_bytes": self.entry(name).row_bytes} for name in self.node_types
        }
        return {"node_types": types}

    def _describe_content(self, summary: Mapping[str, Any]) -> list[Part]:
        rows = [
            (
                name,
                format_count(e["rows"]),
                f"{e['dim']} x {e['codec'] or e['dtype']}",
                format_bytes(e["rows"] * e["row_bytes"]),
            )
            for name, e in summary["node_types"].items()
        ]
        return [Table("Embeddings by rank", ("type", "rows", "values per row", "bytes"), rows)]
