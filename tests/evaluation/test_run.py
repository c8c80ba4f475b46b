"""Hit rates: by hand on a small graph, the published figures on cnr-2000, unseen epochs, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from judged_graphs import import_graph, star_graph

from tiering.errors import InputError
from tiering.evaluation import evaluate, named_scores
from tiering.evaluation.run import unseen_epoch
from tiering.formats.user_arrays import resolve_train
from tiering.layout import parse_capacities
from tiering.reorder import reorder_graph
from tiering.sampling import SamplingOptions
from tiering.scores import score_graph


@pytest.fixture(scope="module")
def star(tmp_path_factory):
    return star_graph(tmp_path_factory.mktemp("star"))


def test_by_hand(star):
    """Training nodes 1 and 2, one per batch: each batch reads itself and node 0, so 0 has half of 4 accesses."""
    scores = {"good": {"node": np.arange(10)[::-1]}, "bad": {"node": np.arange(10)}}
    found = evaluate(star, scores, [1], batch_size=1, epochs=3, train=[1, 2], shares=[0, 0.1, 0.2, 0.3, 1])
    assert (found.accesses, found.batches, found.touched_rows, found.num_rows) == (12, 6, 3, 10)
    assert found.hit_rates["good"] == found.hit_rates["oracle"] == [0, 0.5, 0.75, 1, 1]
    assert found.hit_rates["bad"] == [0, 0, 0, 0, 1]
    assert found.names() == ["good", "bad", "oracle"]
    assert found.cached_rows["bad"] == [0, 1, 2, 3, 10]
    assert found.to_json()["parameters"]["train_nodes"] == {"node": 2}
    assert found.table().splitlines()[0].split() == ["bytes", "cached", "0%", "10%", "20%", "30%", "100%"]
    for curve in found.curves.values():
        assert curve[0] == 0 and curve[-1] == 1 and np.all(np.diff(curve) >= 0)


def test_ties_go_to_the_lower_row(star):
    """Node 0 and node 1 have the score 1 and node 2 nothing: 0 comes first, then 1."""
    equal = {"node": [1, 1, 0, 0, 0, 0, 0, 0, 0, 0]}
    found = evaluate(star, {"s": equal}, [1], batch_size=1, epochs=1, train=[1, 2], shares=[0.1, 0.2, 0.3])
    assert found.hit_rates["s"] == [0.5, 0.75, 1]


def test_no_train_split_says_how_to_give_one(star):
    with pytest.raises(InputError, match=r"no split `train`; give one with --train"):
        evaluate(star, {}, [2])
    assert evaluate(star, {}, [2], train="20%", epochs=1).parameters["train_nodes"] == {"node": 2}


@pytest.mark.parametrize(
    ("scores", "options", "words"),
    [
        ({"s": {"node": np.zeros(9)}}, {}, r"score 's', node type 'node': expected shape \(10,\)"),
        ({"s": {"node": np.full(10, np.nan)}}, {}, "expected finite values of 0 or more, found nan at node 0"),
        ({"s": {"node": -np.ones(10)}}, {}, "expected finite values of 0 or more, found -1.0 at node 0"),
        ({"oracle": {"node": np.zeros(10)}}, {}, "another name"),
        ({}, {"epochs": 0}, "epochs: expected 1 or more"),
        ({}, {"first_epoch": -1}, "first epoch: expected 0 or more"),
        ({}, {"shares": [1.5]}, "between 0 and 1, found 1.5"),
        ({}, {"shares": []}, "1 to 50 capacities, found 0"),
        ({}, {"shares": [0.5] * 51}, "1 to 50 capacities, found 51"),
        ({}, {"batch_size": 0}, "batch size: expected a whole number, 1 or more"),
        ({}, {"resamples": -1}, "resamples: expected 0 or more"),
        ({}, {"row_bytes": 0}, "row bytes of 'node': expected a whole number of bytes from 1"),
        ({}, {"row_bytes": {"paper": 4}}, "row bytes: no node type 'paper'; types: node"),
    ],
)
def test_bad_input(star, scores, options, words):
    with pytest.raises(InputError, match=words):
        evaluate(star, scores, [2], train=[1], **options)


def test_sampling_options_stand_alone(star):
    options = SamplingOptions([1], batch_size=1, seed=3)
    whole = evaluate(star, {}, options, train=[1, 2])
    assert whole.to_json() == evaluate(star, {}, [1], batch_size=1, seed=3, train=[1, 2]).to_json()
    with pytest.raises(InputError, match="batch_size: expected inside the sampling options"):
        evaluate(star, {}, options, train=[1, 2], batch_size=1)


def test_sizes_are_refused_before_anything_is_sampled(star, monkeypatch):
    monkeypatch.setattr("tiering.evaluation.counting.ReferenceEpochs.count", None)
    for sizes in ({"gpu": "1GiB"}, {"gpu": "10%", "cpu": "10%"}):
        with pytest.raises(InputError, match="every row counts as 1 B"):
            evaluate(star, {}, [2], train=[1], tiers=parse_capacities(**sizes))


def test_scores_of_another_graph_are_refused(star, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    np.save(other / "edge_index.npy", np.array([[0, 1], [1, 0]]))
    degree = score_graph(star, "degree", tmp_path / "degree")
    twice = named_scores(star, [degree, score_graph(star, "degree", tmp_path / "again")])
    assert list(twice) == ["degree (degree)", "degree (again)"]
    with pytest.raises(InputError, match="computed on another graph"):
        named_scores(import_graph(other, tmp_path / "graph"), [degree])


@pytest.fixture(scope="module")
def tolokers(shared_data, tmp_path_factory):
    return import_graph(shared_data / "tolokers", tmp_path_factory.mktemp("tolokers") / "graph")


def test_the_exact_future_is_the_oracle(tolokers, tmp_path):
    """Pre-sampled with the run's own seed and epochs, a score serves what the oracle serves, to the last access."""
    options = {"fanouts": [10, 10], "batch_size": 256, "seed": 7}
    future = score_graph(tolokers, "presample", tmp_path / "s", epochs=2, **options)
    shares = [0.001, 0.01, 0.05, 0.1, 0.2, 0.4, 0.8]
    judged = {"sampling": options.pop("fanouts"), "shares": shares, "epochs": 2, **options}
    found = evaluate(tolokers, {"future": future}, first_epoch=0, **judged)
    assert found.hit_rates["future"] == found.hit_rates["oracle"]
    assert found.curves["future"].tolist() == found.curves["oracle"].tolist()
    assert found.overlap == ["future"] and found.to_json()["epochs"]["seen"] == {"future": [0, 2]}
    unseen = evaluate(tolokers, {"past": future}, **judged)
    assert unseen.epochs == range(2, 4) and unseen.overlap == []
    past, best = unseen.hit_rates["past"], unseen.hit_rates["oracle"]
    assert all(ours <= most for ours, most in zip(past, best, strict=True)) and past[3] < best[3]


