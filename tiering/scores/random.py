"""A baseline: scores by chance. What a better method gains is gained over this one."""

from __future__ import annotations

import numpy as np
import xxhash

from tiering.formats.graph import Graph
from tiering.formats.shape import SizedGraph
from tiering.scores.options import HELP
from tiering.scores.request import HUGE_PAGE, SLACK, Float64Array, MemoryNeed, Method, ScoreColumns, ScoreRequest
from tiering.units import format_count

CHUNK = 1 << 18  # nodes whose scores are computed together
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def random(graph: Graph, request: ScoreRequest) -> ScoreColumns:
    """Compute method ``random``: uniform in [0, 1), a function of seed, name of the node type and id alone."""
    return ScoreColumns({t: _uniform(graph.num_nodes(t), t, request.seed) for t in graph.node_types})


def random_need(graph: SizedGraph, request: ScoreRequest) -> MemoryNeed:
    """Return 8 N."""
    need = 8 * graph.num_nodes() + len(graph.node_types) * HUGE_PAGE + SLACK
    return MemoryNeed(need, need, f"random: 8 bytes for each of {format_count(graph.num_nodes())} nodes")


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


RANDOM = Method(HELP["random"], random, random_need, seeded=True, edges=False)
