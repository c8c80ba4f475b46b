"""How a relation becomes CSC: by buckets, in memory or by way of the disk, or copied; memory and disk of each way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import numpy as np

from tiering import native
from tiering.artifacts.file_writer import PIECE_BYTES, appending_memory
from tiering.artifacts.manifest import id_bytes, relation_key
from tiering.artifacts.reader import buffer_bytes, bytes_on_disk, uncached_bytes
from tiering.artifacts.storage import LINE, AnyArray, padded
from tiering.formats.dataset import ColumnIds, Dataset, EdgeData, FeatureStream, as_lists
from tiering.formats.graph import relation_folder
from tiering.formats.shape import GraphShape, value_bytes
from tiering.graph.time_order import SPLITTERS, TimeOrder
from tiering.memory import Budget
from tiering.run.job import Carrier
from tiering.run.plan import StageEstimate, StepEstimate, base_memory
from tiering.text.units import format_count

RESIDENT_CHUNK = 1 << 21  # most edges of a chunk where all stay in memory
BUCKETS = 1 << 12  # maximum of buckets: their lines still fit a core's private cache
RUN_PADDING = 12288  # bytes that a run takes in a buffer beyond itself: direct reads begin and end at pages

COPIED_BYTES = 8 << 20
"""Bytes copied together, where lists come by destination already: some 2^20 entries, or fewer that are wide."""


@dataclass(frozen=True)
class SortSizes:
    """How much is done at a time. None of it changes the result."""

    min_chunk: int = 1 << 18
    max_chunk: int = 1 << 23  # edges of a chunk; fewer than `min_chunk` where an edge has more than some 32 bytes
    buckets: int = BUCKETS
    bucket_edges: int = 1 << 15
    run_records: int = 1 << 9  # minimum of edges of a bucket, and of a bucket and chunk, on average
    columns: int = 1 << 19  # maximum of columns that are sorted together
    runs: int = 1024  # maximum of runs of a bucket that are read together
    resident: float = 1.0  # maximal share of the edges that stay in memory between scattering and sorting
    margin: int = 32 << 20  # bytes for everything that is small


SIZES = SortSizes()


def line_up(count: int, items: tuple[int, ...]) -> list[int]:
    """Return where arrays of `count` items begin, one after the other at whole lines, and where the last one ends."""
    return list(accumulate((-(-count * item // LINE) * LINE for item in items), initial=0))


@dataclass(frozen=True)
class BucketPlan:
    """How much a conversion by buckets does at a time, by the memory there is. None of it changes the result."""

    chunk: int  # edges scattered together; also the most that are sorted together
    segments: int  # chunks of the edge list
    resident: int  # segments that stay in memory
    runs: int  # maximum of runs of a bucket read together; with more segments every bucket is scattered once more
    counters: int  # maximum of bytes of counters by segment and bucket
    piece: int  # bytes that a file is written in
    memory: int  # bytes at the peak
    bytes_scratch: int
    """Bytes that go to disk and back. Edges of a bucket that is larger than a chunk, by skew, go there once more."""


def _clip(minimum: int, value: int, maximum: int) -> int:
    return max(minimum, min(value, maximum))


def copied_entries(item: int) -> int:
    """Return the entries of so many bytes that are copied together."""
    return max(1, COPIED_BYTES // item)


@dataclass(frozen=True)
class RelationPlan:
    """How the edges of a relation become CSC, and the sizes that decide the memory of that."""

    edges: EdgeData
    num_src: int
    num_dst: int
    values: Mapping[str, int]  # bytes of a value of each array that runs along the edges, edge ids included
    sizes: SortSizes
    buckets: BucketPlan | None = None  # ``None``: copied, or by tasks
    tasks: int = 0  # tasks side by side that convert it; 0: this process does

    @classmethod
    def of(cls, edges: EdgeData, shape: GraphShape, sizes: SortSizes, carrier: Carrier | None = None) -> RelationPlan:
        """Return the plan of a relation: by the tasks of a carrier where it is large, else by this process."""
        values = next(sized.values for sized in shape.edges if sized.relation == edges.relation)
        plan = cls(edges, shape.num_nodes(edges.relation[0]), shape.num_nodes(edges.relation[2]), values, sizes)
        nbytes = edges.num_edges * plan.edge_bytes
        if carrier is None or plan.copied or not carrier.uses_tasks(nbytes):
            return plan
        return replace(plan, tasks=carrier.grid.parts(nbytes))

    @property
    def order(self) -> TimeOrder | None:
        """How lists are put in order of time; ``None``: they keep the order of the input."""
        if self.edges.time is None:
            return None
        edges, dtype = self.edges, self.edges.data[self.edges.time].dtype.str
        where = f"{edges.where}: relation {relation_key(edges.relation)}"
        return TimeOrder(list(self.values).index(self.edges.time), dtype, edges.is_sorted, where)

    @property
    def offsets(self) -> int:
        """Columns whose offsets are in memory together; a list that is cut by time has more parts."""
        return min(self.num_dst if self.edges.time is None else max(self.num_dst, SPLITTERS + 1), self.sizes.columns)

    @property
    def order_bytes(self) -> int:
        """Memory per entry of lists that are put in order."""
        return 0 if self.order is None else self.order.memory(self.item_bytes)

    @property
    def item_bytes(self) -> tuple[int, ...]:
        """Bytes of each value."""
        return tuple(self.values.values())

    @property
    def id_bytes(self) -> int:
        """Bytes of an id in ``indices``: 4, or 8 where the source type has 2^31 nodes or more."""
        return id_bytes(self.num_src)

    @property
    def parts(self) -> tuple[int, ...]:
        """Bytes that are scattered for an edge: its record, and each value."""
        return (native.scattered_bytes(self.num_src), *self.item_bytes)

    @property
    def written(self) -> tuple[int, ...]:
        """Bytes of the files of the relation: ``indptr``, ``indices``, and each array."""
        return (8 * (self.num_dst + 1), *(self.edges.num_edges * item for item in (self.id_bytes, *self.item_bytes)))

    def segment(self, edges: int) -> list[int]:
        """Return where the parts of so many scattered edges begin in their segment, and where the last one ends."""
        return line_up(edges, self.parts)

    def input_bytes(self, chunk: int, runs: int) -> int:
        """Return the bytes of a buffer that takes a chunk of scattered edges in so many runs."""
        return padded(self.segment(chunk)[-1] + runs * len(self.parts) * RUN_PADDING)

    def plan_buckets(self, spent: int, sizes: SortSizes, room: int = 0) -> BucketPlan:
        """Return the plan whose parts take fixed fractions of `spent`, if that suffices, and that fills `room`.

        Memory throughout: resident segments; two segments that are written, and offsets of the columns; counters by
        segment and bucket; pieces of the files. In addition, while the edge list arrives, what is read, twice, or made
        of each edge of a chunk; afterwards two inputs, what a chunk has scattered and 12 KiB for each run.
        """
        edges, width, parts, arrays = self.edges.num_edges, sum(self.parts), len(self.parts), self.edges.arrays
        read_bytes = buffer_bytes(arrays, cached=True)
        read_bytes += sum(4 * array.dtype.itemsize for array in arrays if not isinstance(array, np.ndarray))
        minimum = max(1, min(sizes.min_chunk, (8 << 20) // (width + read_bytes // 2)))  # 8 MiB, read and scattered
        # Of `spent` a segment takes up to 1/16, what is read of a chunk 1/4, the paddings of an input and the counters
        # 1/16 each, a piece of every file 1/64 together. Fewest runs: 32, or 384 parts of runs, 4.5 MiB of padding.
        chunk = _clip(minimum, spent // (16 * width + 4 * read_bytes), sizes.max_chunk)
        chunk = max(1, min(chunk, edges))
        segments = -(-edges // chunk)
        runs = _clip(min(sizes.runs, max(32, 384 // parts)), spent // (16 * parts * RUN_PADDING), sizes.runs)
        counters = min(_clip(4 << 20, spent // 16, 64 << 20), 16 * segments * sizes.buckets)  # two int64 each
        piece = 1 << _clip(18, (spent // (64 * len(self.written))).bit_length() - 1, PIECE_BYTES.bit_length() - 1)
        segment = padded(self.segment(chunk)[-1])
        inputs = self.input_bytes(chunk, min(runs, segments))
        offsets, margin = 8 * self.offsets, min(sizes.margin, (4 << 20) + 16 * edges)
        files = sum(appending_memory(nbytes, piece) for nbytes in self.written)
        fixed = 2 * segment + max(chunk * read_bytes, 2 * inputs + chunk * self.order_bytes)
        fixed += 2 * counters + offsets + files + margin  # buckets that are scattered once more have half the counters
        resident = _clip(0, min((room - fixed) // segment, int(sizes.resident * segments)), segments)
        scratch = (segments - resident) * segment
        if segments and not resident:  # the last one is the first to stay in memory: it may be shorter
            scratch += padded(self.segment(edges - (segments - 1) * chunk)[-1]) - segment
        return BucketPlan(
            chunk=chunk, segments=segments, resident=resident, runs=runs, counters=counters, piece=piece,
            memory=fixed + resident * segment, bytes_scratch=scratch,
        )  # fmt: skip

    def copy_memory(self) -> int:
        """Return the peak bytes of a copy: two chunks being read, one being converted, pieces of the file, the rest."""
        items = (8, *(value_bytes(array) for array in self.edges.data.values()))
        chunk = max(item * min(self.edges.num_edges + self.num_dst + 1, copied_entries(item)) for item in items)
        return 3 * chunk + max(map(appending_memory, self.written)) + (4 << 20)

    @property
    def need(self) -> tuple[int, str]:
        """Memory that this process takes for it in bytes, and for what."""
        folder, plan = relation_folder(self.edges.relation), self.buckets
        if plan is None:
            return self.copy_memory(), f"{folder}: copying its lists"
        pieces = f"{format_count(plan.chunk)} edges at a time and {len(self.written)} files being written"
        return plan.memory, f"{folder}: {pieces}"

    @property
    def copied(self) -> ColumnIds | None:
        """Lists by destination, which the files copy; ``None``: the edges come in another order."""
        return None if as_lists(self.edges.src) or self.edges.time is not None else as_lists(self.edges.dst)

    @property
    def edge_bytes(self) -> int:
        """Memory of a task per edge in bytes."""
        read = sum(array.dtype.itemsize for array in (self.edges.src, self.edges.dst)) + sum(self.item_bytes)
        scattered = sum(self.parts)
        return max(read + scattered, 2 * scattered + self.order_bytes)  # a chunk; a range with its lists

    def arrays(self) -> list[AnyArray | None]:
        """Return the arrays along the edges, as they are named in `values`; ``None``: the edges' numbers."""
        return [self.edges.edge_ids if name == "edge_ids" else self.edges.data[name] for name in self.values]

    def files(self) -> list[tuple[str, str, tuple[int, ...]]]:
        """Return names, dtypes and shapes of the relation's files: ``indptr``, ``indices``, arrays along the edges."""
        count = self.edges.num_edges
        made: list[tuple[str, str, tuple[int, ...]]] = [
            ("indptr", "int64", (self.num_dst + 1,)),
            ("indices", f"int{8 * self.id_bytes}", (count,)),
        ]
        for name, array in zip(self.values, self.arrays(), strict=True):
            dtype, tail = ("int64", ()) if array is None or name == "edge_ids" else (array.dtype.name, array.shape[1:])
            made.append((name, dtype, (count, *tail)))
        return made

    def steps(self) -> list[StepEstimate]:
        """Return one step in memory, two by way of the disk: the edges are scattered, then sorted."""
        name, edges, plan = relation_key(self.edges.relation), self.edges.num_edges, self.buckets
        written, read = sum(self.written), bytes_on_disk(self.edges.arrays)
        step = StepEstimate(name, "in memory", disk_read=read, disk_written=written, amount=edges, unit="edge")
        if self.tasks:
            memory = -(-edges // self.tasks) * self.edge_bytes
            counts = 16 * self.tasks * min(self.num_dst, BUCKETS)  # int64 by chunk and bucket, of `count` and `scatter`
            shuffled = edges * sum(self.parts) + counts + written  # chunks scattered and counted, then ranges sorted
            return [replace(step, how=f"{self.tasks} tasks", memory=memory, disk_scratch=shuffled, in_store=True)]
        if plan is None:
            indptr = [self.copied.indptr] if self.copied else []
            read = sum(map(uncached_bytes, [*indptr, *self.edges.arrays]))
            return [replace(step, how="copied", memory=self.copy_memory(), disk_read=read)]
        step = replace(step, memory=plan.memory)
        if not plan.bytes_scratch:
            return [step]
        whole = max(1, plan.segments * padded(self.segment(plan.chunk)[-1]))
        how = f"buckets, {plan.bytes_scratch / whole:.0%} on disk"
        if plan.segments > plan.runs:
            how += ", twice"
        return [
            replace(step, how=how, disk_written=0, disk_scratch=plan.bytes_scratch),
            replace(step, name=f"{name} sorted", how=how, disk_read=0),
        ]


def _plan_here(relation: RelationPlan, room: int) -> RelationPlan:
    """Decide how this process converts a relation, by the bytes left for it."""
    if relation.copied:
        return relation
    # Large chunks make long runs on disk. Where all edges stay in memory small ones are as fast.
    sizes, small = relation.sizes, replace(relation.sizes, max_chunk=min(relation.sizes.max_chunk, RESIDENT_CHUNK))
    plan = relation.plan_buckets(room, small, room)
    if plan.memory > room or plan.bytes_scratch:
        plan = relation.plan_buckets(room, sizes, room)
    if plan.memory > room:
        plan = relation.plan_buckets(0, sizes, room)
    return replace(relation, buckets=plan)


@dataclass(frozen=True)
class ImportPlan:
    """Plan of an import: the run carries it out, the dry run prints `stage`."""

    dataset: Dataset
    shape: GraphShape
    relations: tuple[RelationPlan, ...]
    budget: Budget

    def stage(self, out: Path) -> StageEstimate:
        """Return the steps for an artifact at `out`."""
        steps = [step for relation in self.relations for step in relation.steps()]
        features = list(self._features())
        left = {out: self.shape.graph_bytes() + sum(step.disk_written for step in features) + self._name_bytes()}
        return StageEstimate("import", out, (*steps, self._nodes(), *features), left, held=base_memory(self.budget))

    def _name_bytes(self) -> int:
        tables = [data.names for data in self.dataset.nodes.values() if data.names is not None]
        return sum(array.nbytes for table in tables for array in table.arrays.values())

    def _nodes(self) -> StepEstimate:
        """Return the step of labels, splits, names and other arrays of the nodes; the manifests."""
        nodes, read, copied = self.dataset.nodes.values(), 0, 0
        for values in (v for data in nodes for v in (data.labels, *data.splits.values(), *data.extra.values())):
            if values is not None:
                read += uncached_bytes(values)
                narrow = values.ndim == 1 and values.dtype.kind in "iu" and values.dtype.itemsize != 8
                copied = max(copied, 8 * values.size if narrow or not values.flags.c_contiguous else 0)
        return StepEstimate(
            "nodes", "in memory", memory=copied, disk_read=read, amount=self.shape.num_nodes(), unit="node",
            disk_written=sum(map(self.shape.node_bytes, self.shape.node_types)) + self._name_bytes(),
        )  # fmt: skip

    def _features(self) -> Iterator[StepEstimate]:
        """Yield the feature rows that lie in no file to refer to."""
        for node_type, data in self.dataset.nodes.items():
            stream, table = data.features, self.shape.feature_table(node_type)
            if isinstance(stream, FeatureStream) and table is not None:
                yield StepEstimate(
                    f"features of {node_type}", stream.how, memory=stream.memory + appending_memory(table.bytes),
                    disk_read=stream.read, disk_written=table.bytes, amount=table.rows, unit="row",
                )  # fmt: skip


def plan_import(
    dataset: Dataset, budget: Budget, *, edge_ids: bool = False, sizes: SortSizes = SIZES, out: Path | None = None,
    carrier: Carrier | None = None,
) -> ImportPlan:  # fmt: skip
    """Plan an import; a `carrier` runs large relations that are not just copied. `BudgetError`: too little memory."""
    shape = GraphShape.of_dataset(dataset, edge_ids=edge_ids, path=out or Path())
    cut = [RelationPlan.of(edges, shape, sizes, carrier) for edges in dataset.edges]
    for plan in cut:
        if not plan.tasks:
            plan.edges.bring()
    plans = tuple(plan if plan.tasks else _plan_here(plan, budget.left()) for plan in cut)
    needs = [plan.need for plan in plans if not plan.tasks]
    for name, node in dataset.nodes.items():
        if isinstance(node.features, FeatureStream):
            needed = node.features.memory + appending_memory(shape.tables[name].bytes)
            needs.append((needed, f"features of {name}: rows in transit, and the file being written,"))
    needs.append((dataset.peak - budget.resident, "reading the input"))
    expected = [plan.plan_buckets(0, sizes).memory for plan in cut if not plan.tasks]
    budget = budget.expecting(max([dataset.peak - budget.resident, *expected]))
    for needed, what in needs:
        budget.require(needed, what)
    pairs = zip(shape.edges, plans, strict=True)
    edges = tuple(replace(sized, uncached=float(plan.tasks > 0 or plan.buckets is not None)) for sized, plan in pairs)
    return ImportPlan(dataset, replace(shape, edges=edges), plans, budget)


def least_memory(dataset: Dataset, *, sizes: SortSizes = SIZES) -> int:
    """Return the least memory of an import in bytes: offsets of a relation's lists, and its conversion."""
    shape = GraphShape.of_dataset(dataset)
    plans = [RelationPlan.of(edges, shape, sizes) for edges in dataset.edges]
    return max((max(plan.plan_buckets(0, sizes).memory, 8 * (plan.num_dst + 1)) for plan in plans), default=0)
