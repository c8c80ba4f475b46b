"""Adjacency lists where a GPU samples from them: the hottest in its memory, all of them in pinned host memory."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from tiering import cuda, native
from tiering.artifacts.manifest import Relation, relation_key
from tiering.formats.adjacency_prefix import INDPTR_BYTES, SUM_BYTES, AdjacencyPrefix
from tiering.formats.graph import Graph, relation_folder
from tiering.loader.gpu.device import Device, pinned_address
from tiering.loader.processes.peers import PeerGroup
from tiering.loader.tables.resident import SharedBlock, get_or_fill, load_rows
from tiering.sampling import checked_weights
from tiering.text.units import parse_threads

Prefixes = Mapping[Relation, AdjacencyPrefix]  # which lists of each relation lie in the memory of the GPU
_NO_PART: cuda.Part = (0, 0, 0, 0)


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
