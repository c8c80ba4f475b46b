"""The memory tiers of one table where a GPU reads them: its own memory, that of peers, pinned host memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tiering import cuda, native
from tiering.errors import DeviceError, InputError
from tiering.formats.layout import Layout, TypeLayout
from tiering.loader.gpu.device import Device, pinned_address
from tiering.loader.process import warn_once
from tiering.loader.processes.peers import PeerGroup
from tiering.loader.tables.resident import SharedBlock, load_rows

T = TypeVar("T")


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

    Tiers are ``gpu``, ``cpu`` and ``peer``, which has a share of `peer_bytes` for each peer. The processes of `group`
    exchange theirs under `topic`; a process alone is the first peer.
    """

    def __init__(
        self, name: str, entry: TypeLayout, device: Device, group: PeerGroup | None, topic: str, peers: int
    ) -> None:
        self.name, self.entry, self.device, self.group, self.topic = name, entry, device, group, topic
        self.peer_bytes = [rows * entry.row_bytes for rows in entry.file_rows("peer", peers)]

    @abstractmethod
    def copy_to_gpu(self, tier: str, peer: int, *, shared: bool = False) -> cuda.DeviceMemory:
        """Copy rows to memory of the GPU; `shared`: memory that other processes can open."""

    @abstractmethod
    def pin_on_host(self, tier: str, peer: int) -> tuple[SharedBlock, int]:
        """Return rows in pinned host memory, and the address at which the GPU reads them."""

    def load(self) -> MemoryTiers:
        """Fill memory tiers. Where memory does not suffice, nothing stays allocated."""
        tiers = MemoryTiers(topic=self.topic)
        if self.entry.rows("gpu"):
            memory = self.copy_to_gpu("gpu", 0)
            tiers.owners.append(memory)
            tiers.gpu = memory.address
        if self.entry.rows("peer"):
            self._load_peers(tiers)
        if self.entry.rows("cpu"):
            block, tiers.cpu = self.pin_on_host("cpu", 0)
            tiers.owners.append(block)
        return tiers

    def _load_peers(self, tiers: MemoryTiers) -> None:
        group, rank = self.group, 0 if self.group is None else self.group.rank
        own = self.copy_to_gpu("peer", rank, shared=group is not None) if self.peer_bytes[rank] else None
        shares: list[cuda.DeviceMemory | cuda.PeerMemory | None] = [own, *[None] * (len(self.peer_bytes) - 1)]
        if group is not None:
            shares = share_memory(group, self.topic, own, self.device, f"{self.name}: rows")
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


class LayoutTiers(TierSource):
    """The tier files of one table of a layout. Each byte is read once, past the page cache.

    `group`: the processes that share the peer tier, one for each of its GPUs. ``None``: this process alone, which reads
    the shares of the others from host memory.
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
        super().__init__(name, entry, device, group, topic, layout.num_peers)
        self._layout = layout

    def copy_to_gpu(self, tier: str, peer: int, *, shared: bool = False) -> cuda.DeviceMemory:
        """Read a tier's file into memory of the GPU."""
        advice, gpu = "make the layout's gpu tier smaller, or end other programs on this GPU", self.device.index
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


def fill_memory(device: int, address: int, path: Path, nbytes: int) -> None:
    """Read the first bytes of a file to an address of a GPU, past the page cache; see ``fill.hpp``."""
    engine = "threads" if native.uring_unavailable() else "io_uring"
    cuda.fill_device(device, address, str(path), 0, nbytes, engine)


def share_memory(
    group: PeerGroup, topic: str, own: cuda.DeviceMemory | None, device: Device, what: str
) -> list[cuda.DeviceMemory | cuda.PeerMemory | None]:
    """Exchange this process's share, allocated with ``shared=True``, for those of the others.

    Returns, by process, memory that this GPU reads; ``None`` where a share is empty or cannot be reached: CUDA shares
    no memory between virtual machines, containers, parts of a GPU.
    """
    advice = "; other processes read from host memory what this one has on its GPU"
    handle = None if own is None else _or_warn(own.share, what, "", advice)
    handles = group.exchange(topic, (handle or b"").hex())
    shares: list[cuda.DeviceMemory | cuda.PeerMemory | None] = [None] * group.size
    shares[group.rank] = own
    for rank, text in enumerate(handles):
        if rank != group.rank and text:
            whose, open_memory = f"{what} of peer {rank}", partial(cuda.PeerMemory, device.index, bytes.fromhex(text))
            shares[rank] = _or_warn(open_memory, whose, f"{whose} are read from host memory: ")
    return shares


def _or_warn(make: Callable[[], T], what: str, before: str, after: str = "") -> T | None:
    """Return what `make` returns; ``None``, with one warning of the error, where CUDA refuses."""
    try:
        with cuda.device_errors(what):
            return make()
    except DeviceError as error:
        warn_once(f"{before}{error}{after}")
        return None
