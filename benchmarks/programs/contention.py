"""Sampling and extraction in one memory, in a process of its own: prints a JSON line of seconds per batch.

``python contention.py SIDE JSON``. Sides: ``memory map`` (lists and rows mapped), ``Ginex``
(hot lists locked in memory, rows cached by Belady's policy for a superbatch that is sampled and stored before;
missing rows are read by threads), ``ours`` (the loader); ``empty`` says what a process holds without either. Lists come
from the same sampler, so the batches are the same.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tiering
from tiering import native
from tiering.formats.graph import Graph
from tiering.sampling import SamplingOptions, make_sampler

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.cache_policies import Future, belady

_NEIGHBORS, _FEATURES = 6 / 32, 24 / 32
"""Ginex's fractions of the memory (GNNDrive, section 5)."""
_FILL = 0.4
"""Share of the seconds that fills the memory and is not counted."""


class Clock:
    """Seconds of sampling and of extraction over the batches that count, and what the process did meanwhile."""

    def __init__(self, seconds: float) -> None:
        self.spent, self.batches, self.rows = {"sampling": 0.0, "extraction": 0.0}, 0, 0
        self._seconds, self._start, self._counts = seconds, time.perf_counter(), False
        self._processor = time.process_time()

    def goes_on(self) -> bool:
        """Return whether there is time for another batch; begin to count once the memory is full."""
        elapsed = time.perf_counter() - self._start
        if not self._counts and elapsed > _FILL * self._seconds:
            self.spent, self.batches, self.rows = dict.fromkeys(self.spent, 0.0), 0, 0
            self._counts = True
            self._processor, self._start = time.process_time(), time.perf_counter()
        return not (self._counts and self.batches and elapsed > self._seconds)

    def time(self, stage: str, work: Callable[[], Any]) -> Any:
        """Run work and add its seconds to a stage."""
        start = time.perf_counter()
        result = work()
        self.spent[stage] += time.perf_counter() - start
        return result

    def found(self) -> dict[str, float]:
        """Return seconds per batch by stage and rows, and by elapsed time processor time and time without any."""
        elapsed, computed = time.perf_counter() - self._start, time.process_time() - self._processor
        stages = {stage: seconds / self.batches for stage, seconds in self.spent.items()}
        shares = {"computing": computed / elapsed, "waiting": max(0.0, 1 - computed / elapsed)}
        counts = {"rows": self.rows / self.batches, "batches": self.batches}
        return {**stages, **shares, "batch": elapsed / self.batches, **counts}


def sampled(graph: Graph, options: dict[str, Any]) -> Iterator[Callable[[], np.ndarray[Any, Any]]]:
    """Yield the sampling of one batch after the other."""
    how = SamplingOptions(options["fanouts"], batch_size=options["batch_size"])
    sampler, epoch = make_sampler(graph, how), 0
    node_type = graph.node_types[0]
    while True:
        plan = sampler.batches(graph.split("train"), how.batch_size, epoch)
        for number in range(len(plan)):
            yield lambda seeds=plan[number], e=epoch, n=number: sampler.sample(seeds, epoch=e, batch=n).nodes[node_type]
        epoch += 1


def run_map(options: dict[str, Any], extract: bool) -> dict[str, float]:
    """Sample from mapped lists; where asked for, read rows of a memory map, random access announced, by threads."""
    rows = np.memmap(options["table"], np.float32, "r", shape=(options["nodes"], options["dim"]))
    rows._mmap.madvise(mmap.MADV_RANDOM)  # type: ignore[attr-defined]
    clock, threads = Clock(options["seconds"]), options["threads"]
    pool = ThreadPoolExecutor(threads)
    for sample in sampled(Graph.open(options["graph"]), options):
        if not clock.goes_on():
            return clock.found()
        nodes = clock.time("sampling", sample)
        if extract:
            parts = np.array_split(nodes, 4 * threads)
            clock.time("extraction", lambda p=parts: list(pool.map(lambda ids: rows[ids], p)))
        clock.batches, clock.rows = clock.batches + 1, clock.rows + nodes.size
    raise AssertionError("a stream has no end")


def lock_prefix(array: np.ndarray[Any, Any], nbytes: int) -> None:
    """Keep the first bytes of an array in memory."""
    size = min(nbytes, array.nbytes)
    if ctypes.CDLL(None, use_errno=True).mlock(ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(size)):
        raise OSError(ctypes.get_errno(), f"mlock of {size} bytes: {os.strerror(ctypes.get_errno())}")


