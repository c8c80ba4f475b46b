"""Small operations on a batch's tensors: torch's on a GPU, else NumPy's, which starts no threads that others need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch


def tensors_in(value: Any, contents: Callable[[Any], Iterable[Any]]) -> Iterator[torch.Tensor]:
    """Yield every tensor within nested dicts, lists and tuples; `contents` returns what lies in other objects."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
        return
    if isinstance(value, Mapping):
        inside: Iterable[Any] = value.values()
    else:
        inside = value if isinstance(value, list | tuple) else contents(value)
    for inner in inside:
        yield from tensors_in(inner, contents)


def dense_parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the dense tensors that hold a tensor's memory: parts of sparse ones, those that a subclass wraps."""
    import torch

    if hasattr(tensor, "__tensor_flatten__"):  # such as PyG's EdgeIndex, and ragged tensors
        parts = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
    elif tensor.layout == torch.sparse_coo:
        parts = [tensor._indices(), tensor._values()]  # also where it is not coalesced
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        parts = [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    else:
        yield tensor
        return
    for part in parts:
        yield from dense_parts(part)


def concatenate(tensors: Sequence[torch.Tensor], axis: int = 0) -> torch.Tensor:
    """Concatenate tensors along `axis`; without a copy where they lie so in one memory."""
    import torch

    if len(tensors) == 1:
        return tensors[0]
    if _lie_in_a_row(tensors, axis):
        shape = list(tensors[0].shape)
        shape[axis] = sum(tensor.shape[axis] for tensor in tensors)
        return tensors[0].as_strided(shape, tensors[0].stride(), tensors[0].storage_offset())
    if tensors[0].is_cuda:
        return torch.cat(list(tensors), dim=axis)
    if tensors[0].dtype == torch.bfloat16:  # NumPy knows its bits alone
        return concatenate([tensor.view(torch.int16) for tensor in tensors], axis).view(torch.bfloat16)
    return torch.from_numpy(np.concatenate([tensor.numpy() for tensor in tensors], axis))


def _lie_in_a_row(tensors: Sequence[torch.Tensor], axis: int) -> bool:
    """Return whether each tensor begins where the one before ends, in the same memory."""
    return all(
        one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr() and one.stride() == other.stride()
        and other.storage_offset() == one.storage_offset() + one.shape[axis] * one.stride(axis)
        for one, other in pairwise(tensors)
    )  # fmt: skip


def as_int64(tensor: torch.Tensor) -> torch.Tensor:
    """Convert whole numbers to int64."""
    import torch

    return tensor.to(torch.int64) if tensor.is_cuda else torch.from_numpy(tensor.numpy().astype(np.int64, copy=False))


def has_bit(tensor: torch.Tensor, bit: int) -> torch.Tensor:
    """Return whether each number has a bit."""
    import torch

    if tensor.is_cuda:
        return (tensor & (1 << bit)) != 0
    numbers = tensor.numpy()
    return torch.from_numpy((numbers & numbers.dtype.type(1 << bit)) != 0)
