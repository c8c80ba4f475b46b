"""Windows of batches that read lists from their files count what batches count one by one in memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_datasets import tree_bytes

import tiering
from tiering import native
from tiering.errors import InputError, StorageError
from tiering.sampling import AccessCounts, SamplingOptions, lists, make_sampler
from tiering.scores import presample

NODES = {"user": 900, "item": 70, "tag": 3}
RELATIONS = [("user", "knows", "user"), ("user", "buys", "item"), ("item", "sold", "user"), ("tag", "on", "item")]


@pytest.fixture(scope="module", params=["int32", "int64"])
def graph(request, tmp_path_factory):
    """Two hubs, empty lists, duplicate edges and self loops; a relation without edges; lists of more than a page."""
    random, folder = np.random.default_rng(0), tmp_path_factory.mktemp("windows")
    edges = {}
    for relation, size in zip(RELATIONS, (30_000, 2500, 2000, 0), strict=True):
        ends = [np.floor(NODES[t] * random.random(size) ** 3).astype(np.int64) for t in (relation[0], relation[2])]
        np.save(folder / f"{relation[1]}.npy", np.stack(ends))
        edges[relation] = np.stack(ends)
    made = tiering.import_graph(in_memory(edges), folder / "graph")
    if request.param == "int64":
        return WideGraph(made, folder)
    return made


def in_memory(edges):
    data = pytest.importorskip("torch_geometric.data").HeteroData()
    import torch

    for name, count in NODES.items():
        data[name].num_nodes = count
    for relation, ends in edges.items():
        data[relation].edge_index = torch.from_numpy(ends)
    return data


class WideGraph:
    """The same graph with ids of 64 bits, in files of their own."""

    def __init__(self, graph, folder):
        self.node_types, self.relations, self.num_nodes, self.path = (
            graph.node_types,
            graph.relations,
            graph.num_nodes,
            graph.path,
        )
        self._csc = {}
        for number, relation in enumerate(graph.relations):
            indptr, indices = graph.csc(relation)
            wide = np.asarray(indices, np.int64)
            if wide.size:
                wide.tofile(folder / f"wide-{number}")
                wide = np.memmap(folder / f"wide-{number}", np.int64, "r")
            self._csc[relation] = indptr, wide

    def csc(self, relation):
        return self._csc[relation]


def sampler_of(graph, **options):
    fanouts = options.pop("fanouts", [3, 2, 4])
    return make_sampler(graph, SamplingOptions(fanouts, seed=5, **options))


def files_of(sampler):
    arrays = [sampler.graph.csc(relation)[1] for relation in sampler.relations]
    return [str(lists.find_mapping(array)[0]) if array.size else "" for array in arrays]


def both(sampler, room):
    """Counts batch by batch, and by windows."""
    train = {"user": np.arange(0, 900, 7), "item": [3, 3, 69]}
    plan = sampler.batches(train, 11, 2)
    files = [
        str(lists.find_mapping(sampler.graph.csc(r)[1])[0]) if sampler.graph.csc(r)[1].size else ""
        for r in sampler.relations
    ]
    found = AccessCounts.zeros(sampler.graph)
    sampler.count_accesses(plan, found, first=1, last=3, files=files, room=room)
    sampler.count_accesses(plan, found, first=3, files=files, room=room)
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
        {}, {"frontier": "new"}, {"sampler": "replacement"}, {"sampler": "full", "fanouts": [-1, -1]},
        {"disjoint": True}, {"disjoint": True, "sampler": "replacement", "frontier": "new"}, {"fanouts": [60, -1]},
        {"fanouts": [dict(zip(RELATIONS, hop, strict=True)) for hop in ((3, 0, 2, 1), (0, 4, -1, 0))]},
    ],
)  # fmt: skip
def test_counts_are_the_same(graph, options, room):
    one, other = both(sampler_of(graph, **options), room)
    assert one.total > 1000
    assert_same(one, other)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**40), fanouts=st.lists(st.integers(-1, 30), min_size=1, max_size=3),
    room=st.integers(0, 10**6), new=st.booleans(), disjoint=st.booleans(),
    rule=st.sampled_from(["uniform", "replacement"]),
)  # fmt: skip
def test_any_window(graph, seed, fanouts, room, new, disjoint, rule):
    options = {"frontier": "new" if new else "all", "disjoint": disjoint, "sampler": rule}
    if 0 in fanouts:
        return
    one, other = both(make_sampler(graph, SamplingOptions(fanouts, seed=seed, **options)), room)
    assert_same(one, other)


def test_presample_takes_windows_where_lists_exceed_memory(graph, tmp_path, monkeypatch):
    """The artifact is the same; several epochs, whose squares hybrid scores need."""
    if isinstance(graph, WideGraph):
        pytest.skip("an artifact has ids of 32 bits here")
    train = {"user": np.arange(0, 900, 3)}
    options = {"fanouts": [3, 2], "batch_size": 20, "train": train, "epochs": 2}
    whole = [tiering.score_graph(graph, tmp_path / m, m, **options) for m in ("presample", "hybrid")]
    calls, plain = [], native.Sampler.count_windows
    monkeypatch.setattr(lists, "uncached_bytes", lambda array: array.nbytes)
    monkeypatch.setattr(presample, "available_memory", lambda: 0)
    monkeypatch.setattr(native.Sampler, "count_windows", lambda *a: calls.append(a) or plain(*a))
    for scores in whole:
        method = scores.path.name
        found = tiering.score_graph(graph, tmp_path / f"windows-{method}", method, **options)
        assert calls
        assert tree_bytes(found.path) == tree_bytes(scores.path)
        calls.clear()


def test_what_needs_mapped_lists_says_so(graph, monkeypatch, capsys):
    monkeypatch.setattr(lists, "uncached_bytes", lambda array: array.nbytes)
    sampler = sampler_of(graph, sampler="ladies")
    assert lists.window_files(sampler, 10**9) == []
    assert capsys.readouterr().err == ""
    assert lists.window_files(sampler, 1000) == []
    assert "at random from disk" in capsys.readouterr().err
    assert len(lists.window_files(sampler_of(graph), 1000)) == len(RELATIONS)
    assert capsys.readouterr().err == ""


def test_a_bad_id_and_a_short_file_are_named(graph, tmp_path):
    sampler = sampler_of(graph, sampler="full", fanouts=[-1])
    plan, files = sampler.batches({"user": np.arange(900)}, 50, 0), files_of(sampler)
    indices = np.fromfile(files[0], graph.csc(RELATIONS[0])[1].dtype)
    bad = indices.copy()
    bad[[1234, 20_000]] = 900, -5
    bad.tofile(tmp_path / "bad")
    with pytest.raises(InputError, match=r"user:knows:user: indices\[1234\]: source id 900 is outside 0..899"):
        sampler.count_accesses(plan, files=[str(tmp_path / "bad"), *files[1:]], room=1 << 30)
    indices[:-2000].tofile(tmp_path / "short")
    with pytest.raises(StorageError, match="short"):
        sampler.count_accesses(plan, files=[str(tmp_path / "short"), *files[1:]], room=1 << 30)
    with pytest.raises(StorageError, match="nowhere"):
        sampler.count_accesses(plan, files=["nowhere", *files[1:]], room=0)
    assert_same(sampler.count_accesses(plan), sampler.count_accesses(plan, files=files, room=1 << 30))
