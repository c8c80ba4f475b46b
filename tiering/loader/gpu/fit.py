"""What accesses cost on the GPU at hand and for the graph at hand, for the division of the GPU's memory.

Batches of training are sampled, and their rows gathered, with caches of several random sizes, from none to all; what
each cache misses explains its time (DUCATI, section 4.1). The factors are `AccessCosts`: what is planned by them is a
division of the same kind as those that were timed.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import cuda
from tiering.errors import CapabilityError, InputError
from tiering.formats.graph import Graph
from tiering.layout.access_costs import AccessCosts
from tiering.loader.gpu import device as devices
from tiering.loader.gpu.cache_trials import TIMED_BATCHES, ListTrials, RowTrials, Trial, draw_batches
from tiering.loader.gpu.device import Device
from tiering.memory import Budget
from tiering.progress import progress
from tiering.sampling import NeighborSampler, SamplingOptions, make_sampler

SECONDS = 8.0
"""Lists are timed for about so long, and rows of all sizes together: until then, or for `ROUNDS` rounds."""
LEAST_ROUNDS, ROUNDS = 2, 30
CACHES = 6
"""Sizes of a cache that are timed: none, all that fits, and random ones between."""

DOUBTFUL = 0.5
"""Share of the variance of the times that may stay unexplained."""


@dataclass(frozen=True)
class Fit:
    """Costs that explain what was timed, and how well they do."""

    costs: AccessCosts
    unexplained: dict[str, float]
    """Per kind of access that was timed, ``lists`` or ``rows of 512 B``: the share of the variance of the times that
    the fitted line does not explain."""

    @property
    def doubtful(self) -> list[str]:
        """Kinds of access whose times depend on other things more than on what is cached."""
        return [name for name, share in self.unexplained.items() if share > DOUBTFUL]

    def __str__(self) -> str:
        costs = self.costs
        parts = ", ".join(f"{name} {100 * share:.1f} %" for name, share in self.unexplained.items())
        return (
            f"access costs {costs.source}; more from host memory: a list {_nanoseconds(costs.list_seconds)}, "
            f"{_nanoseconds(costs.neighbour_seconds)} per place looked at, a row {_nanoseconds(costs.feature_base)}, "
            f"{_nanoseconds(1024 * costs.feature_per_byte)} per KiB; left unexplained of the times: {parts}"
        )


def fit_access_costs(graph: Graph, sampling: Mapping[str, Any], row_bytes: Mapping[str, int], memory: Budget) -> Fit:
    """Measure what accesses cost more from host memory than from that of the GPU torch works on.

    Parameters
    ----------
    graph
        A reordered graph.
    sampling
        How training samples, as scores record it; neighbours (`NeighborSampler`), no walks or layers.
    row_bytes
        Bytes of a row of each table that the layout will have: by node type, and of edges by the key of a relation.
    memory
        What page-locked host memory must fit: the graph's adjacency, and feature rows, 1 GiB at the most.

    Raises
    ------
    CapabilityError
        Where there is no GPU, or none that torch can use.
    InputError
        If the sampler is another, or no access was slower from host memory.

    Notes
    -----
    Cost: the adjacency is read once, as a loader does. Then about `SECONDS` for lists and as many for rows, more
    only where a batch takes longer than a third of a second. Memory of the GPU: at most half of what is
    free, and what `CACHES` samplers need for a batch.
    """
    device = _open_device()
    options = SamplingOptions(**{**sampling, "seed": 0})
    sampler = make_sampler(graph, options)
    if not isinstance(sampler, NeighborSampler):
        raise InputError(
            f"fit: counts the lists that neighbour sampling reads, not those of {options.sampler!r}; leave --fit out "
            "for assumed costs, or give measured ones with --access-costs"
        )
    rng = np.random.default_rng(0)
    samples = draw_batches(graph, sampler, options.batch_size, rng)
    unexplained: dict[str, float] = {}
    lists, rows = (0.0, 0.0), []
    if graph.relations:
        with closing(ListTrials(graph, sampler, device, samples, memory)) as trials:
            (list_seconds, place_seconds), unexplained["lists"] = _explained(trials, "lists", SECONDS, rng)
        lists = list_seconds, place_seconds
    for nbytes in (sizes := sorted({*row_bytes.values()})):
        # Where only rows of edges have this size, they are gathered in the numbers of the batches' nodes.
        types = [t for t in graph.node_types if row_bytes.get(t) == nbytes] or graph.node_types
        what = f"rows of {nbytes} B"
        with closing(RowTrials(graph, nbytes, types, samples, device, memory)) as gathers:
            (seconds,), unexplained[what] = _explained(gathers, what, SECONDS / len(sizes), rng)
        rows.append((nbytes, seconds))
    base, per_byte = split_by_size(rows)
    name = cuda.device_info(device.index).name
    if not any((*lists, base, per_byte)):
        raise InputError(
            f"fit: for {graph.path} on {name}, no access was slower from host memory than from the GPU's own; no "
            "division of its memory would save time: leave --adjacency-cache and --fit out"
        )
    source = f"fitted on {Path(graph.path).name}, {name}"
    costs = AccessCosts(base, per_byte, *lists, source=source)
    return Fit(costs, unexplained)


def _open_device() -> Device:
    """Torch's current GPU; the error says what else to do."""
    try:
        return devices.open_device(-1)
    except CapabilityError as error:
        reason = str(error).removeprefix("device='cuda': ").removesuffix("; device='cpu' works everywhere")
        raise CapabilityError(
            f"fit: there must be a GPU to measure on: {reason}; leave --fit out for assumed costs, or give measured "
            "ones with --access-costs"
        ) from None


