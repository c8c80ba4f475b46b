"""From what a user gave to what will be computed and recorded; nothing is computed here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tiering.artifacts.checksum import digest_parts
from tiering.artifacts.manifest import relation_key
from tiering.artifacts.reader import uncached_bytes
from tiering.errors import InputError
from tiering.formats.scores import GIVEN
from tiering.formats.shape import GraphShape, SizedGraph
from tiering.formats.train_set import Train, resolve_train
from tiering.formats.user_arrays import UserValues
from tiering.memory import Budget, parse_memory
from tiering.plan import StageEstimate, StepEstimate, base_memory
from tiering.run.carrier import Carrier
from tiering.run.grid import Grid, equal_bounds
from tiering.sampling import Fanout, SamplingOptions, make_sampler, resolve_fanouts
from tiering.scores.methods import AUTO, METHODS, OWN, Method, choose_method, used_by
from tiering.scores.request import MemoryNeed, ScoreOptions, ScoreRequest, TrainSet, check_options, list_nodes
from tiering.scores.sweeps import past_the_cache, scratch_bytes
from tiering.scores.tasks.sweeps import task_bytes
from tiering.scores.user_scores import read_user_scores
from tiering.scores.vip import SAMPLERS
from tiering.units import parse_threads

BY_TASKS = ("degree", "rpr", "wrpr", "vip", "presample", "hybrid")
"""Scores that tasks can compute."""
EPOCH_TASKS = 16
"""Tasks that sample an epoch: each reads the whole adjacency, and writes all that it has counted to the shuffle."""
_DIGEST_STEP = 1 << 20
"""Ids that are digested at a time."""


@dataclass(frozen=True)
class ScorePlan:
    """A score that could be computed now: its method, parameters and memory, and what will be recorded."""

    name: str
    method: Method
    request: ScoreRequest
    options: dict[str, Any]
    """For the record: the method and what matters to it."""
    inputs: dict[str, str]
    """For the record: digests of graph and training set."""
    seed: int | None
    """For the record: the seed, where it matters."""
    need: MemoryNeed
    notes: list[str]
    """Notes for the user: the choice of ``auto``, which options have no effect."""
    tasks: int = 0
    """Largest number of tasks that run a step side by side; 0: the process itself computes the score."""

    def runs(self, grid: Grid) -> list[list[int]]:
        """Return epoch, first batch and end of each task that samples, as many in each epoch."""
        options, per_epoch = self.request.options, -(-self.request.train_size // self.request.sampled.batch_size)
        cuts = equal_bounds(per_epoch, min(per_epoch, grid.shards or EPOCH_TASKS))
        epochs = range(options.first_epoch, options.first_epoch + options.epochs)
        return [[epoch, first, last] for epoch in epochs for first, last in pairwise(cuts)]

    @property
    def sweeps(self) -> int:
        """Passes over the binned edges, at most; 0 for methods that make none."""
        options = self.request.options
        if self.name == "wrpr":
            return options.sweeps
        if self.name == "rpr":
            return math.ceil(math.log(options.tolerance) / math.log(options.damping)) if options.damping else 1
        if not self.need.sweeps:
            return 0
        by_wrpr = self.request.sampled.sampler not in SAMPLERS
        return ScoreOptions.sweeps if by_wrpr else len(self.request.sampled.fanouts)

    def stage(self, graph: SizedGraph, shape: GraphShape, out: Path) -> StageEstimate:
        """Return the stage's memory, disk and passes; `BudgetError` where the score would raise it."""
        if self.tasks:
            return self._stage_by_tasks(graph, shape, out)
        self.request.budget.require(self.need.minimum, self.need.what)
        scratch = scratch_bytes(graph, self.request, self.need) if self.need.sweeps else 0
        how = "in memory" if not scratch else f"about {scratch / (4 * shape.num_edges()):.0%} of the edges on disk"
        memory = min(self.need.recommended, max(self.need.minimum, self.request.budget.left()))
        lists = list_nodes(graph) if "fanouts" in self.method.options else 0
        columns = 8 * (graph.num_nodes() + lists)
        passing, unit = (1 + self.sweeps) * shape.num_edges() + sampled_edges(graph, self), "edge"
        if not self.method.edges:
            passing, unit = shape.num_nodes(), "node"
        notes = self._notes_on_sweeps()
        steps = (
            StepEstimate(self.name, how, memory, self._read_bytes(shape), 0, scratch, passing, unit),
            StepEstimate("columns", "in memory", columns, 0, columns, 0, shape.num_nodes(), "node"),
        )
        held = base_memory(self.request.budget)
        return StageEstimate("score", out, steps, {out: columns}, held, tuple(notes), self.request.threads)

    def _stage_by_tasks(self, graph: SizedGraph, shape: GraphShape, out: Path) -> StageEstimate:
        """Return the plan of a score whose columns tasks write; the driver weighs those of ``hybrid``."""
        lists = list_nodes(graph) if "fanouts" in self.method.options else 0
        columns = 8 * (graph.num_nodes() + lists)
        memory = self.need.minimum if self.method.counts else -(-task_bytes(graph) // self.tasks)
        steps = [StepEstimate(self.name, f"{self.tasks} tasks", memory, self._read_bytes(shape), columns)]
        if self.name == "hybrid":
            steps.append(StepEstimate("weighing", "in memory", 5 * columns, 0, 0, 0, graph.num_nodes(), "node"))
        held, notes = base_memory(self.request.budget), tuple(self._notes_on_sweeps())
        return StageEstimate("score", out, tuple(steps), {out: columns}, held, notes, self.request.threads)

    def _notes_on_sweeps(self) -> list[str]:
        converging = [f"at most {self.sweeps} sweeps, fewer where scores stand still before"] * (self.name == "rpr")
        return [*self.notes, *converging]

    def _read_bytes(self, shape: GraphShape) -> int:
        """Return the bytes of the graph, or of the user's own scores, that are read from disk."""
        if not self.method.edges:
            return sum(uncached_bytes(array.values) for array in self.request.user_scores.values())
        read = sum(round(4 * edges.num_edges * edges.uncached) for edges in shape.edges)
        if self.need.sweeps and past_the_cache(4 * shape.num_edges(), self.request.budget, self.need):
            read *= 2  # edges are counted, then put in bins
        if self.name != "degree":
            read += sum(round(8 * (shape.num_nodes(edges.relation[2]) + 1) * edges.uncached) for edges in shape.edges)
        return read


def plan_score(
    graph: SizedGraph,
    method: str = AUTO,
    *,
    scores: UserValues | None = None,
    train: Train = None,
    seed: int | None = None,
    threads: int | str | None = None,
    memory: str | int | Budget | None = None,
    carrier: Carrier | None = None,
    **keywords: Any,
) -> ScorePlan:
    """Check the parameters of a score; see `tiering.scores.score_graph`."""
    keywords = {name: value for name, value in keywords.items() if value is not None}
    options, sampling_given = check_options(keywords)
    if method not in (AUTO, *METHODS):
        raise InputError(f"method: expected one of {', '.join((AUTO, *METHODS))}, found {method!r}")
    name, reason = method, ""
    own, own_notes = ({}, []) if scores is None else read_user_scores(graph, scores)
    if own:
        if method != AUTO:
            raise InputError(f"method: expected none with scores of your own (--from), found {method!r}; leave one out")
        name = GIVEN
    elif method == AUTO:
        known = train is not None or any("train" in graph.splits(node_type) for node_type in graph.node_types)
        name, reason = choose_method("fanouts" in keywords, known)
    entry = OWN if own else METHODS[name]
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63):
        raise InputError(f"seed: expected a whole number from 0 to 2^63 - 1, found {seed!r}")
    trained = entry.needs_train or ("teleport" in entry.options and options.teleport == "train")
    chosen = resolve_train(graph, train, seed or 0) if trained else {}
    sampling = _sampling(graph, name, sampling_given, seed or 0) if "fanouts" in entry.options else None
    seeded = entry.counts or entry.seeded or (trained and _is_share(train))
    unused = [option for option in keywords if option not in entry.options]
    unused += ["train"] * (train is not None and not trained) + ["seed"] * (seed is not None and not seeded)
    workers, budget = parse_threads(threads), parse_memory(memory)
    request = ScoreRequest(options, chosen, sampling, workers, budget, seed or 0, own)
    inputs = {"graph": graph.digest}
    if trained and not isinstance(graph, GraphShape):
        inputs["train"] = train_digest(chosen, ordered=entry.counts)
    plan = ScorePlan(
        name,
        entry,
        request,
        _record(name, entry, options, sampling) | ({"chosen": reason} if reason else {}),
        inputs | {f"scores of {node_type}": array.digest for node_type, array in own.items()},
        (seed or 0) if seeded else None,
        entry.memory(graph, request),
        own_notes + _notes(name, reason, unused, sampling),
    )
    return plan if carrier is None else replace(plan, tasks=_count_tasks(graph, plan, carrier))


