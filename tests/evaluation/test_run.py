"""Hit rates, types that compete and traffic of a tier plan by hand; published figures on cnr-2000; bad input."""

from __future__ import annotations

import json

import numpy as np
import pytest
from judged_graphs import import_graph, star_graph, two_types

from tiering.errors import InputError
from tiering.evaluation import evaluate, named_scores
from tiering.evaluation.run import unseen_epoch
from tiering.formats.user_arrays import resolve_train
from tiering.layout.tiers import RankedTable, parse_capacities, plan_tiers
from tiering.reorder.graph import reorder_graph
from tiering.sampling import SamplingOptions
from tiering.scores.plan import score_graph


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
    with pytest.raises(InputError, match=r"no split `train`; give one with `train`"):
        evaluate(star, {}, [2])
    assert evaluate(star, {}, [2], train="20%", epochs=1).parameters["train_nodes"] == {"node": 2}


@pytest.mark.parametrize(("scores", "options", "words"), [
    ({"s": {"node": np.zeros(9)}}, {}, r"score 's', node type 'node': expected shape \(10,\)"),
    ({"s": {"node": np.full(10, np.nan)}}, {}, "expected finite values of 0 or more, found nan at node 0"),
    ({"s": {"node": -np.ones(10)}}, {}, "expected finite values of 0 or more, found -1.0 at node 0"),
    ({"oracle": {"node": np.zeros(10)}}, {}, "another name"), ({}, {"epochs": 0}, "epochs: expected 1 or more"),
    ({}, {"first_epoch": -1}, "first epoch: expected 0 or more"),
    ({}, {"shares": [1.5]}, "between 0 and 1, found 1.5"), ({}, {"shares": []}, "1 to 50 capacities, found 0"),
    ({}, {"shares": [0.5] * 51}, "1 to 50 capacities, found 51"),
    ({}, {"resamples": -1}, "resamples: expected 0 or more"),
    ({}, {"row_bytes": 0}, "row bytes of 'node': expected a whole number of bytes from 1"),
    ({}, {"row_bytes": {"paper": 4}}, "row bytes: no node type 'paper'; types: node"),
])  # fmt: skip
def test_bad_input(star, scores, options, words):
    with pytest.raises(InputError, match=words):
        evaluate(star, scores, [2], train=[1], **options)


def test_sampling_options_stand_alone(star):
    options = SamplingOptions([1], batch_size=1, seed=3)
    whole = evaluate(star, {}, options, train=[1, 2])
    assert whole.to_json() == evaluate(star, {}, [1], batch_size=1, seed=3, train=[1, 2]).to_json()
    with pytest.raises(InputError, match="batch_size: give these inside the sampling options"):
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
    given = {"fanouts": [10, 10, 10], "batch_size": 256}
    methods = {"degree": {}, "wrpr": {}, "vip": given} | dict.fromkeys(("hybrid", "presample"), given | {"epochs": 2})
    scores = {name: score_graph(cnr_graph, name, folder / name, train="1%", **some) for name, some in methods.items()}
    shares = [0.01, 0.05, 0.10, 0.20]
    return cnr_graph, evaluate(cnr_graph, scores, [10, 10, 10], batch_size=256, train="1%", shares=shares)


def test_published_hit_rates_on_cnr_2000(cnr):
    """Figures measured with DGL's sampler as judge; a wrong direction of the edges gives .03 .14 .24 .46."""
    rates = cnr[1].hit_rates
    assert rates["vip"] == pytest.approx([0.092, 0.369, 0.592, 0.868], abs=0.008)
    assert rates["hybrid"] == pytest.approx([0.150, 0.402, 0.595, 0.868], abs=0.008)
    assert rates["presample"] == pytest.approx([0.147, 0.388, 0.565, 0.815], abs=0.008)
    assert rates["degree"] == pytest.approx([0.078, 0.218, 0.245, 0.422], abs=0.008)
    assert rates["wrpr"] == pytest.approx([0.100, 0.261, 0.429, 0.649], abs=0.008)
    assert rates["oracle"] == pytest.approx([0.157, 0.432, 0.633, 0.917], abs=0.008)


