"""Types that compete by accesses per byte, and the traffic of a tier plan: worked out by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
from judged_graphs import import_graph, star_graph, two_types

from tiering.errors import InputError
from tiering.evaluation import evaluate
from tiering.layout import RankedTable, parse_capacities, plan_tiers

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


def test_by_type(graph):
    """At 9 bytes the cache holds a0: one of a's 4 reads. At 18 it holds a0, a1, b1: 2 of 4, and 1 of b's 4."""
    types = judged(graph, shares=[0.25, 0.5]).types
    assert list(types) == ["a", "b"]
    assert [(t.rows, t.row_bytes, t.row_bytes_from, t.accesses, t.touched_rows) for t in types.values()] == [
        (4, 8, "features", 4, 4),
        (2, 2, "features", 4, 2),
    ]
    assert types["a"].hit_rates["s"] == [1 / 4, 2 / 4] and types["a"].cached_rows["s"] == [1, 2]
    assert types["b"].hit_rates["s"] == [0, 1 / 4] and types["b"].cached_rows["s"] == [0, 1]
    assert types["b"].hit_rates["oracle"] == [1, 1]


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


def test_traffic_is_per_epoch(graph):
    one, three = (judged(graph, tiers=parse_capacities("10"), shares=[0.5], epochs=n).tiers["s"] for n in (1, 3))
    assert one.moved() == three.moved() == {"gpu_memory": 10, "peer_link": 0, "host_link": 30, "ssd": 0}


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
        InputError, match=r"larger than all feature data \(10 B\).*every row counts as 1 B.*--row-bytes"
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
    """Only `c` has features, and it is nobody's neighbour: nothing is read, every rate is 0, no number is missing."""
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
