"""The memory that rows of a layout may fill or do: of this machine, and of a training process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tiering import cuda
from tiering.errors import CapabilityError, InputError
from tiering.evaluation.predict import RESIDENT
from tiering.formats.layout import Layout
from tiering.formats.shape import GraphShape, SizedGraph
from tiering.layout.options import FANOUTS, LayoutOptions
from tiering.layout.sizes import TierRoom
from tiering.memory import AUTO_SHARE, available_memory
from tiering.readahead.config import KNOWN_SHARE, NUMBERS_SHARE
from tiering.readahead.memory import BatchMemory, page_cache_for, room_for_all
from tiering.sampling import SamplingOptions, make_sampler
from tiering.sampling.lists import window_lists
from tiering.sampling.memory import batch_bounds
from tiering.text.units import format_bytes, format_count, format_fanouts, parse_bytes

_WIDTH, _COPIES = 256, 4  # numbers of a node in a layer of GraphSAGE; values, their aggregates, and gradients of both
_CONTEXT = 512 << 20  # bytes of a GPU for CUDA's context, the workspace of libraries, parameters
_BATCHES = 8  # in a buffer, so that none comes in parts


@dataclass(frozen=True)
class BatchSize:
    """A batch of training: bytes of its rows and arrays, and nodes summed over the layers."""

    rows: int
    arrays: int
    layers: int

    @classmethod
    def of(cls, graph: SizedGraph, how: SamplingOptions, row_bytes: Mapping[str, int]) -> BatchSize:
        """Sample a batch from nodes spread over the largest type with features; bounds of a graph to come.

        `row_bytes`: bytes of a row by type. Times are omitted: without them a batch is as large or larger.
        """
        how = replace(how, time=None, time_window=None)
        largest = max(row_bytes, key=lambda t: (graph.num_nodes(t), t))
        count = graph.num_nodes(largest)
        if isinstance(graph, GraphShape):
            bounds = [batch_bounds(graph, replace(how, fanouts=how.fanouts[: k + 1])) for k in range(len(how.fanouts))]
            nodes = bounds[-1][1]
            return cls(nodes * max(row_bytes.values()), 16 * nodes, sum(asking for asking, *_ in bounds))
        seeds = np.linspace(0, count - 1, min(count, how.batch_size)).astype(np.int64)
        sampler, given = make_sampler(graph, how), {largest: np.unique(seeds)}
        lists = window_lists(sampler, available_memory())
        batch = sampler.sample(given) if lists is None else sampler.sample_window([(given, None)], [0], lists, 1)[0][0]
        rows = sum(batch.nodes[t].size * nbytes for t, nbytes in row_bytes.items())
        return cls(rows, batch.nbytes, sum(sum(known.values()) for known in batch.num_nodes[:-1]))

    @property
    def step(self) -> int:
        """Memory of a GPU for a training step: batches in flight and the activations of GraphSAGE."""
        batches = BatchMemory.of(self.rows + self.arrays, self.arrays).outputs
        return _CONTEXT + batches + self.layers * _WIDTH * _COPIES * 4


def measure_room(asked: LayoutOptions, graph: SizedGraph) -> LayoutOptions:
    """Return the options with the room of this machine where it decides sizes; refuse a tier larger than its GPU.

    Cost: one batch is sampled.
    """
    reason = cuda.unavailable()
    devices, size = [] if reason else list(range(cuda.count_devices())), asked.capacities.gpu
    if devices and size is not None and size.bytes is not None:
        most = min(cuda.device_info(device).total_bytes for device in devices)
        if size.bytes > most:
            raise InputError(f"gpu: {size.text} is more than a GPU here has, {format_bytes(most)}; give a smaller size")
    row_bytes = {t: table.row_bytes for t in graph.node_types if (table := graph.feature_table(t)) is not None}
    if not asked.automatic or not row_bytes:
        return asked
    if reason and size is not None and size.auto:
        raise CapabilityError(f"gpu: auto needs a usable GPU here; give a size such as 8GiB. Reason: {reason}")
    how = asked.sampling or SamplingOptions(FANOUTS)
    batch = BatchSize.of(graph, how, row_bytes)
    free = int(AUTO_SHARE * available_memory())
    work, mapped = BatchMemory.of(batch.rows, batch.arrays).work, _mapped(graph)
    cache = page_cache_for(mapped, free)
    ahead = int((work + _BATCHES * batch.rows) / (1 - KNOWN_SHARE - NUMBERS_SHARE))
    whole = f"{format_bytes(free)} ({AUTO_SHARE:.0%} of the free memory)"
    lists = "" if cache == mapped else f" of {format_bytes(mapped)} (batches read the rest from disk)"
    taken = f"less {format_bytes(cache)} for the adjacency{lists} and"
    room = TierRoom(
        0, max(0, free - cache - work), max(0, free - cache - ahead), "no usable GPU (see `tiering doctor`)",
        f"{whole}, {taken} {format_bytes(work)} for batches",
        f"{whole}, {taken} {format_bytes(ahead)} for batches and rows read ahead", _batches(how, asked),
    )  # fmt: skip
    if devices:
        left = min(cuda.free_bytes(device) for device in devices)
        given = asked.step_memory
        step = batch.step if given is None else parse_bytes(given, "step memory")
        what = "a training step of GraphSAGE" if given is None else "a training step (--step-memory)"
        why = f"{format_bytes(left)} of free GPU memory, less {format_bytes(step)} for {what}"
        room = replace(room, gpu=max(0, left - step), gpu_reason=why)
    return replace(asked, room=room)


def process_memory(layout: Layout, how: SamplingOptions, rows: int) -> int:
    """Return the memory, as `tiering plan` counts it, of a training process that holds `rows` bytes of a layout's rows.

    Cost: one batch is sampled.
    """
    entries = [layout.type_layout(t) for t in layout.feature_types]
    row_bytes = {entry.node_type: 4 * entry.dim if entry.codec else entry.row_bytes for entry in entries}
    batch = BatchSize.of(layout.graph, how, row_bytes)
    return RESIDENT + room_for_all(rows + BatchMemory.of(batch.rows, batch.arrays).work, _mapped(layout.graph))


def _mapped(graph: SizedGraph) -> int:
    """Return the bytes of adjacency lists, which sampling maps."""
    return sum(array.nbytes for relation in graph.relations for array in graph.csc(relation))


def _batches(how: SamplingOptions, asked: LayoutOptions) -> tuple[str, str, str]:
    """Return the row of the table of sizes that says for which batches memory is left."""
    sampler = "" if how.sampler == "uniform" else f", sampler {how.sampler}"
    reason = f"fanouts {format_fanouts(how.fanouts)}{sampler}"
    if asked.sampling is None:
        reason += ", assumed: change them with --fanouts and --batch-size, or with [score] in a file of `tiering run`"
    return "batches", f"{format_count(how.batch_size)} seeds", reason
