"""What a benchmark ran on: processor, memory, kernel, GPU, versions of what was compared."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tiering import cuda
from tiering.units import format_bytes

_PACKAGES = ("tiering", "numpy", "scipy", "torch", "dgl", "pyarrow")
_QUERY = ("driver_version", "pcie.link.gen.max", "pcie.link.width.max")


def describe_machine(*, gpu: bool = False) -> dict[str, Any]:
    """Processor model, usable cores, memory in bytes, kernel, package versions; no host name, no paths.

    Parameters
    ----------
    gpu
        Also describe GPU 0, where there is one.
    """
    machine: dict[str, Any] = {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "versions": {name: known for name in _PACKAGES if (known := _version(name))},
    }
    return machine | {"gpu": describe_gpu(0)} if gpu and not cuda.unavailable() else machine


def show_machine(machine: dict[str, Any]) -> str:
    """What it ran on, in one line."""
    parts = [f"{machine['processor']}, {machine['cores']} cores, {format_bytes(machine['memory_bytes'])}"]
    if gpu := machine.get("gpu"):
        parts.append(f"{gpu['name']}, {gpu['multiprocessors']} multiprocessors, {format_bytes(gpu['memory_bytes'])}")
        parts += [f"{name} {value}" for name, value in gpu["driver"].items()]
        parts += [f"CUDA of {name.removesuffix(' serves')} {value}" for name, value in gpu["cuda"].items()]
    return "; ".join([*parts, f"Linux {machine['kernel']}", *(f"{n} {v}" for n, v in machine["versions"].items())])


def describe_gpu(device: int) -> dict[str, Any]:
    """Name, capability, multiprocessors and memory of a GPU; driver and link; CUDA of driver, build and torch."""
    import torch

    info = cuda.device_info(device)
    served, built = cuda.driver_and_build()
    return {
        "name": info.name,
        "capability": info.capability,
        "multiprocessors": info.multiprocessors,
        "memory_bytes": info.total_bytes,
        "driver": _driver(info.pci_bus),
        "cuda": {"driver serves": served, "tiering": built, "torch": str(torch.version.cuda)},
        "kernels": cuda.architectures(),
    }


def _driver(pci_bus: str) -> dict[str, str]:
    """What ``nvidia-smi`` says about driver and link; nothing where it is not there."""
    command = ["nvidia-smi", f"--id={pci_bus}", f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(zip(_QUERY, (value.strip() for value in done.stdout.split(",")), strict=False))


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
