"""The table of methods; the plan of a score, from what a user gave to what will be recorded; a score as an artifact.

`adjacency_bytes` are the bytes of adjacency that a score predicts sampling to read.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tiering.artifacts.checksum import digest_bytes
from tiering.artifacts.manifest import Relation, relation_key
from tiering.artifacts.reader import uncached_bytes
from tiering.artifacts.writer import ArtifactWriter
from tiering.errors import InputError, StorageError
from tiering.formats.graph import Graph, graph_errors, take_by_rank
from tiering.formats.reach import note_unread_rows
from tiering.formats.scores import GIVEN, Scores
from tiering.formats.shape import GraphShape, SizedGraph
from tiering.formats.user_arrays import Train, UserArray, UserValues, resolve_times, resolve_train
from tiering.memory import Budget, parse_memory
from tiering.run.job import Carrier
from tiering.run.plan import StageEstimate, StepEstimate, base_memory
from tiering.sampling import SamplingOptions, list_read_bytes, make_sampler, resolve_fanouts
from tiering.sampling.memory import batch_bounds
from tiering.scores.blocks import task_bytes
from tiering.scores.counts import column_sizes
from tiering.scores.direct import DEGREE, RANDOM, USER_SCORES, read_user_scores
from tiering.scores.hybrid import HYBRID
from tiering.scores.options import AUTO, HELP
from tiering.scores.pagerank import RPR, WRPR
from tiering.scores.presample import PRESAMPLE, sampling_runs
from tiering.scores.request import Float64Array, MemoryNeed, Method, ScoreRequest, TrainSet, check_options, list_nodes
from tiering.scores.sweeps import past_the_cache, scratch_bytes
from tiering.scores.vip import VIP
from tiering.text.progress import note
from tiering.text.units import parse_threads

METHODS = dict(zip(HELP, (RANDOM, DEGREE, RPR, WRPR, PRESAMPLE, VIP, HYBRID), strict=True))


@dataclass(frozen=True)
class ScorePlan:
    """A score that could be computed now: its method, parameters and memory, and what will be recorded."""

    name: str
    method: Method
    request: ScoreRequest
    options: dict[str, Any]  # for the record: the method and what matters to it
    inputs: dict[str, str]  # for the record: digests of graph and training set
    seed: int | None  # for the record: the seed, where it matters
    need: MemoryNeed
    notes: list[str]  # notes for the user: the choice of ``auto``, which options have no effect
    unsplit_train: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)  # training nodes without a split
    tasks: int = 0  # largest number of tasks that run a step side by side; 0: the process itself computes the score

    @property
    def in_process(self) -> bool:
        """Whether this process computes columns: always without tasks, with tasks for a method that weighs."""
        return not self.tasks or self.method.weighs is not None

    def stage(self, graph: SizedGraph, shape: GraphShape, out: Path) -> StageEstimate:
        """Return the stage's memory, disk and passes; `BudgetError` where the score would raise it."""
        request, need, nodes, edges = self.request, self.need, shape.num_nodes(), shape.num_edges()
        columns = 8 * (nodes + (list_nodes(graph) if request.sampling else 0))
        if self.in_process:
            request.budget.require(need.minimum, need.what)
        if self.tasks:
            memory = need.minimum if self.method.counts else -(-task_bytes(graph) // self.tasks)
            swept = (64 if self.name == "vip" else 32) * (nodes + list_nodes(graph))  # of this sweep and the one before
            shuffled = self._counted(graph) if self.method.counts else 4 * edges + swept
            step = StepEstimate(
                self.name, f"{self.tasks} tasks", memory=memory, disk_read=self._read_bytes(shape),
                disk_written=columns, disk_scratch=shuffled, in_store=True,
            )  # fmt: skip
            weighing = StepEstimate("prior and weighing", "in memory", memory=need.minimum, amount=edges, unit="edge")
            steps = (step, weighing) if self.in_process else (step,)
        else:
            scratch = scratch_bytes(graph, request, need) if need.sweeps else 0
            how = "in memory" if not scratch else f"about {scratch / (4 * edges):.0%} of the edges on disk"
            memory = min(need.recommended, max(need.minimum, request.budget.left()))
            passing, unit = ((1 + need.sweeps) * edges, "edge") if self.method.edges else (nodes, "node")
            if self.method.counts:
                passing += request.options.epochs * request.epoch_batches * batch_bounds(graph, request.sampled)[2]
            steps = (
                StepEstimate(
                    self.name, how, memory=memory, disk_read=self._read_bytes(shape), disk_scratch=scratch,
                    amount=passing, unit=unit,
                ),
                StepEstimate("columns", "in memory", memory=columns, disk_written=columns, amount=nodes, unit="node"),
            )  # fmt: skip
        held, notes = base_memory(request.budget), tuple(self.notes)
        if self.name == "rpr":
            notes += (f"at most {need.sweeps} sweeps; fewer if the scores converge earlier",)
        return StageEstimate("score", out, steps, {out: columns}, held=held, notes=notes, threads=request.threads)

    def _counted(self, graph: SizedGraph) -> int:
        """Return the most bytes in which tasks count nodes and lists that batches read."""
        batches = self.request.options.epochs * self.request.epoch_batches
        reads = batches * sum(batch_bounds(graph, self.request.sampled)[:2])
        return 12 * min(reads, batches * (graph.num_nodes() + list_nodes(graph)))  # a uint32 id and an int64 count

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
    seed_time: UserValues | None = None,
    seed: int | None = None,
    threads: int | str | None = None,
    memory: str | int | Budget | None = None,
    carrier: Carrier | None = None,
    **keywords: Any,
) -> ScorePlan:
    """Check the parameters of a score, which `tiering.score_graph` explains."""
    keywords = {name: value for name, value in keywords.items() if value is not None}
    options, sampling_given = check_options(keywords)
    if method not in (AUTO, *METHODS):
        raise InputError(f"method: expected one of {', '.join((AUTO, *METHODS))}, found {method!r}")
    name, reason = method, ""
    own, notes = ({}, []) if scores is None else read_user_scores(graph, scores)
    if own:
        if method != AUTO:
            raise InputError(f"method: {method!r} has no effect with your own scores (--from); omit one of the two")
        name = GIVEN
    elif method == AUTO and "fanouts" in keywords:
        name, reason = "hybrid", "fanouts are given"
    elif method == AUTO and (train is not None or any("train" in graph.splits(name) for name in graph.node_types)):
        name, reason = "wrpr", "training nodes are known, fanouts are not given"
    elif method == AUTO:
        name, reason = "rpr", "neither fanouts nor training nodes are known"
    entry = USER_SCORES if own else METHODS[name]
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63):
        raise InputError(f"seed: expected a whole number from 0 to 2^63 - 1, found {seed!r}")
    trained = entry.needs_train or ("teleport" in entry.options and options.teleport == "train")
    chosen = resolve_train(graph, train, seed or 0, repeats=entry.counts and seed_time is not None) if trained else {}
    sampling = _sampling(graph, name, entry, sampling_given, seed or 0) if "fanouts" in entry.options else None
    values = train.values() if isinstance(train, Mapping) else [train]
    shared = any(isinstance(value, str) and "%" in value for value in values)
    seeded = entry.counts or entry.seeded or (trained and shared)
    unused = [option for option in keywords if option not in entry.options]
    uses = {"train": (train, trained), "seed": (seed, seeded), "seed_time": (seed_time, entry.counts)}
    unused += [option for option, (value, used) in uses.items() if value is not None and not used]
    times = _seed_times(graph, chosen, sampling, seed_time) if entry.counts and sampling is not None else {}
    workers, budget = parse_threads(threads), parse_memory(memory)
    request = ScoreRequest(options, chosen, sampling, workers, budget, seed or 0, times, own)
    record = {key: value for key, value in asdict(options).items() if key in entry.options and value is not None}
    record = {"method": name, **record, **({} if sampling is None else {"sampling": sampling.record()})}
    inputs = {"graph": graph.digest}
    if trained and not isinstance(graph, GraphShape):
        inputs["train"] = _train_digest(chosen, ordered=entry.counts)
        inputs |= {f"seed_time of {t}": UserArray(values, t).digest for t, values in sorted(times.items())}
    inputs |= {f"scores of {node_type}": array.digest for node_type, array in own.items()}
    notes = [*notes, *_notes(name, reason, unused, sampling)]
    if sampling is None or sampling.sampler != "pinsage":  # whose walks follow paths of their own
        hops = None if sampling is None else sampling.fanouts
        notes += note_unread_rows(graph, [node_type for node_type, ids in chosen.items() if ids.size], hops)
    record |= {"chosen": reason} if reason else {}
    recorded_seed, need = (seed or 0) if seeded else None, entry.need(graph, request)
    splits = {split for node_type in graph.node_types for split in graph.splits(node_type)}
    texts = train.split(",") if isinstance(train, str) else values
    is_split = "train" in splits or any(str(text).rpartition("=")[2].strip() in splits for text in texts)
    unsplit = {} if is_split or seed_time is not None else chosen  # with times a node may come several times
    plan = ScorePlan(name, entry, request, record, inputs, recorded_seed, need, notes, unsplit_train=unsplit)
    return plan if carrier is None else replace(plan, tasks=_count_tasks(graph, plan, carrier))


