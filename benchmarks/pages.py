"""Reports of runs: the machine, figures kept in a file, Markdown tables, also between two marks of a page."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from tiering import cuda
from tiering.text.units import format_bytes

_PACKAGES = ("tiering", "numpy", "scipy", "torch", "dgl", "pyarrow")
_QUERY = ("driver_version", "pcie.link.gen.max", "pcie.link.width.max")


def existing_directory(text: str) -> Path:
    """Return the path of a directory that a command line names; argparse refuses it in one line if there is none."""
    if not (path := Path(text)).is_dir():
        raise argparse.ArgumentTypeError(f"expected a directory, found none at {text}; create it or name another")
    return path


def describe_machine(*, gpu: bool = False) -> dict[str, Any]:
    """Return processor, usable cores, memory in bytes, kernel, versions, GPU 0 if asked for; no host name, no paths."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    machine: dict[str, Any] = {
        "processor": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "versions": {name: known for name in _PACKAGES if (known := _version(name))},
    }
    return machine | {"gpu": _describe_gpu()} if gpu and not cuda.unavailable() else machine


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _describe_gpu() -> dict[str, Any]:
    """Return name, capability, multiprocessors and memory; driver and link; CUDA of driver, build and torch."""
    import torch

    info = cuda.device_info(0)
    served, built = cuda.driver_and_build()
    command = ["nvidia-smi", f"--id={info.pci_bus}", f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split(",")
    except (OSError, subprocess.SubprocessError):
        said = []
    return {
        "name": info.name,
        "capability": info.capability,
        "multiprocessors": info.multiprocessors,
        "memory_bytes": info.total_bytes,
        "driver": dict(zip(_QUERY, (value.strip() for value in said), strict=False)),
        "cuda": {"driver serves": served, "tiering": built, "torch": str(torch.version.cuda)},
        "kernels": cuda.list_architectures(),
    }


def show_machine(machine: Mapping[str, Any]) -> str:
    """Return the machine in one line."""
    parts = [f"{machine['processor']}, {machine['cores']} cores, {format_bytes(machine['memory_bytes'])}"]
    if gpu := machine.get("gpu"):
        parts.append(f"{gpu['name']}, {gpu['multiprocessors']} multiprocessors, {format_bytes(gpu['memory_bytes'])}")
        parts += [f"{name} {value}" for name, value in gpu["driver"].items()]
        parts += [f"CUDA of {name.removesuffix(' serves')} {value}" for name, value in gpu["cuda"].items()]
    return "; ".join([*parts, f"Linux {machine['kernel']}", *(f"{n} {v}" for n, v in machine["versions"].items())])


def keep_results(
    path: Path | None, machine: Mapping[str, Any], works: Iterable[tuple[str, Callable[[], Any]]]
) -> dict[str, Any]:
    """Run works that `path` lacks, and write the document of results to it after each.

    Here means the same processor and GPU (with its driver). Without a path nothing is kept.
    """
    known = json.loads(path.read_text()) if path is not None and path.exists() else {"machine": {}}
    same = all(known["machine"].get(name) == machine.get(name) for name in ("processor", "gpu"))
    document = {"machine": dict(machine), "results": known["results"] if same else {}}
    for name, work in works:
        if name not in document["results"]:
            print(name, file=sys.stderr, flush=True)
            document["results"][name] = work()
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_json(path, document)
    return document


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a file of results."""
    path.write_text(json.dumps(document, indent=1) + "\n")


def put(page: Path, begin: str, end: str, text: str) -> bool:
    """Replace what stands in a page between two marks; ``False`` where it has no such place."""
    whole = page.read_text() if page.exists() else ""
    if begin not in whole:
        return False
    before, rest = whole.split(begin, 1)
    page.write_text(f"{before}{begin}\n{text}\n{end}{rest.split(end, 1)[1]}")
    return True


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]], left: int = 0) -> str:
    """Return a Markdown table; the columns after the first `left` are aligned right."""
    rules = "|" + "---|" * left + "---:|" * (len(heads) - left)
    return "\n".join(["| " + " | ".join(heads) + " |", rules, *("| " + " | ".join(row) + " |" for row in rows)])


def comparison_table(result: Mapping[str, Any]) -> str:
    """Return a comparison, or a table of figures, as JSON has it, in Markdown, with its parameters below."""
    if "heads" in result:
        return f"{result['name']}\n\n{figures(result)}\n{_settings(result)}\n"
    ours = f"{result['median_seconds']:.4g} s"
    rows = [["tiering", rate(result["rate"], result["unit"]), ours, "", ""]]
    for peer in result["peers"]:
        if "ratio" not in peer:
            rows.append([peer["name"], "-", "-", "-", peer["note"]])
            continue
        ratio = spread(peer) + (f", aim {peer['target']:.2f}" if "target" in peer else "")
        cpu = spread(peer, "cpu_ratio") if "cpu_ratio" in peer else "-"
        rows.append([peer["name"], rate(peer["rate"], result["unit"]), f"{median(peer['seconds']):.4g} s", ratio, cpu])
    heads = [result["name"], "rate", "median time", "tiering faster by", "by processor time"]
    return f"{markdown(heads, rows, left=1)}\n{_settings(result)}\n"


def figures(result: Mapping[str, Any]) -> str:
    """Return the rows of a `Table`, as JSON has it, in Markdown; numbers to four digits."""
    return markdown(result["heads"], [[_figure(value) for value in row] for row in result["rows"]])


def _figure(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _settings(result: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in result["parameters"].items())


def rate(value: float, unit: str) -> str:
    """Return a rate for people: ``1.2 G edges/s``, ``25 GB/s``."""
    scale, prefix = next((s, p) for s, p in ((1e9, "G"), (1e6, "M"), (1e3, "k"), (0.0, "")) if value >= s)
    return f"{value / (scale or 1):.3g} {prefix}{unit if unit == 'B' else f' {unit}' if prefix else unit}/s"


def spread(entry: Mapping[str, Any], name: str = "ratio") -> str:
    """Return a ratio with its minimum and maximum."""
    return f"{entry[name]:.2f} ({entry[f'{name}_min']:.2f} .. {entry[f'{name}_max']:.2f})"
