"""Accesses counted in sampled epochs, hop by hop, where the adjacency does not fit a task: each has a range of lists.

A random number is a function of (seed, epoch, batch, hop, relation, node): where each node samples from its own list,
the process does not matter, and counts are as in one process. A pair is a node of a batch in one number: the batch,
counted in its wave, above `_NODE_BITS` bits of the node, counted in its range. A wave of batches fills half of a task's
memory: for a batch 128 bytes for each node that it may find, and 48 for each edge that it may sample.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np

from tiering import native
from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.artifacts.document import open_manifest
from tiering.artifacts.manifest import id_bytes, relation_key
from tiering.errors import InputError
from tiering.formats.graph import Graph, relation_folder
from tiering.run.grid import Grid, Int64Array
from tiering.run.job import Job
from tiering.run.step import Step, TaskContext
from tiering.sampling import resolve_fanouts
from tiering.sampling.graph import checked_weights
from tiering.sampling.memory import batch_bounds
from tiering.sampling.plan import batches
from tiering.scores.blocks import balanced_lists, map_offsets, range_bounds, read_csc
from tiering.scores.counts import Range, TaskCounts, broadcast_train, read_train, sum_counts, write_counts
from tiering.scores.request import ScoreRequest
from tiering.text.progress import note
from tiering.text.units import format_bytes

_HERE = "tiering.scores.hops"
_RULES = {"uniform": "uniform", "full": "uniform", "replacement": "replacement", "weighted": "weighted"}
"""Samplers that let each node sample from its own list, and their rules."""
_NODE_BITS = 40
_NODE_BYTES = 32  # memory of a task for each node of its range: its count, then ids and counts as they are written
_LIST_BYTES = 24  # memory of a task for each list of its range
_CHUNK = 1 << 22  # weights that are checked at a time


def hop_synchronous(graph: Graph, request: ScoreRequest, memory: int, grid: Grid) -> bool:
    """Return whether tasks count hop by hop: none has room for the adjacency and the sampler's `memory`."""
    memory += sum(map(_list_bytes, _relations(graph, request)))
    if memory <= grid.task_memory:
        return False
    sampled, sampler = request.sampled, request.sampled.sampler
    if sampled.disjoint or sampled.subgraph_type != "directional":
        sampler = "batches of subgraphs"
    if sampler not in _RULES:
        note(
            f"note: each task reads the whole adjacency and needs up to {format_bytes(memory)}, more than its "
            f"{format_bytes(grid.task_memory)}: {sampler} cannot sample ranges of lists"
        )
    return sampler in _RULES


def _relations(graph: Graph, request: ScoreRequest) -> list[dict[str, Any]]:
    """Return the relations as tasks see them; `InputError` if weights are requested that a relation does not have."""
    types, relations = list(graph.node_types), []
    for relation in graph.relations:
        width = id_bytes(graph.num_nodes(relation[0]))
        if request.sampled.sampler == "weighted":
            weights = graph.edge_data(relation).get("weight")
            if weights is None or weights.ndim != 1 or weights.dtype.kind not in "fiu":
                weights = checked_weights(graph, relation)
            width += 8 + weights.itemsize + (0 if weights.dtype in ("float32", "float64") else 8)
        relations.append({
            "key": relation_key(relation), "folder": relation_folder(relation), "src": types.index(relation[0]),
            "dst": types.index(relation[2]), "edges": graph.num_edges(relation),
            "columns": graph.num_nodes(relation[2]), "sources": graph.num_nodes(relation[0]), "edge_bytes": width,
        })  # fmt: skip
    return relations


def _check_weights(graph: Graph) -> None:
    """Raise `InputError` where all weights of a relation are 0, in the words of one process."""
    for relation in graph.relations:
        weights, edges = graph.edge_data(relation)["weight"], graph.num_edges(relation)
        if edges and not any((weights[at : at + _CHUNK] > 0).any() for at in range(0, edges, _CHUNK)):
            raise InputError(
                f"{graph.path}: weights of relation {relation_key(relation)}: all {edges} are 0, so no edge can be "
                "sampled; correct the weights and import again, or use another sampler"
            )


