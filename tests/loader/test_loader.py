"""Loader: the same batches from tiers and memory, for any number of workers, and those of the original graph."""

from __future__ import annotations

import sys
import threading
import time

import numpy as np
import pytest
import torch
from epochs import bits
from tight_memory import spare

import tiering
from tiering.artifacts.writer import ArtifactWriter
from tiering.errors import CapabilityError, InputError, MissingError
from tiering.formats.graph import Graph
from tiering.loader.batches.pipeline import PipelineStage, StageError, run_stages
from tiering.sampling import SamplingOptions, make_sampler


@pytest.fixture(params=["small_graph", "hetero_graph"])
def data(request, kit):
    return getattr(kit, request.param)(images=2)


OPTIONS = {"fanouts": [4, 3], "batch_size": 32, "seed": 7}
SAMPLERS = {
    "uniform": {},
    "replacement": {"sampler": "replacement"},
    "weighted": {"sampler": "weighted"},
    "full": {"sampler": "full", "fanouts": [-1, -1]},
    "pinsage": {"sampler": "pinsage", "num_walks": 20, "walk_length": 3, "restart": 0.3},
    "ladies": {"sampler": "ladies", "fanouts": [40, 60]},
}
"""Options of a loader by sampler."""


def test_open_returns_a_tiered_layout(kit, build):
    data = kit.small_graph()
    layout = tiering.open(build(data).path)
    assert layout.node_types == ["node"]
    assert layout.relations == [("node", "to", "node")]
    order = data.order("node")
    np.testing.assert_array_equal(layout.new_to_old("node"), order)
    np.testing.assert_array_equal(layout.old_to_new("node")[order], np.arange(300))
    np.testing.assert_array_equal(layout.labels("node"), data.nodes["node"].labels[order])
    np.testing.assert_array_equal(order[layout.split("train")], data.nodes["node"].splits["train"])
    assert layout.csc()[0][-1] == layout.num_edges() == 3000
    assert layout.problems("full") == []


@pytest.fixture(params=SAMPLERS)
def sampler(request):
    return {**OPTIONS, **SAMPLERS[request.param]}


def test_workers_do_not_change_batches(build, data):
    layout = build(data)
    expected = [bits(batch) for batch in layout.loader(**OPTIONS, workers=1, prefetch=0).epoch(3)]
    for workers in (2, 4):
        got = layout.loader(**OPTIONS, workers=workers, prefetch=3).epoch(3)
        assert [bits(batch) for batch in got] == expected


def test_epochs(kit, build):
    layout = build(kit.small_graph())
    loader = layout.loader(**OPTIONS)
    first, second = list(loader), list(loader)
    assert [b.epoch for b in first] == [0] * 7
    assert [b.epoch for b in second] == [1] * 7
    assert not torch.equal(first[0].seeds, second[0].seeds)
    assert bits(list(loader.epoch(1))[2]) == bits(second[2])
    for epoch in (first, second):
        seeds = torch.cat([b.seeds for b in epoch])
        np.testing.assert_array_equal(np.sort(seeds.numpy()), np.sort(layout.split("train")))


def test_content_of_a_batch(kit, build, data):
    """Labels and features of a batch against the dataset in original ids."""
    layout = build(data)
    seen = 0
    for batch in layout.loader(**OPTIONS):
        old = {t: layout.new_to_old(t)[ids.numpy()] for t, ids in batch.nodes.items()}
        nodes = data.nodes[batch.seed_type]
        np.testing.assert_array_equal(batch.y.numpy(), nodes.labels[old[batch.seed_type][: len(batch.seeds)]])
        for node_type, rows in batch.features.items():
            expected = data.nodes[node_type].table[old[node_type]]
            np.testing.assert_array_equal(rows.view(torch.uint8).numpy(), expected.view(np.uint8))
        assert set(batch.features) == {t for t, n in data.nodes.items() if n.table is not None}
        seen += batch.num_edges
    assert seen > 100


