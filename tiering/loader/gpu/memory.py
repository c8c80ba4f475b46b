"""Memory that a GPU reads, for tables and adjacency lists: its own, its peers', pinned host memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from tiering import cuda, native
from tiering.artifacts.manifest import Relation, relation_key
from tiering.artifacts.reader import open_stream
from tiering.artifacts.storage import ALIGNMENT
from tiering.errors import DeviceError, InputError
from tiering.formats.adjacency_prefix import INDPTR_BYTES, SUM_BYTES, AdjacencyPrefix
from tiering.formats.graph import Graph, relation_folder
from tiering.formats.layout import Layout, TypeLayout
from tiering.loader.gpu.device import Device, pinned_address
from tiering.loader.options import ReadOptions
from tiering.loader.process import warn_once
from tiering.loader.processes.peers import PeerGroup
from tiering.loader.tables.delivery import Delivery
from tiering.loader.tables.ranks import TierPart
from tiering.loader.tables.resident import SharedBlock, get_or_fill, load_rows
from tiering.sampling import checked_weights
from tiering.text.units import parse_threads

T = TypeVar("T")
_STEP = 16 << 20  # bytes of a buffer that a file passes through on its way to a GPU
Prefixes = Mapping[Relation, AdjacencyPrefix]  # which lists of each relation lie in the memory of the GPU
_NO_PART: cuda.Part = (0, 0, 0, 0)


@dataclass
class MemoryTiers:
    """The rows of a table in memory that a GPU reads: addresses, by tier."""

    name: str
    entry: TypeLayout
    device: Device
    gpu: int = 0
    peers: list[int] = field(default_factory=list)  # by share
    cpu: int = 0
    peer_places: list[str] = field(default_factory=list)  # where each share lies, for people
    group: PeerGroup | None = None  # processes that exchange the shares of the peer tier, under `topic`
    topic: str = ""
    owners: list[Any] = field(default_factory=list)  # keep the addresses valid
    codec: cuda.CodecParts | None = None  # with it rows are decoded

    def pin(self, block: SharedBlock, what: str) -> int:
        """Keep a block of host memory pinned; returns its address for the GPU."""
        address = pinned_address(block, self.device.index, f"{self.name}: {what}")
        self.owners.append(block)
        return address


def load_tiers(
    layout: Layout, entry: TypeLayout, device: Device, reading: ReadOptions, group: PeerGroup | None
) -> MemoryTiers:
    """Load the memory tiers of one table of a layout: each byte is read once, past the page cache.

    `group`: the processes that share the peer tier, one for each of its GPUs. ``None``: this process alone, which reads
    the shares of the others from host memory. Where memory does not suffice, nothing stays allocated.
    """
    tiers = MemoryTiers(f"{layout.path}: {entry.label}", entry, device)
    if entry.rows("peer") and group is not None and group.size != layout.num_peers:
        raise InputError(
            f"{tiers.name}: the peer tier is for {layout.num_peers} GPUs, but {group.size} processes share it; "
            f"start {layout.num_peers}, or make the layout with --peer {group.size}xSIZE"
        )
    if entry.rows("gpu"):
        tiers.owners.append(memory := _copy_to_gpu(tiers, TierPart(layout, entry, "gpu", reading)))
        tiers.gpu = memory.address
    if entry.rows("peer"):
        _load_peers(tiers, layout, reading, group)
    if entry.rows("cpu"):
        tiers.cpu = tiers.pin(TierPart(layout, entry, "cpu", reading).load(group), "cpu tier")
    return tiers


def load_codec(tiers: MemoryTiers, delivery: Delivery) -> None:
    """Let rows be decoded for a delivery, if it needs that: copy the parameters of its codec to the GPU."""
    codec, addresses = delivery.codec, list[int]()
    if codec is None:
        return
    for values in (codec.scale, codec.offset):
        addresses.append(0)
        if values is not None:
            with cuda.device_errors(f"{tiers.name}: parameters of {codec.name}"):
                memory = cuda.allocate(tiers.device.index, values.nbytes, False)
                stream = cuda.Stream(tiers.device.index)
                cuda.copy(tiers.device.index, memory.address, values.ctypes.data, values.nbytes, stream.handle)
                stream.synchronize()
            tiers.owners.append(memory)
            addresses[-1] = memory.address
    tiers.codec = codec.name, delivery.dtype, codec.dim, addresses[0], addresses[1]


def _load_peers(tiers: MemoryTiers, layout: Layout, reading: ReadOptions, group: PeerGroup | None) -> None:
    """Load this process's share, and find where the GPU reads the others."""
    entry, rank = tiers.entry, 0 if group is None else group.rank
    parts = [TierPart(layout, entry, "peer", reading, peer) for peer in range(layout.num_peers)]
    shared = group is not None
    if group is not None:
        tiers.group, tiers.topic = group, group.numbered(f"{layout.digest[-16:]}-{entry.node_type}")
    own = _copy_to_gpu(tiers, parts[rank], shared) if parts[rank].nbytes else None
    shares: list[cuda.DeviceMemory | cuda.PeerMemory | None] = [own, *[None] * (len(parts) - 1)]
    if group is not None:
        shares = share_memory(group, tiers.topic, own, tiers.device, f"{tiers.name}: rows")
    for peer, (memory, part) in enumerate(zip(shares, parts, strict=True)):
        address, place = 0, "empty"
        if memory is not None:
            tiers.owners.append(memory)
            address, place = memory.address, f"GPU of peer {peer}"
        elif part.nbytes:
            address, place = tiers.pin(part.load(group), "peer tier"), "host memory"
        tiers.peers.append(address)
        tiers.peer_places.append(place)


