"""The tiers of one node type where a GPU reads them: its own memory, peers', pinned host memory; rows of the ssd tier
on their way there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import cuda, native
from tiering.errors import InputError
from tiering.formats.layout import Layout, TypeLayout
from tiering.loader.gpu.device import Device, pinned, pinned_address
from tiering.loader.gpu.fill import device_file
from tiering.loader.gpu.links import unless_slower
from tiering.loader.gpu.peer_memory import share_memory
from tiering.loader.processes.peers import PeerGroup
from tiering.loader.tables.resident import load_rows
from tiering.loader.tables.ssd import note_fallback

STAGING_BYTES = 32 * 1024 * 1024
"""Bytes of one of the two buffers of `StagedRows`: large enough that reads of a turn fill the queue of the SSDs many
times over."""


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
    topic: str = ""
    """Under what name the shares were exchanged; empty if there are none, or this process has them all."""
    owners: list[Any] = field(default_factory=list)
    """Memory of the GPU and of the host, opened memory of peers."""


def load_tiers(layout: Layout, entry: TypeLayout, device: Device, group: PeerGroup | None) -> MemoryTiers:
    """Fill the memory tiers of a node type from the layout's files.

    `group` are the processes that share the peer tier, one for each of its GPUs. ``None``: this process alone; it holds
    the whole peer tier in the memory of the GPUs it sees, or of the host. Where memory does not suffice, nothing stays
    allocated. Cost: each byte is read once, past the page cache, at the speed of the slower of disk and link.
    """
    tiers = MemoryTiers()
    what = f"{layout.path}: {entry.label}"
    if nbytes := entry.rows("gpu") * entry.row_bytes:
        path = layout.tier_path(entry.node_type, "gpu")
        memory = device_file(path, nbytes, device.index, f"{what}: gpu tier")
        tiers.owners.append(memory)
        tiers.gpu = memory.address
    if entry.rows("peer"):
        _load_peers(layout, entry, device, group, tiers, what)
    if nbytes := entry.rows("cpu") * entry.row_bytes:
        rows = load_rows(layout.tier_path(entry.node_type, "cpu"), nbytes, group)
        tiers.owners.append(rows)
        tiers.cpu = pinned_address(rows, device.index, f"{what}: cpu tier")
    return tiers


def _load_peers(
    layout: Layout,
    entry: TypeLayout,
    device: Device,
    group: PeerGroup | None,
    tiers: MemoryTiers,
    what: str,
) -> None:
    count = layout.num_peers
    shares = [rows * entry.row_bytes for rows in entry.file_rows("peer", count)]
    paths = [layout.tier_path(entry.node_type, "peer", peer) for peer in range(count)]
    if group is not None:
        if group.size != count:
            raise InputError(
                f"{what}: the peer tier is made for {count} GPUs, and {group.size} processes share it; start {count}, "
                f"or make the layout with --peer {group.size}xSIZE"
            )
        tiers.topic = group.numbered(f"{layout.digest[-16:]}-{entry.node_type}")
        path, nbytes, own = paths[group.rank], shares[group.rank], None
        if nbytes:
            own = device_file(path, nbytes, device.index, f"{what}: peer tier", shared=True)
        opened = share_memory(group, tiers.topic, own, device, what)
    else:
        opened = [_own_share(paths[peer], shares[peer], peer, device, what) for peer in range(count)]
    for peer, memory in enumerate(opened):
        address, place = 0, "empty"
        if peer != (device.index if group is None else group.rank):
            memory = unless_slower(memory, device.index, shares[peer], f"{what}: rows of peer {peer}")
        if memory is not None:
            tiers.owners.append(memory)
            address, place = memory.address, f"GPU of peer {peer}"
        elif shares[peer]:
            rows = load_rows(paths[peer], shares[peer], group)
            tiers.owners.append(rows)
            address, place = pinned_address(rows, device.index, f"{what}: peer tier"), "host memory"
        tiers.peers.append(address)
        tiers.peer_places.append(place)


def _own_share(path: Path, nbytes: int, peer: int, device: Device, what: str) -> cuda.DeviceMemory | None:
    """The share of a GPU of this process; ``None`` if there is no such GPU, or the two do not reach each other."""
    with cuda.device_errors(what):
        if not nbytes or peer >= cuda.count_devices() or not cuda.can_access(device.index, peer):
            return None
        cuda.enable_access(device.index, peer)
    return device_file(path, nbytes, peer, f"{what}: peer tier on GPU {peer}")


class StagedRows:
    """Copies rows of the ssd tier to their places in a result on the GPU; one gather at a time.

    The host reads into pinned memory, the GPU copies from there. Two buffers of `nbytes` (at least one row) in turn:
    while the GPU copies one, the host reads into the other, so the slower of the two sets the pace. The ssd tier of
    `table` holds them; `refuse` is told of the first damaged page of a turn, below 0: none.
    """

    def __init__(
        self,
        table: native.TieredTable,
        row_bytes: int,
        device: Device,
        threads: int,
        nbytes: int,
        what: str,
        refuse: Callable[[int], None] | None = None,
    ) -> None:
        self._table, self._row_bytes, self._threads, self._refuse = table, row_bytes, threads, refuse
        self._rows = max(1, nbytes // row_bytes)
        self._buffers = [pinned(device.index, self._rows * row_bytes, np.uint8, what) for _ in range(2)]
        self._copied = [cuda.Event(device.index) for _ in range(2)]
        self._sources = [
            cuda.RowTable(device.index, row_bytes, [0, 0, self._rows, self._rows], 0, [], address)
            for _, address in self._buffers
        ]
        self._turn = 0

    def copy(
        self, wanted: npt.NDArray[np.int64], places: int, out: int, stream: int, max_sms: int
    ) -> list[native.GatherStats]:
        """Read rows, given by their numbers within the ssd tier, and put their copies on `stream`.

        `places` is where the GPU finds, for each of them, its row of the result `out`; uint32. Returns what was read,
        turn by turn.
        """
        stats = []
        for start in range(0, len(wanted), self._rows):
            ids = np.ascontiguousarray(wanted[start : start + self._rows])
            turn, self._turn = self._turn, 1 - self._turn
            self._copied[turn].wait()  # an event that was never recorded is over
            rows = self._buffers[turn][0][: ids.size * self._row_bytes].reshape(ids.size, -1)
            stats.append(self._table.gather(ids, rows, self._threads))
            note_fallback(stats[-1])
            if self._refuse is not None:
                self._refuse(stats[-1].bad_page)
            self._sources[turn].gather(0, ids.size, out, stream, places=places + 4 * start, max_sms=max_sms)
            self._copied[turn].record(stream)
        return stats
