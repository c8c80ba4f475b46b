"""Layouts of graphs whose nodes have names, numbers or positions as ids in the source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import tiering

KINDS = ("names", "numbers", "first", "positions")
_IMPORTS: dict[str, dict[str, Any]] = {
    "names": {"string_ids": True},
    "numbers": {"compact_ids": True},
    "first": {"first_id": 1},
}


def source_ids(kind: str, count: int) -> list[Any]:
    """The ids of nodes in the source, in the order of their original ids."""
    if kind == "names":
        return sorted((f"Q{7 * k}é" for k in range(count)), key=str.encode)
    return [{"numbers": 10**10 + 3 * k, "first": k + 1, "positions": k}[kind] for k in range(count)]


def named_layout(folder: Path, kind: str, count: int = 60, dim: int | None = 5) -> Any:
    """A layout in an order of its own, with random features; edges join all nodes in a ring, and some at random."""
    folder.mkdir(parents=True, exist_ok=True)
    ids, rng = source_ids(kind, count), np.random.default_rng(3)
    ends = np.concatenate(
        [[np.arange(count), (np.arange(count) + 1) % count], rng.integers(0, count, (2, 3 * count))], 1
    )
    (folder / "edges.tsv").write_text("".join(f"{ids[u]}\t{ids[v]}\n" for u, v in ends.T))
    graph = tiering.import_graph(
        folder / "edges.tsv",
        folder / "graph",
        "edgelist",
        **({} if dim is None else {"random_features": dim}),
        **_IMPORTS.get(kind, {}),
    )
    scores = tiering.score_graph(graph, folder / "scores", scores=rng.permutation(count).astype(np.float64))
    ordered = tiering.reorder_graph(graph, scores, folder / "reordered")
    tiers = {} if dim is None else {"cpu": "30%", "ssd": [folder / "ssd"]}
    return tiering.write_layout(ordered, folder / "layout", **tiers)
