"""Fits the constants of `tiering.execution.costs.KERNELS` on this machine, with R-MAT graphs of several sizes.

``python tests/benchmarks/fit_kernels.py [--edges N,N,..] [--large N,N,..] [--threads N,N] [NAME ...]`` prints, per
kernel, the fitted `work` and `accesses`, and how far predictions are off at each size. A kernel and the reference
(`Rates.edge`) are timed in turn and the best of several turns counts, so that what else runs on the machine matters
little. Bytes streamed and touched are counted by hand in the table; what is left of the time is fitted by least squares
of the relative error.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import xxhash

from tiering import native
from tiering.execution import Budget
from tiering.execution.costs import KERNELS
from tiering.execution.rates import Rates, measure_memory, reference_seconds
from tiering.formats.feature_rows import take
from tiering.formats.protocols import EdgeData
from tiering.graph.bucket_sort import _BucketSort
from tiering.graph.scatter import scatter
from tiering.graph.scatter_plan import plan_scatter
from tiering.graph.sizes import CscSizes
from tiering.reorder.windows import WIDEST_CHUNK
from tiering.scores.memory import BIN_NODES, sum_bins

TURNS = 4
WITHOUT_ACCESSES = ("append", "row byte", "relabel by parts")
"""Kernels that access nothing at random; of the first two an item is a byte."""
CLOCK = time.process_time
"""Time of the processor, so that what else runs counts as little as possible; one thread, therefore."""
Work = Callable[[], object]
Measured = tuple[str, int, int, int, Work]
"""Kernel, items, entries of its table, bytes of an entry, the work."""


def measure(scale: int, edges: int, threads: int) -> Iterator[Measured]:
    """Every kernel at one size."""
    yield from _conversions(scale, edges, threads)
    yield from _nodes(1 << scale, threads)
    yield from _edges(scale, edges, threads)


def _conversions(scale: int, edges: int, threads: int) -> Iterator[Measured]:
    nodes = 1 << scale
    src, dst = (ids.astype(np.int64) for ids in native.rmat_edges(scale, edges, 0, threads, True))
    yield "csc", edges, nodes, 8, lambda: native.coo_to_csc(src, dst, nodes, nodes, threads)
    counts = np.zeros(nodes, np.int64)
    yield "count", edges, nodes, 8, lambda: native.count_destinations(dst, 0, counts, threads)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(dst, minlength=nodes))])
    out, none = np.empty(edges * 4, np.uint8), np.empty(0, np.uint8)

    def place(window: Any, first: int, first_column: int) -> None:
        starts = indptr[first_column:-1].copy()
        native.place_sources(src, dst, 0, nodes, first, first_column, starts, window, threads)

    yield "pass", edges, nodes, 8, lambda: place(none, edges, nodes)
    yield "place", edges, nodes, 8, lambda: place(out, 0, 0)
    sizes = CscSizes(edges, nodes, nodes)
    data, budget = EdgeData(("n", "to", "n"), src, dst), Budget(1 << 50, "fit")
    plan = plan_scatter(sizes, 1 << 50)
    if plan is None:
        return
    kept = [scatter(data, sizes, plan, 0, None, threads)]
    yield "scatter", edges, nodes, 8, lambda: kept.__setitem__(0, scatter(data, sizes, plan, 0, None, threads))

    def sort() -> None:
        for _ in _BucketSort(kept[0], None, sizes, plan, budget, threads).units(0):
            pass

    yield "sort", edges, nodes, 8, sort


def _nodes(nodes: int, threads: int) -> Iterator[Measured]:
    random = np.random.default_rng(1)
    scores = random.pareto(1.5, nodes)
    yield "rank", nodes, nodes, 4, lambda: native.sort_by_score(scores, threads)
    order = native.sort_by_score(scores, threads)
    yield "invert", nodes, nodes, 4, lambda: native.invert_permutation(order, threads)
    table, out = scores.view(np.uint8).reshape(-1, 8), np.empty((nodes, 8), np.uint8)
    yield "row", nodes, nodes, 8, lambda: native.gather_rows(table, order, out, threads)
    rows = max(1 << 16, nodes // 8)
    wide, chunk = np.ones((rows, 512), np.uint8), np.empty((1 << 16, 512), np.uint8)
    ids = random.integers(0, rows, 1 << 16)
    yield "row byte", chunk.size, 1 << 16, 1, lambda: native.gather_rows(wide, ids, chunk, threads)
    piece, from_ = np.empty(32 << 20, np.uint8), np.ones(32 << 20, np.uint8)

    def append() -> None:
        piece[:] = from_
        xxhash.xxh3_64(piece.data).digest()

    yield "append", piece.size, 0, 1, append


def _edges(scale: int, edges: int, threads: int) -> Iterator[Measured]:
    nodes = 1 << scale
    indptr, indices, positions = native.coo_to_csc(
        *native.rmat_edges(scale, edges, 0, threads, True), nodes, nodes, threads, True
    )
    values = np.ones((edges, 8), np.uint8)
    yield "value", edges, edges, 8, lambda: take(values, positions, threads)
    yield "degree", edges, nodes, 8, lambda: native.out_degrees(indices, nodes, threads)
    order = native.sort_by_score(native.out_degrees(indices, nodes, threads).astype(np.float64), threads)
    inverse = native.invert_permutation(order, threads)
    yield "relabel column", nodes, nodes, 8, lambda: native.relabel_indptr(indptr, inverse, threads)
    relabel, none = _relabel(indptr, indices, inverse, inverse, threads), np.empty(0, np.uint8)
    out = np.empty(edges * 4, np.uint8)
    yield "relabel pass", edges, nodes, 8, lambda: relabel(none, edges, nodes, none)
    yield "relabel", edges, nodes, 4, lambda: relabel(out, 0, 0, none)
    yield from _sweeps([(0, 0, indptr, indices)], nodes, edges, threads)


def _relabel(
    indptr: Any, indices: Any, columns: Any, sources: Any, threads: int
) -> Callable[[Any, int, int, Any], None]:
    """Relabels all entries into a window that begins at an entry and a column, with space to look up by parts."""
    starts = native.relabel_indptr(indptr, columns, threads)

    def relabel(window: Any, first: int, column: int, space: Any) -> None:
        native.place_relabelled(
            indices, 0, indptr, columns, sources, 0, sources.size, first, column, starts[column:-1].copy(), window,
            space, threads,
        )  # fmt: skip

    return relabel


def _large_map(scale: int, threads: int) -> Iterator[Measured]:
    """Entries that are looked up by parts in a map that no cache holds; twelve to a column."""
    nodes, edges = 1 << scale, (1 << scale) * 3 // 2
    src, dst = native.rmat_edges(scale, edges, 0, threads, True)
    indptr, indices = native.coo_to_csc(src, dst >> 3, nodes, nodes >> 3, threads)[:2]
    del src, dst
    random = np.random.default_rng(0)
    sources, columns = (native.sort_by_score(random.random(n), threads) for n in (nodes, nodes >> 3))
    relabel, out = _relabel(indptr, indices, columns, sources, threads), np.empty(edges * 4, np.uint8)
    space = np.empty(min(edges * 4, WIDEST_CHUNK), np.uint8)
    yield "relabel by parts", edges, nodes, 4, lambda: relabel(out, 0, 0, space)


def _sweeps(relations: Any, nodes: int, edges: int, threads: int) -> Iterator[Measured]:
    """Sweeps: 0 do nothing but bin the edges."""
    start, none = [(1.0 / nodes, 0.0, np.empty(0, np.int64))], [(0.0, 0.0, np.empty(0, np.int64))]
    with tempfile.TemporaryDirectory() as folder:
        for name, sweeps in (("bin", 1), ("sweep", 6)):
            yield (
                name, edges, nodes, 8,
                lambda sweeps=sweeps: native.reverse_pagerank(
                    relations, [nodes], start, none, 0.85, sweeps, 0.0, threads, None, folder
                ),
            )  # fmt: skip


def runs(edges: int, nodes: int) -> int:
    """Runs of a sweep; see `tiering.scores.predict_sweeps.SweepPlan`."""
    return sum_bins(nodes) * -(-min(nodes, edges) // BIN_NODES)


def known(name: str) -> float:
    """Work of a kernel that is not fitted here: runs and columns take what many nodes take beyond the edges."""
    return KERNELS[name].work


def timed(work: Work, threads: int) -> tuple[float, float]:
    """Least seconds of a call, and of an edge of the reference, timed in turn."""
    found, reference = [], []
    for _ in range(TURNS):
        reference.append(reference_seconds(threads, 1, CLOCK))
        begun = CLOCK()
        work()
        found.append(CLOCK() - begun)
    return min(found), min(reference)


def fit(rows: list[tuple[float, float, float]], columns: Sequence[int]) -> tuple[float, float]:
    """`work` (column 0) and `accesses` (1), not negative, of rows of both and the seconds left."""
    table = np.array([[work / left, access / left] for work, access, left in rows])
    ones = np.ones(len(rows))
    both = np.linalg.lstsq(table, ones, rcond=None)[0]
    candidates = [(float(both[0]), float(both[1]))] if both.min() >= 0 and len(columns) == 2 else []
    for column in columns:
        only = table[:, column]
        value = float(only @ ones / (only @ only))
        candidates.append((value, 0.0) if column == 0 else (0.0, value))
    return min(candidates, key=lambda c: float(((table @ np.array(c) - 1) ** 2).sum()))


def main() -> None:
    """Measure, fit, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="kernels to fit; all by default")
    parser.add_argument("--edges", default="1000000,4000000,16000000,50000000")
    parser.add_argument("--large", default="26,27", help="powers of two: nodes of maps that are looked up by parts")
    parser.add_argument("--threads", default="1")
    given = parser.parse_args()
    found: dict[str, list[tuple[int, int, float, float, float, Rates]]] = {}
    for threads in map(int, given.threads.split(",")):
        rates = Rates(threads, *measure_memory(threads, CLOCK))
        sizes = [(int(np.log2(edges / 12)) + 1, edges) for edges in map(int, given.edges.split(","))]
        works = [(edges, measure(scale, edges, threads)) for scale, edges in sizes]
        if not given.names or "relabel by parts" in given.names:
            works += [(3 << int(scale) >> 1, _large_map(int(scale), threads)) for scale in given.large.split(",")]
        for edges, kernels in works:
            base: float = 0.0
            for name, items, entries, entry_bytes, work in kernels:
                if given.names and name not in given.names and name not in ("bin",):
                    continue
                seconds, edge = timed(work, threads)
                if name == "bin":
                    base = seconds - entries * known("column") * edge
                elif name == "sweep":  # six sweeps less one
                    sweep = (seconds - base) / 5 - runs(items, entries) * known("sweep run") * edge
                    seconds, base = sweep, max(1e-9, base - sweep)
                    now = dataclasses.replace(rates, edge=edge)
                    found.setdefault("bin", []).append((items, edges, base, 0.0, now.edge, now))
                if name != "bin":
                    now = dataclasses.replace(rates, edge=edge)
                    access = now.access(entries, entry_bytes)
                    found.setdefault(name, []).append((items, edges, seconds, access, edge, now))
                    print(
                        f"{name:16} {threads} {edges:>10,} {seconds:9.4f} s {seconds / items * 1e9:8.3f} ns", flush=True
                    )
    for name, measured in found.items():
        _report(name, measured)


def _report(name: str, measured: list[tuple[int, int, float, float, float, Rates]]) -> None:
    known = KERNELS[name]
    fixed = [known.streamed / rates.copy + known.touched / rates.touch for *_, rates in measured]
    rows = [
        (edge, access, max(seconds / items - each, 0.1 * seconds / items))
        for (items, _, seconds, access, edge, _), each in zip(measured, fixed, strict=True)
    ]
    work, accesses = fit(rows, (0,) if name in WITHOUT_ACCESSES else (0, 1))
    off = []
    for (items, edges, seconds, access, edge, rates), each in zip(measured, fixed, strict=True):
        predicted = items * (work * edge + accesses * access + each)
        off.append(f"{rates.threads}x{edges // 1_000_000}M {predicted / seconds - 1:+.0%}")
    print(
        f'    "{name}": Kernel({work:.2f}, {known.streamed:g}, {accesses:.2f}, {known.touched:g}),  # {" ".join(off)}'
    )


if __name__ == "__main__":
    main()
