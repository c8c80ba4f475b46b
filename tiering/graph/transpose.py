"""CSR on demand: the out-edges of a relation, made from its CSC."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiering import native
from tiering.formats.graph import Graph
from tiering.formats.manifest import Relation
from tiering.units import parse_threads


def csr(
    graph: Graph, relation: Relation | str | None = None, threads: int | str | None = None
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Adjacency of a relation by source, in memory.

    Parameters
    ----------
    relation
        As in `Graph.csc`; may be left out where the graph has one.

    Returns
    -------
    indptr : numpy.ndarray
        int64, shape (nodes of the source type + 1,).
    indices : numpy.ndarray
        int32 or int64, shape (edges,): ``indices[indptr[u]:indptr[u + 1]]`` are the out-neighbours of u, ascending.

    Notes
    -----
    Cost: two passes over the edges; memory 4 or 8 bytes per edge.
    """
    source, _, _ = resolved = graph.relation(relation)
    indptr, indices = graph.csc(resolved)
    rows, columns, _ = native.transpose(indptr, indices, graph.num_nodes(source), parse_threads(threads), False)
    return rows, columns
