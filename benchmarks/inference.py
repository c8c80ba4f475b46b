"""Layer-wise inference of a two-layer GraphSAGE out of core, against memory maps, each side held to the same memory.

A memory group of the kernel gives each side a fraction of the feature rows, and the resident set of a process that has
imported torch and opened the layout. Ours get as ``memory=`` all but a twentieth of that, without the mapped files of
such a process, its programs above all, which the kernel counts and ``memory=`` does not. Memory maps are of the
dataset's own file, in its order, with blocks of as many edges; the first layer runs for some seconds, after a third as
many in which the page cache fills, and is extrapolated by edges where that does not suffice. The floor is what must be
read and written at least, each table once, at the disk's bandwidth by large direct reads and writes in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse.csgraph import reverse_cuthill_mckee

import tiering
from benchmarks.community_graphs import COMMUNITY_GRAPHS
from benchmarks.harness import Sizes
from benchmarks.memory_group import memory_group
from benchmarks.pages import describe_machine, markdown, put, show_machine, write_json
from benchmarks.stages import bench_folder, forget, read_and_write, run_tiering, write_edges
from tiering.errors import InternalError, TieringError
from tiering.text.units import format_bytes

SIDES = ("ours", "ours, 1 thread", "ours, no model", "MADV_RANDOM, 16 threads", "memory map")
RANKED = ("ours, rank order", "ours, no model, rank order")  # sides of graphs with communities, in addition
"""The last: ``table[ids]`` as people write it."""
AIMS = {"waiting / model": 0.1, "tables without a model": 4.0, "MADV_RANDOM / ours": 5.0}
ORDER_AIMS = {"web": ("tables a layer", 1.5), "citation": ("tables / tables in rank order", 0.4)}
_PROGRAM = Path(__file__).parent / "programs" / "layerwise.py"
_GIVEN = 0.95  # of the memory group, as ``memory=``
_CHUNK = 1 << 16


def make_layout(sizes: Sizes, folder: Path, dim: int, kind: str) -> None:
    """Write a graph, its float32 features, and a layout with all rows on SSD, unless they are there."""
    data, graph, scores, ordered, layout = (folder / n for n in ("data", "graph", "scores", "reordered", "layout"))
    if layout.exists():
        return
    if kind == "rmat":
        edges = write_edges(sizes, data)
    else:
        data.mkdir(parents=True)
        edges = data / "edge_index.npy"
        np.save(edges, graph_edges(sizes, kind))
    write_features(data / "node_feat.npy", sizes.graph_nodes, dim)
    run_tiering(sizes, ["import", data, "--num-nodes", sizes.graph_nodes, "--out", graph])
    if kind == "citation":  # whose order is made before, in as much memory as that takes
        both = tiering.open(graph).to_scipy()
        np.save(folder / "order.npy", reverse_cuthill_mckee((both + both.T).tocsr(), symmetric_mode=True))
    edges.unlink()
    run_tiering(sizes, ["score", graph, "--method", "wrpr", "--train", "1%", "--out", scores])
    run_tiering(sizes, ["reorder", graph, "--scores", scores, "--out", ordered])
    run_tiering(sizes, ["layout", ordered, "--cpu", "0", "--ssd", folder / "ssd", "--out", layout])


def graph_edges(sizes: Sizes, kind: str) -> Any:
    """Return the edges of a generated graph with communities, or the edges in a dataset's ``edge_index.npy``."""
    if kind in COMMUNITY_GRAPHS:
        return COMMUNITY_GRAPHS[kind](sizes.graph_nodes, sizes.edges, sizes.seed)
    edges = np.load(Path(kind) / "edge_index.npy")
    return edges if edges.shape[0] == 2 else edges.T


def write_features(path: Path, rows: int, dim: int) -> None:
    """Write random float32 rows behind a header of a page, so that rows of a memory map straddle no more pages."""
    about = repr({"descr": "<f4", "fortran_order": False, "shape": (rows, dim)}).encode()
    draw = np.random.default_rng(0)
    with path.open("wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", 4096 - 10) + about.ljust(4096 - 11) + b"\n")
        for begin in range(0, rows, _CHUNK):
            file.write(draw.standard_normal((min(_CHUNK, rows - begin), dim), np.float32).data)
        file.flush()
        os.fsync(file.fileno())


