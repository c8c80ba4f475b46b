"""Accesses counted in sampled epochs, hop by hop, where the adjacency does not fit a task: each has a range of lists.

``cut``      how many edges the lists of runs of nodes have; weights are checked.
``seeds``    the seeds of an epoch's batches, by range.
``hop-h``    the lists of a range and relation draw for those nodes of the batches that sample in hop h: what they
             reach, by range of its type.
``merge-d``  what the batches find first in hop d - 1 (0: their seeds) of a range of nodes: without what comes twice, or
             was known before; and in how many batches each node is found then.
``sum``      the counts of a range of nodes over all epochs, as `tiering.scores.tasks.presample` leaves them.

A random number is a function of (seed, epoch, batch, hop, relation, node), and a rule by which each node draws from its
own list does not ask what else a batch has found. So it does not matter who draws for a node, nor in which order: the
counts are the integers of one process. Random walks leave their range at each step, and ladies draws once for a whole
batch, by sums in the order of its frontier: these two stay with tasks that have the whole adjacency.

All nodes of a type and all lists of relations that lead to it are cut at the same places. A pair is a node of a batch,
as one number: the batch, counted in its wave, above `_NODE_BITS` bits of the node, counted in its range. Tasks take one
wave of batches after the other, and write each as parts of its own. Memory: `HopMemory`; a wave is as long as half of a
task's memory allows, were all its nodes in one range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.document import open_manifest
from tiering.errors import InputError
from tiering.formats.shape import SizedGraph
from tiering.progress import note
from tiering.run.grid import Grid, balanced_bounds, equal_bounds, run_shift
from tiering.run.job import Job
from tiering.run.pieces import TaskRecord
from tiering.run.step import Step, TaskContext
from tiering.sampling import resolve_fanouts
from tiering.sampling.plan import batches
from tiering.scores.plan import ScorePlan
from tiering.scores.tasks.hop_memory import HopMemory, list_bytes, lists_bytes, relations_of, waves
from tiering.scores.tasks.presample import SUM_BYTES, EpochCounts, add_epochs, columns_of
from tiering.scores.tasks.sweeps import Ranges
from tiering.units import format_bytes

AnyArray = npt.NDArray[Any]
Int64Array = npt.NDArray[np.int64]
_HERE = "tiering.scores.tasks.hops"
_RULES = {"uniform": "uniform", "full": "uniform", "replacement": "replacement", "weighted": "weighted"}
"""Samplers that let each node draw from its own list, and their rules."""
_NODE_BITS = 40
_CHUNK = 1 << 22
"""Weights that are checked at a time."""


def hop_synchronous(graph: SizedGraph, plan: ScorePlan, grid: Grid) -> bool:
    """Return whether tasks count hop by hop: none has room for the adjacency and the sampler's memory."""
    nbytes = sum(lists_bytes(relation) for relation in relations_of(graph, plan)) + plan.need.minimum
    if nbytes <= grid.task_memory:
        return False
    sampler = plan.request.sampled.sampler
    if sampler not in _RULES:
        note(
            f"note: each task reads the whole adjacency and takes up to {format_bytes(nbytes)}, more than its "
            f"{format_bytes(grid.task_memory)}: {sampler} cannot be sampled by ranges of lists"
        )
    return sampler in _RULES


