"""Batches of nodes and edges, by one way to read neighbor lists, in a process of its own: prints a JSON line.

``python list_batches.py SIDE GRAPH JSON``: the options are ``fanouts``, ``batch_size``, ``window``, ``threads``,
``batches`` in all, ``warm`` ones before the measurement, and the most ``seconds`` of each of the two.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import resource
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import tiering
from tiering.artifacts.reader import mapped_file
from tiering.memory import available_memory
from tiering.sampling import SampledBatch, SamplingOptions, make_sampler
from tiering.sampling.lists import bytes_around, list_files

_BESIDE = 64 << 20  # bytes for the last window's batches, and what else Python takes while a window is sampled


def in_memory(graph: Any) -> Any:
    """Return the graph with its lists in memory, as its sampler takes them."""
    lists = {r: (graph.csc(r)[0], np.array(graph.csc(r)[1])) for r in graph.relations}
    return SimpleNamespace(
        node_types=graph.node_types, relations=graph.relations, num_nodes=graph.num_nodes, csc=lists.get,
        node_keys=graph.node_keys, path=graph.path,
    )  # fmt: skip


def windows(sampler: Any, plan: Any, window: int, reads: list[Any]) -> Iterator[SampledBatch]:
    """Yield the batches, by windows."""
    lists: Any = list_files(sampler, max(0, available_memory() - bytes_around(sampler) - _BESIDE))
    at, size = 0, 1
    while at < len(plan):
        numbers = range(at, min(at + size, len(plan)))
        made, size, cost = sampler.sample_window([plan.seeds_of(b) for b in numbers], numbers, lists, window)
        reads.append(cost)
        at, size = at + len(made), min(size, window)
        while made:
            yield made.pop(0)


def mapped(sampler: Any, plan: Any, threads: int) -> Iterator[SampledBatch]:
    """Yield the batches, so many sampled at a time."""
    with ThreadPoolExecutor(threads) as pool:
        waiting = [pool.submit(sampler.sample, plan[b], batch=b) for b in range(min(threads, len(plan)))]
        for b in range(threads, len(plan) + threads):
            yield waiting.pop(0).result()
            if b < len(plan):
                waiting.append(pool.submit(sampler.sample, plan[b], batch=b))


def main(side: str, path: str, options: dict[str, Any]) -> None:
    """Sample batches in the side's way, and print what a batch takes."""
    graph: Any = tiering.open(Path(path))
    node_type = graph.node_types[0]
    source = in_memory(graph) if side == "memory" else graph
    if side == "MADV_RANDOM":
        for r in graph.relations:
            if (lists := mapped_file(graph.csc(r)[1])) is not None:
                lists._mmap.madvise(mmap.MADV_RANDOM)  # type: ignore[attr-defined]
    sampler = make_sampler(source, SamplingOptions(options["fanouts"], options["batch_size"], seed=1))
    plan = sampler.batches({node_type: graph.split("train", node_type)}, options["batch_size"], 0)
    reads: list[Any] = []
    made = (
        windows(sampler, plan, options["window"], reads)
        if side == "windows"
        else mapped(sampler, plan, options["threads"])
    )

    digest, digested = hashlib.sha256(), 4  # of the first batches

    def take(count: int) -> int:
        nonlocal digested
        start, taken = time.perf_counter(), 0
        for batch in islice(made, count):
            taken, digested = taken + 1, digested - 1
            for ids in batch.nodes.values() if digested >= 0 else ():
                digest.update(ids)
            if time.perf_counter() - start > options["seconds"]:
                break
        return taken

    def spent() -> Any:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return time.perf_counter(), usage.ru_utime + usage.ru_stime, usage.ru_majflt, usage.ru_inblock * 512

    warm = take(options["warm"])
    before, begun = spent(), len(reads)
    count = max(1, take(options["batches"] - warm))
    seconds, processor, faults, nbytes = (b - a for a, b in zip(before, spent(), strict=True))
    found = {"batches": count, "seconds": seconds / count, "processor": processor / count, "sha256": digest.hexdigest()}
    if side == "windows":
        measured = reads[begun:]
        batches = max(1, sum(cost.batches for cost in measured))
        found |= {"reads": sum(cost.reads for cost in measured) / batches}
        found |= {"bytes": sum(cost.nbytes for cost in measured) / batches, "warm": warm}
        found |= {"reading": sum(cost.nanoseconds for cost in measured) * 1e-9 / batches}
        found |= {"window": max((cost.batches for cost in measured), default=0)}
    else:
        found |= {"reads": faults / count, "bytes": nbytes / count, "warm": warm}
    print(json.dumps(found))


main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
