"""One GPU as training sees it: torch's tensors, allocator and streams, and pinned host memory that kernels read."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiering import cuda
from tiering.errors import CapabilityError
from tiering.loader.batches.tensors import dense_parts
from tiering.loader.process import require_torch
from tiering.loader.tables.resident import SharedBlock, rounded_up
from tiering.sampling.plan import whole_number

if TYPE_CHECKING:
    import torch

_first_process: int | None = None  # the process that opened the first GPU
_pinning = threading.Lock()
_ADVICE = (
    "lock less memory: give the layout a smaller cpu tier, or the loader less `memory`, or raise the limit "
    "(`ulimit -l`, in containers `docker run --ulimit memlock=-1`)"
)


def check_process(owner: int | None) -> None:
    """Raise `CapabilityError` in a forked child of the process `owner`, which CUDA does not serve."""
    if owner not in (None, os.getpid()):
        raise CapabilityError(
            "a forked child cannot use a GPU that its parent opened; start the process by spawn "
            "(multiprocessing.get_context('spawn')), or use device='cpu' in it"
        )


class Device:
    """A GPU that tensors are made on; `open_device` makes one."""

    def __init__(self, index: int) -> None:
        import torch

        self.index = index  # number of the GPU among those this process sees
        self.torch_device = torch.device("cuda", index)  # the GPU as torch names it
        self._threads = threading.local()

    @property
    def name(self) -> str:
        """Name for messages, such as ``cuda:0``."""
        return f"cuda:{self.index}"

    def current(self) -> int:
        """Return the handle of the stream that the caller's torch works on."""
        import torch

        return int(torch.cuda.current_stream(self.index).cuda_stream)

    def stream(self, *, urgent: bool = False) -> torch.cuda.Stream:
        """Make a stream; `urgent`: its kernels begin before other streams'. Torch's live as long as the process."""
        import torch

        return torch.cuda.Stream(self.torch_device, priority=-1 if urgent else 0)  # type: ignore[no-untyped-call]

    def begin_thread(self) -> None:
        """Make this GPU the current one of a thread of ours, once, which then breaks no capture of a CUDA graph."""
        if not getattr(self._threads, "begun", False):
            cuda.begin_thread(self.index)
            self._threads.begun = True

    def on(self, stream: torch.cuda.Stream) -> AbstractContextManager[Any]:
        """Let torch work on `stream`: what it allocates inside belongs to that stream."""
        import torch

        return torch.cuda.stream(stream)

    def keep(self, tensors: Iterable[torch.Tensor], stream: torch.cuda.Stream | None = None) -> None:
        """Tell torch's allocator that `stream` (default: the caller's) uses tensors of this GPU made on another."""
        self._record([part for tensor in tensors if self.has(tensor) for part in dense_parts(tensor)], stream)

    def _record(self, tensors: list[torch.Tensor], stream: torch.cuda.Stream | None) -> None:
        import torch

        user = torch.cuda.current_stream(self.index) if stream is None else stream
        for tensor in tensors:
            tensor.record_stream(user)

    def wait(self, event: cuda.Event) -> None:
        """Let the caller's stream wait for `event`."""
        cuda.wait_event(self.current(), event)

    def upload(self, array: npt.NDArray[Any]) -> torch.Tensor:
        """Copy to the GPU on the stream that torch works on, without waiting."""
        import torch

        return self.send(torch.from_numpy(array if array.flags.writeable else array.copy()))

    def send(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copy a tensor in host memory as `upload` does."""
        return tensor.pin_memory().to(self.torch_device, non_blocking=True)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Make an uninitialized tensor; sizes are rounded up, so that torch's allocator uses blocks again."""
        import torch

        count = int(np.prod(shape, dtype=np.int64))
        flat = torch.empty(rounded_up(count), dtype=dtype, device=self.torch_device)
        return flat[:count].view(shape)

    def has(self, tensor: Any) -> bool:
        """Return whether `tensor` is a tensor on this GPU."""
        return getattr(tensor, "device", None) == self.torch_device


def open_device(index: int) -> Device:
    """Open GPU number `index`, -1 for torch's current one; `CapabilityError` says what is missing and what to do."""
    global _first_process
    check_process(_first_process)
    _first_process = os.getpid()
    require_torch()
    cuda.require_device(max(index, 0))
    import torch

    if not torch.cuda.is_available():
        raise CapabilityError(
            f"device='cuda': torch {torch.__version__} cannot use a GPU (a build without CUDA?); install another one"
        )
    return Device(torch.cuda.current_device() if index < 0 else index)


def pinned_address(block: SharedBlock, device: int, what: str) -> int:
    """Return the address of a block for GPUs; the first call pins the block, until its last user goes."""
    with _pinning:
        if block.registration is None:
            if block.array.size == 0:
                return 0
            with cuda.device_errors(what, _ADVICE):
                block.registration = cuda.Registration(device, block.array.ctypes.data, block.array.nbytes)
    return int(block.registration.address)


def pinned(device: int, count: int, dtype: npt.DTypeLike, what: str) -> tuple[npt.NDArray[Any], int]:
    """Make a small array that host and GPUs write and read; returns it and its address for GPUs."""
    with cuda.device_errors(what):
        memory = cuda.PinnedMemory(device, max(1, count) * np.dtype(dtype).itemsize)
    return memory.array().view(dtype)[:count], memory.address


class PinnedBuffer:
    """A pinned array that grows; host and GPUs write and read it."""

    def __init__(self, device: int, dtype: npt.DTypeLike, what: str) -> None:
        self._device, self._dtype, self._what = device, dtype, what
        self.array, self.address = pinned(device, 0, dtype, what)

    def reserve(self, count: int) -> None:
        """Make room for `count` elements; an array that must grow is replaced by another."""
        if self.array.size < count:
            self.array, self.address = pinned(self._device, max(count, 1024) * 5 // 4, self._dtype, self._what)


def parse_sms(max_sms: int | str) -> int | None:
    """Return the multiprocessors that a gather may use; 0: all, ``None``: `auto_sms` decides."""
    if max_sms == "auto":
        return None
    return whole_number(max_sms, 0, 2**31, "max_sms", " of multiprocessors (0: all), or auto")


def auto_sms(device: Device, reads_host: bool) -> int:
    """Return the multiprocessors that saturate the memory read: a tenth for host memory over PCIe, else all (0)."""
    info = cuda.device_info(device.index)
    return max(1, int(info.multiprocessors) // 10) if reads_host and not info.coherent else 0