def _copy_to_gpu(tiers: MemoryTiers, part: TierPart, shared: bool = False) -> cuda.DeviceMemory:
    """Read rows into memory of the GPU; `shared`: memory that other processes can open."""
    smaller = "give a smaller gpu=" if part.tier == "gpu" else "make the layout's peer tier smaller"
    advice = f"{smaller}, or end other programs on this GPU"
    with cuda.device_errors(f"{tiers.name}: {part.tier} tier", advice):
        memory = cuda.allocate(tiers.device.index, part.nbytes, shared)
        if part.file is not None:
            fill_memory(tiers.device.index, memory.address, part.file, part.nbytes)
            return memory
        stream, at = cuda.Stream(tiers.device.index), memory.address
        for rows in part.pieces():
            cuda.copy(tiers.device.index, at, rows.ctypes.data, rows.nbytes, stream.handle)
            stream.synchronize()
            at += rows.nbytes
    return memory


def fill_memory(device: int, address: int, path: Path, nbytes: int) -> None:
    """Read the first bytes of a file to an address of a GPU, past the page cache, by two pinned buffers in turn."""
    step = max(1, min(_STEP, nbytes))
    pinned = [cuda.PinnedMemory(device, step + 3 * ALIGNMENT) for _ in range(2)]
    buffers = [memory.array()[-memory.address % ALIGNMENT :] for memory in pinned]  # direct reads go to whole pages
    stream, copied = cuda.Stream(device), [cuda.Event(device) for _ in pinned]
    reader = open_stream([path], buffers)
    for turn, at in enumerate(range(0, nbytes, step)):
        buffer, size = turn % 2, min(step, nbytes - at)
        if turn >= 2:
            copied[buffer].wait()
        reader.start([(0, at, size, buffer, 0)])
        (begin,) = reader.finish()
        cuda.copy(device, address + at, buffers[buffer].ctypes.data + begin, size, stream.handle)
        copied[buffer].record(stream.handle)
    stream.synchronize()


def share_memory(
    group: PeerGroup, topic: str, own: cuda.DeviceMemory | None, device: Device, what: str
) -> list[cuda.DeviceMemory | cuda.PeerMemory | None]:
    """Exchange this process's share for the others' shares, by process; ``None``: empty, or not to be reached."""
    advice = "; other processes read this process's part from host memory"
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
    """Return the result of `make`; ``None``, with one warning of the error, where CUDA refuses."""
    try:
        with cuda.device_errors(what):
            return make()
    except DeviceError as error:
        warn_once(f"{before}{error}{after}")
        return None


