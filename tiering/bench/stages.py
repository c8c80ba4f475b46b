"""Whole stages, from files to files, beside reading and writing as many bytes on the same disk, in turn.

Each stage runs as the command does, in a process of its own, its input out of the page cache; with a memory budget in a
memory control group of a tenth more, where such a group can be made. The peer reads the stage's input files once and
writes as many bytes as the stage left, both directly: less cannot be done.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tiering import native
from tiering.artifacts.storage import reserve
from tiering.bench.disk import forget, read_seconds, write_seconds
from tiering.bench.harness import Comparison, Peer, touch_memory
from tiering.bench.memory_group import memory_group
from tiering.bench.sizes import Sizes
from tiering.errors import InternalError
from tiering.memory import total_memory
from tiering.units import parse_size

_PART = 1 << 25
"""Edges drawn at a time."""
_SAMPLE_SECONDS = 5.0
"""How long the memory map is read."""


def bench_import(sizes: Sizes) -> Comparison:
    """(2, E) int64 npy to a graph artifact."""
    with bench_folder(sizes) as folder:
        return _import(sizes, folder)


def bench_score(sizes: Sizes) -> Comparison:
    """Five sweeps of wrpr from a graph artifact to a scores artifact."""
    with bench_folder(sizes) as folder:
        return _score(sizes, folder, _graph(sizes, folder))


def bench_reorder(sizes: Sizes) -> Comparison:
    """A graph artifact in the order of its scores."""
    with bench_folder(sizes) as folder:
        graph, scores = _graph(sizes, folder), folder / "scores"
        run_tiering(sizes, ["score", graph, "--method", "degree", "--out", scores])
        return _reorder(sizes, folder, graph, scores)


def bench_chain(sizes: Sizes) -> list[Comparison]:
    """The three, one after the other, each on what the one before made."""
    with bench_folder(sizes) as folder:
        results = [_import(sizes, folder)]
        (folder / "data" / "edge_index.npy").unlink()
        results.append(_score(sizes, folder, folder / "graph"))
        results.append(_reorder(sizes, folder, folder / "graph", folder / "scores"))
        return results


def _import(sizes: Sizes, folder: Path) -> Comparison:
    edges = write_edges(sizes, folder / "data")
    command = ["import", folder / "data", "--num-nodes", graph_nodes(sizes), "--out", folder / "graph"]
    return _stage(sizes, folder, "import", command, [edges], [folder / "graph"])


def _score(sizes: Sizes, folder: Path, graph: Path) -> Comparison:
    command = ["score", graph, "--method", "wrpr", "--train", "1%", "--out", folder / "scores"]
    return _stage(sizes, folder, "score", command, _files(graph), [folder / "scores"])


def _reorder(sizes: Sizes, folder: Path, graph: Path, scores: Path) -> Comparison:
    command = ["reorder", graph, "--scores", scores, "--out", folder / "reordered"]
    return _stage(sizes, folder, "reorder", command, [*_files(graph), *_files(scores)], [folder / "reordered"])


def bench_layout(sizes: Sizes) -> Comparison:
    """Feature rows into tiers, in an order that has nothing to do with where they lie.

    The strict floor of a permutation that does not fit in memory is twice the copy: all rows are read and written
    twice. Beside it, for a few seconds, rows by a memory map and fancy indexing.
    """
    with bench_folder(sizes) as folder:
        rows = max(2, sizes.feature_bytes // sizes.row_bytes)
        small = replace(sizes, stage_nodes=rows, edges=2 * rows)
        write_edges(small, folder / "data")
        table = folder / "data" / "node_feat.npy"
        write_rows(table, rows, sizes.row_bytes)
        graph, scores, ordered = folder / "graph", folder / "scores", folder / "reordered"
        run_tiering(sizes, ["import", folder / "data", "--out", graph])
        run_tiering(sizes, ["score", graph, "--method", "degree", "--out", scores])
        run_tiering(sizes, ["reorder", graph, "--scores", scores, "--out", ordered])
        (folder / "data" / "edge_index.npy").unlink()
        command = ["layout", ordered, "--cpu", "50%", "--ssd", folder / "ssd", "--out", folder / "layout"]
        kept = ordered / "order" / "nodes" / "node" / "new_to_old"
        made = [folder / "layout", folder / "ssd"]
        result = _stage(small, folder, "layout", command, [table], made, rows * sizes.row_bytes)
        result.parameters |= {"rows": rows, "row_bytes": sizes.row_bytes}
        result.peers.append(_memory_map(sizes, table, kept, rows, sizes.row_bytes))
        return result


def write_edges(sizes: Sizes, folder: Path) -> Path:
    """Draw the edges of the R-MAT graph of `sizes`, (2, E) int64, and write them; memory for a part at a time."""
    folder.mkdir(parents=True)
    path = folder / "edge_index.npy"
    scale = max(1, (graph_nodes(sizes) - 1).bit_length())
    out = np.lib.format.open_memmap(path, "w+", np.int64, (2, sizes.edges))
    begin, part = 0, sizes.seed
    while begin < sizes.edges:
        drawn = native.rmat_edges(scale, min(_PART, 2 * (sizes.edges - begin) + 1000), part, sizes.threads, True)
        inside = (drawn[0] < graph_nodes(sizes)) & (drawn[1] < graph_nodes(sizes))
        kept = [side[inside][: sizes.edges - begin] for side in drawn]
        for side, values in zip(out, kept, strict=True):
            side[begin : begin + values.size] = values
        begin, part = begin + kept[0].size, part + 1
    out.flush()
    return path


def graph_nodes(sizes: Sizes) -> int:
    """Nodes of the graph that stages run on."""
    return sizes.stage_nodes or 1 << sizes.scale


def write_rows(path: Path, rows: int, row_bytes: int) -> None:
    """A table of float16 or bytes, not all alike; made of one random block."""
    dtype, dim = ("<f2", row_bytes // 2) if row_bytes % 2 == 0 else ("|i1", row_bytes)
    block = np.random.default_rng(0).integers(0, 100, (max(1, (64 << 20) // row_bytes), dim)).astype(dtype)
    reserve(path, rows * row_bytes)
    with path.open("r+b") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": (rows, dim)})
        for begin in range(0, rows, block.shape[0]):
            block[:, 0] = np.arange(begin, begin + block.shape[0]) % 100
            file.write(block[: rows - begin].data)
        file.truncate()


def _graph(sizes: Sizes, folder: Path) -> Path:
    """The imported graph; the edge list goes."""
    edges = write_edges(sizes, folder / "data")
    run_tiering(sizes, ["import", folder / "data", "--num-nodes", graph_nodes(sizes), "--out", folder / "graph"])
    edges.unlink()
    return folder / "graph"


def _stage(
    sizes: Sizes,
    folder: Path,
    name: str,
    command: list[Any],
    inputs: list[Path],
    made: list[Path],
    left: int | None = None,
) -> Comparison:
    """Time a command, which makes directories anew each turn, and the disk in turn."""
    floor = Peer("its input read and its output written, directly")
    seconds: list[float] = []
    for _ in range(sizes.stage_repeats):
        for each in made:
            shutil.rmtree(each, ignore_errors=True)
        forget(inputs)
        touch_memory(min(total_memory() // 2, _memory_of(sizes)))  # as before all that is timed here
        seconds.append(run_tiering(sizes, command))
        nbytes = left if left is not None else sum(path.stat().st_size for path in _files(made[0]))
        forget(inputs)
        floor.seconds.append(read_seconds(inputs) + write_seconds(folder / "written", nbytes))
    parameters = {
        "nodes": graph_nodes(sizes), "edges": sizes.edges, "threads": sizes.threads, "memory": sizes.memory,
        "read": sum(path.stat().st_size for path in inputs), "written": nbytes, "repeats": sizes.stage_repeats,
    }  # fmt: skip
    if left is not None:
        return Comparison(name, parameters, seconds, [floor], left, "B")
    return Comparison(name, parameters, seconds, [floor], sizes.edges, "edges")


def _memory_of(sizes: Sizes) -> int:
    """Bytes that a stage takes, roughly."""
    wanted = 16 * sizes.edges + (1 << 28)
    return min(parse_size(sizes.memory, "memory").bytes or wanted, wanted)


def run_tiering(sizes: Sizes, command: list[Any]) -> float:
    """Seconds of a command in a process of its own."""
    takes_memory = command[0] in ("import", "score", "reorder", "layout")
    more = ["--threads", sizes.threads, *(["--memory", sizes.memory] if takes_memory else []), "--json"]
    line = [sys.executable, "-m", "tiering.cli", *map(str, [*command, *more])]
    with memory_group(sizes.memory) as enter:
        start = time.perf_counter()
        done = subprocess.run(line, capture_output=True, text=True, check=False, preexec_fn=enter)
        seconds = time.perf_counter() - start
    if done.returncode != 0:
        raise InternalError(f"tiering {command[0]} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return seconds


def _memory_map(sizes: Sizes, table: Path, order: Path, rows: int, row_bytes: int) -> Peer:
    """Rows by rank through a memory map, for some seconds in the same memory; scaled to the whole table."""
    code = (
        "import sys, time, json, numpy as np\n"
        "table, order, rows, nbytes, limit = sys.argv[1:]\n"
        "t = np.memmap(table, np.uint8, 'r', 128, (int(rows), int(nbytes)))\n"
        "ids = np.memmap(order, np.int32, 'r', 0, (int(rows),))\n"
        "done, start = 0, time.perf_counter()\n"
        "while done < len(ids) and time.perf_counter() - start < float(limit):\n"
        "    t[ids[done : done + 256]]; done += 256\n"
        "print(json.dumps((time.perf_counter() - start) * len(ids) / done))\n"
    )
    forget([table])
    line = [sys.executable, "-c", code, str(table), str(order), str(rows), str(row_bytes), str(_SAMPLE_SECONDS)]
    with memory_group(sizes.memory) as enter:
        done = subprocess.run(line, capture_output=True, text=True, check=True, preexec_fn=enter)
    return Peer("numpy memmap[ids], a sample, scaled", [json.loads(done.stdout)] * sizes.stage_repeats)


def _files(artifact: Path) -> list[Path]:
    return [path for path in artifact.rglob("*") if path.is_file() and path.stat().st_size]


@contextmanager
def bench_folder(sizes: Sizes) -> Iterator[Path]:
    """A directory on the disk to measure, removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="tiering-bench-", dir=os.fspath(sizes.folder)) as name:
        yield Path(name)
