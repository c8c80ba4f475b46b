"""Graphs of PyG and DGL in hand: `Data`, `HeteroData`, `DGLGraph`. Neither library is imported here.

Tensors on a GPU are copied into memory; others are read where they lie.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from tiering.artifacts.manifest import relation_key
from tiering.datasets.reader import NODE, RELATION, Reading
from tiering.datasets.readers.pyg import stores_of
from tiering.datasets.scratch import chunks
from tiering.datasets.stores import Column, EdgeStore, NodeStore, Stores, dataset_of
from tiering.errors import InputError
from tiering.formats.protocols import Dataset

HASHED_ROWS_BYTES = 8 << 20


def open_in_hand(graph: Any, reading: Reading) -> Dataset:
    """The graph as a dataset; `Dataset.notes` records a digest of its arrays as ``content``."""
    stores = in_hand(graph)
    reading.notes["content"] = _digest(stores)
    return dataset_of(stores, reading)


def format_of(graph: Any) -> str:
    """``pyg`` or ``dgl``, by whose object it is."""
    for kind in type(graph).__mro__:
        library = kind.__module__.partition(".")[0]
        if library == "torch_geometric" and hasattr(graph, "to_dict"):
            return "pyg"
        if library == "dgl" and kind.__name__ == "DGLGraph":
            return "dgl"
    raise InputError(
        f"source: expected a path, or a graph of PyG (Data, HeteroData) or DGL (DGLGraph), found "
        f"{type(graph).__module__}.{type(graph).__qualname__}; give one of them"
    )


def in_hand(graph: Any) -> Stores:
    """The named arrays of a graph in hand."""
    name = type(graph).__name__
    if format_of(graph) == "dgl":
        return dgl_stores(graph, name, f"the {name}", Path(name))
    return stores_of(_arrays(graph.to_dict()), name, f"the {name}", Path(name))


def dgl_stores(graph: Any, name: str, where: str, path: Path) -> Stores:
    """The named arrays of a DGLGraph; of one type of nodes and edges under the names that other formats have."""
    plain = len(graph.ntypes) == 1 and len(graph.canonical_etypes) == 1
    stores = Stores(name, where, {}, [])
    for node_type in graph.ntypes:
        called = NODE if plain else node_type
        arrays = _columns(graph.nodes[node_type].data, f"{where}: {{}} of {called}", path)
        stores.nodes[called] = NodeStore(arrays, int(graph.num_nodes(node_type)))
    for relation in graph.canonical_etypes:
        called = RELATION if plain else tuple(relation)
        text = f"{where}: {{}} of {relation_key(called)}"
        src, dst = (_array(ids)[0] for ids in graph.edges(etype=relation, order="eid"))
        arrays = _columns(graph.edges[relation].data, text, path)
        stores.edges.append(EdgeStore(called, src, dst, text.format("edges"), arrays))
    return stores


def _columns(data: Mapping[str, Any], where: str, path: Path) -> dict[str, Column]:
    made = {}
    for name, value in data.items():
        array, dtype = _array(value)
        made[name] = Column(where.format(name), array, dtype, path)
    return made


def _arrays(parts: Mapping[Any, Any]) -> dict[Any, Any]:
    """Tensors as arrays, in dictionaries of dictionaries; what else there is stays."""
    made: dict[Any, Any] = {}
    for key, value in parts.items():
        if isinstance(value, Mapping):
            made[key] = _arrays(value)
        elif _is_tensor(value):
            array, dtype = _array(value)
            made[key] = array if dtype != "bfloat16" else array.view("V2")  # numpy's features of two raw bytes
        else:
            made[key] = value
    return made


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor) and value.layout is torch.strided


def _array(value: Any) -> tuple[np.ndarray[Any, Any], str]:
    """A tensor as array and the name of its dtype; ``bfloat16`` as ``uint16``."""
    torch, tensor = sys.modules["torch"], value.detach().cpu()
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16), "bfloat16"
    array: np.ndarray[Any, Any] = tensor.numpy()
    return array, array.dtype.name


def _digest(stores: Stores) -> str:
    """Of all arrays, so that an import that was stopped goes on with the same graph only."""
    digest = xxhash.xxh3_128()

    def take(name: str, array: np.ndarray[Any, Any]) -> None:
        digest.update(f"{name} {array.dtype.str} {array.shape};".encode())
        if array.ndim:
            for part in chunks(array.shape[0], max(1, HASHED_ROWS_BYTES // max(1, array[:1].nbytes))):
                digest.update(np.ascontiguousarray(array[part]).view(np.uint8).data)

    for node_type, nodes in sorted(stores.nodes.items()):
        digest.update(f"{node_type} {nodes.num_nodes};".encode())
        for name, column in sorted(nodes.arrays.items()):
            take(name, column.array)
    for edges in sorted(stores.edges, key=lambda store: store.relation):
        take(f"src of {relation_key(edges.relation)}", edges.src)
        take("dst", edges.dst)
        for name, column in sorted(edges.arrays.items()):
            take(name, column.array)
    return f"xxh3-128:{digest.hexdigest()}"