class GpuAdjacency:
    """Addresses of all relations' lists, in the graph's order, and what keeps them valid; see `load_adjacency`."""

    def __init__(
        self, graph: Graph, prefixes: Prefixes, device: Device, weighted: bool, group: PeerGroup | None
    ) -> None:
        self._graph, self._device, self._group = graph, device, group
        self._owners: list[Any] = []
        # Lists of each relation in the memory of the GPU, and keys of the random numbers by node type.
        self.columns = {relation: prefix.columns for relation, prefix in prefixes.items()}
        self.relations = [self._relation(relation, prefixes[relation], weighted) for relation in graph.relations]
        self.keys: list[cuda.Keys] = []
        for node_type in graph.node_types:
            local = max((columns for r, columns in self.columns.items() if r[2] == node_type), default=0)
            self.keys.append(self._keys(node_type, local))

    def _pinned(self, block: SharedBlock, what: str) -> tuple[npt.NDArray[np.uint8], int]:
        """Keep a block, and return its bytes and its address for the GPU."""
        self._owners.append(block)
        return block.array, pinned_address(block, self._device.index, what)

    def _relation(self, relation: Relation, prefix: AdjacencyPrefix, weighted: bool) -> cuda.Adjacency:
        """Load a relation's lists to pinned host memory, and copy the hottest from there to the memory of the GPU."""
        graph, name, folder = self._graph, relation_key(relation), relation_folder(relation)
        what, (indptr, indices) = f"{graph.path}: adjacency of {name}", graph.csc(relation)
        files = [Path(graph.manifest.place(f"{folder}/{array}")) for array in ("indptr", "indices")]
        raw, begins = self._pinned(load_rows(files[0], indptr.nbytes, self._group), what)
        _, entries = self._pinned(load_rows(files[1], indices.nbytes, self._group), what)
        sums = 0
        if weighted:
            weights, key = checked_weights(graph, relation), ("sums", graph.digest, name)

            def fill(memory: npt.NDArray[np.uint8]) -> None:
                memory.view(np.uint64)[:] = native.cumulative_weights(indptr, weights, name, parse_threads(None))

            _, sums = self._pinned(get_or_fill(name, key, SUM_BYTES * indices.size, fill, self._group), what)
        host, local = (begins, entries, sums, indices.size), _NO_PART
        if columns := prefix.columns:
            edges = int(raw.view(np.int64)[columns])
            begins = self._copy(begins, INDPTR_BYTES * (columns + 1), what)
            entries = self._copy(entries, edges * indices.itemsize, what)
            if weighted and prefix.weights:  # else those of the host serve: they have the same positions
                sums = self._copy(sums, SUM_BYTES * edges, what)
            local = begins, entries, sums, edges
        types = graph.node_types
        return types.index(relation[0]), types.index(relation[2]), indices.dtype == np.int64, columns, local, host

    def _copy(self, address: int, nbytes: int, what: str) -> int:
        """Copy the first bytes of pinned memory to the memory of the GPU; returns their address there."""
        if not nbytes:
            return 0
        with cuda.device_errors(what, "make the layout's gpu tier smaller, or end other programs on this GPU"):
            memory, stream = cuda.allocate(self._device.index, nbytes), cuda.Stream(self._device.index)
            cuda.copy(self._device.index, memory.address, address, nbytes, stream.handle)
            stream.synchronize()
        self._owners.append(memory)
        return memory.address

    def _keys(self, node_type: str, local: int) -> cuda.Keys:
        keys, order = self._graph.node_keys(node_type), self._graph.order
        if keys is None or order is None or not keys.size:
            return 0, 0, 0, False
        what = f"{self._graph.path}: original ids of node type {node_type!r}"
        path = Path(order.manifest.place(f"nodes/{node_type}/new_to_old"))
        _, address = self._pinned(load_rows(path, keys.nbytes, self._group), what)
        return self._copy(address, local * keys.itemsize, what), local, address, keys.dtype == np.int64


_adjacencies: WeakValueDictionary[tuple[Any, ...], GpuAdjacency] = WeakValueDictionary()
_lock = threading.Lock()


def load_adjacency(
    graph: Graph, prefixes: Prefixes, device: Device, weighted: bool = False, group: PeerGroup | None = None
) -> GpuAdjacency:
    """Load a graph to where a GPU reads it; loaders of one process, and processes of `group`, share it.

    Pinned host memory: 8 bytes per node, 4 or 8 per edge, 8 more if `weighted` (sums of weights), and the original ids.
    Memory of the GPU: the first lists of each relation (`prefixes`; `tiering layout --adjacency-cache` plans them).
    """
    key = (graph.digest, *prefixes.values(), device.index, weighted, group)
    with _lock:
        made = _adjacencies.get(key)
        if made is None:
            _adjacencies[key] = made = GpuAdjacency(graph, prefixes, device, weighted, group)
        return made