def test_a_reordered_graph_makes_the_same_accesses(cnr, tmp_path):
    graph, found = cnr
    degree = score_graph(graph, "degree", tmp_path / "degree")
    image = reorder_graph(graph, degree, tmp_path / "reordered")
    train = image.old_to_new()[resolve_train(graph, "1%")["node"]]
    again = evaluate(
        image, {"degree": degree}, [10, 10, 10], batch_size=256, train=train, first_epoch=2, shares=found.shares
    )
    assert again.hit_rates["degree"] == found.hit_rates["degree"]
    assert again.hit_rates["oracle"] == found.hit_rates["oracle"]


# Per byte: a0 4/8 = .5, a1 .375, a2 .25, a3 .125; b0 .5/2 = .25, b1 1/2 = .5. Equal ones by type, then node:
# the line is a0 b1 a1 a2 b0 a3, and its bytes add up to 8 10 18 26 28 36.
SCORE = {"a": [4.0, 3.0, 2.0, 1.0], "b": [0.5, 1.0]}
# Reads per byte: a 1/8 each, b0 3/2, b1 1/2: the oracle's line is b0 b1 a0 a1 a2 a3, bytes 2 4 12 20 28 36.


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return two_types(tmp_path_factory.mktemp("two") / "source")


def judged(graph, **options):
    return evaluate(graph, {"s": SCORE}, [2], **{"batch_size": 1, "epochs": 1, **options})


def test_capacity_is_a_share_of_the_bytes(graph):
    """9 of 36 bytes hold a0 alone (b1 would make 10); 18 hold a0, b1, a1. The oracle's b0 b1 are 4, with a0 12."""
    found = judged(graph, shares=[0, 0.25, 0.5, 1])
    assert (found.num_rows, found.num_bytes, found.accesses, found.batches) == (6, 36, 8, 4)
    assert found.hit_rates == {"s": [0, 1 / 8, 3 / 8, 1], "oracle": [0, 4 / 8, 5 / 8, 1]}
    assert found.cached_rows["s"] == [0, 1, 3, 6]
    assert found.cached_rows["oracle"] == [0, 2, 3, 6]


def test_traffic(graph):
    """gpu 10 B: a0, b1. peer 2 x 8 B: a1, a2 (b0 would make 10 on the first). cpu 2 B: b0. ssd: a3.

    Reads: gpu 8 + 2 = 10 bytes; peer 8 + 8, half of it from the GPU that asks; cpu 3 x 2 = 6; ssd 8.
    """
    tiers = parse_capacities("10", "2x8", "2", ssd=True)
    found = judged(graph, tiers=tiers, shares=[0.5])
    plan = found.tiers["s"]
    assert plan.ranges == {
        "a": {"gpu": (0, 1), "peer": (1, 3), "cpu": (3, 3), "ssd": (3, 4)},
        "b": {"gpu": (0, 1), "peer": (1, 1), "cpu": (1, 2), "ssd": (2, 2)},
    }
    assert plan.moved() == {"gpu_memory": 18, "peer_link": 8, "host_link": 6, "ssd": 8}
    shares = [link["share"] for link in plan.to_json()["links"].values()]
    assert shares == pytest.approx([0.45, 0.2, 0.15, 0.2])
    assert plan.moved("a") == {"gpu_memory": 16, "peer_link": 8, "host_link": 0, "ssd": 8}
    assert plan.moved("b") == {"gpu_memory": 2, "peer_link": 0, "host_link": 6, "ssd": 0}
    assert [tier["rows"] for tier in plan.to_json()["tiers"].values()] == [2, 2, 1, 1]
    document = found.to_json()["tiers"]
    sizes = {"gpu": "10", "peer": "8", "num_peers": 2, "cpu": "2", "ssd": True}
    assert document["capacities"] == {**sizes, "page_bytes": 4096, "block_bytes": 512}
    assert document["scores"]["s"]["tiers"]["cpu"] == {"rows": 1, "bytes": 2, "reads_per_epoch": 3}
    assert document["scores"]["s"]["links"]["ssd"]["bytes_per_epoch"] == 8
    # Everything that is read comes from somewhere.
    for entry in document["scores"].values():
        assert sum(link["bytes_per_epoch"] for link in entry["links"].values()) == 40


