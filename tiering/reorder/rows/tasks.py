"""Feature rows from the order of their ids to the files of tiers, in tasks.

``fit`` looks at the numbers of a chunk of a table, from which the parameters of a codec follow. ``cut`` takes a chunk
by range of ranks and file, ``write`` a window of a file of a tier, range after range from all chunks; of a stripe file
the checksums of its pages become files of their own. Ranges do not cross tiers, begin with a unit, and where rows allow
it with a block of their file. Memory: `COPIES` times the bytes of a chunk, or of a file's part of a range, and two
blocks of 64 MiB.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np

from tiering import native
from tiering.artifacts import checksum
from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.artifacts.document import open_manifest
from tiering.artifacts.manifest import id_bytes, relation_key, storage_dtype
from tiering.artifacts.storage import AnyArray, Bytes
from tiering.artifacts.writer import ArtifactWriter
from tiering.codecs import Codec, ColumnFacts, LossMeter, codec_for, codec_of, column_facts
from tiering.formats.encoded_rows import EncodedTable, encode_rows
from tiering.formats.features import EDGE_FEATURES, FeatureTable
from tiering.formats.graph import Graph, relation_folder
from tiering.formats.layout import TIERS, TypeLayout, tier_file
from tiering.formats.ssd_rows import SsdRows
from tiering.reorder.arrays import moved_bytes, source_of
from tiering.run.files import TaskFile, ends_of, files_step, missing_windows, output_window, place_files, whole_files
from tiering.run.grid import Grid, Int64Array, equal_bounds
from tiering.run.job import Job
from tiering.run.pieces import TaskRecord
from tiering.run.step import Step, TaskContext

_HERE = "tiering.reorder.rows.tasks"
COPIES = 4
_FIT_BYTES = 8 << 20  # of rows as float32 that are looked at together
_ROW_BYTES = 96  # memory per row of a task that cuts: its rank, its place, and what these are computed from


@dataclass(frozen=True)
class Striping:
    """The striping of the rows of a tier, ranks [first, end), over files: unit by unit, in turn, range by range.

    A partition is what one file has of one range; partitions are numbered range by range, in it file by file.
    """

    first: int
    end: int
    files: int
    per_unit: int  # rows of a unit; in memory tiers each row is one
    first_unit: int  # number of the first unit: unit u goes to file u mod `files`
    bounds: Sequence[int]
    """Bounds of the ranges, counted from rank `first` as 0. Each range begins with a unit."""

    @classmethod
    def plan(
        cls, first: int, end: int, parts: int, unit_bytes: int, files: int = 1, per_unit: int = 1, first_unit: int = 0
    ) -> Striping:
        """Return a striping with ranges of about the same size, at most `parts` of them."""
        units = -(-(end - first) // per_unit)
        cuts = np.array(equal_bounds(units, min(units, parts)), np.int64)
        grain = checksum.BLOCK_BYTES // math.gcd(checksum.BLOCK_BYTES, unit_bytes) * files  # units of whole blocks
        if grain <= units // max(1, min(units, parts)):
            cuts[1:-1] = (cuts[1:-1] + first_unit) // grain * grain - first_unit
        bounds = np.unique(np.minimum(cuts * per_unit, end - first).clip(0)).tolist()
        return cls(first, end, files, per_unit, first_unit, bounds)

    @property
    def num_ranges(self) -> int:
        """Ranges of ranks in the tier."""
        return len(self.bounds) - 1

    @property
    def num_partitions(self) -> int:
        """Partitions of a shuffle file: one for each range and file."""
        return self.num_ranges * self.files

    @property
    def counts(self) -> list[int]:
        """Items of each partition."""
        counts: list[int] = np.diff(self._starts()).tolist()
        return counts

    @property
    def most(self) -> int:
        """Items of the largest partition."""
        return max(self.counts, default=0)

    def _units(self) -> Int64Array:
        """Return the number of the first unit of each range."""
        return self.first_unit + np.array(self.bounds[:-1], np.int64) // self.per_unit

    def _starts(self) -> Int64Array:
        """Return the bounds of the partitions, laid one after the other."""
        bounds = np.array(self.bounds, np.int64)
        sizes = (bounds[1:] - bounds[:-1])[:, None]
        units: Int64Array = -(-sizes // self.per_unit)
        turn: Int64Array = np.mod(np.arange(self.files) - self._units()[:, None], self.files)
        counts = (units - turn + self.files - 1) // self.files * self.per_unit
        counts -= np.where((units - 1) % self.files == turn, units * self.per_unit - sizes, 0)
        return np.concatenate([[0], np.cumsum(counts.reshape(-1))])

    def order_items(self, numbers: Int64Array, threads: int) -> tuple[AnyArray, Int64Array, AnyArray]:
        """Return the order of items by partition, the size of each partition, and the items' places in it."""
        starts = self._starts()
        if self.files > 1:
            ranges = np.searchsorted(self.bounds, numbers, "right") - 1
            unit, slot = np.divmod(numbers - np.array(self.bounds)[ranges], self.per_unit)
            file = (self._units()[ranges] + unit) % self.files
            numbers = starts[ranges * self.files + file] + unit // self.files * self.per_unit + slot
        order, counts = native.partition(numbers, starts, threads)
        return order, counts, (numbers[order] - np.repeat(starts[:-1], counts)).astype(f"i{id_bytes(self.most)}")


