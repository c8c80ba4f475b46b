"""Seconds of layouts that store rows as int8, against those as float32 of the same graph, and of encoding alone."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import tiering
from benchmarks.harness import Comparison, Sizes, Table, Work, compare
from benchmarks.stages import bench_folder, forget, run_limited
from tiering.artifacts.storage import aligned_bytes
from tiering.codecs import CODECS, fit_codec
from tiering.formats.feature_rows import checked_tables
from tiering.formats.graph import Graph
from tiering.text.units import format_bytes

DIMS = (128, 768)
CODED, PLAIN = "int8", "float32"
_SMALL, _WORK = 8, 192 << 20
"""The memory with which rows pass through scratch: this fraction of the table, and bytes to work with."""
_TURNS = 3
_BEYOND_FIT = 1.2
"""Most times the seconds of float32 that are aimed at, the pass that fits left out."""
_COPY = "numpy.copyto (memcpy)"
_AIM = 0.5
"""Share of the copy's speed that encoding aims at."""
_BLOCK = 64 << 20
"""Bytes of float32 rows that are encoded in a turn."""
_PROGRAM = """
import sys, time, tiering
from tiering.formats.encoded_rows import EncodedTable
from tiering.formats.feature_rows import checked_tables
from tiering.formats.graph import Graph
work, ordered, out, ssd, memory, threads = sys.argv[1:]
(table,) = checked_tables(Graph.open(ordered)).values()
start = time.perf_counter()
if work == "fit":
    EncodedTable(table, "int8", "benchmark").fit(int(threads))
else:
    tiering.write_layout(ordered, out, cpu=0, ssd=[ssd], dtype=work, memory=memory, threads=int(threads))
print(time.perf_counter() - start)
"""


def encode(sizes: Sizes) -> Iterator[Comparison]:
    """Compare encoding rows with copying them, by one thread, into memory that is used again."""
    names = [name for name in CODECS if name != PLAIN]
    for dim in DIMS:
        rows = max(1, min(_BLOCK, sizes.feature_bytes) // (4 * dim))
        values = aligned_bytes(4 * dim * rows).view(np.float32).reshape(rows, dim)
        values[:] = np.random.default_rng(dim).standard_normal(values.shape, np.float32)
        copy = aligned_bytes(values.nbytes).view(np.float32).reshape(values.shape)
        copy[:] = 0
        peers: dict[str, Work] = {_COPY: partial(np.copyto, copy, values)}
        for name in names:
            codec = fit_codec(name, [values], dim, PLAIN, "benchmark")
            stored = codec.encode(values)
            yield compare(
                f"encode {name}", partial(codec.encode, values, 1, stored), peers, amount=values.nbytes, unit="B",
                repeats=sizes.repeats, targets={_COPY: _AIM} if name == CODED else {},
                parameters={"rows": format_bytes(values.nbytes), "dim": dim, "threads": 1},
            )  # fmt: skip


def layout(sizes: Sizes) -> Table:
    """Time layouts on SSD, in turn: of a table in the page cache, and of one on disk that memory does not hold.

    Each is a process of its own, without its start; the second are held to their memory by the kernel, too.
    """
    heads = ["row", "memory", "float32, s", "int8, s", "fit, s", "(int8 - fit) / float32", "aim, at most", "min", "max"]
    rows: list[list[Any]] = []
    with bench_folder(sizes) as folder:
        for dim in DIMS:
            ordered = _write_graph(sizes, folder / str(dim), dim)
            small = _WORK + sizes.feature_bytes // _SMALL
            for memory, label, aim in (("auto", "auto", _BEYOND_FIT), (f"{small}B", format_bytes(small), 1.0)):
                turns = [_turn(sizes, ordered, memory) for _ in range(min(_TURNS, sizes.repeats))]
                ratios = [(coded - fit) / plain for plain, coded, fit in turns]
                figures = [median(column) for column in zip(*turns, strict=True)]
                rows.append([f"{dim} x float32", label, *figures, median(ratios), aim, min(ratios), max(ratios)])
            shutil.rmtree(folder / str(dim))
    return Table("layout int8", {"table": format_bytes(sizes.feature_bytes), "threads": sizes.threads}, heads, rows)


def _write_graph(sizes: Sizes, folder: Path, dim: int) -> Path:
    """Write a reordered graph whose features have `sizes.feature_bytes`."""
    nodes = max(20, sizes.feature_bytes // (4 * dim))
    data = tiering.generate_dataset(folder / "data", nodes=nodes, edges=2 * nodes, dim=dim)
    graph = tiering.import_graph(data, out=folder / "graph")
    scores = tiering.score_graph(graph, out=folder / "scores", method="random")
    tiering.reorder_graph(graph, scores=scores, out=folder / "ordered")
    return folder / "ordered"


def _turn(sizes: Sizes, ordered: Path, memory: str) -> list[float]:
    """Return seconds of the layout as float32, as int8, and of the pass that fits the codec."""
    (table,) = checked_tables(Graph.open(ordered)).values()
    made, seconds = [ordered.parent / "layout", ordered.parent / "ssd"], []
    for work in (PLAIN, CODED, "fit"):
        forget([table.path])
        if memory == "auto":
            _read(table.path)
        line = [sys.executable, "-c", _PROGRAM, work, ordered, *made, memory, sizes.threads]
        seconds.append(float(run_limited(memory, line).result.splitlines()[-1]))
        for path in made:
            shutil.rmtree(path, ignore_errors=True)
    return seconds


def _read(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 24):
            pass