def run_ginex(options: dict[str, Any], extract: bool) -> dict[str, float]:
    """Sample and store a superbatch, plan its cache by Belady's policy, then read what each batch misses by threads."""
    graph, dim, nodes = Graph.open(options["reordered"]), options["dim"], options["nodes"]
    lock_prefix(graph.csc()[1], int(_NEIGHBORS * options["memory"]))
    order = graph.order.new_to_old(graph.node_types[0])[:]
    slots = min(nodes, int(_FEATURES * options["memory"] / (4 * dim)))
    cache = np.ones((slots, dim), np.float32) if extract else None
    table = open_table(options["table"], nodes, dim, options["threads"])
    clock, stream = Clock(options["seconds"]), sampled(graph, options)
    while True:
        superbatch = []
        with tempfile.TemporaryDirectory(dir=options["folder"]) as folder:
            start = time.perf_counter()
            for number in range(options["superbatch"]):
                ids = np.sort(order[next(stream)()]).astype(np.uint32)
                np.save(f"{folder}/{number}.npy", ids)
                superbatch.append(ids)
            sampling = (time.perf_counter() - start) / len(superbatch)
            start = time.perf_counter()
            missing = list(belady(Future(superbatch, nodes), slots)) if extract else superbatch
            sampling += (time.perf_counter() - start) / len(superbatch)
            for ids, absent in zip(superbatch, missing, strict=True):
                if not clock.goes_on():
                    found = clock.found()
                    return {**found, "batch": found["sampling"] + found["extraction"]}
                clock.spent["sampling"] += sampling
                if cache is not None:
                    clock.time("extraction", partial(fill, table, cache, ids.size, absent, options["threads"]))
                clock.batches, clock.rows = clock.batches + 1, clock.rows + ids.size


def open_table(path: str, nodes: int, dim: int, threads: int) -> native.TieredTable:
    """Open float32 rows of a file for reads by threads."""
    row_bytes = 4 * dim
    page = max(512, row_bytes)
    reader = native.SsdReader([path], page, "threads", threads, "auto", row_bytes)
    unit = page // row_bytes
    return native.TieredTable(row_bytes, [0, 0, 0, nodes], None, [], None, reader, 0, row_bytes, unit, page, page)


def fill(table: Any, cache: Any, count: int, absent: Any, threads: int) -> np.ndarray[Any, Any]:
    """Return rows that are missing, read, then as many of the cache as a batch of `count` rows finds there."""
    out = np.empty((count, cache.shape[1]), np.float32)
    table.gather(absent.astype(np.int64), out[: absent.size].view(np.uint8), threads)
    np.take(cache, np.arange(count - absent.size) * 7919 % len(cache), axis=0, out=out[absent.size :])
    return out


def run_ours(options: dict[str, Any], extract: bool) -> dict[str, float]:
    """Run epochs of the loader, with rows or without; the first fills the memory."""
    with tiering.open(options["layout"]) as layout:
        loader = layout.loader(
            "train", fanouts=options["fanouts"], batch_size=options["batch_size"], memory=options["loader_memory"],
            features="tiers" if extract else None, direct="on",
        )  # fmt: skip
        nodes, processor, start = 0, 0.0, 0.0
        for epoch in range(1 << 30):
            if epoch == 1:  # the first fills the memory
                loader.reset_counters()
                nodes, processor, start = 0, time.process_time(), time.perf_counter()
            for batch in loader.epoch(epoch):
                nodes += sum(map(len, batch.nodes.values()))
            elapsed = time.perf_counter() - start if epoch else 0.0
            if epoch and elapsed > options["seconds"]:
                break
        stats, computed = loader.stats(), time.process_time() - processor
    spent = {"sampling": stats.seconds["sampling"]}
    spent["extraction"] = sum(stats.seconds[stage] for stage in ("disk", "copying", "assembling"))
    per_batch = {
        stage: seconds / stats.batches for stage, seconds in {**spent, "batch": elapsed, "rows": nodes}.items()
    }
    return {
        **per_batch, "batches": stats.batches, "computing": computed / elapsed,
        "waiting": max(0.0, 1 - computed / elapsed),
    }  # fmt: skip


def main() -> None:
    """Run the side that the arguments name, first sampling alone, then both, as asked for."""
    side, options = sys.argv[1], json.loads(sys.argv[2])
    torch.zeros(1)
    torch.set_num_threads(1)
    if side == "empty":
        with tiering.open(options["layout"]):
            lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
            sizes = {"resident": "VmRSS", "files": "RssFile"}
            print(json.dumps({name: int(lines[key].split()[0]) * 1024 for name, key in sizes.items()}))
        return
    run = {"memory map": run_map, "Ginex": run_ginex, "ours": run_ours}[side]
    print(json.dumps({stage: run(options, stage == "all") for stage in options["stages"]}))


if __name__ == "__main__":
    main()
