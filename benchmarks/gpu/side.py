"""GPU 0 as the benchmarks use it: turns that end when the GPU has ended, tables on either side of the link."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from benchmarks.harness import Comparison, Sides, Sizes, Work, compare, take_turn
from tiering import cuda
from tiering.errors import CapabilityError, InputError
from tiering.runtime.gpu import device as devices
from tiering.runtime.gpu.device import Device
from tiering.runtime.gpu.locked import locked_address, pinned
from tiering.runtime.memory import ResidentRows, anonymous

_TURN_SECONDS = 0.2
"""Least length of a turn: launches and the wait at its end are some microseconds each."""
_BLOCK = 1 << 26
"""Bytes drawn at a time."""


def gpu_missing() -> str:
    """Why GPU benchmarks cannot run here; empty if they can."""
    try:
        devices.open_device(0)
    except CapabilityError as error:
        return str(error)
    return ""


class GpuSide:
    """A GPU, and turns on it.

    Raises
    ------
    CapabilityError
        If there is none, or build, driver or torch cannot use it.
    """

    def __init__(self, sizes: Sizes) -> None:
        self.device = devices.open_device(0)
        """Torch's side of it."""
        info = cuda.device_info(self.device.index)
        self.name = info.name
        self.multiprocessors = info.multiprocessors
        """How many it has."""
        self.sms = _bound(sizes.gpu_sms, info.multiprocessors)
        """How many a gather from host memory may use; 0: all."""
        self.sizes = sizes
        self._end = cuda.Event(self.device.index)
        torch.set_num_threads(sizes.threads)

    def finish(self) -> None:
        """Wait for all that was put on the caller's stream."""
        self._end.record(self.device.current())
        self._end.wait()

    def turn(self, work: Callable[[], object], passes: int = 1) -> None:
        """`passes` of `work` put on the stream, and the wait for the last."""
        for _ in range(passes):
            work()
        self.finish()

    def passes(self, work: Callable[[], object]) -> int:
        """How many passes make a turn that is long beside what starts and ends it; warms up."""
        self.turn(work)
        seconds = take_turn(partial(self.turn, work)).wall
        return max(1, ceil(min(_TURN_SECONDS, self.sizes.seconds) / max(seconds, 1e-6)))

    def compare(
        self,
        name: str,
        ours: Work,
        peers: Sides,
        *,
        amount: float,
        unit: str,
        targets: Mapping[str, float] | None = None,
        **about: Any,
    ) -> Comparison:
        """Time ours and the peers in turn; each side puts one pass of the same work on the caller's stream.

        Parameters
        ----------
        amount, unit
            Work of a pass.
        targets
            By peer: least ratio that is aimed at.
        about
            Parameters to report.
        """
        passes = self.passes(ours)
        sides: dict[str, Work | str] = {}
        for label, peer in peers.items():
            if not isinstance(peer, str):
                self.turn(peer)  # libraries load their kernels at first use
            sides[label] = peer if isinstance(peer, str) else partial(self.turn, peer, passes)
        return compare(
            name, partial(self.turn, ours, passes), sides, amount=passes * amount, unit=unit, targets=targets,
            repeats=self.sizes.repeats, parameters={**about, "passes": passes},
        )  # fmt: skip


