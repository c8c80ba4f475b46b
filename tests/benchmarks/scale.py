"""How time grows with edges, nodes, threads, memory and bytes of a row: import, wrpr, reorder and layout, file to file.

``python tests/benchmarks/scale.py [--dir DIR] [--largest EDGES] [--docs DIR]`` runs the stages on scrambled R-MAT
graphs in DIR, beside reading their input and writing their output directly, in memory groups of a tenth more than the
budget where such groups can be made. With ``--docs`` it writes ``benchmarks/scale.json``, the tables of ``scale.md``
and ``images/scale.png``. What is in the file already and was run on this machine is not run again: delete the file to
begin anew. The largest takes 60 GB of disk and some ten minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from tiering.bench.machine import describe_machine
from tiering.bench.sizes import Sizes
from tiering.bench.stages import bench_chain, bench_layout

PAPERS = (111_059_956, 1_615_685_872)
"""Nodes and edges of ogbn-papers100M."""
EDGES = (1_000_000, 10_000_000, 100_000_000, 400_000_000, PAPERS[1])
NODES = (1_000_000, 50_000_000)
MEMORY = ("1GiB", "2GiB")
ROWS = ((512, "5GB", "1GiB"), (2048, "5GB", "1GiB"), (4096, "5GB", "1GiB"), (2048, "20GB", "4GiB"))
FEW, MANY = 100_000_000, 400_000_000
BEGIN, END = "<!-- scale: {} -->", "<!-- scale: end -->"
STAGES = ("import", "score", "reorder")


def settings(sizes: Sizes, largest: int) -> Iterator[tuple[str, Sizes]]:
    """Series and sizes of every run."""
    for edges in EDGES:
        nodes = max(2, round(edges * PAPERS[0] / PAPERS[1]))
        if edges <= largest:
            yield "edges", replace(sizes, stage_nodes=nodes, edges=edges, repeats=3 if edges <= FEW else 1)
    few = replace(sizes, edges=min(FEW, largest), stage_nodes=max(2, min(FEW, largest) // 14), repeats=3)
    for nodes in NODES:
        yield "nodes", replace(few, stage_nodes=min(nodes, few.edges))
    yield "threads", replace(few, threads=1)
    many = replace(sizes, edges=min(MANY, largest), stage_nodes=max(2, min(MANY, largest) // 14), repeats=1)
    for memory in MEMORY:
        yield "memory", replace(many, memory=memory)
    for row_bytes, nbytes, memory in ROWS:
        size = int(nbytes.removesuffix("GB")) * 10**9 if largest >= FEW else 10**7
        yield "rows", replace(sizes, row_bytes=row_bytes, feature_bytes=size, memory=memory, repeats=1)


def run(series: str, sizes: Sizes) -> list[dict[str, Any]]:
    """Results of the stages, or of the layout."""
    found = [bench_layout(sizes)] if series == "rows" else bench_chain(sizes)
    return [{"series": series, **each.to_json()} for each in found]


def key(series: str, sizes: Sizes) -> str:
    """What tells runs apart."""
    if series == "rows":
        return f"rows {sizes.row_bytes} {sizes.feature_bytes} {sizes.memory}"
    return f"{sizes.stage_nodes} {sizes.edges} {sizes.threads} {sizes.memory}"


def _times(result: dict[str, Any]) -> str:
    floor = result["peers"][0]
    return f"{median(result['seconds']):.2f} | {1 / floor['ratio']:.2f}"


def tables(results: dict[str, list[dict[str, Any]]]) -> dict[str, str]:
    """Markdown by series."""
    made: dict[str, list[str]] = {}
    for found in results.values():
        first = found[0]
        series, about = first["series"], first["parameters"]
        lines = made.setdefault(series, [])
        if series == "rows":
            others = {peer["name"]: peer for peer in first["peers"][1:]}
            mapped = next((peer for name, peer in others.items() if "memmap" in name), None)
            beside = f"{mapped['ratio']:.0f}" if mapped else "-"
            lines.append(
                f"| {about['row_bytes']} | {about['rows']:,} | {about['memory']} | {_times(first)} | {beside} |"
            )
            continue
        by_name = {each["name"]: each for each in found}
        cells = " | ".join(_times(by_name[stage]) for stage in STAGES)
        lines.append(f"| {about['nodes']:,} | {about['edges']:,} | {about['threads']} | {about['memory']} | {cells} |")
    graph = "| nodes | edges | threads | memory | import, s | of floor | wrpr, s | of floor | reorder, s | of floor |"
    rows = "| row, bytes | rows | memory | layout, s | of floor | numpy memmap, times as long |"
    heads = {series: rows if series == "rows" else graph for series in made}
    return {s: "\n".join([heads[s], "|" + "---:|" * (heads[s].count("|") - 1), *made[s]]) for s in made}


def write_docs(docs: Path, document: dict[str, Any]) -> None:
    """Tables into ``scale.md``, the plot beside."""
    page = docs / "scale.md"
    text = page.read_text()
    for series, table in tables(document["results"]).items():
        begin = BEGIN.format(series)
        before, rest = text.split(begin, 1)
        text = before + begin + "\n" + table + "\n" + END + rest.split(END, 1)[1]
    page.write_text(text)
    plot([each for found in document["results"].values() for each in found], docs / "images" / "scale.png")


def plot(results: list[dict[str, Any]], path: Path) -> None:
    """Seconds over edges, ours and the floor, of the series over edges."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for stage, colour in zip(STAGES, ("tab:blue", "tab:orange", "tab:green"), strict=True):
        found = [each for each in results if each["series"] == "edges" and each["name"] == stage]
        edges = [each["parameters"]["edges"] for each in found]
        axes.plot(edges, [each["median_seconds"] for each in found], "o-", color=colour, label=stage)
        floor = [median(each["peers"][0]["seconds"]) for each in found]
        axes.plot(edges, floor, ":", color=colour, label=f"{stage}: its files read and written")
    axes.set(xscale="log", yscale="log", xlabel="edges", ylabel="seconds")
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, default=Path.cwd(), help="where the graphs lie for a while")
    parser.add_argument("--largest", type=int, default=PAPERS[1], help="edges of the largest graph")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", default="8GiB")
    parser.add_argument("--docs", type=Path)
    given = parser.parse_args()
    machine = describe_machine()
    file = (given.docs or given.dir) / "benchmarks" / "scale.json"
    document: dict[str, Any] = {"machine": machine, "results": {}}
    if file.exists() and (old := json.loads(file.read_text()))["machine"]["processor"] == machine["processor"]:
        document["results"] = old["results"]
    sizes = Sizes(threads=given.threads, memory=given.memory, folder=given.dir)
    for series, each in settings(sizes, given.largest):
        name = key(series, each)
        if name in document["results"]:
            continue
        print(f"{series}: {name}", file=sys.stderr, flush=True)
        document["results"][name] = run(series, each)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(document, indent=1) + "\n")
    if given.docs:
        write_docs(given.docs, document)
    for series, table in tables(document["results"]).items():
        print(f"\n{series}\n{table}")


if __name__ == "__main__":
    main()