@pytest.mark.parametrize("frontier", ["all", "new"])
def test_batches_are_the_images_of_the_original_graph(kit, build, data, tmp_path, sampler, frontier):
    """Whatever the sampler, training on the reordered graph sees the nodes, edges and weights of the original."""
    layout = build(data)
    with ArtifactWriter(tmp_path / "original", "graph") as writer:
        kit.write_graph(writer, data, reordered=False)
    original = Graph.open(tmp_path / "original")
    loader = layout.loader(**sampler, frontier=frontier)
    expecting = make_sampler(original, SamplingOptions(**sampler, frontier=frontier))
    train = {loader.node_type: original.split("train")}
    plan = expecting.batches(train, OPTIONS["batch_size"], 1)
    assert expecting.edge_relations == loader.relations
    for index, batch in enumerate(loader.epoch(1)):
        expected = expecting.sample(plan[index], epoch=1, batch=index)
        for node_type, ids in batch.nodes.items():
            np.testing.assert_array_equal(layout.new_to_old(node_type)[ids.numpy()], expected.nodes[node_type])
        for hop, weights, edges in zip(batch.hops, batch.weights, expected.hops, strict=True):
            assert hop.keys() == edges.keys()
            for relation, found in edges.items():
                np.testing.assert_array_equal(hop[relation].numpy(), [found.src, found.dst])
                assert (relation in weights) == (found.weights is not None)
                if found.weights is not None:
                    np.testing.assert_array_equal(weights[relation].numpy(), found.weights)


@pytest.mark.parametrize("frontier", ["all", "new"])
def test_blocks(kit, build, frontier):
    layout = build(kit.small_graph())
    batch = next(iter(layout.loader(**OPTIONS, frontier=frontier)))
    blocks = batch.blocks()
    assert all(block.edge_weight == {} for block in blocks)
    assert [b.num_dst["node"] for b in blocks] == [batch.num_nodes[1]["node"], batch.num_nodes[0]["node"]]
    assert blocks[0].num_src["node"] == len(batch.nodes["node"])
    for block in blocks:
        (edges,) = block.edge_index.values()
        assert edges.dtype == torch.int64
        assert edges[0].max() < block.num_src["node"]
        assert edges[1].max() < block.num_dst["node"]
    inner, outer = (next(iter(hop.values())).shape[1] for hop in batch.hops)
    assert blocks[0].num_edges == outer + (0 if frontier == "all" else inner)


def test_x_of_one_and_of_many_types(kit, build):
    one = next(iter(build(kit.small_graph()).loader(**OPTIONS)))
    assert isinstance(one.x, torch.Tensor)
    many = next(iter(build(kit.hetero_graph()).loader(**OPTIONS)))
    assert set(many.x) == {"paper", "author"}


def test_evaluation_order_and_explicit_seeds(kit, build):
    layout = build(kit.small_graph())
    val = torch.cat([b.seeds for b in layout.loader("val", shuffle=False, **OPTIONS)])
    np.testing.assert_array_equal(val.numpy(), layout.split("val"))
    chosen = torch.tensor([5, 9, 200])
    (batch,) = layout.loader(seeds=chosen, shuffle=False, **OPTIONS)
    assert torch.equal(batch.seeds, chosen)
    dropped = layout.loader(**OPTIONS, drop_last=True)
    assert len(dropped) == len(list(dropped)) == 200 // 32


def test_features_from_elsewhere(kit, build):
    data = kit.small_graph()
    layout = build(data)
    table = torch.from_numpy(data.nodes["node"].table[data.order("node")])

    class Plain:
        def gather(self, ids, out=None):
            return table[torch.as_tensor(ids)]

    for a, b in zip(layout.loader(**OPTIONS), layout.loader(**OPTIONS, features=Plain()), strict=True):
        assert bits(a) == bits(b)
    (batch, *_) = layout.loader(**OPTIONS, features=None)
    assert batch.features == {}
    assert batch.x == {}


