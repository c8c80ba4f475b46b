"""Compute a score by name and write it as an artifact."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from tiering.errors import InputError
from tiering.formats.artifact import ArtifactWriter
from tiering.formats.graph import Graph
from tiering.formats.scores import Scores
from tiering.formats.train_set import Train, resolve_train
from tiering.io.checksum import digest_bytes
from tiering.scores.degree import degree_scores
from tiering.scores.pagerank import TrainSet, reverse_pagerank, weighted_reverse_pagerank
from tiering.units import parse_threads

METHODS = ("degree", "rpr", "wrpr")
"""Names of the predictors."""
TELEPORTS = ("uniform", "train")


def score_graph(
    graph: Graph,
    method: str,
    out: str | os.PathLike[str],
    *,
    train: Train = None,
    damping: float = 0.85,
    sweeps: int = 5,
    teleport: str = "uniform",
    tolerance: float = 1e-9,
    seed: int = 0,
    threads: int | str | None = None,
    force: bool = False,
) -> Scores:
    """Score every node of `graph` and write the scores as an artifact.

    Parameters
    ----------
    graph
        A graph in original ids.
    method
        ``degree``: out-degree. ``rpr``: reverse PageRank to convergence. ``wrpr``: weighted reverse PageRank,
        `sweeps` passes from the training nodes. Formulas: `tiering.scores.pagerank`.
    out
        Directory to create.
    train
        Training nodes for ``wrpr`` and ``teleport="train"``; see `tiering.formats.train_set.resolve_train`.
    damping
        Share of a score that is handed on, 0 to below 1.
    sweeps
        Passes of ``wrpr``.
    teleport
        Who gets the rest: ``uniform`` all nodes, ``train`` the training nodes.
    tolerance
        ``rpr`` stops when the sum of absolute changes falls below it; scores start with the sum 1.
    seed
        Seed of a random training set (``train="1%"``).
    threads, force
        As in every stage.

    Raises
    ------
    InputError
        If a parameter does not fit, or a training set is needed and there is none.

    Notes
    -----
    Cost: one pass over the edges per sweep; memory 3 x 8 bytes per node.
    """
    if graph.order is not None:
        raise InputError(
            f"{graph.path}: this graph is reordered; scores are kept in original ids: score the graph it was made from"
        )
    options = score_options(method, damping, sweeps, teleport, tolerance)
    trained = needs_train(options)
    chosen = resolve_train(graph, train, seed) if trained else {}
    with ArtifactWriter(out, "scores", force=force) as writer:
        values, reached = _compute(graph, options, chosen, parse_threads(threads))
        for node_type in graph.node_types:
            writer.put(f"nodes/{node_type}/feature", values[node_type])
        body = {
            "method": method,
            "graph_digest": graph.digest,
            "node_types": list(graph.node_types),
            "columns": ["feature"],
        }
        inputs = {"graph": graph.digest, **({"train": train_digest(chosen)} if trained else {})}
        recorded = {**options, **({"reached": reached} if reached else {})}
        drawn = trained and _is_share(train)
        writer.commit(body, {"stage": "score", "options": recorded, "inputs": inputs, "seed": seed if drawn else None})
    return Scores.open(writer.out)


def score_options(
    method: str, damping: float = 0.85, sweeps: int = 5, teleport: str = "uniform", tolerance: float = 1e-9
) -> dict[str, Any]:
    """Check the parameters of a method and return those that matter to it, for the record."""
    if method not in METHODS:
        raise InputError(f"method: expected one of {', '.join(METHODS)}, found {method!r}")
    if method == "degree":
        return {"method": method}
    if not 0 <= damping < 1:
        raise InputError(f"damping: expected 0 to below 1, found {damping}")
    if teleport not in TELEPORTS:
        raise InputError(f"teleport: expected {' or '.join(TELEPORTS)}, found {teleport!r}")
    if method == "wrpr":
        if isinstance(sweeps, bool) or not isinstance(sweeps, int) or not 1 <= sweeps <= 10_000:
            raise InputError(f"sweeps: expected a whole number from 1 to 10000, found {sweeps!r}")
        return {"method": method, "damping": damping, "teleport": teleport, "sweeps": sweeps}
    if not 0 < tolerance < 1:
        raise InputError(f"tolerance: expected a number between 0 and 1, found {tolerance}")
    return {"method": method, "damping": damping, "teleport": teleport, "tolerance": tolerance}


def needs_train(options: Mapping[str, Any]) -> bool:
    """Whether a method with these options (of `score_options`) depends on the training set."""
    return options["method"] == "wrpr" or options.get("teleport") == "train"


def train_digest(train: TrainSet) -> str:
    """Digest of the training nodes as a set: their order does not matter to a score."""
    parts = [f"{t}:".encode() + np.sort(ids).astype("<i8").tobytes() for t, ids in sorted(train.items())]
    return digest_bytes(b"\0".join(parts))


def _is_share(train: Train) -> bool:
    values = train.values() if isinstance(train, Mapping) else [train]
    return any(isinstance(value, str) and "%" in value for value in values)


def _compute(
    graph: Graph, options: dict[str, Any], train: TrainSet, threads: int
) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    if options["method"] == "degree":
        return degree_scores(graph, threads), {}
    restarts = train if options["teleport"] == "train" else None
    damping = float(options["damping"])
    if options["method"] == "rpr":
        found = reverse_pagerank(graph, threads, damping=damping, tolerance=options["tolerance"], teleport=restarts)
    else:
        found = weighted_reverse_pagerank(
            graph, train, threads, damping=damping, sweeps=options["sweeps"], teleport=restarts
        )
    return found.values, {"sweeps": found.sweeps, "residual": found.residual, "damping": found.damping}
