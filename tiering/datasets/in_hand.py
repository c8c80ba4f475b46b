"""Graphs of PyG and DGL in hand: `Data`, `HeteroData`, `DGLGraph`. Neither library is imported here.

Tensors on a GPU are copied into memory; others are read where they lie.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from tiering.artifacts.manifest import relation_key
from tiering.datasets.reader import NODE, RELATION, Reading
from tiering.datasets.readers.pyg import put_pyg
from tiering.datasets.scratch import chunks
from tiering.datasets.stores import Column, EdgeStore, NodeStore, Stores, dataset_of
from tiering.errors import InputError
from tiering.formats.protocols import Dataset

HASHED_ROWS_BYTES = 8 << 20


def open_in_hand(graph: Any, reading: Reading) -> Dataset:
    """The graph as a dataset; `Dataset.notes` records a digest of what was read as ``content``."""
    name = type(graph).__name__
    stores = Stores(name, f"the {name}", Path(name), reading.scratch)
    if format_of(graph) == "dgl":
        put_dgl(graph, stores)
    else:
        put_pyg(graph.to_dict(), stores)
    dataset = dataset_of(stores, reading)
    reading.notes["content"] = _digest(stores)
    return dataset


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


def put_dgl(graph: Any, stores: Stores) -> Stores:
    """Put a DGLGraph into `stores`; of one type of nodes and edges under the names that other formats have."""
    plain = len(graph.ntypes) == 1 and len(graph.canonical_etypes) == 1
    for node_type in graph.ntypes:
        called = NODE if plain else node_type
        arrays = stores.named(graph.nodes[node_type].data, called)
        stores.nodes[called] = NodeStore(arrays, int(graph.num_nodes(node_type)))
    for relation in graph.canonical_etypes:
        called = RELATION if plain else tuple(relation)
        where, arrays = f"{stores.where}: edges of {relation_key(called)}", graph.edges[relation].data
        ends = graph.edges(etype=relation, order="eid")
        src, dst = (Column.of(ids, where, stores.path, stores.scratch) for ids in ends)
        stores.columns += [src, dst]
        stores.edges.append(EdgeStore(called, src.array, dst.array, where, stores.named(arrays, relation_key(called))))
    return stores


def _digest(stores: Stores) -> str:
    """Of all that was read, so that an import that was stopped goes on with the same graph only."""
    digest = xxhash.xxh3_128(repr(sorted((t, nodes.num_nodes) for t, nodes in stores.nodes.items())).encode())
    for column in stores.columns:
        array = column.array
        digest.update(f"{column.where} {column.dtype} {array.shape};".encode())
        if array.ndim:
            for part in chunks(array.shape[0], max(1, HASHED_ROWS_BYTES // max(1, array[:1].nbytes))):
                digest.update(np.ascontiguousarray(array[part]).view(np.uint8).data)
    return f"xxh3-128:{digest.hexdigest()}"
