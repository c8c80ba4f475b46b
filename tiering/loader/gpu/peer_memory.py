"""Memory of other processes' GPUs: a share of the peer tier for each process of a group, read by all."""

from __future__ import annotations

from tiering import cuda
from tiering.errors import DeviceError
from tiering.loader.gpu.device import Device
from tiering.loader.process import warn_once
from tiering.loader.processes.peers import PeerGroup


def share_memory(
    group: PeerGroup, topic: str, own: cuda.DeviceMemory | None, device: Device, what: str
) -> list[cuda.DeviceMemory | cuda.PeerMemory | None]:
    """Give this process's share, made with ``shared=True``, to the others, and open theirs.

    By rank: memory that this process's GPU reads; ``None`` where a share is empty or cannot be reached.
    """
    handles = group.exchange(topic, share_handle(own, what))
    return [
        own if rank == group.rank else open_memory(handle, device, f"rows of peer {rank}")
        for rank, handle in enumerate(handles)
    ]


def share_handle(memory: cuda.DeviceMemory | None, what: str) -> str | None:
    """Return the handle by which other processes open `memory`, made with ``shared=True``: empty if there is none,
    ``None`` where CUDA shares no memory between processes (virtual machines, containers, parts of a GPU): said once.
    """
    if memory is None:
        return ""
    try:
        with cuda.device_errors(what):
            return memory.share().hex()
    except DeviceError as error:
        warn_once(f"{error}; other processes read from host memory what this one has on its GPU")
        return None


def open_memory(handle: str | None, device: Device, whose: str) -> cuda.PeerMemory | None:
    """Memory of another process, by its handle; ``None`` if it is empty, not shared, or this GPU cannot reach it: said
    once.
    """
    if not handle:
        return None
    try:
        with cuda.device_errors(whose):
            return cuda.PeerMemory(device.index, bytes.fromhex(handle))
    except DeviceError as error:
        warn_once(f"{whose} are read from host memory: {error}")
        return None
