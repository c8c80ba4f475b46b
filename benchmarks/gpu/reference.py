"""Kernels of designs that others published, in ``reference/*.cu``: compiled by nvcc when a benchmark first wants them.

They stand for libraries that cannot be installed next to torch everywhere. The library is kept in
``build/reference`` of the checkout, by a digest of its sources.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from ctypes import c_int, c_int64, c_size_t, c_uint64, c_void_p
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu.side import GpuSide, same_bytes
from benchmarks.harness import Work
from tiering import cuda
from tiering.errors import CapabilityError, DeviceError

SOURCES = Path(__file__).with_name("reference")
CACHE = Path(__file__).parents[2] / "build" / "reference"
FLAGS = ("-std=c++20", "-O3", "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror,-fPIC", "-shared")
BY_WARPS = "reference kernel: a warp reads a row by its lines (as DGL, GraphBolt)"
STAGED = "reference kernel: a warp stages a row in shared memory (as WholeGraph)"
_KINDS = {BY_WARPS: 0, STAGED: 1}
_MOST_EDGES = 2**31 - 1
"""Nodes of a hop; older versions of the sort count no further."""
_ARGUMENTS: dict[str, list[Any]] = {
    "gather": [c_int, c_void_p, c_void_p, c_int64, c_int64, c_void_p, c_void_p],
    "lists": [c_void_p, c_void_p, c_int64, c_void_p, c_void_p, c_void_p],
    "keys": [c_void_p, c_void_p, c_int64, c_int64, c_uint64, c_void_p, c_void_p, c_void_p],
    "sort": [c_void_p, ctypes.POINTER(c_size_t), *[c_void_p] * 4, c_int64, c_int64, c_void_p, c_void_p],
    "take": [c_int, *[c_void_p] * 4, c_int64, c_int64, *[c_void_p] * 3],
}
"""Arguments of ``reference_...``, as the sources have them; the stream is the last."""


def find_nvcc() -> str | None:
    """Find nvcc by ``CUDACXX``, on ``PATH``, or where CUDA is installed by default."""
    named = os.environ.get("CUDACXX")
    return shutil.which(named) if named else shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


def compile_reference(nvcc: str, architecture: str, folder: Path) -> Path:
    """Compile the library for GPUs such as ``sm_90``; `CapabilityError` with nvcc's words where that fails."""
    programs, headers = (sorted(SOURCES.glob(pattern)) for pattern in ("*.cu", "*.hpp"))
    return compile_library("reference", nvcc, architecture, folder, programs, headers)


