"""Memory of GPUs that kernels read: filled from files, and shared with other processes.

Where a peer is reached over PCIe, or through the processor, host memory may be faster: both are measured.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np

from tiering import cuda, native
from tiering.errors import DeviceError
from tiering.loader.gpu.device import Device, pinned
from tiering.loader.process import warn_once
from tiering.loader.processes.peers import PeerGroup

SAMPLE_BYTES = 64 << 20
"""Bytes read to measure a link: some milliseconds over PCIe. Less than an eighth of it is not measured."""
_ROW_BYTES = 4096
_host_rates: dict[int, float] = {}
_lock = threading.Lock()


def fill_memory(device: int, address: int, path: Path, nbytes: int) -> None:
    """Read the first bytes of a file to an address of a GPU, past the page cache; see ``fill.hpp``."""
    engine = "threads" if native.uring_unavailable() else "io_uring"
    cuda.fill_device(device, address, str(path), 0, nbytes, engine)


def device_file(path: Path, nbytes: int, device: int, what: str, shared: bool = False) -> cuda.DeviceMemory:
    """Return the first bytes of a file in memory of a GPU; `shared`: memory that other processes can open."""
    with cuda.device_errors(what, "make the layout's gpu tier smaller, or end other programs on this GPU"):
        memory = cuda.allocate(device, nbytes, shared)
        fill_memory(device, memory.address, path, nbytes)
    return memory


def share_memory(
    group: PeerGroup, topic: str, own: cuda.DeviceMemory | None, device: Device, what: str
) -> list[cuda.DeviceMemory | cuda.PeerMemory | None]:
    """Exchange this process's share, allocated with ``shared=True``, for those of the others.

    Returns, by process, memory that this GPU reads; ``None`` where a share is empty or cannot be reached.
    """
    handles = group.exchange(topic, _share_handle(own, what))
    return [
        own if rank == group.rank else _open_memory(handle, device, f"rows of peer {rank}")
        for rank, handle in enumerate(handles)
    ]


def _share_handle(memory: cuda.DeviceMemory | None, what: str) -> str | None:
    """Return the handle by which other processes open `memory`; empty without memory.

    ``None``, logged once, where CUDA shares no memory between processes: virtual machines, containers, parts of a GPU.
    """
    if memory is None:
        return ""
    try:
        with cuda.device_errors(what):
            return memory.share().hex()
    except DeviceError as error:
        warn_once(f"{error}; other processes read from host memory what this one has on its GPU")
        return None


def _open_memory(handle: str | None, device: Device, whose: str) -> cuda.PeerMemory | None:
    """Open memory of another process; ``None`` if there is none, or it cannot be reached, which is logged once."""
    if not handle:
        return None
    try:
        with cuda.device_errors(whose):
            return cuda.PeerMemory(device.index, bytes.fromhex(handle))
    except DeviceError as error:
        warn_once(f"{whose} are read from host memory: {error}")
        return None


def prefers_host(device: int, address: int, nbytes: int, whose: str) -> bool:
    """Return whether a GPU reads host memory faster than `nbytes` at `address` of another GPU; logged once.

    Cost: three reads of `SAMPLE_BYTES`, and as many of host memory the first time.
    """
    nbytes = min(nbytes, SAMPLE_BYTES)
    if nbytes < SAMPLE_BYTES // 8:
        return False
    there, host = read_rate(device, address, nbytes), _host_rate(device)
    if there >= host:
        return False
    warn_once(f"{whose} are read from host memory, at {host / 1e9:.1f} GB/s; from their GPU: {there / 1e9:.1f} GB/s")
    return True


def read_rate(device: int, address: int, nbytes: int) -> float:
    """Measure a gather of `nbytes` by all multiprocessors, in bytes per second: the best of two, after one."""
    rows, what = nbytes // _ROW_BYTES, f"measuring the links of cuda:{device}"
    table = cuda.RowTable(device, _ROW_BYTES, [0, 0, rows, rows], 0, [], address)
    with cuda.device_errors(what):
        out, stream = cuda.allocate(device, rows * _ROW_BYTES), cuda.Stream(device)
        seconds = []
        for _ in range(3):
            begin = time.perf_counter()
            table.gather(0, rows, out.address, stream.handle)
            stream.synchronize()
            seconds.append(time.perf_counter() - begin)
    return rows * _ROW_BYTES / min(seconds[1:])


def _host_rate(device: int) -> float:
    with _lock:
        if device not in _host_rates:
            _, address = pinned(device, SAMPLE_BYTES, np.uint8, f"measuring the links of cuda:{device}")
            _host_rates[device] = read_rate(device, address, SAMPLE_BYTES)
        return _host_rates[device]