def count_epochs(job: Job, graph: Graph, request: ScoreRequest, squares: bool) -> TaskCounts:
    """Count the epochs of a score."""
    job.expect(3 + 2 * len(request.sampled.fanouts))
    params, edge_bytes = _plan(job, graph, request)
    epochs, nodes = len(params["epochs"]), params["nodes"]
    _, known, edges = batch_bounds(graph, request.sampled)
    batch = 128 * known + 48 * edges
    params["wave"] = max(1, min(params["batches"], job.grid.task_memory // 2 // batch, 1 << 20))
    wave_bytes, widest = params["wave"] * batch, max((end - begin for _, begin, end in nodes), default=0)

    def merge(depth: int, drawn: Step, params: dict[str, Any]) -> str:
        reads, name = (*params["known"], drawn.name), f"merge-{depth}"
        job.run(Step(name, f"{_HERE}:merge", epochs * len(nodes), params, reads, _NODE_BYTES * widest + wave_bytes))
        job.release(drawn)
        return name

    seeds = Step("seeds", f"{_HERE}:seeds", epochs, params, ("train",), 64 * request.train_size + wave_bytes)
    job.run(seeds)
    merged = [merge(0, seeds, {**params, "known": []})]
    for hop, fanouts in enumerate(params["fanouts"]):
        lists = [[number, task] for number, task in params["lists"] if fanouts[number]]
        of = {**params, "hop": hop, "lists": lists, "known": list(merged)}
        most = edge_bytes + _LIST_BYTES * widest + wave_bytes + job.threads * batch
        drawn = Step(f"hop-{hop}", f"{_HERE}:draw", epochs * len(lists), of, tuple(merged), most)
        job.run(drawn)
        merged.append(merge(hop + 1, drawn, of))
    return _sum(job, params, merged, squares)


def _sum(job: Job, params: Mapping[str, Any], merged: Sequence[str], squares: bool) -> TaskCounts:
    """Count a node's features in each batch that finds it, its list once for each hop in which it samples then."""
    hops, nodes = len(params["fanouts"]), params["nodes"]
    columns = [(node_type, [1] * (hops + 1)) for node_type in range(len(params["types"]))]
    for number, relation in enumerate(params["relations"]):
        active = [int(fanouts[number] != 0) for fanouts in params["fanouts"]]
        reads = [*active, 0] if params["only_new"] else [sum(active[depth:]) for depth in range(hops + 1)]
        columns.append((relation["dst"], reads))
    own = [(c, task) for c, (of, _) in enumerate(columns) for task, (t, _, _) in enumerate(nodes) if t == of]
    steps = {step: [reads[depth] for _, reads in columns] for depth, step in enumerate(merged)}
    ranges = [(column, *nodes[task][1:]) for column, task in own]
    tasks, partition = [[task] for _, task in own], len(waves(params))
    return sum_counts(job, steps, ranges, len(params["epochs"]), len(nodes), squares, tasks, partition)


def _plan(job: Job, graph: Graph, request: ScoreRequest) -> tuple[dict[str, Any], int]:
    """Return the parameters of all steps, ranges of about the same bytes among them; the bytes of a task's edges."""
    sampling, options, relations = request.sampled, request.options, _relations(graph, request)
    if sampling.sampler == "weighted":
        _check_weights(graph)
    indptr, most = [map_offsets(graph, relation) for relation in graph.relations], 0
    nodes: list[Range] = []
    lists: list[Sequence[int]] = []
    for number, name in enumerate(graph.node_types):
        into = [r for r, relation in enumerate(relations) if relation["dst"] == number]
        nbytes = _NODE_BYTES * graph.num_nodes(name) + sum(_list_bytes(relations[r]) for r in into)
        own, parts = [(indptr[r], relations[r]["edge_bytes"]) for r in into], job.grid.parts(2 * nbytes)
        for begin, end in pairwise(balanced_lists(graph.num_nodes(name), _NODE_BYTES, own, parts)):
            lists += [[r, len(nodes)] for r in into if relations[r]["edges"]]
            most = max([most, *(width * int(offsets[end] - offsets[begin]) for offsets, width in own)])
            nodes.append([number, begin, end])
    params: dict[str, Any] = {
        "graph": str(graph.path), "types": list(graph.node_types), "relations": relations, "nodes": nodes,
        "lists": lists, "fanouts": resolve_fanouts(graph.relations, sampling.fanouts), "seed": sampling.seed,
        "rule": _RULES[sampling.sampler], "only_new": sampling.frontier == "new", "batch_size": sampling.batch_size,
        "batches": request.epoch_batches, "train": broadcast_train(job, request.train),
        "epochs": list(range(options.first_epoch, options.first_epoch + options.epochs)),
    }  # fmt: skip
    return params, most + 4 * BLOCK_BYTES


def _list_bytes(relation: Mapping[str, Any]) -> int:
    return int(relation["edges"] * relation["edge_bytes"] + relation["columns"] * _LIST_BYTES)


def waves(params: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Return the batches of each wave of an epoch: the first, and the one behind the last."""
    step, count = params["wave"], params["batches"]
    return [(step * wave, min(count, step * (wave + 1))) for wave in range(math.ceil(count / step))]


def seeds(context: TaskContext) -> None:
    """Emit the seeds of the batches of an epoch: for each wave, by type and range."""
    params, train, none = context.params, read_train(context), np.empty(0, np.int64)
    plan = batches(train, params["batch_size"], params["epochs"][context.index], seed=params["seed"])
    for first, last in waves(params):
        for node_type, name in enumerate(params["types"]):
            offsets = plan.offsets.get(name, np.zeros(params["batches"] + 1, np.int64))[first : last + 1]
            nodes = plan.ids[name][offsets[0] : offsets[-1]] if name in train else none
            _emit_pairs(context, np.repeat(np.arange(last - first), np.diff(offsets)), nodes, node_type)


def _emit_pairs(context: TaskContext, batch: Int64Array, nodes: Int64Array, node_type: int) -> None:
    """Write nodes of a type in batches of a wave as pairs, by range: a partition for each."""
    bounds = range_bounds(context.params["nodes"], node_type)
    if len(bounds) == 1:
        return
    order, counts = native.partition(np.ascontiguousarray(nodes), np.array(bounds), context.threads)
    pairs = nodes[order] - np.repeat(bounds[:-1], counts)
    pairs |= batch[order] << _NODE_BITS
    context.write_all({"pair": pairs}, np.cumsum(counts))


def draw(context: TaskContext) -> None:
    """Sample from the lists of a range and relation: for each wave, emit the nodes that its batches reach, by range."""
    params = context.params
    epoch, at = divmod(context.index, len(params["lists"]))
    number, task = params["lists"][at]
    sampler, idle = _sampler(context, number, *params["nodes"][task][1:]), np.empty(0, np.int64)

    def find_nodes(batch: int, nodes: Int64Array) -> Int64Array:
        return idle if sampler is None else sampler.sample([nodes, idle, idle], params["epochs"][epoch], batch)[0][1]

    known, task = params["known"][-1:] if params["only_new"] else params["known"], epoch * len(params["nodes"]) + task
    with ThreadPoolExecutor(context.threads) as pool:
        for wave, (first, last) in enumerate(waves(params)):
            pairs = np.concatenate([context.read(step, task, wave)["pair"] for step in known])
            pairs.sort()
            ends = np.searchsorted(pairs, np.arange(1, last - first) << _NODE_BITS)
            pairs &= (1 << _NODE_BITS) - 1
            drawn = list(pool.map(find_nodes, range(first, last), np.split(pairs, ends)))
            batch = np.repeat(np.arange(len(drawn)), [nodes.size for nodes in drawn])
            _emit_pairs(context, batch, np.concatenate(drawn), params["relations"][number]["src"])


def _sampler(context: TaskContext, number: int, begin: int, end: int) -> native.Sampler | None:
    """Return the sampler of lists [begin, end) of a relation, with empty ones before it; ``None``: weights are 0."""
    params, relation, hop = context.params, context.params["relations"][number], context.params["hop"]
    indptr, indices, first = read_csc(context, relation["folder"], begin, end)
    weights = None
    if params["rule"] == "weighted":
        file = f"{relation['folder']}/weight"
        weights = context.share(open_manifest, params["graph"]).read(file, first, first + indices.size)
        if not (weights > 0).any():
            return None
        weights = weights if weights.dtype in (np.float32, np.float64) else weights.astype(np.float64)
    nothing = ("", 2, 2, np.zeros(1, np.int64), np.empty(0, np.int32), None)
    own = (relation["key"], 1, 0, indptr, indices, weights)
    return native.Sampler(
        type_names=["lists", "sources", "none"],
        num_nodes=[end - begin, relation["sources"], 0],
        relations=[nothing] * number + [own],
        fanouts=[[0] * (number + 1)] * hop + [[0] * number + [params["fanouts"][hop][number]]],
        frontier="all",
        node_keys=[np.arange(begin, end), None, None],
        seed=params["seed"],
        rule=params["rule"],
        threads=context.threads,
    )


def merge(context: TaskContext) -> None:
    """Merge the nodes that batches newly find: pairs of each wave, ascending; last, how often each node is found."""
    params = context.params
    epoch, task = divmod(context.index, len(params["nodes"]))
    _, begin, end = params["nodes"][task]
    counts = np.zeros(end - begin, np.int64)
    for wave in range(len(waves(params))):
        found = _distinct(np.concatenate([np.empty(0, np.int64), *_incoming(context, epoch, task, wave)]))
        for step in params["known"]:
            known = context.read(step, context.index, wave)["pair"]
            places = np.minimum(np.searchsorted(known, found), max(0, known.size - 1))
            found = found[known[places] != found] if known.size else found
        context.write(pair=found)
        counts += np.bincount(found & ((1 << _NODE_BITS) - 1), minlength=counts.size)
    write_counts(context, counts)


def _distinct(pairs: Int64Array) -> Int64Array:
    """Return pairs, ascending, each once; `pairs` are sorted in their place."""
    pairs.sort()
    first = np.ones(pairs.size, np.bool_)
    np.not_equal(pairs[1:], pairs[:-1], out=first[1:])
    return pairs[first]


def _incoming(context: TaskContext, epoch: int, task: int, wave: int) -> Iterator[Int64Array]:
    """Yield the pairs of a range that a wave has sampled, or its seeds."""
    params = context.params
    nodes, lists = params["nodes"], params["lists"]
    if "hop" not in params:
        yield context.read("seeds", epoch, wave * len(nodes) + task)["pair"]
        return
    of_type = [at for at, (node_type, _, _) in enumerate(nodes) if node_type == nodes[task][0]]
    partition = wave * len(of_type) + of_type.index(task)
    for number, (relation, _) in enumerate(lists):
        if params["relations"][relation]["src"] == nodes[task][0]:
            yield context.read(f"hop-{params['hop']}", epoch * len(lists) + number, partition)["pair"]