def count_epochs(job: Job, graph: SizedGraph, plan: ScorePlan) -> EpochCounts:
    """Have the epochs of a score counted."""
    job.expect(4 + 2 * len(plan.request.sampled.fanouts))
    params = _params(job, graph, plan)
    needs = _cut(job, params)
    epochs, ranges = len(params["epochs"]), len(Ranges(params).node_tasks)
    params["wave"] = needs.batches(job.grid.task_memory // 2)
    seeds = Step("seeds", f"{_HERE}:seeds", epochs, params, (params["given"],), needs.seeds)
    job.run(seeds)
    memory = needs.merge(0, params["wave"])
    found = Step("merge-0", f"{_HERE}:merge", epochs * ranges, params, ("seeds",), memory)
    job.run(found)
    job.release(seeds)
    merged = [found.name]
    for hop, fanouts in enumerate(params["fanouts"]):
        lists = [
            [number, part]
            for number, (relation, fanout) in enumerate(zip(params["relations"], fanouts, strict=True))
            for part, edges in enumerate(needs.edges[number])
            if fanout and edges
        ]
        of = {**params, "hop": hop, "lists": lists, "known": list(merged), "drawn": f"hop-{hop}"}
        memory = needs.hop(hop, params["wave"], job.threads)
        drawn = Step(f"hop-{hop}", f"{_HERE}:draw", epochs * len(lists), of, tuple(merged), memory)
        if lists:
            job.run(drawn)
        reads = (*merged, *([drawn.name] if lists else []))
        memory = needs.merge(hop + 1, params["wave"])
        found = Step(f"merge-{hop + 1}", f"{_HERE}:merge", epochs * ranges, of, reads, memory)
        job.run(found)
        if lists:
            job.release(drawn)
        merged.append(found.name)
    return _sum(job, graph, {**params, "known": merged}, needs)


def _params(job: Job, graph: SizedGraph, plan: ScorePlan) -> dict[str, Any]:
    request, sampling, options = plan.request, plan.request.sampled, plan.request.options
    types = list(graph.node_types)
    given = job.broadcast("train", {"ids": np.concatenate(list(request.train.values()))})
    return {
        "graph": str(graph.path), "num_nodes": [graph.num_nodes(name) for name in types],
        "relations": relations_of(graph, plan), "fanouts": resolve_fanouts(graph.relations, sampling.fanouts),
        "rule": _RULES[sampling.sampler], "only_new": sampling.frontier == "new", "seed": sampling.seed,
        "batch_size": sampling.batch_size, "batches": -(-request.train_size // sampling.batch_size),
        "epochs": list(range(options.first_epoch, options.first_epoch + options.epochs)),
        "train": [[types.index(name), int(ids.size)] for name, ids in request.train.items()], "given": given.name,
    }  # fmt: skip


def _cut(job: Job, params: dict[str, Any]) -> HopMemory:
    """Cut the nodes of each type: ranges of about the same bytes, with the lists of all relations to it."""
    counts = params["num_nodes"]
    params["shifts"] = [run_shift(max(1, n)) for n in counts]
    pieces = [
        [number, begin, end]
        for number, relation in enumerate(params["relations"])
        if relation["edges"]
        for begin, end in pairwise(equal_bounds(relation["columns"], job.grid.parts(lists_bytes(relation))))
    ]
    most = max((end - begin for _, begin, end in pieces), default=0)
    runs = [((max(1, counts[r["dst"]]) - 1) >> params["shifts"][r["dst"]]) + 1 for r in params["relations"]]
    step = Step("cut", f"{_HERE}:cut", len(pieces), {**params, "pieces": pieces}, memory=HopMemory.cut(most, _CHUNK))
    records = job.run(step) if pieces else []
    _check_weights(params, pieces, records)
    edges = [np.zeros(size, np.int64) for size in runs]
    for task, (number, _, _) in enumerate(pieces):
        edges[number] += job.read("cut", task)["edges"]
    params["nodes"] = [_bounds(params, node_type, edges, job.grid) for node_type in range(len(counts))]
    of_ranges = []
    for relation, by_run in zip(params["relations"], edges, strict=True):
        shift, bounds = params["shifts"][relation["dst"]], params["nodes"][relation["dst"]]
        of_ranges.append([int(by_run[-(-a >> shift) : -(-b >> shift)].sum()) for a, b in pairwise(bounds)])
    return HopMemory(params, of_ranges)


def _bounds(params: dict[str, Any], node_type: int, edges: Sequence[Int64Array], grid: Grid) -> list[int]:
    """Return where the ranges of a type begin, and where the last ends: whole runs; no range is empty."""
    count, shift = params["num_nodes"][node_type], params["shifts"][node_type]
    if not count:
        return [0]
    own = [(r, by_run) for r, by_run in zip(params["relations"], edges, strict=True) if r["dst"] == node_type]
    weights = np.full(((count - 1) >> shift) + 1, HopMemory.NODE_BYTES << shift, np.int64)
    for relation, by_run in own:
        weights += by_run * list_bytes(relation)
    return sorted({min(count, run << shift) for run in balanced_bounds(weights, grid.parts(2 * int(weights.sum())))})


def _check_weights(params: dict[str, Any], pieces: Sequence[Sequence[int]], records: Sequence[TaskRecord]) -> None:
    """Raise `InputError` where all weights of a relation are 0, in the words of one process."""
    for number, relation in enumerate(params["relations"]):
        own = [m["facts"]["positive"] for (r, _, _), m in zip(pieces, records, strict=True) if r == number]
        if own and not any(own):
            raise InputError(
                f"{params['graph']}: weights of relation {relation['key']}: all {relation['edges']} are 0, so no edge "
                "can be drawn; correct the weights and import again, or use another sampler"
            )


def _sum(job: Job, graph: SizedGraph, params: dict[str, Any], needs: HopMemory) -> EpochCounts:
    """Count a node's features in each batch that finds it, its list once for each hop in which it samples then."""
    hops = len(params["fanouts"])
    columns = [[node_type, [1] * (hops + 1)] for node_type in range(len(params["num_nodes"]))]
    for number, relation in enumerate(params["relations"]):
        active = [int(fanouts[number] != 0) for fanouts in params["fanouts"]]
        reads = [*active, 0] if params["only_new"] else [sum(active[depth:]) for depth in range(hops + 1)]
        columns.append([relation["dst"], reads])
    parts = [len(params["nodes"][node_type]) - 1 for node_type, _ in columns]
    tasks = [[column, part] for column, count in enumerate(parts) for part in range(count)]
    params = {**params, "columns": columns, "tasks": tasks}
    step = Step("sum", f"{_HERE}:sums", len(tasks), params, tuple(params["known"]), needs.widest * SUM_BYTES)
    return EpochCounts(step, columns_of(graph), [0, *np.cumsum(parts).tolist()], job.run(step))


def cut(context: TaskContext) -> dict[str, bool]:
    """Count the edges of some lists of a relation, by run; whether the rule can draw any, as a fact."""
    params = context.params
    number, begin, end = params["pieces"][context.index]
    relation, graph = params["relations"][number], open_manifest(params["graph"])
    shift = params["shifts"][relation["dst"]]
    indptr = graph.read(f"{relation['folder']}/indptr", begin, end + 1)
    first, last = int(indptr[0]), int(indptr[-1])
    native.check_indptr(indptr - first, last - first, context.threads)
    edges = np.zeros(((relation["columns"] - 1) >> shift) + 1, np.int64)
    starts = np.arange(begin >> shift, ((end - 1) >> shift) + 1) << shift
    cuts = indptr[np.clip(np.append(starts, end), begin, end) - begin]
    edges[begin >> shift : ((end - 1) >> shift) + 1] = np.diff(cuts)
    context.write(edges=edges)
    if params["rule"] != "weighted":
        return {"positive": True}
    chunks = ((at, min(last, at + _CHUNK)) for at in range(first, last, _CHUNK))
    return {"positive": any((graph.read(f"{relation['folder']}/weight", *chunk) > 0).any() for chunk in chunks)}


def seeds(context: TaskContext) -> None:
    """Emit the seeds of the batches of an epoch: for each wave, by type and range."""
    params, ids, begin = context.params, context.read(context.params["given"], 0)["ids"], 0
    train = {}
    for node_type, size in params["train"]:
        train[str(node_type)], begin = ids[begin : begin + size], begin + size
    plan = batches(train, params["batch_size"], params["epochs"][context.index], seed=params["seed"])
    for first, last in waves(params):
        for node_type, bounds in enumerate(params["nodes"]):
            offsets = plan.offsets.get(str(node_type), np.zeros(params["batches"] + 1, np.int64))[first : last + 1]
            nodes = plan.ids[str(node_type)][offsets[0] : offsets[-1]] if str(node_type) in train else ids[:0]
            _emit_pairs(context, np.repeat(np.arange(last - first), np.diff(offsets)), nodes, bounds)


def _emit_pairs(context: TaskContext, batch: Int64Array, nodes: Int64Array, bounds: Sequence[int]) -> None:
    """Write nodes of batches of a wave as pairs, by range: a part for each."""
    if len(bounds) == 1:
        return
    order, counts = native.partition(np.ascontiguousarray(nodes), np.array(bounds), context.threads)
    pairs = nodes[order] - np.repeat(bounds[:-1], counts)
    pairs |= batch[order] << _NODE_BITS
    context.write_all({"pair": pairs}, np.cumsum(counts))


def draw(context: TaskContext) -> None:
    """Let the lists of a range and relation draw: for each wave, what its batches reach, by range."""
    params, ranges = context.params, Ranges(context.params)
    epoch, at = divmod(context.index, len(params["lists"]))
    number, part = params["lists"][at]
    relation = params["relations"][number]
    bounds = params["nodes"][relation["dst"]]
    task = epoch * len(ranges.node_tasks) + ranges.node_tasks.index((relation["dst"], part))
    sampler = _sampler(context, number, bounds[part], bounds[part + 1])
    idle = np.empty(0, np.int64)

    def find_nodes(batch: int, nodes: Int64Array) -> Int64Array:
        return idle if sampler is None else sampler.sample([nodes, idle, idle], params["epochs"][epoch], batch)[0][1]

    known = params["known"][-1:] if params["only_new"] else params["known"]
    with ThreadPoolExecutor(context.threads) as pool:
        for wave, (first, last) in enumerate(waves(params)):
            pairs = np.concatenate([context.read(step, task, wave)["pair"] for step in known])
            pairs.sort()
            ends = np.searchsorted(pairs, np.arange(1, last - first) << _NODE_BITS)
            pairs &= (1 << _NODE_BITS) - 1
            drawn = list(pool.map(find_nodes, range(first, last), np.split(pairs, ends)))
            batch = np.repeat(np.arange(len(drawn)), [nodes.size for nodes in drawn])
            _emit_pairs(context, batch, np.concatenate(drawn), params["nodes"][relation["src"]])


def _sampler(context: TaskContext, number: int, begin: int, end: int) -> native.Sampler | None:
    """Return the sampler of lists [begin, end) of a relation in a task's hop, by the random numbers of one process.

    ``None`` if they have only edges of weight 0. The lists are type 0, and what they reach type 1; earlier hops and
    relations are there for their numbers alone.
    """
    params, graph = context.params, open_manifest(context.params["graph"])
    relation, hop = params["relations"][number], params["hop"]
    indptr = graph.read(f"{relation['folder']}/indptr", begin, end + 1)
    first, last = int(indptr[0]), int(indptr[-1])
    indptr = indptr - first
    indices = graph.read(f"{relation['folder']}/indices", first, last)
    weights = None
    if params["rule"] == "weighted":
        weights = graph.read(f"{relation['folder']}/weight", first, last)
        if not (weights > 0).any():
            return None
        weights = weights if weights.dtype in (np.float32, np.float64) else weights.astype(np.float64)
    nothing = ("", 2, 2, np.zeros(1, np.int64), np.empty(0, np.int32), None)
    own = (relation["key"], 1, 0, indptr, indices, weights)
    return native.Sampler(
        type_names=["lists", "sources", "none"],
        num_nodes=[end - begin, params["num_nodes"][relation["src"]], 0],
        relations=[nothing] * number + [own],
        fanouts=[[0] * (number + 1)] * hop + [[0] * number + [params["fanouts"][hop][number]]],
        frontier="all",
        node_keys=[np.arange(begin, end), None, None],
        seed=params["seed"],
        rule=params["rule"],
        threads=context.threads,
    )


def merge(context: TaskContext) -> None:
    """Merge what batches find first: for each wave its pairs, ascending; last, how often each node is found."""
    params, ranges = context.params, Ranges(context.params)
    epoch, at = divmod(context.index, len(ranges.node_tasks))
    _, begin, end = ranges.nodes(at)
    counts = np.zeros(end - begin, np.int64)
    for wave in range(len(waves(params))):
        found = _distinct(np.concatenate([np.empty(0, np.int64), *_incoming(context, epoch, at, wave)]))
        for step in params.get("known", ()):
            known = context.read(step, context.index, wave)["pair"]
            places = np.minimum(np.searchsorted(known, found), max(0, known.size - 1))
            found = found[known[places] != found] if known.size else found
        context.write(pair=found)
        counts += np.bincount(found & ((1 << _NODE_BITS) - 1), minlength=counts.size)
    context.write(count=counts.astype(np.uint32))


def _distinct(pairs: Int64Array) -> Int64Array:
    """Return pairs, ascending, each once; `pairs` are sorted in their place."""
    pairs.sort()
    first = np.ones(pairs.size, np.bool_)
    np.not_equal(pairs[1:], pairs[:-1], out=first[1:])
    return pairs[first]


def _incoming(context: TaskContext, epoch: int, at: int, wave: int) -> Iterator[Int64Array]:
    """Yield the pairs of a range that a wave has drawn, or its seeds."""
    params, ranges = context.params, Ranges(context.params)
    if "lists" not in params:
        yield context.read("seeds", epoch, wave * len(ranges.node_tasks) + at)["pair"]
        return
    node_type, part = ranges.node_tasks[at]
    lists, parts = params["lists"], len(params["nodes"][node_type]) - 1
    for number, (relation, _) in enumerate(lists):
        if params["relations"][relation]["src"] == node_type:
            yield context.read(params["drawn"], epoch * len(lists) + number, wave * parts + part)["pair"]


def sums(context: TaskContext) -> dict[str, int]:
    """Write counts of a range of a column: mean per epoch, sum, sum of squares of epochs; the sum of all, as a fact."""
    params, ranges = context.params, Ranges(context.params)
    column, part = params["tasks"][context.index]
    node_type, reads = params["columns"][column]
    at = ranges.node_tasks.index((node_type, part))
    _, begin, end = ranges.nodes(at)

    def by_epoch() -> Iterator[Int64Array]:
        for epoch in range(len(params["epochs"])):
            counts, task = np.zeros(end - begin, np.int64), epoch * len(ranges.node_tasks) + at
            for step, times in zip(params["known"], reads, strict=True):
                if times:
                    counts += times * context.read(step, task, len(waves(params)))["count"].astype(np.int64)
            yield counts

    return add_epochs(context, end - begin, by_epoch(), len(params["epochs"]))
