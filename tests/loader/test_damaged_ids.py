"""Ids in a layout's graph that are no nodes, past the checksums: each use says in one line which they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiering.errors import TieringError
from tiering.loader import open_layout
from tiering.loader.batches.pipeline import StageError
from tiering.sampling import Negatives

torch = pytest.importorskip("torch")
HOPS = {"batch_size": 32}


def by_pyg(layout: Any) -> Any:
    pytest.importorskip("torch_geometric")
    return layout.pyg_loader(num_neighbors=[3, 2], **HOPS)


def by_pyg_links(layout: Any) -> Any:
    pytest.importorskip("torch_geometric")
    return layout.pyg_link_loader([3, 2], neg_sampling="binary", **HOPS)


def by_dgl(layout: Any) -> Any:
    pytest.importorskip("dgl")
    return layout.dgl_loader(fanouts=[3, 2], **HOPS)


def by_pyg_stores(layout: Any) -> Any:
    pytest.importorskip("torch_geometric")
    features, graph = layout.pyg_stores()
    return [
        *(features.get_tensor(attr.group_name, attr.attr_name, index=None) for attr in features.get_all_tensor_attrs()),
        *(graph.get_edge_index(attr) for attr in graph.get_all_edge_attrs()),
    ]


USES: dict[str, Callable[[Any], Any]] = {
    "loader": lambda layout: layout.loader(fanouts=[3, 2], **HOPS),
    "link loader": lambda layout: layout.link_loader(fanouts=[3, 2], negatives=Negatives(), **HOPS),
    "pyg": by_pyg,
    "pyg links": by_pyg_links,
    "pyg stores": by_pyg_stores,
    "dgl": by_dgl,
}
FLIPS: dict[str, tuple[str, int, str]] = {
    "one split": ("nodes/node/split-val", -1, "split 'val' of node type 'node': entry 3 is -1, expected 0..299"),
    "the split": ("nodes/node/split-train", 300, "split 'train' of node type 'node': entry 3 is 300, expected 0..299"),
    "a far split": ("nodes/node/split-train", 5 + (1 << 40), "entry 3 is 1099511627781, expected 0..299"),
    "labels": ("nodes/node/label", 1 << 40, "labels of node type 'node': entry 3 is 1099511627776, expected -1..2"),
    "a class too few": ("nodes/node/label", -2, "labels of node type 'node': entry 3 is -2, expected -1..2"),
    "the order": ("order/nodes/node/new_to_old", -1, "order of node type 'node': entry 3 is -1, expected 0..299"),
    "ranks": ("order/nodes/node/old_to_new", 300, "old_to_new of node type 'node': entry .* is 300, expected 0..299"),
    "offsets": ("relations/node__to__node/indptr", -5, r"relation node:to:node: indptr decreases from"),
    "the last offset": ("relations/node__to__node/indptr", 2999, "indptr ends at 2999 but there are 3000 indices"),
}
READ_BY = {
    "one split": {"pyg", "pyg stores", "pyg links"},
    "the split": {"loader", "pyg", "dgl", "pyg stores", "pyg links"},
    "a far split": {"loader", "pyg", "dgl", "pyg stores", "pyg links"},
    "labels": {"loader", "pyg", "dgl", "pyg stores", "pyg links"},
    "a class too few": {"loader", "pyg", "dgl", "pyg stores", "pyg links"},
    "the order": {"pyg", "dgl", "pyg links"},
    "ranks": {"link loader"},
    "offsets": {"link loader", "pyg links", "pyg stores"},
    "the last offset": {"link loader", "pyg links", "pyg stores"},
}


@pytest.mark.parametrize(("flip", "use"), [(flip, use) for flip, uses in READ_BY.items() for use in sorted(uses)])
def test_it_is_said(kit: Any, tmp_path: Path, flip: str, use: str) -> None:
    path = tmp_path / "layout"
    kit.write_layout(path, kit.small_graph()).close()
    name, value, message = FLIPS[flip]
    file = path / "graph" / name
    values = np.fromfile(file, np.int32 if "order" in name else np.int64)
    values[-1 if flip == "the last offset" else 3] = value
    values.tofile(file)
    with open_layout(path) as layout, pytest.raises((TieringError, StageError), match=message):
        for _ in USES[use](layout):
            pass
