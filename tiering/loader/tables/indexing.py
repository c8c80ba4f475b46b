"""Rows by index, as torch tensors take it: numbers, slices, ids, masks, and these in front of other dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tiering.errors import InputError
from tiering.loader.process import require_torch

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self


class IndexedRows:
    """Rows that are indexed like one tensor."""

    shape: Sequence[int]
    _what: str  # the rows in messages

    def gather(self, ids: Any, out: torch.Tensor | None = None) -> torch.Tensor:
        """Return the rows of `ids`, in request order."""
        raise NotImplementedError

    def __getitem__(self, index: Any) -> torch.Tensor:
        """Return ``tensor[index]`` for a tensor of all rows: by number, slice, ids, mask; negative ones from the end.

        Rows that the first entry of `index` names are read; where it is ``...`` or ``None``, all rows.
        """
        require_torch()
        import torch

        first, *others = (index or (...,)) if isinstance(index, tuple) else (index,)
        if first is None or first is Ellipsis:
            return self.gather(torch.arange(len(self)))[index]
        if isinstance(first, slice):
            rows, position = self._slice_ids(first), cast("Any", slice(None))
        else:
            ids = _as_tensor(first, self._what)
            if ids.dtype == torch.bool:
                if ids.shape != torch.Size(self.shape)[: ids.dim()]:
                    expected = f"expected a mask of shape ({len(self)},), one entry per row"
                    raise InputError(f"{self._what}: ids: {expected}, found {tuple(ids.shape)}")
                ids, *columns = ids.nonzero(as_tuple=True)
                others = [*columns, *others]
            ids = self._from_start(ids)
            if ids.dim() == 1 and not others:
                return self.gather(ids)
            rows, position = torch.unique(ids, return_inverse=True)
            position = position.cpu()
        where = (position, *others)
        return self.gather(rows)[where]

    def _slice_ids(self, index: slice) -> torch.Tensor:
        import torch

        try:
            start, stop, step = index.indices(len(self))
        except (TypeError, ValueError) as error:
            raise InputError(f"{self._what}: {index}: expected whole numbers ({error})") from None
        if step < 0:
            raise InputError(f"{self._what}: {index}: expected a step of more than 0, as torch tensors do")
        return torch.arange(start, max(start, stop), step)

    def _from_start(self, ids: torch.Tensor) -> torch.Tensor:
        """Return ids of which those below 0 count from the end; `InputError` where one is out of range."""
        count, flat = len(self), ids.reshape(-1)
        wrong = ((flat < -count) | (flat >= count)).nonzero()
        if len(wrong):
            at = int(wrong[0])
            raise InputError(f"{self._what}: ids[{at}] is {int(flat[at])}, outside {-count}..{count - 1}")
        return ids + count * (ids < 0)

    __iter__ = None  # it would gather row by row

    def __len__(self) -> int:
        return self.shape[0]


class ClosableRows(IndexedRows):
    """Rows that hold memory and descriptors. Use them as a context manager, or call `close`."""

    def close(self) -> None:
        """Free memory and descriptors."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _as_tensor(index: Any, what: str) -> torch.Tensor:
    """Return ids, int64, or a mask, bool, as a dense tensor."""
    import torch

    try:
        empty = isinstance(index, list) and not index
        array = index if isinstance(index, torch.Tensor) else np.array(index, np.int64 if empty else None)
        found = torch.from_numpy(array) if isinstance(array, np.ndarray) else array.detach()
        if found.layout == torch.strided and found.device.type != "meta":
            if found.dtype == torch.bool and found.dim():
                return found
            if found.dtype in (torch.int32, torch.int64):
                return found.to(torch.int64)
        kind = f"{found.dtype} of shape {tuple(found.shape)}"
    except (TypeError, ValueError, RuntimeError) as error:  # text, objects, lists of unequal lengths
        kind = f"{type(index).__name__} ({error})"
    raise InputError(f"{what}: ids: expected int32 or int64, a mask or a slice, found {kind}")
