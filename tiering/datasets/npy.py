"""Format ``npy``: one homogeneous graph as numpy files in one directory.

``edge_index.npy`` (2, E) or (E, 2), int32 or int64; and, each if there is one: ``node_feat.npy`` (N, dim),
``node_label.npy`` (N,), ``train_idx.npy``, ``val_idx.npy``, ``test_idx.npy`` (ids or masks), ``edge_weight.npy``,
``edge_type.npy``, ``edge_id.npy`` (E,), ``num_nodes.txt``. Node type ``node``, relation ``node:to:node``.
"""

from __future__ import annotations

from pathlib import Path

from tiering.artifacts.regular import entries, is_there
from tiering.datasets.edges import read_edge_folder
from tiering.datasets.nodes import NodeFiles, read_nodes
from tiering.datasets.reader import COLUMN_OPTIONS, TEXT_OPTIONS, TREE_OPTIONS, Reader, Sign
from tiering.datasets.reading import NODE, RELATION, Reading
from tiering.formats.protocols import Dataset


def _is_npy_dir(path: Path) -> bool:
    return is_there(path / "edge_index.npy", "edges")


def _open_npy_dir(path: Path, reading: Reading) -> Dataset:
    reading.notes["node_types"] = [NODE]
    edges, edge_names = read_edge_folder(path, RELATION, reading)
    nodes, node_names = read_nodes(NodeFiles(path, NODE, ("node_label.npy", "node_labels.npy")), [edges], reading)
    used = edge_names | node_names
    reading.ignored(path, (p.name for p in entries(path) if p.name not in used and not p.name.startswith(".")))
    return Dataset(path.name, "npy", {NODE: nodes}, [edges], reading.notes, reading.files)


READER = Reader(
    _open_npy_dir,
    foreign=COLUMN_OPTIONS | TEXT_OPTIONS | TREE_OPTIONS,
    directory=Sign("edge_index.npy (npy)", _is_npy_dir),
)
