"""The memory tiers of one node type where a GPU reads them: its own memory, peers', locked host memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tiering import cuda
from tiering.formats.layout import Layout, TypeLayout, peer_rows
from tiering.loader.gpu.device import Device
from tiering.loader.gpu.device_file import device_file
from tiering.loader.gpu.locked import locked_address
from tiering.loader.gpu.peers import PeerGroup
from tiering.loader.memory import load_rows


@dataclass
class MemoryTiers:
    """Addresses of rows, and what keeps them valid."""

    gpu: int = 0
    """The gpu tier."""
    peers: list[int] = field(default_factory=list)
    """The share of each peer."""
    cpu: int = 0
    """The cpu tier."""
    peer_places: list[str] = field(default_factory=list)
    """Where each share lies, for people."""
    occasion: str = ""
    """Under what name the shares were exchanged; empty if there are none, or this process has them all."""
    owners: list[Any] = field(default_factory=list)
    """Memory of the GPU and of the host, opened memory of peers."""


def load_tiers(layout: Layout, entry: TypeLayout, device: Device, group: PeerGroup | None) -> MemoryTiers:
    """Fill the memory tiers of a node type from the layout's files.

    Parameters
    ----------
    group
        The processes that share the peer tier, one for each of its GPUs. ``None``: this process alone; it holds the
        whole peer tier in the memory of the GPUs it sees, or of the host.

    Raises
    ------
    BudgetError
        If memory of the GPU or of the host does not suffice; nothing stays allocated.

    Notes
    -----
    Cost: each byte is read once, past the page cache, at the speed of the slower of disk and link.
    """
    tiers = MemoryTiers()
    what = f"{layout.path}: node type {entry.node_type!r}"
    gpu_bytes = entry.rows("gpu") * entry.row_bytes
    if gpu_bytes:
        memory = device_file(layout.tier_path(entry.node_type, "gpu"), gpu_bytes, device.index, f"{what}: gpu tier")
        tiers.owners.append(memory)
        tiers.gpu = memory.address
    if entry.rows("peer"):
        _load_peers(layout, entry, device, group, tiers, what)
    cpu_bytes = entry.rows("cpu") * entry.row_bytes
    if cpu_bytes:
        rows = load_rows(layout.tier_path(entry.node_type, "cpu"), cpu_bytes, shared=group is not None)
        tiers.owners.append(rows)
        tiers.cpu = locked_address(rows, f"{what}: cpu tier")
    return tiers


def _load_peers(
    layout: Layout, entry: TypeLayout, device: Device, group: PeerGroup | None, tiers: MemoryTiers, what: str
) -> None:
    count = layout.num_peers
    shares = [peer_rows(entry.rows("peer"), peer, count) * entry.row_bytes for peer in range(count)]
    paths = [layout.tier_path(entry.node_type, "peer", peer) for peer in range(count)]
    if group is not None:
        group.require_size(count, what)
        tiers.occasion = group.occasion(f"{layout.digest[-16:]}-{entry.node_type}")
        opened = group.share_memory(tiers.occasion, paths[group.rank], shares[group.rank], device, what)
    else:
        opened = [_own_share(paths[peer], shares[peer], peer, device, what) for peer in range(count)]
    for peer, memory in enumerate(opened):
        if memory is not None:
            tiers.peers.append(memory.address)
            tiers.owners.append(memory)
            tiers.peer_places.append(f"GPU of peer {peer}")
            continue
        if not shares[peer]:
            tiers.peers.append(0)
            tiers.peer_places.append("empty")
            continue
        rows = load_rows(paths[peer], shares[peer], shared=group is not None)
        tiers.owners.append(rows)
        tiers.peers.append(locked_address(rows, f"{what}: peer tier"))
        tiers.peer_places.append("host memory")


def _own_share(path: Path, nbytes: int, peer: int, device: Device, what: str) -> cuda.DeviceMemory | None:
    """The share of a GPU of this process; ``None`` if there is no such GPU, or the two do not reach each other."""
    with cuda.device_errors(what):
        if not nbytes or peer >= cuda.count_devices() or not cuda.can_access(device.index, peer):
            return None
        cuda.enable_access(device.index, peer)
    return device_file(path, nbytes, peer, f"{what}: peer tier on GPU {peer}")