def _count_tasks(graph: SizedGraph, plan: ScorePlan, carrier: Carrier) -> int:
    """Return the number of tasks of the score's largest step, 0 where this process computes it."""
    grid, nbytes, counts = carrier.grid, task_bytes(graph), plan.method.counts
    long = counts and carrier.options.executor == "ray" and grid.shards != 1  # on graphs of any size
    if plan.method.tasks is None or not (long or carrier.uses_tasks(nbytes)):
        return 0
    squares = plan.method.weighs is not None and plan.method.weighs(plan.request)
    return len(sampling_runs(plan.request, grid, squares)) if counts else grid.parts(nbytes)


def _seed_times(
    graph: SizedGraph, train: TrainSet, sampling: SamplingOptions, seed_time: UserValues | None
) -> dict[str, np.ndarray[Any, Any]]:
    """Return the time of each training node by type; nothing without times."""
    if isinstance(graph, GraphShape) or (sampling.time is None and seed_time is None):
        return {}
    return make_sampler(graph, sampling).seed_times(train, resolve_times(seed_time, train))


def _train_digest(train: TrainSet, *, ordered: bool) -> str:
    """Return the digest of the training nodes: as a set, or, for methods that cut them into batches, in their order."""
    parts: list[bytes | memoryview] = []
    for node_type, ids in sorted(train.items()):
        parts += [(b"\0" if parts else b"") + f"{node_type}:".encode()]
        parts += [np.ascontiguousarray(ids if ordered else np.sort(ids), "<i8").data] if ids.size else []
    return digest_bytes(*parts)


