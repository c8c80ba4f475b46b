"""One GPU among others, and beside torch: where work is done, and whose memory it takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from unittest.mock import Mock

import numpy as np
import pytest
from epochs import known_disk
from tight_memory import wide_graph

from tiering import cuda
from tiering.errors import StorageError
from tiering.loader.gpu import memory as gpu_memory

OTHER_GPU = """
import json, sys, threading
import pytest
import numpy as np
from simulated_gpu import install
from tiering import cuda
from tiering.loader import open_layout
simulator = install(pytest.MonkeyPatch())
with open_layout(sys.argv[1]) as layout:
    loader = layout.loader(seeds=np.arange(40), device="cuda:1", fanouts=[3, 2], batch_size=8)
    batches = [batch.x.sum() for batch in loader.epoch(0)]
    rows = layout.features(device="cuda:1")
    thread = threading.Thread(target=lambda: rows.gather([1, 2]))
    thread.start()
    thread.join()
del loader, rows, thread
print(json.dumps([len(batches), simulator.live("contexts"), simulator.live("allocations"), simulator.device()]))
"""
CONSUMER = """
import json, sys
import pytest
from simulated_gpu import install
from tight_memory import tight_loader
from tiering.loader import open_layout
simulator = install(pytest.MonkeyPatch())

def states(epoch):
    for _ in epoch:
        yield simulator.device(), simulator.capture_mode()

with open_layout(sys.argv[1]) as layout:
    options = dict(device="cuda:1", batch_size=8, fanouts=[3, 2], depth=4, sample_on=sys.argv[3], ssd_model=sys.argv[2])
    loader = tight_loader(layout, 60, **options)
    found = [*states(loader.epoch(0)), *states(loader.epoch(1))]
    failing = layout.loader(**options, memory=loader.options.memory.memory)
    def fail(*_, **__):
        raise LookupError("no such node")
    type(failing._batches.sampler).sample = fail
    try:
        list(failing.epoch(0))
    except LookupError:
        found.append((simulator.device(), simulator.capture_mode()))
print(json.dumps(found))
"""


def run_on_two_gpus(program, *arguments):
    """What a program prints as JSON that sees two GPUs, which do not reach each other."""
    pytest.importorskip("tiering._cuda_simulated")
    environment = {**os.environ, "TIERING_SIMULATED_DEVICES": "2", "TIERING_SIMULATED_PEERS": "off"}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_nothing_is_done_on_another_gpu(kit, build):
    """Memory, streams, events and what gives them back: on GPU 1 alone, from whatever thread."""
    layout = build(kit.small_graph())
    assert run_on_two_gpus(OTHER_GPU, layout.path) == [5, 1, 0, 0]


@pytest.mark.parametrize("sample_on", ["gpu", "cpu"])
def test_the_consumers_thread_keeps_its_device_and_capture_mode(kit, build, tmp_path, sample_on):
    """Also while a loader chooses its window by sampling, and where that fails."""
    layout = build(wide_graph(kit, images=2))
    found = run_on_two_gpus(CONSUMER, layout.path, known_disk(tmp_path), sample_on)
    assert found == [[0, 0]] * (2 * 15 + 1)


@pytest.fixture
def full(gpu, monkeypatch):
    """In the place of torch's, whose allocator keeps blocks that no tensor uses."""
    torch = Mock()
    torch.cuda.empty_cache.side_effect = lambda: gpu.set_memory(1 << 30)
    gpu.set_memory(1 << 20)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch.cuda


def test_memory_that_torch_keeps_is_given_back(full):
    memory = cuda.allocate(0, 32 << 20)
    assert memory.nbytes == 32 << 20 and full.empty_cache.call_count == 1
    with pytest.raises(cuda._cuda.OutOfMemoryError):
        cuda.allocate(0, 1 << 40)
    assert full.empty_cache.call_count == 2


def test_memory_is_short_where_torch_has_none(full):
    full.is_initialized.return_value = False
    with pytest.raises(cuda._cuda.OutOfMemoryError):
        cuda.allocate(0, 32 << 20)
    assert full.empty_cache.call_count == 0


def test_a_file_passes_through_pinned_buffers(gpu, tmp_path, monkeypatch):
    """Any number of bytes arrives whole, also where buffers do not divide it; a file that is too short is refused."""
    monkeypatch.setattr(gpu_memory, "_STEP", 5000)
    path, content = tmp_path / "tier", np.random.default_rng(0).integers(0, 256, 30_001, dtype=np.uint8)
    path.write_bytes(content.tobytes())
    for nbytes in (1, 4096, 10_000, 30_001):
        memory, found, stream = cuda.allocate(0, nbytes), np.empty(nbytes, np.uint8), cuda.Stream(0)
        gpu_memory.fill_memory(0, memory.address, path, nbytes)
        cuda.copy(0, found.ctypes.data, memory.address, nbytes, stream.handle)
        stream.synchronize()
        assert np.array_equal(found, content[:nbytes])
    with pytest.raises(StorageError, match="ends at byte 30001"):
        gpu_memory.fill_memory(0, memory.address, path, 40_000)
