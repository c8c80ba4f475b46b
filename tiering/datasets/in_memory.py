"""Graphs of PyG and DGL in memory: `Data`, `HeteroData`, `DGLGraph`. Neither library is imported here.

Tensors on a GPU are copied into memory; others are read where they lie.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from tiering.datasets.import_context import ImportContext
from tiering.datasets.named_arrays import NamedArrays
from tiering.datasets.readers.dgl_file import add_dgl_graph
from tiering.datasets.readers.pyg import add_pyg_graph
from tiering.datasets.scratch import chunks
from tiering.errors import InputError
from tiering.formats.dataset import Dataset

HASHED_ROWS_BYTES = 8 << 20


def open_in_memory(graph: Any, context: ImportContext) -> Dataset:
    """Return the graph as a dataset; `Dataset.notes` records a digest of all that was read as ``content``."""
    name = type(graph).__name__
    target = NamedArrays(name, f"the {name}", Path(name), context.scratch)
    if find_library(graph) == "dgl":
        add_dgl_graph(graph, target)
    else:
        add_pyg_graph(graph.to_dict(), target)
    dataset = target.make_dataset(context)
    context.notes["content"] = _digest(target)
    return dataset


def find_library(graph: Any) -> str:
    """Return ``pyg`` or ``dgl``, by the class of the object."""
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


def _digest(target: NamedArrays) -> str:
    """Return a digest of all that was read: an import that was stopped continues with the same graph only."""
    digest = xxhash.xxh3_128(repr(sorted((t, nodes.num_nodes) for t, nodes in target.nodes.items())).encode())
    for column in target.columns:
        array = column.array
        digest.update(f"{column.where} {column.dtype} {array.shape};".encode())
        if array.ndim:
            for part in chunks(array.shape[0], max(1, HASHED_ROWS_BYTES // max(1, array[:1].nbytes))):
                digest.update(np.ascontiguousarray(array[part]).view(np.uint8).data)
    return f"xxh3-128:{digest.hexdigest()}"
