"""Compute a score by name and write it as an artifact; the bytes of adjacency that it predicts sampling to read."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from typing import Any

import numpy as np

from tiering.artifacts.manifest import Relation, relation_key
from tiering.artifacts.writer import ArtifactWriter
from tiering.errors import InputError, StorageError
from tiering.formats.graph import Graph, graph_errors, take_by_rank
from tiering.formats.scores import Scores
from tiering.progress import note
from tiering.run.carrier import Carrier
from tiering.sampling import list_read_bytes
from tiering.scores.counts import column_sizes
from tiering.scores.plan import ScorePlan, plan_score
from tiering.scores.request import Float64Array
from tiering.version import __version__


def score_graph(
    graph: Graph,
    method: str,
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    carrier: Carrier | None = None,
    **parameters: Any,
) -> Scores:
    """Score every node, large graphs by tasks of `carrier`, as an artifact; parameters: `tiering.score_graph`."""
    plan = plan_score(graph, method, carrier=carrier, **parameters)
    if plan.in_process:
        plan.request.budget.require(plan.need.minimum, plan.need.what)
    made = {"stage": "score", "options": plan.options, "inputs": plan.inputs, "seed": plan.seed}
    identity = {**made, "package": __version__}
    with ArtifactWriter(out, "scores", force=force, identity=identity, reads=(graph,)) as writer:
        for text in plan.notes:
            note(f"note: {text}")
        reached = _write_columns(writer, graph, plan, carrier)
        body = {
            "method": plan.name,
            "graph_digest": graph.digest,
            "node_types": list(graph.node_types),
            "columns": ["feature"],
        }
        recorded = {**plan.options, **({"reached": reached} if reached else {})}
        writer.commit(body, {**made, "options": recorded})
    return Scores.open(writer.out)


def _write_columns(writer: ArtifactWriter, graph: Graph, plan: ScorePlan, carrier: Carrier | None) -> dict[str, Any]:
    """Write the columns unless an earlier run did; return what the method records about itself."""
    journal = writer.journal
    known = journal.get("columns")
    if known is not None and writer.has(*known["files"]):
        return dict(known["reached"])
    (features, lists), request = column_sizes(graph), replace(plan.request, scratch=writer.path)
    try:
        with graph_errors(graph):
            if plan.tasks and carrier is not None and plan.method.tasks is not None:
                columns = plan.method.tasks(carrier.job(writer), writer, graph, request)
            else:
                columns = plan.method.compute(graph, request)
    except StorageError as error:
        if error.errno != errno.ENOSPC or not plan.in_process:
            raise
        text = f"{error.strerror}; make room, or give more memory, so that less goes to disk"
        raise StorageError(errno.ENOSPC, text) from error
    for name, values in columns.files().items():
        writer.put(name, values)
    names = [*features, *(lists if plan.request.sampling else ())]
    journal.record("columns", files=names, reached=columns.reached)
    return columns.reached


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
