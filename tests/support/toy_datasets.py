"""Small random datasets with every feature of a real one, and a chain of stages over them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tiering import pipeline
from tiering.artifacts.manifest import storage_dtype
from tiering.formats.dataset import Dataset, EdgeData, NodeData
from tiering.formats.features import FeatureTable
from tiering.formats.graph import Graph
from tiering.formats.scores import Scores
from tiering.graph.build import build_graph
from tiering.memory import Budget

TYPES = ("author", "paper", "venue")


@dataclass
class Toy:
    """A dataset and what it was made from."""

    dataset: Dataset
    tables: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    """Feature rows by type, as stored."""


def toy_dataset(
    folder: Path,
    seed: int,
    *,
    types: int = 3,
    max_nodes: int = 40,
    max_edges: int = 150,
    dims: tuple[int, ...] = (1, 3, 17, 128, 140, 600),
    dtypes: tuple[str, ...] = ("float32", "float16", "bfloat16", "int8"),
    featureless: float = 0.2,
    min_nodes: int = 1,
) -> Toy:
    """Draw a dataset; its feature tables are files in `folder`, some behind a header of 128 bytes."""
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    toy = Toy(Dataset("toy", "npy", {}, []))
    for name in TYPES[:types]:
        nodes = NodeData(int(random.integers(min_nodes, max_nodes + 1)))
        nodes.labels = random.integers(-1, 4, nodes.num_nodes) if random.random() < 0.8 else None
        shuffled = random.permutation(nodes.num_nodes)
        nodes.splits = {"train": shuffled[: nodes.num_nodes // 2 + 1], "val": shuffled[nodes.num_nodes // 2 + 1 :]}
        nodes.extra = {"original_id": random.integers(0, 1 << 40, nodes.num_nodes)}
        if random.random() >= featureless:
            nodes.features, toy.tables[name] = _features(
                folder / f"{name}.bin", random, nodes.num_nodes, int(random.choice(dims)), str(random.choice(dtypes))
            )
        toy.dataset.nodes[name] = nodes
    for k in range(int(random.integers(1, 5))):
        toy.dataset.edges.append(_edges(random, toy.dataset, f"rel{k}", int(random.integers(0, max_edges + 1))))
    return toy


def _features(
    path: Path, random: np.random.Generator, rows: int, dim: int, dtype: str
) -> tuple[FeatureTable, np.ndarray[Any, Any]]:
    stored = storage_dtype(dtype)
    table = random.integers(0, 256, (rows, dim * stored.itemsize), dtype=np.uint8).view(stored)
    offset = int(random.choice([0, 128]))
    path.write_bytes(b"\x93" * offset + table.tobytes())
    return FeatureTable(path, rows, dim, dtype, offset), table


def _edges(random: np.random.Generator, dataset: Dataset, name: str, count: int) -> EdgeData:
    source, destination = (str(random.choice(list(dataset.nodes))) for _ in range(2))
    pairs = np.empty((count, 2), random.choice([np.int32, np.int64]))
    for side, node_type in enumerate((source, destination)):
        # Squared, so that some nodes have many edges, and edges repeat.
        share = random.random(count) ** 2
        pairs[:, side] = (share * dataset.nodes[node_type].num_nodes).astype(np.int64)
    edges = EdgeData((source, name, destination), pairs[:, 0], pairs[:, 1], where="toy.npy")
    if random.random() < 0.5:
        edges.data["weight"] = random.random(count, dtype=np.float32)
    return edges


def chain(toy: Toy, folder: Path, method: str = "wrpr", **options: Any) -> tuple[Graph, Scores, Graph]:
    """Graph, scores and reordered graph of a dataset."""
    graph = build_graph(toy.dataset, folder / "graph", **options)
    scores = pipeline.score_graph(graph, folder / "scores", method)
    return graph, scores, pipeline.reorder_graph(graph, scores, folder / "reordered")


def tree_bytes(folder: Path) -> dict[str, bytes]:
    """Every file under a directory, by relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@dataclass(frozen=True)
class Leaves(Budget):
    """A budget that always leaves as much."""

    def left(self) -> int:
        return self.limit

    def require(self, needed: int, what: str) -> None:
        pass


def write_odd_types(folder: Path) -> Path:
    """Types without nodes, relations without edges, one type that is the destination of four relations; weights."""
    random, sizes = np.random.default_rng(0), {"a": 150, "b": 90, "c": 4, "z": 0}
    for (src, name, dst), count in {"axb": 900, "bwa": 400, "aua": 500, "cta": 30, "aya": 0, "cvb": 0}.items():
        of = folder / "processed" / f"{src}__{name}__{dst}"
        of.mkdir(parents=True)
        np.save(of / "edge_index.npy", random.integers(0, [sizes[src], sizes[dst]], (count, 2)))
        np.save(of / "edge_weight.npy", random.random(count))
    (folder / "processed" / "meta.json").write_text(json.dumps({"num_nodes": sizes}))
    for name, count in {"a": 40, "b": 11}.items():
        (folder / "processed" / name).mkdir()
        np.save(folder / "processed" / name / "train_idx.npy", random.permutation(sizes[name])[:count])
    return folder
