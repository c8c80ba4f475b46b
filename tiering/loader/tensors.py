"""Small operations on the tensors of a batch: through NumPy on the host, where torch's kernels would start threads that
sampling and training need, on a GPU by torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def joined(tensors: Sequence[torch.Tensor], axis: int = 0) -> torch.Tensor:
    """The tensors one after the other."""
    import torch

    if len(tensors) == 1:
        return tensors[0]
    if tensors[0].is_cuda:
        return torch.cat(list(tensors), dim=axis)
    if tensors[0].dtype == torch.bfloat16:  # NumPy knows its bits alone
        return joined([tensor.view(torch.int16) for tensor in tensors], axis).view(torch.bfloat16)
    return torch.from_numpy(np.concatenate([tensor.numpy() for tensor in tensors], axis))


def as_int64(tensor: torch.Tensor) -> torch.Tensor:
    """The same whole numbers."""
    import torch

    return tensor.to(torch.int64) if tensor.is_cuda else torch.from_numpy(tensor.numpy().astype(np.int64, copy=False))


def has_bit(tensor: torch.Tensor, bit: int) -> torch.Tensor:
    """Whether each number has a bit."""
    import torch

    if tensor.is_cuda:
        return (tensor & (1 << bit)) != 0
    numbers = tensor.numpy()
    return torch.from_numpy((numbers & numbers.dtype.type(1 << bit)) != 0)
