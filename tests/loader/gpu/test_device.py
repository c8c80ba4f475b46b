"""One GPU among others, and beside torch: where work is done, and whose memory it takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tiering import cuda

SUPPORT = str(Path(__file__).parents[2] / "support")
OTHER_GPU = """
import json, sys, threading
import pytest
sys.path.insert(0, sys.argv[1])
import numpy as np
from simulated_gpu import install
from tiering import cuda
from tiering.loader import open_layout
simulator = install(pytest.MonkeyPatch())
with open_layout(sys.argv[2]) as layout:
    loader = layout.loader(seeds=np.arange(40), device="cuda:1", fanouts=[3, 2], batch_size=8)
    batches = [batch.x.sum() for batch in loader.epoch(0)]
    rows = layout.features(device="cuda:1")
    thread = threading.Thread(target=lambda: rows.gather([1, 2]))
    thread.start()
    thread.join()
del loader, rows, thread
print(json.dumps([len(batches), simulator.live("contexts"), simulator.live("allocations"), simulator.device()]))
"""


def test_nothing_is_done_on_another_gpu(kit, build):
    """Memory, streams, events and what gives them back: on GPU 1 alone, from whatever thread."""
    pytest.importorskip("tiering._cuda_simulated")
    layout = build(kit.small_graph())
    environment = {**os.environ, "TIERING_SIMULATED_DEVICES": "2", "TIERING_SIMULATED_PEERS": "off"}
    program = [sys.executable, "-c", OTHER_GPU, SUPPORT, str(layout.path)]
    done = subprocess.run(program, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [5, 1, 0, 0]


class FullCache:
    """In the place of torch, whose allocator keeps blocks that no tensor uses."""

    class cuda:  # noqa: N801
        simulator, initialized, asked = None, True, 0

        @classmethod
        def is_initialized(cls):
            return cls.initialized

        @classmethod
        def empty_cache(cls):
            cls.asked += 1
            cls.simulator.set_memory(1 << 30)


@pytest.fixture
def full(gpu, monkeypatch):
    gpu.set_memory(1 << 20)
    monkeypatch.setattr(FullCache.cuda, "simulator", gpu)
    monkeypatch.setattr(FullCache.cuda, "asked", 0)
    monkeypatch.setitem(sys.modules, "torch", FullCache)
    return FullCache.cuda


def test_memory_that_torch_keeps_is_given_back(full):
    memory = cuda.allocate(0, 32 << 20)
    assert memory.nbytes == 32 << 20 and full.asked == 1
    with pytest.raises(cuda._cuda.OutOfMemoryError):
        cuda.allocate(0, 1 << 40)
    assert full.asked == 2


def test_memory_is_short_where_torch_has_none(full, monkeypatch):
    monkeypatch.setattr(full, "initialized", False)
    with pytest.raises(cuda._cuda.OutOfMemoryError):
        cuda.allocate(0, 32 << 20)
    assert full.asked == 0