def _bound(asked: int | str, multiprocessors: int) -> int:
    """``auto``: what `tiering.runtime.gpu.features.GpuFeatures` takes by itself."""
    if asked == "auto":
        return max(1, multiprocessors // 10)
    if isinstance(asked, str) or not 0 <= asked <= multiprocessors:
        raise InputError(f"--sms: expected auto or 0 .. {multiprocessors} (0: all) on this GPU, found {asked}")
    return asked


@dataclass(frozen=True)
class LockedRows:
    """Random bytes in page-locked host memory."""

    array: npt.NDArray[np.uint8]
    """The memory, on huge pages where there are some."""
    address: int
    """Where the GPU finds it."""
    owner: ResidentRows
    """Unlocks it with the last holder."""

    @classmethod
    def of(cls, nbytes: int, seed: int) -> LockedRows:
        """Raises `tiering.errors.BudgetError` if the system does not lock so much."""
        array, rng = anonymous(nbytes), np.random.default_rng(seed)
        for start in range(0, nbytes, _BLOCK):
            part = array[start : start + _BLOCK]
            part[:] = np.frombuffer(rng.bytes(part.size), np.uint8)
        owner = ResidentRows("rows of a benchmark", array)
        return cls(array, locked_address(owner, "rows of a benchmark in host memory"), owner)

    def rows(self, rows: int, row_bytes: int, offset: int = 0) -> Tensor:
        """Rows of float32 from byte `offset` on; a view."""
        part = self.array[offset : offset + rows * row_bytes]
        return torch.from_numpy(part.view(np.float32).reshape(rows, row_bytes // 4))


def empty_rows(device: Device, rows: int, row_bytes: int) -> Tensor:
    """Rows of float32 in the memory of the GPU, uninitialised."""
    return device.empty((rows, row_bytes // 4), torch.float32)


def random_rows_there(device: Device, rows: int, row_bytes: int, seed: int) -> Tensor:
    """Rows in the memory of the GPU: one random block, over and over, each row stamped with its number."""
    block_rows = max(1, min(rows, _BLOCK // row_bytes))
    block = torch.from_numpy(np.random.default_rng(seed).random((block_rows, row_bytes // 4), np.float32))
    table = empty_rows(device, rows, row_bytes)
    for first in range(0, rows, block_rows):
        part = table[first : first + block_rows]
        part.copy_(block[: len(part)])
    table[:, 0].copy_(torch.from_numpy(np.arange(rows, dtype=np.int32).view(np.float32)))
    return table


def copy_slices(source: Tensor, out: Tensor, count: int) -> None:
    """Copy the rows of `source` into the one `out`, `len(out)` at a time, `count` times, without waiting."""
    batch = len(out)
    for k in range(count):
        out.copy_(source[k * batch : (k + 1) * batch], non_blocking=True)


def same_bytes(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors hold the same bytes, wherever they lie; NaN equals itself."""
    both = [each.detach().cpu().contiguous().view(torch.uint8) for each in (left, right)]
    return bool(torch.equal(*both))


class CopiedRows:
    """Rows gathered by torch on the CPU into pinned memory and copied to the GPU from there.

    Two buffers in turn, so that the CPU gathers into one while the other is copied. A loader takes it for features.
    """

    def __init__(self, device: Device, table: Tensor) -> None:
        self._device, self._table = device, table
        self._buffers = [table[:0], table[:0]]
        self._copied = [cuda.Event(device.index) for _ in range(2)]
        self._next = 0

    def put(self, batches: Iterable[Tensor], out: Tensor) -> None:
        """Gather batch after batch and put the copies on the caller's stream, all into `out`."""
        for ids in batches:
            turn, self._next = self._next, 1 - self._next
            self._copied[turn].wait()
            rows = self._room(turn, len(ids))
            torch.index_select(self._table, 0, ids, out=rows)
            out.copy_(rows, non_blocking=True)
            self._copied[turn].record(self._device.current())

    def gather(self, ids: Any, out: Tensor | None = None) -> Tensor:
        """Rows of `ids`, in host memory, as a tensor on the GPU."""
        if out is None:
            out = self._device.empty((len(ids), self._table.shape[1]), self._table.dtype)
        self.put([torch.as_tensor(ids)], out)
        return out

    def _room(self, turn: int, rows: int) -> Tensor:
        if len(self._buffers[turn]) < rows:
            width, itemsize = self._table.shape[1], self._table.element_size()
            room = rows * 5 // 4 + 1
            array, _ = pinned(room * width * itemsize, np.uint8, "rows gathered by the CPU")
            self._buffers[turn] = torch.from_numpy(array).view(self._table.dtype).view(room, width)
        return self._buffers[turn][:rows]
