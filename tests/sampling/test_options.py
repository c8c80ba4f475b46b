"""`make_sampler` and `SamplingOptions`: every name makes its sampler; nonsense is refused with words that help."""

from __future__ import annotations

import json

import numpy as np
import pytest
from toy_graphs import HOMOGENEOUS, ToyGraph, flat, homogeneous, weighted_graph

from tiering import sampling
from tiering.errors import InputError
from tiering.sampling import SAMPLERS, LayerSampler, NeighborSampler, RandomWalkSampler, SamplingOptions, make_sampler

GRAPH = weighted_graph(50, 400, seed=1)
CITES, WRITES = ("paper", "cites", "paper"), ("author", "writes", "paper")
BY = ("paper", "by", "author")


def papers(weights=None):
    edges = {CITES: [[0, 1, 2], [1, 2, 0]], WRITES: [[0, 1, 1], [0, 0, 2]], BY: [[0, 0, 2], [0, 1, 1]]}
    return ToyGraph({"paper": 3, "author": 2}, {r: np.array(e) for r, e in edges.items()}, weights=weights)


DIRECT = {
    "uniform": lambda **k: NeighborSampler(GRAPH, [3, 2], **k),
    "replacement": lambda **k: NeighborSampler(GRAPH, [3, 2], rule="replacement", **k),
    "weighted": lambda **k: NeighborSampler(GRAPH, [3, 2], rule="weighted", **k),
    "full": lambda **k: NeighborSampler(GRAPH, [-1, -1], **k),
    "pinsage": lambda **k: RandomWalkSampler(GRAPH, [3, 2], **k),
    "ladies": lambda **k: LayerSampler(GRAPH, [3, 2], **k),
}


def batches(sampler):
    return [flat(sampler.sample(np.arange(4 * b, 4 * b + 4), epoch=1, batch=b)) for b in range(5)]


@pytest.mark.parametrize("frontier", ["all", "new"])
@pytest.mark.parametrize("name", DIRECT)
def test_every_name_makes_its_sampler(name, frontier):
    options = SamplingOptions([-1, -1] if name == "full" else [3, 2], sampler=name, frontier=frontier, seed=9)
    made, direct = make_sampler(GRAPH, options), DIRECT[name](frontier=frontier, seed=9)
    assert type(made) is type(direct) and (made.frontier, made.seed) == (frontier, 9)
    assert batches(made) == batches(direct)
    assert batches(made) != batches(DIRECT[name](frontier="new" if frontier == "all" else "all", seed=9))
    if name != "full":
        assert batches(made) != batches(DIRECT[name](frontier=frontier, seed=8))


def test_names_are_all_and_each_draws_its_own_way():
    assert list(SAMPLERS) == list(DIRECT)
    drawn = {name: batches(DIRECT[name](seed=9)) for name in DIRECT}
    assert all(drawn[a] != drawn[b] for a in drawn for b in drawn if a < b)


def test_full_takes_all_and_may_skip_relations():
    hops = [{"cites": -1, "writes": 0, "by": -1}, {"cites": 0, "writes": -1, "by": 0}]
    batch = make_sampler(papers(), SamplingOptions(hops, sampler="full")).sample({"paper": [0, 1]})
    assert [{r[1]: len(e) for r, e in hop.items()} for hop in batch.hops] == [
        {"cites": 2, "writes": 0, "by": 0},
        {"cites": 0, "writes": 3, "by": 0},
    ]
    for fanouts in ([10, 10], [-1, 3], [{"cites": -1, "writes": 2, "by": 0}]):
        with pytest.raises(InputError, match=r"sampler 'full' uses all neighbors.*found (10|3|2); for two hops"):
            make_sampler(papers(), SamplingOptions(fanouts, sampler="full"))


