"""Out-degree: a node that stands in many neighbour lists is sampled often."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from tiering import native
from tiering.formats.graph import Graph

Float64Array: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"


def degree_scores(graph: Graph, threads: int) -> dict[str, Float64Array]:
    """Number of times each node stands in `indices`, summed over relations; duplicates count.

    Returns
    -------
    dict of str to numpy.ndarray
        float64 of shape (num_nodes,) per node type.

    Notes
    -----
    Cost: one pass over the edges.
    """
    counts = {node_type: np.zeros(graph.num_nodes(node_type), np.int64) for node_type in graph.node_types}
    for relation in graph.relations:
        _, indices = graph.csc(relation)
        counts[relation[0]] += native.out_degrees(indices, graph.num_nodes(relation[0]), threads)
    return {node_type: each.astype(np.float64) for node_type, each in counts.items()}
