"""All GPU benchmarks at the sizes that docs/gpu.md quotes, in one run on a machine with one GPU.

``python -m benchmarks gpu [NAME].. [--dir DIR] [--docs DIR]`` runs them, graphs and images lying in DIR for a while
(some 30 GB), and prints the tables. With ``--docs`` it writes ``benchmarks/GPU.json``, the access times beside it as
``tiering layout --gpu-times`` takes them, and the tables of ``gpu.md`` where that page has a place for them. What is in
the file already and was run on this GPU and this driver is not run again: delete the file to begin anew.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.gpu.side import gpu_missing
from benchmarks.harness import Comparison, Sizes
from benchmarks.machine import describe_machine
from benchmarks.pages import keep, kept_results, markdown, put, rate, spread
from tiering.errors import TieringError
from tiering.units import parse_threads

BEGIN, END = "<!-- gpu: figures -->", "<!-- gpu: end -->"
SETTINGS = {
    "gpu-host-rows": ("row_bytes", "ids", "where", "sms"),
    "gpu-local-rows": ("row_bytes", "sms"),
    "gpu-mixed-rows": ("row_bytes", "from_gpu", "sms"),
    "gpu-sampling": ("adjacency_on_gpu", "threads"),
    "gpu-epoch": ("row_bytes", "from_gpu", "from_cpu", "sms"),
    "gpu-ssd": ("row_bytes", "from_gpu", "from_cpu", "from_ssd", "sms"),
    "gpu-times": ("row_bytes", "fanouts"),
}
"""Parameters that tell the rows of a table apart, by benchmark."""


def measure(names: Sequence[str], sizes: Sizes, folder: Path, run: Callable[[str, Sizes], list[Comparison]]) -> Any:
    """Run what is not in the file of this GPU in `folder` yet, and write it after each benchmark; all its results."""
    machine = describe_machine(gpu=True)
    path = folder / f"{re.sub(r'[^a-z0-9]+', '-', machine['gpu']['name'].lower()).strip('-')}.json"
    document = kept_results(path, machine)
    folder.mkdir(parents=True, exist_ok=True)
    sizes = replace(sizes, gpu_times_out=path.with_name(f"{path.stem}-times.json"))
    for name in names or SETTINGS:
        if name not in document["results"]:
            print(name, file=sys.stderr, flush=True)
            document["results"][name] = [each.to_json() for each in run(name, sizes)]
            keep(path, document)
    return document


def tables(document: dict[str, Any]) -> str:
    """What was measured, as Markdown: what it ran on, and a table for each benchmark."""
    parts = [_machine(document["machine"])]
    for name, results in document["results"].items():
        keys = [key for key in SETTINGS[name] if any(key in each["parameters"] for each in results)]
        rows = []
        for result in results:
            cells = [_cell(result["parameters"].get(key, "")) for key in keys]
            ours = rate(result["rate"], result["unit"])
            rows += [[*cells, ours, *_peer(peer, result["unit"])] for peer in result["peers"]]
        heads = [*(key.replace("_", " ") for key in keys), "tiering", "its rate", "ratio", "aim", "beside"]
        parts.append(f"`{name}`, ratios above 1: tiering is faster\n\n{markdown(heads, rows)}")
    return "\n\n".join(parts)


def _machine(machine: dict[str, Any]) -> str:
    gpu = machine["gpu"]
    about = [gpu["name"], f"{gpu['multiprocessors']} multiprocessors", f"{gpu['memory_bytes'] / 2**30:.0f} GiB"]
    about += [f"{name} {value}" for name, value in gpu["driver"].items()]
    about += [f"CUDA of {name.removesuffix(' serves')} {value}" for name, value in gpu["cuda"].items()]
    about += [f"torch {machine['versions'].get('torch')}", f"{machine['processor']}, {machine['cores']} cores"]
    return ", ".join(about) + "."


def _peer(peer: dict[str, Any], unit: str) -> list[str]:
    if "ratio" not in peer:
        return ["-", peer["note"], "", peer["name"]]
    aim = ""
    if "target" in peer:
        aim = f"{peer['target']:.2f}, {'met' if peer['ratio'] >= peer['target'] else 'missed'}"
    return [rate(peer["rate"], unit), spread(peer), aim, peer["name"]]


def _cell(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def main(argv: Sequence[str], run: Callable[[str, Sizes], list[Comparison]]) -> int:
    """See the module; `run` runs a benchmark by name."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks gpu", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which; all if none: {', '.join(SETTINGS)}")
    parser.add_argument("--dir", type=Path, default=Path(), help="where graphs and images lie for a while")
    parser.add_argument("--docs", type=Path, help="where benchmarks/ and gpu.md are; default: benchmarks/ in --dir")
    parser.add_argument("--scale", type=int, default=Sizes.scale, help="R-MAT graphs have 2**SCALE nodes")
    parser.add_argument("--edges", type=int, default=Sizes.edges)
    parser.add_argument("--table-bytes", type=int, default=Sizes.image_bytes, help="size of tables of rows")
    parser.add_argument("--row-bytes", type=int, default=1024, help="of the epochs")
    parser.add_argument("--repeats", type=int, default=Sizes.repeats)
    parser.add_argument("--seconds", type=float, default=Sizes.seconds, help="turns are no longer than they must")
    parser.add_argument("--threads", default="auto", help="threads of whatever runs on the CPU")
    given = parser.parse_args(argv)
    sizes = Sizes(
        scale=given.scale, edges=given.edges, repeats=given.repeats, threads=parse_threads(given.threads),
        image_bytes=given.table_bytes, row_bytes=given.row_bytes, seconds=given.seconds, folder=given.dir,
    )  # fmt: skip
    try:
        if reason := gpu_missing():
            raise TieringError(reason)
        document = measure(given.names, sizes, (given.docs or given.dir) / "benchmarks", run)
    except TieringError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(tables(document))
    if given.docs is not None and not put(given.docs / "gpu.md", BEGIN, END, tables(document)):
        print(f"{given.docs / 'gpu.md'}: no line {BEGIN}; paste the tables", file=sys.stderr)
    return 0
