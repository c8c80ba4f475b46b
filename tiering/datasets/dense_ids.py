"""Sparse 64-bit ids of the nodes of one type become 0, 1, 2... in ascending order, out of core.

Ids are sorted in runs of what the budget allows, which lie in a temporary file and are merged range by range of ids.
The sorted ids are their own index: the number of a node is the place of its id. Temporary disk: 8 bytes per id, twice
where there are several runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.datasets.scratch import Scratch
from tiering.errors import InputError

Ids = npt.NDArray[np.int64]

ID_BYTES = 64
"""Of the budget's rest for each id of a run: it is held twice while it is sorted, beside blocks of text."""
SMALLEST_RUN, LARGEST_RUN = 1 << 16, 1 << 26
FITS_CACHE = 1 << 20
"""Ids up to which a search in any order is as fast as one in ascending order."""
_SAMPLES = 64
"""Ids of each run that are looked at for each range, to cut ranges of like size."""


class SparseIds:
    """Takes the ids of nodes in blocks, in any order; gives them ascending."""

    def __init__(self, scratch: Scratch, *, run: int | None = None) -> None:
        self._scratch = scratch
        self._run = run or min(LARGEST_RUN, max(SMALLEST_RUN, scratch.budget.left() // ID_BYTES))
        self._file = scratch.growing_file(np.int64)
        self._pending: list[Ids] = []
        self._pending_ids = 0
        self._bounds = [0]

    def append(self, ids: Ids) -> None:
        """Ids of the next nodes."""
        self._pending.append(ids)
        self._pending_ids += ids.size
        if self._pending_ids >= self._run:
            self._sort_run()

    def _sort_run(self) -> None:
        ids = np.concatenate(self._pending)
        ids.sort()
        self._file.append(ids)
        self._bounds.append(self._file.count)
        self._pending, self._pending_ids = [], 0

    def finish(self, where: str) -> Ids:
        """The ids, ascending; `where` they come from, for the message that one occurs twice."""
        if self._pending_ids:
            self._sort_run()
        runs = self._file.finish()
        out = self._scratch.growing_file(np.int64)  # in no case in memory, for there are as many as node types
        for slices in self._ranges(runs):
            block = np.concatenate([runs[part] for part in slices])
            block.sort()
            twice = block[1:] == block[:-1]
            if twice.any():
                raise InputError(
                    f"{where}: expected each id once, found {int(block[np.argmax(twice)])} twice; was a part of the "
                    "table copied, or do files of two datasets lie together?"
                )
            out.append(block)
        return out.finish()

    def _ranges(self, runs: Ids) -> Iterator[list[slice]]:
        """Slices of all runs that hold the same range of ids, range after range; equal ids are in one."""
        begins = self._bounds[:-1]
        for cut in [*self._cuts(runs), None]:
            ends = self._bounds[1:]
            if cut is not None:
                pairs = zip(begins, ends, strict=True)
                ends = [begin + int(np.searchsorted(runs[begin:end], cut)) for begin, end in pairs]
            slices = [slice(begin, end) for begin, end in zip(begins, ends, strict=True) if begin < end]
            if slices:
                yield slices
            begins = ends

    def _cuts(self, runs: Ids) -> list[int]:
        """Ids at which ranges of about a run's size begin."""
        ranges = -(-runs.size // self._run)
        if ranges <= 1:
            return []
        pairs = zip(self._bounds[:-1], self._bounds[1:], strict=True)
        sampled = [runs[np.linspace(a, b - 1, min(b - a, _SAMPLES * ranges)).astype(np.int64)] for a, b in pairs]
        ids = np.sort(np.concatenate(sampled))
        return sorted({int(ids[ids.size * k // ranges]) for k in range(1, ranges)})


def places_of(ids: Ids, values: npt.NDArray[Any]) -> Ids:
    """Place of each value among ascending `ids`; -1 where it is not there.

    Values are looked up in ascending order where the ids are many, so that those in a file are read front to back.
    """
    if not ids.size or not values.size:
        return np.full(values.size, -1, np.int64)
    first, last = int(ids[0]), int(ids[-1])
    if last - first == ids.size - 1:  # dense already
        inside = (values >= first) & (values <= last)
        return np.where(inside, np.where(inside, values, first) - first, -1)
    if ids.size <= FITS_CACHE:
        return _found(ids, values)
    order = np.argsort(values)
    places = np.empty(values.size, np.int64)
    places[order] = _found(ids, values[order])
    return places


def _found(ids: Ids, values: npt.NDArray[Any]) -> Ids:
    places = np.minimum(np.searchsorted(ids, values), ids.size - 1)
    places[ids[places] != values] = -1
    return places
