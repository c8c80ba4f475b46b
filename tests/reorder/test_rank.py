"""Orders: falling score, ties by id, only for the graph the scores belong to."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_datasets import toy_dataset

from tiering.errors import InputError
from tiering.graph import build_graph
from tiering.reorder import order_nodes
from tiering.scores import score_graph


@pytest.mark.slow
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_equals_a_stable_sort(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        graph = build_graph(toy_dataset(Path(folder) / "data", seed).dataset, Path(folder) / "graph")
        scores = score_graph(graph, "degree", Path(folder) / "scores")  # many ties
        orders = order_nodes(graph, scores, threads=2)
        for node_type in graph.node_types:
            expected = np.argsort(-scores.values(node_type), kind="stable")
            np.testing.assert_array_equal(orders[node_type], expected)
            assert orders[node_type].dtype == np.int32


def test_scores_of_another_graph_are_refused(tmp_path: Path) -> None:
    first = build_graph(toy_dataset(tmp_path / "data1", 1).dataset, tmp_path / "one")
    second = build_graph(toy_dataset(tmp_path / "data2", 2).dataset, tmp_path / "two")
    again = build_graph(toy_dataset(tmp_path / "data3", 1).dataset, tmp_path / "three", edge_ids=True)
    scores = score_graph(first, "degree", tmp_path / "scores")
    with pytest.raises(InputError, match=r"expected scores of the .* nodes of type"):
        order_nodes(second, scores)
    with pytest.raises(InputError, match=r"computed on another graph than .*three"):
        order_nodes(again, scores)
