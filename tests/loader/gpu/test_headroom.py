"""Memory of the GPU that is left to training: refused before it begins, or seen in its first steps."""

from __future__ import annotations

import json
import logging
import re

import pytest
from simulated_gpu import SimulatedDevice, resident_share

from tiering.errors import BudgetError, InputError
from tiering.formats.layout import Layout
from tiering.loader import process
from tiering.loader.gpu.headroom import STEPS

MIB = 1 << 20
OPTIONS = {"fanouts": "3,2", "batch_size": 10, "device": "cuda"}
ROWS = 30 * 32
"""Bytes of the gpu tier of `small_graph`."""
ALL = 300 * 32 + 8 * 301 + 4 * 300 + 4 * 3000
"""Of all its rows and lists, with original ids."""


@pytest.fixture
def memory(monkeypatch):
    """Memory of the simulated device as its driver would say: total, free, that of torch."""
    said = {"total_bytes": 1024 * MIB, "free_bytes": 512 * MIB, "torch_bytes": 0}
    for name in said:
        monkeypatch.setattr(SimulatedDevice, name, lambda device, name=name: said[name])
    monkeypatch.setattr(process, "_logged", set())
    return said


def test_a_size_is_demanded_before_training(gpu, kit, build, memory):
    layout = build(kit.small_graph())
    memory["free_bytes"], memory["torch_bytes"] = 3 * MIB, 2 * MIB
    assert layout.loader(reserve="5MiB", **OPTIONS)  # what torch has already is training's
    with pytest.raises(BudgetError, match=r"reserve: 6 MiB of cuda:0 .*; 5 MiB are, next to .*make it without a gpu"):
        layout.loader(reserve=6 * MIB, **OPTIONS)


def test_what_is_advised_is_what_is_missing(gpu, kit, build, memory, monkeypatch):
    """Of 8 MiB on the GPU, 3 must go where 3 of those to be left are lacking."""
    layout = build(kit.small_graph())
    monkeypatch.setattr("tiering.loader.gpu.headroom.cache_bytes", lambda *_: 8 * MIB)
    memory["free_bytes"] = 7 * MIB
    with pytest.raises(BudgetError, match="--gpu 5MiB or less"):
        layout.loader(reserve="10MiB", **OPTIONS)


def test_first_steps_are_seen(gpu, kit, build, memory, monkeypatch, caplog):
    """Free memory falls as training goes on; the least of the first steps counts."""
    monkeypatch.setattr(Layout, "adjacency_prefix", resident_share(1.0, weights=False))
    layout = build(kit.small_graph())
    loader = layout.loader(reserve="auto", **OPTIONS)
    assert loader.stats().gpu_memory is None and loader.stats().as_dict()["gpu_memory"] is None
    with caplog.at_level(logging.WARNING):
        for step, _ in enumerate(loader):
            memory["free_bytes"] = (900, 400, 300, 350)[min(step, 3)] * MIB
            if step == 1:  # one step has ended
                seen = loader.stats().gpu_memory
                assert (seen.steps, seen.free) == (1, 900 * MIB)
    seen = loader.stats().gpu_memory
    caches = ROWS + ALL - 300 * 32
    assert (seen.steps, seen.free, seen.caches, seen.most) == (STEPS, 300 * MIB, caches, ALL)
    assert seen.training == 724 * MIB - caches
    assert seen.advised == ALL  # all there is fits
    assert json.loads(json.dumps(loader.stats().as_dict()))["gpu_memory"]["training"] == seen.training
    assert "memory of the GPU: 724 MiB training and others" in loader.stats().table()
    assert "300 MiB free at least" in str(loader.describe())
    assert not caplog.records  # nothing to gain


@pytest.mark.parametrize(
    ("caches", "free", "said"),
    [
        (
            100,
            500,
            "after 8 steps 500 MiB of cuda:0 are free, and more rows and lists fit: make the layout with --gpu 568",
        ),
        (600, 10, "after 8 steps 10 MiB of cuda:0 are free, and larger batches may not fit: .* --gpu 578MiB"),
        (600, 64, None),
        (600, 32, None),
        (2000, 500, None),
    ],
)
def test_a_warning_says_what_would_be_better(gpu, kit, build, memory, monkeypatch, caplog, caches, free, said):
    """A thirty-second of 1 GiB stays free; less than a sixteenth more or less is not worth a word."""
    layout = build(kit.small_graph())
    loader = layout.loader(reserve="auto", **OPTIONS)
    loader._headroom._caches, loader._headroom._most = min(caches, 1000) * MIB, 1000 * MIB
    memory["free_bytes"] = free * MIB
    with caplog.at_level(logging.WARNING):
        for _ in loader:
            pass
        for _ in loader:
            pass
    found = [record.getMessage() for record in caplog.records if "after 8 steps" in record.getMessage()]
    assert len(found) == (said is not None)
    if said is not None:
        assert re.search(said, found[0])


def test_the_driver_is_asked(gpu, kit, build):
    """By the simulated device's own accounts: what the sampler takes is not free."""
    gpu.set_memory(64 * MIB)
    loader = build(kit.small_graph()).loader(reserve="auto", **OPTIONS)
    for _ in loader:
        pass
    seen = loader.stats().gpu_memory
    assert seen.total - seen.free == gpu.live("bytes") >= seen.caches + loader._batches.sampler.device_bytes > ROWS


def test_what_is_refused(gpu, kit, build):
    layout = build(kit.small_graph())
    with pytest.raises(InputError, match="reserve: memory of a GPU; give device='cuda' too, or leave it out"):
        layout.loader(fanouts="3,2", reserve="auto")
    for wrong in ("10%", "much", -1):
        with pytest.raises(InputError, match="reserve"):
            layout.loader(reserve=wrong, **OPTIONS)
