"""A tensor, NumPy array or memmap that somebody made, as rows of bytes in host memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.errors import CapabilityError, InputError
from tiering.loader.tiered_tensor.mapped_file import MappedFile, find_mapped_file

if TYPE_CHECKING:
    import torch

_COPY_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class TensorInHand:
    """Rows of a contiguous tensor, read where they lie."""

    held: torch.Tensor | npt.NDArray[Any]
    """What keeps the memory."""
    data: npt.NDArray[np.uint8]
    """Its bytes, one row behind the other; shape (rows x bytes of a row,)."""
    shape: tuple[int, ...]
    dtype: torch.dtype
    file: MappedFile | None
    """The file that it is mapped from."""

    @classmethod
    def of(cls, given: Any) -> TensorInHand:
        """See `given` as rows; `InputError` if its rows cannot be read in place."""
        import torch

        held: torch.Tensor | npt.NDArray[Any]
        if isinstance(given, torch.Tensor):
            _check_tensor(given)
            held, dtype, contiguous = given.detach(), given.dtype, given.is_contiguous()
        elif isinstance(given, np.ndarray) and not isinstance(given, np.ma.MaskedArray):
            held, dtype, contiguous = given, _torch_dtype(given.dtype), given.flags.c_contiguous
        else:
            raise InputError(f"tensor: expected a torch tensor, NumPy array or memmap, found {type(given).__name__}")
        shape = tuple(given.shape)
        if not shape or math.prod(shape[1:]) == 0:
            raise InputError(f"tensor: expected rows of at least one element, found shape {shape}")
        if not contiguous:
            raise InputError(
                f"tensor: expected a contiguous one, found one of shape {shape} whose rows cannot be read where they "
                "lie; pass a contiguous copy (tensor.contiguous(), numpy.ascontiguousarray)"
            )
        data = _bytes_of(held)
        return cls(held, data, shape, dtype, find_mapped_file(data))

    @classmethod
    def of_file(cls, file: MappedFile, shape: tuple[int, ...], dtype: torch.dtype) -> TensorInHand:
        """The tensor that was mapped from `file`, mapped again."""
        data = file.open()
        return cls(data, data, shape, dtype, find_mapped_file(data))

    @property
    def num_rows(self) -> int:
        """Rows."""
        return self.shape[0]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def on_disk(self) -> bool:
        """Whether reading it may mean to read a disk."""
        return self.file is not None and self.file.on_disk

    @property
    def moved(self) -> bool:
        """Whether torch has put the tensor elsewhere since (``share_memory_``, or sending it to a process)."""
        return not isinstance(self.held, np.ndarray) and self.data.size > 0 and self._address() != self._begin()

    def again(self) -> TensorInHand:
        """The same tensor where it lies now."""
        return TensorInHand.of(self.held)

    def copy_rows(self, ids: npt.NDArray[np.int64], out: npt.NDArray[np.uint8], threads: int) -> None:
        """Copy rows into `out`, bytes of shape (ids, bytes of a row)."""
        ends = [0, 0, self.num_rows, self.num_rows]
        table = native.TieredTable(self.row_bytes, ends, None, [], self.data, None)
        step = max(1, _COPY_BYTES // self.row_bytes)
        for start in range(0, ids.size, step):
            table.gather(ids[start : start + step], out[start : start + step], threads)

    def _address(self) -> int:
        return int(self.held.data_ptr())  # type: ignore[union-attr]

    def _begin(self) -> int:
        return int(self.data.ctypes.data)

    def __reduce__(self) -> tuple[Any, ...]:
        """For ``multiprocessing``: a file is mapped again; torch puts what lies in memory into shared memory."""
        if self.file is not None and (self.on_disk or isinstance(self.held, np.ndarray)):
            self.file.require_shared()
            return TensorInHand.of_file, (self.file, self.shape, self.dtype)
        if not isinstance(self.held, np.ndarray):
            return TensorInHand.of, (self.held,)
        raise CapabilityError(
            "a tiered tensor over a NumPy array in memory cannot be sent to another process without a copy for each; "
            "make it from torch.from_numpy(array).share_memory_(), or from a memmap, or start the process by fork"
        )


def _check_tensor(tensor: torch.Tensor) -> None:
    import torch

    kind = str(tensor.layout) if tensor.layout != torch.strided else "quantised" if tensor.is_quantized else ""
    if kind:
        raise InputError(f"tensor: expected a dense tensor, found a {kind} one; pass its dense copy")
    if tensor.device.type != "cpu":
        raise InputError(
            f"tensor: expected one in host memory, or a memmap, found one on {tensor.device}; pass tensor.cpu()"
        )
    if tensor.requires_grad:
        raise InputError(
            "tensor: expected one that requires no gradient, because rows that are gathered carry none; "
            "pass tensor.detach()"
        )
    if tensor.is_conj() or tensor.is_neg():
        raise InputError("tensor: expected plain values, found a view that is conjugated or negated; pass its copy")


def _torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    import torch

    try:
        return torch.from_numpy(np.empty(0, dtype)).dtype
    except (TypeError, ValueError) as error:  # text, structures, the other byte order
        raise InputError(f"tensor: expected elements that torch has a type for, found {dtype} ({error})") from None


def _bytes_of(held: torch.Tensor | npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    import torch

    if isinstance(held, np.ndarray):
        return np.asarray(held).reshape(-1).view(np.uint8)
    flat: npt.NDArray[np.uint8] = held.reshape(-1).view(torch.uint8).numpy()
    return flat
