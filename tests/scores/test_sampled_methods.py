"""presample, vip and hybrid by hand on a heterogeneous tree, the posterior slowly; what is recorded and refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiering import generate_dataset, pipeline
from tiering.errors import InputError, MissingError
from tiering.formats.dataset import Dataset, EdgeData, NodeData
from tiering.formats.features import FeatureTable
from tiering.graph.build import build_graph
from tiering.scores import hybrid
from tiering.scores.hybrid import FIRST_BIN, GROWTH, UNSEEN, round_prior, shrink
from tiering.scores.plan import adjacency_bytes, plan_score, score_graph

WRITES, CITES, SHOWS = ("author", "writes", "paper"), ("paper", "cites", "paper"), ("paper", "in", "venue")
FANOUTS = [{"writes": 2, "cites": 1, "in": 4}, {"writes": 0, "cites": 1, "in": 4}]


@pytest.fixture
def tree(tmp_path):
    """Three authors write paper 0; papers 1 and 2 are cited by 0, paper 3 by 1; paper 4 stands alone.

    Papers 0 and 4 are trained on. A venue shows paper 0, but nothing reads a venue.
    """
    edges = [
        EdgeData(WRITES, np.array([0, 1, 2]), np.array([0, 0, 0])),
        EdgeData(CITES, np.array([1, 2, 3]), np.array([0, 0, 1])),
        EdgeData(SHOWS, np.array([0]), np.array([0])),
    ]
    nodes = {"author": NodeData(3), "paper": NodeData(5, splits={"train": np.array([4, 0])}), "venue": NodeData(2)}
    for name, dim in (("author", 1), ("paper", 4), ("venue", 1)):
        table = np.arange(nodes[name].num_nodes * dim, dtype=np.float32)
        (tmp_path / f"{name}.bin").write_bytes(table.tobytes())
        nodes[name].features = FeatureTable(tmp_path / f"{name}.bin", nodes[name].num_nodes, dim, "float32")
    return build_graph(Dataset("tree", "npy", nodes, edges), tmp_path / "graph")


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """3,000 nodes of four types."""
    folder = tmp_path_factory.mktemp("generated")
    generate_dataset(folder / "data", nodes=3000, edges=30_000, dim=4, classes=3, seed=1, hetero=True)
    return pipeline.import_graph(folder / "data", folder / "graph")


def expect(scores, feature, adjacency, **tolerance):
    tolerance = tolerance or {"rtol": 1e-12}
    for node_type, values in feature.items():
        np.testing.assert_allclose(scores.values(node_type), values, **tolerance)
    for relation, values in adjacency.items():
        np.testing.assert_allclose(scores.adjacency(relation), values, **tolerance)


# Per epoch, two batches of one paper each. Paper 0 is in one of them. It draws 2 of its 3 authors once; in each of two
# hops it draws paper 1 or 2, so that each is missed with probability 1/4; paper 3 needs paper 1 in the first hop.
VIP = {"author": [2 / 3] * 3, "paper": [1, 3 / 4, 3 / 4, 1 / 2, 1], "venue": [0, 0]}
VIP_READS = {"writes": [1, 0, 0, 0, 1], "cites": [2, 1 / 2, 1 / 2, 0, 2], "in": [0, 0]}
# Under the rule `new`, paper 0 draws in the first hop alone.
VIP_NEW = {"author": [2 / 3] * 3, "paper": [1, 1 / 2, 1 / 2, 1 / 2, 1], "venue": [0, 0]}
VIP_NEW_READS = {"writes": [1, 0, 0, 0, 1], "cites": [1, 1 / 2, 1 / 2, 0, 1], "in": [0, 0]}


def test_vip_by_hand(tree, tmp_path):
    options = {"fanouts": FANOUTS, "batch_size": 1}
    expect(score_graph(tree, "vip", tmp_path / "all", **options), VIP, VIP_READS)
    expect(score_graph(tree, "vip", tmp_path / "new", frontier="new", **options), VIP_NEW, VIP_NEW_READS)
    # One batch with both: everything of it with certainty where lists are taken whole.
    whole = score_graph(tree, "vip", tmp_path / "whole", fanouts=[-1, -1], batch_size=64)
    expect(whole, {"author": [1] * 3, "paper": [1] * 5, "venue": [0, 0]}, {"cites": [2, 1, 1, 0, 2]})


@pytest.mark.slow
@pytest.mark.parametrize("frontier", ["all", "new"])
def test_presample_and_hybrid_converge_to_what_is_exact_on_a_tree(tree, tmp_path, frontier):
    feature, reads = (VIP, VIP_READS) if frontier == "all" else (VIP_NEW, VIP_NEW_READS)
    for method in ("presample", "hybrid"):
        options = {"fanouts": FANOUTS, "batch_size": 1, "epochs": 5000, "frontier": frontier}
        expect(score_graph(tree, method, tmp_path / method, **options), feature, reads, atol=0.04)


def test_presample_by_hand(tree, tmp_path):
    """Whole lists: nothing is left to chance, whatever the epochs."""
    feature = {"author": [1] * 3, "paper": [1] * 5, "venue": [0, 0]}
    reads = {"writes": [2, 1, 1, 0, 2], "cites": [2, 1, 1, 0, 2], "in": [0, 0]}
    for epochs in (1, 3):
        scores = score_graph(tree, "presample", tmp_path / str(epochs), fanouts="-1,-1", batch_size=1, epochs=epochs)
        expect(scores, feature, reads)
        assert scores.manifest.provenance["options"]["reached"] == {"batches": 2 * epochs, "accesses": 8 * epochs}
    # Together in one batch they are read once each: the same rows.
    expect(score_graph(tree, "presample", tmp_path / "one", fanouts=[-1, -1]), feature, reads)


def test_hybrid_with_a_fixed_weight_by_hand(tree, tmp_path):
    options = {"fanouts": FANOUTS, "batch_size": 1, "seed": 3}
    for epochs, asked, weight in ((2, {"prior_weight": 3}, 3), (1, {}, 0.25)):
        counted = score_graph(tree, "presample", tmp_path / f"p{epochs}", epochs=epochs, **options)
        mixed = score_graph(tree, "hybrid", tmp_path / f"h{epochs}", epochs=epochs, **options, **asked)
        for node_type, prior in VIP.items():
            expected = (weight * np.array(prior) + epochs * counted.values(node_type)) / (weight + epochs)
            np.testing.assert_allclose(mixed.values(node_type), expected, rtol=2**-24)
        for relation, prior in VIP_READS.items():
            expected = (weight * np.array(prior) + epochs * counted.adjacency(relation)) / (weight + epochs)
            np.testing.assert_allclose(mixed.adjacency(relation), expected, rtol=2**-24)


def test_types_compete_by_accesses_per_byte(tree, tmp_path):
    """An author's row is 4 bytes, a paper's 16: authors first, at 2/3 in 4 against 1 in 16; venues last."""
    for method in ("vip", "hybrid"):
        scores = pipeline.score_graph(tree, tmp_path / method, method, fanouts=FANOUTS, batch_size=1, epochs=50)
        reordered = pipeline.reorder_graph(tree, scores, tmp_path / f"r-{method}")
        layout = pipeline.layout(reordered, tmp_path / f"l-{method}", gpu=12 + 2 * 16, cpu="auto", dtype="float32")
        ranges = {t: layout.manifest.body["node_types"][t]["gpu"] for t in tree.node_types}
        assert ranges == {"author": [0, 3], "paper": [0, 2], "venue": [0, 0]}
        assert set(reordered.new_to_old("paper")[:2].tolist()) == {0, 4}


def test_bytes_of_adjacency(tree, tmp_path):
    """A read is 16 bytes, and 4 for each entry drawn; paper 0 has 3 authors and cites 2, paper 1 cites 1."""
    scores = pipeline.score_graph(tree, tmp_path / "vip", "vip", fanouts=FANOUTS, batch_size=1)
    np.testing.assert_allclose(adjacency_bytes(tree, scores, "writes"), [16 + 2 * 4, 0, 0, 0, 16])
    np.testing.assert_allclose(adjacency_bytes(tree, scores, "cites"), [2 * 20, 0.5 * 20, 0.5 * 16, 0, 2 * 16])
    reordered = pipeline.reorder_graph(tree, scores, tmp_path / "reordered")
    by_rank = adjacency_bytes(reordered, scores, "cites")
    np.testing.assert_array_equal(by_rank, adjacency_bytes(tree, scores, "cites")[reordered.new_to_old("paper")])
    whole = pipeline.score_graph(tree, tmp_path / "whole", "vip", fanouts="writes=2,cites=-1,in=0;5", batch_size=1)
    np.testing.assert_allclose(adjacency_bytes(tree, whole, "writes")[0], 2 * (16 + 2.5 * 4))
    ranked = pipeline.score_graph(tree, tmp_path / "degree", "degree")
    with pytest.raises(MissingError, match="degree does not predict reads of adjacency"):
        adjacency_bytes(tree, ranked, "writes")


@pytest.mark.parametrize(("options", "method", "reason"), [
    ({"fanouts": [2, 2]}, "hybrid", "fanouts are given"),
    ({"train": "paper=50%"}, "wrpr", "training nodes are known, fanouts are not given"),
    ({}, "wrpr", "training nodes are known, fanouts are not given"),
])  # fmt: skip
def test_auto(tree, tmp_path, capfd, options, method, reason):
    scores = pipeline.score_graph(tree, tmp_path / "scores", **options)
    assert scores.method == method
    assert scores.manifest.provenance["options"]["chosen"] == reason
    first, second, end = capfd.readouterr().err.split("\n")
    assert (first, end) == (f"note: method {method} (auto: {reason})", "")
    assert second.startswith("note: no training node reaches venue")


def test_auto_without_anything(tmp_path):
    edges = EdgeData(("node", "to", "node"), np.array([0, 1]), np.array([1, 2]))
    graph = build_graph(Dataset("path", "npy", {"node": NodeData(3)}, [edges]), tmp_path / "graph")
    assert pipeline.score_graph(graph, tmp_path / "scores").method == "rpr"


def test_only_what_matters_is_recorded_and_the_rest_is_noted(tree, tmp_path, capfd):
    given = {"fanouts": "2,2", "batch_size": 8, "damping": 0.5, "epochs": 3, "first_epoch": 4, "prior_weight": 1}
    recorded = {}
    for method in ("degree", "rpr", "wrpr", "presample", "vip", "hybrid"):
        scores = score_graph(tree, method, tmp_path / method, seed=5, **given)
        options = dict(scores.manifest.provenance["options"])
        assert options.pop("method") == method
        recorded[method] = (set(options) - {"reached"}, scores.manifest.provenance["seed"])
        notes = capfd.readouterr().err
        assert ("fanouts has no effect on" in notes) == (method in ("degree", "rpr", "wrpr"))
        assert ("epochs has no effect on" in notes) == (method not in ("presample", "hybrid"))
    assert recorded == {
        "degree": (set(), None),
        "rpr": ({"damping", "teleport", "tolerance"}, None),
        "wrpr": ({"damping", "teleport", "sweeps"}, None),
        "presample": ({"sampling", "epochs", "first_epoch"}, 5),
        "vip": ({"sampling"}, None),
        "hybrid": ({"sampling", "epochs", "first_epoch", "prior_weight"}, 5),
    }
    sampling = score_graph(tree, "vip", tmp_path / "v", fanouts=FANOUTS).manifest.provenance["options"]["sampling"]
    full = {"author:writes:paper": 0, "paper:cites:paper": 1, "paper:in:venue": 4}
    assert sampling["fanouts"] == [full | {"author:writes:paper": 2}, full]
    assert "seed" not in sampling


def test_all_forms_of_fanouts_give_the_same_artifact(tree, tmp_path):
    forms = [
        FANOUTS,
        "writes=2,cites=1,in=4;writes=0,cites=1,in=4",
        {"writes": [2, 0], "paper:cites:paper": [1, 1], SHOWS: [4, 4]},
    ]
    digests = {score_graph(tree, "vip", tmp_path / str(k), fanouts=form).digest for k, form in enumerate(forms)}
    assert len(digests) == 1


def test_order_of_the_training_nodes_matters_to_counts_alone(tree):
    options = {"fanouts": [2, 2], "batch_size": 1}
    for method, same in (("vip", True), ("wrpr", True), ("presample", False), ("hybrid", False)):
        given = options if method != "wrpr" else {}
        digests = [plan_score(tree, method, train={"paper": ids}, **given).inputs["train"] for ids in ([0, 4], [4, 0])]
        assert (digests[0] == digests[1]) == same


def test_counts_say_which_epochs_they_know(tree, tmp_path):
    scores = score_graph(tree, "hybrid", tmp_path / "h", fanouts=[2], epochs=3, first_epoch=5, seed=9)
    assert scores.counted_epochs(9) == range(5, 8)
    assert scores.counted_epochs(0) is None
    assert score_graph(tree, "vip", tmp_path / "v", fanouts=[2]).counted_epochs(0) is None


BAD = [
    ({"method": "vip"}, "vip needs the fanouts of training; give them with fanouts="),
    ({"method": "presample", "fanouts": []}, "one entry per hop"),
    ({"method": "hybrid", "fanouts": "writes=1,cites=1,in=1,likes=2"}, "no single relation 'likes'; relations: author"),
    ({"method": "presample", "fanouts": [2], "epochs": 0}, "epochs: expected a whole number from 1 to 10000, found 0"),
    ({"method": "presample", "fanouts": [2], "first_epoch": -1}, "first epoch: expected a whole number, 0 or more"),
    ({"method": "hybrid", "fanouts": [2], "prior_weight": -0.5}, "prior weight: expected a number, 0 or more"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_input(tree, tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        score_graph(tree, out=tmp_path / "scores", **options)
    assert not (tmp_path / "scores").exists()


def test_weighted_vip_says_that_it_knows_no_weights(tree, tmp_path, capfd):
    scores = score_graph(tree, "vip", tmp_path / "w", fanouts=FANOUTS, batch_size=1, sampler="weighted")
    assert "vip ignores edge weights" in capfd.readouterr().err
    expect(scores, VIP, VIP_READS)


Array = np.ndarray


def shrunk(prior, counts, threads=1):
    """`shrink` of epoch counts, shape (epochs, nodes)."""
    result = prior.astype(np.float64)
    shrink(result, counts.sum(0), (counts**2).sum(0), len(counts), threads)
    return result


def slowly(prior, counts):
    """Node by node, from the counts of each epoch."""
    epochs, result = len(counts), np.empty(prior.size)
    order = sorted(range(prior.size), key=lambda node: (-prior[node], node))
    size = float(FIRST_BIN)
    while order:
        nodes, order = order[: int(size)], order[int(size) :]
        size *= GROWTH
        means = [float(np.mean(counts[:, node])) for node in nodes]
        noise = float(np.mean([np.var(counts[:, node], ddof=1) for node in nodes])) / epochs
        signal = max(float(np.var(means)) - noise, 0)
        share = signal / (signal + noise) if signal + noise else 1.0
        level, expected = float(np.mean(means)), float(np.mean(prior[nodes]))
        for node, mean in zip(nodes, means, strict=True):
            ranked = prior[node] * level / expected if expected else level
            result[node] = share * mean + (1 - share) * ranked if level else prior[node] * UNSEEN
    return result


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32), size=st.sampled_from([1, 2, 199, 200, 201, 900]), epochs=st.integers(2, 4),
    ties=st.booleans(),
)  # fmt: skip
def test_equals_the_slow_computation(seed, size, epochs, ties):
    random = np.random.default_rng(seed)
    rate = random.pareto(1.2, size)
    prior = np.round(rate * random.uniform(0.3, 3, size), 1 if ties else 12)
    counts = random.poisson(rate, (epochs, size)) * (random.random(size) < 0.8)
    np.testing.assert_allclose(shrunk(prior, counts), slowly(prior, counts), rtol=1e-9, atol=1e-12)


def test_no_counts_no_prior_no_nodes():
    prior = np.array([0.0, 2, 1])
    np.testing.assert_array_equal(shrunk(prior, np.zeros((2, 3), np.int64)), prior * UNSEEN)
    np.testing.assert_allclose(shrunk(np.zeros(2), np.array([[3, 1], [1, 3]])), [2, 2])
    assert shrunk(np.empty(0), np.empty((2, 0), np.int64)).size == 0


@pytest.mark.parametrize("epochs", [2, 5])
def test_total_is_kept_and_threads_do_not_matter(epochs):
    """Within a bin the posterior sums to the counts per epoch: types stay on one scale, whatever the prior's."""
    random = np.random.default_rng(epochs)
    rate = random.pareto(1.2, 30_000)
    counts = random.poisson(rate, (epochs, rate.size))
    prior = rate * random.uniform(0.3, 3, rate.size)
    found = [shrunk(prior * scale, counts, threads) for scale, threads in ((1, 1), (1, 7), (1e6, 2))]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0], found[2], rtol=1e-12)
    np.testing.assert_allclose(found[0].sum(), counts.sum() / epochs, rtol=1e-9)