def run_side(side: str, options: Mapping[str, Any], limit: int | None) -> dict[str, Any]:
    """Run a side in a process of its own, of at most `limit` bytes; one refused, or ended by the kernel, says so."""
    command = [sys.executable, str(_PROGRAM), side, json.dumps(options)]
    if limit is None:
        done = subprocess.run(command, capture_output=True, text=True)
    else:
        with memory_group(limit) as group:
            done = subprocess.run(command, capture_output=True, text=True, preexec_fn=group.enter)
    if done.returncode == -9:
        return {"note": "ended by the kernel: out of memory", "layers": []}
    last = done.stderr.strip().splitlines()[-1:]
    if done.returncode and "BudgetError" in "".join(last):
        return {"note": f"refused: {last[0].split('; ')[-1]}", "layers": []}
    if done.returncode:
        raise InternalError(f"{side}: exit {done.returncode}: {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(sizes: Sizes, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run all sides at each fraction of the features in memory, then the disk alone."""
    make_layout(sizes, folder, arguments.dim, arguments.graph)
    widths = [arguments.dim, arguments.dim, arguments.classes]
    options = {
        "layout": str(folder / "layout"), "graph": str(folder / "graph"), "out": str(folder / "embeddings"),
        "table": str(folder / "data" / "node_feat.npy"), "edges": arguments.block_edges, "seconds": sizes.seconds,
        "widths": widths, "form": arguments.form, "threads": sizes.threads,
    }  # fmt: skip
    own_order = folder / "order.npy"
    order = str(own_order) if own_order.exists() else "auto"
    files = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]
    empty = run_side("empty", options, None)
    base = empty["resident"]
    runs = list[dict[str, Any]]()
    for fraction in arguments.fractions:
        limit = base + int(fraction * 4 * arguments.dim * sizes.graph_nodes)
        for side in arguments.sides * arguments.turns:
            forget(files)
            threads = 1 if side == "ours, 1 thread" else sizes.threads
            settings = {**options, "threads": threads, "memory": int(_GIVEN * limit) - empty["files"]}
            settings["order"] = "rank" if side in RANKED else order
            with removed(folder / "embeddings"):
                found = run_side(side, settings, limit)
            runs.append({"side": side, "fraction": fraction, "limit": limit, **found})
            print(f"{side}, {fraction:.2f}: {json.dumps(found)}", file=sys.stderr, flush=True)
    table, result = folder / "data" / "node_feat.npy", 4 * widths[1] * sizes.graph_nodes
    forget([table])
    written = read_and_write([], folder / "written", result).wall
    read = read_and_write([table], folder / "written", 1 << 20).wall
    disk = {"read": table.stat().st_size / read, "written": result / written}
    return {"graph": arguments.graph, "base": base, "disk": disk, "widths": widths, "runs": runs}


@contextmanager
def removed(path: Path) -> Iterator[None]:
    """Remove what a block leaves in a file or directory, and its unfinished forms."""
    try:
        yield
    finally:
        for found in path.parent.glob(f"*{path.name}*"):
            if found.is_dir():
                shutil.rmtree(found)
            else:
                found.unlink()


def layers_table(document: Mapping[str, Any], nodes: int) -> str:
    """Return a row for each layer of each run, in Markdown."""
    heads = ["side", "in memory", "layer", "s", "model, s", "waiting, s", "tables read", "read, GB", "buffer"]
    heads += ["floor, s", "digest"]
    rows, widths, disk = [], document["widths"], document["disk"]
    for run in document["runs"]:
        for number, layer in enumerate(run["layers"]):
            floor = layer["table"] / disk["read"] + 4 * nodes * widths[number + 1] / disk["written"]
            scale = layer.get("scale", 1.0)
            extrapolated = "" if scale == 1 else f" (from {layer['measured']:.0f} s, {layer['measured_edges']:,} edges)"
            rows.append([
                run["side"], f"{run['fraction']:.2f}", str(number), f"{layer['seconds']:.1f}{extrapolated}",
                f"{layer['model']:.1f}", f"{layer['waited']:.1f}",
                "in memory" if layer.get("in_memory") else f"{layer['read'] / layer['table']:.1f}",
                f"{layer['read'] / 1e9:.2f}", format_bytes(layer["buffer"]) if layer.get("buffer") else "-",
                f"{floor:.1f}", layer["digest"][:12] or "-",
            ])  # fmt: skip
        if not run["layers"]:
            rows.append([run["side"], f"{run['fraction']:.2f}", "-", run["note"], *["-"] * 7])
    return markdown(heads, rows, left=2)


