"""The graph where a GPU samples from it: the hottest lists in its memory, all in locked host memory."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from tiering import cuda, native
from tiering.artifacts.manifest import Relation, relation_key
from tiering.formats.adjacency_prefix import INDPTR_BYTES, SUM_BYTES
from tiering.formats.graph import relation_folder
from tiering.formats.layout import Layout
from tiering.loader.gpu.device import Device
from tiering.loader.gpu.device_file import device_file
from tiering.loader.gpu.locked import locked_address
from tiering.loader.gpu.peer_lists import Columns, end_of_columns, share_columns
from tiering.loader.gpu.peers import PeerGroup
from tiering.loader.memory import load_rows, made_rows
from tiering.sampling import checked_weights
from tiering.units import parse_threads

_NO_PART: cuda.Part = (0, 0, 0, 0, 0)


@dataclass
class GpuAdjacency:
    """Addresses of all relations' lists, and what keeps them valid."""

    relations: list[cuda.Adjacency] = field(default_factory=list)
    """In the graph's order."""
    keys: list[cuda.Keys] = field(default_factory=list)
    """Keys of the random numbers, by node type."""
    columns: dict[Relation, int] = field(default_factory=dict)
    """Per relation, how many columns lie in the memory of the GPU."""
    peer_columns: dict[Relation, int] = field(default_factory=dict)
    """Per relation, how many of the next lie in the memory of peers."""
    owners: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Spread:
    """Where lists lie, beside what the layout's plan says."""

    weighted: bool = False
    """Edges are drawn by weight: sums of weights, 8 bytes per edge, lie with the lists."""
    group: PeerGroup | None = None
    """Processes that hold one copy in host memory, and share lists on their GPUs."""
    peer_bytes: int = 0
    """Memory of each of their GPUs for shared lists."""


_opened: WeakValueDictionary[tuple[Any, ...], GpuAdjacency] = WeakValueDictionary()
_lock = threading.Lock()
_kept: list[Any] = []
"""Memory that peers may read as long as this process runs."""


def load_adjacency(layout: Layout, device: Device, spread: Spread) -> GpuAdjacency:
    """Put a layout's graph where a GPU reads it; loaders of one process use it together.

    Raises
    ------
    BudgetError
        If memory of the GPU does not suffice, or the host does not lock so much.
    DeviceError
        If a process of the group has ended.

    Notes
    -----
    Host memory, locked: 8 bytes per node and 4 or 8 per edge of each relation, and the original ids. Memory of the
    GPU: what the layout's plan gives to lists (`tiering layout --split`), original ids and sums of weights among it,
    and the share of peers' lists, which stays until the process ends.
    """
    group = None if spread.group is None else (spread.group.directory, spread.group.rank)
    key = (layout.digest, device.index, spread.weighted, group, spread.peer_bytes)
    with _lock:
        made = _opened.get(key)
        if made is None:
            _opened[key] = made = _Builder(layout, device, spread).build()
        return made


