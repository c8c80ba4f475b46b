"""How fast a GPU reads memory that is not its own: which of two memories holds rows better is measured, because a peer
that is reached over PCIe, or through the processor, may be slower than host memory.
"""

from __future__ import annotations

import threading
import time
from typing import TypeVar

import numpy as np

from tiering import cuda
from tiering.loader.gpu.device import pinned
from tiering.loader.process import warn_once

AnyMemory = TypeVar("AnyMemory", bound="cuda.DeviceMemory | cuda.PeerMemory")
SAMPLE_BYTES = 64 << 20
"""Bytes read to measure: some milliseconds over PCIe. Less than an eighth of it in a memory is not worth measuring."""
_ROW_BYTES = 4096
_host_rates: dict[int, float] = {}
_lock = threading.Lock()


def prefers_host(device: int, address: int, nbytes: int, whose: str) -> bool:
    """Whether a GPU reads host memory faster than `nbytes` at `address`, which lie on another one; says so once.

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


def unless_slower(memory: AnyMemory | None, device: int, nbytes: int, whose: str) -> AnyMemory | None:
    """Memory of a peer, unless the GPU `prefers_host`."""
    return None if memory is None or prefers_host(device, memory.address, nbytes, whose) else memory


def read_rate(device: int, address: int, nbytes: int) -> float:
    """Bytes per second of a gather of `nbytes` from `address`, by all multiprocessors: the best of two, after one."""
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
    """`read_rate` of pinned host memory, measured once by a process."""
    with _lock:
        if device not in _host_rates:
            _, address = pinned(device, SAMPLE_BYTES, np.uint8, f"measuring the links of cuda:{device}")
            _host_rates[device] = read_rate(device, address, SAMPLE_BYTES)
        return _host_rates[device]