def verdicts(document: Mapping[str, Any]) -> list[str]:
    """Return what was aimed at, and what was measured, by fraction in memory."""
    lines = []
    for fraction in dict.fromkeys(run["fraction"] for run in document["runs"]):
        layers = {r["side"]: r["layers"] for r in document["runs"] if r["fraction"] == fraction and r["layers"]}
        if "ours" in layers:
            waited, model = (sum(layer[name] for layer in layers["ours"]) for name in ("waited", "model"))
            lines.append(f"waiting / model at {fraction:.2f}: {waited / model:.2f}, aim {AIMS['waiting / model']}")
        for layer in layers.get("ours, no model", []):
            read = layer["read"] / layer["table"]
            lines.append(f"tables without a model at {fraction:.2f}: {read:.1f}, aim {AIMS['tables without a model']}")
        for side in ("MADV_RANDOM, 16 threads", "memory map"):
            if side in layers and "ours" in layers:
                ratio = layers[side][0]["seconds"] / layers["ours"][0]["seconds"]
                aim = f", aim {AIMS['MADV_RANDOM / ours']}" if "MADV" in side else ""
                lines.append(f"{side} / ours, first layer, at {fraction:.2f}: {ratio:.1f}{aim}")
        order_aim = ORDER_AIMS.get(document.get("graph", ""))
        for side, ranked in zip(("ours", "ours, no model"), RANKED, strict=True):
            if order_aim is None or not {side, ranked} <= layers.keys():
                continue
            for number, (own, other) in enumerate(zip(layers[side], layers[ranked], strict=True)):
                tables, ranks = (0 if layer["in_memory"] else layer["read"] / layer["table"] for layer in (own, other))
                found = tables if "rank" not in order_aim[0] else tables / max(1.0, ranks)
                ratio = other["seconds"] / own["seconds"]
                lines.append(
                    f"{side}, layer {number}, at {fraction:.2f}: {order_aim[0]} {found:.2f}, aim {order_aim[1]}; "
                    f"rank order reads {ranks:.1f} tables and takes {ratio:.1f} times the seconds"
                )
    digests = {run["rows"] for run in document["runs"] if run["side"] in SIDES[:2] and run["layers"]}
    if digests:
        lines.append(
            f"digests of the results: {'all equal' if len(digests) == 1 else f'{len(digests)} different ones'}"
        )
    return lines


def main(argv: Sequence[str]) -> int:
    """Run the sides, print a table and what was aimed at."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks inference", description=__doc__)
    Sizes.options(parser, "stage_nodes", "edges", "threads", "seed", "folder", "seconds")
    parser.set_defaults(stage_nodes=4_000_000, edges=40_000_000, seconds=60.0)
    parser.add_argument("--graph", default="rmat", help="rmat, web, citation, or a directory with edge_index.npy")
    parser.add_argument("--turns", type=int, default=1, help="of each side, one after the other")
    parser.add_argument("--dim", type=int, default=128, help="of features and of the hidden layer")
    parser.add_argument("--classes", type=int, default=16, help="width of the result")
    parser.add_argument("--block-edges", type=lambda text: text if text == "auto" else int(text), default=50_000,
                        help="in-edges of a block, about")  # fmt: skip
    parser.add_argument("--form", choices=("edge_index", "adjacency"), default="edge_index", help="of the model's sums")
    parser.add_argument("--fractions", type=lambda text: [float(f) for f in text.split(",")], default=[1 / 3, 0.1],
                        help="of the features in memory")  # fmt: skip
    parser.add_argument("--sides", type=lambda text: text.split("/"), default=list(SIDES), help="some, with / between")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="make graph and layout there, or use what is there")
    parser.add_argument("--docs", type=Path, metavar="DIR", help="write the table into internals/inference.md there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    given = parser.parse_args(argv)
    sizes = Sizes.from_options(given)
    try:
        if given.keep is not None:
            given.keep.mkdir(parents=True, exist_ok=True)
            document = measure(sizes, given.keep, given)
        else:
            with bench_folder(sizes) as folder:
                document = measure(sizes, folder, given)
    except TieringError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    machine = describe_machine()
    disk = document["disk"]
    text = "\n\n".join([
        f"{show_machine(machine)}; disk: {disk['read'] / 1e9:.2f} GB/s read, {disk['written'] / 1e9:.2f} written; "
        f"without rows: {format_bytes(document['base'])}",
        layers_table(document, sizes.graph_nodes),
        "\n".join(f"- {line}" for line in verdicts(document)),
    ])  # fmt: skip
    print(text)
    if given.docs:
        put(given.docs / "internals" / "inference.md", "<!-- measured -->", "<!-- end -->", text)
    if given.json:
        write_json(given.json, {"machine": machine, "nodes": sizes.graph_nodes, "edges": sizes.edges, **document})
    return 0