def _count_tasks(graph: SizedGraph, plan: ScorePlan, carrier: Carrier) -> int:
    """Return the number of tasks of the score's largest step, 0 where this process computes it."""
    if plan.method.counts and carrier.options.executor == "ray" and carrier.grid.shards != 1:
        return len(plan.runs(carrier.grid))  # epochs take long on graphs of any size
    if plan.name not in BY_TASKS or not carrier.cuts(task_bytes(graph)):
        return 0
    return len(plan.runs(carrier.grid)) if plan.method.counts else carrier.grid.parts(task_bytes(graph))


def train_digest(train: TrainSet, *, ordered: bool) -> str:
    """Return the digest of the training nodes: as a set, or, for methods that cut them into batches, in their order."""

    def parts() -> Iterator[bytes]:
        for k, (node_type, ids) in enumerate(sorted(train.items())):
            yield (b"\0" if k else b"") + f"{node_type}:".encode()
            values = ids if ordered else np.sort(ids)
            for start in range(0, values.size, _DIGEST_STEP):
                yield values[start : start + _DIGEST_STEP].astype("<i8").tobytes()

    return digest_parts(parts())


def full_fanouts(graph: SizedGraph, fanouts: Sequence[Fanout]) -> list[Fanout]:
    """Return fanouts as numbers or mappings from full relation keys, checked: one form for the record."""
    hops: list[Fanout] = []
    for numbers in resolve_fanouts(graph.relations, fanouts):
        same = len(set(numbers)) == 1 and numbers[0] != 0
        keys = [relation_key(relation) for relation in graph.relations]
        hops.append(numbers[0] if same else dict(zip(keys, numbers, strict=True)))
    return hops


