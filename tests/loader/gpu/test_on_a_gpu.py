"""Rows, batches and training on a GPU; skipped where there is none. `make gpu-test` runs these.

What lies beside torch and other processes: test_beside_torch.py.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from coded_layouts import coded_toy
from epochs import known_disk
from gpu_batches import assert_same
from rank_processes import batches_alone, expect_epoch, started
from tight_memory import spare, tight_loader, wide_graph
from toy_datasets import chain

import tiering
from tiering import cuda, pipeline
from tiering.layout.options import LayoutOptions
from tiering.loader.gpu import fit

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("real_gpu")]


@pytest.mark.parametrize("row_bytes", [1, 12, 512, 602, 1536, 2408, 4096, 5000])
@pytest.mark.parametrize("tiers", [(100, 151, 249), (700, 0, 0), (0, 0, 700), (0, 0, 0)])
def test_rows(kit, build, row_bytes, tiers):
    table = kit.random_table(700, row_bytes)
    data = kit.Dataset({"paper": kit.Nodes(700, table, "uint8", tiers=tiers)}, peers=3)
    layout, rows = build(data), table[data.order("paper")]
    ids = np.random.default_rng(1).integers(0, 700, 5000)
    with layout.features(device="cuda") as features:
        found = features.gather(ids)
        assert found.device.type == "cuda"
        np.testing.assert_array_equal(found.cpu().numpy(), rows[ids])
        there = torch.from_numpy(ids).cuda()
        assert features.gather(there, out=torch.empty_like(found)).equal(found)


@pytest.mark.parametrize("stored", ["int8", "float8_e4m3", ["bfloat16", "paper=float16"]], ids=str)
@pytest.mark.parametrize("dtype", [None, "bfloat16", "float32"])
def test_coded_rows_are_the_hosts(tmp_path, stored, dtype):
    toy, tiers = coded_toy(tmp_path / "data", 300), {"gpu": "11%", "peer": "2x7%", "cpu": "20%"}
    reordered = chain(toy, tmp_path)[2]
    options = {"node_type": "paper", "fanouts": [4, 4], "batch_size": 32, "edge_features": True, "dtype": dtype}
    with tiering.write_layout(reordered, out=tmp_path / "l", ssd=[tmp_path / "d"], dtype=stored, **tiers) as layout:
        for name in layout.feature_types:
            here, there = (layout.features(name, device=device, dtype=dtype) for device in ("cpu", "cuda"))
            ids = np.random.default_rng(1).integers(0, len(here), 5000)
            assert torch.equal(there.gather(ids).cpu().view(torch.uint8), here.gather(ids).view(torch.uint8))
        for memory in ("tiers", "auto"):
            here, there = (layout.loader(device=device, memory=memory, **options) for device in ("cpu", "cuda"))
            for found, expected in zip(there, here, strict=True):
                assert_same(found, expected)


@pytest.mark.parametrize("frontier", ["all", "new"])
@pytest.mark.parametrize(("sampler", "fanouts"), [
    ("uniform", "4,3,2"), ("replacement", "5,4"), ("weighted", "4,3"), ("full", "-1,-1"), ("pinsage", "4,3"),
    ("ladies", "20,20"),
])  # fmt: skip
@pytest.mark.parametrize("data", ["small_graph", "hetero_graph"])
def test_batches_are_the_hosts(kit, build, data, sampler, fanouts, frontier):
    layout = build(getattr(kit, data)())
    options = {"fanouts": fanouts, "batch_size": 32, "sampler": sampler, "frontier": frontier}
    here, there = layout.loader(**options), layout.loader(device="cuda", **options)
    for epoch in range(2):
        for found, expected in zip(there.epoch(epoch), here.epoch(epoch), strict=True):
            assert_same(found, expected)


@pytest.fixture
def ahead(kit, build, tmp_path):
    """A layout most of whose rows lie on SSD, and options of loaders of small batches."""
    options = {"batch_size": 8, "fanouts": [3, 2], "depth": 4, "ssd_model": known_disk(tmp_path)}
    return build(wide_graph(kit, images=2)), options


@pytest.mark.parametrize("sample_on", ["gpu", "cpu"])
@pytest.mark.parametrize(("extra_rows", "window"), [(0, 1), (60, 4), (200, "auto")])
def test_rows_read_ahead_are_the_hosts(ahead, extra_rows, window, sample_on):
    layout, options = ahead
    loader = tight_loader(layout, extra_rows, device="cuda", window=window, sample_on=sample_on, **options)
    here = layout.loader(**options, features="memory")
    for epoch in range(3):
        for found, expected in zip(loader.epoch(epoch), here.epoch(epoch), strict=True):
            assert_same(found, expected)
    assert loader.lookahead.buffer.counters()["rows_read"] > 0
    assert loader.counters()["node"]["ssd_reads"] == 0


def test_slots_are_kept_while_kernels_read_them(ahead):
    """The stream of the loader is busy before each gather: slots are read long after they were found."""
    layout, options = ahead
    loader = tight_loader(layout, 0, device="cuda", window=1, prefetch=4, **options)
    expected = [batch.x.clone() for batch in layout.loader(**options, features="memory").epoch(0)]
    stream = loader._batches._stream
    kept = []
    for batch in loader.epoch(0):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
        kept.append(batch.x * 1)
    assert all(found.cpu().equal(rows) for found, rows in zip(kept, expected, strict=True))


def test_rows_that_fit_are_read_by_the_kernel(ahead):
    layout, options = ahead
    loader = layout.loader(device="cuda", memory=spare(4 << 30), **options)
    assert loader.lookahead is None and loader.features["node"].preloaded
    for found, expected in zip(loader.epoch(0), layout.loader(**options, features="memory").epoch(0), strict=True):
        assert_same(found, expected)
    assert loader.counters()["node"]["ssd_reads"] == 0


def test_after_the_first_epochs_the_driver_is_not_asked(kit, build):
    layout = build(kit.small_graph())
    loader = layout.loader(device="cuda", fanouts="10,10", batch_size=16)
    for epoch in range(3):
        for _ in loader.epoch(epoch):
            pass
    torch.cuda.synchronize()
    sampler = loader._batches.sampler
    asked, taken = torch.cuda.memory_stats()["num_device_alloc"], sampler._native.device_bytes
    for epoch in range(3, 6):
        for _ in loader.epoch(epoch):
            pass
    torch.cuda.synchronize()
    assert torch.cuda.memory_stats()["num_device_alloc"] == asked
    assert sampler._native.device_bytes == taken > 0


def test_batches_wait_for_nothing_but_themselves(kit, build):
    """Training on a stream of its own, slower than the loader: what it keeps is not written over."""
    layout = build(kit.small_graph())
    options = {"fanouts": "10,10", "batch_size": 16}
    kept, side = [], torch.cuda.Stream()
    heavy = torch.rand(2048, 2048, device="cuda")
    with torch.cuda.stream(side):
        for batch in layout.loader(device="cuda", prefetch=4, **options):
            heavy = heavy @ heavy
            heavy /= heavy.norm()
            kept.append((batch.nodes["node"] * 1, batch.x * 1))
            del batch
    side.synchronize()
    for (nodes, x), expected in zip(kept, layout.loader(**options), strict=True):
        assert nodes.cpu().equal(expected.nodes["node"])
        assert x.cpu().equal(expected.x)


def test_the_kernel_in_a_graph(kit, build):
    table = kit.random_table(700, 512)
    data = kit.Dataset({"paper": kit.Nodes(700, table, "uint8", tiers=(700, 0, 0))})
    layout, rows = build(data), table[data.order("paper")]
    features = layout.features(device="cuda")
    ids = torch.zeros(64, dtype=torch.int64, device="cuda")
    out = torch.empty((64, 512), dtype=torch.uint8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        stream = torch.cuda.current_stream().cuda_stream
        features._table.gather(ids.data_ptr(), 64, out.data_ptr(), stream)
    for seed in range(3):
        wanted = np.random.default_rng(seed).integers(0, 700, 64)
        ids.copy_(torch.from_numpy(wanted))
        graph.replay()
        np.testing.assert_array_equal(out.cpu().numpy(), rows[wanted])
    features.close()


@pytest.mark.parametrize("extra_rows", [0, 60])
def test_two_processes_on_one_gpu_read_one_buffer(ahead, tmp_path, extra_rows):
    layout, options = ahead
    options = {**options, "device": "cuda:0", "ssd_model": str(options["ssd_model"])}
    with started(2, layout.path, tmp_path, options, simulated=False) as ranks:
        ranks.open_tight(extra_rows)
        for epoch in range(2):
            expect_epoch(ranks.all("epoch in step", epoch), batches_alone(layout, options, epoch))
        mappings = ranks.all("mappings")
        assert set(mappings[0]) == set(mappings[1]) and "tiering-buffer" in mappings[0].values()


def test_the_example_learns_the_same(kit, build, example):
    layout = build(kit.small_graph())
    options = {"epochs": 2, "fanouts": [4, 3], "batch_size": 32, "hidden": 16}
    here, there = example.train(layout.path, **options), example.train(layout.path, device="cuda", **options)
    assert there["batch_digest"] == here["batch_digest"]
    np.testing.assert_allclose(there["losses"], here["losses"], rtol=1e-3)


def test_costs_fitted_on_this_gpu(tmp_path, capfd):
    """How long accesses take depends on the GPU and on what else it does; that each kind is fitted does not."""
    tiering.generate_dataset(tmp_path / "data", nodes=50_000, edges=1_000_000, dim=256)
    graph = pipeline.import_graph(tmp_path / "data", tmp_path / "graph")
    scores = pipeline.score_graph(graph, tmp_path / "scores", fanouts=[10, 10], batch_size=1000)
    reordered = pipeline.reorder_graph(graph, scores, tmp_path / "reordered")
    options = LayoutOptions(gpu="8MiB", adjacency_cache="auto", fit="auto")
    costs = fit.fit_costs(options, reordered, scores, "2GiB").costs
    assert costs.source == f"fitted on reordered, {cuda.device_info(0).name}"
    assert costs.feature_per_byte > 0 and "rows of 1024 B" in capfd.readouterr().err
