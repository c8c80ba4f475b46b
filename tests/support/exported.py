"""Small datasets with everything that can be exported, and what numpy alone says an export of them holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from toy_datasets import Toy, chain, toy_dataset

import tiering
from tiering.formats.dataset import Dataset, EdgeData, NodeData
from tiering.formats.graph import Graph
from tiering.loader import TieredLayout

Array = np.ndarray[Any, Any]


@dataclass
class Prepared:
    """A dataset, its graph, the reordered graph and a layout of it in four tiers and three images."""

    toy: Toy
    graph: Graph
    reordered: Graph
    layout: TieredLayout

    def ids(self, node_type: str, original: bool) -> Array:
        """Original id of each node of an export."""
        count = self.graph.num_nodes(node_type)
        return np.arange(count) if original else np.asarray(self.reordered.new_to_old(node_type))

    def rows(self, node_type: str, original: bool) -> Array:
        """Feature rows of an export, as the source has them."""
        return self.toy.tables[node_type][self.ids(node_type, original)]

    def edges(self, number: int, original: bool) -> tuple[Array, Array, dict[str, Array]]:
        """Sources, destinations and data of a relation's edges: by destination, then as in the source."""
        given = self.toy.dataset.edges[number]
        source, _, destination = given.relation
        places = []
        for node_type, ends in ((source, given.src), (destination, given.dst)):
            ids = self.ids(node_type, original)
            new = np.empty(ids.size, np.int64)
            new[ids] = np.arange(ids.size)
            places.append(new[np.asarray(ends)])
        order = np.argsort(places[1], kind="stable")
        data = {name: np.asarray(values)[order] for name, values in given.data.items()}
        return places[0][order], places[1][order], data


def prepare(toy: Toy, folder: Path, page: str = "512", peers: int = 3) -> Prepared:
    graph, _, reordered = chain(toy, folder, edge_ids=True)
    disks = [folder / f"ssd{k}" for k in range(3)]
    options = {} if not toy.tables else {"gpu": "11%", "peer": f"{peers}x7%", "cpu": "20%", "ssd": disks, "page": page}
    return Prepared(toy, graph, reordered, tiering.write_layout(reordered, out=folder / "layout", **options))


def single(folder: Path, dtype: str = "float32") -> Toy:
    """A homogeneous graph: one type, one relation, weights, labels of which some are none."""
    toy = toy_dataset(folder, 5, types=1, featureless=0, dims=(6,), dtypes=(dtype,), min_nodes=60, max_nodes=70)
    (node_type,) = toy.dataset.nodes
    random, count = np.random.default_rng(3), toy.dataset.nodes[node_type].num_nodes
    src, dst = random.integers(0, count, (2, 400))
    weights = {"weight": random.random(400, dtype=np.float32)}
    edges = EdgeData((node_type, "cites", node_type), src, dst, data=weights, where="toy.npy")
    nodes = toy.dataset.nodes[node_type]
    nodes.labels = random.integers(-1, 4, count)
    nodes.splits["test"] = nodes.splits["val"][:5]
    return Toy(Dataset("single", "npy", {node_type: nodes}, [edges]), toy.tables)


def several(folder: Path) -> Toy:
    """Three node types, one of them without features, one with bfloat16, and relations between and within them."""
    random = np.random.default_rng(8)
    toy = Toy(Dataset("several", "npy", {}, []))
    for name, dtype in (("author", "bfloat16"), ("paper", "float16"), ("venue", "")):
        drawn = toy_dataset(
            folder / name, 9, types=1, featureless=0, dims=(5,), dtypes=(dtype or "int8",), min_nodes=30, max_nodes=40
        )
        (given,) = drawn.dataset.nodes.values()
        labels = random.integers(-1, 3, given.num_nodes) if name == "paper" else None
        splits = given.splits if name != "venue" else {}
        nodes = NodeData(given.num_nodes, features=given.features if dtype else None, labels=labels, splits=splits)
        toy.dataset.nodes[name] = nodes
        if dtype:
            toy.tables[name] = next(iter(drawn.tables.values()))
    counts = {name: nodes.num_nodes for name, nodes in toy.dataset.nodes.items()}
    for relation, size in (
        (("author", "writes", "paper"), 150), (("paper", "cites", "paper"), 200), (("paper", "in", "venue"), 60),
        (("venue", "hosts", "paper"), 0),
    ):  # fmt: skip
        src, dst = (random.integers(0, counts[relation[end]], size) for end in (0, 2))
        data = {"weight": random.random(size, dtype=np.float32)} if relation[1] == "cites" else {}
        toy.dataset.edges.append(EdgeData(relation, src, dst, data=data, where="toy.npy"))
    return toy
