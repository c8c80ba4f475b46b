"""Hit rates: by hand on a small graph, the published figures on cnr-2000, the plot, bad input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiering.errors import CapabilityError, InputError
from tiering.formats.graph import Graph
from tiering.formats.train_set import resolve_train
from tiering.graph.build import build_graph
from tiering.order.by_score import order_nodes
from tiering.reorder.adjacency import reorder_graph
from tiering.sampling import NeighborSampler
from tiering.scores import score_graph
from tiering.scores.evaluate import Evaluation, count_epochs, evaluate, hit_rate_curve, named_scores
from tiering.scores.plot import plot
from tiering.sources.detect import open_dataset


def import_graph(folder: Path, out: Path) -> Graph:
    with open_dataset(folder) as dataset:
        return build_graph(dataset, out)


@pytest.fixture(scope="module")
def star(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Nodes 1 .. 9 aggregate node 0; no features, no split."""
    folder = tmp_path_factory.mktemp("star")
    np.save(folder / "edge_index.npy", np.stack([np.zeros(9, np.int64), np.arange(1, 10)]))
    return import_graph(folder, folder / "graph")


def test_by_hand(star: Graph) -> None:
    """Training nodes 1 and 2, one per batch: each batch reads itself and node 0, so 0 has half of 4 accesses."""
    scores = {"good": {"node": np.arange(10)[::-1]}, "bad": {"node": np.arange(10)}}
    found = evaluate(star, scores, [1], batch_size=1, epochs=3, train=[1, 2], shares=[0, 0.1, 0.2, 0.3, 1])
    assert (found.accesses, found.batches, found.touched, found.num_rows) == (12, 6, 3, 10)
    assert found.hit_rates["good"] == found.hit_rates["oracle"] == [0, 0.5, 0.75, 1, 1]
    assert found.hit_rates["bad"] == [0, 0, 0, 0, 1]
    assert [name for name, _ in found.rows()] == ["good", "bad", "oracle"]
    assert found.to_json()["parameters"]["train_nodes"] == {"node": 2}
    assert found.table().splitlines()[0].split() == ["rows", "cached", "0%", "10%", "20%", "30%", "100%"]
    for curve in found.curves.values():
        assert curve[0] == 0 and curve[-1] == 1 and np.all(np.diff(curve) >= 0)


def test_ties_go_to_the_lower_row() -> None:
    rates = hit_rate_curve(np.array([4, 3, 2, 1]), np.array([1.0, 0, 1, 0]), np.array([1, 2, 3, 4]))
    assert rates.tolist() == [0.4, 0.6, 0.9, 1.0]
    assert hit_rate_curve(np.zeros(3, np.int64), np.zeros(3), np.array([0, 3])).tolist() == [0, 0]


def test_no_train_split_says_how_to_give_one(star: Graph) -> None:
    with pytest.raises(InputError, match=r"no split `train`; give one with --train"):
        evaluate(star, {}, [2])
    assert evaluate(star, {}, [2], train="20%", epochs=1).parameters["train_nodes"] == {"node": 2}


