"""Reading of an epoch from SSD, predicted before a layout exists, for sizes of memory, disks and stored dtypes.

All rows lie on SSD in the order of a score. Some batches are sampled; the loader's own division of its memory, choice
of a window and plan of reads are then run on them (`tiering.readahead`), and a model of the disk prices the reads.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, cast

import numpy as np

from tiering.codecs import AUTO, CODECS, DELIVERED
from tiering.errors import InputError
from tiering.evaluation.cache_order import FEATURES, IntArray, RowBytes, Rows, Score, competing_rows
from tiering.evaluation.counting import ReferenceEpochs
from tiering.evaluation.list_reads import ListReads
from tiering.evaluation.locality import measure_locality
from tiering.evaluation.options import PlanOptions
from tiering.evaluation.predictions import EpochPredictions, PredictedEpoch
from tiering.formats.encoded_rows import EncodedTable, encoded_table
from tiering.formats.graph import Graph
from tiering.formats.ssd_rows import SsdRows
from tiering.formats.user_arrays import Train, UserValues, resolve_times, resolve_train
from tiering.memory import FLOORS, Budget, parse_memory
from tiering.readahead.config import TRIAL_BATCHES, TRIAL_SECONDS, SsdTables, enough_batches, price_epochs
from tiering.readahead.config import Rows as DiskRows
from tiering.readahead.disk_speed import QueueDepth
from tiering.readahead.disks import Disk, find_disk
from tiering.readahead.memory import BatchMemory, BufferMemory, WindowMemory, all_rows_fit, mapped_files, room_for_all
from tiering.sampling import EpochPlan, SampledBatch, Sampler, SamplingOptions, make_sampler
from tiering.sampling import batches as cut_batches
from tiering.sampling.base import ListFiles
from tiering.sampling.lists import window_lists
from tiering.sampling.memory import batch_bytes
from tiering.text.progress import progress
from tiering.text.units import ask_percent, format_bytes, format_count, parse_size, parse_threads

RUNS = 6
"""Samples of consecutive batches, each from another epoch: the first fills the buffer, those after it are priced."""
SHARE = 0.01  # fraction of the batches of an epoch that all samples have together
LEAST_BATCHES = 64
"""Least batches of a sample; a loader's trial may need more. An epoch shorter than two samples is one sample."""
LADDER = 7  # number of memory sizes by default, from the size that holds all rows down
SPAN = 32  # ratio of the largest of these sizes to the smallest, unless the least size is larger
RESIDENT = FLOORS["trace"]  # bytes of a training process that has loaded torch, before its loader is made
_WHOLE = 1 << 30  # bytes of a table whose rows are all simulated; to choose a window the loader takes fewer
_STUDENT = 2.776  # 97.5 % quantile of Student's t with `RUNS` - 2 degrees of freedom
_LISTED = 16  # batches of a trial whose lists are read by windows
_CLOSE = 1.03  # ratio to which a least memory is found


