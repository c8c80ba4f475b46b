"""Values of a user's graph as dense numpy arrays: tensors, sparse matrices, lists. Imports neither torch nor scipy."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.datasets.scratch import Scratch
from tiering.errors import InputError, TieringError, shown

_ADVICE = {
    "nested": "torch.nested.to_padded_tensor(tensor, 0)",
    "quantized": "tensor.dequantize()",
    "meta": "its values",
}


def dense_array(value: Any, where: str, scratch: Scratch) -> tuple[npt.NDArray[Any], str]:
    """Return a value as a dense array, and the name of its dtype; ``bfloat16`` is stored as ``uint16``.

    The value, `where` in messages, is a tensor, dense or sparse, on any device; a sparse matrix of scipy or
    torch_sparse; a list or tuple of numbers, tensors or arrays; or anything that numpy makes an array of. What is made
    dense is taken off the memory budget of `scratch`: `BudgetError` if it does not fit. `InputError` where no dense
    array can hold the value.
    """
    try:
        array, dtype = _converted(value, where, scratch)
        if array.dtype.kind not in "biufcV" or array.dtype.char == "g":  # g: longer than 64 bits
            raise TypeError(shown(value))
    except TieringError:
        raise
    except Exception as error:  # torch, scipy, and whatever class the value is of, raise anything
        reason = f"{type(value).__name__}: {' '.join(str(error).split())[:120]}"
        raise InputError(f"{where}: expected numbers as a dense array, found {reason}; convert it") from error
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("=")), dtype


def widen_rows(array: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    """Return an array of `dtype` as numpy computes with it: ``bfloat16`` as ``float32``."""
    if dtype != "bfloat16":
        return array
    numbers: npt.NDArray[Any] = (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return numbers


def is_sparse(value: Any) -> bool:
    """Return whether a value is a sparse matrix of torch, torch_sparse or scipy."""
    return "torch.sparse" in str(getattr(value, "layout", "")) or hasattr(value, "nnz")


def _converted(value: Any, where: str, scratch: Scratch) -> tuple[npt.NDArray[Any], str]:
    if hasattr(value, "to_torch_sparse_coo_tensor"):  # of torch_sparse
        value = value.to_torch_sparse_coo_tensor()
    if (torch := sys.modules.get("torch")) is not None and isinstance(value, torch.Tensor):
        return _of_tensor(torch, value, where, scratch)
    if isinstance(value, (list, tuple)) and value and not isinstance(value[0], (bool, int, float, np.generic)):
        value = np.stack([widen_rows(*dense_array(part, where, scratch)) for part in value])
    if np.ma.is_masked(value):
        raise InputError(f"{where}: expected a value in every place, found a masked array; fill it with filled()")
    if is_sparse(value):
        _take_memory(value.shape, value.dtype.itemsize, where, scratch)
        value = value.toarray()
    array = np.asarray(value)
    if array.dtype == object and array.ndim:
        array = np.array(array.tolist())
    return array, array.dtype.name


def _of_tensor(torch: Any, tensor: Any, where: str, scratch: Scratch) -> tuple[npt.NDArray[Any], str]:
    dtype = str(tensor.dtype).removeprefix("torch.")
    kind = next((kind for kind in _ADVICE if getattr(tensor, f"is_{kind}")), "")
    if kind or (dtype != "bfloat16" and dtype not in np.sctypeDict):
        raise InputError(
            f"{where}: expected a tensor of a dtype that numpy has or bfloat16, dense or sparse, found a "
            f"{kind}{' ' * bool(kind)}tensor of {dtype}; give {_ADVICE.get(kind, 'tensor.to(torch.float32)')}"
        )
    tensor = tensor.detach().cpu()
    if tensor.layout is not torch.strided:
        _take_memory(tensor.shape, tensor.element_size(), where, scratch)
        tensor = tensor.to_dense()
    tensor = tensor.resolve_conj().resolve_neg()
    if dtype == "bfloat16":
        return tensor.view(torch.int16).numpy().view(np.uint16), dtype
    return tensor.numpy(), dtype


def _take_memory(shape: Any, item_bytes: int, where: str, scratch: Scratch) -> None:
    nbytes = math.prod(shape) * item_bytes
    scratch.budget.require(nbytes, f"the values of {where}, a sparse matrix, made dense")
    scratch.budget = scratch.budget.without(nbytes)
