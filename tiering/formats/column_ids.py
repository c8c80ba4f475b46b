"""The end of a relation's edges by which adjacency lists, of a CSC or CSR, are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


class ColumnIds:
    """The column of every entry of a CSC (the row, of a CSR), made where it is asked for: it takes no memory.

    It stands for an array of shape (entries,) in `tiering.formats.dataset.EdgeData`.
    """

    ndim = 1

    def __init__(self, indptr: npt.NDArray[np.int64], id_bytes: int, where: str = "") -> None:
        self.indptr, self.where, self.dtype = indptr, where, np.dtype(f"int{8 * id_bytes}")
        """`where` the offsets come from, for messages."""
        self.shape: Sequence[int] = (int(indptr[-1]),)

    @property
    def num_columns(self) -> int:
        """Nodes that have a list, empty or not."""
        return int(self.indptr.shape[0]) - 1

    def __getitem__(self, part: slice) -> npt.NDArray[Any]:
        """Return the columns of the entries [start, stop)."""
        first, stop, _ = part.indices(self.shape[0])
        begin = int(np.searchsorted(self.indptr, first, "right")) - 1
        end = int(np.searchsorted(self.indptr, stop, "left"))
        bounds = np.clip(self.indptr[begin : end + 1], first, stop)
        return np.repeat(np.arange(begin, end, dtype=self.dtype), np.diff(bounds))


def as_lists(ids: Any) -> ColumnIds | None:
    """Return one end of edges as lists, if it is a `ColumnIds`."""
    return ids if isinstance(ids, ColumnIds) else None
