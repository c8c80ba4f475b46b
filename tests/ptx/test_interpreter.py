"""The interpreter itself: memory as weak as it says, refusals by name."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest
from ptx_machine import MachineError, Memory
from ptx_program import UnsupportedError, read_kernels

pytestmark = pytest.mark.slow

THREADS = """
__global__ void two_writers(unsigned* out) { out[threadIdx.x / 2] = threadIdx.x; }
__global__ void wide(ulonglong2* out) { out[0] = make_ulonglong2(1, 2); }
__global__ void pass(volatile unsigned* ready, unsigned* value, unsigned* out, bool fenced) {
  if (threadIdx.x == 0) {
    *value = 1;
    if (fenced) __threadfence();
    *ready = 1;
  } else if (threadIdx.x == 1) {
    while (*ready == 0) {
    }
    if (fenced) __threadfence();
    *out = *value;
  }
}
__global__ void warp(unsigned* out) {
  const unsigned lane = threadIdx.x;
  unsigned sum = lane;
  for (int by = 16; by > 0; by /= 2) sum += __shfl_down_sync(~0U, sum, by);
  out[lane] = lane == 0 ? sum : __shfl_xor_sync(~0U - 1, lane, 0) + (__ballot_sync(~0U - 1, lane % 3 == 0) & 0xff);
}
__global__ void early(unsigned* out) {
  if (threadIdx.x == 5) return;
  out[threadIdx.x] = __shfl_down_sync(~0U, threadIdx.x, 1);
}
"""

BLOCK = "__global__ void shared(int* out) { __shared__ int x[32]; x[threadIdx.x] = 1; __syncthreads(); *out = x[0]; }"


@pytest.fixture(scope="module")
def compiled(nvcc, tmp_path_factory):
    """Compile a source; its kernels by the name before the parameters."""
    folder = tmp_path_factory.mktemp("sources")

    def compile_source(text):
        source = folder / "kernels.cu"
        source.write_text(text)
        subprocess.run([*nvcc, str(source), "-o", str(folder / "kernels.ptx")], check=True)
        return read_kernels(folder / "kernels.ptx")

    return compile_source


def machine(*arrays, seed=0):
    """Memory of these arrays alone."""

    def owner(address):
        ranges = ((array.ctypes.data, array.nbytes) for array in arrays)
        return next((r for r in ranges if r[0] <= address < sum(r)), None)

    return Memory(owner, seed)


def find(kernels, name):
    return next(kernel for symbol, kernel in kernels.items() if name in symbol)


def pointer(array):
    return array.ctypes.data.to_bytes(8, "little")


def test_one_writer(compiled):
    out = np.zeros(32, np.uint32)
    with pytest.raises(MachineError, match="store to one word"):
        machine(out).launch(find(compiled(THREADS), "two_writers"), 1, 32, [pointer(out)])


def test_addresses(compiled):
    kernel, out = find(compiled(THREADS), "wide"), np.zeros(8, np.uint64)
    start = out[(-out.ctypes.data % 16) // 8 :]
    machine(out).launch(kernel, 1, 1, [pointer(start)])
    assert start[:2].tolist() == [1, 2]
    with pytest.raises(MachineError, match="not aligned"):
        machine(out).launch(kernel, 1, 1, [pointer(start[1:])])
    with pytest.raises(MachineError, match="belong to no memory"):
        machine(out[:1]).launch(kernel, 1, 1, [(out.ctypes.data + 160 & ~15).to_bytes(8, "little")])
    with pytest.raises(MachineError, match=r"parameters of \[8\] bytes, called with \[4\]"):
        machine(out).launch(kernel, 1, 1, [b"1234"])


def test_weak_memory(compiled):
    """What is not fenced may be seen too late, and what is fenced never is."""
    kernel, results = find(compiled(THREADS), "pass"), {True: set(), False: set()}
    for fenced in results:
        for seed in range(40):
            words = np.zeros(3, np.uint32)
            arguments = [pointer(words[i:]) for i in range(3)]
            machine(words, seed=seed).launch(kernel, 1, 2, [*arguments, bytes([fenced])])
            results[fenced].add(int(words[2]))
    assert results == {True: {1}, False: {0, 1}}


def test_warps(compiled):
    kernels, out = compiled(THREADS), np.zeros(32, np.uint32)
    with pytest.raises(MachineError, match="were to meet at 'down'"):
        machine(out).launch(find(kernels, "early"), 1, 32, [pointer(out)])
    machine(out).launch(find(kernels, "warp"), 1, 32, [pointer(out)])
    votes = sum(1 << lane for lane in range(1, 32) if lane % 3 == 0) & 0xFF
    assert out.tolist() == [496] + [lane + votes for lane in range(1, 32)]


def test_shared_memory_is_refused(compiled):
    with pytest.raises(UnsupportedError, match="what threads of a block share is not run here"):
        compiled(BLOCK)


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
