"""``pyg``: memory-mapped arrays, and ``load.py``, which makes a `Data` or `HeteroData` of them."""

from __future__ import annotations

from pathlib import Path

from tiering.exports.contents import Contents

MAPPED = '''FOLDER = Path(__file__).parent


def tensor(file):
    """A file of the export, memory-mapped."""
    array = np.load(FOLDER / file["path"], mmap_mode="r")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the map is read-only, which tensors cannot be
        if file["dtype"] == "bfloat16":
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)


def mask(file, num_nodes):
    """Whether each node is in a split."""
    chosen = torch.zeros(num_nodes, dtype=torch.bool)
    chosen[tensor(file)] = True
    return chosen
'''
"""What ``load.py`` of every framework of torch's begins with."""

LOAD = f'''"""Make a PyG `Data` or `HeteroData` of this directory; arrays are read from disk where they are touched."""

import json
import warnings
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data, HeteroData

{MAPPED}

def load():
    """The graph: `x`, `y` (-1: none), masks of the splits, `edge_index` sorted by destination, edge data."""
    export = json.loads((FOLDER / "export.json").read_text())
    single = export["homogeneous"]
    data = Data() if single else HeteroData()
    for name, nodes in export["node_types"].items():
        store = data if single else data[name]
        store.num_nodes = nodes["num_nodes"]
        for key, name in (("feat", "x"), ("label", "y"), ("new_to_old", "new_to_old")):
            if nodes[key] is not None:
                store[name] = tensor(nodes[key])
        for name, file in nodes["splits"].items():
            store[name + "_mask"] = mask(file, nodes["num_nodes"])
        for name, file in nodes["data"].items():
            store[name] = tensor(file)
    for edges in export["relations"]:
        store = data if single else data[edges["src"], edges["name"], edges["dst"]]
        store.edge_index = tensor(edges["edge_index"])
        for name, file in edges["data"].items():
            store["edge_" + name.removeprefix("edge_")] = tensor(file)
    return data
'''


def documents(name: str, contents: Contents) -> dict[str, str]:
    """``load.py``."""
    return {"load.py": LOAD}


def lines(out: Path, contents: Contents) -> list[str]:
    """Python that reads the export and samples from it."""
    owner = next((name for name, nodes in contents.nodes.items() if "train" in nodes.splits), None)
    given = ["import runpy", f'data = runpy.run_path({str(out / "load.py")!r})["load"]()']
    if owner is not None:
        seeds = "data.train_mask" if contents.homogeneous else f'("{owner}", data["{owner}"].train_mask)'
        given.insert(1, "from torch_geometric.loader import NeighborLoader")
        given.append(
            f"loader = NeighborLoader(data, num_neighbors=[15, 10], input_nodes={seeds}, batch_size=1024, "
            "is_sorted=True)  # sorted already: not copied"
        )
    return given
