"""The placement of a tensor's rows: which are copied to which faster memory.

Copied rows have positions 0, 1, ... in the order of the tiers gpu, peer, cpu. The tensor itself follows, in its own
order: a row that was not copied is read from where it lies.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.errors import InputError
from tiering.formats.layout import TIERS, SsdRows, TypeLayout
from tiering.formats.scores import Scores

Ids = npt.NDArray[np.int64]
CopiedRows: TypeAlias = dict[str, Ids]  # row numbers of the rows that are copied to the tiers gpu, peer, cpu


@dataclass(frozen=True)
class TensorPlacement:
    """Numbers of rows that are copied to each tier, and the positions of all rows."""

    num_rows: int
    gpu: int
    peer: int
    cpu: int
    by_score: bool  # whether the rows were chosen by score; else they are the first ones, and positions are row numbers

    @property
    def copied(self) -> int:
        """Number of rows that are copied."""
        return self.gpu + self.peer + self.cpu

    @property
    def needs_table(self) -> bool:
        """Whether rows are found by a table of positions."""
        return self.by_score and self.copied > 0

    @property
    def skipped(self) -> int:
        """First rows of the tensor that have no position there: their numbers lead to the copies."""
        return 0 if self.needs_table and self.copied < self.num_rows else self.copied

    @property
    def num_positions(self) -> int:
        """Number of positions: of the copies, and of rows in the tensor itself."""
        return self.copied + self.num_rows - self.skipped

    @property
    def table_dtype(self) -> np.dtype[Any]:
        """Element type of the table of positions."""
        return np.dtype(np.int32 if self.copied + self.num_rows < 2**31 else np.int64)

    def table(self, rows: CopiedRows) -> npt.NDArray[Any]:
        """Return the position of each row, shape (rows,)."""
        table = np.arange(self.copied, self.copied + self.num_rows, dtype=self.table_dtype)
        table[np.concatenate([*rows.values()])] = np.arange(self.copied, dtype=table.dtype)
        return table

    def entry(self, row_bytes: int, *, on_disk: bool) -> TypeLayout:
        """Return positions by tier; the tensor itself is in the cpu tier, or in the ssd tier if it lies on a disk."""
        ends = [0, self.gpu, self.gpu + self.peer, self.copied if on_disk else self.num_positions, self.num_positions]
        ranges = dict(zip(TIERS, pairwise(ends), strict=True))
        return TypeLayout("rows", self.num_positions, row_bytes, "uint8", ranges, SsdRows(0, 0, 1, 0))


def place_rows(
    num_rows: int, counts: tuple[int, int, int], scores: npt.NDArray[np.float64] | None, threads: int
) -> tuple[TensorPlacement, CopiedRows]:
    """Place so many rows into the tiers gpu, peer, cpu, the hottest first: by falling score, ties by row number.

    Rows of the peer tier stand in the order of their scores, which spreads reads evenly over GPUs; those of the other
    tiers in the order of the tensor, so that they are copied from it in order.
    """
    ends = [0]
    for count in counts:
        ends.append(min(num_rows, ends[-1] + count))
    order = np.arange(ends[-1], dtype=np.int64)
    if scores is not None and order.size:
        order = native.sort_by_score(scores, threads)[: order.size].astype(np.int64)
    gpu, peer, cpu = (order[begin:end] for begin, end in pairwise(ends))
    rows = {"gpu": np.sort(gpu), "peer": np.ascontiguousarray(peer), "cpu": np.sort(cpu)}
    return TensorPlacement(num_rows, gpu.size, peer.size, cpu.size, scores is not None), rows


def parse_order(order: Any, num_rows: int) -> npt.NDArray[np.float64] | None:
    """Return the option `order` as scores: float64, shape (rows,); ``None`` for none."""
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
