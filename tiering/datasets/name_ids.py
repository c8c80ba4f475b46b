"""Names of nodes become ids 0, 1, 2... in ascending order of their UTF-8 bytes, out of core: sorted runs are merged.

Whole numbers, int64 or uint64, are names of 8 bytes, which sort as the numbers do. Temporary disk: 16 bytes per edge
twice, and the names of each run; memory: a fraction of the budget left.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.datasets.import_context import Scratch
from tiering.errors import InputError
from tiering.formats.arrow import pa, pc
from tiering.formats.names import NameTable

RUN_SHARE = 24  # divisor of the budget for the names of a run: copies, hashes and positions come on top
RANGE_SHARE = 16  # divisor of the budget for the names of a range
SMALLEST, LARGEST_RUN = 8 << 20, 512 << 20
NAME_BYTES = 40  # memory of a name in addition to its bytes where it is sorted
DIGITS = r"^[+-]?[0-9]+$"
_SIGN = np.uint64(1 << 63)
_SAMPLES = 16  # names that are looked at for each range, to cut ranges of like size


class OtherIdsError(Exception):
    """Ids of a block fit a later kind only, its argument: all must be read again as these."""


def whole_ids(array: Any, kind: Any) -> Any:
    """Return whole numbers, or text of them, as int64, uint64 or string, of which the first that holds all is the kind.

    Text that is spelled otherwise (007) is a name.

    `OtherIdsError` if a later kind holds them, `pyarrow.ArrowInvalid` if none does.
    """
    named = is_text(array.type)
    if pa.types.is_decimal(array.type):
        array = array.cast(pa.decimal256(76, 0))
    elif not (named or pa.types.is_integer(array.type)):
        array = array.cast(pa.int64())
    kinds = (pa.int64(), pa.uint64(), pa.string())
    for other in kinds[kinds.index(kind) :]:
        if other == pa.string() and named and pc.any(pc.invert(pc.match_substring_regex(array, DIGITS))).as_py():
            raise pa.ArrowInvalid("no whole numbers")
        with suppress(pa.ArrowInvalid):
            ids = array.cast(other)
            if named and pc.any(pc.not_equal(ids.cast(array.type), array)).as_py():
                continue
            if other != kind:
                raise OtherIdsError(other)
            return ids
    raise pa.ArrowInvalid("no whole numbers")


class NameIds:
    """A sorter of columns of names, by default both ends of edges; `sorters` of them share the budget."""

    def __init__(
        self, scratch: Scratch, columns: Sequence[str] = ("src", "dst"), sorters: int = 1, *,
        run_bytes: int | None = None, range_bytes: int | None = None,
    ) -> None:  # fmt: skip
        self._scratch = scratch
        left = scratch.budget.left()
        self._run_bytes = run_bytes or min(LARGEST_RUN, max(SMALLEST, left // RUN_SHARE // sorters))
        self._range_bytes = range_bytes or max(SMALLEST, left // RANGE_SHARE)
        self._pending: dict[str, list[Any]] = {column: [] for column in columns}
        self._pending_bytes = 0
        self._places = {column: scratch.growing_file(np.int64) for column in columns}
        self._ends, self._bytes = scratch.growing_file(np.int64), scratch.growing_file(np.uint8)
        self._ends.append(np.zeros(1, np.int64))
        self._runs = [0]

    def append(self, column: str, names: Any, where: str = "", first: int = 0) -> None:
        """Add pyarrow text or whole numbers to a column; `where` and `first`, the first row, are for messages."""
        for array in names.chunks if isinstance(names, pa.ChunkedArray) else [names]:
            encoded = _encode(array, where, first)
            first += len(array)
            self._pending[column].append(encoded)
            self._pending_bytes += encoded.nbytes + NAME_BYTES * len(encoded)
        if self._pending_bytes >= self._run_bytes:
            self._sort_run()

    def _sort_run(self) -> None:
        names = pa.concat_arrays([array for arrays in self._pending.values() for array in arrays])
        first, at = self._runs[-1], 0
        distinct, ranks = _sorted(names)
        self._scratch.watch()
        ranks += first
        for column, arrays in self._pending.items():
            size = sum(map(len, arrays))
            self._places[column].append(ranks[at : at + size])
            at += size
        offsets, data = _buffers(distinct)
        self._ends.append(offsets[1:] + self._bytes.count)
        self._bytes.append(data)
        self._runs.append(first + len(distinct))
        self._pending, self._pending_bytes = {column: [] for column in self._pending}, 0

    def finish(self) -> tuple[dict[str, npt.NDArray[np.int64]], NameTable]:
        """Return the ids of each column, and the names."""
        if self._pending_bytes:
            self._sort_run()
        runs = NameTable(self._ends.finish(), self._bytes.finish())
        ids = self._scratch.array(len(runs), np.int64)
        offsets, data = self._scratch.growing_file(np.int64), self._scratch.growing_file(np.uint8)
        offsets.append(np.zeros(1, np.int64))
        for slices in self._ranges(runs):
            distinct, ranks = _sorted(pa.concat_arrays([_names(runs, part) for part in slices]))
            ranks += offsets.count - 1
            at = 0
            for part in slices:
                ids[part] = ranks[at : at + part.stop - part.start]
                at += part.stop - part.start
            ends, text = _buffers(distinct)
            offsets.append(ends[1:] + data.count)
            data.append(text)
        columns = {column: self._scratch.gather(ids, file.finish()) for column, file in self._places.items()}
        return columns, NameTable(offsets.finish(), data.finish())

    def _ranges(self, runs: NameTable) -> Iterator[list[slice]]:
        """Yield slices of all runs that hold the same range of names, range after range."""
        ranges = -(-(runs.data.size + NAME_BYTES * len(runs)) // self._range_bytes)
        sampled = np.linspace(0, len(runs) - 1, min(len(runs), _SAMPLES * ranges)).astype(np.int64)
        names = sorted(runs.encoded(int(place)) for place in sampled) if ranges > 1 else []
        cuts = sorted({names[len(names) * k // ranges] for k in range(1, ranges)})
        begins = self._runs[:-1]
        for cut in [*cuts, None]:
            ends = self._runs[1:]
            if cut is not None:
                ends = [
                    bisect.bisect_left(range(end), cut, lo=begin, key=runs.encoded)
                    for begin, end in zip(begins, ends, strict=True)
                ]
            slices = [slice(begin, end) for begin, end in zip(begins, ends, strict=True) if begin < end]
            if slices:
                yield slices
            begins = ends


def is_text(kind: Any) -> bool:
    """Return whether a pyarrow type is text, or a dictionary of it."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _encode(names: Any, where: str, first: int) -> Any:
    """Return names as ``large_binary``; refuse those that are missing, empty or not UTF-8."""
    if pa.types.is_integer(names.type):
        unsigned = names.type == pa.uint64()
        words = names.to_numpy() if unsigned else names.cast(pa.int64()).to_numpy().view(np.uint64) ^ _SIGN
        words = words.astype(">u8")
        buffers = [None, pa.py_buffer(np.arange(0, 8 * len(names) + 1, 8)), pa.py_buffer(words)]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(names), buffers)
    if pa.types.is_dictionary(names.type):
        names = names.dictionary_decode()
    try:
        names.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InputError(f"{where}: from edge {first} on: expected names in UTF-8 ({error}); convert them") from error
    wrong = pc.fill_null(pc.equal(pc.binary_length(names), 0), True)
    if pc.any(wrong).as_py():
        row = pc.index(wrong, True).as_py()
        kind = "an empty name" if names[row].is_valid else "null"
        raise InputError(f"{where}: expected a name in each row, found {kind} at edge {first + row}; fill or remove it")
    return names.cast(pa.large_string()).cast(pa.large_binary())