def test_epochs_judged_by_default_are_unseen(star, tmp_path):
    options = {"fanouts": [1], "train": [1, 2, 3], "batch_size": 2}
    early = score_graph(star, "presample", tmp_path / "early", epochs=2, seed=0, **options)
    late = score_graph(star, "presample", tmp_path / "late", epochs=3, first_epoch=4, seed=0, **options)
    other = score_graph(star, "presample", tmp_path / "other", epochs=9, seed=1, **options)
    wrpr = score_graph(star, "wrpr", tmp_path / "wrpr", train=[1, 2, 3])
    assert unseen_epoch({"wrpr": wrpr, "vector": {"node": np.zeros(10)}}, 0) == 0
    assert unseen_epoch({"early": early, "other": other}, 0) == 2
    assert unseen_epoch({"early": early, "late": late, "other": other}, 0) == 7
    assert unseen_epoch({"early": early, "other": other}, 1) == 9
    between = evaluate(star, {"early": early, "late": late}, [1], train=[1, 2, 3], epochs=2, first_epoch=3)
    assert between.overlap == ["late"]


@pytest.fixture(scope="module")
def cnr(cnr_graph, tmp_path_factory):
    folder = tmp_path_factory.mktemp("scores")
    scores = [score_graph(cnr_graph, method, folder / method, train="1%") for method in ("degree", "wrpr")]
    named, shares = named_scores(cnr_graph, scores), [0.01, 0.05, 0.10, 0.20]
    return cnr_graph, evaluate(cnr_graph, named, [10, 10, 10], batch_size=256, train="1%", shares=shares)


def test_published_hit_rates_on_cnr_2000(cnr):
    """Figures measured with DGL's sampler as judge; a wrong direction of the edges gives .03 .14 .24 .46."""
    rates = cnr[1].hit_rates
    assert rates["degree"] == pytest.approx([0.078, 0.218, 0.245, 0.422], abs=0.008)
    assert rates["wrpr"] == pytest.approx([0.100, 0.261, 0.429, 0.649], abs=0.008)
    assert rates["oracle"] == pytest.approx([0.157, 0.432, 0.633, 0.917], abs=0.008)


def test_a_reordered_graph_makes_the_same_accesses(cnr, tmp_path):
    graph, found = cnr
    degree = score_graph(graph, "degree", tmp_path / "degree")
    image = reorder_graph(graph, degree, tmp_path / "reordered")
    train = image.old_to_new()[resolve_train(graph, "1%")["node"]]
    again = evaluate(image, {"degree": degree}, [10, 10, 10], batch_size=256, train=train, shares=found.shares)
    assert again.hit_rates["degree"] == found.hit_rates["degree"]
    assert again.hit_rates["oracle"] == found.hit_rates["oracle"]
