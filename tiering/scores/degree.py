"""Out-degree: a node that stands in many neighbour lists is sampled often."""

from __future__ import annotations

import numpy as np

from tiering import native
from tiering.formats.graph import Graph
from tiering.formats.shape import SizedGraph
from tiering.run.grid import Int64Array
from tiering.scores.counts import in_place
from tiering.scores.options import HELP
from tiering.scores.request import HUGE_PAGE, SLACK, MemoryNeed, Method, ScoreColumns, ScoreRequest
from tiering.units import format_count

COUNTED_EDGES = 1 << 25  # edges whose out-degrees are counted together


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


DEGREE = Method(HELP["degree"], degree, degree_need)
