"""A file read into the memory of the GPU, as tiers are filled: our own reads and copies, against kvikio (cuFile).

Both read a file that is not in the page cache; kvikio's threads and tasks are as its environment says. Whether kvikio
may use GPUDirect Storage is among the parameters, for without it kvikio reads through host memory, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
from torch import Tensor

from benchmarks.gpu.side import GpuSide, empty_rows
from benchmarks.harness import Comparison, Sizes, Spent, compare, take_turn
from benchmarks.stages import bench_folder, forget
from tiering.artifacts.storage import ALIGNMENT
from tiering.errors import InternalError
from tiering.loader.gpu.memory import fill_memory

KVIKIO = "kvikio"
_BLOCK = 64 << 20


def fill(sizes: Sizes) -> Comparison:
    """Measure both filling the same memory from a file of ``--size`` bytes in turn, after a check of their reads."""
    gpu = GpuSide(sizes)
    rows = max(1, sizes.image_bytes // ALIGNMENT)
    into = empty_rows(gpu.device, rows, ALIGNMENT)
    with bench_folder(sizes) as folder:
        path = folder / "rows"
        _write(path, rows * ALIGNMENT, sizes.seed)
        ours = partial(_turn, gpu, fill_memory, path, into)
        _check(ours, path, into, "tiering")
        theirs: partial[Spent] | str
        try:
            theirs, state = partial(_turn, gpu, _by_kvikio(), path, into), _gds_state()
        except (ImportError, OSError, RuntimeError) as error:
            theirs, state = f"kvikio cannot be imported: {error}", "not known"
        else:
            _check(theirs, path, into, KVIKIO)
        return compare(
            "gpu-fill", ours, {KVIKIO: theirs}, amount=rows * ALIGNMENT / 1e9, unit="GB", repeats=sizes.repeats,
            parameters={"bytes": rows * ALIGNMENT, "kvikio": state}, warm_up=False,
        )  # fmt: skip


Fill = Callable[[int, int, Path, int], None]
"""(number of a GPU, address there, file, bytes)."""


class _DeviceBytes:
    """Memory of a GPU as kvikio takes it: an object with the CUDA Array Interface, version 3."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,), "typestr": "|u1", "data": (address, False), "strides": None, "version": 3,
        }  # fmt: skip


def _by_kvikio() -> Fill:
    cufile = import_module("kvikio.cufile")  # a folder of the name kvikio would do as a module

    def fill(device: int, address: int, path: Path, nbytes: int) -> None:
        with cufile.CuFile(path, "r") as file:
            file.pread(_DeviceBytes(address, nbytes), nbytes, 0).get()

    return fill


def _gds_state() -> str:
    """Return how kvikio uses GPUDirect Storage here."""
    if import_module("kvikio.defaults").is_compat_mode_preferred():
        return "compatibility mode"
    available = import_module("kvikio.cufile_driver").get("is_gds_available")
    return "GPUDirect Storage" if available else "cuFile without GPUDirect Storage"


def _turn(gpu: GpuSide, fill: Fill, path: Path, into: Tensor) -> Spent:
    forget([path])
    gpu.finish()
    return take_turn(partial(fill, gpu.device.index, into.data_ptr(), path, into.numel() * into.element_size()))


def _write(path: Path, nbytes: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    with path.open("wb") as file:
        for begin in range(0, nbytes, _BLOCK):
            file.write(random.bytes(min(_BLOCK, nbytes - begin)))


def _check(turn: partial[Spent], path: Path, into: Tensor, who: str) -> None:
    """Raise unless a turn leaves the file's bytes on the GPU."""
    into.zero_()
    turn()
    row_bytes = into.shape[1] * into.element_size()
    step = max(1, _BLOCK // row_bytes)
    for begin in range(0, len(into), step):
        part = into[begin : begin + step].cpu().numpy().view(np.uint8).ravel()
        if not np.array_equal(part, np.fromfile(path, np.uint8, part.size, offset=begin * row_bytes)):
            raise InternalError(f"gpu-fill: {who} read other bytes than the file has, from row {begin} on")
