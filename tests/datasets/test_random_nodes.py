"""Graphs without features: random features, labels and training nodes, and the error of a layout that has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refused

import tiering
from tiering.datasets import import_context
from tiering.datasets.generated import Population

NODES = 3000
ALL = {"random_features": 24, "random_labels": 7, "random_train": "1%"}


@pytest.fixture
def crawl(tmp_path: Path) -> Path:
    np.savetxt(tmp_path / "crawl.txt", np.random.default_rng(1).integers(0, NODES, (9000, 2)), "%d")
    return tmp_path / "crawl.txt"


def arrays(graph: Any, node_type: str = "node") -> list[np.ndarray]:
    parts = graph.feature_table(node_type).open(), graph.labels(node_type), graph.split("train", node_type)
    return [np.array(part) for part in parts]


def test_nodes_get_random_values(crawl: Path, tmp_path: Path, monkeypatch: Any) -> None:
    graph = tiering.import_graph(crawl, tmp_path / "a", num_nodes=NODES, **ALL, seed=5)
    assert tiering.check(graph.path, "full") == []
    rows, labels, train = arrays(graph)
    assert rows.shape == (NODES, 24) and rows.dtype == np.float32
    assert abs(rows.mean()) < 0.02 and abs(rows.std() - 1) < 0.02
    assert abs(np.corrcoef(rows, rowvar=False) - np.eye(24)).max() < 0.1
    assert graph.num_classes() == 7 and np.ptp(np.bincount(labels, minlength=7)) <= 1
    assert train.size == 30 == np.unique(train).size and train.max() < NODES
    assert graph.manifest.body["changes"]["random"] == {"node": {"features": 24, "labels": 7, "train": 0.01, "seed": 5}}
    again = arrays(tiering.import_graph(crawl, tmp_path / "b", num_nodes=NODES, **ALL, seed=5, memory="2GiB"))
    for one, other in zip((rows, labels, train), again, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(again, arrays(tiering.import_graph(crawl, tmp_path / "c", **ALL, seed=6)), strict=True):
        assert one.shape != other.shape or not np.array_equal(one, other)
    monkeypatch.setattr(import_context, "CHUNK", 100)
    population = Population(NODES, 1, 5, 0)
    for begin in (0, 1, 2999):  # an import that goes on
        first, piece = next(population.feature_blocks(24, 0.0, begin))
        np.testing.assert_array_equal(rows[first : first + len(piece)], piece)
        assert first <= begin
    np.testing.assert_array_equal(arrays(tiering.import_graph(crawl, tmp_path / "d", **ALL, seed=5))[1], labels)


def test_types_get_their_own(tmp_path: Path) -> None:
    pyg, torch = pytest.importorskip("torch_geometric.data"), pytest.importorskip("torch")
    data = pyg.HeteroData()
    data["user"].x, data["item"].num_nodes, data["shop"].num_nodes = torch.rand(50, 3), 50, 0
    data["user", "buys", "item"].edge_index = torch.randint(0, 50, (2, 200))
    features = {"item": 8, "shop": 8}
    graph = tiering.import_graph(data, tmp_path / "g", random_features=features, random_labels=4, random_train="50%")
    user, item = (graph.feature_table(node_type).open() for node_type in ("user", "item"))
    assert (user.shape, item.shape) == ((50, 3), (50, 8))
    assert graph.num_classes("item") == graph.num_classes("user") == 4
    assert not np.array_equal(graph.labels("item"), graph.labels("user"))
    assert not np.array_equal(graph.split("train", "item"), graph.split("train", "user"))
    text = tiering.import_graph(data, tmp_path / "h", random_features="item=8")
    np.testing.assert_array_equal(text.feature_table("item").open(), item)
    refused("--random-features: node type user of .* has features already.*TYPE=", data, random_features=8)


@pytest.mark.parametrize(("options", "words"), [
    ({"random_features": 3}, "--random-features: node type node of .* has features already"),
    ({"random_labels": 3}, "--random-labels: node type node of .* has labels already"),
    ({"random_train": "1%"}, "--random-train: node type node of .* has splits already"),
    ({"random_train": 5}, "expected a percentage above 0%, such as 1%, found 5"),
    ({"random_train": "0%"}, "expected a percentage above 0%"),
    ({"random_features": 0}, "expected a whole number of 1 or more, found 0"),
    ({"random_labels": "paper=3"}, "--random-labels: no node type paper; there are: node"),
    ({"seed": 3}, "--seed: applies to --random-features, --random-labels, --random-train"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(tiny_dataset: Path, options: dict[str, Any], words: str) -> None:
    refused(words, tiny_dataset, **options)


def test_sizes_of_tiers_need_features(crawl: Path, tmp_path: Path, tiering_cli: Any) -> None:
    for name, options in (("plain", []), ("random", ["--random-features", 24, "--random-train", "1%", "--seed", 2])):
        graph, scores, ranked = (tmp_path / f"{name}-{part}" for part in ("graph", "scores", "ranked"))
        tiering_cli("import", crawl, "--out", graph, *options).ok()
        tiering_cli("score", graph, "--method", "degree", "--out", scores).ok()
        tiering_cli("reorder", graph, "--scores", scores, "--out", ranked).ok()
    ranked, out = tmp_path / "plain-ranked", ("--out", tmp_path / "layout")
    for sizes in (["--cpu", "1GiB"], ["--gpu", "10%"], ["--ssd", tmp_path / "ssd"], ["--peer", "2x1MiB"]):
        result = tiering_cli("layout", ranked, *sizes, *out).refused("sizes of tiers need features, which the graph")
        assert "--random-features DIM, --random-labels CLASSES and --random-train 1%" in result
    assert not (tmp_path / "layout").exists() and not (tmp_path / "ssd").exists()
    tiering_cli("layout", ranked, *out).ok()
    tiering_cli("layout", tmp_path / "random-ranked", "--cpu", "10%", "--ssd", tmp_path / "ssd", *out, "--force").ok()
    with tiering.open(tmp_path / "layout") as layout:
        assert layout.feature_types == ["node"]