def _sampling(graph: SizedGraph, name: str, method: Method, keywords: Mapping[str, Any], seed: int) -> SamplingOptions:
    """Return how training samples, fanouts in one form for the record: numbers, or mappings from full relation keys."""
    if "fanouts" not in keywords:
        raise InputError(f"fanouts: {name} needs the fanouts of training; give them with --fanouts 10,10,10")
    keys = [relation_key(relation) for relation in graph.relations]
    fanouts = [
        numbers[0] if len(set(numbers)) == 1 and numbers[0] != 0 else dict(zip(keys, numbers, strict=True))
        for numbers in resolve_fanouts(graph.relations, keywords["fanouts"])
    ]
    options = SamplingOptions(**{**keywords, "fanouts": fanouts, "seed": seed})
    if options.sampler in ("full", "pinsage"):
        make_sampler(graph, options)  # costs nothing, and refuses fanouts that are not -1, metapaths that lead nowhere
    if options.sampler not in method.samplers:
        raise InputError(
            f"sampler: {name} supports only {', '.join(method.samplers)}, found {options.sampler}; score with "
            "presample or hybrid"
        )
    return options


def _notes(name: str, reason: str, unused: Sequence[str], sampling: SamplingOptions | None) -> list[str]:
    notes = [f"method {name} (auto: {reason})"] if reason else []
    for option in unused:
        users = ", ".join(name for name, method in METHODS.items() if option in method.options)
        notes.append(f"{option.replace('_', ' ')} has no effect on {name}" + (f", only on {users}" if users else ""))
    if sampling is not None and sampling.sampler == "weighted" and name == "vip":
        notes.append("vip ignores edge weights: it assumes that all neighbors are equally likely")
    if sampling is not None and sampling.time and name in ("vip", "hybrid"):
        prior = "its prior ignores" if name == "hybrid" else "vip ignores"
        notes.append(f"{prior} time: it assumes that neighbors of any time are equally likely")
    return notes