def _explained(
    trials: ListTrials | RowTrials, what: str, seconds: float, rng: np.random.Generator
) -> tuple[list[float], float]:
    """Seconds per access missed, and the share of the times' variance that these do not explain."""
    random = rng.random((CACHES - 2, trials.kinds))
    shares = [np.zeros(trials.kinds), *random, np.ones(trials.kinds)]
    each = trials.seconds_of_a_batch()
    batches = int(np.clip(seconds / (CACHES * (1 + LEAST_ROUNDS) * max(each, 1e-9)), 1, TIMED_BATCHES))
    made = [trials.trial(share, batches) for share in shares]
    took = time_trials(made, seconds, rng, f"fit: {what}")
    return fit_line(np.array([trial.misses for trial in made], np.float64), np.array(took))


def time_trials(trials: Sequence[Trial], seconds: float, rng: np.random.Generator, what: str) -> list[float]:
    """Median seconds of each, after one round that warms up, in rounds of an order of their own each."""
    spent: list[list[float]] = [[] for _ in trials]
    begun = time.monotonic()
    with progress(None, what, "round") as bar:
        for trial in trials:
            trial.run()
        while (done := len(spent[0])) < LEAST_ROUNDS or (done < ROUNDS and time.monotonic() - begun < seconds):
            for place in rng.permutation(len(trials)):
                spent[place].append(seconds_of(trials[place]))
            bar.update()
    return [median(values) for values in spent]


def seconds_of(trial: Trial) -> float:
    """What a pass takes; the GPU is done when it returns."""
    begun = time.perf_counter()
    trial.run()
    return time.perf_counter() - begun


def fit_line(misses: npt.NDArray[np.float64], seconds: npt.NDArray[np.float64]) -> tuple[list[float], float]:
    """Least squares of ``seconds = c + misses @ x`` with no x below 0.

    `misses` has shape (trials, kinds), `seconds` (trials,). Returns x, and the share of the variance of `seconds` that
    is left. There are one or two kinds: every choice of those above 0 is tried.
    """
    kinds = misses.shape[1]
    scale = np.maximum(misses.max(axis=0), 1.0)
    whole = float(((seconds - seconds.mean()) ** 2).sum())
    best, left = np.zeros(kinds), whole
    for used in _choices(kinds):
        matrix = np.column_stack([np.ones(len(seconds)), misses[:, used] / scale[used]])
        solution = np.linalg.lstsq(matrix, seconds, rcond=None)[0]
        rest = float(((seconds - matrix @ solution) ** 2).sum())
        if solution[1:].min() >= 0 and rest < left:
            best, left = np.zeros(kinds), rest
            best[used] = solution[1:] / scale[used]
    return best.tolist(), left / whole if whole else 0.0


def _choices(kinds: int) -> Iterator[list[int]]:
    for count in range(1, kinds + 1):
        yield from (list(chosen) for chosen in itertools.combinations(range(kinds), count))


def split_by_size(rows: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Seconds per row and per byte, from (bytes, seconds per row); of a single size all counts by the byte."""
    if len(rows) < 2:
        return 0.0, sum(seconds / nbytes for nbytes, seconds in rows)
    nbytes, seconds = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    (per_byte,), _ = fit_line(nbytes[:, None], seconds)
    base = float((seconds - per_byte * nbytes).mean())
    if base < 0:  # the line through 0 then
        return 0.0, float((seconds * nbytes).sum() / (nbytes**2).sum())
    return base, per_byte


def _nanoseconds(seconds: float) -> str:
    return f"{1e9 * seconds:.3g} ns"
