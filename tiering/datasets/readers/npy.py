"""Format ``npy``: one homogeneous graph as numpy files in one directory.

``edge_index.npy`` (2, E) or (E, 2), int32 or int64; and, each if there is one: ``node_feat.npy`` (N, dim),
``node_label.npy`` (N,), ``train_idx.npy``, ``val_idx.npy``, ``test_idx.npy`` (ids or masks), ``edge_weight.npy``,
``edge_type.npy``, ``edge_id.npy`` (E,), ``edge_feat.npy`` (E, dim), ``num_nodes.txt``. Node type ``node``, relation
``node:to:node``.
"""

from __future__ import annotations

from pathlib import Path

from tiering.artifacts.regular import entries, file_exists
from tiering.datasets.edges import EdgeReader, read_edge_folder
from tiering.datasets.import_context import NODE, RELATION, Detector, ImportContext, Reader
from tiering.datasets.nodes import NodeFiles, make_nodes, read_node_folder
from tiering.datasets.options import RAW_OPTIONS
from tiering.formats.dataset import Dataset

LABEL_NAMES = ("node_label.npy", "node_labels.npy")


def open_folder(
    path: Path, context: ImportContext, read_edges: EdgeReader, stated_count: tuple[str, int] | None = None
) -> Dataset:
    """Return one graph of one node type and relation, whose edges `read_edges` reads from the folder."""
    context.notes["node_types"] = [NODE]
    edges = read_edges(path, RELATION, context)
    arrays = read_node_folder(NodeFiles(path, NODE, LABEL_NAMES, stated_count=stated_count), context)
    nodes = make_nodes(NODE, arrays, [edges], context, str(path))
    context.record_ignored(entries(path))
    return context.dataset(path.name, {NODE: nodes}, [edges])


READER = Reader(
    lambda path, context: open_folder(path, context, read_edge_folder),
    RAW_OPTIONS,
    directory=Detector("edge_index.npy (npy)", lambda path: file_exists(path / "edge_index.npy", "edges")),
)
