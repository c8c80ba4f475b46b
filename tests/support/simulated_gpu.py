"""A GPU for tests without one: the CUDA part compiled for the processor, and torch's tensors in host memory."""

from __future__ import annotations

import ctypes
import gc
import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tiering import cuda
from tiering.artifacts.manifest import Relation
from tiering.formats.adjacency_prefix import AdjacencyPrefix, ListBytes
from tiering.formats.layout import Layout
from tiering.loader.gpu import device as device_module
from tiering.loader.gpu.device import Device
from tiering.loader.tables.resident import rounded_up


class SimulatedDevice(Device):
    """`Device` whose tensors lie in host memory, where the simulated kernels reach them."""

    def __init__(self, index: int) -> None:
        import torch

        self.index = index
        self.torch_device = torch.device("cpu")
        self._threads = threading.local()
        # A real allocator gives memory out again in the order of the stream; this one must not give it out at all.
        self._alive: list[Any] = []
        self._pinned: Any = cuda.PinnedMemory(index, 1)

    def __del__(self) -> None:
        # Freeing page-locked memory waits for all work, as CUDA does: work in flight may still write to the tensors.
        self._pinned = None

    def current(self) -> int:
        return 0

    def stream(self, *, urgent: bool = False) -> Any:
        stream = cuda.Stream(self.index)
        return SimpleNamespace(cuda_stream=stream.handle, synchronize=stream.synchronize, native=stream)

    @contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        yield

    def _record(self, tensors: list[Any], stream: Any) -> None:
        import torch

        for tensor in tensors:  # torch refuses any other
            assert tensor.device == self.torch_device and tensor.layout == torch.strided, tensor
        self._alive += tensors

    def wait(self, event: Any) -> None:
        event.wait()

    def send(self, tensor: Any) -> Any:
        copy = tensor.clone()
        self._alive.append(copy)
        return copy

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        import math

        import torch

        count = math.prod(shape)
        flat = torch.full((rounded_up(count),), 77, dtype=dtype) if count else torch.empty(1, dtype=dtype)
        self._alive.append(flat)
        return flat[:count].view(shape)


class Simulator:
    """The switches of the simulated runtime."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self._library = ctypes.CDLL(str(module.__file__))
        self._library.simulator_live.restype = ctypes.c_size_t
        self._library.simulator_drive_reads.restype = ctypes.c_longlong
        self._library.simulator_break_drive.argtypes = ctypes.c_char_p, ctypes.c_longlong

    def set_memory(self, nbytes: int) -> None:
        """Memory of each device."""
        self._library.simulator_set_memory(ctypes.c_size_t(nbytes))

    def set_registrable(self, nbytes: int) -> None:
        """Host memory that may be page-locked."""
        self._library.simulator_set_registrable(ctypes.c_size_t(nbytes))

    def set_drive_writes(self, how: str) -> None:
        """How devices see what drives write: ``ordered``, ``flushed`` (when the host flushes) or ``none``."""
        self._library.simulator_set_drive_writes(how.encode())

    def device(self) -> int:
        """The calling thread's current device."""
        return int(self._library.simulator_device())

    def capture_mode(self) -> int:
        """The calling thread's stream capture mode; 0 (global) until somebody sets it."""
        return int(self._library.simulator_capture_mode())

    def drive_reads(self, path: str) -> int:
        """Reads of a drive that is open; below 0: there is none."""
        return int(self._library.simulator_drive_reads(path.encode()))

    def break_drive(self, path: str, block: int = -1) -> None:
        """Let a drive that is open refuse a block of 512 bytes, or (below 0) fall silent."""
        assert self._library.simulator_break_drive(path.encode(), block)

    def live(self, what: str) -> int:
        """What is not given back: allocations, bytes, host, registered, ipc, streams; contexts: devices in use."""
        return int(self._library.simulator_live(what.encode()))


KINDS = ("allocations", "host", "registered", "ipc", "streams")
"""What must be given back."""


def lend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulator]:
    """A simulated GPU of 1 GiB for one test; what the test leaves on it is a failure."""
    simulator = install(monkeypatch)
    simulator.set_memory(1 << 30)
    simulator.set_drive_writes("ordered")
    simulator.set_registrable(1 << 40)
    gc.collect()
    before = {kind: simulator.live(kind) for kind in KINDS}
    yield simulator
    gc.collect()
    simulator.set_registrable(1 << 40)
    after = {kind: simulator.live(kind) for kind in KINDS}
    assert after == before, f"left on the GPU: {after}, before: {before}"


def install(monkeypatch: pytest.MonkeyPatch) -> Simulator:
    """Put a simulated device in the place of the CUDA part; skip where it was not built."""
    try:
        module = importlib.import_module("tiering._cuda_simulated")
    except ImportError:
        pytest.skip("the simulated device was not built (TIERING_SIMULATOR; `make test-extra` builds it)")
    monkeypatch.setattr(cuda, "_cuda", module, raising=False)
    monkeypatch.setattr(cuda, "_found", module)
    monkeypatch.setattr(cuda, "_missing", "")

    def open_device(index: int) -> SimulatedDevice:
        cuda.require_device(max(index, 0))
        return SimulatedDevice(max(index, 0))

    monkeypatch.setattr(device_module, "open_device", open_device)
    return Simulator(module)


def resident_share(share: float, weights: bool) -> Callable[..., AdjacencyPrefix]:
    """In the place of `Layout.adjacency_prefix`: a share of each relation's columns lies in the memory of the GPU."""

    def prefix(layout: Layout, relation: Relation | str | None = None) -> AdjacencyPrefix:
        indptr, _ = layout.graph.csc(relation)
        size = ListBytes.of_graph(layout.graph, layout.graph.relation(relation), weights)
        columns = int(share * (indptr.size - 1))
        return AdjacencyPrefix.of(columns, int(indptr[columns]), size)

    return prefix
