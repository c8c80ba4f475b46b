"""The cheapest window, horizon and read gap of reading the ssd tier, by simulating ``lookahead/plan.hpp``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.formats.layout import Layout
from tiering.readahead.disk_speed import DiskSpeed

Ids = npt.NDArray[np.int64]
Rows = npt.NDArray[np.uint32]
UNLIMITED = 1 << 30  # a window of as many parts as fit the buffer
KNOWN_SHARE, NUMBERS_SHARE = 0.05, 0.1  # of the memory: for batches sampled ahead; for numbers and slots of their rows
BATCHES_SHARE = 0.25  # of the memory, for these numbers and the batches themselves, where all of them are kept
TRIAL_SECONDS, TRIAL_BATCHES = 1.5, 4096  # most sampling before the first epoch, to choose the window by
THINNED = 8  # runs of rows of which one is simulated to choose a window: so many times more batches in the same time
_RUN, _RUNS = 1 << 20, 256  # bytes of a run; number of runs below which all are simulated
_HORIZON = 8  # parts known behind a round, at most, as a multiple of the window: each is looked at in every round
_PLANNED = 3  # windows that are planned or copied at the same time, in addition to the open one
_UNREAD = 2  # of these not yet read: they have the row, slot and time of each read
_WINDOWS = 4  # least windows in the sampled batches: the ends of fewer would count for too much
_WORSE = 1.1  # ratio to the best at which smaller windows are no longer tried


@dataclass(frozen=True)
class SsdTables:
    """The rows of the ssd tier of some node types, in the order of their units."""

    types: list[str]
    rows: list[tuple[int, int, int, int, int]]  # rows, bytes of a row, first unit, stride, rows per unit of each type
    begins: list[int]  # first rank on SSD of each type
    shape: tuple[int, int]  # bytes of a unit, of a page
    images: int

    @classmethod
    def of(cls, layout: Layout, types: Sequence[str]) -> SsdTables:
        """Return the rows of a layout."""
        entries = sorted((layout.type_layout(t) for t in types), key=lambda entry: entry.ssd_rows.first_unit)
        rows = [
            (e.rows("ssd"), e.row_bytes, e.ssd_rows.first_unit, e.ssd_rows.stride, e.ssd_rows.rows_per_unit)
            for e in entries
        ]
        begins = [entry.ranges["ssd"][0] for entry in entries]
        shape = (layout.unit_bytes, layout.page_bytes)
        return cls([e.node_type for e in entries], rows, begins, shape, layout.num_images)

    @property
    def num_rows(self) -> int:
        """Rows of all types."""
        return sum(rows for rows, *_ in self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows of all types on the disk."""
        return sum(rows * stride for rows, _, _, stride, _ in self.rows)

    def among(self, nodes: Mapping[str, Ids]) -> Rows:
        """Return the rows of a batch that lie on SSD, by the core's numbers."""
        return native.ssd_rows_among(self.rows, self.shape, self.begins, [nodes[t] for t in self.types])

    def thinned(self, rows: Rows) -> Rows:
        """Return the rows in one of every `THINNED` runs of neighbors, of about `_RUN` bytes; of a small tier all."""
        if self.thinning == 1:
            return rows
        runs = rows // max(1, _RUN // max(row_bytes for _, row_bytes, *_ in self.rows))
        at = (5 * (runs // THINNED) + 3) % THINNED  # another one of each group of runs, and not the hottest
        chosen: Rows = rows[runs % THINNED == at]
        return chosen

    @property
    def thinning(self) -> int:
        """Number of rows that each of `thinned` stands for."""
        return THINNED if self.num_rows * max(size for _, size, *_ in self.rows) >= _RUNS * _RUN else 1

    def row_bytes_of(self, rows: Rows) -> dict[int, int]:
        """Return the number of `rows` by bytes of a row."""
        bytes_of = self.row_sizes(rows)
        return {row_bytes: int((bytes_of == row_bytes).sum()) for row_bytes in {size for _, size, *_ in self.rows}}

    def row_sizes(self, rows: Rows) -> Ids:
        """Return the bytes of each row of `rows`."""
        ends, sizes = np.cumsum([count for count, *_ in self.rows]), np.array([size for _, size, *_ in self.rows])
        found: Ids = sizes[np.searchsorted(ends, rows, "right")]
        return found

    def type_of_page(self, page: int) -> str:
        """Return the node type whose rows lie in a page: number p * N + k is page p of image k of N."""
        unit_bytes, page_bytes = self.shape
        of_image, image = divmod(page, self.images)
        unit = of_image // (unit_bytes // page_bytes) * self.images + image
        firsts = [first for _, _, first, _, _ in self.rows]
        return self.types[max(0, int(np.searchsorted(firsts, unit, "right")) - 1)]


@dataclass(frozen=True)
class ReadaheadConfig:
    """The reading of an epoch; `seconds`, `reads` and `read_bytes` are estimates per batch of `parts` parts."""

    window: int  # parts whose missing rows are read together, at most; the buffer bounds them too
    horizon: int  # parts known behind a window before it is planned
    gap: int  # read gap: bytes between two rows of one coalesced read, at most
    seconds: float = 0.0
    reads: float = 0.0
    read_bytes: float = 0.0
    parts: float = 1.0

    def __str__(self) -> str:
        window = "as many as fit" if self.window >= UNLIMITED else f"{self.window:,}"
        parts = "batches" if self.parts == 1 else f"parts of batches ({self.parts:.1f} each)"
        return f"window {window} {parts}, horizon {self.horizon:,}, gap {self.gap:,} bytes"


def divide_slots(tables: SsdTables, nbytes: int, sizes: Mapping[int, int]) -> list[tuple[int, int]]:
    """Return (bytes of a row, slots) for a memory of `nbytes`; shares go by the bytes that batches use (`sizes`)."""
    total = {row_bytes: 0 for _, row_bytes, *_ in tables.rows}
    for rows, row_bytes, *_ in tables.rows:
        total[row_bytes] += rows
    used = {row_bytes: row_bytes * max(1, sizes.get(row_bytes, 0)) for row_bytes in total}
    left, shares = nbytes, sum(used.values())
    pools = []
    for row_bytes in sorted(total, key=lambda size: total[size] * (size + 8) / used[size]):  # that need least, first
        slots = min(total[row_bytes], int(left * used[row_bytes] / shares) // (row_bytes + 8))
        pools.append((row_bytes, slots))
        left, shares = left - slots * (row_bytes + 8), shares - used[row_bytes]
    return pools


def max_known(nbytes: int, batches: Sequence[Rows], scale: int = 1, kept: int = 0) -> int:
    """Return how many batches, at least 2, may be known ahead, whose numbers take at most `nbytes`.

    `kept`: bytes of a batch in addition.
    """
    return max(2, int(nbytes / (_mean_bytes(batches, scale) + kept)))


def known_bytes(choice: ReadaheadConfig, batches: Sequence[Rows], scale: int, slots: int, kept: int = 0) -> int:
    """Return the bytes of the numbers of batches that a configuration knows ahead or has planned, and of its reads."""
    known = 2 + ((1 + _PLANNED) * choice.window + choice.horizon) / choice.parts
    mean = _mean_bytes(batches, scale)
    return math.ceil(known * (mean + kept) + 3 * _UNREAD * min(4 * slots, choice.window / choice.parts * mean))


def _mean_bytes(batches: Sequence[Rows], scale: int) -> float:
    """Return the bytes of a batch's numbers."""
    return 4 * max(1.0, scale * float(np.mean([len(batch) for batch in batches])))


def trial_rows(tables: SsdTables, nbytes: int) -> int:
    """Return the rows of batches, thinned ones too, that suffice to choose a configuration for a memory of `nbytes`."""
    return 4 * min(tables.num_rows, nbytes // min(size for _, size, *_ in tables.rows)) // tables.thinning


def enough_batches(tables: SsdTables, nbytes: int, batches: Sequence[Rows]) -> Sequence[Rows]:
    """Return the first batches that have more than `trial_rows`, at least two."""
    total = np.cumsum([len(batch) for batch in batches])
    return batches[: max(2, 1 + int(np.searchsorted(total, trial_rows(tables, nbytes), "right")))]


def hottest_rows(tables: SsdTables, pools: Sequence[tuple[int, int]], scale: int = 1) -> Rows:
    """Return about the rows that a buffer with `pools` holds in the end: the lowest ranks, as many of each type."""
    totals = {row_bytes: sum(count for count, size, *_ in tables.rows if size == row_bytes) for row_bytes, _ in pools}
    share = {row_bytes: min(1.0, scale * slots / max(1, totals[row_bytes])) for row_bytes, slots in pools}
    firsts = np.cumsum([0, *(count for count, *_ in tables.rows)])
    held = np.concatenate([
        np.arange(first, first + int(share[row_bytes] * count), dtype=np.uint32)
        for first, (count, row_bytes, *_) in zip(firsts, tables.rows, strict=False)
    ])  # fmt: skip
    if scale == 1:
        return held
    held = tables.thinned(held)
    sizes = tables.row_sizes(held)
    return np.sort(np.concatenate([held[sizes == row_bytes][:slots] for row_bytes, slots in pools]))


def choose_config(
    tables: SsdTables,
    pools: Sequence[tuple[int, int]],
    batches: Sequence[Rows],
    speed: DiskSpeed,
    windows: Sequence[int] | None = None,
    max_known: int = UNLIMITED,
    scale: int = 1,
) -> ReadaheadConfig:
    """Return the cheapest of `windows` (in batches; by default those that fit the buffer) by simulated reading.

    Two horizons are tried for each: none, which keeps the rows of the lowest ranks, close together on the disk, and one
    that keeps those used next. Where the largest window that the batches can tell of is the cheapest, all of them that
    fit are taken, at its price. `max_known`: batches whose rows may be known at once. The buffer begins with
    `hottest_rows`, and reads for the first third of the batches are not counted. `scale`: rows that each row of
    `batches` (`SsdTables.thinned` then) stands for.
    """
    pools = [(row_bytes, max(1, slots // scale)) for row_bytes, slots in pools]
    cut = [part for batch in batches for part in native.cut_batch(tables.rows, tables.shape, list(pools), batch)]
    parts = len(cut) / len(batches)
    known, warm = int(min(max_known, UNLIMITED) * parts), hottest_rows(tables, pools, scale)
    rows = max(1, int(np.mean([len(part) for part in cut])))
    reach = 1 + 2 * sum(slots for _, slots in pools) // rows
    if windows is None:
        fitting = max(1, min(reach, known // (1 + _PLANNED)))
        most = max(1, min(fitting, len(cut) // _WINDOWS))
        # The most, which may be as many as fit, then by fours; half and twice the best of them at last.
        sizes = [most, *(most // 4**k for k in range(1, most.bit_length()) if 4**k <= most)]
    else:
        sizes = [math.ceil(window * parts) for window in windows]

    def cost(choice: ReadaheadConfig) -> tuple[float, int, int]:
        return choice.seconds, choice.horizon, choice.window

    def cheapest(window: int) -> ReadaheadConfig:
        horizons = {0, max(0, min(max(window, reach), _HORIZON * window, known - (1 + _PLANNED) * window - 1))}
        tried = [choice for h in horizons for choice in _priced(tables, pools, cut, warm, speed, window, h, parts)]
        return min(tried, key=cost)

    best = cheapest(sizes[0])
    for window in sizes[1:]:
        choice = cheapest(window)
        if choice.seconds > _WORSE * best.seconds:
            break
        best = min(best, choice, key=cost)
    between = [] if windows is not None else [w for w in (best.window // 2, 2 * best.window) if 1 <= w <= most]
    best = min([best, *map(cheapest, between)], key=cost)
    if windows is None and best.window == most and not best.horizon:  # what would be cheaper still was not sampled
        best = replace(best, window=fitting)
    figures = {name: scale * getattr(best, name) for name in ("seconds", "reads", "read_bytes")}
    return replace(best, **figures)


@dataclass(frozen=True)
class EpochCost:
    """Reads of an epoch, and the fraction of the rows of its batches that are not read for them."""

    seconds: float
    reads: float
    read_bytes: float
    hit_rate: float


def price_epochs(
    tables: SsdTables,
    pools: Sequence[tuple[int, int]],
    runs: Sequence[Sequence[Rows]],
    speed: DiskSpeed,
    choice: ReadaheadConfig,
    number: int,
    scale: int = 1,
) -> list[EpochCost]:
    """Return the costs of epochs of `number` batches one after the other, but for the first, which fills the buffer.

    `runs`: consecutive batches of each, or all. If all, the buffer is empty before the first, else it has
    `hottest_rows`. Reads of the first and the last batches of a run, as far as window and horizon go, count once, those
    between as often as there are such batches. `scale`: as in `choose_config`.
    """
    pools = [(row_bytes, max(1, slots // scale)) for row_bytes, slots in pools]
    lists, begins = [hottest_rows(tables, pools, scale)] if len(runs[0]) < number else [], list[int]()
    for run in runs:
        begins.append(len(lists))
        lists += [part for batch in run for part in native.cut_batch(tables.rows, tables.shape, list(pools), batch)]
    parts = (len(lists) - begins[0]) / sum(map(len, runs))
    horizon = choice.horizon + math.ceil(parts / 2)  # batches become known whole: half a one more, on average
    rounds = native.simulate_rounds(
        tables.rows, tables.shape, tables.images, list(pools), choice.window, horizon, lists, [choice.gap],
        epoch_ends=begins[1:],
    )  # fmt: skip
    ends, length = np.cumsum([0, *map(len, lists)]), rounds[:, 1] - rounds[:, 0]
    seconds = [speed.seconds(*read) for read in rounds[:, 4:6].tolist()]
    used = ends[rounds[:, 1]] - ends[rounds[:, 0]]
    figures = np.column_stack([seconds, rounds[:, 4], rounds[:, 5], rounds[:, 3], used])
    costs = []
    for run, (begin, end) in zip(runs[1:], pairwise([*begins[1:], len(lists)]), strict=True):
        own, span = (rounds[:, 0] >= begin) & (rounds[:, 1] <= end), min(horizon + choice.window, (end - begin) // 3)
        between = own & (rounds[:, 0] >= begin + span) & (rounds[:, 1] <= end - span)
        between = between if between.any() else own
        times = (number / len(run) - 1) * (end - begin) / int(length[between].sum())
        total = scale * (figures[own].sum(axis=0) + times * figures[between].sum(axis=0))
        seconds_of_all, reads, read_bytes, missed, rows = total.tolist()
        costs.append(EpochCost(seconds_of_all, reads, read_bytes, 1 - missed / max(1.0, rows)))
    return costs


def _priced(
    tables: SsdTables,
    pools: Sequence[tuple[int, int]],
    cut: Sequence[Rows],
    warm: Rows,
    speed: DiskSpeed,
    window: int,
    horizon: int,
    parts: float,
) -> Iterator[ReadaheadConfig]:
    """Yield the costs of reading per batch, which has `parts`, by read gap."""
    gaps, rounds = [0, speed.gap // 4, speed.gap], [warm, *cut]
    table = native.simulate_rounds(tables.rows, tables.shape, tables.images, list(pools), window, horizon, rounds, gaps)
    late = table[table[:, 0] > len(cut) // 3]
    late = late if len(late) else table[-1:]
    number = max(1, int((late[:, 1] - late[:, 0]).sum())) / parts
    for k, gap in enumerate(gaps):
        reads, nbytes = late[:, 4 + 2 * k], late[:, 5 + 2 * k]
        seconds = float(sum(speed.seconds(*read) for read in zip(reads.tolist(), nbytes.tolist(), strict=True)))
        mean = seconds / number, float(reads.sum()) / number, float(nbytes.sum()) / number
        yield ReadaheadConfig(window, horizon, gap, *mean, parts)
