"""Rows by index, as torch tensors take it: numbers, slices, ids, masks, and these in front of other dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tiering.errors import InputError

if TYPE_CHECKING:
    import torch


def index_rows(
    index: Any, shape: Sequence[int], gather: Callable[[torch.Tensor], torch.Tensor], what: str
) -> torch.Tensor:
    """Return ``tensor[index]`` of a tensor of `shape` whose rows `gather` returns by their numbers.

    Rows that the first entry of `index` names are read; where it is ``...`` or ``None``, all rows.
    """
    import torch

    first, *others = (index or (...,)) if isinstance(index, tuple) else (index,)
    if first is None or first is Ellipsis:
        return gather(torch.arange(shape[0]))[index]
    position: Any = slice(None)  # of the rows among those read
    if isinstance(first, slice):
        ids = _slice_ids(first, shape[0], what)
    else:
        ids = _as_tensor(first, what)
        if ids.dtype == torch.bool:
            if ids.shape != torch.Size(shape)[: ids.dim()]:
                expected = f"expected a mask of shape ({shape[0]},), one for each row"
                raise InputError(f"{what}: ids: {expected}, found {tuple(ids.shape)}")
            mask, ids = ids, ids.reshape(shape[0], -1).any(1).nonzero().view(-1)
            position = mask[ids] if mask.dim() > 1 else torch.arange(len(ids)) if others else position
        else:
            if others or ids.dim() != 1:
                position = torch.arange(ids.numel()).view(ids.shape) if ids.dim() else 0
            ids = _from_start(ids.reshape(-1), shape[0], what)
    where = (position, *others)
    return gather(ids)[where] if others or not isinstance(position, slice) else gather(ids)


def _slice_ids(index: slice, count: int, what: str) -> torch.Tensor:
    import torch

    try:
        numbers = range(count)[index]
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: {index}: expected whole numbers ({error})") from None
    if numbers.step < 0:
        raise InputError(f"{what}: {index}: expected a step of more than 0, as of torch tensors")
    return torch.arange(numbers.start, max(numbers.start, numbers.stop), numbers.step)


def _as_tensor(index: Any, what: str) -> torch.Tensor:
    """Return ids, int64, or a mask, bool, as a dense tensor."""
    import torch

    try:
        if isinstance(index, torch.Tensor):
            found = index.detach()
        else:
            array = np.array(index)
            found = torch.from_numpy(array.astype(np.int64) if isinstance(index, list) and not array.size else array)
        if found.layout == torch.strided and found.device.type != "meta":
            if found.dtype == torch.bool and found.dim():
                return found
            if found.dtype in (torch.int32, torch.int64):
                return found.to(torch.int64)
        kind = f"{found.dtype} of shape {tuple(found.shape)}"
    except (TypeError, ValueError, RuntimeError) as error:  # text, objects, lists of unequal lengths
        kind = f"{type(index).__name__} ({error})"
    raise InputError(f"{what}: ids: expected int32 or int64, a mask or a slice, found {kind}")


def _from_start(ids: torch.Tensor, count: int, what: str) -> torch.Tensor:
    """Return ids of which those below 0 count from the end; `InputError` where one is out of range."""
    if not ids.numel():
        return ids
    low, high = map(int, ids.aminmax())
    if low < -count or high >= count:
        at = int(((ids < -count) | (ids >= count)).nonzero()[0])
        raise InputError(f"{what}: ids[{at}] is {int(ids[at])}, outside {-count}..{count - 1}")
    return ids if low >= 0 else ids + count * (ids < 0)