def stripe_rows(context: TaskContext, striping: Striping, ranks: AnyArray, rows: Bytes) -> None:
    """Write the rows that belong to a tier as partitions, with their places."""
    own = np.flatnonzero((ranks >= striping.first) & (ranks < striping.end))
    order, counts, places = striping.order_items(ranks[own].astype(np.int64) - striping.first, context.threads)
    striped = context.buffer(own.size * rows.shape[1]).reshape(own.size, rows.shape[1])
    if striped.size:
        native.gather_rows(rows, own[order], striped, context.threads)
    context.write_all({"place": places, "row": striped}, np.cumsum(counts))


def as_units(rows: np.ndarray[Any, Any], stride: int, per_unit: int, unit_bytes: int) -> np.ndarray[Any, Any]:
    """Return rows, from a unit's start on, as units (units, unit_bytes); `stride`, `per_unit` as in `SsdRows`."""
    count, row_bytes = rows.shape
    if per_unit * row_bytes == unit_bytes and count % per_unit == 0:
        return rows.reshape(-1, unit_bytes)
    units = np.zeros((-(-count // per_unit), unit_bytes), np.uint8)
    slots = np.lib.stride_tricks.as_strided(units, (units.shape[0], per_unit, row_bytes), (unit_bytes, stride, 1))
    whole = count // per_unit
    slots[:whole] = rows[: whole * per_unit].reshape(whole, per_unit, row_bytes)
    if whole < slots.shape[0]:
        slots[whole, : count - whole * per_unit] = rows[whole * per_unit :]
    return units


def tables_task_bytes(tables: Mapping[str, FeatureTable | EncodedTable]) -> int:
    """Return the memory of a task that brought whole tables into order."""
    return COPIES * sum(table.rows * moved_bytes(table) for table in tables.values())


def in_one_tier(node_type: str, table: FeatureTable) -> TypeLayout:
    """Return the placement of a table whose rows all go to one file."""
    ranges = {tier: (0, table.rows if tier == "cpu" else 0) for tier in TIERS}
    return TypeLayout(node_type, table.rows, table.dim, table.dtype, ranges, SsdRows(0, 0, table.row_bytes, 1))


def write_tables(
    job: Job, writer: ArtifactWriter, graph: Graph, tables: Mapping[str, FeatureTable], order: str
) -> None:
    """Write feature tables in rank order, ``tables/TYPE``, by tasks; `order` is the directory of that artifact."""
    plans = [
        TablePlan.of(f"table-{number}", in_one_tier(name, table), locate_rows(graph, name), order, job.grid, table)
        for number, (name, table) in enumerate(tables.items())
    ]
    files = [file for number, plan in enumerate(plans) for file in plan.tier_files(number, str(writer.path))]
    named = [replace(file, name=f"tables/{name}") for file, name in zip(files, tables, strict=True)]
    cuts = [plan.cut_step() for plan in plans]
    step = write_step("tables.files", plans, cuts, named)
    job.expect(len(cuts) + 1)
    place_files(writer, whole_files(make_row_files(job, cuts, step, missing_windows(writer, step))))


@dataclass(frozen=True)
class RowLocation:
    """The place of a table's rows: a file of an artifact, or one that it refers to."""

    artifact: str
    name: str
    offset: int
    in_order: bool  # whether the rows lie in rank order


def locate_rows(graph: Graph, table: str) -> RowLocation:
    """Return where the rows of a table lie in a graph: of nodes, or of a relation's edges."""
    of_edges = {relation_key(relation): relation for relation in graph.relations}
    if table in of_edges and ":" in table:
        return RowLocation(str(graph.path), f"{relation_folder(of_edges[table])}/{EDGE_FEATURES}", 0, True)
    features: Any = graph.features
    entry = features.manifest.body["tables"][table]
    name = entry.get("file") or entry["external"]
    return RowLocation(str(features.path), name, entry["offset"], entry["row_order"] == "rank")


@dataclass(frozen=True)
class TablePlan:
    """The rows of one table, and how they are striped over the files of tiers."""

    name: str
    entry: TypeLayout
    rows: RowLocation
    order: str  # directory of the order artifact
    table: FeatureTable | EncodedTable
    chunks: int  # tasks that cut the table
    striping: Mapping[str, Striping]  # striping of each tier that has rows
    shape: tuple[int, int]  # bytes of a unit, of a page
    num_peers: int

    @classmethod
    def of(
        cls, name: str, entry: TypeLayout, rows: RowLocation, order: str, grid: Grid,
        table: FeatureTable | EncodedTable, shape: tuple[int, int] = (4096, 4096), num_peers: int = 0,
        stripe_files: int = 0,
    ) -> TablePlan:  # fmt: skip
        """Return a plan whose ranges of ranks are so small that a task has room for the rows of one in one file."""
        striping = {}
        for tier in TIERS:
            nbytes, ranks = entry.rows(tier) * entry.row_bytes * COPIES, entry.ranges[tier]
            if not nbytes:
                continue
            if tier == "ssd":
                parts, place = grid.parts(nbytes // stripe_files), entry.ssd_rows
                where = shape[0], stripe_files, place.rows_per_unit, place.first_unit
                striping[tier] = Striping.plan(*ranks, parts, *where)
            else:
                files = num_peers if tier == "peer" else 1
                striping[tier] = Striping.plan(*ranks, grid.parts(nbytes // files), entry.row_bytes, files)
        chunks = grid.parts(entry.num_nodes * moved_bytes(table) * COPIES)
        return cls(name, entry, rows, order, table, chunks, striping, shape, num_peers)

    def most(self, tier: str) -> int:
        """Return the most bytes that a file of a tier has of a range."""
        striping = self.striping.get(tier)
        if striping is None:
            return 0
        return striping.most * max(self.entry.row_bytes, self.shape[0] // striping.per_unit if tier == "ssd" else 0)

    def params(self) -> dict[str, Any]:
        """Return the table's parameters for tasks, as JSON holds them."""
        entry, partitions = self.entry, [striping.num_partitions for striping in self.striping.values()]
        return {
            "name": self.name, "rows_at": vars(self.rows), "order": self.order, "node_type": entry.node_type,
            "rows": entry.num_nodes, "row_bytes": entry.row_bytes, "chunks": self.chunks,
            "source_bytes": source_of(self.table).row_bytes, "codec": self._codec(),
            "stride": entry.ssd_rows.stride, "shape": self.shape,
            "striping": {tier: vars(striping) for tier, striping in self.striping.items()},
            "before": dict(zip(self.striping, accumulate(partitions, initial=0), strict=False)),
        }  # fmt: skip

    def _codec(self) -> dict[str, Any] | None:
        if not isinstance(self.table, EncodedTable):
            return None
        table = self.table
        entry = {**table.codec.entry(), "dim": table.dim, "dtype": table.dtype}
        return {"entry": entry, "parameters": table.codec.to_bytes().hex(), "where": table.where}

    def cut_step(self) -> Step:
        """Return the step whose tasks cut the table."""
        entry = self.entry
        memory = -(-entry.num_nodes // self.chunks) * (moved_bytes(self.table) * COPIES + _ROW_BYTES) + 2 * BLOCK_BYTES
        return Step(f"{self.name}.cut", f"{_HERE}:cut", self.chunks, self.params(), memory=memory)

    def tier_files(self, number: int, folder: str) -> list[RowFile]:
        """Return the files of the memory tiers; `number` is the table's."""
        files, entry = [], self.entry
        dtype, width = entry.stored
        for tier in self.striping:
            rows = entry.file_rows(tier, self.num_peers) if tier != "ssd" else []
            for part, count in enumerate(rows):
                if count:
                    name = tier_file(entry.node_type, tier, part, len(rows))
                    files.append(RowFile(name, folder, dtype, [count, width], [number], tier, part))
        return files

    def sizes(self, tier: str, number: int) -> list[int]:
        """Return the bytes that a file of a tier has of each range."""
        striping = self.striping[tier]
        counts = striping.counts[number :: striping.files]
        if tier != "ssd":
            return [count * self.entry.row_bytes for count in counts]
        return [-(-count // striping.per_unit) * self.shape[0] for count in counts]


@dataclass(frozen=True)
class RowFile:
    """A file of a tier: rows of some tables, by number."""

    name: str
    folder: str
    dtype: str
    shape: Sequence[int]
    tables: Sequence[int]
    tier: str
    number: int  # of the file in its tier


def write_step(name: str, tables: Sequence[TablePlan], cuts: Sequence[Step], files: Sequence[RowFile]) -> Step:
    """Return the step that writes files from the partitions of the tables' chunks."""
    sizes = [[size for table in file.tables for size in tables[table].sizes(file.tier, file.number)] for file in files]
    made = [
        TaskFile(file.name, file.folder, file.dtype, file.shape, ends_of(of_parts))
        for file, of_parts in zip(files, sizes, strict=True)
    ]
    most = max((tables[table].most(file.tier) for file in files for table in file.tables), default=0)
    params = {"tables": [table.params() for table in tables], "rows": [vars(file) for file in files]}
    return files_step(name, f"{_HERE}:write", made, params, [cut.name for cut in cuts], COPIES * most)


def fit_by_tasks(job: Job, name: str, rows: RowLocation, table: EncodedTable) -> Codec:
    """Return the codec for a table's rows, at which the tasks of step `name` have looked."""
    job.expect(1)
    chunks = job.grid.parts(table.rows * 4 * table.dim * COPIES)
    params = {
        "rows_at": vars(rows), "rows": table.rows, "chunks": chunks, "source_bytes": table.source.row_bytes,
        "codec": table.name, "dim": table.dim, "dtype": table.dtype, "where": table.where,
    }  # fmt: skip
    step, parts = Step(name, f"{_HERE}:fit", chunks, params, memory=table.fit_memory), []
    for index, record in enumerate(job.run(step)):
        arrays: dict[str, Any] = job.read(name, index)
        parts.append(ColumnFacts(**record["facts"], **arrays))
    job.release(step)
    return codec_for(table.name, parts)


def fit(context: TaskContext) -> dict[str, Any]:
    """Write the facts about a chunk's rows from which the parameters of a codec follow."""
    params, step = context.params, max(1, _FIT_BYTES // (4 * context.params["dim"]))
    begin, end = equal_bounds(params["rows"], params["chunks"])[context.index : context.index + 2]
    blocks = (
        _source_rows(context, first, min(end, first + step)).view(storage_dtype(params["dtype"]))
        for first in range(begin, end, step)
    )
    about = params["codec"], blocks, params["dim"], params["dtype"], params["where"]
    facts = vars(column_facts(*about, context.threads, begin))
    context.write(**{key: np.asarray(facts.pop(key)) for key in ("low", "high", "least", "lowest_bit")})
    return facts


def _source_rows(context: TaskContext, begin: int, end: int) -> Bytes:
    """Return rows [begin, end) of a task's table, as bytes of the source."""
    source, width = RowLocation(**context.params["rows_at"]), context.params["source_bytes"]
    artifact = context.share(open_manifest, source.artifact)
    data = artifact.read_bytes(source.name, source.offset + begin * width, source.offset + end * width)
    return data.reshape(end - begin, width)


def make_row_files(job: Job, cuts: Sequence[Step], step: Step, wanted: Sequence[int]) -> list[TaskRecord]:
    """Write the `wanted` windows."""
    if not wanted:
        return []
    for cut in cuts:
        job.run(cut)
    made = job.run(step, wanted)
    job.release(*cuts)
    return made


def cut(context: TaskContext) -> dict[str, Any]:
    """Write the rows of a chunk with their places: tier by tier, range by range, file by file.

    Rows of a coded table are encoded before; returned are the sums of their errors.
    """
    params = context.params
    begin, end = equal_bounds(params["rows"], params["chunks"])[context.index : context.index + 2]
    rows, facts = _source_rows(context, begin, end), {}
    if params["rows_at"]["in_order"]:
        ranks = np.arange(begin, end)
    else:
        order = context.share(open_manifest, params["order"])
        ranks = order.read(f"nodes/{params['node_type']}/old_to_new", begin, end)
    if (codec := params["codec"]) is not None:
        entry, where = codec["entry"], codec["where"]
        meter = LossMeter(codec_of(entry, entry["dim"], bytes.fromhex(codec["parameters"]), where), where)
        rows = encode_rows(meter, rows, entry["dtype"], where, context.threads, first=begin)
        facts = {"loss": meter.sums()}
    for document in params["striping"].values():
        stripe_rows(context, Striping(**document), ranks, rows)
    return facts


def write(context: TaskContext) -> None:
    """Write a window of a file, range by range of each table; and the checksums of its pages, if it has pages."""
    sums = [np.empty(0, "<u4")]
    with output_window(context) as out:
        own = RowFile(**context.params["rows"][out.number])
        stripings = [Striping(**context.params["tables"][number]["striping"][own.tier]) for number in own.tables]
        ranges = [(which, k) for which, striping in enumerate(stripings) for k in range(striping.num_ranges)]
        for which, k in ranges[out.parts.start : out.parts.stop]:
            table, striping = context.params["tables"][own.tables[which]], stripings[which]
            part, (unit_bytes, page_bytes) = k * striping.files + own.number, table["shape"]
            rows = _gathered(context, table, table["before"][own.tier] + part, striping.counts[part])
            if own.tier == "ssd":
                rows = as_units(rows, table["stride"], striping.per_unit, unit_bytes)
            written = out.append(rows)
            if own.tier == "ssd" and written.size:
                sums.append(native.page_hashes(written, page_bytes).astype("<u4", copy=False))
    if own.tier == "ssd":
        context.write(sums=np.concatenate(sums))


def _gathered(context: TaskContext, table: Mapping[str, Any], part: int, count: int) -> Bytes:
    rows = context.buffer(count * table["row_bytes"]).reshape(count, table["row_bytes"])
    places = ((chunk, part) for chunk in range(table["chunks"]))
    for found in context.read_many(f"{table['name']}.cut", places, keep=False):
        if found["row"].size:
            native.scatter_rows(found["row"], found["place"], 0, rows, context.threads)
    return rows
