"""A score that counted the very epochs of a run knows its future: the oracle's hit rates, and what ranks read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiering
from tiering import generate_dataset, pipeline
from tiering.evaluation import evaluate
from tiering.formats.graph import Graph
from tiering.sampling import SamplingOptions

HETERO = [
    {"cites": 6, "written_by": 4, "rev_written_by": 3, "topic": 2, "rev_topic": 2}
    | {"affiliated_to": 1, "rev_affiliated_to": 2},
    {"cites": 3, "written_by": 0, "rev_written_by": 3, "topic": 2, "rev_topic": 1}
    | {"affiliated_to": -1, "rev_affiliated_to": 1},
]


@pytest.fixture(params=["one type", "four types"])
def prepared(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Graph, Any]:
    hetero = request.param == "four types"
    generate_dataset(tmp_path / "data", nodes=4000, edges=40_000, dim=8, classes=3, seed=3, hetero=hetero)
    return pipeline.import_graph(tmp_path / "data", tmp_path / "graph"), HETERO if hetero else [6, 4]


@pytest.mark.parametrize("frontier", ["all", "new"])
def test_hit_rates_equal_the_oracles_to_the_last_access(prepared: Any, tmp_path: Path, frontier: str) -> None:
    graph, fanouts = prepared
    run = {"fanouts": fanouts, "batch_size": 64, "frontier": frontier, "seed": 21}
    exact = pipeline.score_graph(graph, tmp_path / "exact", "presample", **run, epochs=3, first_epoch=2)
    other = pipeline.score_graph(graph, tmp_path / "other", "presample", **run, epochs=3, first_epoch=5)
    found = evaluate(graph, {"exact": exact, "other": other}, SamplingOptions(**run), epochs=3, first_epoch=2)
    assert found.hit_rates["exact"] == found.hit_rates["oracle"]
    assert found.hit_rates["other"] != found.hit_rates["oracle"]
    total = sum(exact.values(t).sum() for t in graph.node_types)
    assert round(3 * total) == found.accesses


def test_ranks_together_read_what_was_counted(prepared: Any, tmp_path: Path) -> None:
    """Whole rounds of batches: the 400 and 200 seeds are 8 and 4 batches."""
    graph, fanouts = prepared
    run = {"fanouts": fanouts, "batch_size": 50, "seed": 4}
    scores = pipeline.score_graph(graph, tmp_path / "scores", "presample", **run, epochs=1, first_epoch=1)
    reordered = pipeline.reorder_graph(graph, scores, tmp_path / "reordered")
    pipeline.layout(reordered, tmp_path / "layout", gpu="10%", cpu="30%", ssd=[tmp_path / "ssd"])
    with tiering.open(tmp_path / "layout") as layout:
        read = {t: np.zeros(layout.num_nodes(t), np.int64) for t in layout.node_types}
        for rank in range(4):
            for batch in layout.loader("train", **run, features=None, rank=rank, world_size=4).epoch(1):
                for node_type, ids in batch.nodes.items():
                    read[node_type][ids.numpy()] += 1
        for node_type, counts in read.items():
            counted = scores.values(node_type)[layout.new_to_old(node_type)]
            np.testing.assert_array_equal(counts, np.rint(counted).astype(np.int64))
