"""The memory tiers of one table where a GPU reads them: its own memory, that of peers, pinned host memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tiering import cuda
from tiering.errors import InputError
from tiering.formats.layout import Layout, TypeLayout
from tiering.loader.gpu.device import Device, pinned_address
from tiering.loader.gpu.memory import device_file, prefers_host, share_memory
from tiering.loader.processes.peers import PeerGroup
from tiering.loader.tables.resident import SharedBlock, load_rows


@dataclass
class MemoryTiers:
    """Addresses of the rows of each tier, and what keeps them valid."""

    gpu: int = 0
    """Address of the gpu tier."""
    peers: list[int] = field(default_factory=list)
    """Address of each peer's share."""
    cpu: int = 0
    """Address of the cpu tier."""
    peer_places: list[str] = field(default_factory=list)
    """Place of each share, for people."""
    topic: str = ""
    """Topic under which a group exchanged shares; empty where there are none, or no group."""
    owners: list[Any] = field(default_factory=list)
    """Memory of the GPU and of the host, opened memory of peers."""


class TierSource(Protocol):
    """A source of the rows of memory tiers: the files of a layout, or a tensor.

    Tiers are ``gpu``, ``cpu`` and ``peer``, which has a share for each peer.
    """

    @property
    def name(self) -> str:
        """Name for messages."""

    @property
    def peer_bytes(self) -> Sequence[int]:
        """Bytes of each peer's share."""

    def copy_to_gpu(self, tier: str, peer: int, gpu: int, *, shared: bool = False) -> cuda.DeviceMemory:
        """Copy rows to memory of a GPU; `shared`: memory that other processes can open."""

    def pin_on_host(self, tier: str, peer: int) -> tuple[SharedBlock, int]:
        """Return rows in pinned host memory, and the address at which the GPU reads them."""


@dataclass(frozen=True)
class LayoutTiers:
    """The tier files of one table of a layout; see `TierSource`. Each byte is read once, past the page cache."""

    layout: Layout
    entry: TypeLayout
    device: Device
    group: PeerGroup | None

    @property
    def name(self) -> str:
        """Name for messages."""
        return f"{self.layout.path}: {self.entry.label}"

    @property
    def peer_bytes(self) -> list[int]:
        """Bytes of each peer's share."""
        return [rows * self.entry.row_bytes for rows in self.entry.file_rows("peer", self.layout.num_peers)]

    def copy_to_gpu(self, tier: str, peer: int, gpu: int, *, shared: bool = False) -> cuda.DeviceMemory:
        """Read a tier's file into memory of a GPU."""
        path = self.layout.tier_path(self.entry.node_type, tier, peer)
        return device_file(path, self._bytes(tier, peer), gpu, f"{self.name}: {tier} tier", shared)

    def pin_on_host(self, tier: str, peer: int) -> tuple[SharedBlock, int]:
        """Read a tier's file into pinned host memory, one copy for the processes of the group."""
        path = self.layout.tier_path(self.entry.node_type, tier, peer)
        block = load_rows(path, self._bytes(tier, peer), self.group)
        return block, pinned_address(block, self.device.index, f"{self.name}: {tier} tier")

    def _bytes(self, tier: str, peer: int) -> int:
        return self.peer_bytes[peer] if tier == "peer" else self.entry.rows(tier) * self.entry.row_bytes


def load_layout_tiers(layout: Layout, entry: TypeLayout, device: Device, group: PeerGroup | None) -> MemoryTiers:
    """Fill the memory tiers of a table of a layout.

    `group`: the processes that share the peer tier, one for each of its GPUs. ``None``: this process alone, which puts
    the shares on the GPUs it sees, the rest into host memory.
    """
    source, topic = LayoutTiers(layout, entry, device, group), ""
    if group is not None and entry.rows("peer"):
        if group.size != layout.num_peers:
            raise InputError(
                f"{source.name}: the peer tier is made for {layout.num_peers} GPUs, and {group.size} processes share "
                f"it; start {layout.num_peers}, or make the layout with --peer {group.size}xSIZE"
            )
        topic = group.numbered(f"{layout.digest[-16:]}-{entry.node_type}")
    return load_tiers(source, entry, device, group, topic, range(layout.num_peers))


def load_tiers(
    source: TierSource, entry: TypeLayout, device: Device, group: PeerGroup | None, topic: str, gpus: Sequence[int]
) -> MemoryTiers:
    """Fill memory tiers from `source`. Where memory does not suffice, nothing stays allocated.

    `gpus`: the GPU of each peer where there is no group, of this process.
    """
    tiers = MemoryTiers(topic=topic)
    if entry.rows("gpu"):
        memory = source.copy_to_gpu("gpu", 0, device.index)
        tiers.owners.append(memory)
        tiers.gpu = memory.address
    if entry.rows("peer"):
        _load_peers(tiers, source, device, group, gpus)
    if entry.rows("cpu"):
        block, tiers.cpu = source.pin_on_host("cpu", 0)
        tiers.owners.append(block)
    return tiers


def _load_peers(
    tiers: MemoryTiers, source: TierSource, device: Device, group: PeerGroup | None, gpus: Sequence[int]
) -> None:
    shares: Sequence[cuda.DeviceMemory | cuda.PeerMemory | None]
    if group is None:
        shares = [_copy_where_reached(source, peer, gpu, device) for peer, gpu in enumerate(gpus)]
        local = [gpu == device.index for gpu in gpus]
    else:
        nbytes, rank = source.peer_bytes[group.rank], group.rank
        own = source.copy_to_gpu("peer", rank, device.index, shared=True) if nbytes else None
        shares = share_memory(group, tiers.topic, own, device, source.name)
        local = [peer == rank for peer in range(group.size)]
    for peer, (memory, nbytes) in enumerate(zip(shares, source.peer_bytes, strict=True)):
        address, place = 0, "empty"
        whose = f"{source.name}: rows of peer {peer}"
        if memory is not None and (local[peer] or not prefers_host(device.index, memory.address, nbytes, whose)):
            tiers.owners.append(memory)
            address, place = memory.address, f"GPU of peer {peer}"
        elif nbytes:
            block, address = source.pin_on_host("peer", peer)
            tiers.owners.append(block)
            place = "host memory"
        tiers.peers.append(address)
        tiers.peer_places.append(place)


def _copy_where_reached(source: TierSource, peer: int, gpu: int, device: Device) -> cuda.DeviceMemory | None:
    """Copy a share to a GPU of this process; ``None`` if there is no such GPU, or the two do not reach each other."""
    with cuda.device_errors(source.name):
        if not source.peer_bytes[peer] or gpu >= cuda.count_devices() or not cuda.can_access(device.index, gpu):
            return None
        cuda.enable_access(device.index, gpu)
    return source.copy_to_gpu("peer", peer, gpu)
