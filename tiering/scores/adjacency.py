"""Bytes of adjacency that sampling reads: from predicted reads of lists, degrees and fanouts."""

from __future__ import annotations

import numpy as np

from tiering.artifacts.manifest import Relation, relation_key
from tiering.errors import InputError
from tiering.formats.graph import Graph
from tiering.formats.graph_checks import take_by_rank
from tiering.formats.scores import Scores
from tiering.sampling import list_read_bytes
from tiering.scores.request import Float64Array


def adjacency_bytes(graph: Graph, scores: Scores, relation: Relation | str | None = None) -> Float64Array:
    """Return the expected bytes of each node's in-neighbour list in a relation read per epoch, in the ids of `graph`.

    Predicted reads (the column ``adjacency``) times `tiering.sampling.list_read_bytes`; float64, shape (nodes of the
    destination type,). `graph` is the one that was scored, or one reordered from it.
    """
    resolved = graph.relation(relation)
    reads = scores.adjacency(resolved)
    if graph.order is not None:
        reads = take_by_rank(reads, graph, resolved[2])
    elif scores.graph_digest != graph.digest:
        raise InputError(f"{scores.path}: computed on another graph than {graph.path}; score this one")
    indptr, indices = graph.csc(resolved)
    sampling, key = scores.manifest.provenance["options"]["sampling"], relation_key(resolved)
    fanouts = [hop if isinstance(hop, int) else hop[key] for hop in sampling["fanouts"]]
    nbytes: Float64Array = reads * list_read_bytes(np.diff(indptr), indices.itemsize, sampling["sampler"], fanouts)
    return nbytes