def test_options_of_pinsage_arrive():
    options = SamplingOptions(
        [2], sampler="pinsage", num_walks=7, walk_length=3, restart=0.25, metapaths=[["writes", "by"], [CITES]]
    )
    made = make_sampler(papers(), options)
    assert isinstance(made, RandomWalkSampler)
    assert (made.num_walks, made.walk_length, made.restart) == (7, 3, 0.25)
    assert made.metapaths == [[WRITES, BY], [CITES]]
    assert made.edge_relations == [("paper", "writes/by", "paper"), CITES]


@pytest.mark.parametrize(("options", "words"), [
    ({"sampler": "unifrom"}, "sampler: expected one of uniform, replacement, weighted, full, pinsage, ladies, fou"),
    ({"sampler": ["uniform"]}, r"found \['uniform'\]"),
    ({"frontier": "old"}, "frontier: expected 'all' or 'new', found 'old'"),
    ({"frontier": np.array(["all", "new"])}, "frontier: expected 'all' or 'new'"),
    ({"batch_size": 0}, "batch size: expected a whole number, 1 or more, found 0"),
    ({"batch_size": 2.5}, "found 2.5"), ({"batch_size": True}, "found True"),
    ({"seed": -1}, r"seed: expected a whole number from 0 to 2\^64 - 1, found -1"),
    ({"seed": 2**64}, "found 18446744073709551616"), ({"seed": "x"}, "found 'x'"),
])  # fmt: skip
def test_options_that_make_no_sense(options, words):
    with pytest.raises(InputError, match=words):
        SamplingOptions([2], **options)


@pytest.mark.parametrize("name", ["uniform", "replacement", "weighted", "pinsage", "ladies"])
@pytest.mark.parametrize(("fanouts", "words"), [
    ([], "fanouts: expected one entry per hop"), (5, "expected one entry per hop"),
    ([0], "fanouts: entries must be at least 1 and below .*, or -1 for all neighbors; found 0"),
    ([3, -2], "fanouts: .* found -2"), ([None], "whole numbers .*, found None"), ([2**31], "found 2147483648"),
    ([2**200], "found a number of 201 bits"),
    ([3, {}], "fanouts: a hop has no relations; give numbers by relation, such as cites=10,writes=5"),
    ([3, {"writes": 1}], "hop 1: (relations without a number: .*; give a number for each of 3|no single relation)"),
    ([3, {"sites": 2}], "fanouts of hop 1: no single relation 'sites'; relations: "),
    ([{"cites": 2, CITES: 3}], "relation paper:cites:paper is given twice"),
    ([{"cites": -3}], "fanouts of cites: entries must be at least 0 and below .*, or -1 .*; found -3"),
])  # fmt: skip
def test_fanouts_that_fit_no_relation(name, fanouts, words):
    weights = {r: np.ones(3) for r in (CITES, WRITES, BY)}
    with pytest.raises(InputError, match=words):
        make_sampler(papers(weights), SamplingOptions(fanouts, sampler=name))


@pytest.mark.parametrize(("options", "words"), [
    ({"num_walks": 0}, "num_walks: expected a whole number from 1 to 16777216, found 0"),
    ({"num_walks": 2.5}, "num_walks: .* found 2.5"),
    ({"walk_length": 0}, "walk_length: expected a whole number from 1 to"),
    ({"walk_length": None}, "walk_length: .* found None"),
    ({"num_walks": 2**13, "walk_length": 2**12}, r"num_walks \* walk_length: expected at most 16777216"),
    ({"restart": -0.1}, "restart: expected a probability, 0 to 1, found -0.1"),
    ({"restart": float("nan")}, "found nan"),
    ({"restart": "half"}, "restart: expected a probability, .* found 'half'"),
    ({"metapaths": 5}, "metapaths: expected a list of non-empty lists of relations, found 5"),
    ({"metapaths": []}, "found \\[\\]"),
    ({"metapaths": [5]}, "metapaths: expected a list of non-empty lists"),
    ({"metapaths": [["sites"]]}, "metapath 0: no single relation 'sites'; relations: paper:cites:paper, author:w"),
    ({"metapaths": [["cites"], [7]]}, "metapath 1: no single relation 7"),
    ({"metapaths": [["writes", "cites"]]}, "author:writes:paper leads to 'author', but paper:cites:paper starts"),
    ({"metapaths": [["writes"]]}, "metapath 0: starts from 'paper' and ends at 'author'; walks of 2 steps need"),
    ({"metapaths": [["cites"], ["cites"]]}, "metapaths: paper:cites:paper is given twice"),
])  # fmt: skip
def test_walks_that_make_no_sense(options, words):
    with pytest.raises(InputError, match=words):
        make_sampler(papers(), SamplingOptions([2], sampler="pinsage", **options))


