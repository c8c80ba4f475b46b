"""Where rows of peers are read from: their GPU, or host memory where that is faster."""

from __future__ import annotations

import numpy as np
import pytest

from tiering import cuda
from tiering.loader.gpu import memory as links


@pytest.fixture
def two(gpu, kit, build, monkeypatch):
    """A layout whose peer tier is spread over two GPUs, of which the second stands for one over PCIe."""
    table = kit.random_table(400, 96)
    data = kit.Dataset({"paper": kit.Nodes(400, table, "uint8", tiers=(40, 200, 160))}, peers=2)
    monkeypatch.setattr(links, "SAMPLE_BYTES", 4096 * 4)
    monkeypatch.setattr(links, "_host_rates", {})
    monkeypatch.setattr(cuda._cuda, "count_devices", lambda: 2)
    monkeypatch.setattr(cuda._cuda, "can_access", lambda device, peer: True)
    monkeypatch.setattr(cuda._cuda, "enable_access", lambda device, peer: None)
    memory = cuda._cuda.DeviceMemory
    monkeypatch.setattr(cuda._cuda, "DeviceMemory", lambda device, nbytes, shared=False: memory(0, nbytes, shared))
    fill = cuda._cuda.fill_device
    monkeypatch.setattr(cuda._cuda, "fill_device", lambda device, *args: fill(0, *args))
    return build(data), table[data.order("paper")]


@pytest.mark.parametrize(("there", "place"), [(20e9, "host memory"), (300e9, "GPU of peer 1")])
def test_rows_lie_where_they_are_read_faster(two, monkeypatch, there, place):
    layout, rows = two
    rates = iter([there, 50e9])
    monkeypatch.setattr(links, "read_rate", lambda device, address, nbytes: next(rates))
    ids = np.random.default_rng(0).integers(0, 400, 1000)
    with layout.features(device="cuda:0") as features:
        assert features.placement()["peer"]["where"] == f"GPU of peer 0, {place}"
        np.testing.assert_array_equal(features.gather(ids).numpy(), rows[ids])


def test_small_shares_are_not_measured(two, monkeypatch):
    layout, _ = two
    monkeypatch.setattr(links, "SAMPLE_BYTES", 64 << 20)
    monkeypatch.setattr(links, "read_rate", lambda *_: pytest.fail("measured"))
    with layout.features(device="cuda:0") as features:
        assert features.placement()["peer"]["where"] == "GPU of peer 0, GPU of peer 1"


def test_a_rate_is_that_of_the_bytes_read(gpu, monkeypatch):
    memory = cuda.allocate(0, 1 << 16)
    seconds = iter([0.0, 5.0, 10.0, 10.5, 20.0, 20.25])
    monkeypatch.setattr(links.time, "perf_counter", lambda: next(seconds))
    assert links.read_rate(0, memory.address, 1 << 16) == (1 << 16) / 0.25
