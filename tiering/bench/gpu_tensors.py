"""What GPU benchmarks do with plain torch: tables on either side of the link, gathers by torch, copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tiering import cuda
from tiering.loader.gpu.device import Device
from tiering.loader.gpu.locked import pinned

if TYPE_CHECKING:
    import torch

Tensor: TypeAlias = "torch.Tensor"
_CHUNK = 1 << 24


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use `count` threads on the CPU; restores the number before."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def host_rows(memory: npt.NDArray[np.uint8], rows: int, row_bytes: int, offset: int = 0) -> torch.Tensor:
    """Rows of float32 in the bytes of `memory` from `offset` on; a view."""
    import torch

    part = memory[offset : offset + rows * row_bytes]
    return torch.from_numpy(part.view(np.float32).reshape(rows, row_bytes // 4))


def empty_rows(device: Device, rows: int, row_bytes: int) -> torch.Tensor:
    """Rows of float32 in the memory of the GPU, uninitialised."""
    import torch

    return device.empty((rows, row_bytes // 4), torch.float32)


def random_rows_there(device: Device, rows: int, row_bytes: int, seed: int) -> torch.Tensor:
    """Rows in the memory of the GPU: one random block, over and over, each row stamped with its number."""
    import torch

    block_rows = max(1, min(rows, _CHUNK // row_bytes))
    block = torch.from_numpy(np.random.default_rng(seed).random((block_rows, row_bytes // 4), np.float32))
    table = empty_rows(device, rows, row_bytes)
    for first in range(0, rows, block_rows):
        part = table[first : first + block_rows]
        part.copy_(block[: len(part)])
    stamps = np.arange(rows, dtype=np.int32).view(np.float32)
    table[:, 0].copy_(torch.from_numpy(stamps))
    return table


def copy_slices(source: torch.Tensor, out: torch.Tensor, count: int) -> None:
    """Copy the rows of `source` into the one `out`, `len(out)` at a time, `count` times, without waiting."""
    batch = len(out)
    for k in range(count):
        out.copy_(source[k * batch : (k + 1) * batch], non_blocking=True)


def copy_again(source: torch.Tensor, out: torch.Tensor, count: int) -> None:
    """Copy `source` into `out`, of the same shape, `count` times, without waiting."""
    for _ in range(count):
        out.copy_(source, non_blocking=True)


def select_rows(table: torch.Tensor, batches: Iterable[torch.Tensor], out: torch.Tensor) -> None:
    """Torch's own gather of batches of ids, where table and ids lie; all into `out`."""
    import torch

    for ids in batches:
        torch.index_select(table, 0, ids, out=out)


def same_bytes(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether two tensors hold the same bytes, wherever they lie; NaN equals itself."""
    import torch

    left, right = (each.detach().cpu().contiguous().view(torch.uint8) for each in (found, expected))
    return bool(torch.equal(left, right))


class CopiedRows:
    """Rows gathered by torch on the CPU into pinned memory and copied to the GPU from there.

    Two buffers in turn, so that the CPU gathers into one while the other is copied. A loader takes it for features.
    """

    def __init__(self, device: Device, table: torch.Tensor) -> None:

        self._device, self._table = device, table
        self._buffers: list[torch.Tensor] = [table[:0], table[:0]]
        self._copied = [cuda.Event(device.index) for _ in range(2)]
        self._turn = 0

    def put(self, ids: torch.Tensor, out: torch.Tensor) -> None:
        """Gather and put the copy on the caller's stream."""
        import torch

        turn, self._turn = self._turn, 1 - self._turn
        self._copied[turn].wait()
        rows = self._room(turn, len(ids))
        torch.index_select(self._table, 0, ids, out=rows)
        out.copy_(rows, non_blocking=True)
        self._copied[turn].record(self._device.current())

    def put_all(self, batches: Iterable[torch.Tensor], out: torch.Tensor) -> None:
        """`put` batch after batch, all into `out`."""
        for ids in batches:
            self.put(ids, out)

    def gather(self, ids: Any, out: torch.Tensor | None = None) -> torch.Tensor:
        """Rows of `ids`, in host memory, as a tensor on the GPU."""
        import torch

        if out is None:
            out = self._device.empty((len(ids), self._table.shape[1]), self._table.dtype)
        self.put(torch.as_tensor(ids), out)
        return out

    def _room(self, turn: int, rows: int) -> torch.Tensor:
        import torch

        if len(self._buffers[turn]) < rows:
            width, itemsize = self._table.shape[1], self._table.element_size()
            room = rows * 5 // 4 + 1
            array, _ = pinned(room * width * itemsize, np.uint8, "rows gathered by the CPU")
            self._buffers[turn] = torch.from_numpy(array).view(self._table.dtype).view(room, width)
        return self._buffers[turn][:rows]


def host_tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    """The array as a tensor; shares its memory."""
    import torch

    return torch.from_numpy(array)


def host_ids(ids: npt.NDArray[np.int64]) -> list[torch.Tensor]:
    """By row of `ids`, a tensor in host memory."""
    import torch

    return [torch.from_numpy(np.ascontiguousarray(each)) for each in ids]
