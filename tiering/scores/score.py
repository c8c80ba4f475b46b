"""Compute a score by name and write it as an artifact."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from typing import Any

from tiering.artifacts.writer import ArtifactWriter
from tiering.errors import StorageError
from tiering.formats.graph import Graph
from tiering.formats.graph_checks import graph_errors
from tiering.formats.scores import Scores
from tiering.progress import note
from tiering.run.carrier import Carrier
from tiering.scores.columns import column_sizes
from tiering.scores.plan import ScorePlan, plan_score
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
    """Score every node of `graph` and write the scores as an artifact; `tiering.score_graph` has the parameters.

    `carrier` runs large scores as tasks, to the same bytes. A run that is stopped while it writes them goes on.
    """
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
