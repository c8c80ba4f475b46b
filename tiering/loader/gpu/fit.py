"""``layout --fit``: measure what accesses cost more from host memory than from the GPU's own.

Times over what caches of several sizes serve are lines (DUCATI, section 4.1), whose slopes scale assumed `AccessCosts`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tiering import cuda
from tiering.artifacts.manifest import Relation
from tiering.errors import CapabilityError, InputError
from tiering.formats.adjacency_prefix import SUM_BYTES, AdjacencyPrefix, ListBytes
from tiering.formats.graph import Graph
from tiering.formats.scores import Scores
from tiering.layout.cost_model import AccessCosts
from tiering.layout.inputs import LayoutInput, require_order
from tiering.layout.options import LayoutOptions
from tiering.loader.gpu import device as devices
from tiering.loader.gpu.batches import GpuSampler
from tiering.loader.gpu.device import Device, auto_sms
from tiering.loader.gpu.memory import load_adjacency
from tiering.loader.tiered_tensor.tensor import tiered
from tiering.memory import Budget, parse_memory
from tiering.sampling import NeighborSampler, SamplingOptions, list_read_places, make_sampler
from tiering.sampling.plan import EpochPlan, batches
from tiering.text.progress import note, progress

CACHES = (0.0, 1 / 64, 1 / 16, 1 / 4, 1.0)  # sizes of the caches, as fractions of all lists or rows
BATCHES = 16  # batches of a pass at most
SECONDS, LEAST_PASSES, PASSES = 1.5, 3, 30  # a cache is timed for so many seconds and so many passes
ROW_BYTES = 1 << 30  # bytes of the table of rows at most
GPU_FRACTION = 1 / 4  # fraction of the GPU's free memory that the largest cache takes at most
DOUBTFUL = 0.5  # fraction of the variance of the times that the line may leave unexplained
ASSUMED = AccessCosts()


class Trial(NamedTuple):
    """Passes over the batches with one cache."""

    missed: float  # seconds that the accesses which the cache misses cost by the assumed costs
    run: Callable[[], None]  # makes a pass, and returns when the GPU is done


def fit_costs(
    options: LayoutOptions, graph: Graph, scores: Scores | None, memory: str | int | Budget | None
) -> LayoutOptions:
    """Return layout options with costs measured on torch's current GPU, in page-locked host memory within `memory`."""
    if scores is None:
        raise InputError(
            "fit: needs the scores that the graph was ordered by, to know how training samples; give them with "
            "--scores S"
        )
    source = LayoutInput.of(graph, options, scores)  # refuses scores that say nothing about sampling
    if options.fit != "auto":
        require_order(graph := Graph.open(str(options.fit)))
    sampling = SamplingOptions(**{**scores.manifest.provenance["options"]["sampling"], "seed": 0})
    row_bytes = max((table.row_bytes for table in source.rows), default=0)
    return replace(options, measured=measure_costs(graph, sampling, row_bytes, parse_memory(memory)))


def measure_costs(graph: Graph, options: SamplingOptions, row_bytes: int, memory: Budget) -> AccessCosts:
    """Return the costs of reading lists, and rows of `row_bytes` bytes, and say on standard error how sure they are."""
    try:
        device = devices.open_device(-1)
    except CapabilityError as error:
        reason = str(error).removeprefix("device='cuda': ").removesuffix("; device='cpu' works everywhere")
        raise CapabilityError(
            f"fit: a GPU is needed to measure on: {reason}; omit --fit to use assumed costs, or give measured costs "
            "with --access-costs"
        ) from None
    sampler = make_sampler(graph, options)
    if not isinstance(sampler, NeighborSampler):
        raise InputError(
            f"fit: supports neighbor sampling only, not {options.sampler!r}; omit --fit to use "
            "assumed costs, or give measured costs with --access-costs"
        )
    plan, what_rows, trials = plan_batches(graph, options.batch_size), f"rows of {row_bytes} B", {}
    if graph.relations:
        trials["lists"] = try_lists(graph, sampler, device, plan, memory)
    if row_bytes:
        trials[what_rows] = try_rows(row_bytes, sampler, device, plan, memory)
    fits = {what: fit_line(trial, what) for what, trial in trials.items()}
    (lists, _), (rows, _) = fits.get("lists", (0.0, 0.0)), fits.get(what_rows, (0.0, 0.0))
    name = cuda.device_info(device.index).name
    if not lists and not rows:
        raise InputError(
            f"fit: for {graph.path} on {name}, host memory was as fast as the GPU's own memory, so dividing GPU "
            "memory saves no time: omit --adjacency-cache and --fit"
        )
    costs = AccessCosts(
        feature_base=rows * ASSUMED.feature_base,
        feature_per_byte=rows * ASSUMED.feature_per_byte,
        list_seconds=lists * ASSUMED.list_seconds,
        neighbour_seconds=lists * ASSUMED.neighbour_seconds,
        source=f"fitted on {graph.path.name}, {name}",
    )
    note(
        f"note: access costs {costs.source}; additional time from host memory: {1e9 * costs.list_seconds:.3g} ns per "
        f"list, {1e9 * costs.neighbour_seconds:.3g} ns per neighbor, {1e9 * costs.feature_base:.3g} ns per row, "
        f"{1e9 * 1024 * costs.feature_per_byte:.3g} ns per KiB; unexplained part of the times: "
        + ", ".join(f"{what} {100 * unexplained:.1f} %" for what, (_, unexplained) in fits.items())
    )
    if doubtful := [what for what, (_, unexplained) in fits.items() if unexplained > DOUBTFUL]:
        note(
            f"note: the times of {' and '.join(doubtful)} hardly depend on what is cached: the GPU or its link was "
            "busy, or the graph is too small; measure again, or omit --fit"
        )
    return costs


