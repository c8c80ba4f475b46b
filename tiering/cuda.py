"""The door to the CUDA part: the only module that imports ``tiering._cuda``.

Memory crosses as addresses, streams as handles (both whole numbers; 0: none). Signatures: ``tiering/_cuda.pyi``, which
the build makes; meaning: ``ext/cuda/include``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tiering.errors import BudgetError, CapabilityError, DeviceError
from tiering.text.units import format_bytes

if TYPE_CHECKING:
    from tiering._cuda import *  # noqa: F403

T = TypeVar("T")
Part: TypeAlias = tuple[int, int, int, int]  # (begins, indices, sums, edges)
CodecParts: TypeAlias = tuple[str, str, int, int, int]  # stored, delivered, dim, addresses of scales and offsets
Adjacency: TypeAlias = tuple[int, int, bool, int, Part, Part]
"""(source type, destination type, int64 ids, local columns, local, host)."""
Keys: TypeAlias = tuple[int, int, int, bool]  # (local keys, how many, all keys in host memory, int64)

try:
    import tiering._cuda as _cuda
except ImportError as error:  # not built, or libraries it needs are missing
    _found: ModuleType | None = None
    _missing = str(error)
else:
    _found, _missing = _cuda, ""


def unavailable() -> str:
    """Return why no GPU can be used; empty if one can. Cost: the first call starts the driver."""
    if _found is None:
        if "_cuda" in _missing and "No module" in _missing:
            return (
                "this build has no CUDA part, because nvcc or a GPU was missing when it was built; put nvcc on PATH "
                "and install again (`pip install -C cmake.define.TIERING_CUDA=ON .` in the source directory)"
            )
        return f"the CUDA part cannot be loaded: {_missing}"
    try:
        served, built = _cuda.versions()
        if served and served // 1000 < built // 1000:  # a driver serves all of its major version
            return (
                f"the driver supports CUDA up to {_version(served)}, but the build needs {built // 1000}.0: update the "
                "driver, or build with an older CUDA toolkit"
            )
        if not served:
            return "no NVIDIA driver is installed, or it does not respond (see `nvidia-smi`)"
        return "" if _cuda.count_devices() else "there is no NVIDIA GPU"
    except _cuda.CudaError as error:
        return f"no GPU can be used: {error}"


def require_device(device: int) -> None:
    """Raise a `CapabilityError` that says what to do, unless GPU number `device` can be used."""
    if reason := unavailable():
        raise CapabilityError(f"device='cuda': {reason}; device='cpu' works everywhere")
    count = _cuda.count_devices()
    if not 0 <= device < count:
        found = "1 GPU (number 0)" if count == 1 else f"{count} GPUs (numbers 0 to {count - 1})"
        raise CapabilityError(f"device='cuda:{device}': this GPU does not exist; this process sees {found}")
    info = _cuda.device_info(device)
    if not serves(list_architectures(), info.capability):
        raise CapabilityError(
            f"device='cuda:{device}': {info.name} has compute capability {info.capability}, but the kernels of this "
            f"build are for {list_architectures()}; build on the machine with that GPU, or with `pip install "
            "-C cmake.define.TIERING_CUDA=ON "
            f"-C cmake.define.CMAKE_CUDA_ARCHITECTURES={info.capability.replace('.', '')} .`"
        )


def serves(architectures: str, capability: str) -> bool:
    """Return whether a GPU of a compute `capability`, such as ``8.6``, runs kernels for CMake's `architectures`."""
    own = [int(number) for number in capability.split(".")]

    def runs(architecture: str) -> bool:
        found = re.fullmatch(r"(\d+)(\d)(-real|-virtual)?", architecture)
        if found is None:  # of one model alone, such as 90a, or the simulated device
            return architecture in (f"{own[0]}{own[1]}a", "simulated")
        built = [int(found[1]), int(found[2])]
        as_code, as_text = found[3] != "-virtual" and built[0] == own[0], found[3] != "-real"
        return (as_code or as_text) and built <= own

    return any(map(runs, architectures.split()))


def status() -> str:
    """Return what ``tiering info`` prints: the GPUs, or why there are none."""
    reason = unavailable()
    if reason:
        return reason
    infos = [_cuda.device_info(device) for device in range(_cuda.count_devices())]
    return "; ".join(
        f"{info.name} ({format_bytes(info.total_bytes)}, compute capability {info.capability})" for info in infos
    )


def list_architectures() -> str:
    """Return the architectures the kernels were compiled for; empty without a CUDA part."""
    return "" if _found is None else str(_cuda.architectures)


def driver_and_build() -> tuple[str, str]:
    """Return the newest CUDA that the driver serves, and the CUDA of this build, such as ``13.0``; "" for none."""
    versions = (0, 0) if _found is None else _found.versions()
    served, built = (_version(number) if number else "" for number in versions)
    return served, built


def allocate(device: int, nbytes: int, shared: bool = False) -> _cuda.DeviceMemory:
    """Allocate memory of a GPU; `shared`: memory that other processes may open."""
    return with_room(lambda: _cuda.DeviceMemory(device, nbytes, shared))


def with_room(work: Callable[[], T]) -> T:
    """Return what `work` returns; where GPU memory is short, empty torch's cache of it and call `work` once more."""
    try:
        return work()
    except _cuda.OutOfMemoryError:
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized():
            raise
        torch.cuda.empty_cache()
        return work()


@contextmanager
def device_errors(what: str, advice: str = "") -> Iterator[None]:
    """Turn errors of the CUDA part in `what` into `DeviceError`, or `BudgetError` with `advice` if memory was short."""
    if _found is None:
        yield
        return
    try:
        yield
    except _cuda.OutOfMemoryError as error:
        text, wanted, free = error.args
        known = f"; {format_bytes(free)} are free" if free >= 0 else ""
        then = f"; {advice}" if advice else ""
        raise BudgetError(f"{what}: {text}: {format_bytes(wanted)} needed{known}{then}") from None
    except _cuda.CudaError as error:
        raise DeviceError(f"{what}: {error}") from None


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def __getattr__(name: str) -> Any:
    """Look up a function or class of the compiled module, for callers that have seen `require_device` succeed."""
    if _found is not None and not name.startswith("_") and hasattr(_found, name):
        return getattr(_found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
