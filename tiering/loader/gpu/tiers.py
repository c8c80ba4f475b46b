"""The memory tiers of one table where a GPU reads them: its own memory, that of peers, pinned host memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tiering import cuda
from tiering.errors import InputError
from tiering.formats.layout import Layout, TypeLayout
from tiering.loader.gpu.device import Device, pinned_address
from tiering.loader.gpu.memory import fill_memory, prefers_host, share_memory
from tiering.loader.processes.peers import PeerGroup
from tiering.loader.tables.resident import SharedBlock, load_rows


@dataclass
class MemoryTiers:
    """Addresses of the rows of each tier, `peers` by share, and what keeps them valid.

    `peer_places`: where each share lies, for people. `topic`: under which a group exchanged shares; empty without.
    """

    gpu: int = 0
    peers: list[int] = field(default_factory=list)
    cpu: int = 0
    peer_places: list[str] = field(default_factory=list)
    topic: str = ""
    owners: list[Any] = field(default_factory=list)


class TierSource(ABC):
    """A source of the rows of memory tiers: the files of a layout, or a tensor; `name` for messages.

    Tiers are ``gpu``, ``cpu`` and ``peer``, which has a share of `peer_bytes` for each peer: for each process of
    `group`, which exchange theirs under `topic`, or without one for each of `gpus`, of this process.
    """

    def __init__(
        self, name: str, entry: TypeLayout, device: Device, group: PeerGroup | None, topic: str, gpus: Sequence[int]
    ) -> None:
        self.name, self.entry, self.device, self.group, self.topic, self._gpus = name, entry, device, group, topic, gpus
        peers = len(gpus) if group is None else group.size
        self.peer_bytes = [rows * entry.row_bytes for rows in entry.file_rows("peer", peers)]

    @abstractmethod
    def copy_to_gpu(self, tier: str, peer: int, gpu: int, *, shared: bool = False) -> cuda.DeviceMemory:
        """Copy rows to memory of a GPU; `shared`: memory that other processes can open."""

    @abstractmethod
    def pin_on_host(self, tier: str, peer: int) -> tuple[SharedBlock, int]:
        """Return rows in pinned host memory, and the address at which the GPU reads them."""

    def load(self) -> MemoryTiers:
        """Fill memory tiers. Where memory does not suffice, nothing stays allocated."""
        tiers = MemoryTiers(topic=self.topic)
        if self.entry.rows("gpu"):
            memory = self.copy_to_gpu("gpu", 0, self.device.index)
            tiers.owners.append(memory)
            tiers.gpu = memory.address
        if self.entry.rows("peer"):
            self._load_peers(tiers)
        if self.entry.rows("cpu"):
            block, tiers.cpu = self.pin_on_host("cpu", 0)
            tiers.owners.append(block)
        return tiers

    def _load_peers(self, tiers: MemoryTiers) -> None:
        shares: Sequence[cuda.DeviceMemory | cuda.PeerMemory | None]
        if self.group is None:
            shares = [self._copy_where_reached(peer, gpu) for peer, gpu in enumerate(self._gpus)]
        else:
            rank, index = self.group.rank, self.device.index
            own = self.copy_to_gpu("peer", rank, index, shared=True) if self.peer_bytes[rank] else None
            shares = share_memory(self.group, self.topic, own, self.peer_bytes, self.device, f"{self.name}: rows")
        for peer, (memory, nbytes) in enumerate(zip(shares, self.peer_bytes, strict=True)):
            address, place = 0, "empty"
            if memory is not None:
                tiers.owners.append(memory)
                address, place = memory.address, f"GPU of peer {peer}"
            elif nbytes:
                block, address = self.pin_on_host("peer", peer)
                tiers.owners.append(block)
                place = "host memory"
            tiers.peers.append(address)
            tiers.peer_places.append(place)

    def _copy_where_reached(self, peer: int, gpu: int) -> cuda.DeviceMemory | None:
        """Copy a share to a GPU of this process; ``None`` if there is none that this GPU reaches and reads faster."""
        own = self.device.index
        with cuda.device_errors(self.name):
            if not self.peer_bytes[peer] or gpu >= cuda.count_devices() or not cuda.can_access(own, gpu):
                return None
            cuda.enable_access(own, gpu)
        memory, whose = self.copy_to_gpu("peer", peer, gpu), f"{self.name}: rows of peer {peer}"
        slow = gpu != own and prefers_host(own, memory.address, self.peer_bytes[peer], whose)
        return None if slow else memory


class LayoutTiers(TierSource):
    """The tier files of one table of a layout. Each byte is read once, past the page cache.

    `group`: the processes that share the peer tier, one for each of its GPUs. ``None``: this process alone, which puts
    the shares on the GPUs it sees, the rest into host memory.
    """

    def __init__(self, layout: Layout, entry: TypeLayout, device: Device, group: PeerGroup | None) -> None:
        name, topic = f"{layout.path}: {entry.label}", ""
        if group is not None and entry.rows("peer"):
            if group.size != layout.num_peers:
                raise InputError(
                    f"{name}: the peer tier is made for {layout.num_peers} GPUs, and {group.size} processes share "
                    f"it; start {layout.num_peers}, or make the layout with --peer {group.size}xSIZE"
                )
            topic = group.numbered(f"{layout.digest[-16:]}-{entry.node_type}")
        super().__init__(name, entry, device, group, topic, range(layout.num_peers))
        self._layout = layout

    def copy_to_gpu(self, tier: str, peer: int, gpu: int, *, shared: bool = False) -> cuda.DeviceMemory:
        """Read a tier's file into memory of a GPU."""
        advice = "make the layout's gpu tier smaller, or end other programs on this GPU"
        path, nbytes = self._file(tier, peer)
        with cuda.device_errors(f"{self.name}: {tier} tier", advice):
            memory = cuda.allocate(gpu, nbytes, shared)
            fill_memory(gpu, memory.address, path, nbytes)
        return memory

    def pin_on_host(self, tier: str, peer: int) -> tuple[SharedBlock, int]:
        """Read a tier's file into pinned host memory, one copy for the processes of the group."""
        block = load_rows(*self._file(tier, peer), self.group)
        return block, pinned_address(block, self.device.index, f"{self.name}: {tier} tier")

    def _file(self, tier: str, peer: int) -> tuple[Path, int]:
        nbytes = self.peer_bytes[peer] if tier == "peer" else self.entry.rows(tier) * self.entry.row_bytes
        return self._layout.tier_path(self.entry.node_type, tier, peer), nbytes
