"""Nodes of a type by falling score, ties by original id, in tasks: the order, its inverse, and the score by rank.

Randomly sampled nodes give splitters. ``cut`` divides a chunk at these, ``merge`` sorts a range of ranks, ``write``
makes a file, range after range. Pairs (score, id) are compared, a total order: a score that many nodes share is divided
like any other. Memory: `NODE_BYTES` a node, and two blocks of 64 MiB.
"""

from __future__ import annotations

import numpy as np

from tiering import native
from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.artifacts.document import open_manifest
from tiering.artifacts.manifest import id_bytes
from tiering.artifacts.writer import ArtifactWriter
from tiering.errors import InputError
from tiering.formats.scores import Scores
from tiering.reorder.rank import Values, descending_keys
from tiering.run.files import TaskFile, ends_of, files_step, make_files, output_window
from tiering.run.grid import Int64Array, equal_bounds
from tiering.run.job import Job
from tiering.run.step import Step, TaskContext

_HERE = "tiering.reorder.tasks.order"
NODE_BYTES = 96  # memory of a task per node: score, key and id, unsorted and sorted, and what the sort holds
_SAMPLES = 256  # nodes, for each range, whose scores give the splitters
_MAX_SAMPLES = 1 << 20  # most such nodes of all ranges together


def write_order(job: Job, writer: ArtifactWriter, scores: Scores, node_type: str, count: int) -> None:
    """Write both directions of the order of a type and its scores by rank, by tasks."""
    name = f"order-{scores.node_types.index(node_type)}"
    job.expect(3)
    parts = job.grid.parts(count * NODE_BYTES)
    params = {"scores": str(scores.path), "node_type": node_type, "num_nodes": count, "parts": parts}
    chunk = -(-count // parts) * NODE_BYTES + 2 * BLOCK_BYTES
    ids = np.sort(np.random.default_rng(0).integers(0, count, min(_SAMPLES * parts, _MAX_SAMPLES)))
    keys = _keys(scores.values(node_type)[ids])
    order = np.lexsort((ids, keys))
    chosen = order[[order.size * part // parts for part in range(1, parts)]]
    splitters = list(zip(keys[chosen].tolist(), ids[chosen].tolist(), strict=True))
    cut = Step(f"{name}.cut", f"{_HERE}:cut", parts, {**params, "splitters": splitters}, memory=chunk)
    rows = np.sum([record["facts"]["rows"] for record in job.run(cut)], axis=0)
    before = [0, *np.cumsum(rows).tolist()]
    widest = int(rows.max()) * NODE_BYTES + 2 * BLOCK_BYTES
    merged = {**params, "from": cut.name, "before": before}
    merge = Step(f"{name}.merge", f"{_HERE}:merge", parts, merged, (cut.name,), widest)
    job.run(merge)
    job.release(cut)
    wide, even = id_bytes(count), np.diff(equal_bounds(count, parts)).tolist()
    files = [
        TaskFile(f"nodes/{node_type}/{key}", str(writer.path), dtype, [count], ends_of(item * n for n in sizes))
        for key, dtype, item, sizes in (
            ("new_to_old", f"int{8 * wide}", wide, rows.tolist()), ("score", "float64", 8, rows.tolist()),
            ("old_to_new", f"int{8 * wide}", wide, even),
        )
    ]  # fmt: skip
    params = {**params, "from": merge.name}
    step = files_step(f"{name}.files", f"{_HERE}:write", files, params, [merge.name], max(chunk, widest))
    make_files(job, writer, step)
    job.release(merge)


def cut(context: TaskContext) -> dict[str, list[int]]:
    """Write the nodes of a chunk by range of ranks: ascending ids, and scores; return the rows of each range."""
    params = context.params
    begin, end = equal_bounds(params["num_nodes"], params["parts"])[context.index : context.index + 2]
    scores = context.share(open_manifest, params["scores"]).read(f"nodes/{params['node_type']}/feature", begin, end)
    if np.isnan(scores).any():
        raise InputError(
            f"{params['scores']}: scores of node type {params['node_type']!r}: the score of node "
            f"{begin + int(np.argmax(np.isnan(scores)))} is NaN; score the graph again"
        )
    keys, splitters = _keys(scores), params["splitters"]
    span = [int(keys.min()), int(keys.max()) + 1] if keys.size else [0, 1]
    bounds = np.unique(np.array([*span, *(key + more for key, _ in splitters for more in (0, 1))], np.int64))
    order, counts = native.partition(keys, bounds, context.threads)
    starts, ends = np.cumsum(counts) - counts, []
    for key, node in splitters:  # nodes with the key of a splitter are a part of their own, which its id divides
        part = int(np.searchsorted(bounds, key))
        own = order[starts[part] : starts[part] + counts[part]]
        ends.append(int(starts[part] + np.searchsorted(own, max(0, node - begin))))
    ends.append(end - begin)
    context.write_all({"id": order.astype(f"i{id_bytes(params['num_nodes'])}") + begin, "score": scores[order]}, ends)
    return {"rows": np.diff(ends, prepend=0).tolist()}


def merge(context: TaskContext) -> None:
    """Write the nodes of a range of ranks in order: ids, scores, then (id, rank) by range of original ids."""
    params = context.params
    parts = list(context.read_many(params["from"], ((task, context.index) for task in range(params["parts"]))))
    ids, scores = (np.concatenate([part[column] for part in parts]) for column in ("id", "score"))
    # Chunks follow each other by id, and ids ascend in each: of equal scores the smaller id stands before the larger.
    order = native.sort_by_score(scores, context.threads)
    ids, scores = ids[order], scores[order]
    context.write(ids=ids)
    context.write(scores=scores)
    ranks = np.arange(params["before"][context.index], params["before"][context.index + 1], dtype=ids.dtype)
    bounds = np.array(equal_bounds(params["num_nodes"], params["parts"]), np.int64)
    places, counts = native.partition(ids, bounds, context.threads)
    context.write_all({"id": ids[places], "rank": ranks[places]}, np.cumsum(counts))


def write(context: TaskContext) -> None:
    """Write original ids by rank, scores by rank, or ranks by original id, range after range."""
    params, source = context.params, context.params["from"]
    bounds = equal_bounds(params["num_nodes"], params["parts"])
    with output_window(context) as out:
        for part in out.parts:
            if out.number < 2:
                out.append(next(iter(context.read(source, part, out.number).values())))
                continue
            ranks = np.full(bounds[part + 1] - bounds[part], -1, out.file.dtype)
            places = ((task, 2 + part) for task in range(params["parts"]))
            for piece in context.read_many(source, places, keep=False):
                ranks[piece["id"] - bounds[part]] = piece["rank"]
            out.append(ranks)


def _keys(scores: Values) -> Int64Array:
    """Return signed numbers that ascend as scores fall."""
    keys: Int64Array = (descending_keys(scores) ^ np.uint64(1 << 63)).view(np.int64)
    return keys