@pytest.mark.parametrize(("option", "message"), [
    ({"workers": 0}, "workers: expected"), ({"prefetch": -1}, "prefetch: expected"),
    ({"features": "disk"}, "features: expected 'tiers', 'memory'"),
    ({"features": 3}, r"features: expected an object with gather\(ids\), found int"),
    ({"seeds": [5, 900]}, "900"), ({"seeds": []}, "seeds of node type 'node' is empty"),
    ({"batch_size": 1000, "drop_last": True}, "drop_last"),
])  # fmt: skip
def test_bad_options(kit, build, option, message):
    with pytest.raises(InputError, match=message):
        build(kit.small_graph()).loader(**{**OPTIONS, **option})


def test_splits_without_nodes(kit, build):
    data = kit.small_graph()
    data.nodes["node"].splits["train"] = np.empty(0, np.int64)
    layout = build(data)
    with pytest.raises(InputError, match="split 'train' of node type 'node' is empty"):
        layout.loader(**OPTIONS)
    with pytest.raises(MissingError, match="has no split 'dev'; splits: "):
        layout.loader("dev", **OPTIONS)


def background_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("tiering-")]


def test_stopping_midway_leaves_no_threads(kit, build):
    loader = build(kit.small_graph()).loader(**OPTIONS, workers=3)
    for batch in loader:
        if batch.index == 1:
            assert background_threads()
            break
    del batch
    deadline = time.monotonic() + 60
    while background_threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert background_threads() == []
    assert len(list(loader)) == len(loader)


def test_error_in_the_background_surfaces_with_its_cause(kit, build):
    class Broken:
        calls = 0

        def gather(self, ids, out=None):
            self.calls += 1
            if self.calls == 3:
                raise OSError(5, "the disk is gone")
            return torch.zeros(len(ids), 1)

    loader = build(kit.small_graph()).loader(**OPTIONS, features=Broken())
    seen = []
    with pytest.raises(StageError, match=r"epoch 0, batch 2: extraction failed: OSError: .*the disk is gone") as caught:
        for batch in loader:
            seen.append(batch.index)
    assert seen == [0, 1]
    assert isinstance(caught.value.__cause__, OSError)
    assert background_threads() == []


