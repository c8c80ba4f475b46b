"""The gather as compiled: rows of every tier, of any width and alignment, in any order."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from tiering import cuda
from tiering.codecs import CODECS, DELIVERED, fit_codec

pytestmark = pytest.mark.slow
NO_SLOT = 2**32 - 1


class Table:
    """Rows spread over tiers, and where kernels find them; `offset`: bytes that every array begins behind a line."""

    def __init__(self, gpu, row_bytes, sizes, peers=2, offset=0, seed=0, rows=None, codec=None):
        rng = np.random.default_rng(seed)
        self.rows = rng.integers(0, 256, (sum(sizes), row_bytes), dtype=np.uint8) if rows is None else rows
        self.ends = np.cumsum(sizes).tolist()
        parts = np.split(self.rows, self.ends[:-1])
        self._gpu, self._offset = gpu, offset
        local, cpu, staged = (self.place(parts[i]) for i in (0, 2, 3))
        shares = [self.place(parts[1][p::peers]) for p in range(peers)]
        self.native = cuda.RowTable(0, row_bytes, self.ends, local, shares, cpu, staged, codec)

    def place(self, part):
        """An array's address, in memory that begins with a line of 128 bytes and `offset` more."""
        memory = np.zeros(part.nbytes + 256, np.uint8)
        begin = -memory.ctypes.data % 128 + self._offset
        self._gpu.lend(memory)
        memory[begin : begin + part.nbytes] = part.reshape(-1)
        return memory.ctypes.data + begin if part.size else 0


def gather(gpu, stream, table, ids, row_bytes=None, **options):
    """Rows of `ids`, into memory that a write past either end would show in; `row_bytes`: of the result."""
    ids = np.asarray(ids, np.int64)
    row_bytes = row_bytes or table.rows.shape[1]
    out = np.full(ids.size * row_bytes + 256, 0xA5, np.uint8)
    begin = -out.ctypes.data % 128
    gpu.lend(out)
    given = {name: gpu.lend(value) for name, value in options.items() if isinstance(value, np.ndarray)}
    table.native.gather(
        gpu.lend(ids), ids.size, out.ctypes.data + begin, stream.handle, **options | given, block_threads=64
    )
    stream.synchronize()
    assert (out[:begin] == 0xA5).all() and (out[begin + ids.size * row_bytes :] == 0xA5).all()
    return out[begin : begin + ids.size * row_bytes].reshape(ids.size, row_bytes)


@pytest.mark.parametrize("row_bytes", [1, 3, 4, 10, 12, 16, 100, 480, 600, 602, 1024, 1044, 4100])
@pytest.mark.parametrize("count", [0, 1, 37])
def test_any_width(gpu, stream, row_bytes, count):
    table = Table(gpu, row_bytes, (7, 11, 9, 6))
    ids = np.random.default_rng(count).integers(0, 33, count)
    assert np.array_equal(gather(gpu, stream, table, ids), table.rows[ids])


@pytest.mark.parametrize("offset", [2, 4, 8, 16, 100])
@pytest.mark.parametrize("row_bytes", [8, 480, 1100])
def test_any_alignment(gpu, stream, row_bytes, offset):
    table = Table(gpu, row_bytes, (3, 4, 5, 2), peers=3, offset=offset)
    ids = np.arange(14)[::-1].copy()
    assert np.array_equal(gather(gpu, stream, table, ids, streaming=False), table.rows[ids])


def test_slots_and_places(gpu, stream):
    """Rows of the ssd tier lie in slots; those without one, and ids of no row, are left as they are in the result."""
    table = Table(gpu, 48, (3, 3, 3, 8))
    ids = np.array([16, 0, 9, 12, -1, 5, 17, 2**40, 10])
    slots = np.array([6, 0, NO_SLOT, 2, 1, 0, 3, 0, 7], np.uint32)
    places = np.array([4, 8, 7, 0, 1, 2, 3, 5, 6], np.uint32)
    expected = np.full((9, 48), 0xA5, np.uint8)
    for row, slot, place in zip(ids.tolist(), slots.tolist(), places.tolist(), strict=True):
        if 0 <= row < 17 and not (row >= 9 and slot == NO_SLOT):
            expected[place] = table.rows[9 + slot if row >= 9 else row]
    assert np.array_equal(gather(gpu, stream, table, ids, slots=slots, places=places), expected)