class _Builder:
    """Loads the relations of one layout."""

    def __init__(self, layout: Layout, device: Device, spread: Spread) -> None:
        self._layout, self._graph, self._device, self._spread = layout, layout.graph, device, spread
        self._shared = spread.group is not None
        self._made = GpuAdjacency()

    def build(self) -> GpuAdjacency:
        """Everything."""
        layout, made = self._layout, self._made
        relations = self._graph.relations
        made.columns = {relation: layout.adjacency_prefix(relation).columns for relation in relations}
        lists = [self._host_lists(relation) for relation in relations]
        ends = self._peer_ends(lists)
        for relation, columns, end in zip(relations, lists, ends, strict=True):
            made.peer_columns[relation] = end - made.columns[relation]
            made.relations.append(self._relation(relation, columns, end))
        local: dict[str, int] = {}
        for relation, count in made.columns.items():
            local[relation[2]] = max(local.get(relation[2], 0), count)
        made.keys = [self._keys(node_type, local.get(node_type, 0)) for node_type in self._graph.node_types]
        return made

    def _host_lists(self, relation: Relation) -> Columns:
        """A relation's arrays in host memory that stays."""
        (begins, entries), (indptr, indices) = self._files(relation), self._graph.csc(relation)
        sums = self._sums(relation, indptr, indices.size) if self._spread.weighted else None
        return Columns(self._load(begins, indptr), self._load(entries, indices), sums)

    def _files(self, relation: Relation) -> tuple[Path, Path]:
        """What opens ``indptr`` and ``indices`` of a relation."""
        folder, manifest = relation_folder(relation), self._graph.manifest
        return Path(manifest.place(f"{folder}/indptr")), Path(manifest.place(f"{folder}/indices"))

    def _load(self, path: Path, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        rows = load_rows(path, array.nbytes, self._shared)
        self._made.owners.append(rows)
        return rows.array.view(array.dtype)

    def _sums(self, relation: Relation, indptr: npt.NDArray[np.int64], edges: int) -> npt.NDArray[np.uint64]:
        weights, name = checked_weights(self._graph, relation), relation_key(relation)

        def fill(memory: npt.NDArray[np.uint8]) -> None:
            memory.view(np.uint64)[:] = native.cumulative_weights(indptr, weights, name, parse_threads(None))

        rows = made_rows(f"sums-{self._graph.digest[-16:]}-{name}", SUM_BYTES * edges, fill, self._shared)
        self._made.owners.append(rows)
        return rows.array.view(np.uint64)

    def _peer_ends(self, lists: list[Columns]) -> list[int]:
        begins = list(self._made.columns.values())
        group = self._spread.group
        if group is None or not self._spread.peer_bytes:
            return begins
        return end_of_columns(lists, begins, group.size, self._spread.peer_bytes)

    def _relation(self, relation: Relation, lists: Columns, end: int) -> cuda.Adjacency:
        what = f"{self._layout.path}: adjacency of {relation_key(relation)}"
        columns = self._made.columns[relation]
        host = (
            self._address(lists.indptr, what),
            self._address(lists.indices, what),
            0 if lists.sums is None else self._address(lists.sums, what),
            0,
            lists.indices.size,
        )
        peers: list[cuda.Part] = []
        if end > columns and self._spread.group is not None:
            topic = f"{self._layout.digest[-16:]}-lists-{len(self._made.relations)}"
            shared = share_columns(lists, columns, end, self._spread.group, self._device, topic, what)
            _kept.append(shared.owners)
            peers = shared.parts
        if not peers:
            self._made.peer_columns[relation], end = 0, columns
        types, wide = self._graph.node_types, lists.indices.dtype == np.int64
        local = self._prefix(relation, lists, columns, host, what)
        return types.index(relation[0]), types.index(relation[2]), wide, columns, end, local, peers, host

    def _prefix(self, relation: Relation, lists: Columns, columns: int, host: cuda.Part, what: str) -> cuda.Part:
        """The hottest lists in the memory of the GPU."""
        if not columns:
            return _NO_PART
        (starts, entries), edges = self._files(relation), int(lists.indptr[columns])
        begins = self._own(starts, INDPTR_BYTES * (columns + 1), what)
        indices = self._own(entries, edges * lists.indices.itemsize, what)
        # Where the plan has no room for sums, those of the host serve: they have the same places.
        planned = self._layout.adjacency_prefix(relation).weights
        sums = self._own_copy(host[2], SUM_BYTES * edges, what) if planned and lists.sums is not None else host[2]
        return begins, indices, sums, 0, edges

    def _own(self, path: Path, nbytes: int, what: str) -> int:
        """The first bytes of a file in the memory of the GPU."""
        if not nbytes:
            return 0
        memory = device_file(path, nbytes, self._device.index, what)
        self._made.owners.append(memory)
        return memory.address

    def _own_copy(self, address: int, nbytes: int, what: str) -> int:
        """The first bytes of locked memory in the memory of the GPU."""
        if not nbytes:
            return 0
        with cuda.device_errors(what):
            memory, stream = cuda.DeviceMemory(self._device.index, nbytes), cuda.Stream(self._device.index)
            cuda.copy(self._device.index, memory.address, address, nbytes, stream.handle)
            stream.synchronize()
        self._made.owners.append(memory)
        return memory.address

    def _address(self, array: npt.NDArray[Any], what: str) -> int:
        """Where the GPU finds an array that was loaded; locks it."""
        for rows in self._made.owners:
            if getattr(rows, "array", None) is not None and rows.array.ctypes.data == array.ctypes.data:
                return locked_address(rows, what)
        return 0

    def _keys(self, node_type: str, local: int) -> cuda.Keys:
        keys, order = self._graph.node_keys(node_type), self._graph.order
        if keys is None or order is None or not keys.size:
            return 0, 0, 0, False
        what = f"{self._layout.path}: original ids of node type {node_type!r}"
        address = self._address(self._load(Path(order.manifest.place(f"nodes/{node_type}/new_to_old")), keys), what)
        there = self._own_copy(address, local * keys.itemsize, what)
        return there, local, address, keys.dtype == np.int64