def score_graph(
    graph: Graph,
    method: str,
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    carrier: Carrier | None = None,
    **parameters: Any,
) -> Scores:
    """Score every node, large graphs by tasks of `carrier`, as an artifact; parameters: `tiering.score_graph`."""
    plan = plan_score(graph, method, carrier=carrier, **parameters)
    if plan.in_process:
        plan.request.budget.require(plan.need.minimum, plan.need.what)
    made = {"stage": "score", "options": plan.options, "inputs": plan.inputs, "seed": plan.seed}
    with ArtifactWriter(out, "scores", force=force, identity=made, reads=(graph,)) as writer:
        for text in plan.notes:
            note(f"note: {text}")
        reached = _write_columns(writer, graph, plan, carrier)
        body = {"method": plan.name, "graph_digest": graph.digest, "node_types": list(graph.node_types)}
        for node_type, ids in plan.unsplit_train.items():
            writer.put(f"nodes/{node_type}/split-train", ids)
        recorded = {**plan.options, **({"reached": reached} if reached else {})}
        writer.commit({**body, "columns": ["feature"]}, {**made, "options": recorded})
    return Scores.open(writer.out)


def _write_columns(writer: ArtifactWriter, graph: Graph, plan: ScorePlan, carrier: Carrier | None) -> dict[str, Any]:
    """Write the columns unless an earlier run did; return the facts that the method records."""
    journal = writer.journal
    known = journal.get("columns")
    if known is not None and writer.has(*known["files"]):
        return dict(known["reached"])
    (features, lists), request = column_sizes(graph), replace(plan.request, scratch=writer.path)
    try:
        with graph_errors(graph):
            if plan.tasks and carrier is not None and plan.method.tasks is not None:
                columns = plan.method.tasks(carrier.job(writer), writer, graph, request)
            else:
                columns = plan.method.compute(graph, request)
    except StorageError as error:
        if error.errno != errno.ENOSPC or not plan.in_process:
            raise
        text = f"{error.strerror}; free disk space, or give more memory, so that less is written to disk"
        raise StorageError(errno.ENOSPC, text) from error
    for name, values in columns.files().items():
        writer.put(name, values)
    files = [*features, *lists] if plan.request.sampling else [*features]
    journal.record("columns", files=files, reached=columns.reached)
    return columns.reached


def adjacency_bytes(graph: Graph, scores: Scores, relation: Relation | str | None = None) -> Float64Array:
    """Return the expected bytes of each node's in-neighbor list in a relation read per epoch, in the ids of `graph`.

    Predicted reads (the column ``adjacency``) times `tiering.sampling.list_read_bytes`; float64, shape (nodes of the
    destination type,). `graph` is the one that was scored, or one reordered from it.
    """
    resolved = graph.relation(relation)
    reads = scores.adjacency(resolved)
    if graph.order is not None:
        reads = take_by_rank(reads, graph, resolved[2])
    elif scores.graph_digest != graph.digest:
        raise InputError(f"{scores.path}: computed on another graph than {graph.path}; score this graph")
    indptr, indices = graph.csc(resolved)
    sampling, key = scores.manifest.provenance["options"]["sampling"], relation_key(resolved)
    fanouts = [hop if isinstance(hop, int) else hop[key] for hop in sampling["fanouts"]]
    nbytes: Float64Array = reads * list_read_bytes(np.diff(indptr), indices.itemsize, sampling["sampler"], fanouts)
    return nbytes
