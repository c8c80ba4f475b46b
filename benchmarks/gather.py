"""Random rows of memory, gathered into an output that is used again: against a plain C++ loop, torch and NumPy."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Comparison, Sizes, Work, compare, expect
from tiering import native
from tiering.artifacts.storage import aligned_bytes
from tiering.errors import CapabilityError
from tiering.text.units import format_bytes

ROW_BYTES = (128, 512, 4096)
LOOP = "C++ loop"
_PROGRAM = Path(__file__).parent / "programs" / "copy_rows.cpp"
_TABLE, _TURN = 2 << 30, 1 << 29
"""Bytes of the table, and of a turn's rows, at most."""
_AIM = 0.95
"""Share of the loop's speed that is aimed at."""


def gather(sizes: Sizes) -> Iterator[Comparison]:
    """Compare per size of a row; the table has `sizes.feature_bytes`."""
    import torch

    torch.set_num_threads(sizes.threads)
    table_bytes = min(_TABLE, sizes.feature_bytes)
    whole, out_bytes = aligned_bytes(table_bytes), aligned_bytes(min(_TURN, table_bytes // 4))
    whole.view(np.uint64)[:] = np.random.default_rng(0).integers(0, 2**63, table_bytes // 8, np.uint64)
    loop = plain_loop()
    for row_bytes in ROW_BYTES:
        rows, count = table_bytes // row_bytes, out_bytes.size // row_bytes
        data, out = whole[: rows * row_bytes].reshape(rows, row_bytes), out_bytes[: count * row_bytes]
        out = out.reshape(count, row_bytes)
        ids = np.random.default_rng(row_bytes).integers(0, rows, count)
        table = native.TieredTable(row_bytes, [0, 0, rows, rows], None, [], data.ravel(), None)
        values, found = data.view(np.float32), out.view(np.float32)
        tensors = [torch.from_numpy(array) for array in (values, ids, found)]

        works: dict[str, Work] = {
            "ours": partial(table.gather, ids, out, sizes.threads),
            LOOP: partial(loop, data.ctypes.data, ids.ctypes.data, count, row_bytes, out.ctypes.data, sizes.threads),
            "torch.index_select": partial(torch.index_select, tensors[0], 0, tensors[1], out=tensors[2]),
            "numpy.take": partial(np.take, values, ids, axis=0, out=found, mode="clip"),
        }
        for name, work in works.items():
            out.fill(0)
            work()
            expect("gather", np.array_equal(out, data[ids]), f"rows ({name})")
        yield compare(
            "gather", works.pop("ours"), works, amount=count * row_bytes, unit="B", repeats=sizes.repeats,
            targets={LOOP: _AIM},
            parameters={"table": format_bytes(table_bytes), "row_bytes": row_bytes, "threads": sizes.threads},
        )  # fmt: skip


def plain_loop() -> Callable[..., Any]:
    """Return ``copy_rows`` of the program next to this file, compiled for this processor."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        raise CapabilityError("gather: expected a C++ compiler (c++ or g++) for the loop that it is compared with")
    with tempfile.TemporaryDirectory(prefix="tiering-bench-") as folder:
        made = Path(folder) / "copy_rows.so"
        options = ["-O3", "-march=native", "-std=c++20", "-shared", "-fPIC", "-pthread"]
        command = [compiler, *options, str(_PROGRAM), "-o", str(made)]
        subprocess.run(command, check=True)
        function = ctypes.CDLL(str(made)).copy_rows
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    function.argtypes = [pointer, pointer, number, number, pointer, ctypes.c_int]
    function.restype = None
    return function
