"""Memory of GPUs that kernels read: filled from files, and shared with other processes.

Where a peer is reached over PCIe, or through the processor, host memory may be faster: both are measured.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from tiering import cuda, native
from tiering.errors import DeviceError
from tiering.loader.gpu.device import Device, pinned
from tiering.loader.process import warn_once
from tiering.loader.processes.peers import PeerGroup

T = TypeVar("T")
SAMPLE_BYTES = 64 << 20
"""Bytes read to measure a link: some milliseconds over PCIe. Less than an eighth of it is not measured."""
_ROW_BYTES = 4096
_host_rates: dict[int, float] = {}
_lock = threading.Lock()


def fill_memory(device: int, address: int, path: Path, nbytes: int) -> None:
    """Read the first bytes of a file to an address of a GPU, past the page cache; see ``fill.hpp``."""
    engine = "threads" if native.uring_unavailable() else "io_uring"
    cuda.fill_device(device, address, str(path), 0, nbytes, engine)


def share_memory(
    group: PeerGroup, topic: str, own: cuda.DeviceMemory | None, sizes: Sequence[int], device: Device, what: str
) -> list[cuda.DeviceMemory | cuda.PeerMemory | None]:
    """Exchange this process's share, allocated with ``shared=True``, for those of the others, of `sizes` bytes.

    Returns, by process, memory that this GPU reads; ``None`` where a share is empty, cannot be reached (CUDA shares no
    memory between virtual machines, containers, parts of a GPU), or is slower than host memory.
    """
    advice = "; other processes read from host memory what this one has on its GPU"
    handle = None if own is None else _or_warn(own.share, what, "", advice)
    handles = group.exchange(topic, (handle or b"").hex())
    shares: list[cuda.DeviceMemory | cuda.PeerMemory | None] = [None] * group.size
    shares[group.rank] = own
    for rank, (text, nbytes) in enumerate(zip(handles, sizes, strict=True)):
        if rank != group.rank and text:
            whose, open_memory = f"{what} of peer {rank}", partial(cuda.PeerMemory, device.index, bytes.fromhex(text))
            memory = _or_warn(open_memory, whose, f"{whose} are read from host memory: ")
            if memory is not None and not prefers_host(device.index, memory.address, nbytes, whose):
                shares[rank] = memory
    return shares


def _or_warn(make: Callable[[], T], what: str, before: str, after: str = "") -> T | None:
    """Return what `make` returns; ``None``, with one warning of the error, where CUDA refuses."""
    try:
        with cuda.device_errors(what):
            return make()
    except DeviceError as error:
        warn_once(f"{before}{error}{after}")
        return None


def prefers_host(device: int, address: int, nbytes: int, whose: str) -> bool:
    """Return whether a GPU reads host memory faster than `nbytes` at `address` of another GPU; logged once.

    Cost: three reads of `SAMPLE_BYTES`, and as many of host memory the first time.
    """
    nbytes = min(nbytes, SAMPLE_BYTES)
    if nbytes < SAMPLE_BYTES // 8:
        return False
    there = read_rate(device, address, nbytes)
    with _lock:
        if device not in _host_rates:
            _, pinned_at = pinned(device, SAMPLE_BYTES, np.uint8, f"measuring the links of cuda:{device}")
            _host_rates[device] = read_rate(device, pinned_at, SAMPLE_BYTES)
        host = _host_rates[device]
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
