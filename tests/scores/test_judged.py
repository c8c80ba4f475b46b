"""Scores of a heterogeneous graph of four types, judged by accesses of later epochs."""

from __future__ import annotations

import numpy as np
import pytest

from tiering import generate_dataset, pipeline
from tiering.evaluation import evaluate


@pytest.fixture(scope="module")
def hetero(tmp_path_factory):
    """The graph, and a function that scores it."""
    folder = tmp_path_factory.mktemp("hetero")
    generate_dataset(folder / "data", nodes=30_000, edges=300_000, dim=4, classes=4, seed=5, hetero=True)
    graph = pipeline.import_graph(folder / "data", folder / "graph")
    first = {name: 5 for _, name, _ in graph.relations} | {"cites": 10, "rev_topic": 2}
    second = {name: 3 for _, name, _ in graph.relations} | {"affiliated_to": 0, "topic": -1}
    sampling = {"fanouts": [first, second], "batch_size": 128}

    def score(method, **options):
        given = sampling if method in ("presample", "vip", "hybrid") else {}
        return pipeline.score_graph(graph, folder / method, method, **given, **options, force=True)

    return graph, sampling, score


def test_scores_beat_degree(hetero):
    graph, sampling, score = hetero
    scores = {method: score(method) for method in ("degree", "wrpr", "presample", "vip", "hybrid")}
    judged = evaluate(
        graph, scores, sampling["fanouts"], batch_size=128, epochs=3, first_epoch=50, row_bytes=1,
        shares=[0.01, 0.05, 0.10, 0.20],
    )  # fmt: skip
    rates = {method: np.array(found) for method, found in judged.hit_rates.items()}
    for method in ("presample", "vip", "hybrid"):
        # At 1 % all know the rows that nearly every batch reads.
        assert (rates[method] > np.array([1.0, 1.1, 1.1, 1.1]) * rates["degree"]).all(), rates
    for method in ("vip", "hybrid"):
        assert (rates[method] > rates["wrpr"]).all(), rates
        assert (rates[method] > 0.97 * rates["oracle"]).all(), rates
    assert (rates["hybrid"] >= np.maximum(rates["vip"], rates["presample"]) - 0.004).all(), rates


def test_sums_have_the_scale_of_every_type(hetero):
    """Types compete: the sums must be near the counts, though vip takes paths for independent."""
    _, _, score = hetero
    counted, expected, mixed = score("presample", epochs=20, seed=3), score("vip"), score("hybrid")
    for node_type in counted.node_types:
        total = counted.values(node_type).sum()
        assert mixed.values(node_type).sum() == pytest.approx(total, rel=0.02)
        assert expected.values(node_type).sum() == pytest.approx(total, rel=0.25)
    for relation in counted.relations:
        total = counted.adjacency(relation).sum()
        assert mixed.adjacency(relation).sum() == pytest.approx(total, rel=0.02, abs=1e-9)
        assert expected.adjacency(relation).sum() == pytest.approx(total, rel=0.25, abs=1e-9)
