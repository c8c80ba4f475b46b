"""Memory of a loader: whether it holds all rows of the ssd tier, or a buffer that is filled ahead of the batches."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tiering.errors import FormatError
from tiering.formats.layout import Layout
from tiering.loader.batches.windows import ListWindows
from tiering.loader.options import LoaderOptions
from tiering.loader.processes.machine import MachineProcesses, ProcessRank
from tiering.loader.processes.peers import PeerGroup
from tiering.loader.tables.delivery import Delivery
from tiering.loader.tables.ssd import preload_bytes
from tiering.memory import Budget, parse_memory
from tiering.readahead.memory import BatchMemory, all_rows_fit, mapped_files
from tiering.sampling import SampledBatch


@dataclass(frozen=True)
class MemoryDecision:
    """The use of the memory of a loader with rows on SSD; with several processes of a machine, of all together."""

    preload: bool  # all rows of the ssd tier fit, and are read into memory at first
    budget: Budget
    output_bytes: int  # of batches that are ready or in the consumer's hands
    mapped_bytes: int  # of files that sampling reads through the page cache
    workers: int  # threads that sample
    kept_bytes: int | None  # most memory for batches sampled ahead; None: a share of the budget
    machine: MachineProcesses | None  # processes that have one buffer; the first owns it and reads for all
    rank: ProcessRank
    windows: ListWindows | None = None  # windows of batches that read lists from files; None: lists are mapped


def decide_memory(
    layout: Layout,
    options: LoaderOptions,
    find_windows: Callable[[int], ListWindows | None],
    draw: Callable[[ListWindows | None], SampledBatch],
    cold: Sequence[str],
    rank: ProcessRank,
    group: PeerGroup | None,
    targets: str,
    gpu_kept_bytes: int | None,
) -> MemoryDecision:
    """Decide how a loader with rows of the types `cold` on SSD uses its memory, estimated by a batch of `draw`.

    Processes of a `group` decide the same for the same `targets`. `find_windows`: takes the bytes that are
    left. `gpu_kept_bytes`: of a sampler on a GPU.
    """
    memory, on_gpu, machine = options.memory.memory, options.device.index is not None, None
    budget, mapped, workers = parse_memory(memory), 0, 1
    windows = find_windows(budget.left())
    sample = draw(windows)
    if gpu_kept_bytes is None:  # sampling reads the adjacency through the page cache, whose size decides how fast
        workers, mapped = int(options.pipeline.workers), sum(len(file) for _, file in mapped_files(layout.graph))
    sizes = {t: Delivery.of(layout, layout.type_layout(t), options.reading.dtype) for t in layout.feature_types}
    copies = [sample.nodes, *([sample.unique_nodes] if sample.instances else [])]  # rows of a node's instances, and one
    batch_bytes = sum(nodes[t].size * delivery.out_bytes for t, delivery in sizes.items() for nodes in copies)
    need = BatchMemory.of(0 if on_gpu else batch_bytes, sample.nbytes, int(options.pipeline.prefetch), workers)
    outputs, work = need.outputs, need.work
    rows = sum(preload_bytes(layout, t, options.reading) for t in cold)
    if group is not None:
        same = {
            "layout": layout.digest, "tiers": str(layout.sizes), "targets": targets,
            "shuffle": bool(options.seeds.shuffle), "drop_last": bool(options.seeds.drop_last),
            "sampling": repr(options.sampling), "window": str(options.memory.window), "reading": repr(options.reading),
        }  # fmt: skip
        machine = MachineProcesses(group, rank, same, {"outputs": outputs, "work": work, "rows": rows})
        budget, rows = machine.budget(memory), max(machine.needs("rows"))
        outputs, work = sum(machine.needs("outputs")), sum(machine.needs("work"))
    elif on_gpu and memory == "auto":  # the other processes lock as much
        budget = budget.without(budget.left() - budget.left() // rank.world_size)
    fits = options.reading.engine != "bam" and all_rows_fit(rows + work, mapped, budget.left())
    if machine is not None:
        fits = machine.ask_owner(fits)
    if windows is not None and fits and rows + work + mapped <= budget.left():
        windows = None
    if windows is not None:
        windows.memory.fit(sample.nbytes, rows)
        mapped, workers = mapped - windows.memory.lists, 1
    return MemoryDecision(fits, budget, outputs, mapped, workers, gpu_kept_bytes, machine, rank, windows)


def check_mapped(files: Sequence[tuple[Path, mmap.mmap]]) -> None:
    """Raise `FormatError` if a file is shorter than its mapping: touching the missing part would end the process."""
    for path, mapping in files:
        if (size := mapping.size()) < len(mapping):
            raise FormatError(
                f"{path}: truncated while it was in use: expected {len(mapping)} bytes, found {size}; make the "
                "artifact again"
            )
