"""Adjacency lists where a GPU samples from them.

The hottest lie in its memory, those next in rank in the peer adjacency cache, which is spread over the GPUs of several
processes, and all of them in pinned host memory.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from tiering import cuda, native
from tiering.artifacts.manifest import Relation, relation_key
from tiering.formats.adjacency_prefix import INDPTR_BYTES, SUM_BYTES, AdjacencyPrefix
from tiering.formats.graph import Graph, relation_folder
from tiering.loader.gpu.device import Device, pinned_address
from tiering.loader.gpu.memory import prefers_host, share_memory
from tiering.loader.processes.peers import PeerGroup
from tiering.loader.tables.resident import SharedBlock, get_or_fill, load_rows
from tiering.sampling import checked_weights
from tiering.units import parse_threads

_NO_PART: cuda.Part = (0, 0, 0, 0, 0)
PIECE_EDGES = 1 << 24
"""Edges of lists that are gathered at a time."""


class PlacedLists(Protocol):
    """A graph, and which of its lists lie in the memory of the GPU: a layout (`tiering.formats.layout.Layout`)."""

    @property
    def path(self) -> Path:
        """Path for messages."""

    @property
    def graph(self) -> Graph:
        """The reordered graph."""

    @property
    def digest(self) -> str:
        """Digest of the lists and their places."""

    def adjacency_prefix(self, relation: Relation) -> AdjacencyPrefix:
        """Return the lists of a relation that lie in the memory of the GPU."""


@dataclass
class GpuAdjacency:
    """Addresses of all relations' lists, and what keeps them valid."""

    relations: list[cuda.Adjacency] = field(default_factory=list)
    """Lists of each relation, in the graph's order."""
    keys: list[cuda.Keys] = field(default_factory=list)
    """Keys of the random numbers, by node type."""
    columns: dict[Relation, int] = field(default_factory=dict)
    """Columns of each relation in the memory of the GPU."""
    peer_columns: dict[Relation, int] = field(default_factory=dict)
    """Columns of each relation, the next in rank, in the memory of peers."""
    owners: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class HostLists:
    """One relation's lists on the host."""

    indptr: npt.NDArray[np.int64]
    """Shape (columns + 1,)."""
    indices: npt.NDArray[Any]
    """int32 or int64, shape (edges,)."""
    sums: npt.NDArray[np.uint64] | None
    """Running sums of weights, shape (edges,); ``None`` unless edges are drawn by weight."""
    addresses: tuple[int, int, int] = (0, 0, 0)
    """Addresses of the three for a GPU; 0 without."""

    def share_bytes(self, begin: int, end: int, peer: int, peers: int) -> int:
        """Return the bytes of columns [begin, end) on one of the GPUs that they are interleaved over."""
        columns = max(0, -(-(end - begin - peer) // peers))
        edge_bytes = self.indices.itemsize + (0 if self.sums is None else self.sums.itemsize)
        return (2 * columns + 1) * INDPTR_BYTES + self.share_edges(begin, end, peer, peers) * edge_bytes

    def share_edges(self, begin: int, end: int, peer: int, peers: int) -> int:
        """Return the edges of columns [begin, end) on one of those GPUs."""
        starts = self.indptr[begin + peer : end : peers]
        return int((self.indptr[begin + peer + 1 : end + 1 : peers] - starts).sum())


_adjacencies: WeakValueDictionary[tuple[Any, ...], GpuAdjacency] = WeakValueDictionary()
_lock = threading.Lock()
_kept: list[Any] = []
"""Memory that peers may read as long as this process runs."""


def load_adjacency(
    layout: PlacedLists,
    device: Device,
    weighted: bool = False,
    group: PeerGroup | None = None,
    cache_bytes: int = 0,
) -> GpuAdjacency:
    """Load a layout's graph to where a GPU reads it; loaders of one process share it.

    With `weighted`, sums of weights, 8 bytes per edge, lie with the lists. Processes of `group` share one copy in host
    memory, and `cache_bytes` on each of their GPUs for the peer adjacency cache.

    Pinned host memory: 8 bytes per node and 4 or 8 per edge of each relation, and the original ids. Memory of the GPU:
    what the layout's plan gives to lists (`tiering layout --adjacency-cache`), original ids and sums of weights among
    it, and the share of peers' lists, which stays until the process ends.
    """
    key = (layout.digest, device.index, weighted, group, cache_bytes)
    with _lock:
        made = _adjacencies.get(key)
        if made is None:
            _adjacencies[key] = made = _Builder(layout, device, group).build(weighted, cache_bytes)
        return made


class _Builder:
    """A loader of the relations of one layout."""

    def __init__(self, layout: PlacedLists, device: Device, group: PeerGroup | None) -> None:
        self._layout, self._graph, self._device, self._group = layout, layout.graph, device, group
        self._made = GpuAdjacency()

    def build(self, weighted: bool, cache_bytes: int) -> GpuAdjacency:
        """Load all relations, and the keys of all node types."""
        layout, made, relations = self._layout, self._made, self._graph.relations
        made.columns = {relation: layout.adjacency_prefix(relation).columns for relation in relations}
        lists = [self._host_lists(relation, weighted) for relation in relations]
        ends = list(made.columns.values())
        if self._group is not None and cache_bytes:
            ends = cached_ends(lists, ends, self._group.size, cache_bytes)
        for relation, columns, end in zip(relations, lists, ends, strict=True):
            made.relations.append(self._relation(relation, columns, end))
        for node_type in self._graph.node_types:
            local = max((made.columns[relation] for relation in relations if relation[2] == node_type), default=0)
            made.keys.append(self._keys(node_type, local))
        return made

    def _host_lists(self, relation: Relation, weighted: bool) -> HostLists:
        """Load a relation's arrays to pinned host memory."""
        (begins, entries), (indptr, indices) = self._files(relation), self._graph.csc(relation)
        what = self._name(relation)
        starts, start = self._pinned(load_rows(begins, indptr.nbytes, self._group), what)
        ends, end = self._pinned(load_rows(entries, indices.nbytes, self._group), what)
        sums, sum_address = None, 0
        if weighted:
            weights, name = checked_weights(self._graph, relation), relation_key(relation)

            def fill(memory: npt.NDArray[np.uint8]) -> None:
                memory.view(np.uint64)[:] = native.cumulative_weights(indptr, weights, name, parse_threads(None))

            key = ("sums", self._graph.digest, name)
            raw, sum_address = self._pinned(get_or_fill(name, key, SUM_BYTES * indices.size, fill, self._group), what)
            sums = raw.view(np.uint64)
        return HostLists(starts.view(np.int64), ends.view(indices.dtype), sums, (start, end, sum_address))

    def _pinned(self, block: SharedBlock, what: str) -> tuple[npt.NDArray[np.uint8], int]:
        """Keep a block, and return its bytes and its address for the GPU."""
        self._made.owners.append(block)
        return block.array, pinned_address(block, self._device.index, what)

    def _name(self, relation: Relation) -> str:
        return f"{self._layout.path}: adjacency of {relation_key(relation)}"

    def _files(self, relation: Relation) -> tuple[Path, Path]:
        """Return the paths of ``indptr`` and ``indices`` of a relation."""
        folder, manifest = relation_folder(relation), self._graph.manifest
        return Path(manifest.place(f"{folder}/indptr")), Path(manifest.place(f"{folder}/indices"))

    def _relation(self, relation: Relation, lists: HostLists, end: int) -> cuda.Adjacency:
        what, columns, group = self._name(relation), self._made.columns[relation], self._group
        peers: list[cuda.Part] = []
        if end > columns and group is not None:
            topic = f"{self._layout.digest[-16:]}-adjacency-{len(self._made.relations)}"
            peers, owners = share_lists(lists, columns, end, group, self._device, topic, what)
            _kept.append(owners)
        if not peers:
            end = columns
        self._made.peer_columns[relation] = end - columns
        types, wide = self._graph.node_types, lists.indices.dtype == np.int64
        host = (*lists.addresses, 0, lists.indices.size)
        local = self._prefix(relation, lists, columns, what) if columns else _NO_PART
        return types.index(relation[0]), types.index(relation[2]), wide, columns, end, local, peers, host

    def _prefix(self, relation: Relation, lists: HostLists, columns: int, what: str) -> cuda.Part:
        """Copy the hottest lists to the memory of the GPU, from pinned host memory."""
        edges = int(lists.indptr[columns])
        begins, indices, sums = lists.addresses
        begins = self._copy(begins, INDPTR_BYTES * (columns + 1), what)
        indices = self._copy(indices, edges * lists.indices.itemsize, what)
        # Where the plan has no room for sums, those of the host serve: they have the same positions.
        if lists.sums is not None and self._layout.adjacency_prefix(relation).weights:
            sums = self._copy(sums, SUM_BYTES * edges, what)
        return begins, indices, sums, 0, edges

    def _copy(self, address: int, nbytes: int, what: str) -> int:
        """Copy the first bytes of pinned memory to the memory of the GPU; returns their address there."""
        if not nbytes:
            return 0
        with cuda.device_errors(what, "make the layout's gpu tier smaller, or end other programs on this GPU"):
            memory, stream = cuda.allocate(self._device.index, nbytes), cuda.Stream(self._device.index)
            cuda.copy(self._device.index, memory.address, address, nbytes, stream.handle)
            stream.synchronize()
        self._made.owners.append(memory)
        return memory.address

    def _keys(self, node_type: str, local: int) -> cuda.Keys:
        keys, order = self._graph.node_keys(node_type), self._graph.order
        if keys is None or order is None or not keys.size:
            return 0, 0, 0, False
        what = f"{self._layout.path}: original ids of node type {node_type!r}"
        path = Path(order.manifest.place(f"nodes/{node_type}/new_to_old"))
        _, address = self._pinned(load_rows(path, keys.nbytes, self._group), what)
        return self._copy(address, local * keys.itemsize, what), local, address, keys.dtype == np.int64


def cached_ends(relations: list[HostLists], begins: list[int], peers: int, nbytes: int) -> list[int]:
    """Return where each relation's columns in the peer adjacency cache end, so that no GPU holds more than `nbytes`.

    The same fraction of every relation's remaining columns is taken, the largest that fits. Cost: one pass over indptr
    for each of about 20 trials.
    """

    def ends(fraction: float) -> list[int]:
        left = [lists.indptr.size - 1 - begin for lists, begin in zip(relations, begins, strict=True)]
        return [begin + int(fraction * columns) for begin, columns in zip(begins, left, strict=True)]

    def fits(fraction: float) -> bool:
        ranges = list(zip(relations, begins, ends(fraction), strict=True))
        return all(
            sum(lists.share_bytes(begin, end, peer, peers) for lists, begin, end in ranges) <= nbytes
            for peer in range(peers)
        )

    if fits(1.0):
        return ends(1.0)
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return ends(low)


def share_lists(
    lists: HostLists, begin: int, end: int, group: PeerGroup, device: Device, topic: str, what: str
) -> tuple[list[cuda.Part], list[Any]]:
    """Copy this process's share of columns [begin, end) to its GPU, and open those of the others.

    Returns the shares of all GPUs, none if one cannot be reached or is slower than host memory; and their owners, which
    must be kept in any case, because the others may read this process's share.
    """
    own = _copy_share(lists, begin, end, group, device, what)
    shares = share_memory(group, group.numbered(topic), own, device, what, "adjacency lists")
    parts = []
    for peer, memory in enumerate(shares):
        if memory is None:
            return [], shares
        columns, edges = len(range(begin + peer, end, group.size)), lists.share_edges(begin, end, peer, group.size)
        firsts = memory.address + INDPTR_BYTES * (columns + 1)
        sums = firsts + INDPTR_BYTES * columns
        indices = sums if lists.sums is None else sums + SUM_BYTES * edges
        whose = f"adjacency lists of peer {peer}"
        if peer != group.rank and prefers_host(device.index, indices, edges * lists.indices.itemsize, whose):
            return [], shares
        parts.append((memory.address, indices, 0 if lists.sums is None else sums, firsts, edges))
    return parts, shares


def _copy_share(
    lists: HostLists, begin: int, end: int, group: PeerGroup, device: Device, what: str
) -> cuda.DeviceMemory:
    """Copy begins, firsts, sums and indices of this process's columns to its GPU, one after the other."""
    starts = np.ascontiguousarray(lists.indptr[begin + group.rank : end : group.size])
    degrees = lists.indptr[begin + group.rank + 1 : end + 1 : group.size] - starts
    arrays = [iter([np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64), starts])]
    arrays += [list_pieces(array, starts, degrees) for array in (lists.sums, lists.indices) if array is not None]
    with cuda.device_errors(what, "lower peer_adjacency_cache, or make the layout's gpu tier smaller"):
        memory = cuda.allocate(device.index, lists.share_bytes(begin, end, group.rank, group.size), shared=True)
        stream, at = cuda.Stream(device.index), memory.address
        for piece in chain.from_iterable(arrays):
            cuda.copy(device.index, at, piece.ctypes.data, piece.nbytes, stream.handle)
            stream.synchronize()  # before the piece goes
            at += piece.nbytes
    return memory


def list_pieces(
    array: npt.NDArray[Any], starts: npt.NDArray[np.int64], degrees: npt.NDArray[np.int64], piece: int = PIECE_EDGES
) -> Iterator[npt.NDArray[Any]]:
    """Yield the entries of lists, one list after the other, about `piece` of them at a time."""
    cuts = np.searchsorted(np.cumsum(degrees), np.arange(0, int(degrees.sum()) + piece, piece))
    for first, last in zip([0, *cuts[1:]], [*cuts[1:], degrees.size], strict=True):
        some, sizes = starts[first:last], degrees[first:last]
        if not sizes.sum():
            continue
        before = np.cumsum(sizes) - sizes
        yield np.ascontiguousarray(array[np.repeat(some - before, sizes) + np.arange(int(sizes.sum()))])
