"""``dgl``: memory-mapped arrays, and ``load.py``, which makes a `DGLGraph` of them."""

from __future__ import annotations

from pathlib import Path

from tiering.exports.contents import Contents
from tiering.exports.pyg import MAPPED

LOAD = f'''"""Make a `DGLGraph` of this directory; arrays are read from disk where they are touched."""

import json
import warnings
from pathlib import Path

import dgl
import numpy as np
import torch

{MAPPED}

def load():
    """The graph: node data `feat`, `label` (-1: none) and masks of the splits, edge data."""
    export = json.loads((FOLDER / "export.json").read_text())
    counts = {{name: nodes["num_nodes"] for name, nodes in export["node_types"].items()}}
    lists = {{}}
    for edges in export["relations"]:
        columns = tensor(edges["indptr"]), tensor(edges["indices"]), torch.empty(0, dtype=torch.int64)
        lists[edges["src"], edges["name"], edges["dst"]] = ("csc", columns)
    if export["homogeneous"]:
        graph = dgl.graph(*lists.values(), num_nodes=sum(counts.values()))
    else:
        graph = dgl.heterograph(lists, counts)
    for name, nodes in export["node_types"].items():
        frame = graph.nodes[graph.ntypes[0] if export["homogeneous"] else name].data
        for key in ("feat", "label", "new_to_old"):
            if nodes[key] is not None:
                frame[key] = tensor(nodes[key])
        for split, file in nodes["splits"].items():
            frame[split + "_mask"] = mask(file, nodes["num_nodes"])
        for key, file in nodes["data"].items():
            frame[key] = tensor(file)
    for edges, relation in zip(export["relations"], lists):
        frame = graph.edges[graph.canonical_etypes[0] if export["homogeneous"] else relation].data
        for key, file in edges["data"].items():
            frame[key] = tensor(file)
    return graph
'''


def documents(name: str, contents: Contents) -> dict[str, str]:
    """``load.py``."""
    return {"load.py": LOAD}


def lines(out: Path, contents: Contents) -> list[str]:
    """Python that reads the export."""
    owner = next((name for name, nodes in contents.nodes.items() if "train" in nodes.splits), None)
    given = ["import runpy", f'graph = runpy.run_path({str(out / "load.py")!r})["load"]()']
    if owner is not None:
        given.append(
            'train = graph.ndata["train_mask"].nonzero().squeeze(1)'
            if contents.homogeneous
            else f'train = {{"{owner}": graph.nodes["{owner}"].data["train_mask"].nonzero().squeeze(1)}}'
        )
    return given
