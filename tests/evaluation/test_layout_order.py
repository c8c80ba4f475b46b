"""Evaluation of a layout: its order and its tiers, for other training nodes than those that it was made for."""

from __future__ import annotations

import numpy as np
import pytest
from judged_graphs import import_graph
from named_layouts import named_layout

import tiering
from tiering.errors import InputError
from tiering.formats.layout import TIERS


@pytest.fixture(scope="module", params=[False, True], ids=["one type", "several types"])
def made(request, tmp_path_factory):
    """A graph, scores, and a layout with rows in every tier; types have rows of several sizes."""
    folder = tmp_path_factory.mktemp("layout")
    tiering.generate_dataset(folder / "d", nodes=3000, edges=30_000, dim=8, classes=3, seed=1, hetero=request.param)
    graph = import_graph(folder / "d", folder / "g")
    scores = tiering.score_graph(graph, folder / "s", "vip", fanouts=[5, 5], batch_size=128)
    ordered = tiering.reorder_graph(graph, scores, folder / "r")
    tiers = {"gpu": "10%", "peer": "2x10%", "cpu": "30%", "ssd": [folder / "ssd"]}
    return graph, scores, tiering.write_layout(ordered, folder / "l", **tiers)


ASKED = {"fanouts": [5, 5], "batch_size": 128, "epochs": 2, "first_epoch": 0}


def test_the_order_and_the_tiers_are_the_layouts(made):
    _, _, layout = made
    found = tiering.evaluate_scores(layout, **ASKED)
    assert list(found.hit_rates) == ["layout", "oracle"]
    ranges = found.tiers["layout"].ranges
    for t in layout.feature_types:
        own = layout.artifact.type_layout(t).ranges
        assert all(abs(a - b) <= 1 for tier in TIERS for a, b in zip(ranges[t][tier], own[tier], strict=True)), t


def test_new_training_nodes_by_the_ids_of_the_source(made, tmp_path, tiering_cli):
    graph, scores, layout = made
    node_type = graph.node_types[graph.node_types.index("paper") if "paper" in graph.node_types else 0]
    ids = np.random.default_rng(2).permutation(graph.num_nodes(node_type))[:200]
    np.save(tmp_path / "new.npy", ids)
    train = f"{node_type}={tmp_path / 'new.npy'}"
    found = tiering.evaluate_scores(layout, [scores], train={node_type: ids}, **ASKED)
    before = tiering.evaluate_scores(graph, [scores], train=train, **ASKED)
    assert found.parameters["train_nodes"] == {node_type: 200}
    if len(graph.node_types) == 1:  # the order of that very score; sampled in ranks, so draws are the same
        np.testing.assert_allclose(found.hit_rates["layout"], found.hit_rates["vip"], atol=0.002)
    np.testing.assert_allclose(found.hit_rates["oracle"], before.hit_rates["oracle"])
    command = ("evaluate", layout.path, "--train", train, "--fanouts", "5,5", "--batch-size", 128, "--epochs", 2)
    printed = tiering_cli(*command, "--json").ok().json
    assert printed["hit_rates"]["layout"] == found.hit_rates["layout"] and "layout" in printed["tiers"]["scores"]
    tiering_cli("evaluate", layout.path, "--train", f"{node_type}=none.npy").refused("none.npy")


@pytest.mark.parametrize("tiers", [{"peer": "2xauto"}, {"gpu": "100%"}, {"gpu": "20%", "cpu": "auto"}])
def test_layouts_without_a_disk(made, tmp_path, tiers):
    _, _, layout = made
    other = tiering.write_layout(layout.graph, tmp_path / "l", **tiers)
    ranges = tiering.evaluate_scores(other, **ASKED).tiers["layout"].ranges
    for t in other.feature_types:
        own = other.artifact.type_layout(t).ranges
        assert all(abs(a - b) <= 1 for tier in TIERS for a, b in zip(ranges[t][tier], own[tier], strict=True)), t


def test_a_layout_without_rows(tmp_path):
    layout = named_layout(tmp_path, "positions", dim=None)
    with pytest.raises(InputError, match="the layout has no feature rows to evaluate; evaluate its graph"):
        tiering.evaluate_scores(layout, train=[1, 2], **ASKED)


def test_what_is_refused(made, tmp_path, tiering_cli):
    _, scores, layout = made
    words = "expected a graph or a layout to evaluate, found scores"
    tiering_cli("evaluate", scores.path).refused(f"{scores.path}: {words}")
    with pytest.raises(InputError, match="expected ids 0"):
        tiering.evaluate_scores(layout, train={layout.feature_types[0]: [10**7]}, **ASKED)
