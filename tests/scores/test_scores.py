"""Scores against another method (scipy, pushing along the edges) and against answers worked out by hand."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_datasets import toy_dataset, tree_bytes

from tiering.errors import InputError
from tiering.formats.dataset import Dataset, EdgeData, NodeData
from tiering.formats.user_arrays import resolve_train
from tiering.graph.build import build_graph
from tiering.scores.plan import METHODS, score_graph


def push(graph, values, damping, restart):
    """One sweep as sparse products, one per relation: each destination sends its share to its in-neighbors."""
    result = {t: restart[t].copy() for t in graph.node_types}
    for relation in graph.relations:
        source, _, destination = relation
        indptr, indices = graph.csc(relation)
        shape = (graph.num_nodes(source), graph.num_nodes(destination))
        degree = np.maximum(np.diff(indptr), 1)
        matrix = scipy.sparse.csc_matrix((np.ones(indices.size), indices, indptr), shape=shape)
        result[source] += damping * (matrix @ (values[destination] / degree))
    return result


def flat(graph, value):
    return {t: np.full(graph.num_nodes(t), value) for t in graph.node_types}


@settings(max_examples=12)
@given(seed=st.integers(0, 2**32), teleport=st.sampled_from(["uniform", "train"]), sweeps=st.integers(1, 6))
def test_equals_scipy_on_random_heterogeneous_graphs(seed, teleport, sweeps):
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        graph = build_graph(toy_dataset(where / "data", seed).dataset, where / "graph")
        train = resolve_train(graph)
        nodes, size = graph.num_nodes(), sum(ids.size for ids in train.values())
        start, restart = flat(graph, 1 / nodes), flat(graph, 0.15 / nodes if teleport == "uniform" else 0.0)
        for node_type, ids in train.items():
            start[node_type][ids] = 1 / size
            if teleport == "train":
                restart[node_type][ids] = 0.15 / size

        found = score_graph(graph, "wrpr", where / "wrpr", teleport=teleport, sweeps=sweeps, threads=2)
        values = start
        for _ in range(sweeps):
            values = push(graph, values, 0.85, restart)
        for node_type in graph.node_types:
            np.testing.assert_allclose(found.values(node_type), values[node_type], rtol=1e-12, atol=1e-15)

        found = score_graph(graph, "rpr", where / "rpr", teleport=teleport, tolerance=1e-12, threads=2)
        damping = 0.85 / max(sum(r[2] == t for r in graph.relations) for t in graph.node_types)
        values = flat(graph, 1 / nodes)
        for _ in range(300):
            values = push(graph, values, damping, restart)
        for node_type in graph.node_types:
            np.testing.assert_allclose(found.values(node_type), values[node_type], rtol=1e-8, atol=1e-11)

        found = score_graph(graph, "degree", where / "degree", threads=2)
        for node_type in graph.node_types:
            counts = np.zeros(graph.num_nodes(node_type))
            for relation in graph.relations:
                if relation[0] == node_type:
                    counts += np.bincount(graph.csc(relation)[1], minlength=counts.size)
            np.testing.assert_array_equal(found.values(node_type), counts)


def asymmetric(folder, train=None):
    """0 -> 1, 0 -> 2, 2 -> 1, 3 -> 2 : node 0 is read for everyone, node 1 for nobody."""
    edges = EdgeData(("node", "to", "node"), np.array([0, 0, 2, 3]), np.array([1, 2, 1, 2]))
    nodes = NodeData(4)
    if train is not None:
        nodes.splits = {"train": np.array(train, np.int64)}
    return build_graph(Dataset("small", "npy", {"node": nodes}, [edges]), folder / "graph")


def test_by_hand_one_sweep_flows_against_the_edges(tmp_path):
    graph = asymmetric(tmp_path, train=[1])
    # Start: 1/4 everywhere, 1 on the training node. Both 1 and 2 have two in-neighbors.
    found = score_graph(graph, "wrpr", tmp_path / "one", sweeps=1).values()
    base = 0.15 / 4
    expected = [base + 0.85 * (1 / 2 + 0.25 / 2), base, base + 0.85 * (1 / 2), base + 0.85 * (0.25 / 2)]
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    found = score_graph(graph, "degree", tmp_path / "degree").values()
    np.testing.assert_array_equal(found, [2, 0, 1, 1])


def test_relations_into_one_type_do_not_make_rpr_diverge(tmp_path):
    ids = np.arange(10)
    edges = [EdgeData(("node", f"rel{k}", "node"), ids, np.roll(ids, k)) for k in range(4)]
    graph = build_graph(Dataset("rings", "npy", {"node": NodeData(10)}, edges), tmp_path / "graph")
    scores = score_graph(graph, "rpr", tmp_path / "rpr")
    np.testing.assert_allclose(scores.values(), 0.1, rtol=1e-6)
    reached = scores.manifest.provenance["options"]["reached"]
    assert reached["damping"] == 0.85 / 4
    assert reached["residual"] < 1e-9


@pytest.mark.parametrize("method", METHODS)
def test_same_bytes_for_any_number_of_threads(tmp_path, method):
    toy = toy_dataset(tmp_path / "data", 11, max_nodes=3000, max_edges=20_000, min_nodes=2000, featureless=1)
    graph = build_graph(toy.dataset, tmp_path / "graph")
    options = {"fanouts": [5, 3], "batch_size": 100} if "fanouts" in METHODS[method].options else {}
    trees = []
    for threads in (1, 2, 7):
        score_graph(graph, method, tmp_path / str(threads), threads=threads, **options)
        trees.append(tree_bytes(tmp_path / str(threads)))
    assert trees[0] == trees[1] == trees[2]


def test_wrpr_without_a_training_set_says_how_to_give_one(tmp_path):
    graph = asymmetric(tmp_path)
    with pytest.raises(
        InputError, match=r"no split `train`; give one with `train`: a split .* a .npy file .* percentage .* 1%"
    ):
        score_graph(graph, "wrpr", tmp_path / "out")
    np.save(tmp_path / "ids.npy", np.array([1]))
    by_file = score_graph(graph, "wrpr", tmp_path / "file", train=tmp_path / "ids.npy")
    by_array = score_graph(graph, "wrpr", tmp_path / "array", train=np.array([1]))
    assert by_file.digest == by_array.digest


def test_training_sets(tmp_path):
    graph = asymmetric(tmp_path)
    drawn = resolve_train(graph, "50%", seed=3)["node"]
    np.testing.assert_array_equal(drawn, np.sort(np.random.default_rng(3).choice(4, 2, replace=False)))
    assert resolve_train(graph, "node=1%")["node"].size == 1
    np.testing.assert_array_equal(resolve_train(graph, {"node": [3, 1]})["node"], [3, 1])
    for train, message in (
        ([4], r"expected ids 0\.\.3, found 4 at position 0"),
        ([1, 1], "each id once, found 1 repeated, such as 1"),
        ([], "training set is empty"),
        ([0.5], "whole numbers"),
        ("0%", "above 0%"),
        ("missing.npy", "no file and no split has this name"),
        ("paper=1%", "no node type 'paper'"),
    ):
        with pytest.raises((InputError, FileNotFoundError), match=message):
            resolve_train(graph, train)


@pytest.mark.parametrize(("options", "message"), [
    ({"method": "pagerank"}, "auto, random, degree, rpr, wrpr, presample, vip, hybrid"),
    ({"depth": 3}, "no option depth; options: epochs"), ({"seed": -1}, "seed: expected a whole number"),
    ({"seed": "x"}, "seed: expected a whole number"), ({"damping": 1.0}, "0 to below 1"), ({"sweeps": 0}, "1 to 10000"),
    ({"teleport": "home"}, "one of uniform, train"), ({"method": "rpr", "tolerance": 0}, "between 0 and 1"),
])  # fmt: skip
def test_parameters_are_checked(tmp_path, options, message):
    graph = asymmetric(tmp_path, train=[1])
    with pytest.raises(InputError, match=message):
        score_graph(graph, out=tmp_path / "out", **{"method": "wrpr", **options})
    assert not (tmp_path / "out").exists()
