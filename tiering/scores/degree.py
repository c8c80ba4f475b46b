"""Out-degree: a node that stands in many neighbour lists is sampled often."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.formats.graph import Graph
from tiering.scores.presample import in_place
from tiering.scores.request import ScoreColumns, ScoreRequest


def degree(graph: Graph, request: ScoreRequest) -> ScoreColumns:
    """Number of times each node stands in `indices`, summed over relations; duplicates count.

    Notes
    -----
    Cost: one pass over the edges. Memory: `tiering.scores.memory.degree_need`.
    """
    counts: dict[str, npt.NDArray[np.int64]] = {}
    for relation in graph.relations:
        node_type, (_, indices) = relation[0], graph.csc(relation)
        found = native.out_degrees(indices, graph.num_nodes(node_type), request.threads)
        if node_type in counts:
            counts[node_type] += found
        else:
            counts[node_type] = found
    none = {t: np.zeros(graph.num_nodes(t), np.int64) for t in graph.node_types if t not in counts}
    return ScoreColumns({t: in_place((counts | none)[t], 1) for t in graph.node_types})