def _sampling(graph: SizedGraph, method: str, keywords: Mapping[str, Any], seed: int) -> SamplingOptions:
    if "fanouts" not in keywords:
        raise InputError(f"fanouts: {method} needs those that training will use; give them with --fanouts 10,10,10")
    options = SamplingOptions(**{**keywords, "fanouts": full_fanouts(graph, keywords["fanouts"]), "seed": seed})
    if options.sampler in ("full", "pinsage"):
        make_sampler(graph, options)  # costs nothing, and refuses fanouts that are not -1, metapaths that lead nowhere
    if method == "vip" and options.sampler not in SAMPLERS:
        raise InputError(
            f"sampler: vip has no formula for {options.sampler}, only for {', '.join(SAMPLERS)}; "
            "score with presample or hybrid"
        )
    return options


def _record(name: str, entry: Method, options: ScoreOptions, sampling: SamplingOptions | None) -> dict[str, Any]:
    """Return the method and the options that matter to it; JSON types only."""
    own = {key: value for key, value in asdict(options).items() if key in entry.options and value is not None}
    return {"method": name, **own, **({} if sampling is None else {"sampling": sampling.record()})}


def _notes(name: str, reason: str, unused: Sequence[str], sampling: SamplingOptions | None) -> list[str]:
    notes = [f"method {name} (auto: {reason})"] if reason else []
    for option in unused:
        users = used_by(option)
        notes.append(
            f"{option.replace('_', ' ')} has no effect on {name}" + (f", only on {', '.join(users)}" if users else "")
        )
    if sampling is not None and sampling.sampler == "weighted" and name == "vip":
        notes.append("vip knows no edge weights: it takes all neighbours for equally likely")
    return notes


def _is_share(train: Train) -> bool:
    values = train.values() if isinstance(train, Mapping) else [train]
    return any(isinstance(value, str) and "%" in value for value in values)


def sampled_edges(graph: SizedGraph, plan: ScorePlan) -> int:
    """Return at most how many edges the epochs of a method sample: every node of a batch so far asks in every hop."""
    if not plan.method.counts:
        return 0
    sampling, nodes, edges = plan.request.sampled, graph.num_nodes(), graph.num_edges()
    asking, sampled = min(nodes, sampling.batch_size), 0
    for hop in resolve_fanouts(graph.relations, sampling.fanouts):
        drawn = edges if min(hop) < 0 else min(edges, asking * sum(hop))
        sampled, asking = sampled + drawn, min(nodes, asking + drawn)
    return plan.request.options.epochs * -(-plan.request.train_size // sampling.batch_size) * sampled
