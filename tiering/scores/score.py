"""Compute a score by name and write it as an artifact."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tiering.artifacts.writer import ArtifactWriter
from tiering.errors import InputError, StorageError
from tiering.formats.graph import Graph, relation_folder
from tiering.formats.graph_checks import graph_errors
from tiering.formats.scores import Scores
from tiering.formats.train_set import Train
from tiering.formats.user_arrays import UserValues
from tiering.memory import Budget
from tiering.progress import note
from tiering.run.carrier import Carrier
from tiering.scores.plan import ScorePlan, plan_score
from tiering.scores.tasks.columns import write_columns
from tiering.version import __version__


def score_graph(
    graph: Graph,
    method: str,
    out: str | os.PathLike[str],
    *,
    scores: UserValues | None = None,
    train: Train = None,
    seed: int | None = None,
    threads: int | str | None = None,
    memory: str | int | Budget | None = None,
    force: bool = False,
    carrier: Carrier | None = None,
    **options: Any,
) -> Scores:
    """Score every node of `graph` and write the scores as an artifact.

    Parameters
    ----------
    graph
        A graph in original ids.
    method
        ``degree``: out-degree. ``rpr``: reverse PageRank to convergence. ``wrpr``: weighted reverse PageRank, a few
        passes from the training nodes. ``presample``: accesses counted in some sampled epochs. ``vip``: expected
        accesses from fanouts and degrees. ``hybrid``: ``presample`` with ``vip`` as prior. ``auto``: ``hybrid`` if
        there are fanouts, else ``wrpr`` if there are training nodes, else ``rpr``. ``random``: by chance, a baseline.
        Each has a module in `tiering.scores` with formula and cost.
    out
        Directory to create.
    scores
        Scores that you have computed, in the place of a method: one finite number of 0 or more for each node, in
        original ids. An array or the path of a ``.npy`` file for the only node type (or the only one with features);
        else a mapping from node type to one of these, with every type that has features in it. They are recorded as
        method ``given``.
    train
        Training nodes, where the graph's own split is not meant; see `tiering.formats.train_set.resolve_train`. For
        ``presample`` and ``hybrid`` their order matters as it does in training.
    seed
        Seed of the sampler, of ``random``, and of a random training set (``train="1%"``); 0 if not given.
    **options
        What matters to the method; the others are noted and ignored. ``damping``, ``sweeps``, ``teleport``,
        ``tolerance``, ``epochs``, ``first_epoch``, ``prior_weight``: `tiering.scores.request.ScoreOptions`.
        ``fanouts`` (in any form of `tiering.units.parse_fanouts`), ``batch_size``, ``frontier``, ``sampler`` and those
        of one sampler: `tiering.sampling.SamplingOptions`.
    threads, force
        As in every stage.
    carrier
        Runs large scores as tasks, to the same bytes.
    memory
        What to stay within: ``8GiB``, ``50%``, a budget; ``auto`` is most of what is free. Edges that do not fit lie in
        a nameless file next to `out` meanwhile. The scores are the same for any.

    Raises
    ------
    InputError
        If an option does not fit, or fanouts or a training set are needed and there are none.
    BudgetError
        If the memory is less than the minimum of the method (docs/scores.md has the formulas).
    StorageError
        If the disk is full; says how many bytes are needed and free.

    Notes
    -----
    Notes (what ``auto`` chose, which options have no effect) go to standard error. A run that is stopped before its
    scores are computed computes them anew; one stopped while they are written, or before its end, does not.
    """
    if graph.order is not None:
        raise InputError(
            f"{graph.path}: this graph is reordered; scores are kept in original ids: score the graph it was made from"
        )
    plan = plan_score(
        graph, method, scores=scores, train=train, seed=seed, threads=threads, memory=memory, carrier=carrier, **options
    )
    if not plan.tasks:
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
    journal = writer.required_journal()
    known = journal.get("columns")
    if known is not None and writer.has(*known["files"]):
        return dict(known["reached"])
    if plan.tasks and carrier is not None:
        names, reached = write_columns(carrier, writer, graph, plan)
        journal.record("columns", files=names, reached=reached)
        return reached
    with _scratch_errors(), graph_errors(graph):
        columns = plan.method.compute(graph, replace(plan.request, scratch=writer.path))
    files = {f"nodes/{node_type}/feature": columns.feature[node_type] for node_type in graph.node_types}
    files |= {f"{relation_folder(relation)}/adjacency": reads for relation, reads in columns.adjacency.items()}
    for name, values in files.items():
        writer.put(name, values)
    journal.record("columns", files=list(files), reached=columns.reached)
    return columns.reached


@contextmanager
def _scratch_errors() -> Iterator[None]:
    """Say what to do where the disk refuses the core's scratch file."""
    try:
        yield
    except StorageError as error:
        if error.errno != errno.ENOSPC:
            raise
        text = f"{error.strerror}; make room, or give more memory, so that less goes to disk"
        raise StorageError(errno.ENOSPC, text) from error