def test_stages_keep_order_and_bound_work():
    running, most = 0, 0
    lock, three = threading.Lock(), threading.Barrier(3)

    def slow(i: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if i < 3:
            three.wait(60)
        time.sleep(0.002 * (3 - i % 3))
        with lock:
            running -= 1
        return i

    stages = [PipelineStage("slow", slow, 3), PipelineStage("double", lambda i: 2 * i)]
    assert list(run_stages(range(20), stages, 5, "item")) == [(i, 2 * i) for i in range(20)]
    assert most == 3
    assert list(run_stages([], stages, 5, "item")) == []


def test_stages_out_of_order_hand_over_what_is_ready():
    """The first item waits until the others were handed over, as far as there is room for them."""
    others = threading.Event()

    def first_is_late(i: int) -> int:
        assert i != 0 or others.wait(60)
        return i

    stages = [PipelineStage("late", first_is_late, 2), PipelineStage("double", lambda i: 2 * i, 2)]
    came = []
    for number, item in run_stages(range(1, 10), stages, 4, "item", in_order=False):
        assert item == 2 * (number - 1)
        came.append(item)
        if len(came) == 8:
            others.set()
    assert sorted(came) == [2 * i for i in range(9)] and came[-1] == 0
    with pytest.raises(StageError, match=r"item 4: divide failed: ZeroDivisionError"):
        list(run_stages(range(1, 10), [PipelineStage("divide", lambda i: 1 / (3 - i), 2)], 4, "item", in_order=False))


@pytest.mark.parametrize("memory", ["tiers", "auto"])
def test_batches_out_of_order_are_the_same_batches(kit, build, memory):
    layout = build(kit.small_graph())
    options = {"fanouts": [3, 2], "batch_size": 4, "seed": 3, "memory": memory}
    expected = [bits(batch) for batch in layout.loader(**options).epoch(1)]
    batches = layout.loader(**options, in_order=False, workers=3, prefetch=4).epoch(1)
    assert [bits(batch) for batch in sorted(batches, key=lambda batch: batch.index)] == expected


def test_batches_of_other_libraries_come_as_they_are_ready(kit, build):
    pytest.importorskip("torch_geometric")
    other = threading.Event()

    def first_is_late(data):
        assert int(data.input_id[0]) >= 4 or other.wait(60)
        return data

    options = {"num_neighbors": [2], "batch_size": 4, "memory": "tiers", "workers": 2, "in_order": False}
    for data in build(kit.small_graph()).pyg_loader(None, shuffle=False, transform=first_is_late, **options):
        assert other.is_set() or int(data.input_id[0]) >= 4
        other.set()


@pytest.mark.parametrize("workers", [1, 2])
def test_an_order_that_cannot_be_changed_is_said(layout, options, caplog, monkeypatch, workers):
    """That of one thread; also where rows are read ahead."""
    monkeypatch.setattr("tiering.loader.process._logged", set())
    options = {**options, "memory": spare(4 << 20), "workers": workers}
    for in_order, count in ((True, 0), (False, int(workers == 1))):
        assert layout.loader(**options, in_order=in_order).lookahead is not None
        said = [r.getMessage() for r in caplog.records if "in_order" in r.getMessage()]
        assert len(said) == count and all("one thread makes them" in text for text in said)


@pytest.mark.parametrize("slow", ["gathering", "conversion"])
@pytest.mark.parametrize("window", [1, 3, "auto"])
def test_a_slow_batch_does_not_hold_up_the_others_that_are_read_ahead(layout, options, monkeypatch, slow, window):
    """The first batch waits until all that may be under way besides it were delivered.

    While it is copied it holds its slots of a small buffer, so that only some others are read.
    """
    pytest.importorskip("torch_geometric")
    others, workers, prefetch = threading.Event(), 2, 4
    ahead = workers + prefetch - 1 if slow == "conversion" else 2

    def late(is_first):
        assert not is_first or others.wait(60)

    def transform(data):
        late(slow == "conversion" and int(data.input_id[0]) == 0)
        return data

    own = {"fanouts", "window", "workers", "prefetch"}
    options = {name: value for name, value in options.items() if name not in own} | {"shuffle": False}
    more = {"window": window, "workers": workers, "prefetch": prefetch, "memory": spare(23 << 18)}
    loader = layout.pyg_loader("train", [3, 2], transform=transform, in_order=False, **options, **more)
    gather = loader.lookahead.gather
    monkeypatch.setattr(
        loader.lookahead, "gather", lambda place, *rows: (late(slow == "gathering" and not place), gather(place, *rows))
    )
    came = []
    for data in loader:
        came.append(int(data.input_id[0]) // loader.batch_size)
        if len(came) >= ahead:
            others.set()
    assert came.index(0) >= ahead and sorted(came) == [*range(len(loader))]
    assert loader.lookahead.buffer.counters()["batches"] == len(loader)


def test_without_torch_rows_still_come_and_tensors_say_what_is_missing(kit, build, monkeypatch):
    data = kit.small_graph()
    with tiering.open(build(data).path) as layout:
        monkeypatch.setitem(sys.modules, "torch", None)
        assert layout.features("node").gather_numpy([0, 1]).shape[0] == 2
        with pytest.raises(CapabilityError, match=r"tiering\[torch\]"):
            layout.features("node").gather([0])
        with pytest.raises(CapabilityError, match=r"tiering\[torch\]"):
            layout.loader("train", **OPTIONS)
