"""Evaluation within a memory budget: the same figures for any, peaks below it."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.rmat import rmat_edges
from tiering.evaluation import evaluate, named_scores
from tiering.evaluation.cache_order import competing_rows
from tiering.evaluation.counting import evaluation_memory
from tiering.formats.dataset import Dataset, EdgeData, NodeData
from tiering.graph.build import build_graph
from tiering.layout.tiers import parse_capacities
from tiering.memory import own_memory
from tiering.sampling import SamplingOptions
from tiering.scores.plan import score_graph

MIB = 1 << 20
MARGIN = 4 * MIB
"""For what is allocated between the look at the memory and the check of the budget."""
OPTIONS = SamplingOptions([5, 3], batch_size=400)
TIERS = parse_capacities("2%", None, "10%", ssd=True)


@pytest.fixture(scope="module")
def rmat(tmp_path_factory):
    """2^21 nodes, 16 M edges, 1 % train."""
    src, dst = rmat_edges(21, 16_000_000, 5, scramble=True)
    nodes = NodeData(1 << 21)
    nodes.splits = {"train": np.random.default_rng(0).permutation(1 << 21)[: (1 << 21) // 100]}
    data = Dataset("rmat", "npy", {"node": nodes}, [EdgeData(("node", "to", "node"), src, dst)])
    return build_graph(data, tmp_path_factory.mktemp("rmat") / "graph")


@pytest.mark.slow
@pytest.mark.parametrize("tiers", [None, TIERS], ids=["shares", "tiers"])
def test_same_figures_for_any_memory(rmat, tmp_path, tiers, peak_memory, settled_memory):
    scores = named_scores(rmat, [score_graph(rmat, method, tmp_path / method) for method in ("degree", "wrpr")])
    asked = {"tiers": tiers, "row_bytes": 512, "resamples": 20, "epochs": 1}
    expected = evaluate(rmat, scores, OPTIONS, threads=2, memory="8GiB", **asked).to_json()
    rows = competing_rows(rmat, 512)
    need = evaluation_memory(rmat, rows, OPTIONS, scores=2, ssd=tiers is not None, train=(1 << 21) // 100)
    for threads, memory in ((1, need.minimum), (2, need.minimum), (7, need.minimum + 2 * need.batch)):
        limit = own_memory() + memory + MARGIN
        with peak_memory() as peak:
            found = evaluate(rmat, scores, OPTIONS, threads=threads, memory=limit, **asked).to_json()
        assert found == expected
        assert peak.bytes <= limit
