"""Kernels as nvcc compiled them, run by an interpreter in the place of a GPU; the rest is the simulated device's.

What runs here is the PTX of the kernels, launched by the C++ that launches them on a GPU, with its arguments. What does
not: the step from PTX to a GPU's own instructions, CUB's sorts and prefix sums, and whatever depends on time.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy.typing as npt
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # under pytest's importlib mode

from ptx_machine import Memory
from ptx_program import Kernel, read_kernels
from simulated_gpu import install

from tiering import cuda

ARCHITECTURE = "sm_90"


@pytest.fixture(scope="session")
def nvcc() -> list[str]:
    """The compiler, with the package's options."""
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc on PATH, so that the kernels are not compiled: install CUDA 12.2 or newer")
    return ["nvcc", "-ptx", f"-arch={ARCHITECTURE}", "-std=c++20", "--diag-error=20011,20013,20014,20015"]


@pytest.fixture(scope="session")
def ptx_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `kernels` lie as texts, named as their sources."""
    return tmp_path_factory.mktemp("ptx")


@pytest.fixture(scope="session")
def kernels(nvcc: list[str], repository: Path, ptx_folder: Path) -> dict[str, dict[str, Kernel]]:
    """All kernels of the CUDA part, by source file and symbol."""
    folder, sources = ptx_folder, repository / "ext" / "cuda" / "src"
    includes = [f"-I{repository / 'ext' / part}" for part in ("include", "cuda/include")]
    found: dict[str, dict[str, Kernel]] = {}
    for source in sorted(sources.glob("*.cu")):
        text = source.read_text()
        if "<cub/" in text:
            continue
        ptx = folder / f"{source.stem}.ptx"
        subprocess.run([*nvcc, *includes, str(source), "-o", str(ptx)], check=True)
        found[source.stem] = read_kernels(ptx)
    return found


INTERPRETER = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_uint, ctypes.c_uint,
    ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.c_size_t,
)  # fmt: skip


class Interpreter:
    """Runs what the simulated device is asked to launch."""

    def __init__(self, library: ctypes.CDLL, kernels: dict[str, dict[str, Kernel]]) -> None:
        self._library = library
        self._kernels = {name: kernel for of_file in kernels.values() for name, kernel in of_file.items()}
        self.memory = Memory(self._owner)
        self.ran: set[str] = set()
        """Symbols of the kernels that have run."""
        self._lent: dict[int, npt.NDArray[Any]] = {}
        self.error: Exception | None = None
        self._callback = INTERPRETER(self._launch)
        library.simulator_interpret(self._callback)

    def close(self) -> None:
        """Leave kernels to the simulated device again."""
        self._library.simulator_interpret(None)

    def lend(self, array: npt.NDArray[Any]) -> int:
        """Let kernels use an array; its address."""
        if array.size:
            self._lent[array.ctypes.data] = array
        return int(array.ctypes.data) if array.size else 0

    def _owner(self, address: int) -> tuple[int, int] | None:
        begin, size = ctypes.c_void_p(), ctypes.c_size_t()
        if self._library.simulator_find(ctypes.c_void_p(address), ctypes.byref(begin), ctypes.byref(size)):
            return int(begin.value or 0), size.value
        return next(((b, a.nbytes) for b, a in self._lent.items() if b <= address < b + a.nbytes), None)

    def _launch(self, name: bytes, grid: int, block: int, arguments: Any, sizes: Any, count: int) -> int:
        try:
            kernel = self._kernels[name.decode()]
            given = [ctypes.string_at(arguments[i], sizes[i]) for i in range(count)]
            self.memory.launch(kernel, grid, block, given)
            self.ran.add(kernel.name)
        except Exception as error:  # nothing may leave a callback
            self.error = self.error or error
            return 1
        return 0


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, kernels: dict[str, dict[str, Kernel]]) -> Iterator[Interpreter]:
    """A device that runs the kernels' PTX; what went wrong in a kernel is the test's failure."""
    simulator = install(monkeypatch)
    interpreter = Interpreter(ctypes.CDLL(str(simulator.module.__file__)), kernels)
    try:
        yield interpreter
    finally:
        interpreter.close()
    if interpreter.error is not None:
        raise interpreter.error


@pytest.fixture
def stream(gpu: Interpreter) -> cuda.Stream:
    """A stream of the device."""
    return cuda.Stream(0)