def decode_numbers(table: NameTable, kind: Any = None) -> npt.NDArray[Any]:
    """Return the whole numbers that are the names of a table, of the kind that they were added as."""
    words: npt.NDArray[Any] = table.data.view(">u8").astype(np.uint64)
    return words if kind == pa.uint64() else (words ^ _SIGN).view(np.int64)


def _sorted(names: Any) -> tuple[Any, npt.NDArray[np.int64]]:
    """Return distinct names, ascending, and the position of each of `names` among them."""
    encoded = names.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    ranks = np.empty(order.size, np.int64)
    ranks[order] = np.arange(order.size)
    return encoded.dictionary.take(pa.array(order)), ranks[encoded.indices.to_numpy()]


def _buffers(names: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return offsets from 0 on, and the bytes, of an array of ``large_binary``."""
    _, ends, data = names.buffers()
    offsets = np.frombuffer(ends, np.int64)[names.offset : names.offset + len(names) + 1]
    text = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    return offsets - offsets[0], text[int(offsets[0]) : int(offsets[-1])]


def _names(table: NameTable, part: slice) -> Any:
    """Return names of a table as an array of ``large_binary`` on its memory."""
    base, end = int(table.offsets[part.start]), int(table.offsets[part.stop])
    offsets = np.ascontiguousarray(table.offsets[part.start : part.stop + 1] - base)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(table.data[base:end]))]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), part.stop - part.start, buffers)
