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
from tiering.formats.graph import relation_folder
from tiering.formats.layout import Layout
from tiering.formats.manifest import Relation, relation_key
from tiering.runtime.gpu.device import Device
from tiering.runtime.gpu.locked import locked_address, locked_copy
from tiering.runtime.gpu.tiers import device_file
from tiering.runtime.memory import load_rows
from tiering.sampling import checked_weights
from tiering.units import parse_threads

_NO_PART = (0, 0, 0, 0, 0)


@dataclass
class GpuAdjacency:
    """Addresses of all relations' lists, and what keeps them valid."""

    relations: list[cuda.Adjacency] = field(default_factory=list)
    """In the graph's order."""
    keys: list[cuda.Keys] = field(default_factory=list)
    """Keys of the random numbers, by node type."""
    columns: dict[Relation, int] = field(default_factory=dict)
    """Per relation, how many columns lie in the memory of the GPU."""
    owners: list[Any] = field(default_factory=list)


_opened: WeakValueDictionary[tuple[str, int, bool, bool], GpuAdjacency] = WeakValueDictionary()
_lock = threading.Lock()


def load_adjacency(layout: Layout, device: Device, weighted: bool, shared: bool) -> GpuAdjacency:
    """Put a layout's graph where a GPU reads it; loaders of one process use it together.

    Parameters
    ----------
    weighted
        Whether edges are drawn by weight: sums of weights, 8 bytes per edge, lie with the lists.
    shared
        One copy in host memory for all processes of this user.

    Raises
    ------
    BudgetError
        If memory of the GPU does not suffice, or the host does not lock so much.

    Notes
    -----
    Host memory, locked: 8 bytes per node and 4 or 8 per edge of each relation, and the original ids. Memory of the
    GPU: what the layout's plan gives to lists (`tiering layout --split`).
    """
    key = (layout.digest, device.index, weighted, shared)
    with _lock:
        made = _opened.get(key)
        if made is None:
            _opened[key] = made = _load(layout, device, weighted, shared)
        return made


def _load(layout: Layout, device: Device, weighted: bool, shared: bool) -> GpuAdjacency:
    graph = layout.graph
    made = GpuAdjacency()
    local_keys: dict[str, int] = {}
    for relation in graph.relations:
        columns = layout.adjacency_columns(relation)
        made.columns[relation] = columns
        local_keys[relation[2]] = max(local_keys.get(relation[2], 0), columns)
        made.relations.append(_relation(layout, relation, columns, device, weighted, shared, made))
    for node_type in graph.node_types:
        made.keys.append(_keys(layout, node_type, local_keys.get(node_type, 0), device, made))
    return made


def _relation(
    layout: Layout,
    relation: Relation,
    columns: int,
    device: Device,
    weighted: bool,
    shared: bool,
    made: GpuAdjacency,
) -> cuda.Adjacency:
    graph, key = layout.graph, relation_key(relation)
    indptr, indices = graph.csc(relation)
    folder = graph.path / relation_folder(relation)
    what = f"{layout.path}: adjacency of {key}"

    def host(name: str, array: npt.NDArray[Any]) -> int:
        rows = load_rows(folder / name, array.nbytes, shared)
        made.owners.append(rows)
        return locked_address(rows, what)

    def local(path: Path, nbytes: int) -> int:
        if not nbytes:
            return 0
        memory = device_file(path, nbytes, device.index, what)
        made.owners.append(memory)
        return memory.address

    edges = int(indptr[columns])
    sums, local_sums = 0, 0
    if weighted:
        sums, local_sums = _sums(layout, relation, edges, device, made)
    all_lists = (host("indptr", indptr), host("indices", indices), sums, 0, indices.size)
    prefix = _NO_PART
    if columns:
        begins = local(folder / "indptr", 8 * (columns + 1))
        prefix = (begins, local(folder / "indices", edges * indices.itemsize), local_sums, 0, edges)
    types = graph.node_types
    wide = indices.dtype == np.int64
    return types.index(relation[0]), types.index(relation[2]), wide, columns, columns, prefix, [], all_lists


def _sums(layout: Layout, relation: Relation, edges: int, device: Device, made: GpuAdjacency) -> tuple[int, int]:
    """Sums of weights on the host, and of the first `edges` in the memory of the GPU."""
    key = relation_key(relation)
    weights = checked_weights(layout.graph, relation)
    sums = native.cumulative_weights(layout.graph.csc(relation)[0], weights, key, parse_threads(None))
    rows, address = locked_copy(sums, f"{layout.path}: weights of {key}")
    made.owners.append(rows)
    return address, _local_copy(address, 8 * edges, device, f"{layout.path}: weights of {key}", made)


def _keys(layout: Layout, node_type: str, local: int, device: Device, made: GpuAdjacency) -> cuda.Keys:
    keys = layout.graph.node_keys(node_type)
    if keys is None or not keys.size:
        return 0, 0, 0, False
    what = f"{layout.path}: original ids of node type {node_type!r}"
    rows, address = locked_copy(keys, what)
    made.owners.append(rows)
    there = _local_copy(address, local * keys.itemsize, device, what, made)
    return there, local, address, keys.dtype == np.int64


def _local_copy(address: int, nbytes: int, device: Device, what: str, made: GpuAdjacency) -> int:
    """The first bytes of locked memory, in the memory of the GPU."""
    if not nbytes:
        return 0
    with cuda.device_errors(what):
        memory, stream = cuda.DeviceMemory(device.index, nbytes), cuda.Stream(device.index)
        cuda.copy(memory.address, address, nbytes, stream.handle)
        stream.synchronize()
    made.owners.append(memory)
    return memory.address
