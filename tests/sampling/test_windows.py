"""Windows of batches that read lists from their files count what batches count one by one in memory."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_datasets import tree_bytes

import tiering
from tiering import native
from tiering.errors import InputError, StorageError
from tiering.evaluation.run import evaluate
from tiering.sampling import AccessCounts, SamplingOptions, lists, make_sampler
from tiering.sampling.base import ListFiles

NODES = {"user": 900, "item": 70, "tag": 3}
RELATIONS = [("user", "knows", "user"), ("user", "buys", "item"), ("item", "sold", "user"), ("tag", "on", "item")]


@pytest.fixture(scope="module", params=["int32", "int64"])
def graph(request, tmp_path_factory):
    """Two hubs, empty lists, duplicate edges and self loops; a relation without edges; lists of more than a page."""
    random, folder = np.random.default_rng(0), tmp_path_factory.mktemp("windows")
    edges, weights = {}, {}
    for relation, size in zip(RELATIONS, (30_000, 2500, 2000, 0), strict=True):
        ends = [np.floor(NODES[t] * random.random(size) ** 3).astype(np.int64) for t in (relation[0], relation[2])]
        np.save(folder / f"{relation[1]}.npy", np.stack(ends))
        edges[relation] = np.stack(ends)
        weights[relation] = random.random(size).astype(np.float32)
    made = tiering.import_graph(in_memory(edges, weights), folder / "graph")
    if request.param == "int64":
        return WideGraph(made, folder)
    return made


def in_memory(edges, weights):
    data = pytest.importorskip("torch_geometric.data").HeteroData()
    import torch

    for name, count in NODES.items():
        data[name].num_nodes = count
    for relation, ends in edges.items():
        data[relation].edge_index = torch.from_numpy(ends)
        data[relation].weight = torch.from_numpy(weights[relation])
    return data


class WideGraph:
    """The same graph with ids of 64 bits, in files of their own."""

    def __init__(self, graph, folder):
        self.node_types, self.relations, self.num_nodes = graph.node_types, graph.relations, graph.num_nodes
        self._csc, self.edge_data, self.path = {}, graph.edge_data, graph.path
        for number, relation in enumerate(graph.relations):
            indptr, indices = graph.csc(relation)
            wide = np.asarray(indices, np.int64)
            if wide.size:
                wide.tofile(folder / f"wide-{number}")
                wide = np.memmap(folder / f"wide-{number}", np.int64, "r")
            self._csc[relation] = indptr, wide

    def csc(self, relation):
        return self._csc[relation]


class TimedGraph(WideGraph):
    """The same graph with times of two relations, in files of their own; lists ascend in time, with many ties."""

    def __init__(self, graph, folder, dtype):
        super().__init__(graph, folder)
        self.time, self.made = SimpleNamespace(dtype=dtype, unit=None), {}
        for relation in RELATIONS[:2]:
            indptr, indices = graph.csc(relation)
            times = np.random.default_rng(7).integers(0, 60, indices.size).astype(dtype)
            for begin, end in itertools.pairwise(indptr):
                times[begin:end].sort()
            times.tofile(folder / f"times-{dtype}-{relation[1]}")
            self.made[relation] = np.memmap(folder / f"times-{dtype}-{relation[1]}", dtype, "r")

    def times(self, relation):
        return self.made.get(relation)

    def node_times(self, node_type):
        return None


def sampler_of(graph, **options):
    fanouts = options.pop("fanouts", [3, 2, 4])
    return make_sampler(graph, SamplingOptions(fanouts, seed=5, **options))


def files_of(sampler, room=1 << 30):
    return lists.list_files(sampler, room)


def both(sampler, room):
    """Counts batch by batch, and by windows."""
    train = {"user": np.arange(0, 900, 7), "item": [3, 3, 69]}
    plan, files = sampler.batches(train, 11, 2), files_of(sampler, room)
    found = AccessCounts.zeros(sampler.graph)
    sampler.count_accesses(plan, found, first=1, last=3, lists=files)
    sampler.count_accesses(plan, found, first=3, lists=files)
    return sampler.count_accesses(plan, first=1, threads=2), found


def assert_same(one, other):
    for t, counts in one.features.items():
        assert np.array_equal(counts, other.features[t])
    for r, counts in one.adjacency.items():
        assert np.array_equal(counts, other.adjacency[r])


@pytest.mark.parametrize("room", [0, 30_000, 200_000, 1 << 30])
@pytest.mark.parametrize(
    "options",
    [
        {"sampler": "full", "fanouts": [-1, -1]}, {"fanouts": [60, -1]},
        {"fanouts": [dict(zip(RELATIONS, hop, strict=True)) for hop in ((3, 0, 2, 1), (0, 4, -1, 0))]},
    ],
)  # fmt: skip
def test_counts_are_the_same(graph, options, room):
    one, other = both(sampler_of(graph, **options), room)
    assert one.total > 1000
    assert_same(one, other)


@pytest.fixture
def windows(monkeypatch):
    """The windows that were sampled, where lists exceed memory."""
    calls, plain = [], native.Sampler.sample_window
    monkeypatch.setattr(lists, "uncached_bytes", lambda array: array.nbytes)
    monkeypatch.setattr(lists, "available_memory", lambda: 60_000)
    monkeypatch.setattr(native.Sampler, "sample_window", lambda *a: calls.append(plain(*a)) or calls[-1])
    return calls


OPTIONS = {"fanouts": [3, 2], "batch_size": 20, "train": {"user": np.arange(0, 900, 3)}}


@pytest.mark.parametrize("graph", ["int32"], indirect=True)
@pytest.mark.parametrize("method", ["presample", "hybrid"])
def test_scores_are_the_same(graph, tmp_path, method, request):
    """Several epochs, whose squares hybrid scores need."""
    scores = tiering.score_graph(graph, tmp_path / "memory", method, epochs=2, **OPTIONS)
    windows = request.getfixturevalue("windows")
    found = tiering.score_graph(graph, tmp_path / "windows", method, epochs=2, **OPTIONS)
    assert tree_bytes(found.path) == tree_bytes(scores.path)
    assert 1 < max(size for size, *_ in windows) <= 15
    assert len(windows) > 2


@pytest.mark.parametrize("graph", ["int32"], indirect=True)
def test_evaluations_are_the_same(graph, request):
    scores, options = {"by id": {"user": np.arange(900.0)}}, {**OPTIONS, "row_bytes": 64, "threads": 2}
    fanouts = options.pop("fanouts")
    one = evaluate(graph, scores, fanouts, **options)
    windows = request.getfixturevalue("windows")
    other = evaluate(graph, scores, fanouts, **options)
    assert other.to_json() == one.to_json()
    assert max(len(nodes) for *_, nodes in windows) > 1


@pytest.mark.parametrize("disjoint", [False, True])
def test_nodes_are_those_of_the_batches(graph, disjoint):
    sampler = sampler_of(graph, disjoint=disjoint)
    plan = sampler.batches({"user": np.arange(0, 900, 5)}, 30, 1)
    found = [
        n for part in sampler.windows(plan, 0, len(plan), None, files_of(sampler, 10**6), nodes=True) for n in part
    ]
    for number, nodes in enumerate(found):
        expected = sampler.sample(plan[number], epoch=1, batch=number).unique_nodes
        assert all(np.array_equal(nodes[t], expected[t]) for t in NODES)
    assert len(found) == len(plan)


def test_what_needs_mapped_lists_says_so(graph, monkeypatch, capsys):
    monkeypatch.setattr(lists, "uncached_bytes", lambda array: array.nbytes)
    sampler = sampler_of(graph, sampler="ladies")
    assert lists.window_lists(sampler, 10**9) is None
    assert capsys.readouterr().err == ""
    assert lists.window_lists(sampler, 1000) is None
    assert "at random from disk" in capsys.readouterr().err
    assert len(lists.window_lists(sampler_of(graph), 1000).files) == len(RELATIONS)
    assert capsys.readouterr().err == ""


def test_a_bad_id_and_a_short_file_are_named(graph, tmp_path):
    sampler = sampler_of(graph, sampler="full", fanouts=[-1])
    plan, (first, *others) = sampler.batches({"user": np.arange(900)}, 50, 0), files_of(sampler).files

    def count(file):
        return sampler.count_accesses(plan, lists=ListFiles([str(file), *others], [], 1 << 30))

    indices = np.fromfile(first, graph.csc(RELATIONS[0])[1].dtype)
    bad = indices.copy()
    bad[[1234, 20_000]] = 900, -5
    bad.tofile(tmp_path / "bad")
    with pytest.raises(InputError, match=r"user:knows:user: indices\[1234\]: source id 900 is outside 0..899"):
        count(tmp_path / "bad")
    indices[:-2000].tofile(tmp_path / "short")
    with pytest.raises(StorageError, match="short"):
        count(tmp_path / "short")
    with pytest.raises(StorageError, match="nowhere"):
        count("nowhere")
    assert_same(sampler.count_accesses(plan), count(first))


ASKED = {
    "seed": st.integers(0, 2**40), "fanouts": st.lists(st.integers(1, 30) | st.just(-1), min_size=1, max_size=3),
    "size": st.integers(1, 16), "room": st.sampled_from([0, 10**5, 10**6, 1 << 30]), "new": st.booleans(),
    "positions": st.booleans(), "kind": st.sampled_from(["directional", "bidirectional", "induced"]),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=80)
@given(**ASKED, disjoint=st.booleans(), rule=st.sampled_from(["uniform", "replacement", "weighted"]))
def test_batches_and_counts_are_those_of_one_at_a_time(
    graph, seed, fanouts, size, room, new, disjoint, rule, positions, kind
):
    """Nodes, edges, positions, instances; batches of any numbers, in any order."""
    options = {"frontier": "new" if new else "all", "disjoint": disjoint, "sampler": rule, "subgraph_type": kind}
    fanouts = fanouts[:2] if kind == "induced" else fanouts
    sampler = make_sampler(graph, SamplingOptions(fanouts, seed=seed, **options))
    plan, order = sampler.batches({"user": np.arange(0, 900, 11), "tag": [2]}, 7, 3), [*range(11, 4, -1), 0, 2]
    check_batches(sampler, plan, order, room, size, positions)
    assert_same(*both(sampler, room))


def check_batches(sampler, plan, order, room, size, positions):
    """Windows of at most `size` of the batches `order` are these batches in memory."""
    made, begin = [], 0
    while begin < len(order):
        seeds = [plan.seeds_of(b) for b in order[begin:]]
        window, following, reads = sampler.sample_window(
            seeds, order[begin:], files_of(sampler, room), size, epoch=3, positions=positions
        )
        assert 1 <= len(window) <= size
        assert 1 <= following <= 2 * len(window)
        assert reads.batches == len(window)
        assert reads.nbytes >= 512 * reads.reads
        made, begin = made + window, begin + len(window)
    for number, batch in zip(order, made, strict=True):
        ids, times = plan.seeds_of(number)
        alone = sampler.sample(ids, epoch=3, batch=number, positions=positions, seed_time=times)
        assert_batches_equal(batch, alone)


def assert_batches_equal(one, other):
    assert (one.epoch, one.batch, one.num_nodes, one.subgraph_type) == (
        other.epoch, other.batch, other.num_nodes, other.subgraph_type,
    )  # fmt: skip
    pairs = (one.nodes, other.nodes), (one.instances, other.instances), (one.seed_time, other.seed_time)
    for mine, theirs in pairs:
        assert mine.keys() == theirs.keys()
        assert all(np.array_equal(mine[t], theirs[t]) for t in mine)
    assert len(one.hops) == len(other.hops)
    for hop, expected in zip(one.hops, other.hops, strict=True):
        for relation, edges in expected.items():
            for name in ("src", "dst", "positions", "weights"):
                mine, theirs = getattr(hop[relation], name), getattr(edges, name)
                assert (mine is None) == (theirs is None)
                assert theirs is None or np.array_equal(mine, theirs)


@pytest.fixture(scope="module", params=["int64", "float64"])
def timed(request, tmp_path_factory):
    made = next(graph.__wrapped__(SimpleNamespace(param="int32"), tmp_path_factory) for _ in "1")
    return TimedGraph(made, tmp_path_factory.mktemp("timed"), request.param)


@settings(max_examples=80)
@given(
    **ASKED, last=st.booleans(), rule=st.sampled_from(["uniform", "replacement"]),
    window=st.none() | st.integers(0, 40),
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_batches_in_time(timed, seed, fanouts, size, room, new, last, rule, positions, window, kind):
    """Lists of times of less and more than a page, before, within and after all times."""
    options = {
        "frontier": "new" if new else "all", "disjoint": True, "time": "when", "time_window": window,
        "temporal_strategy": "last" if last else "uniform", "sampler": rule, "subgraph_type": kind,
    }  # fmt: skip
    if kind == "induced":
        fanouts = fanouts[:2]
    sampler = make_sampler(timed, SamplingOptions(fanouts, seed=seed, **options))
    users, random = np.arange(0, 900, 11), np.random.default_rng(seed)
    times = {"user": random.integers(-2, 65, users.size), "tag": [30]}
    plan = sampler.batches({"user": users, "tag": [2]}, 7, 3, seed_time=times)
    check_batches(sampler, plan, [*range(11, 4, -1), 0, 2], room, size, positions)
    found = sampler.count_accesses(plan, lists=files_of(sampler, room))
    assert_same(sampler.count_accesses(plan), found)


def test_a_short_file_of_times_is_named(timed, tmp_path):
    sampler = sampler_of(timed, disjoint=True, time="when", fanouts=[3])
    plan, files = sampler.batches({"user": np.arange(900)}, 50, 0, seed_time=np.full(900, 30)), files_of(sampler)
    np.fromfile(files.times[0])[:-2000].tofile(tmp_path / "short")
    with pytest.raises(StorageError, match="short"):
        sampler.count_accesses(plan, lists=replace(files, times=[str(tmp_path / "short"), *files.times[1:]]))
    assert_same(sampler.count_accesses(plan), sampler.count_accesses(plan, lists=files))
