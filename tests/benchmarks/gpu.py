"""All GPU benchmarks at the sizes that docs/gpu.md quotes, in one run on a machine with one GPU.

``python tests/benchmarks/gpu.py [NAME].. [--dir DIR] [--docs DIR]`` runs them, graphs and images lying in DIR for a
while (some 30 GB), and prints the tables. With ``--docs`` it writes ``benchmarks/GPU.json``, the access times beside it
as ``tiering layout --access-costs`` takes them, and the tables of ``gpu.md`` where that page has a place for them. What
is in the file already and was run on this GPU and this driver is not run again: delete the file to begin anew.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tiering.bench.gpu_side import gpu_missing
from tiering.bench.machine import describe_machine
from tiering.bench.registry import BENCHMARKS, select
from tiering.bench.sizes import Sizes
from tiering.errors import TieringError
from tiering.units import parse_threads

ROW_BYTES = 1024
"""Of the epochs."""
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
NAMES = tuple(benchmark.name for benchmark in BENCHMARKS if benchmark.gpu)


def slug(name: str) -> str:
    """Name of a GPU as the name of a file."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def measure(names: Sequence[str], sizes: Sizes, folder: Path) -> dict[str, Any]:
    """Run what is not in the file of this GPU in `folder` yet, and write it after each benchmark; all its results."""
    machine = describe_machine(gpu=True)
    path = folder / f"{slug(machine['gpu']['name'])}.json"
    document: dict[str, Any] = {"machine": machine, "results": {}}
    if path.exists():
        old = json.loads(path.read_text())
        if old["machine"]["gpu"] == machine["gpu"] and old["machine"]["processor"] == machine["processor"]:
            document["results"] = old["results"]
    folder.mkdir(parents=True, exist_ok=True)
    sizes = replace(sizes, gpu_times_out=path.with_name(f"{path.stem}-times.json"))
    for benchmark in select(names or NAMES):
        if benchmark.name in document["results"]:
            continue
        print(f"{benchmark.name}: {benchmark.summary}", file=sys.stderr, flush=True)
        document["results"][benchmark.name] = [each.to_json() for each in benchmark.results(sizes)]
        path.write_text(json.dumps(document, indent=1) + "\n")
    return document


def tables(document: dict[str, Any]) -> str:
    """What was measured, as Markdown: what it ran on, and a table for each benchmark."""
    parts = [_machine(document["machine"])]
    for name, results in document["results"].items():
        keys = [key for key in SETTINGS[name] if any(key in each["parameters"] for each in results)]
        lines = [
            f"`{name}`, ratios above 1: tiering is faster",
            "",
            f"| {' | '.join(key.replace('_', ' ') for key in keys)} | tiering | beside | its rate | ratio | aim |",
            "|" + "---:|" * len(keys) + "---:|---|---:|---:|---:|",
        ]
        for result in results:
            cells = [_cell(result["parameters"].get(key, "")) for key in keys]
            for peer in result["peers"]:
                lines.append("| " + " | ".join([*cells, _rate(result), *_peer(peer, result)]) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _machine(machine: dict[str, Any]) -> str:
    gpu = machine["gpu"]
    about = [gpu["name"], f"{gpu['multiprocessors']} multiprocessors", f"{gpu['memory_bytes'] / 2**30:.0f} GiB"]
    about += [f"{name} {value}" for name, value in gpu["driver"].items()]
    about += [f"CUDA of {name.removesuffix(' serves')} {value}" for name, value in gpu["cuda"].items()]
    about += [f"torch {machine['versions'].get('torch')}", f"{machine['processor']}, {machine['cores']} cores"]
    return ", ".join(about) + "."


def _peer(peer: dict[str, Any], result: dict[str, Any]) -> list[str]:
    if "ratio" not in peer:
        return [peer["name"], "-", peer["note"], ""]
    ratio = f"{peer['ratio']:.2f} ({peer['ratio_min']:.2f} .. {peer['ratio_max']:.2f})"
    aim = ""
    if "target" in peer:
        aim = f"{peer['target']:.2f}, {'met' if peer['ratio'] >= peer['target'] else 'missed'}"
    return [peer["name"], _rate(peer, result["unit"]), ratio, aim]


def _rate(side: dict[str, Any], unit: str = "") -> str:
    unit = unit or side["unit"]
    scale, prefix = next((s, p) for s, p in ((1e9, "G"), (1e6, "M"), (1e3, "k"), (0, "")) if side["rate"] >= s)
    return f"{side['rate'] / (scale or 1):.3g} {prefix}{unit if unit == 'B' else f' {unit}'}/s"


def _cell(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def write_page(page: Path, document: dict[str, Any]) -> bool:
    """Put the tables into a page between `BEGIN` and `END`; ``False`` where it has no such place."""
    text = page.read_text() if page.exists() else ""
    if BEGIN not in text:
        return False
    before, rest = text.split(BEGIN, 1)
    page.write_text(f"{before}{BEGIN}\n{tables(document)}\n{END}{rest.split(END, 1)[1]}")
    return True


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which; all if none: {', '.join(NAMES)}")
    parser.add_argument("--dir", type=Path, default=Path(), help="where graphs and images lie for a while")
    parser.add_argument("--docs", type=Path, help="where benchmarks/ and gpu.md are; default: benchmarks/ in --dir")
    parser.add_argument("--scale", type=int, default=Sizes.scale, help="R-MAT graphs have 2**SCALE nodes")
    parser.add_argument("--edges", type=int, default=Sizes.edges)
    parser.add_argument("--table-bytes", type=int, default=Sizes.image_bytes, help="size of tables of rows")
    parser.add_argument("--row-bytes", type=int, default=ROW_BYTES, help="of the epochs")
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
        document = measure(given.names, sizes, (given.docs or given.dir) / "benchmarks")
    except TieringError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(tables(document))
    if given.docs is not None and not write_page(given.docs / "gpu.md", document):
        print(f"{given.docs / 'gpu.md'}: no line {BEGIN}; paste the tables", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
