"""What lies between a loader on a GPU, torch, the driver and other processes; skipped where there is no GPU.

A simulated device has no allocator of torch's, no driver, and its processes cannot die while kernels run.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from tiering import cuda

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("real_gpu")]

OPTIONS = {"fanouts": "10,10", "batch_size": 16}
SHARED = """
import os, sys
import numpy as np
from torch.distributed import FileStore
from tiering.errors import DeviceError
from tiering.loader import PeerGroup, open_layout
layout = open_layout(sys.argv[1])
group = PeerGroup(int(sys.argv[3]), 2, FileStore(sys.argv[2], 2), timeout=60)
features = layout.features(device="cuda:0", peers=group)
whole = layout.features()
ids = np.random.default_rng(group.rank).integers(0, len(features), 2000)
assert features.gather(ids).cpu().equal(whole.gather(ids))
where = features.placement()["peer"]["where"]
print("shared" if where == "GPU of peer 0, GPU of peer 1" else where, flush=True)
"""
TO_THE_END = SHARED + "features.close()"
UNTIL_ONE_DIES = (
    SHARED
    + """
print("ready", flush=True)
sys.stdin.readline()
try:
    features.gather(ids).cpu()
    print("gathered", flush=True)
except DeviceError as error:
    print(error, flush=True)
os._exit(0)  # closing waits for the other
"""
)


def test_a_batch_outlives_its_loader(kit, build):
    """Torch's allocator remembers the streams that a tensor was used on, and asks them when the tensor goes."""
    layout = build(kit.small_graph())
    expected = [(batch.nodes["node"].clone(), batch.x.clone()) for batch in layout.loader(**OPTIONS)]
    loader, side = layout.loader(device="cuda", **OPTIONS), torch.cuda.Stream()
    kept = list(loader)
    del loader
    layout.close()
    gc.collect()
    torch.cuda.empty_cache()
    over = [torch.full((1 << 20,), -1, device="cuda") for _ in range(64)]  # what was given back is written over
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for batch, (nodes, x) in zip(kept, expected, strict=True):
            assert batch.nodes["node"].cpu().equal(nodes) and batch.x.cpu().equal(x)
            batch.x.record_stream(side)
    del kept, batch, over
    for _ in range(3):
        again = torch.empty(1 << 20, device="cuda")  # the allocator looks at streams of what went
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    assert again.numel() == 1 << 20


def test_a_training_step_is_captured_beside_the_loaders_threads(kit, build):
    layout = build(kit.small_graph())
    model = torch.nn.Linear(8, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, foreach=False)
    x = torch.randn(64, 8, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=False)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            eager = step()
    side.synchronize()
    batches, expected = iter(layout.loader(device="cuda", prefetch=4, **OPTIONS)), iter(layout.loader(**OPTIONS))
    for _ in range(2):
        for _ in range(5):  # the threads begin the next batches as these are taken
            assert next(batches).x.cpu().equal(next(expected).x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = step()
            time.sleep(0.1)
        graph.replay()
        torch.testing.assert_close(loss, eager)
    assert [batch.x.cpu().equal(other.x) for batch, other in zip(batches, expected, strict=True)].count(False) == 0


def test_tiers_take_what_torch_keeps_for_later(kit, build):
    """Torch fills the GPU and frees it, which leaves the memory with torch; a tier needs more than is left."""
    rows = kit.random_table(16384, 4096)
    layout = build(kit.Dataset({"paper": kit.Nodes(16384, rows, "uint8", tiers=(16384, 0, 0))}))
    torch.cuda.empty_cache()
    block = torch.empty(cuda.free_bytes(0) - (24 << 20), dtype=torch.uint8, device="cuda")
    kept = block.numel()
    del block
    assert cuda.free_bytes(0) < rows.nbytes
    assert torch.cuda.memory_reserved() - torch.cuda.memory_allocated() >= kept
    with layout.features(device="cuda") as features:
        ids = np.arange(0, 16384, 7)
        np.testing.assert_array_equal(features.gather(ids).cpu().numpy(), layout.features().gather(ids).numpy())
    assert torch.cuda.memory_reserved() < kept


@contextmanager
def ranks(program, layout, folder):
    """Two processes that share a layout's rows on GPU 0."""
    arguments = [sys.executable, "-c", program, str(layout.path), str(folder / "meet")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen([*arguments, str(rank)], **pipes) for rank in range(2)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def skip_where_nothing_is_shared(said, why=""):
    """CUDA's IPC is missing on some virtual machines, in containers, on parts of a GPU; rows are right without it."""
    if said != "shared":
        assert said.count("host memory") == 1, said + why
        pytest.skip(f"processes cannot open each other's memory of this GPU: {why.strip()}")


@pytest.fixture
def shared_rows(kit, build):
    table = kit.random_table(400, 96)
    return build(kit.Dataset({"paper": kit.Nodes(400, table, "uint8", tiers=(40, 200, 160))}, peers=2))


def test_two_processes_on_one_gpu_share_their_memory(shared_rows, tmp_path):
    with ranks(TO_THE_END, shared_rows, tmp_path) as processes:
        for process in processes:
            said, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors
            skip_where_nothing_is_shared(said.strip(), errors)


def test_a_peer_that_is_killed_is_named(shared_rows, tmp_path):
    with ranks(UNTIL_ONE_DIES, shared_rows, tmp_path) as (survivor, victim):
        for process in (survivor, victim):
            skip_where_nothing_is_shared(process.stdout.readline().strip())
        assert [survivor.stdout.readline(), victim.stdout.readline()] == ["ready\n", "ready\n"]
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait(30)
        said, errors = survivor.communicate("go\n", timeout=60)
        assert said.startswith(f"peer 1 (process {victim.pid}) has ended"), said + errors
