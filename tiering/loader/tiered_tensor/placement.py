"""Which rows of a tensor are copied to which faster memory, and how a row is found then.

Copied rows have places 0, 1, ... in the order of the tiers: gpu, peer, cpu. Behind them comes the tensor itself, in its
own order: a row that was not copied is read from where it lies, and nothing is held twice but the copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.errors import InputError
from tiering.formats.layout import SsdRows, TypeLayout
from tiering.formats.scores import Scores

Ids = npt.NDArray[np.int64]
_INT32_PLACES = 2**31


@dataclass(frozen=True)
class CopiedRows:
    """Row numbers of the rows that are copied, tier by tier."""

    gpu: Ids
    peer: Ids
    cpu: Ids


@dataclass(frozen=True)
class TensorPlacement:
    """How many rows are copied to each tier, and the places of all."""

    num_rows: int
    gpu: int
    peer: int
    cpu: int
    by_score: bool
    """Whether the rows were chosen by score; else they are the first ones, and places are row numbers."""

    @property
    def copied(self) -> int:
        """Rows that are copied."""
        return self.gpu + self.peer + self.cpu

    @property
    def needs_table(self) -> bool:
        """Whether rows are found by a table of places."""
        return self.by_score and self.copied > 0

    @property
    def skipped(self) -> int:
        """First rows of the tensor that have no place there: without a table their numbers lead to the copies."""
        return 0 if self.needs_table else self.copied

    @property
    def in_place(self) -> int:
        """Rows of the tensor that have a place there: none where all are copied."""
        return self.num_rows - self.skipped if self.copied < self.num_rows else 0

    @property
    def num_places(self) -> int:
        """Places that there are."""
        return self.copied + self.in_place

    @property
    def table_dtype(self) -> np.dtype[Any]:
        """Of the table of places."""
        return np.dtype(np.int32 if self.copied + self.num_rows < _INT32_PLACES else np.int64)

    @property
    def table_bytes(self) -> int:
        """Of the table of places; 0 without one."""
        return self.num_rows * self.table_dtype.itemsize if self.needs_table else 0

    def table(self, rows: CopiedRows) -> npt.NDArray[Any]:
        """Return the place of each row, shape (rows,)."""
        table = np.arange(self.copied, self.copied + self.num_rows, dtype=self.table_dtype)
        begin = 0
        for ids in (rows.gpu, rows.peer, rows.cpu):
            table[ids] = np.arange(begin, begin + ids.size, dtype=table.dtype)
            begin += ids.size
        return table

    def entry(self, row_bytes: int, *, on_disk: bool) -> TypeLayout:
        """Places by tier; the tensor itself is of the cpu tier, or of the ssd tier if it lies on a disk."""
        peer_end = self.gpu + self.peer
        cpu_end = self.copied if on_disk else self.num_places
        ranges = {
            "gpu": (0, self.gpu),
            "peer": (self.gpu, peer_end),
            "cpu": (peer_end, cpu_end),
            "ssd": (cpu_end, self.num_places),
        }
        return TypeLayout("rows", self.num_places, row_bytes, "uint8", ranges, SsdRows(0, 0, 1, 0))


def place_rows(
    num_rows: int, counts: tuple[int, int, int], scores: npt.NDArray[np.float64] | None, threads: int
) -> tuple[TensorPlacement, CopiedRows]:
    """Give so many rows to the tiers gpu, peer, cpu, the hottest to the first: by falling score, ties by row number.

    Rows of the peer tier are dealt out to GPUs in the order of their scores, so that each gets as many reads; those of
    the other tiers stand in the order of the tensor, so that they are read from it in order.
    """
    ends = [0]
    for count in counts:
        ends.append(min(num_rows, ends[-1] + count))
    copied = ends[-1]
    order = np.arange(copied, dtype=np.int64)
    if scores is not None and copied:
        order = native.sort_by_score(scores, threads)[:copied].astype(np.int64)
    gpu, peer, cpu = (order[begin:end] for begin, end in pairwise(ends))
    rows = CopiedRows(np.sort(gpu), np.ascontiguousarray(peer), np.sort(cpu))
    return TensorPlacement(num_rows, gpu.size, peer.size, cpu.size, scores is not None), rows


def parse_order(order: Any, num_rows: int) -> npt.NDArray[np.float64] | None:
    """Scores as the caller of `tiering.tiered` gave them: float64, shape (rows,); ``None`` for none."""
    if order is None:
        return None
    if isinstance(order, Scores):
        if len(order.node_types) != 1:
            raise InputError(
                f"order: expected scores of one node type, found {', '.join(order.node_types)}; pass "
                "scores.values(TYPE)"
            )
        order = order.values()
    try:
        if hasattr(order, "detach"):
            order = order.detach().cpu()
            order = (order.double() if order.is_floating_point() else order).numpy()
        values = np.asarray(order)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"order: expected a score for each row, found {type(order).__name__} ({error})") from None
    if values.dtype.kind not in "fiub":
        raise InputError(f"order: expected real numbers, a score for each row, found {values.dtype}")
    if values.shape != (num_rows,):
        raise InputError(f"order: expected a score for each of {num_rows} rows, found shape {values.shape}")
    wide = np.ascontiguousarray(values, np.float64)
    wrong = np.flatnonzero(np.isnan(wide))
    if wrong.size:
        raise InputError(f"order: expected numbers, found NaN as the score of row {wrong[0]}")
    return wide
