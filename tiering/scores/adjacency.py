"""Bytes of adjacency that sampling reads: from predicted reads of lists, degrees and fanouts."""

from __future__ import annotations

import numpy as np

from tiering.errors import InputError
from tiering.formats.graph import Graph
from tiering.formats.manifest import Relation, relation_key
from tiering.formats.scores import Scores
from tiering.scores.request import Float64Array

INDPTR_BYTES = 16
"""Begin and end of a list."""


def adjacency_bytes(graph: Graph, scores: Scores, relation: Relation | str | None = None) -> Float64Array:
    """Expected bytes of each node's list of in-neighbours in a relation that are read per epoch.

    A read touches the list's begin and end (16 bytes) and the entries drawn: ``min(fanout, degree)``, all for fanout -1
    and for ``ladies``, one for each step of a ``pinsage`` walk. Where hops have different fanouts, the mean over those
    that read the relation at all. Edge data such as weights come on top.

    Parameters
    ----------
    graph
        The graph that was scored, or one reordered from it.
    scores
        With a column ``adjacency``.
    relation
        As in `Graph.relation`.

    Returns
    -------
    numpy.ndarray
        float64, shape (nodes of the destination type,), in the ids of `graph`.

    Raises
    ------
    MissingError
        If there is no such relation, or the method predicts no reads.
    InputError
        If the scores are of another graph.
    """
    resolved = graph.relation(relation)
    reads = scores.adjacency(resolved)
    if graph.order is not None:
        reads = reads[graph.new_to_old(resolved[2])]
    elif scores.graph_digest != graph.digest:
        raise InputError(f"{scores.path}: computed on another graph than {graph.path}; score this one")
    indptr, indices = graph.csc(resolved)
    entries = _entries(np.diff(indptr), scores, resolved)
    found: Float64Array = reads * (INDPTR_BYTES + indices.itemsize * entries)
    return found


def _entries(degrees: np.ndarray[tuple[int], np.dtype[np.int64]], scores: Scores, relation: Relation) -> Float64Array:
    """Entries of each list that a read touches, on average over the hops that read the relation."""
    sampling = scores.manifest.provenance["options"]["sampling"]
    if sampling["sampler"] == "ladies":
        return degrees.astype(np.float64)
    if sampling["sampler"] == "pinsage":
        return np.minimum(degrees, 1).astype(np.float64)
    key = relation_key(relation)
    fanouts = [hop if isinstance(hop, int) else hop[key] for hop in sampling["fanouts"]]
    drawn = [degrees if fanout < 0 else np.minimum(degrees, fanout) for fanout in fanouts if fanout]
    total: Float64Array = sum(drawn, np.zeros(degrees.size)) / max(1, len(drawn))
    return total
