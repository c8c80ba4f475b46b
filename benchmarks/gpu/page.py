"""GPU benchmarks at the sizes that docs/gpu.md quotes: ``python -m benchmarks gpu --docs docs --row-bytes 1024``.

It writes ``benchmarks/GPU.json``, next to it the access times as ``tiering layout --access-costs`` takes them and the
cases of the sweep, and the tables of ``gpu.md`` where that page has a place for them. What is in the file already and
was run on this GPU and this driver is not run again: delete the file to begin anew. Graphs and images lie in ``--dir``
for a while, some 30 GB.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu.side import gpu_missing
from benchmarks.harness import Result, Sizes
from benchmarks.pages import describe_machine, figures, keep_results, markdown, put, rate, show_machine, spread
from tiering.errors import CapabilityError

BEGIN, END = "<!-- gpu: figures -->", "<!-- gpu: end -->"


def write(docs: Path, names: Sequence[str], sizes: Sizes, run: Callable[[str, Sizes], list[Result]]) -> None:
    """Run what is not in the file of this GPU yet, and write the page; `CapabilityError` if there is no GPU."""
    if reason := gpu_missing():
        raise CapabilityError(reason)
    machine = describe_machine(gpu=True)
    path = docs / "benchmarks" / f"{re.sub(r'[^a-z0-9]+', '-', machine['gpu']['name'].lower()).strip('-')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    outputs = {name: path.with_name(f"{path.stem}-{name}.json") for name in ("times", "sweep")}
    sizes = replace(sizes, gpu_times_out=outputs["times"], sweep_out=outputs["sweep"])

    def results(name: str) -> list[dict[str, Any]]:
        return [result.to_json() for result in run(name, sizes)]

    document = keep_results(path, machine, ((name, partial(results, name)) for name in names))
    print(tables(document))
    if not put(docs / "gpu.md", BEGIN, END, tables(document)):
        print(f"{docs / 'gpu.md'}: no line {BEGIN}; paste the tables", file=sys.stderr)


def tables(document: dict[str, Any]) -> str:
    """Return the measurements as Markdown: the machine; a table for each benchmark, with the parameters that vary."""
    parts = [show_machine(document["machine"]) + "."]
    for name, results in document["results"].items():
        if "heads" in results[0]:
            parts += [f"`{name}` ({_common(table['parameters'])})\n\n{figures(table)}" for table in results]
            continue
        about = [result["parameters"] for result in results]
        named = list(
            dict.fromkeys(key for settings in about for key in settings if key not in ("passes", "seconds_saved"))
        )
        varying = [key for key in named if len({str(settings.get(key)) for settings in about}) > 1]
        rows = []
        for result, settings in zip(results, about, strict=True):
            cells = [str(settings.get(key, "")) for key in varying]
            rows += [[*cells, rate(result["rate"], result["unit"]), *_peer(peer, result)] for peer in result["peers"]]
        heads = [*(key.replace("_", " ") for key in varying), "tiering's rate", "peer's rate"]
        heads += ["tiering / peer", "goal", "peer"]
        common = _common({key: about[0][key] for key in named if key not in varying})
        parts.append(f"`{name}` ({common}); tiering is faster above 1\n\n{markdown(heads, rows)}")
    return "\n\n".join(parts)


def _common(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in settings.items())


def _peer(peer: dict[str, Any], result: dict[str, Any]) -> list[str]:
    if "ratio" not in peer:
        return ["-", peer["note"], "", peer["name"]]
    aim = ""
    if "target" in peer:
        aim = f"{peer['target']:.2f}, {'met' if peer['ratio'] >= peer['target'] else 'missed'}"
    return [rate(peer["rate"], result["unit"]), spread(peer), aim, peer["name"]]