def test_the_plan_is_that_of_the_layout(graph):
    """Ranges are what `plan_tiers` gives for the sorted scores of each type, ties across types included."""
    tables = [
        RankedTable(t, len(v), size, np.sort(v)[::-1]) for (t, v), size in zip(SCORE.items(), (8, 2), strict=True)
    ]
    for gpu in ("8", "10", "12", "18", "26", "50%"):
        tiers = parse_capacities(gpu, ssd=True)
        found = judged(graph, tiers=tiers, shares=[0.5]).tiers["s"]
        assert found.ranges == plan_tiers(tables, tiers)


def test_rows_of_one_size_are_counted(tmp_path):
    """Without features every row counts as 1 byte, so a size is a number of rows; with 4 bytes each it is bytes."""
    star = star_graph(tmp_path / "star")
    options = {"batch_size": 1, "epochs": 1, "train": [1, 2], "shares": [0.1, 0.2]}
    score = {"s": {"node": np.arange(10)[::-1]}}
    found = evaluate(star, score, [1], tiers=parse_capacities("1"), **options)
    assert found.types["node"].row_bytes_from == "assumed"
    assert found.tiers["s"].moved()["gpu_memory"] == 2
    four = evaluate(star, score, [1], tiers=parse_capacities("4"), row_bytes=4, **options)
    assert (four.num_bytes, four.types["node"].row_bytes_from) == (40, "given")
    assert four.tiers["s"].moved()["gpu_memory"] == 8
    assert four.hit_rates == found.hit_rates
    with pytest.raises(
        InputError, match=r"larger than all feature data \(10 B\).*every row counts as 1 B.*`row_bytes`"
    ):
        evaluate(star, score, [1], tiers=parse_capacities("8GiB"), **options)


def test_types_without_features(tmp_path):
    """They do not compete, unless the caller says what a row of theirs has."""
    graph = two_types(tmp_path / "source", featureless=True)
    plain = judged(graph, shares=[0.5])
    assert list(plain.types) == ["a"] and plain.accesses == 4 and plain.num_bytes == 32
    given = judged(graph, shares=[0.5], row_bytes=2)
    assert [t.row_bytes_from for t in given.types.values()] == ["features", "given"]
    assert given.hit_rates["s"] == [3 / 8]
    # What a mapping names is overruled: rows of `a` with 2 bytes and of `b` with 2 make one line by score.
    halved = judged(graph, shares=[0.5], row_bytes={"a": 2, "b": 2})
    assert halved.num_bytes == 12 and halved.cached_rows["s"] == [3]  # a0 a1 a2
    assert halved.hit_rates["s"] == [3 / 8]


def test_a_type_that_the_score_does_not_know_comes_last(graph):
    found = evaluate(graph, {"b": {"b": [1, 1]}}, [2], batch_size=1, epochs=1, shares=[4 / 36, 12 / 36])
    assert found.hit_rates["b"] == [4 / 8, 5 / 8]
    assert found.types["a"].cached_rows["b"] == [0, 1]


def test_a_type_that_nothing_reaches(tmp_path):
    """Only `c` has features, and it is nobody's neighbor: nothing is read, every rate is 0, no number is missing."""
    source = tmp_path / "source"
    for name in ("a", "c", "a__to__a", "a__to__c"):
        (source / name).mkdir(parents=True)
    np.save(source / "a/train_idx.npy", np.arange(3))
    np.save(source / "c/node_feat.npy", np.zeros((5, 2), np.float32))
    np.save(source / "a__to__a/edge_index.npy", np.array([[0, 1], [1, 2]]))
    np.save(source / "a__to__c/edge_index.npy", np.array([[0, 1], [0, 4]]))
    graph = import_graph(source, tmp_path / "graph")
    found = evaluate(graph, {"s": {"c": np.ones(5)}}, [2], batch_size=1, epochs=1, tiers=parse_capacities("50%"))
    assert found.accesses == 0 and found.hit_rates["s"] == found.hit_rates["oracle"] == [0.0] * 6
    assert found.intervals["s"] == [[0.0, 0.0]] * 6
    document = json.dumps(found.to_json(), allow_nan=False)
    assert json.loads(document)["tiers"]["scores"]["s"]["links"]["host_link"]["share"] == 0
    both = evaluate(graph, {"s": {"c": np.ones(5)}}, [2], batch_size=1, epochs=1, row_bytes=8, shares=[0.5])
    assert both.types["c"].accesses == 0 and both.types["a"].hit_rates["oracle"] == [1.0]