def test_options_of_walks_are_nothing_to_the_others():
    for name in ("uniform", "replacement", "ladies"):
        options = SamplingOptions([2], sampler=name, num_walks=0, restart=7.0, metapaths=[["sites"]])
        assert make_sampler(papers(), options).sample({"paper": [0]}).num_edges > 0
        assert set(options.record()) == {"fanouts", "batch_size", "frontier", "sampler"}


def test_missing_weights():
    partly = {CITES: np.ones(3), BY: np.ones(3)}
    words = "relation author:writes:paper has no edge weights, which sampler 'weighted' needs; import the dataset"
    with pytest.raises(InputError, match=words):
        make_sampler(papers(partly), SamplingOptions([2], sampler="weighted"))
    with pytest.raises(InputError, match="relation paper:cites:paper has no edge weights"):
        make_sampler(papers(), SamplingOptions([2], sampler="weighted"))

    class Bare:  # a graph without the method
        node_types, relations = ["node"], [HOMOGENEOUS]
        num_nodes, csc = GRAPH.num_nodes, GRAPH.csc

    with pytest.raises(InputError, match="relation node:to:node has no edge weights"):
        NeighborSampler(Bare(), [2], rule="weighted")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("bad", "shown"), [(-1, "-1"), (-1e-30, "-1e-30"), (np.nan, "-?nan"), (np.inf, "inf"), (-np.inf, "-inf")]
)
def test_bad_weights_are_named(bad, shown, dtype):
    weights = {r: np.ones(3, dtype) for r in (CITES, WRITES, BY)}
    weights[WRITES][1] = bad
    words = f"graph: weights of relation author:writes:paper: expected finite weights of 0 or more, found {shown} at "
    for threads in (1, 2, 7):
        with pytest.raises(InputError, match=words + "edge 1; correct the weights and import again, or use another"):
            NeighborSampler(papers(weights), [2], rule="weighted", threads=threads)


def test_weights_of_zeros_alone():
    weights = {CITES: np.ones(3), WRITES: np.zeros(3), BY: np.ones(3)}
    with pytest.raises(InputError, match="weights of relation author:writes:paper: all 3 are 0, so no edge can be sa"):
        make_sampler(papers(weights), SamplingOptions([2], sampler="weighted"))


@pytest.mark.parametrize(("weights", "words"), [
    (np.ones(2), r"weights of paper:by:author: expected numbers of shape \(3,\), found float64 of shape \(2,\)"),
    (np.array([True, False, True]), "found bool"),
])  # fmt: skip
def test_weights_that_do_not_fit_the_edges(weights, words):
    graph = papers({CITES: np.ones(3), WRITES: np.ones(3), BY: np.ones(3)})
    graph._weights[BY] = weights
    with pytest.raises(InputError, match=words):
        make_sampler(graph, SamplingOptions([2], sampler="weighted"))


