"""Memory of other processes' GPUs: a share of the peer tier for each process of a group, read by all."""

from __future__ import annotations

from tiering import cuda
from tiering.errors import DeviceError
from tiering.loader.gpu.device import Device
from tiering.loader.process import warn_once
from tiering.loader.ranks.peers import PeerGroup


def share_memory(
    group: PeerGroup, topic: str, own: cuda.DeviceMemory | None, device: Device, what: str
) -> list[cuda.DeviceMemory | cuda.PeerMemory | None]:
    """Give this process's share, made with ``shared=True``, to the others, and open theirs.

    By rank: memory that this process's GPU reads; ``None`` where a share is empty or cannot be reached.
    """
    with cuda.device_errors(what):
        handle = own.share().hex() if own is not None else ""
    handles = group.exchange(topic, handle)
    return [
        own if rank == group.rank else open_memory(bytes.fromhex(handle), device, f"rows of peer {rank}")
        for rank, handle in enumerate(handles)
    ]


def open_memory(handle: bytes, device: Device, whose: str) -> cuda.PeerMemory | None:
    """Memory of another process; ``None`` if it is empty, or this GPU cannot reach it: said once."""
    if not handle:
        return None
    try:
        with cuda.device_errors(whose):
            return cuda.PeerMemory(device.index, handle)
    except DeviceError as error:
        warn_once(f"{whose} are read from host memory: {error}")
        return None
