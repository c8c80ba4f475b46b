"""MAG240M's features of all its nodes in one headerless file, as scripts generate them: which rows are whose is told by
the content, for two such files have the same size and another order.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import storage_dtype
from tiering.artifacts.regular import is_there
from tiering.artifacts.storage import open_raw
from tiering.datasets.reader import Reading
from tiering.errors import InputError
from tiering.formats.features import FeatureTable
from tiering.formats.npy_file import is_npy
from tiering.formats.protocols import NodeData

FILES = ("full_feat.npy", "full.npy")
"""OGB's script writes the first, DGL's the second."""
ORDERS = (("paper", "author", "institution"), ("author", "institution", "paper"))
"""Whose rows follow whose: OGB's, DGL's."""
SAMPLES = 64


def find_complete_features(tree: Path, nodes: dict[str, NodeData], reading: Reading) -> None:
    """Take features of authors and institutions from such a file beside the tree, if there is one."""
    if set(nodes) != set(ORDERS[0]) or nodes["author"].features is not None:
        return
    papers = nodes["paper"].features
    folders = (tree, tree.parent)
    paths = [folder / name for folder in folders for name in FILES if is_there(folder / name, "features")]
    if not paths or not isinstance(papers, FeatureTable):
        return
    path, total = paths[0], sum(data.num_nodes for data in nodes.values())
    size, expected = path.stat().st_size, total * papers.row_bytes
    if is_npy(path) or size != expected:
        raise InputError(
            f"{path}: expected the features of all {total} nodes without numpy header, {expected} bytes, found {size}"
            f"{' with one' if is_npy(path) else ''}; make it again, or take it away"
        )
    reading.used(path)
    orders = [order for order in ORDERS if _fits(path, order, nodes, papers)]
    order = orders[0] if len(orders) == 1 else None
    if orders and order is None:
        raise InputError(f"{path}: its rows fit OGB's order and DGL's: the sampled papers are alike; take it away")
    if order is None:
        raise InputError(
            f"{path}: expected the papers' rows first (OGB's script) or last (DGL's), found neither: they are not "
            f"those of {papers.path}; make it again, or take it away"
        )
    first, dtype = _first_row(order, "author", nodes), storage_dtype(papers.dtype)
    authors = open_raw(path, dtype, (nodes["author"].num_nodes, papers.dim), first * papers.row_bytes)
    if not authors[_places(authors.shape[0])].any():
        raise InputError(f"{path}: {SAMPLES} sampled rows of authors are zeros: its script was stopped; make it again")
    for node_type in order:
        if node_type != "paper":
            offset = _first_row(order, node_type, nodes) * papers.row_bytes
            count = nodes[node_type].num_nodes
            nodes[node_type].features = FeatureTable(path, count, papers.dim, papers.dtype, offset)
    reading.notes["complete_features"] = {"file": str(path), "order": list(order)}


def _first_row(order: tuple[str, ...], node_type: str, nodes: dict[str, NodeData]) -> int:
    return sum(nodes[before].num_nodes for before in order[: order.index(node_type)])


def _fits(path: Path, order: tuple[str, ...], nodes: dict[str, NodeData], papers: FeatureTable) -> bool:
    """Whether a sample of the papers' rows stands where that order has them."""
    first, dtype = _first_row(order, "paper", nodes), storage_dtype(papers.dtype)
    rows = open_raw(path, dtype, (papers.rows, papers.dim), first * papers.row_bytes)
    own = papers.open()
    return all(np.array_equal(rows[k].view(np.uint8), own[k].view(np.uint8)) for k in _places(papers.rows))


def _places(rows: int) -> npt.NDArray[np.int64]:
    return np.unique(np.linspace(0, max(0, rows - 1), SAMPLES, dtype=np.int64))