@pytest.mark.parametrize(
    "indptr", [[0, 1 << 30, 3, 3], [0, -(1 << 30), 3, 3], [0, 2, 1, 3], [0, 3, 3, 2], [1, 2, 3, 3]]
)
def test_damaged_offsets_are_refused_before_weights_are_read(indptr):
    graph = weighted_graph(3, 3)
    graph._csc[HOMOGENEOUS] = (np.array(indptr), np.zeros(3, np.int32))
    for threads in (1, 3):
        with pytest.raises(InputError, match=r"graph: indptr of relation node:to:node .*: run `tiering check"):
            NeighborSampler(graph, [2], rule="weighted", threads=threads)


def test_a_relation_without_edges_needs_no_positive_weight():
    graph = homogeneous(3, np.empty((2, 0)))
    graph._weights[HOMOGENEOUS] = np.empty(0, np.float32)
    batch = make_sampler(graph, SamplingOptions([2], sampler="weighted")).sample([1])
    assert batch.nodes["node"].tolist() == [1] and batch.num_edges == 0


def test_records_are_json():
    """Also of options that came as numpy's numbers, which json knows nothing of."""
    hops = [np.int64(5), {CITES: np.int32(3), "writes": 0}]
    options = SamplingOptions(
        hops, batch_size=np.int64(64), sampler="pinsage", seed=np.uint64(2**64 - 1), num_walks=np.int32(5),
        restart=np.float32(0.5), metapaths=[(CITES, "by")],
    )  # fmt: skip
    assert json.loads(json.dumps(options.to_json())) == {
        "fanouts": [5, {"paper:cites:paper": 3, "writes": 0}], "batch_size": 64, "frontier": "all",
        "sampler": "pinsage", "num_walks": 5, "walk_length": 2, "restart": 0.5,
        "metapaths": [["paper:cites:paper", "by"]], "seed": 2**64 - 1,
    }  # fmt: skip
    plain = SamplingOptions([3, 2], sampler="ladies", frontier="new", seed=4)
    record = {"fanouts": [3, 2], "batch_size": 1024, "frontier": "new", "sampler": "ladies"}
    assert plain.record() == record and plain.to_json() == {**record, "seed": 4}


@pytest.mark.parametrize(("seeds", "words"), [
    ([0, 1], "mapping from node type"),
    ({"venue": [0]}, "no node type 'venue'; types: paper, author"),
    ({"paper": [0, 3]}, r"entry 1 is 3; expected ids, 0 \.\. 2"),
    ({"paper": [-1]}, "entry 0 is -1"),
    ({"paper": [0.5]}, "whole numbers of one dimension, found float64"),
    ({"paper": [[0]]}, "shape"),
])  # fmt: skip
def test_seeds(seeds, words):
    sampler = NeighborSampler(papers(), [1])
    with pytest.raises(InputError, match=words):
        sampler.sample(seeds)
    with pytest.raises(InputError, match=words):
        sampler.batches(seeds, 2, 0)


def test_epochs_without_batches():
    for ids, size, words in (
        ([], 2, "training nodes: expected at least 1, found 0"),
        ([1], 0, "batch size: expected a whole number, 1 or more, found 0"),
        ([1], 2, "use a smaller batch size"),
    ):
        with pytest.raises(InputError, match=words):
            sampling.batches({"a": ids}, size, 0, drop_last=True)


def test_arrays_of_a_wrong_shape_or_dtype():
    graph = homogeneous(3, np.array([[0], [1]]))
    indptr, indices = graph.csc(HOMOGENEOUS)
    graph._csc[HOMOGENEOUS] = (indptr[:-1], indices)
    with pytest.raises(InputError, match=r"indptr of node:to:node: expected int64 of shape \(4,\)"):
        NeighborSampler(graph, [1])
    graph._csc[HOMOGENEOUS] = (indptr, indices.astype(np.float32))
    with pytest.raises(InputError, match="indices of node:to:node"):
        NeighborSampler(graph, [1])
    graph._csc[HOMOGENEOUS] = (indptr, indices)
    graph._keys = {"node": np.arange(2)}
    with pytest.raises(InputError, match="node keys of 'node'"):
        NeighborSampler(graph, [1])