def predict(
    graph: Graph,
    sampling: SamplingOptions,
    *,
    scores: Score | None = None,
    train: Train = None,
    seed_time: UserValues | None = None,
    row_bytes: RowBytes = None,
    threads: int | str | None = None,
    memory: str | int | Budget | None = None,
    **options: Any,
) -> EpochPredictions:
    """Predict seconds of I/O, requests, bytes and hit rate of an epoch after the first, by memory, disk and dtype.

    Parameters
    ----------
    graph
        A reordered graph, whose order is the order of the rows on SSD; or another one with `scores`.
    scores
        An artifact, or one vector per node type, in original ids, by which rows would be ordered.
    train
        Training nodes, where the graph's own split is not meant.
    seed_time
        With `time`: the time of each training node, as in `tiering.evaluation.run.evaluate`.
    row_bytes
        Bytes of a row of types without features: see `competing_rows`. They count as float32.
    memory
        Memory that the prediction itself may take.
    **options
        Fields of `PlanOptions`.

    Returns
    -------
    EpochPredictions
        One `PredictedEpoch` for each dtype, disk and memory, in this order, memory ascending.

    Raises
    ------
    InputError
        For a graph without training nodes or row sizes, and memory that has no room for the loader's batches.

    Notes
    -----
    Cost: `RUNS` samples of batches, as `SHARE` and `LEAST_BATCHES` say, the locality's (`measure_locality`), and some
    ten simulations of a sample for each prediction. Memory: 8 bytes per row where rows are ordered by `scores`, one
    batch per thread, and 8 bytes per row of the sampled batches (above a GiB of one row in eight).
    """
    asked, how = PlanOptions(**options), sampling
    rows = competing_rows(graph, row_bytes)
    if not rows.bytes_known:
        raise InputError(
            f"{graph.path}: the graph has no features, and the plan needs the size of a row; give it with --row-bytes"
        )
    disks = [disk if isinstance(disk, Disk) else find_disk(disk) for disk in asked.disk]
    seeds, workers = resolve_train(graph, train, how.seed, repeats=seed_time is not None), parse_threads(threads)
    sampler = make_sampler(graph, how)
    times = sampler.seed_times(seeds, resolve_times(seed_time, seeds))
    stored = [StoredRows.of(graph, rows, dtype, asked.page_bytes) for dtype in asked.dtype]
    budget, batches = parse_memory(memory), -(-sum(ids.size for ids in seeds.values()) // how.batch_size)
    need, each = 56 * rows.size if scores is not None else 0, batch_bytes(graph, how)
    need = max(need, sum(map(graph.num_nodes, graph.node_types)))  # a byte for each node: `measure_locality`
    budget.require(need + each, f"plan: the order of {format_count(rows.size)} rows and a batch")
    workers = max(1, min(workers, (budget.left() - need) // max(1, each)))
    positions = None if scores is None else _positions(graph, rows, scores, workers)
    if scores is None and graph.order is None:
        raise InputError(f"{graph.path}: expected a reordered graph, or scores to order its rows by; give --scores S")
    targets, room = Targets(seeds, times), budget.left() - need
    lists = window_lists(sampler, room)
    locality = measure_locality(ReferenceEpochs(sampler, seeds, how, range(1), workers, times, lists))
    sample = BatchSample.draw(sampler, how, targets, rows, stored, positions, workers, room)
    lists_disk = asked.lists_disk if asked.lists_disk is None or isinstance(asked.lists_disk, Disk) else find_disk(
        asked.lists_disk
    )  # fmt: skip
    predictor = Predictor(sample, stored, disks, batches, lists_disk)
    sizes = sorted(map(_budget, asked.rows_in_memory), key=lambda size: size.limit) or predictor.ladder()
    found = EpochPredictions(
        predictor.epochs(sizes), batches, RUNS * sample.length, {disk.name: disk for disk in disks}, locality,
        asked.step_seconds, asked.prices, {"bytes": rows.bytes, **how.to_json()},
    )  # fmt: skip
    if asked.target_seconds is None:
        return found
    least = [predictor.least_memory(*pair, asked.target_seconds, found.step_total) for pair in predictor.pairs]
    return replace(found, target=asked.target_seconds, least=least)


def _budget(size: str | int | Budget) -> Budget:
    """Return the memory of a loader in a training process."""
    if isinstance(size, Budget):
        return size
    if parse_size(size, "rows in memory").bytes == 0:
        raise InputError(f"rows in memory: expected a size such as 8GiB, found {size!r}")
    return parse_memory(size, RESIDENT)


def _positions(graph: Graph, rows: Rows, scores: Score, threads: int) -> dict[str, Any]:
    """Return the rank of each node by type in the order of `scores`."""
    order, positions = rows.sort(rows.join_scores(graph, "scores", scores), threads), {}
    for index, (node_type, own) in enumerate(zip(rows.types, rows.split(order), strict=True)):
        positions[node_type] = np.empty(own.size, np.uint32)
        positions[node_type][own - int(rows.starts[index])] = np.arange(own.size, dtype=np.uint32)
    return positions


@dataclass(frozen=True)
class StoredRows:
    """All rows as one dtype stores them: bytes of a row by type, stored and delivered."""

    rows: Rows
    dtype: str
    page: int
    sizes: tuple[int, ...]
    delivered: tuple[int, ...]
    _tables: dict[int, SsdTables] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph, rows: Rows, dtype: str, page: int) -> StoredRows:
        """Return the rows of a graph stored as `dtype`, which is a codec or ``auto``, as `tiering layout` has it."""
        sizes, delivered, names = [], [], []
        for node_type, row_bytes, origin in zip(rows.types, rows.row_bytes, rows.origins, strict=True):
            table = graph.feature_table(node_type) if origin == FEATURES else None
            if table is None:
                name = "float32" if dtype == AUTO else dtype
                size = row_bytes if name == "float32" else CODECS[name].stored_bytes(row_bytes // 4)
            else:
                coded = encoded_table(table, dtype, f"{graph.path}: {node_type}", look=True)
                name, size = (coded.name if isinstance(coded, EncodedTable) else coded.dtype), coded.row_bytes
                row_bytes = row_bytes if name == table.dtype or table.dtype in DELIVERED else 4 * table.dim
            sizes.append(max(1, size))
            delivered.append(row_bytes)
            names.append(name)
        label = names[0] if len(set(names)) == 1 else dtype
        return cls(rows, label, page, tuple(sizes), tuple(delivered))

    def tables(self, drives: int) -> SsdTables:
        """Return the rows as in a layout that has nothing but an ssd tier."""
        if drives not in self._tables:
            sizes = list(zip(self.rows.counts, self.sizes, strict=True))
            unit, places = SsdRows.plan_all(sizes, self.page, drives)
            entries = [
                (count, size, place.first_unit, place.stride, place.rows_per_unit)
                for (count, size), place in zip(sizes, places, strict=True)
            ]
            types, begins = list(self.rows.types), [0] * len(entries)
            self._tables[drives] = SsdTables(types, entries, begins, (unit, self.page), drives)
        return self._tables[drives]

    @property
    def whole(self) -> bool:
        """Whether all rows are simulated, not one in `THINNED`."""
        return self.bytes <= _WHOLE

    @cached_property
    def bytes(self) -> int:
        """Bytes of all rows."""
        return sum(count * size for count, size in zip(self.rows.counts, self.sizes, strict=True))


@dataclass(frozen=True)
class Targets:
    """Training nodes by type and, with times, theirs."""

    ids: Mapping[str, Any]
    times: Mapping[str, Any]


def _batch_rows(
    nodes: Mapping[str, Any], rows: Rows, stored: Sequence[StoredRows], positions: Mapping[str, Any] | None
) -> tuple[list[DiskRows], IntArray]:
    """Return the rows of a batch's `nodes` by stored dtype, of large tables thinned, and their number by type."""
    places = {t: nodes[t] if positions is None else positions[t][nodes[t]] for t in rows.types}
    parts = [places[t] + rows.starts[index] for index, t in enumerate(rows.types)]
    joined = np.sort(np.concatenate(parts)).astype(np.uint32)
    kept = [joined if each.whole else each.tables(1).thinned(joined) for each in stored]
    return kept, np.array([ids.size for ids in places.values()], np.int64)


@dataclass(frozen=True)
class BatchSample:
    """Sampled batches: `RUNS` runs of `length` consecutive ones; the first begins with the loader's trial batches."""

    length: int
    trial: int  # batches of the loader's trial, unless it has enough before
    runs: list[list[list[DiskRows]]]  # by stored dtype and run: rows of each batch, of large tables thinned
    first: IntArray  # rows of the first batch by type
    sampled: int  # bytes of its nodes and edges
    nodes: int  # most of a batch
    edges: int
    mapped: int  # bytes of the graph's files that sampling has mapped
    lists: ListReads | None  # ``None`` for lists that loaders map with any memory

    @classmethod
    def draw(
        cls, sampler: Sampler, how: SamplingOptions, seeds: Targets, rows: Rows,
        stored: Sequence[StoredRows], positions: Mapping[str, Any] | None, threads: int, room: int,
    ) -> BatchSample:  # fmt: skip
        """Sample the runs; each begins at another place of an epoch of its own. `room`: bytes that windows may take."""

        def epoch(number: int) -> EpochPlan:
            return cut_batches(seeds.ids, how.batch_size, number, seed=how.seed, seed_time=seeds.times)

        def sample(plan: EpochPlan, number: int) -> tuple[list[DiskRows], IntArray, int, int, int]:
            ids, times = plan.seeds_of(number)
            return measured(sampler.sample(ids, epoch=plan.epoch, batch=number, seed_time=times))

        def measured(batch: SampledBatch) -> tuple[list[DiskRows], IntArray, int, int, int]:
            kept, counts = _batch_rows(batch.unique_nodes, rows, stored, positions)
            nodes = sum(ids.size for ids in batch.nodes.values())
            return kept, counts, batch.nbytes, nodes, batch.num_edges

        def window(files: ListFiles, plan: EpochPlan, first: int, last: int) -> Iterator[SampledBatch]:
            size = 1
            while first < last:
                batches = range(first, min(last, first + size))
                targets = [plan.seeds_of(batch) for batch in batches]
                made, size, _ = sampler.sample_window(targets, batches, files, size, epoch=plan.epoch)
                first += len(made)
                yield from made

        plan, trial, start = epoch(0), list[tuple[list[DiskRows], IntArray, int, int, int]](), time.perf_counter()
        count, files = len(plan), window_lists(sampler, room)
        if files is not None:
            trial = list(map(measured, window(files, plan, 0, min(count, _LISTED))))
        while files is None and len(trial) < min(count, TRIAL_BATCHES) and time.perf_counter() - start < TRIAL_SECONDS:
            trial.append(sample(plan, len(trial)))
        length = max(LEAST_BATCHES, len(trial), math.ceil(SHARE * count / RUNS))
        length = count if count < 2 * length else length

        def keys() -> Iterator[tuple[EpochPlan, int, int]]:
            for run in range(RUNS):
                begin = run * (count - length) // (RUNS - 1)
                yield epoch(run), begin + (0 if run else len(trial)), begin + length

        def others(pool: ThreadPoolExecutor) -> Iterator[tuple[list[DiskRows], IntArray, int, int, int]]:
            if files is not None:
                return (measured(batch) for key in keys() for batch in window(files, *key))
            numbered = ((plan, number) for plan, first, last in keys() for number in range(first, last))
            return pool.map(lambda key: sample(*key), numbered)

        runs: list[list[list[DiskRows]]] = [[[] for _ in range(RUNS)] for _ in stored]
        sizes: list[tuple[Any, ...]] = []
        with ThreadPoolExecutor(threads) as pool, progress(RUNS * length, "sampling", "batch") as bar:
            for number, (thinned, *size) in enumerate(chain(trial, others(pool))):
                for of_dtype, own in zip(runs, thinned, strict=True):
                    of_dtype[number // length].append(own)
                sizes.append(tuple(size))
                bar.update()
        mapped = sum(len(file) for _, file in mapped_files(cast("Graph", sampler.graph)))
        nodes, edges = (max(size[part] for size in sizes[: len(trial)]) for part in (2, 3))
        lists = ListReads.count(sampler, plan, room)
        return cls(length, len(trial), runs, sizes[0][0], sizes[0][1], nodes, edges, mapped, lists)


@dataclass(frozen=True)
class Predictor:
    """Predictions from one sample of the batches of an epoch."""

    sample: BatchSample
    stored: Sequence[StoredRows]
    disks: Sequence[Disk]
    batches: int  # of an epoch
    lists_disk: Disk | None = None  # by default the rows' disk

    def batch_memory(self, number: int) -> BatchMemory:
        """Return the memory of the loader's batches where rows are stored as dtype `number`."""
        rows = int(self.sample.first @ np.array(self.stored[number].delivered))
        return BatchMemory.of(rows, self.sample.sampled)

    def windows(self, number: int, left: int) -> WindowMemory | None:
        """Return the windows of a loader of whose memory so many bytes are left; ``None`` where lists are mapped."""
        sample, rows = self.sample, self.stored[number].bytes
        if sample.lists is None:
            return None
        return sample.lists.windows(left, sample.sampled, rows, rows + self.batch_memory(number).work, sample.mapped)

    def buffer_memory(self, number: int, disk: Disk, windows: WindowMemory | None) -> BufferMemory:
        """Return the needs of the loader's buffer."""
        sample, depth = self.sample, QueueDepth.choose("auto", disk.speed, disk.drives).depth
        tables, outputs = self.stored[number].tables(disk.drives), self.batch_memory(number).outputs
        about = sample.nodes, sample.edges, depth
        if windows is None:
            return BufferMemory.of(tables, outputs, sample.mapped, *about)
        mapped = sample.mapped - windows.lists
        return BufferMemory.of(tables, outputs + windows.room, mapped, *about, workers=1, kept=sample.sampled)

    def limits(self, number: int, disk: Disk) -> tuple[int, int]:
        """Return the least memory of a loader, and that which holds all rows, in bytes."""
        everything = room_for_all(self.stored[number].bytes + self.batch_memory(number).work, self.sample.mapped)
        least = min(everything, self.buffer_memory(number, disk, self.windows(number, 0)).minimum)
        return RESIDENT + least, RESIDENT + everything

    def ladder(self) -> list[Budget]:
        """Return sizes of memory up to the least that holds all rows of every dtype."""
        limits = [self.limits(*pair) for pair in self.pairs]
        least, everything = max(low for low, _ in limits), max(high for _, high in limits)
        sizes = {round_up(int(size)) for size in np.geomspace(max(least, everything // SPAN), everything, LADDER)}
        return [Budget(size, format_bytes(size), RESIDENT) for size in sorted(sizes)]

    @property
    def pairs(self) -> list[tuple[int, Disk]]:
        """Numbers of the dtypes, each with each disk."""
        return [(number, disk) for number in range(len(self.stored)) for disk in self.disks]

    def epochs(self, sizes: Sequence[Budget]) -> list[PredictedEpoch]:
        """Predict an epoch for each dtype, disk and memory."""
        cells = []
        with progress(len(self.pairs) * len(sizes), "simulating reads", "epoch") as bar:
            for pair in self.pairs:
                for size in sizes:
                    cells.append(self.epoch(*pair, size))
                    bar.update()
        return cells

    def epoch(self, number: int, disk: Disk, budget: Budget) -> PredictedEpoch:
        """Predict the epochs after the first with the memory of `budget`: their medians."""
        stored, sample = self.stored[number], self.sample
        tables, scale = stored.tables(disk.drives), stored.tables(disk.drives).thinning
        windows = self.windows(number, budget.left())
        base = PredictedEpoch(budget.limit, disk.name, stored.dtype, load_bytes=stored.bytes)
        if all_rows_fit(stored.bytes + self.batch_memory(number).work, sample.mapped, budget.left()):
            return base if windows is None else self._with_lists(base, windows, disk)
        memory, runs = self.buffer_memory(number, disk, windows), sample.runs[number]
        first = runs[0][: sample.trial]
        first = [tables.thinned(rows) for rows in first] if stored.whole else first
        trial = enough_batches(tables, budget.left(), first)
        if budget.left() < memory.minimum:
            raise InputError(
                f"rows in memory: {budget.text} ({format_bytes(budget.limit)}) is too little: a loader needs at "
                f"least {format_bytes(budget.limit - budget.left() + memory.minimum)} for its process, batches and "
                f"reads; give more{ask_percent(budget.text)}, or make batches smaller"
            )
        if windows is not None:
            memory = memory.with_windows(windows, budget)
        plan = memory.plan(tables, budget, trial, disk.speed)
        counted = 1 if stored.whole else scale
        costs = price_epochs(tables, plan.pools, runs, disk.speed, plan.choice, self.batches, counted)
        seconds, reads, read, hits = np.median([astuple(cost) for cost in costs], axis=0).tolist()
        error = _STUDENT * float(np.std([cost.seconds for cost in costs], ddof=1)) / math.sqrt(len(costs))
        figures = {"seconds": seconds, "error": error, "requests": reads, "bytes": read, "hit_rate": hits}
        found = replace(base, load_bytes=0, **figures, choice=plan.choice)
        return found if windows is None else self._with_lists(found, windows, disk)

    def _with_lists(self, epoch: PredictedEpoch, windows: WindowMemory, disk: Disk) -> PredictedEpoch:
        """Return an epoch with what reading lists by windows costs in addition."""
        assert self.sample.lists is not None
        reads, nbytes, largest = self.sample.lists.of_epoch(self.batches, windows.batches)
        at = disk if self.lists_disk is None else self.lists_disk
        return replace(
            epoch, lists_window=largest, lists_seconds=at.speed.seconds(reads, nbytes), lists_bytes=nbytes,
            lists_requests=reads, lists_disk=at.name,
        )  # fmt: skip

    def least_memory(self, number: int, disk: Disk, seconds: float, steps: float) -> PredictedEpoch | None:
        """Return the epoch with least memory that takes at most `seconds`; ``None`` if `steps` alone take longer."""
        low, high = self.limits(number, disk)

        def predicted(limit: int) -> PredictedEpoch:
            return self.epoch(number, disk, Budget(limit, format_bytes(limit), RESIDENT))

        best = predicted(high)
        if steps > seconds:
            return None
        if (least := predicted(low)).io_seconds <= seconds:
            return least
        while high > _CLOSE * low:
            middle = math.isqrt(low * high)
            found = predicted(middle)
            low, high, best = (low, middle, found) if found.io_seconds <= seconds else (middle, high, best)
        return best


def round_up(size: int) -> int:
    """Return a size of at least so many bytes that has few digits: 1/64 more at most."""
    step = 1 << max(0, size.bit_length() - 7)
    return -(-size // step) * step
