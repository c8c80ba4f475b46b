"""Move items in this process to places in files that are known before the items are read.

A window is a run of whole blocks of a file. The windows that fit the memory are filled together while the items pass,
once for each such group; beyond `MAX_PASSES` groups the items are first cut by window into shuffle files, so that
nothing is read once per window without limit. Windows are written in their places: a stopped run resumes by blocks.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from tiering.artifacts import checksum
from tiering.artifacts.file_writer import FileWriter, appending_memory
from tiering.artifacts.storage import AnyArray, Bytes, aligned_bytes
from tiering.memory import Budget
from tiering.run.pieces import ShuffleFile, ShuffleFileWriter, fresh, read_partition
from tiering.run.places import Places, Window, WindowBuffer
from tiering.run.store import Store
from tiering.text.progress import progress

PLACE_BYTES = 48  # memory of an item that passes a window: its number, its place, what that is computed from
MAX_PASSES = 3  # groups up to which items pass once for each: cutting them writes and reads them once more
_COPIES = 4  # of a chunk that is cut: read, sorted, written, and numbers of items


@dataclass(frozen=True)
class ReadPlan:
    """How items are read: in the order of their places, or as they lie."""

    how: str  # ``in order``, ``gather`` or, as they lie, ``passes``
    items: int
    step: int  # items that come together
    piece: int  # bytes of these
    memory: int  # bytes held while they are read

    @property
    def ordered(self) -> bool:
        """Whether the items of some windows are read alone."""
        return self.how != "passes"


class Reader(Protocol):
    """Items and their numbers, ranks of rows."""

    @property
    def reading(self) -> ReadPlan:
        """How items are read."""

    def read(self, begin: int, end: int, multiple: int = 1) -> Iterator[tuple[Bytes, AnyArray | range]]:
        """Yield items in pieces: with the numbers [begin, end) where they are read in order, else from the input.

        All pieces but the last have a multiple of so many items.
        """


class Move(Protocol):
    """Items or lists that fill windows."""

    @property
    def reach(self) -> int:
        """Bytes of an item but one."""

    def fills(self, window: Window) -> bool:
        """Return whether a window has some of the items."""

    def read(self, windows: Sequence[Window]) -> Iterator[Any]:
        """Yield pieces of the input, of which windows need some."""

    def place(self, piece: Any, buffer: WindowBuffer) -> None:
        """Copy to a window what it has of a piece."""

    def finish(self, buffer: WindowBuffer) -> None:
        """Complete a window that has all of its items."""


@dataclass(frozen=True)
class Items:
    """Items of one length, with the number of each: feature rows, arrays along nodes."""

    reader: Reader
    places: Places
    threads: int = 1

    @property
    def reach(self) -> int:
        """Bytes of an item but one."""
        return self.places.item_bytes - 1

    def fills(self, window: Window) -> bool:
        """Return whether a window has some of the items."""
        low, high = self.places.items(window)
        return low < high

    def read(self, windows: Sequence[Window]) -> Iterator[tuple[Bytes, AnyArray]]:
        """Yield items with their places: items of the windows where they are read in order, else all."""
        if not self.reader.reading.ordered:
            spans = [(0, self.reader.reading.items)]
        else:
            spans = _merge_ranges(self.places.items(window) for window in windows)
        for begin, end in spans:
            for items, numbers in self.reader.read(begin, end):
                yield items, self.places.of(numbers)

    def stream(self, files: Sequence[FileWriter]) -> Iterator[tuple[int, int, Bytes]]:
        """Yield what files miss of items that are read in order: number of the file, first byte, and units."""
        for lane in self.places.lanes:
            for items, numbers in self.reader.read(lane.missing(files), lane.end, lane.per_unit):
                yield from lane.deal(int(numbers[0]), items)
                del items, numbers  # before the next lane is read

    def place(self, piece: tuple[Bytes, AnyArray], buffer: WindowBuffer) -> None:
        """Copy to a window what it has of a piece."""
        self.places.put(*piece, buffer, self.threads)

    def finish(self, buffer: WindowBuffer) -> None:
        """Leave the items as they are."""


def _merge_ranges(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges in ascending order, those that touch as one."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


@dataclass(frozen=True)
class MoveCost:
    """The cost of the items of one kind among those that are moved together."""

    how: str  # strategy in words
    memory: int  # bytes at the peak
    passes: int = 1  # how often the input is read
    scratch: int = 0  # bytes of shuffle files

    @property
    def cut(self) -> bool:
        """Whether the items are cut before windows are filled."""
        return self.how == "pieces"


@dataclass(frozen=True)
class MovePlan:
    """How windows are filled within a memory budget."""

    group: int  # bytes of the windows that are filled together; 0: items come in order, and are appended
    chunk: int  # bytes of items that are cut together
    costs: Sequence[MoveCost]  # of each kind of items


def least_memory(moves: Iterable[tuple[Places, ReadPlan]]) -> int:
    """Return the least bytes of memory with which items can be moved: a block, and what reading takes."""
    moves = [*moves]
    if all(reading.ordered for _, reading in moves):
        return _streaming(moves)
    return max(_held(*one) + min(one[0].nbytes, checksum.BLOCK_BYTES) for one in moves)


def plan_moves(moves: Sequence[tuple[Places, ReadPlan]], budget: Budget, what: str) -> MovePlan:
    """Choose how the windows of all items' files are filled; `BudgetError` if there is no room for a block."""
    budget.require(least_memory(moves), what)
    block, total = checksum.BLOCK_BYTES, sum(places.nbytes for places, _ in moves)
    held = max((_held(*one) for one in moves), default=0)
    left, chunk, group = budget.left() - held, 0, 0
    if not (streams := all(reading.ordered for _, reading in moves)):
        group = max(block, left // block * block)
        if any(not reading.ordered and _passes(places, group) > MAX_PASSES for places, reading in moves):
            group, chunk = max(block, left // 2 // block * block), max(held, budget.left()) // _COPIES
    group, costs = min(group, total), []
    for places, reading in moves:
        passes, how, memory, scratch = 1, reading.how, held + group, 0
        if streams:
            memory = _streaming(moves)
        elif how == "passes":
            passes = _passes(places, group)
            how = "one pass" if passes == 1 else f"{passes} passes"
            if chunk and passes > MAX_PASSES:
                how, passes, scratch = "pieces", 1, reading.items * (places.item_bytes + 8)
                memory = max(memory, _COPIES * min(chunk, scratch))
        costs.append(MoveCost(how, memory, passes, scratch))
    return MovePlan(group, chunk, costs)


def _held(places: Places, reading: ReadPlan) -> int:
    """Return the memory of items that pass windows: pieces, places of those that come in order, edges of a window."""
    numbers = min(reading.items, reading.step) * PLACE_BYTES if reading.ordered else 0
    return reading.memory + numbers + 2 * places.item_bytes


def _streaming(moves: Sequence[tuple[Places, ReadPlan]]) -> int:
    """Return the memory of items that are read in order and appended: pieces, with copies, and those being written."""
    pieces = [
        reading.memory + max(lane.copies(places.item_bytes, reading.piece) for lane in places.lanes)
        for places, reading in moves
    ]
    files = {file: appending_memory(nbytes) for places, _ in moves for file, nbytes in places.sizes.items()}
    lanes = [[files.get(str(file), 0) for file in lane.files] for places, _ in moves for lane in places.lanes]
    tables = Counter(file for places, _ in moves for file in places.sizes)
    shared = sum(nbytes for file, nbytes in files.items() if tables[file] > 1)  # they stay open for the next table
    return max(pieces, default=0) + max(map(sum, lanes), default=0) + shared


def _passes(places: Places, group: int) -> int:
    return -(-places.nbytes // group) if places.nbytes else 1


def _groups(files: Sequence[FileWriter], turns: Iterable[Sequence[int]], most: int) -> list[list[Window]]:
    """Return windows of the missing blocks, in groups of at most `most` bytes; of files that take turns in turn."""
    groups: list[list[Window]] = []
    left = 0
    for window in _windows(files, turns, most):
        if not groups or window.end - window.begin > left:
            groups.append([])
            left = most
        groups[-1].append(window)
        left -= window.end - window.begin
    return groups


def _windows(files: Sequence[FileWriter], turns: Iterable[Sequence[int]], most: int) -> Iterator[Window]:
    for numbers in dict.fromkeys(tuple(number for number in lane if number >= 0) for lane in turns):
        blocks = max(1, most // checksum.BLOCK_BYTES // len(numbers))
        runs = [deque(_runs(files[number], blocks)) for number in numbers]
        while any(runs):
            for number, run in zip(numbers, runs, strict=True):
                if run:
                    own = run.popleft()
                    spans = files[number].span(own.start), files[number].span(own.stop - 1)
                    yield Window(number, own.start, spans[0][0], spans[1][1])


def _runs(file: FileWriter, most: int) -> Iterator[range]:
    """Yield ranges of missing blocks that follow each other, of at most `most` blocks."""
    missing = file.missing() if file.nbytes else []
    begin = 0
    for at, block in enumerate(missing, 1):
        if at == len(missing) or missing[at] != block + 1 or at - begin == most:
            yield range(missing[begin], block + 1)
            begin = at


Written: TypeAlias = Callable[[int, int, Bytes], None]
"""Called with the number of a file, a byte of it, and what was written there: whole units or blocks."""


def move_items(
    items: Sequence[Items], files: Sequence[FileWriter], budget: Budget, scratch: Path, desc: str,
    written: Written = lambda *_: None,
) -> None:  # fmt: skip
    """Write what is missing of files that consist of items; see `move`. `BudgetError`: no room for a block."""
    plan = plan_moves([(one.places, one.reader.reading) for one in items], budget, f"{desc}, in pieces,")
    move(items, files, plan, scratch, desc, written)


def move(
    moves: Sequence[Move], files: Sequence[FileWriter], plan: MovePlan, scratch: Path, desc: str,
    written: Written = lambda *_: None,
) -> None:  # fmt: skip
    """Write what is missing of files in this process; shuffle files lie next to the path `scratch` meanwhile."""
    total = sum(file.nbytes - file.end for file in files)
    with ExitStack() as stack:
        bar = stack.enter_context(progress(total, desc, "B", scale=True))
        if not plan.group:
            for items in (one for one in moves if isinstance(one, Items)):
                for number, begin, units in items.stream(files):
                    files[number].append(units, begin)
                    written(number, begin, units)
                    bar.update(units.nbytes)
                    del units  # before the next are made
            return
        lanes = [lane.files for one in moves if isinstance(one, Items) for lane in one.places.lanes]
        groups = _groups(files, lanes or [[number] for number in range(len(files))], plan.group)
        reach = max((one.reach for one in moves), default=0)
        fill = [
            stack.enter_context(_Pieces(one, groups, plan.chunk, scratch.with_name(f"{scratch.name}-{number}"))).fill
            if isinstance(one, Items) and plan.costs[number].cut and groups
            else partial(_pass, one)
            for number, one in enumerate(moves)
        ]  # fmt: skip
        for group in groups:
            buffers = [WindowBuffer(window, reach) for window in group]
            for one, filling in zip(moves, fill, strict=True):
                own = [buffer for buffer in buffers if one.fills(buffer.window)]
                filling(own)
                for buffer in own:
                    one.finish(buffer)
            for buffer in buffers:
                files[buffer.window.file].write(buffer.window.block, buffer.data)
                written(buffer.window.file, buffer.window.begin, buffer.data)
                bar.update(buffer.data.size)
            del buffers, own, buffer  # before the next are made


def _pass(one: Move, buffers: Sequence[WindowBuffer]) -> None:
    """Fill windows while the items that they need pass."""
    for piece in one.read([buffer.window for buffer in buffers]) if buffers else ():
        for buffer in buffers:
            one.place(piece, buffer)


class _Pieces(AbstractContextManager["_Pieces"]):
    """Items that were cut by window into shuffle files; a context manager that removes these."""

    def __init__(self, items: Items, groups: Sequence[Sequence[Window]], chunk: int, folder: Path) -> None:
        self._items, self._store, self._memory = items, Store(folder), fresh(0)
        self._store.clear("")  # of a run that was killed
        self._numbers = {window: number for number, window in enumerate(w for g in groups for w in g if items.fills(w))}
        item_bytes, count = items.places.item_bytes, items.reader.reading.items
        step = max(1, 2 * chunk // (item_bytes + 16))  # an item, its copy, its place and position, each twice
        raw, moved = (aligned_bytes(min(step, count) * item_bytes) for _ in range(2))
        self._files = [self._cut(begin, min(step, count - begin), raw, moved) for begin in range(0, count, step)]

    def _cut(self, begin: int, count: int, raw: Bytes, moved: Bytes) -> ShuffleFile:
        item_bytes, key, at = self._items.places.item_bytes, f"{begin}.shuffle", 0
        items, places = raw[: count * item_bytes].reshape(count, item_bytes), np.empty(count, np.int64)
        for some, numbers in self._items.reader.read(begin, begin + count):
            items[at : at + len(some)], places[at : at + len(some)] = some, self._items.places.of(numbers)
            at += len(some)
        with self._store.writer(key) as out:
            file = ShuffleFileWriter(key, out)
            for columns in self._items.places.cut(items, places, [*self._numbers], moved, self._items.threads):
                file.add(columns)
            return file.finish()

    def fill(self, buffers: Sequence[WindowBuffer]) -> None:
        """Fill windows with what was cut for them."""
        for buffer in buffers:
            number = self._numbers[buffer.window]
            for file in self._files:
                found = read_partition(self._store, file, number, self._kept)
                self._items.places.put(found["row"], found["place"], buffer, self._items.threads, first=0)

    def _kept(self, nbytes: int) -> Bytes:
        if self._memory.size < nbytes:
            self._memory = fresh(nbytes)
        return self._memory[:nbytes]

    def __exit__(self, *_: object) -> None:
        self._memory = fresh(0)
        self._store.clear("")