@given(st.lists(st.floats(0, 1e300, allow_subnormal=False), max_size=50))
def test_priors_keep_24_bits(values):
    prior = np.array(values, np.float64)
    rounded = prior.copy()
    round_prior(rounded)
    mantissas, exponents = np.frexp(prior)
    expected = np.ldexp(np.floor(mantissas * 2**24 + 0.5), exponents - 24)  # halves go up
    np.testing.assert_array_equal(rounded, expected)


@pytest.mark.parametrize("options", [{"epochs": 2}, {"epochs": 1}])
def test_the_last_bits_of_the_prior_decide_nothing(generated, tmp_path, monkeypatch, options):
    """Another libm gives other last bits of `vip`; the scores are the same to the bit."""
    asked = {"fanouts": [4, 3], "batch_size": 64, **options}
    plain, vip = score_graph(generated, "hybrid", tmp_path / "plain", **asked), hybrid.vip

    def other_libm(graph, request):
        columns, random = vip(graph, request), np.random.default_rng(0)
        for column in (*columns.feature.values(), *columns.adjacency.values()):
            column.view(np.int64)[column > 0] += random.integers(-2, 3, np.count_nonzero(column))
        return columns

    monkeypatch.setattr(hybrid, "vip", other_libm)
    other = score_graph(generated, "hybrid", tmp_path / "other", **asked)
    for node_type in generated.node_types:
        np.testing.assert_array_equal(plain.values(node_type), other.values(node_type))
    for relation in generated.relations:
        np.testing.assert_array_equal(plain.adjacency(relation), other.adjacency(relation))
