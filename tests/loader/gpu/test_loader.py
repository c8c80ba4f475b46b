"""The loader on a GPU: the very batches of the host's loader, wherever lists and rows lie."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
from child_process import in_child
from gpu_batches import assert_same

from tiering.errors import BudgetError, CapabilityError, InputError
from tiering.loader.batches.pipeline import StageError

BACK = [[("author", "writes", "paper"), ("paper", "written_by", "author")], [("paper", "cites", "paper")]]
"""Metapaths from papers to papers."""


@pytest.mark.parametrize(("data", "sample_on", "options"), [
    ("small_graph", "auto", {"sampler": "pinsage", "fanouts": "3,2", "restart": 0.2}),
    ("hetero_graph", "auto", {"sampler": "pinsage", "fanouts": "3,-1", "metapaths": BACK, "num_walks": 12}),
    ("small_graph", "cpu", {"sampler": "ladies", "fanouts": "20,20", "frontier": "new"}),
    ("hetero_graph", "auto", {"sampler": "ladies", "fanouts": "9,-1,40", "edge_positions": True}),
    ("small_graph", "cpu", {"sampler": "uniform", "fanouts": "4,3"}),
    ("hetero_graph", "auto", {"fanouts": "4,3", "disjoint": True, "edge_positions": True}),
    ("small_graph", "auto", {"fanouts": "4,3", "disjoint": True, "subgraph_type": "induced"}),
    ("small_graph", "auto", {"fanouts": "4,3", "subgraph_type": "bidirectional"}),
])  # fmt: skip
def test_sampled_by_the_host(gpu, kit, build, data, sample_on, options):
    layout = build(getattr(kit, data)())
    options |= {"batch_size": 32, "seed": 9}
    there, here = layout.loader(device="cuda", sample_on=sample_on, **options), layout.loader(**options)
    for epoch in range(2):
        for found, expected in zip(there.epoch(epoch), here.epoch(epoch), strict=True):
            assert_same(found, expected)


@pytest.mark.parametrize("features", ["memory", None])
def test_features_from_elsewhere(gpu, kit, build, features):
    layout = build(kit.small_graph())
    options = {"fanouts": "4,3", "batch_size": 50, "features": features}
    for found, expected in zip(layout.loader(device="cuda", **options), layout.loader(**options), strict=True):
        assert_same(found, expected)


def test_counters(gpu, kit, build):
    layout = build(kit.small_graph())
    options = {"fanouts": "4,3", "batch_size": 32, "memory": "tiers", "direct": "off"}
    here, there = layout.loader(**options), layout.loader(device="cuda", **options)
    for _ in zip(here, there, strict=True):
        pass
    ours, theirs = there.counters()["node"], here.counters()["node"]
    for tier in ("gpu", "peer", "cpu", "ssd"):
        assert ours["tiers"][tier]["rows"] == theirs["tiers"][tier]["rows"] > 0
        assert ours["tiers"][tier]["bytes"] == theirs["tiers"][tier]["bytes"]
    assert ours["gathers"] == theirs["gathers"] == len(here)
    assert ours["ssd_reads"] > 0


def test_adjacency_that_is_not_sound(gpu, kit, build):
    layout = build(kit.small_graph())
    path = layout.graph.path / "relations" / "node__to__node" / "indices"
    indices = np.fromfile(path, np.int32)
    indices[::7] = 300
    indices.tofile(path)
    loader = layout.loader(device="cuda", fanouts="-1,-1", batch_size=32, memory="tiers")
    with pytest.raises(StageError, match=r"sampling failed: .*source id 300 is outside 0..299"):
        list(loader)


def test_too_little_memory_for_a_batch(gpu, kit, build):
    layout = build(kit.small_graph())
    loader = layout.loader(device="cuda", fanouts="50,50,50", batch_size=100)
    gpu.set_memory(gpu.live("bytes") + 10_000)
    with pytest.raises(StageError, match="use smaller batches or fanouts") as caught:
        list(loader)
    assert isinstance(caught.value.__cause__, BudgetError)
    gpu.set_memory(1 << 30)
    expected = list(layout.loader(fanouts="50,50,50", batch_size=100))
    for found, each in zip(loader.epoch(0), expected, strict=True):  # the loader is as good as new
        assert_same(found, each)


@pytest.mark.parametrize(("options", "error", "words"), [
    ({"sample_on": "tpu"}, InputError, "sample_on: expected auto, cpu or gpu"),
    ({"sample_on": "gpu", "device": "cpu"}, CapabilityError, "not supported with device='cpu'"),
    ({"sample_on": "gpu", "sampler": "pinsage"}, CapabilityError, "'pinsage' runs only on the host; use"),
    ({"sample_on": "gpu", "sampler": "ladies"}, CapabilityError, "'ladies' runs only on the host; use"),
    ({"device": "tpu"}, InputError, "device: expected cpu, cuda or cuda:N"),
    ({"peers": "some"}, InputError, "peers: expected auto, off, a process group or a PeerGroup"),
])  # fmt: skip
def test_bad_options(gpu, kit, build, options, error, words):
    layout = build(kit.small_graph())
    with pytest.raises(error, match=words):
        layout.loader(**{"device": "cuda", "fanouts": "4,3", **options})


def test_an_option_that_there_is_not(kit, build):
    layout = build(kit.small_graph())
    with pytest.raises(TypeError, match=r"loader\(\) got an unexpected keyword argument 'fanout'"):
        layout.loader(fanout=[3])
    with pytest.raises(TypeError, match=r"features\(\) got an unexpected keyword argument 'workers'"):
        layout.features(workers=2)


FORKED = "a forked child cannot use a GPU that its parent opened; start the process by spawn"


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child(gpu, kit, build):
    layout = build(kit.small_graph())
    loader = layout.loader(fanouts=(2,), device="cuda")
    with layout.features(device="cuda") as features:

        def use() -> int:
            uses = [lambda: features.gather([1]), lambda: features.counters, features.close, lambda: next(iter(loader))]
            for each in uses:
                with pytest.raises(CapabilityError, match=FORKED):
                    each()
            return layout.features(device="cpu").gather([1]).numel()

        assert in_child(use) == 8
        assert features.gather([1]).shape == (1, 8)


def test_pickled(gpu, kit, build):
    layout = build(kit.small_graph())
    with layout.features(device="cuda") as features, pytest.raises(CapabilityError, match="GpuFeatures belong to the"):
        pickle.dumps(features)
    with pytest.raises(CapabilityError, match="a loader whose batches arrive on a GPU cannot be pickled"):
        pickle.dumps(layout.loader(fanouts=(2,), device="cuda"))


def test_code_of_the_page(gpu, kit, build, repository, tmp_path, monkeypatch, capsys):
    """docs/gpu.md."""
    build(kit.small_graph()).close()
    (tmp_path / "layout-0").rename(tmp_path / "layout")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```$", (repository / "docs" / "gpu.md").read_text(), re.M | re.S)
    names: dict[str, object] = {}
    exec(compile(code, "gpu.md", "exec"), names)  # noqa: S102 - our own page
    assert tuple(names["rows"].shape) == (3, 8)
    assert names["x"].shape[0] == len(names["batch"].nodes["node"])
    assert "gpu 30 rows in cuda:0" in capsys.readouterr().out