def compile_library(
    name: str,
    nvcc: str,
    architecture: str,
    folder: Path,
    programs: Sequence[Path],
    headers: Sequence[Path],
    includes: Sequence[Path] = (),
) -> Path:
    """Compile `programs`, which include `headers`, to a library, unless `folder` has it; see `compile_reference`."""
    made_of = hashlib.sha256(" ".join((nvcc, architecture, *FLAGS)).encode())
    for source in (*programs, *headers):
        made_of.update(source.read_bytes())
    library = folder / f"{name}-{architecture}-{made_of.hexdigest()[:16]}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = library.with_suffix(f".{os.getpid()}.part")
        found = [f"-I{folder}" for folder in includes]
        command = [nvcc, f"-arch={architecture}", *FLAGS, *found, "-o", str(part), *map(str, programs)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise CapabilityError(f"{nvcc} cannot compile {programs[0].parent}: {(done.stderr or done.stdout).strip()}")
        part.rename(library)
    return library


class Reference:
    """The functions of a compiled library. Memory crosses as addresses, the stream as a handle."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self._functions = {name: getattr(library, f"reference_{name}") for name in _ARGUMENTS}
        for name, function in self._functions.items():
            function.argtypes, function.restype = _ARGUMENTS[name], c_int

    def _call(self, name: str, *arguments: Any) -> None:
        if code := self._functions[name](*arguments):
            raise DeviceError(f"reference kernel {name}: CUDA error {code}")

    def gather(self, kind: str, table: int, ids: Tensor, out: Tensor, row_bytes: int, stream: int) -> None:
        """Gather rows of the table at an address into the first of `out`; `kind`: `BY_WARPS` or `STAGED`."""
        self._call("gather", _KINDS[kind], table, ids.data_ptr(), len(ids), row_bytes, out.data_ptr(), stream)

    def draw(
        self, indptr: int, indices: int, id_bytes: int, nodes: Tensor, fanout: int, seed: int, stream: int
    ) -> tuple[Tensor, Tensor]:
        """Return up to `fanout` neighbors of each node, no edge twice: ids of the sources, places of the destinations.

        `indptr` and `indices`: addresses of an int64 array and of one of 4 or 8 bytes an id. What is allocated comes
        from torch, on its current stream, which is `stream`.
        """
        begins, degrees = torch.empty_like(nodes), torch.empty_like(nodes)
        self._call("lists", indptr, nodes.data_ptr(), len(nodes), begins.data_ptr(), degrees.data_ptr(), stream)
        firsts, outs = _sums(degrees), _sums(degrees.clamp(max=fanout))
        edges, taken = int(firsts[-1]), int(outs[-1])  # waits for the GPU, as those designs do to take memory
        if edges > _MOST_EDGES:
            raise CapabilityError(f"the lists of one hop have {edges} edges, and at most {_MOST_EDGES} are sorted")
        places = self._shuffled(begins, firsts, edges, seed, stream)
        sources, destinations = (nodes.new_empty(taken) for _ in range(2))
        self._call("take", id_bytes, indices, places.data_ptr(), firsts.data_ptr(), outs.data_ptr(), len(nodes), taken,
                   sources.data_ptr(), destinations.data_ptr(), stream)  # fmt: skip
        return sources, destinations

    def _shuffled(self, begins: Tensor, firsts: Tensor, edges: int, seed: int, stream: int) -> Tensor:
        """Return the places of all edges, those of each list in the order of random keys."""
        keys, keys_out = (begins.new_empty(edges, dtype=torch.int32) for _ in range(2))
        places, places_out = (begins.new_empty(edges) for _ in range(2))
        self._call("keys", begins.data_ptr(), firsts.data_ptr(), len(begins), edges, seed, keys.data_ptr(),
                   places.data_ptr(), stream)  # fmt: skip
        room = c_size_t(0)
        sort = partial(self._call, "sort")
        rest = (keys.data_ptr(), keys_out.data_ptr(), places.data_ptr(), places_out.data_ptr(), edges, len(begins),
                firsts.data_ptr(), stream)  # fmt: skip
        sort(None, ctypes.byref(room), *rest)
        workspace = begins.new_empty(max(1, room.value), dtype=torch.uint8)
        sort(workspace.data_ptr(), ctypes.byref(room), *rest)
        return places_out


def _sums(counts: Tensor) -> Tensor:
    """Return the sums of the counts before each position, and of all: one more than there are counts."""
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def load(gpu: GpuSide) -> Reference | str:
    """Load the kernels for this GPU, or return why there are none."""
    if gpu.device.torch_device.type != "cuda":
        return "not measured: the reference kernels run on a GPU only, and this one is simulated"
    if (nvcc := find_nvcc()) is None:
        return "not measured: no nvcc to compile the reference kernels with; put it on PATH, or name it in CUDACXX"
    capability = cuda.device_info(gpu.device.index).capability
    return _loaded(nvcc, f"sm_{capability.replace('.', '')}")


@cache
def _loaded(nvcc: str, architecture: str) -> Reference | str:
    try:
        return Reference(compile_reference(nvcc, architecture, CACHE))
    except (CapabilityError, OSError) as error:
        return f"not measured: {error}"


def gathers(gpu: GpuSide, address: int, ids: list[Tensor], out: Tensor, expected: Tensor) -> dict[str, Work | str]:
    """Return passes over batches of `ids` by either kernel, into `out`, or an error if the last is not `expected`."""
    kernels = load(gpu)
    if isinstance(kernels, str):
        return {BY_WARPS: kernels}
    row_bytes = out.shape[1] * out.element_size()

    def run(kind: str) -> None:
        for batch in ids:
            kernels.gather(kind, address, batch, out, row_bytes, gpu.device.current())

    works: dict[str, Work | str] = {}
    for kind in _KINDS:
        try:
            run(kind)
            gpu.finish()
            same = same_bytes(out[: len(expected)], expected)
            works[kind] = partial(run, kind) if same else "not measured: its rows are not the table's"
        except DeviceError as error:
            works[kind] = f"not measured: {error}"
    return works