def plan_batches(graph: Graph, batch_size: int) -> EpochPlan:
    """Plan an epoch over the training nodes, or without a split over all nodes that have lists."""
    seeds = {t: graph.split("train", t) for t in graph.node_types if "train" in graph.splits(t)}
    if not any(ids.size for ids in seeds.values()):
        seeds = {t: np.arange(graph.num_nodes(t)) for t in {relation[2] for relation in graph.relations}}
    if not any(ids.size for ids in seeds.values()):
        raise InputError(f"fit: {graph.path} has no nodes to sample batches from; omit --fit to use assumed costs")
    return batches(seeds, batch_size, 0)


def first_lists(graph: Graph, fraction: float, weighted: bool) -> dict[Relation, AdjacencyPrefix]:
    """Return the first `fraction` of each relation's lists."""
    prefixes = {}
    for relation in graph.relations:
        indptr = graph.csc(relation)[0]
        columns = int(fraction * (indptr.size - 1))
        size = ListBytes.of_graph(graph, relation, weighted)
        prefixes[relation] = AdjacencyPrefix.of(columns, int(indptr[columns]), size)
    return prefixes


def try_lists(
    graph: Graph, sampler: NeighborSampler, device: Device, plan: EpochPlan, memory: Budget
) -> Iterator[Trial]:
    """Yield trials of sampling with the first lists of each relation on the GPU, and all in page-locked memory."""
    weighted, edges = sampler.rule == "weighted", sum(map(graph.num_edges, graph.relations))
    adjacency = sum(array.nbytes for relation in graph.relations for array in graph.csc(relation))
    memory.require(adjacency + weighted * SUM_BYTES * edges, "fit: adjacency lists in page-locked memory")
    room, largest = GPU_FRACTION * cuda.free_bytes(device.index), 1.0
    while sum(lists.bytes for lists in first_lists(graph, largest, weighted).values()) > room:
        largest /= 2
    seeds = [plan[batch] for batch in range(min(BATCHES, len(plan)))]
    counts, seconds = sampler.count_accesses(plan, last=len(seeds)), {}
    for number, relation in enumerate(sampler.relations):
        fanouts = [hop[number] for hop in sampler.fanouts]
        places = list_read_places(np.diff(graph.csc(relation)[0]), sampler.rule, fanouts)
        of_a_list = ASSUMED.list_seconds + ASSUMED.neighbour_seconds * places
        seconds[relation] = counts.adjacency[relation] * of_a_list
    resident = load_adjacency(graph, first_lists(graph, 0.0, weighted), device, weighted)  # what all caches share
    for fraction in CACHES:
        lists = first_lists(graph, fraction * largest, weighted)
        gpu_sampler = GpuSampler(graph, lists, sampler, device, max_sms=auto_sms(device, reads_host=True))

        def run(gpu_sampler: GpuSampler = gpu_sampler) -> None:
            for batch, of_batch in enumerate(seeds):
                gpu_sampler.sample(of_batch, batch=batch)
            gpu_sampler.stream.synchronize()

        yield Trial(sum(float(seconds[r][prefix.columns :].sum()) for r, prefix in lists.items()), run)
    del resident


def try_rows(
    row_bytes: int, sampler: NeighborSampler, device: Device, plan: EpochPlan, memory: Budget
) -> Iterator[Trial]:
    """Yield trials of gathering the batches' rows with the first on the GPU, from a table of at most `ROW_BYTES`."""
    samples = [sampler.sample(plan[batch], batch=batch) for batch in range(min(BATCHES, len(plan)))]
    nodes = [np.concatenate([*sample.nodes.values()]) for sample in samples]
    room = min(ROW_BYTES, int(GPU_FRACTION * cuda.free_bytes(device.index)))
    rows = max(1, min(max(int(ids.max()) for ids in nodes) + 1, room // row_bytes))
    memory.require(rows * row_bytes, f"fit: rows of {row_bytes} B in page-locked memory")
    ids, table, done = [ids % rows for ids in nodes], np.zeros((rows, row_bytes), np.uint8), cuda.Event(device.index)
    sent, sms = [device.upload(some) for some in ids], auto_sms(device, reads_host=True)
    for fraction in CACHES:
        end = int(fraction * rows)
        cached = tiered(table, gpu=end * row_bytes, device=device.torch_device, max_sms=sms)
        with closing(cached) as tensor:

            def run(tensor: Any = tensor) -> None:
                for some in sent:
                    tensor[some]
                done.record(device.current())
                done.wait()

            yield Trial(sum(int((some >= end).sum()) for some in ids) * ASSUMED.feature(row_bytes), run)


def fit_line(trials: Iterator[Trial], what: str) -> tuple[float, float]:
    """Fit ``seconds = c + slope * missed`` by least squares; return the slope and the unexplained variance."""
    points = []
    with progress(len(CACHES), f"fit: {what}", "cache") as bar:
        for trial in trials:
            points.append((trial.missed, time_trial(trial)))
            bar.update()
    missed, seconds = np.array(points).T
    variance = float(seconds.var())
    if not variance or not missed.var():
        return 0.0, 0.0
    slope = max(0.0, float(np.polyfit(missed, seconds, 1)[0]))
    return slope, float((seconds - slope * missed).var()) / variance


def time_trial(trial: Trial) -> float:
    """Return the median seconds of a pass, after one that warms up."""
    trial.run()
    ends = [time.perf_counter()]
    while len(ends) <= LEAST_PASSES or (len(ends) <= PASSES and ends[-1] - ends[0] < SECONDS):
        trial.run()
        ends.append(time.perf_counter())
    return float(np.median(np.diff(ends)))
