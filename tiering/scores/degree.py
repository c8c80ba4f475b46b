"""Out-degree: a node that stands in many neighbour lists is sampled often."""

from __future__ import annotations

import numpy as np

from tiering import native
from tiering.formats.graph import Graph
from tiering.scores.request import ScoreColumns, ScoreRequest


def degree(graph: Graph, request: ScoreRequest) -> ScoreColumns:
    """Number of times each node stands in `indices`, summed over relations; duplicates count.

    Notes
    -----
    Cost: one pass over the edges.
    """
    counts = {node_type: np.zeros(graph.num_nodes(node_type), np.int64) for node_type in graph.node_types}
    for relation in graph.relations:
        _, indices = graph.csc(relation)
        counts[relation[0]] += native.out_degrees(indices, graph.num_nodes(relation[0]), request.threads)
    return ScoreColumns({node_type: each.astype(np.float64) for node_type, each in counts.items()})
