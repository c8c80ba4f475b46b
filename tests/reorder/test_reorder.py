"""Relabeling: the same graph under new names, with everything that belongs to nodes and edges."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_datasets import chain, toy_dataset, tree_bytes

import tiering
from tiering import pipeline
from tiering.errors import InputError
from tiering.formats.graph import Graph
from tiering.graph.build import build_graph
from tiering.reorder.rank import check_scores


@pytest.mark.slow
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32), features=st.booleans())
def test_the_same_graph_under_new_names(seed, features):
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        toy = toy_dataset(where / "data", seed)
        graph, scores, _ = chain(toy, where, edge_ids=True)
        reordered = pipeline.reorder_graph(graph, scores, where / "other", features=features, threads=2)
        assert tiering.check(reordered.path, "full") == []
        _check_columns(graph, reordered)
        for node_type in graph.node_types:
            new_to_old = reordered.new_to_old(node_type)
            order = reordered.order
            assert order is not None
            np.testing.assert_array_equal(order.score(node_type), scores.values(node_type)[new_to_old])
            for name in graph.splits(node_type):
                np.testing.assert_array_equal(
                    new_to_old[reordered.split(name, node_type)], graph.split(name, node_type)
                )
            labels, expected = reordered.labels(node_type), graph.labels(node_type)
            assert (labels is None) == (expected is None)
            if labels is not None and expected is not None:
                np.testing.assert_array_equal(labels, expected[new_to_old])
            ids = f"nodes/{node_type}/original_id"
            np.testing.assert_array_equal(reordered.manifest.array(ids), graph.manifest.array(ids)[new_to_old])
            table = reordered.feature_table(node_type)
            assert (table is None) == (node_type not in toy.tables)
            if table is not None:
                expected = toy.tables[node_type]
                np.testing.assert_array_equal(table.open(), expected[new_to_old] if features else expected)
                assert table.row_order == ("rank" if features else "original")


def _check_columns(graph: Graph, reordered: Graph) -> None:
    """Column v of the reordered graph is column ``new_to_old[v]`` of the graph, in the same order."""
    for relation in graph.relations:
        source, _, destination = relation
        old_indptr, old_indices = graph.csc(relation)
        indptr, indices = reordered.csc(relation)
        sources, data = reordered.new_to_old(source), reordered.edge_data(relation)
        for column, old in enumerate(reordered.new_to_old(destination)):
            here, there = slice(*indptr[column : column + 2]), slice(*old_indptr[old : old + 2])
            np.testing.assert_array_equal(sources[indices[here]], old_indices[there])
            for name, values in graph.edge_data(relation).items():
                np.testing.assert_array_equal(data[name][here], values[there])


def test_same_bytes_for_any_number_of_threads(tmp_path):
    graph, scores, _ = chain(toy_dataset(tmp_path / "data", 3, max_edges=3000), tmp_path, edge_ids=True)
    trees = []
    for threads in (1, 2, 7):
        pipeline.reorder_graph(graph, scores, tmp_path / str(threads), features=True, threads=threads)
        trees.append(tree_bytes(tmp_path / str(threads)))
    assert trees[0] == trees[1] == trees[2]


def test_a_changed_feature_file_is_refused(tmp_path):
    toy = toy_dataset(tmp_path / "data", 3, featureless=0)
    graph, scores, _ = chain(toy, tmp_path)
    path = tmp_path / "data" / "paper.bin"
    original = path.read_bytes()
    for content in (original[:-1], bytes(len(original))):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"paper.bin: the feature file changed since the graph was imported"):
            pipeline.reorder_graph(graph, scores, tmp_path / "out", features=True)
        assert not (tmp_path / "out").exists()


def test_scores_of_another_graph_are_refused(tmp_path):
    first = build_graph(toy_dataset(tmp_path / "data1", 1).dataset, tmp_path / "one")
    second = build_graph(toy_dataset(tmp_path / "data2", 2).dataset, tmp_path / "two")
    again = build_graph(toy_dataset(tmp_path / "data3", 1).dataset, tmp_path / "three", edge_ids=True)
    scores = pipeline.score_graph(first, tmp_path / "scores", "degree")
    with pytest.raises(InputError, match=r"expected scores of the .* nodes of type"):
        check_scores(second, scores)
    with pytest.raises(InputError, match=r"computed on another graph than .*three"):
        check_scores(again, scores)
