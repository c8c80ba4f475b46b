"""Evaluation within a memory budget: the same figures for any, peaks below it."""

from __future__ import annotations

import numpy as np
import pytest
from toy_datasets import toy_dataset

from benchmarks.rmat import rmat_edges
from tiering.errors import BudgetError
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
def test_same_figures_for_any_memory(rmat, tmp_path, tiers, peak_memory):
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


@pytest.mark.parametrize("seed", range(4))
def test_heterogeneous(tmp_path, seed, peak_memory):
    toy = toy_dataset(tmp_path / "data", seed, max_nodes=300_000, max_edges=500_000, min_nodes=100_000, dims=(1, 3))
    graph = build_graph(toy.dataset, tmp_path / "graph")
    scores = named_scores(graph, [score_graph(graph, "degree", tmp_path / "degree")])
    train = sum(graph.split("train", t).size for t in graph.node_types)
    options = SamplingOptions([3, 2], batch_size=20_000)
    expected = evaluate(graph, scores, options, epochs=1, threads=2).to_json()
    need = evaluation_memory(graph, competing_rows(graph), options, scores=1, ssd=False, train=train)
    limit = own_memory() + need.minimum + MARGIN + 16 * train  # the training nodes themselves
    with peak_memory() as peak:
        found = evaluate(graph, scores, options, epochs=1, threads=2, memory=limit).to_json()
    assert found == expected
    assert peak.bytes <= limit


def test_below_the_least_says_how_much_it_needs(rmat):
    with pytest.raises(BudgetError, match=r"evaluate: 0 scores .* 2,097,152 rows.* give memory=\"\d+MiB") as told:
        evaluate(rmat, {}, OPTIONS, memory=own_memory() + 4 * MIB)
    enough = int(str(told.value).split('memory="')[1].split("MiB")[0])
    assert evaluate(rmat, {}, OPTIONS, epochs=1, memory=f"{enough + 16}MiB").batches
