"""Models that infer, and the same layers over the whole graph in memory: what inference has to equal."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import xxhash

import tiering

RELATION = ("node", "to", "node")


def odd_graph(kit: Any, nodes: int = 900, dim: int = 12, seed: int = 0, **options: Any) -> Any:
    """A hub that 300 nodes point to, or a third, duplicates, self loops, and isolated nodes; rows in all tiers."""
    rng = np.random.default_rng(seed)
    linked, hub = nodes * 4 // 5, min(nodes // 3, 300)
    ends = [rng.integers(0, linked, (2, 6 * nodes))]
    ends += [np.stack([np.arange(hub), np.full(hub, 7)]), np.stack([np.arange(40)] * 2), ends[0][:, :60]]
    edges = np.concatenate(ends, 1)
    table = rng.standard_normal((nodes, dim), np.float32)
    splits = {"test": rng.permutation(nodes)[: nodes // 9]}
    place = kit.Nodes(nodes, table, "float32", rng.integers(0, 3, nodes), splits, (nodes // 10, 0, nodes // 5))
    return kit.Dataset({"node": place}, {RELATION: (edges[0], edges[1])}, **options)


def with_edge_data(data: Any) -> Any:
    """The same graph with weights and three features of its edges; duplicates and loops have their own."""
    rng = np.random.default_rng(4)
    count = len(data.edges[RELATION][0])
    data.weights = {RELATION: rng.random(count, np.float32) + 0.1}
    data.edge_features = {RELATION: rng.standard_normal((count, 3), np.float32)}
    return data


def edge_data(layout: Any, name: str) -> torch.Tensor:
    """Edge data of the only relation in the order of `all_edges`."""
    return torch.from_numpy(np.array(layout.artifact.graph.edge_data()[name]))


def all_edges(layout: Any) -> dict[tuple[str, str, str], torch.Tensor]:
    """The edges of each relation in ranks, shape (2, edges), by destination."""
    graph, edges = layout.artifact.graph, {}
    for relation in graph.relations:
        indptr, indices = (np.asarray(part) for part in graph.csc(relation))
        dst = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
        edges[relation] = torch.from_numpy(np.stack([indices.astype(np.int64), dst]))
    return edges


def all_rows(layout: Any) -> dict[str, torch.Tensor]:
    """The features of each type by rank."""
    tables = {t: layout.features(t, device="cpu") for t in layout.feature_types}
    return {t: table.gather(np.arange(table.shape[0])) for t, table in tables.items()}


def mean(x: torch.Tensor, edge_index: torch.Tensor, count: int) -> torch.Tensor:
    """The mean of the sources of each of `count` destinations, zeros without any."""
    sums = torch.zeros(count, x.shape[1], dtype=x.dtype).index_add_(0, edge_index[1], x[edge_index[0]])
    return sums / torch.bincount(edge_index[1], minlength=count).clamp(min=1)[:, None]


class Sage(torch.nn.Module):
    """Layers of `mean`, each with two linear maps, and relu between them."""

    def __init__(self, *widths: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.weights = torch.nn.ParameterList(
            torch.randn(a, b, 2, generator=generator) / a**0.5 for a, b in pairwise(widths)
        )
        self.eval()

    def step(self, number: int, x: torch.Tensor, edge_index: torch.Tensor, count: int) -> torch.Tensor:
        own, others = self.weights[number].unbind(2)
        rows = x[:count] @ own + mean(x, edge_index, count) @ others
        return rows.relu() if number + 1 < len(self.weights) else rows

    def layer(self, number: int) -> Callable[[Any, Any], torch.Tensor]:
        """A layer as inference calls it."""
        return lambda block, x: self.step(number, x, block.edge_index, block.num_dst)

    @property
    def layers(self) -> list[Any]:
        return [self.layer(number) for number in range(len(self.weights))]

    def whole(self, layout: Any) -> torch.Tensor:
        """The full-graph forward in memory."""
        ((x,), (edges,)) = (tuple(parts.values()) for parts in (all_rows(layout), all_edges(layout)))
        with torch.inference_mode():
            for number in range(len(self.weights)):
                x = self.step(number, x, edges, len(x))
        return x


class RelationalSage(torch.nn.Module):
    """Sums over relations of `mean` and a linear map, and one of the destination's own row, as RGCN; types alike."""

    def __init__(self, relations: Any, widths: dict[str, int], hidden: int, out: int) -> None:
        super().__init__()
        generator, weights = torch.Generator().manual_seed(6), {}
        for number, width in enumerate((hidden, out)):
            for name, source in [*((":".join(r), r[0]) for r in relations), *((t, t) for t in widths)]:
                rows = (widths[source] if number == 0 else hidden) if source in widths else 1
                weights[f"{number} {name}"] = torch.randn(rows, width, generator=generator) / rows**0.5
        self.weights = torch.nn.ParameterDict(weights)
        self.eval()

    def layer(self, number: int) -> Callable[[Any, Any], torch.Tensor | None]:
        def rows(block: Any, x: Any) -> torch.Tensor | None:
            t, count = block.node_type, block.num_dst
            parts = [x[t][:count].float() @ self.weights[f"{number} {t}"]] if t in x else []
            for relation, edges in block.edges.items():
                if relation[2] == t and relation[0] in x:
                    weight = self.weights[f"{number} {':'.join(relation)}"]
                    parts.append(mean(x[relation[0]].float(), edges, count) @ weight)
            return sum(parts) if parts else None

        return rows

    def whole(self, layout: Any) -> dict[str, torch.Tensor]:
        """The full-graph forward in memory."""
        x, edges = all_rows(layout), all_edges(layout)
        counts = {t: layout.artifact.graph.num_nodes(t) for t in layout.node_types}
        with torch.inference_mode():
            for number in range(2):
                blocks = {t: SimpleNamespace(node_type=t, num_dst=n, edges=edges) for t, n in counts.items()}
                rows = {t: self.layer(number)(block, x) for t, block in blocks.items()}
                x = {t: found for t, found in rows.items() if found is not None}
        return x


def layout_of(dataset: Any, folder: Path, **tiers: Any) -> Any:
    """A layout of a dataset, ordered by degree, with rows in memory and on ssd."""
    graph = tiering.import_graph(dataset, folder / "g")
    ordered = tiering.reorder_graph(graph, tiering.score_graph(graph, folder / "s", "degree"), folder / "r")
    return tiering.write_layout(ordered, folder / "l", ssd=[folder / "ssd"], **{"cpu": "20%", **tiers})


def digest(embeddings: Any) -> str:
    """A digest of all rows as they are stored."""
    return xxhash.xxh3_128_hexdigest(embeddings.manifest.array("rows").tobytes())
