"""The source of a tiered tensor: a tensor, NumPy array or memmap of the caller, as rows of bytes in host memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.reader import find_mapping
from tiering.errors import InputError

if TYPE_CHECKING:
    import torch

_COPY_BYTES = 64 * 1024 * 1024
_MEMORY_FILES = ("/memfd:", "/dev/", "/SYSV", "/anon_hugepage")


@dataclass(frozen=True)
class SourceTensor:
    """Rows of a contiguous tensor, read where they lie."""

    owner: torch.Tensor | npt.NDArray[Any]  # the object that keeps the memory alive
    data: npt.NDArray[np.uint8]  # bytes of all rows, shape (rows x bytes of a row,)
    shape: tuple[int, ...]
    dtype: torch.dtype
    file: Path | None  # the file on disk that the tensor is mapped from; None for a tensor in memory

    @classmethod
    def of(cls, tensor: Any) -> SourceTensor:
        """View `tensor` as rows; `InputError` if its rows cannot be read in place."""
        import torch

        owner: torch.Tensor | npt.NDArray[Any]
        if isinstance(tensor, torch.Tensor):
            _check_tensor(tensor)
            owner, dtype, contiguous = tensor.detach(), tensor.dtype, tensor.is_contiguous()
        elif isinstance(tensor, np.ndarray) and not isinstance(tensor, np.ma.MaskedArray):
            owner, dtype, contiguous = tensor, _torch_dtype(tensor.dtype), tensor.flags.c_contiguous
        else:
            raise InputError(f"tensor: expected a torch tensor, NumPy array or memmap, found {type(tensor).__name__}")
        shape = tuple(tensor.shape)
        if not shape or math.prod(shape[1:]) == 0:
            raise InputError(f"tensor: expected rows of at least one element, found shape {shape}")
        if not contiguous:
            raise InputError(
                f"tensor: expected a contiguous one, found one of shape {shape} whose rows cannot be read where they "
                "lie; pass a contiguous copy (tensor.contiguous(), numpy.ascontiguousarray)"
            )
        flat = owner.reshape(-1)
        data: npt.NDArray[np.uint8] = (
            flat.view(torch.uint8).numpy() if isinstance(flat, torch.Tensor) else np.asarray(flat).view(np.uint8)
        )
        return cls(owner, data, shape, dtype, _find_file(data))

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self.shape[0]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def on_disk(self) -> bool:
        """Whether the tensor is mapped from a file on disk."""
        return self.file is not None

    def require_unmoved(self) -> None:
        """Raise `InputError` if torch has moved the tensor (``share_memory_``), which frees the memory read here."""
        if isinstance(self.owner, np.ndarray) or not self.data.size or self.owner.data_ptr() == self.data.ctypes.data:
            return
        raise InputError(
            "tiered tensor: torch has moved the tensor to other memory (share_memory_, or sending it to a process) "
            "since the tiered tensor was made; share the tensor first, and make the tiered tensor then"
        )

    def table(self, first: int = 0) -> native.TieredTable:
        """Return the rows from `first` on, in the ssd tier of a table of the core."""
        ends = [0, 0, 0, self.num_rows - first]
        return native.TieredTable(self.row_bytes, ends, None, [], None, None, ssd=self.data[first * self.row_bytes :])

    def copy_rows(self, ids: npt.NDArray[np.int64], out: npt.NDArray[np.uint8], threads: int) -> None:
        """Copy rows into `out`, bytes of shape (ids, bytes of a row)."""
        table, step = self.table(), max(1, _COPY_BYTES // self.row_bytes)
        for start in range(0, ids.size, step):
            table.gather(ids[start : start + step], out[start : start + step], threads)


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


def _find_file(array: npt.NDArray[np.uint8]) -> Path | None:
    """Return the file on disk that the bytes of an array are mapped from."""
    path, _ = find_mapping(array) or (None, 0)
    return None if path is None or str(path).startswith(_MEMORY_FILES) else path
