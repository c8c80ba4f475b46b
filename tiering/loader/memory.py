"""Memory of a loader: whether it holds all rows of the ssd tier, or a buffer that is filled ahead of the batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tiering.formats.layout import Layout
from tiering.loader.mapped import mapped_files
from tiering.loader.options import LoaderOptions
from tiering.loader.processes.machine import MachineProcesses, ProcessRank
from tiering.loader.processes.peers import PeerGroup
from tiering.loader.tables.preload import preload_bytes
from tiering.memory import Budget, parse_memory
from tiering.sampling import SampledBatch

_MAPPED_SHARE = 1 / 3
"""Share of memory for files that sampling reads through the page cache."""


@dataclass(frozen=True)
class MemoryDecision:
    """The memory of a loader with rows on SSD, and its use; with several processes of a machine, of all together."""

    preload: bool
    """Whether all rows of the ssd tier fit, and are read into memory at first."""
    budget: Budget
    output_bytes: int
    """Host memory of batches that are ready or in the consumer's hands."""
    mapped_bytes: int
    """Bytes of files that sampling reads through the page cache, which gets a share of what the smallest buffer
    leaves."""
    workers: int
    """Threads that sample."""
    kept_bytes: int | None
    """Memory for batches sampled ahead, at most; ``None``: a share of the budget."""
    machine: MachineProcesses | None
    """The processes that have one buffer; the first owns it and reads for all."""


def page_cache_for(mapped: int, room: int) -> int:
    """Return the bytes of `room` that are left to the page cache for `mapped` bytes of files."""
    return min(mapped, int(_MAPPED_SHARE * room))


def decide_memory(
    layout: Layout,
    options: LoaderOptions,
    draw: Callable[[], SampledBatch],
    cold: Sequence[str],
    rank: ProcessRank,
    group: PeerGroup | None,
    targets: str,
    gpu_kept_bytes: int | None,
) -> MemoryDecision:
    """Decide how a loader uses its memory; `group`: processes that share host memory, which all decide the same.

    Parameters
    ----------
    draw
        Samples a batch, from which the memory of all is estimated.
    cold
        Node types with rows on SSD.
    targets
        What batches are made for, the same in all processes of the group.
    gpu_kept_bytes
        With a sampler on a GPU: its memory for batches sampled ahead; else ``None``.
    """
    memory, on_gpu, machine = options.memory.memory, options.device.index is not None, None
    budget, mapped, workers, sample = parse_memory(memory), 0, 1, draw()
    if gpu_kept_bytes is None:  # sampling reads the adjacency through the page cache, whose size decides how fast
        workers, mapped = int(options.pipeline.workers), sum(len(file) for _, file in mapped_files(layout.graph))
    batch_bytes = sum(sample.nodes[t].size * layout.type_layout(t).row_bytes for t in layout.feature_types)
    outputs = 0 if on_gpu else (int(options.pipeline.prefetch) + 2) * int(1.25 * batch_bytes)
    work = outputs + (2 * workers + 2) * 4 * sample.nbytes
    rows = sum(preload_bytes(layout, t, options.reading) for t in cold)
    if group is not None:
        needs = {"outputs": outputs, "work": work, "rows": rows}
        machine = MachineProcesses.meet(group, rank, _shared_facts(layout, options, targets), needs)
        budget, outputs, work = machine.budget(memory), machine.total("outputs"), machine.total("work")
        rows = machine.most("rows")
    elif on_gpu and memory == "auto":  # the other processes lock as much
        budget = budget.without(budget.left() - budget.left() // rank.world_size)
    fits = rows + work + page_cache_for(mapped, budget.left()) <= budget.left()
    if machine is not None:
        fits = machine.ask_owner(fits)
    return MemoryDecision(fits, budget, outputs, mapped, workers, gpu_kept_bytes, machine)


def _shared_facts(layout: Layout, options: LoaderOptions, targets: str) -> dict[str, Any]:
    """Return what must be equal in loaders that several processes make together, JSON types by name."""
    return {
        "layout": layout.digest, "targets": targets,
        "shuffle": bool(options.seeds.shuffle), "drop_last": bool(options.seeds.drop_last),
        "sampling": repr(options.sampling), "window": str(options.memory.window), "reading": repr(options.reading),
    }  # fmt: skip
