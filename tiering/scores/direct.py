"""Scores that ask nothing of training: by chance (what a better method gains is over these), by degree, the user's own.

Out-degree: a node that stands in many neighbor lists is sampled often.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import xxhash

from tiering import native
from tiering.artifacts.reader import chunks
from tiering.artifacts.writer import ArtifactWriter
from tiering.errors import InputError
from tiering.formats.graph import Graph
from tiering.formats.shape import SizedGraph
from tiering.formats.user_arrays import UserArray, UserValues, featured_types, read_user_arrays
from tiering.run.grid import Int64Array
from tiering.run.job import Job
from tiering.run.step import TaskContext
from tiering.scores.blocks import emit_values, make_blocks, sum_out_edges
from tiering.scores.counts import column_sizes, in_place, join_columns
from tiering.scores.request import HUGE_PAGE, SLACK, Float64Array, MemoryNeed, Method, ScoreColumns, ScoreRequest
from tiering.text.units import format_count

CHUNK = 1 << 18  # nodes whose scores are computed, or read and checked, together
COUNTED_EDGES = 1 << 25  # edges whose out-degrees are counted together
OPTION = "--from"
_HERE = "tiering.scores.direct"
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def random(graph: Graph, request: ScoreRequest) -> ScoreColumns:
    """Compute method ``random``: uniform in [0, 1), a function of seed, name of the node type and id alone."""
    return ScoreColumns({t: _uniform(graph.num_nodes(t), t, request.seed) for t in graph.node_types})


def _need(what: str, chunks: int, graph: SizedGraph, request: ScoreRequest) -> MemoryNeed:
    """Return 8 N, and the bytes of chunks of what is read."""
    need = 8 * graph.num_nodes() + chunks + len(graph.node_types) * HUGE_PAGE + SLACK
    return MemoryNeed(need, need, f"{what}: 8 bytes for each of {format_count(graph.num_nodes())} nodes")


def _uniform(count: int, node_type: str, seed: int) -> Float64Array:
    """Return 53 bits of SplitMix64 (Steele, Lea, Flood, OOPSLA'14) at position `id`, from a key of type and seed."""
    key = np.uint64(xxhash.xxh3_64_intdigest(node_type.encode(), seed=seed))
    scores = np.empty(count)
    for begin in range(0, count, CHUNK):
        end = min(count, begin + CHUNK)
        bits = np.arange(begin + 1, end + 1, dtype=np.uint64) * _GOLDEN + key
        bits = (bits ^ (bits >> np.uint64(30))) * _FIRST
        bits = (bits ^ (bits >> np.uint64(27))) * _SECOND
        bits ^= bits >> np.uint64(31)
        scores[begin:end] = (bits >> np.uint64(11)) * 2.0**-53
    return scores


def degree(graph: Graph, request: ScoreRequest) -> ScoreColumns:
    """Count how often each node stands in `indices`, summed over relations; duplicates count. One pass."""
    counts: dict[str, Int64Array] = {}
    for relation in graph.relations:
        node_type, (_, indices) = relation[0], graph.csc(relation)
        degrees = native.out_degrees(indices, graph.num_nodes(node_type), request.threads)
        if node_type in counts:
            counts[node_type] += degrees
        else:
            counts[node_type] = degrees
    none = {t: np.zeros(graph.num_nodes(t), np.int64) for t in graph.node_types if t not in counts}
    return ScoreColumns({t: in_place((counts | none)[t], 1) for t in graph.node_types})


def degree_need(graph: SizedGraph, request: ScoreRequest) -> MemoryNeed:
    """Return 8 N, 8 more for the largest type if it is the source of several relations, 4 for 2^25 edges."""
    sources = [relation[0] for relation in graph.relations]
    again = max((graph.num_nodes(source) for source in sources if sources.count(source) > 1), default=0)
    batch = 4 * min(max(map(graph.num_edges, graph.relations), default=0), COUNTED_EDGES)
    need = 8 * (graph.num_nodes() + again) + batch + 256 * 160 * request.threads + SLACK + 2 * HUGE_PAGE
    return MemoryNeed(need, need, f"degree: 8 bytes for each of {format_count(graph.num_nodes())} nodes and counters")


def _run_degree(job: Job, writer: ArtifactWriter, graph: Graph, _: ScoreRequest) -> ScoreColumns:
    """Count by tasks, as a sweep in which each list passes 1 along; sums are exact below 2^53."""
    job.expect(5)
    blocks = make_blocks(job, graph, {})
    ones = blocks.make_step("ones", f"{_HERE}:pass_ones")
    job.run(ones)
    counted = blocks.make_step("counted", f"{_HERE}:count_lists", ones.name)
    job.run(counted)
    job.release(ones)
    join_columns(job, writer, column_sizes(graph)[0], counted.name, blocks.params["nodes"])
    return ScoreColumns({})


def pass_ones(context: TaskContext) -> None:
    """Leave 1 for each list of a task's nodes."""
    context.write(none=np.empty(0))
    emit_values(context, lambda _, __, columns: np.ones(columns.size))


def count_lists(context: TaskContext) -> None:
    """Write how many entries each of a task's nodes has in the lists of all relations."""
    context.write(degree=sum_out_edges(context))


def read_user_scores(graph: SizedGraph, values: UserValues) -> tuple[dict[str, UserArray], list[str]]:
    """Return arrays of scores by node type, lengths checked, and notes; types without features may be omitted."""
    arrays = read_user_arrays(graph, values, "one score per node", OPTION, "iuf")
    for node_type, array in arrays.items():
        if array.values.size != graph.num_nodes(node_type):
            raise InputError(
                f"{array.where}: expected {graph.num_nodes(node_type)} scores, one per node of type {node_type!r} "
                f"in original ids, found {array.values.size}; compute them for this graph"
            )
    missing = [node_type for node_type in featured_types(graph) if node_type not in arrays]
    if missing:
        raise InputError(
            f"{OPTION}: scores of node types with features are missing: {', '.join(missing)}; give "
            f"{' '.join(f'{OPTION} {node_type}=FILE' for node_type in missing)}"
        )
    others = [node_type for node_type in graph.node_types if node_type not in arrays]
    notes = [f"scores of {', '.join(others)} are all 0: no features, and none were given"] if others else []
    return {node_type: arrays[node_type] for node_type in graph.node_types if node_type in arrays}, notes


def user_scores(graph: Graph, request: ScoreRequest) -> ScoreColumns:
    """Return the user's scores as float64; `InputError` for one that is negative or not finite. One pass over them."""
    return ScoreColumns({t: _checked(request.user_scores.get(t), graph.num_nodes(t)) for t in graph.node_types})


def _checked(array: UserArray | None, count: int) -> Float64Array:
    scores = np.zeros(count)
    for first, end, (part,) in chunks([array.values], CHUNK) if array is not None else ():
        own = scores[first:end]
        own[:] = part
        wrong = np.flatnonzero(~(own >= 0) | np.isinf(own))
        if wrong.size and array is not None:
            raise InputError(
                f"{array.where}: expected finite scores of 0 or more, found {own[wrong[0]]} at node "
                f"{first + wrong[0]}; correct it"
            )
    return scores


RANDOM = Method(random, partial(_need, "random", 0), seeded=True, edges=False)
DEGREE = Method(degree, degree_need, tasks=_run_degree)
USER_SCORES = Method(user_scores, partial(_need, "given scores", 4 * 8 * CHUNK), edges=False)
"""Takes the place of a method where the user has computed the scores."""
