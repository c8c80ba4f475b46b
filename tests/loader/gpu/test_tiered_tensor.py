"""Tiered tensors, gathered by a GPU: rows as indexing the tensor gives them."""

from __future__ import annotations

import mmap
import os
import pickle

import numpy as np
import pytest
import torch
from child_process import in_child

import tiering
from tiering.errors import BudgetError, CapabilityError, InputError
from tiering.loader.processes.peers import mapped, shared_memory

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8]
ROW_SHAPES = [(), (1,), (7,), (3, 50), (1030,)]
SIZES = [{}, {"gpu": "30%"}, {"gpu": "30%", "cpu": "30%"}, {"gpu": "100%"}, {"cpu": 0}, {"gpu": "10%", "cpu": 0}]


def source_of(path, shape, dtype, on_disk, seed=0):
    """A tensor of random numbers, and the same to give: in memory, or mapped from a file."""
    generator = torch.Generator().manual_seed(seed)
    tensor = torch.randint(0, 200, shape, generator=generator).to(dtype)
    if not on_disk:
        return tensor, tensor.clone()
    path.write_bytes(b"12345678" + tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    mapped = np.memmap(path, np.uint8, "r+", 8, (tensor.numel() * tensor.element_size(),))
    return tensor, torch.from_numpy(mapped).view(dtype).view(shape)


def rows_of(tiered, ids):
    """Rows, once the GPU has written them."""
    rows = tiered[ids]
    tiered._rows._done.wait()
    return rows


@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "disk"])
@pytest.mark.parametrize("ordered", [False, True], ids=["first", "ordered"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_rows_are_those_of_the_tensor(gpu, tmp_path, on_disk, ordered, sizes):
    random = np.random.default_rng(0)
    free = gpu.live("bytes")
    for dtype, row_shape in zip(DTYPES, ROW_SHAPES, strict=True):
        tensor, given = source_of(tmp_path / str(dtype), (200, *row_shape), dtype, on_disk)
        order = random.integers(0, 50, 200) if ordered else None
        with tiering.tiered(given, order=order, device="cuda", threads=2, **sizes) as tiered:
            assert (tiered.shape, tiered.dtype, len(tiered)) == (tensor.shape, tensor.dtype, 200)
            for count, kind in ((0, np.int64), (1, np.int32), (900, np.int64)):
                ids = random.integers(0, 200, count).astype(kind)
                for wanted in (ids, torch.from_numpy(ids)):
                    assert torch.equal(rows_of(tiered, wanted), tensor[torch.from_numpy(ids).long()])
            out = torch.empty((3, *row_shape), dtype=dtype)
            assert tiered.gather([5, 5, 7], out=out) is out
            rows_of(tiered, [0])  # waits for the gather before, too
            assert torch.equal(out, tensor[[5, 5, 7]])
            served = {tier: count.rows for tier, count in tiered.counters.tiers.items()}
            placed = tiered.placement()
            assert {tier for tier in served if served[tier]} == {tier for tier in placed if placed[tier]["rows"]}
            assert sum(place["rows"] for place in placed.values()) == 200
            assert gpu.live("bytes") - free >= placed["gpu"]["bytes"]
        del tiered
        assert gpu.live("bytes") == free, "memory of the GPU was given back"
        assert gpu.live("registered") == 0, "host memory was unlocked"


@pytest.mark.parametrize("name", ["int8", "float8_e4m3", "bfloat16"])
@pytest.mark.parametrize("share", [0, "30%", "100%"])
def test_the_gpu_decodes(gpu, tmp_path, name, share):
    free = gpu.live("bytes")
    for dtype in (torch.float32, torch.float16):
        tensor = torch.randn((200, 7), generator=torch.Generator().manual_seed(3)).to(dtype)
        np.save(tmp_path / "table.npy", tensor.numpy())
        given = np.load(tmp_path / "table.npy", mmap_mode="r")
        expected = tiering.tiered(tensor, dtype=name, device="cpu")
        order = torch.rand(200)
        with tiering.tiered(given, dtype=name, gpu=share, order=order, device="cuda", threads=2) as tiered:
            ids = torch.randint(0, 200, (900,))
            assert torch.equal(rows_of(tiered, ids), expected[ids])
            out = torch.empty((3, 7), dtype=dtype)
            tiered.gather([5, 5, 7], out=out)
            rows_of(tiered, [0])
            assert torch.equal(out, expected[[5, 5, 7]])
            assert tiered.placement()["gpu"]["rows"] == {0: 0, "30%": 60, "100%": 200}[share]
            counted = sum(tier.bytes for tier in tiered.counters.tiers.values())
            assert counted == 904 * tiered.codec.row_bytes
            assert gpu.live("bytes") - free >= tiered.placement()["gpu"]["bytes"]
        del tiered
        assert (gpu.live("bytes"), gpu.live("registered")) == (free, 0)


def test_no_rows(gpu):
    tiered = tiering.tiered(torch.zeros(0, 4), gpu="50%", order=[], device="cuda")
    assert tiered[[]].shape == (0, 4)
    assert repr(tiered) == "<TieredTensor (0, 4) torch.float32 on cpu: no rows>"  # torch's name of the simulated GPU


def test_the_hottest_rows_lie_on_the_gpu(gpu):
    tensor = torch.arange(400.0).view(100, 4)
    order = np.zeros(100)
    order[[90, 3, 50, 4, 60]] = [9, 8, 7, 6, 5]
    tiered = tiering.tiered(tensor, gpu=2 * 16, order=order, device="cuda")
    tiered[[90, 3]]
    assert tiered.counters.tiers["gpu"].rows == 2
    tiered[[50, 0, 1]]
    assert tiered.counters.tiers["cpu"].rows == 3
    assert [place["where"] for place in tiered.placement().values()] == ["cuda:0", "pinned host memory", "empty"]
    tiered.close()


def test_a_tensor_in_memory_is_locked_once_and_not_copied(gpu):
    tensor = torch.arange(400.0).view(100, 4)
    before = gpu.live("host")
    first, second = (tiering.tiered(tensor, gpu="50%", order=np.arange(100), device="cuda") for _ in range(2))
    assert gpu.live("registered") == 1
    assert torch.equal(rows_of(first, [3, 99]), tensor[[3, 99]])
    first.close()
    del first
    assert gpu.live("registered") == 1
    assert torch.equal(rows_of(second, [3, 99]), tensor[[3, 99]])
    second.close()
    assert (gpu.live("registered"), gpu.live("host") - before < 20) == (0, True)


def test_memory_that_can_only_be_read_is_locked(gpu):
    """As features in /dev/shm are, which another process fills and this one maps with ``mode="r"``."""
    rows = np.arange(400, dtype=np.float32).reshape(100, 4)
    descriptor, memory = shared_memory("rows", rows.nbytes)
    memory[:] = rows.view(np.uint8).ravel()
    tensor = mapped(descriptor, rows.nbytes, mmap.ACCESS_READ).view(np.float32).reshape(rows.shape)
    os.close(descriptor)
    with tiering.tiered(tensor, gpu="20%", order=np.arange(100), device="cuda") as tiered:
        assert gpu.live("registered") == 1
        assert rows_of(tiered, [3, 99]).equal(torch.from_numpy(rows[[3, 99]]))


def test_ids_out_of_range(gpu):
    tensor = torch.arange(400.0).view(100, 4)
    for order in (None, np.arange(100)):
        with tiering.tiered(tensor, gpu="20%", order=order, device="cuda") as tiered:
            out = torch.full((4, 4), -1.0)
            for bad in (-1, 100, 2**40):
                with pytest.raises(InputError, match=rf"tiered tensor: ids\[2\] is {bad}, outside 0..99"):
                    tiered.gather(np.array([1, 2, bad, 3]), out=out)
            tiered.gather(np.array([5, -1, 100, 99]), out=out, checked=False)
            tiered.close()  # waits
            assert torch.equal(out[[0, 3]], tensor[[5, 99]])
            assert (out[1:3] == -1).all()


def test_too_little_memory_leaves_nothing(gpu):
    tensor = torch.zeros(1000, 1024)
    free = gpu.live("bytes")
    gpu.set_memory(free + (2 << 20) - 1)
    with pytest.raises(
        BudgetError, match=r"tiered tensor: gpu: memory of the GPU: .*: 2 MiB needed; 2 MiB are free; give"
    ):
        tiering.tiered(tensor, gpu="2MiB", device="cuda")
    assert gpu.live("bytes") == free
    gpu.set_memory(1 << 30)
    gpu.set_registrable(4096)
    with pytest.raises(BudgetError, match=r"page-locking the rows that are not copied: page-locking host memory"):
        tiering.tiered(tensor, gpu="2MiB", device="cuda")
    assert gpu.live("bytes") == free


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_other_processes(gpu):
    tiered = tiering.tiered(torch.zeros(100, 4), gpu="20%", device="cuda")
    with pytest.raises(CapabilityError, match="belongs to the memory of one process and cannot be pickled"):
        pickle.dumps(tiered)

    def use() -> bool:
        for call in (lambda: tiered[[1]], tiered.close):
            with pytest.raises(CapabilityError, match="a forked child cannot use a GPU"):
                call()
        return True

    assert in_child(use)
    tiered.close()
