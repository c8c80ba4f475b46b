"""How time grows with edges, nodes, threads, memory and bytes of a row: import, wrpr, reorder and layout, file to file.

``python -m benchmarks scale [--dir DIR] [--largest EDGES] [--docs DIR]`` runs the stages on scrambled R-MAT graphs in
DIR, against reading their input and writing their output directly, in memory groups of a tenth more than the budget
where such groups can be made. With ``--docs`` it writes ``benchmarks/scale.json``, tables of ``internals/scale.md`` and
``images/scale.png``. What is in the file already and was run on this machine is not run again: delete the file to begin
anew. The largest takes 60 GB of disk and some ten minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import Sizes
from benchmarks.pages import describe_machine, keep_results, markdown, put
from benchmarks.stages import STAGES, chain, layout

PAPERS = (111_059_956, 1_615_685_872)
"""Nodes and edges of ogbn-papers100M."""
EDGES = (1_000_000, 10_000_000, 100_000_000, 400_000_000, PAPERS[1])
NODES = (1_000_000, 50_000_000)
MEMORY = ("1GiB", "2GiB")
ROWS = ((512, 5 * 10**9, "1GiB"), (2048, 5 * 10**9, "1GiB"), (4096, 5 * 10**9, "1GiB"), (2048, 20 * 10**9, "4GiB"))
FEW, MANY = 100_000_000, 400_000_000
BEGIN, END = "<!-- scale: {} -->", "<!-- scale: end -->"


def settings(sizes: Sizes, largest: int) -> Iterator[tuple[str, Sizes]]:
    """Yield the series and sizes of every run."""
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
        nbytes = nbytes if largest >= FEW else 10**7
        yield "rows", replace(sizes, row_bytes=row_bytes, feature_bytes=nbytes, memory=memory, repeats=1)


def run(series: str, sizes: Sizes) -> list[dict[str, Any]]:
    """Return the results of the stages, or of the layout."""
    done = [layout(sizes)] if series == "rows" else chain(sizes)
    return [{"series": series, **result.to_json()} for result in done]


def key(series: str, sizes: Sizes) -> str:
    """Return the key that tells runs apart."""
    if series == "rows":
        return f"rows {sizes.row_bytes} {sizes.feature_bytes} {sizes.memory}"
    return f"{sizes.stage_nodes} {sizes.edges} {sizes.threads} {sizes.memory}"


def tables(results: dict[str, list[dict[str, Any]]]) -> dict[str, str]:
    """Return Markdown by series."""
    made: dict[str, list[list[str]]] = {}
    for done in results.values():
        about = done[0]["parameters"]
        if done[0]["series"] == "rows":
            mapped = next((peer for peer in done[0]["peers"] if "memmap" in peer["name"]), None)
            cells = [str(about["row_bytes"]), f"{about['rows']:,}", about["memory"], *_times(done[0])]
            cells.append(f"{mapped['ratio']:.0f}" if mapped else "-")
        else:
            times = {result["name"]: _times(result) for result in done}
            cells = [f"{about['nodes']:,}", f"{about['edges']:,}", str(about["threads"]), about["memory"]]
            cells += [cell for stage in STAGES for cell in times[stage]]
        made.setdefault(done[0]["series"], []).append(cells)
    graph = ["nodes", "edges", "threads", "memory"]
    graph += [head for stage in ("import", "wrpr", "reorder") for head in (f"{stage}, s", f"{stage} / floor")]
    rows = ["row, bytes", "rows", "memory", "layout, s", "layout / floor", "numpy memmap / layout"]
    return {series: markdown(rows if series == "rows" else graph, cells) for series, cells in made.items()}


def _times(result: dict[str, Any]) -> list[str]:
    return [f"{median(result['seconds']):.2f}", f"{1 / result['peers'][0]['ratio']:.2f}"]


def write_docs(docs: Path, results: dict[str, list[dict[str, Any]]]) -> None:
    """Write tables into ``internals/scale.md``, the plot next to it."""
    for series, table in tables(results).items():
        put(docs / "internals" / "scale.md", BEGIN.format(series), END, table)
    plot([result for done in results.values() for result in done], docs / "images" / "scale.png")


def plot(results: list[dict[str, Any]], path: Path) -> None:
    """Plot seconds over edges, ours and the floor, of the series over edges."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for stage, color in zip(STAGES, ("tab:blue", "tab:orange", "tab:green"), strict=True):
        done = [result for result in results if result["series"] == "edges" and result["name"] == stage]
        edges = [result["parameters"]["edges"] for result in done]
        axes.plot(edges, [result["median_seconds"] for result in done], "o-", color=color, label=stage)
        floor = [median(result["peers"][0]["seconds"]) for result in done]
        axes.plot(edges, floor, ":", color=color, label=f"{stage}: its files read and written")
    axes.set(xscale="log", yscale="log", xlabel="edges", ylabel="seconds")
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def main(argv: Sequence[str]) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks scale", description=__doc__.splitlines()[0])
    parser.add_argument("--largest", type=int, default=PAPERS[1], help="edges of the largest graph")
    parser.add_argument("--docs", type=Path)
    Sizes.options(parser, "threads", "memory", "folder")
    parser.set_defaults(memory="8GiB")
    given = parser.parse_args(argv)
    file = (given.docs or given.folder) / "benchmarks" / "scale.json"
    wanted = settings(Sizes.from_options(given), given.largest)
    works = ((key(series, sizes), partial(run, series, sizes)) for series, sizes in wanted)
    results = keep_results(file, describe_machine(), works)["results"]
    if given.docs:
        write_docs(given.docs, results)
    for series, table in tables(results).items():
        print(f"\n{series}\n{table}")
    return 0