@pytest.mark.parametrize(
    ("scores", "options", "words"),
    [
        ({"s": {"node": np.zeros(9)}}, {}, r"score 's', node type 'node': expected shape \(10,\)"),
        ({"s": {"node": np.full(10, np.nan)}}, {}, "expected finite values, found nan at node 0"),
        ({"oracle": {"node": np.zeros(10)}}, {}, "another name"),
        ({}, {"epochs": 0}, "epochs: expected 1 or more"),
        ({}, {"shares": [1.5]}, "between 0 and 1, found 1.5"),
        ({}, {"batch_size": 0}, "batch size: expected 1 or more"),
    ],
)
def test_bad_input(star: Graph, scores: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        evaluate(star, scores, [2], train=[1], **options)


def test_types_compete_on_one_scale(tmp_path: Path) -> None:
    """Two types with features: `b`'s only row is read by every batch, each row of `a` by one batch."""
    source = tmp_path / "source"
    for name in ("a", "b", "b__to__a"):
        (source / name).mkdir(parents=True)
    np.save(source / "a/node_feat.npy", np.zeros((4, 2), np.float32))
    np.save(source / "b/node_feat.npy", np.zeros((1, 3), np.float16))
    np.save(source / "a/train_idx.npy", np.arange(4))
    np.save(source / "b__to__a/edge_index.npy", np.array([[0, 0, 0, 0], [0, 1, 2, 3]]))
    graph = import_graph(source, tmp_path / "graph")
    found = evaluate(
        graph, {"b first": {"b": [1.0]}}, [{"b:to:a": 1}], batch_size=1, epochs=1, shares=[0.2, 0.4], threads=2
    )
    assert found.num_rows == 5 and found.accesses == 8
    assert found.hit_rates == {"b first": [0.5, 0.625], "oracle": [0.5, 0.625]}


def test_scores_of_another_graph_are_refused(star: Graph, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    np.save(other / "edge_index.npy", np.array([[0, 1], [1, 0]]))
    degree = score_graph(star, "degree", tmp_path / "degree")
    twice = named_scores(star, [degree, score_graph(star, "degree", tmp_path / "again")])
    assert list(twice) == ["degree (degree)", "degree (again)"]
    with pytest.raises(InputError, match="computed on another graph"):
        named_scores(import_graph(other, tmp_path / "graph"), [degree])


@pytest.fixture(scope="module")
def cnr(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Graph, Evaluation]:
    graph = import_graph(shared_data / "cnr-2000", tmp_path_factory.mktemp("cnr") / "graph")
    folder = tmp_path_factory.mktemp("scores")
    scores = [score_graph(graph, method, folder / method, train="1%") for method in ("degree", "wrpr")]
    named = named_scores(graph, scores)
    shares = [0.01, 0.05, 0.10, 0.20]
    return graph, evaluate(graph, named, [10, 10, 10], batch_size=256, train="1%", shares=shares)


def test_published_hit_rates_on_cnr_2000(cnr: tuple[Graph, Evaluation]) -> None:
    """Figures measured with DGL's sampler as judge; a wrong direction of the edges gives .03 .14 .24 .46."""
    rates = cnr[1].hit_rates
    assert rates["degree"] == pytest.approx([0.078, 0.218, 0.245, 0.422], abs=0.008)
    assert rates["wrpr"] == pytest.approx([0.100, 0.261, 0.429, 0.649], abs=0.008)
    assert rates["oracle"] == pytest.approx([0.157, 0.432, 0.633, 0.917], abs=0.008)


def test_a_reordered_graph_makes_the_same_accesses(cnr: tuple[Graph, Evaluation], tmp_path: Path) -> None:
    graph, found = cnr
    degree = score_graph(graph, "degree", tmp_path / "degree")
    image = reorder_graph(graph, degree, order_nodes(graph, degree), tmp_path / "reordered")
    ids = resolve_train(graph, "1%")["node"]
    images = image.old_to_new()[ids]
    shares = found.shares
    again = evaluate(image, {"degree": degree}, [10, 10, 10], batch_size=256, train=images, shares=shares)
    assert again.hit_rates["degree"] == found.hit_rates["degree"]
    assert again.hit_rates["oracle"] == found.hit_rates["oracle"]
    ours, theirs = (NeighborSampler(g, [5, 5, 5], seed=3) for g in (graph, image))
    for b in range(3):
        a = ours.sample(ids[b * 50 : b * 50 + 50], epoch=1, batch=b)
        c = theirs.sample(images[b * 50 : b * 50 + 50], epoch=1, batch=b)
        assert image.new_to_old()[c.nodes["node"]].tolist() == a.nodes["node"].tolist()
        relation = graph.relations[0]
        assert [h[relation].src.tolist() for h in a.hops] == [h[relation].src.tolist() for h in c.hops]


def test_threads_do_not_matter(cnr: tuple[Graph, Evaluation]) -> None:
    graph, found = cnr
    again = evaluate(graph, {}, [10, 10, 10], batch_size=256, train="1%", shares=found.shares, threads=7)
    assert again.hit_rates["oracle"] == found.hit_rates["oracle"]
    counts, batches = count_epochs(
        NeighborSampler(graph, [10, 10, 10]), {"node": np.arange(512)}, 256, range(2), threads=3
    )
    assert batches == 4 and counts.total > 0


def test_plot(cnr: tuple[Graph, Evaluation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    assert plot(cnr[1], tmp_path / "curves.png").stat().st_size > 10_000
    with pytest.raises(InputError, match="expected a file name ending in one of"):
        plot(cnr[1], tmp_path / "curves.doc")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(CapabilityError, match=r"pip install 'tiering\[plot\]'"):
        plot(cnr[1], tmp_path / "again.png")