def test_rows_beyond_2_31_bytes(gpu, stream, tmp_path):
    """Rows whose bytes begin behind 2^31 and 2^32, in a file with holes."""
    row_bytes, rows = 1028, 5_000_000
    content = np.memmap(tmp_path / "rows", np.uint8, "w+", shape=(rows, row_bytes))
    ids = np.array([0, 2**31 // row_bytes, 2**31 // row_bytes + 1, 2**32 // row_bytes + 1, rows - 1])
    content[ids] = np.arange(5 * row_bytes).reshape(5, row_bytes).astype(np.uint8) + 1
    table = Table(gpu, row_bytes, (1, 1, 1, 1))
    table.rows, table.native = content, cuda.RowTable(0, row_bytes, [0, 0, rows, rows], 0, [], gpu.lend(content))
    assert np.array_equal(gather(gpu, stream, table, ids), content[ids])


@pytest.mark.parametrize("threads", [32, 256])
def test_more_rows_than_threads(gpu, stream, threads):
    """A grid of one multiprocessor walks over the rows with a stride."""
    table = Table(gpu, 8, (400, 200, 300, 100))
    ids = np.random.default_rng(3).permutation(1000)
    out = np.zeros((1000, 8), np.uint8)
    table.native.gather(
        gpu.lend(ids), 1000, gpu.lend(out), stream.handle, max_sms=1, block_threads=threads, streaming=True
    )
    stream.synchronize()
    assert np.array_equal(out, table.rows[ids])


def decoded(gpu, stream, name, delivered, dim, padded=True):
    """Whether rows of a codec arrive as the processor decodes them; without padding they end with the last number."""
    values = np.random.default_rng(dim).standard_normal((24, dim)).astype(np.float32)
    values[:8] *= 1e-4  # subnormal codes
    codec = fit_codec(name, [values], dim, "float32", "here")
    stored, parameters = codec.encode(values), [gpu.lend(p) if codec.scaled else 0 for p in (codec.scale, codec.offset)]
    rows = stored if padded else np.ascontiguousarray(stored[:, : dim * codec.code_bytes])
    table = Table(gpu, rows.shape[1], (5, 6, 7, 6), rows=rows, codec=(name, delivered, dim, *parameters))
    ids = np.random.default_rng(0).integers(0, 24, 9)
    expected = codec.decode(stored[ids], delivered)
    found = gather(gpu, stream, table, ids, expected[:1].nbytes, slots=(ids - 18).clip(0).astype(np.uint32))
    return found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("delivered", DELIVERED)
def test_decoded_rows(gpu, stream, name, delivered):
    """Rows of whole groups of four numbers and others, short and longer than a warp takes at once."""
    assert all(decoded(gpu, stream, name, delivered, dim) for dim in (1, 4, 7, 136))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("delivered", DELIVERED)
def test_decoded_rows_without_padding(gpu, stream, name, delivered):
    """Such rows begin at any number, and nothing behind their end is read."""
    dims = (1, 2, 3, 5, 7, 129) if name != delivered else (2, 128)
    assert all(decoded(gpu, stream, name, delivered, dim, padded=False) for dim in dims)


def test_every_kernel(gpu, stream, kernels):
    assert all(decoded(gpu, stream, name, "float32" if name != "float32" else "float16", 5) for name in CODECS)
    for row_bytes in (16, 8, 4, 2, 1):
        table = Table(gpu, row_bytes, (1, 1, 1, 1))
        assert np.array_equal(gather(gpu, stream, table, [3, 2, 1, 0]), table.rows[::-1])
    assert gpu.ran == set(kernels["gather_rows"])


def test_standard_functions_are_refused_in_device_code(nvcc, repository, tmp_path):
    """As constexpr functions nvcc would take them, and compile some to nothing."""
    source = tmp_path / "kernel.cu"
    shared = "TIERING_SHARED constexpr const int* f(const int* a) { return std::upper_bound(a, a + 3, 1); }"
    kernel = "__global__ void k(const int* a, const int** out) { *out = f(a); }"
    source.write_text(f"#include <algorithm>\n#include <tiering/device/qualifiers.hpp>\n{shared}\n{kernel}\n")
    command = [*nvcc, f"-I{repository}/ext/include", str(source), "-o", str(tmp_path / "kernel.ptx")]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert 'calling a constexpr __host__ function("upper_bound")' in refused.stderr
    options = (repository / "ext" / "cuda" / "CMakeLists.txt").read_text().replace("$<COMMA>", ",")
    assert nvcc[-1] in options
    assert "relaxed-constexpr" not in options
