"""Seconds that a loader waits for reads, by how rows are stored, at the same bytes of memory.

All rows lie on SSD, and are read past the page cache. The memory is that with which the buffer of the loader of float32
rows holds a fraction of them; it includes batches in flight, ids and the process itself, and the kernel holds the
process to a tenth more. Every layout gets the same bytes: where it can hold all rows, it does.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import tiering
from benchmarks.harness import Sizes, Table
from benchmarks.lookahead import run_program
from benchmarks.stages import bench_folder, forget, run_tiering

PLAIN = "float32"
STORED = (PLAIN, "float16", "int8", "float8_e4m3")
CELLS = {128: (3, 10, 30), 1024: (10, 30)}
"""Columns of the table, and the parts of its float32 rows that memory holds one of."""
NODES, _EDGES, _SEEDS = 300_000, 15, 56 / 300_000
"""Nodes of the graph, edges of a node, and seeds for each: a batch has 1.5 % of the nodes."""
_AIMS = {(128, 10, "int8"): 8.0, (128, 30, "int8"): 4.0, (1024, 10, "int8"): 4.0}
"""Least times fewer seconds of waiting than float32 that are aimed at."""
_TURNS = 2


def loader(sizes: Sizes) -> Table:
    """Run the loader on each layout in turn, for each memory."""
    heads = ["row", "memory", "stored as", "rows in memory", "waiting for reads, ms a batch", "float32 / it", "aim",
             "loader, ms a batch", "reads a batch", "KiB read a batch", "rows a batch"]  # fmt: skip
    rows, nodes = list[list[Any]](), sizes.stage_nodes or NODES
    with bench_folder(sizes) as folder:
        for dim, parts in CELLS.items():
            layouts = _write_layouts(sizes, folder, nodes, dim)
            for part in parts:
                turns = _measure(sizes, layouts, nodes, part)
                if isinstance(turns, str):
                    rows.append([f"{dim} x float32", f"1/{part}", turns, *[None] * 8])
                    continue
                for stored, runs in turns.items():
                    figures = {name: median(run[name] for run in runs) for name in runs[0]}
                    ratios = [a["io"] / b["io"] for a, b in zip(turns[PLAIN], runs, strict=True) if b["io"]]
                    rows.append(
                        [f"{dim} x float32", f"1/{part}", stored, f"{figures['held']:.0%}", 1e3 * figures["io"],
                         median(ratios) if ratios else "waits for none", _AIMS.get((dim, part, stored)),
                         1e3 * figures["loader"], figures["reads"], figures["read_bytes"] / 1024, figures["rows"]]
                    )  # fmt: skip
    return Table("loader, quantized rows", {"nodes": nodes, "edges": _EDGES * nodes, "threads": 2}, heads, rows)


def _write_layouts(sizes: Sizes, folder: Path, nodes: int, dim: int) -> dict[str, Path]:
    """Write one graph with all its rows on SSD, for each of `STORED`."""
    data, graph, scores, ordered = (folder / f"{name}-{dim}" for name in ("data", "graph", "scores", "ordered"))
    tiering.generate_dataset(data, nodes=nodes, edges=_EDGES * nodes, dim=dim)
    run_tiering(sizes, ["import", data, "--out", graph])
    run_tiering(sizes, ["score", graph, "--method", "wrpr", "--out", scores])
    run_tiering(sizes, ["reorder", graph, "--scores", scores, "--out", ordered])
    layouts = {stored: folder / f"{stored}-{dim}" for stored in STORED}
    for stored, out in layouts.items():
        run_tiering(sizes, ["layout", ordered, "--dtype", stored, "--cpu", "0", "--ssd", folder / "ssd", "--out", out])
    return layouts


def _measure(sizes: Sizes, layouts: dict[str, Path], nodes: int, part: int) -> dict[str, list[dict[str, float]]] | str:
    """Return figures of each turn, by how rows are stored; or why there are none."""
    options = {
        "batch_size": max(1, round(_SEEDS * nodes)), "fanouts": [10, 10], "seed": 0, "workers": 2, "prefetch": 1,
        "direct": "on",
    }  # fmt: skip
    fit = run_program("fit", layouts[PLAIN], {"loader": options, "rows": nodes // part})
    if "extra" not in fit:
        return str(fit["note"])
    asked = {"loader": options, "extra": fit["extra"], "seconds": sizes.seconds}
    turns: dict[str, list[dict[str, float]]] = {stored: [] for stored in layouts}
    for _ in range(min(_TURNS, sizes.repeats)):
        for stored, layout in layouts.items():
            forget(path for path in layout.parent.rglob("ssd-*-of-*") if path.is_file())
            found = run_program("measure", layout, asked, f"{fit['limit']}B")
            stats, count = found["stats"], found["batches"]
            turns[stored].append(
                {"io": stats["seconds"]["disk"] / count, "loader": found["loader"], "reads": stats["reads"] / count,
                 "read_bytes": stats["read_bytes"] / count, "rows": sum(stats["rows"].values()) / count,
                 "held": found["slots"] / found["rows"] if "slots" in found else 1.0}
            )  # fmt: skip
    return turns
