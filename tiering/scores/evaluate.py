"""How good a score is: the share of the sampler's accesses that a tier filled by it would serve.

The truth is counted, not modelled: the training sampler runs for some epochs, and every unique node of every batch is
one access to its feature row. A score ranks all rows; its hit rate at a capacity of k rows is the share of accesses
that go to its first k rows. The oracle ranks by the counts themselves: no score does better on these epochs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.errors import InputError
from tiering.formats.graph import Graph
from tiering.formats.scores import Scores
from tiering.formats.train_set import Train, resolve_train
from tiering.progress import progress
from tiering.sampling import AccessCounts, Fanout, FrontierRule, NeighborSampler
from tiering.units import parse_threads

ORACLE = "oracle"
"""Name of the ranking by true counts in every result."""
SHARES = (0.01, 0.02, 0.05, 0.10, 0.20, 0.40)
"""Capacities reported by default, as shares of all feature rows."""
CURVE_POINTS = 200
"""Points of a curve, evenly spaced on a logarithmic scale of capacity."""

FloatArray: TypeAlias = "npt.NDArray[np.float64]"
IntArray: TypeAlias = "npt.NDArray[np.int64]"
Score: TypeAlias = "Scores | Mapping[str, npt.ArrayLike]"
"""A scores artifact, or one vector per node type."""


@dataclass(frozen=True)
class Evaluation:
    """Hit rates of each score beside the oracle's."""

    shares: list[float]
    """Capacities as shares of all feature rows."""
    hit_rates: dict[str, list[float]]
    """Per score, and `ORACLE` last: share of accesses served at each capacity."""
    curve_rows: IntArray = field(repr=False)
    """Capacities of the curves in rows, ascending from 0 to `num_rows`."""
    curves: dict[str, FloatArray] = field(repr=False)
    """Per score, and `ORACLE`: hit rate at each of `curve_rows`."""
    num_rows: int
    """Feature rows that compete: of all node types with features, or of all types if none has any."""
    accesses: int
    """Accesses counted, over all epochs."""
    batches: int
    """Batches sampled, over all epochs."""
    touched: int
    """Rows that were accessed at least once."""
    parameters: dict[str, Any]
    """Fanouts, batch size, epochs, seed, frontier, training nodes per type, node types."""

    def rows(self) -> list[tuple[str, list[float]]]:
        """Name and hit rates of each score, best first at the middle capacity, the oracle last."""
        middle = len(self.shares) // 2
        scores = [(name, rates) for name, rates in self.hit_rates.items() if name != ORACLE]
        scores.sort(key=lambda item: -item[1][middle])
        return [*scores, (ORACLE, self.hit_rates[ORACLE])]

    def table(self) -> str:
        """Hit rates as text, one line per score."""
        width = max(len("rows cached"), *(len(name) for name in self.hit_rates))
        head = f"{'rows cached':<{width}}" + "".join(f"{100 * share:>8.4g}%" for share in self.shares)
        lines = [f"{name:<{width}}" + "".join(f"{rate:>9.3f}" for rate in rates) for name, rates in self.rows()]
        return "\n".join([head, *lines])

    def to_json(self, *, curves: bool = False) -> dict[str, Any]:
        """JSON form; `curves` adds the points that `tiering.scores.plot.plot` draws."""
        found: dict[str, Any] = {
            "shares": self.shares,
            "hit_rates": self.hit_rates,
            "num_rows": self.num_rows,
            "accesses": self.accesses,
            "batches": self.batches,
            "rows_per_batch": self.accesses / self.batches,
            "touched_rows": self.touched,
            "parameters": self.parameters,
        }
        if curves:
            points = {name: curve.tolist() for name, curve in self.curves.items()}
            found["curves"] = {"rows": self.curve_rows.tolist(), "hit_rates": points}
        return found


def evaluate(
    graph: Graph,
    scores: Mapping[str, Score],
    fanouts: Sequence[Fanout],
    *,
    batch_size: int = 1024,
    epochs: int = 3,
    train: Train = None,
    seed: int = 0,
    frontier: FrontierRule = "all",
    first_epoch: int = 0,
    shares: Sequence[float] = SHARES,
    threads: int | str | None = None,
) -> Evaluation:
    """Sample some epochs of training and report what share of the accesses each score would have served.

    Parameters
    ----------
    graph
        The graph to sample, in original ids or reordered.
    scores
        Name to score; `named_scores` names artifacts. Vectors hold one value per node, in original ids; a node type
        without a vector counts as score 0. May be empty: then only the oracle is reported.
    fanouts, frontier, seed
        Of the sampler: `tiering.sampling.NeighborSampler`.
    batch_size
        Training nodes per batch.
    epochs
        Epochs to count, starting at `first_epoch`.
    train
        Training nodes, where the graph's own split is not meant: `tiering.formats.train_set.resolve_train`.
    shares
        Capacities to report, as shares of all rows in [0, 1].

    Raises
    ------
    InputError
        If there are no training nodes (the message says how to give them), or a parameter or score does not fit.

    Notes
    -----
    Rows of all node types are ranked on one scale, ties by type and id; capacity is a number of rows.
    Cost: the sampling, and one sort of all rows per score. Memory: about 40 bytes per row.
    """
    _check_parameters(epochs, first_epoch, shares, scores)
    workers = parse_threads(threads)
    types = ranked_types(graph)
    vectors = {name: _vector(graph, types, name, score) for name, score in scores.items()}
    sampler = NeighborSampler(graph, fanouts, frontier=frontier, seed=seed)
    nodes = resolve_train(graph, train, seed)
    counts, batches = count_epochs(sampler, nodes, batch_size, range(first_epoch, first_epoch + epochs), workers)
    truth = np.concatenate([counts.features[t] for t in types])
    curve_rows = _curve_rows(truth.size)
    capacities = np.concatenate([curve_rows, [int(share * truth.size) for share in shares]]).astype(np.int64)
    curves: dict[str, FloatArray] = {}
    rates: dict[str, list[float]] = {}
    for name, values in [*vectors.items(), (ORACLE, truth.astype(np.float64))]:
        covered = hit_rate_curve(truth, values, capacities, workers)
        curves[name], rates[name] = covered[: curve_rows.size], covered[curve_rows.size :].tolist()
    return Evaluation(
        shares=list(shares),
        hit_rates=rates,
        curve_rows=curve_rows,
        curves=curves,
        num_rows=int(truth.size),
        accesses=int(truth.sum()),
        batches=batches,
        touched=int(np.count_nonzero(truth)),
        parameters={
            "fanouts": [f if isinstance(f, int) else {_key(r): n for r, n in f.items()} for f in fanouts],
            "frontier": frontier,
            "batch_size": batch_size,
            "epochs": epochs,
            "first_epoch": first_epoch,
            "seed": seed,
            "train_nodes": {t: int(ids.size) for t, ids in nodes.items()},
            "node_types": types,
        },
    )


def ranked_types(graph: Graph) -> list[str]:
    """Node types whose rows compete for a tier: those with features, or all where none has any."""
    with_features = [t for t in graph.node_types if graph.feature_table(t) is not None]
    return with_features or list(graph.node_types)


def named_scores(graph: Graph, scores: Sequence[Scores]) -> dict[str, Score]:
    """Name artifacts by their method, and by their directory too where a method comes twice.

    Raises
    ------
    InputError
        If one was computed on another graph.
    """
    methods = [score.method for score in scores]
    found: dict[str, Score] = {}
    for score in scores:
        if graph.order is None and score.graph_digest != graph.digest:
            raise InputError(
                f"{score.path}: computed on another graph than {graph.path} (digest {score.graph_digest}, expected "
                f"{graph.digest}); run `tiering score {graph.path} --method {score.method} --out NEW`"
            )
        name = score.method if methods.count(score.method) == 1 else f"{score.method} ({score.path.name})"
        found[name if name not in found else f"{score.method} ({score.path})"] = score
    return found


def count_epochs(
    sampler: NeighborSampler,
    train: Mapping[str, npt.ArrayLike],
    batch_size: int,
    epochs: Sequence[int],
    threads: int,
) -> tuple[AccessCounts, int]:
    """Count the accesses of whole epochs, with a progress bar.

    Returns
    -------
    counts : AccessCounts
        Sums over all epochs.
    batches : int
        Batches sampled.
    """
    counts = AccessCounts.zeros(sampler.graph)
    size = sum(np.asarray(ids).size for ids in train.values())
    per_epoch = -(-size // max(batch_size, 1))
    step = max(8 * threads, per_epoch // 50)
    with progress(per_epoch * len(epochs), "sampling", "batch") as bar:
        for epoch in epochs:
            plan = sampler.batches(train, batch_size, epoch)
            for first in range(0, len(plan), step):
                last = min(first + step, len(plan))
                sampler.count_accesses(plan, counts, first=first, last=last, threads=threads)
                bar.update(last - first)
    return counts, per_epoch * len(epochs)


def hit_rate_curve(truth: IntArray, score: FloatArray, capacities: IntArray, threads: int = 1) -> FloatArray:
    """Share of accesses served by the best `capacities` rows of a score.

    Parameters
    ----------
    truth
        int64, accesses per row.
    score
        float64, one value per row; higher ranks first, ties by row.
    capacities
        int64, numbers of rows from 0 to the number of rows, in any order.

    Returns
    -------
    numpy.ndarray
        float64, shape of `capacities`; 0 where nothing was accessed at all.
    """
    covered = np.zeros(truth.size + 1, np.int64)
    np.cumsum(truth[native.sort_by_score(score, threads)], out=covered[1:])
    rates: FloatArray = covered[capacities] / max(int(covered[-1]), 1)
    return rates


def _check_parameters(epochs: int, first_epoch: int, shares: Sequence[float], scores: Mapping[str, Score]) -> None:
    if epochs < 1:
        raise InputError(f"epochs: expected 1 or more, found {epochs}")
    if first_epoch < 0:
        raise InputError(f"first epoch: expected 0 or more, found {first_epoch}")
    if bad := [share for share in shares if not 0 <= share <= 1]:
        raise InputError(f"shares: expected values between 0 and 1, found {bad[0]}")
    if not shares:
        raise InputError("shares: expected at least one capacity, found none")
    if ORACLE in scores:
        raise InputError(f"scores: {ORACLE!r} is the name of the true counts; give the score another name")


def _vector(graph: Graph, types: Sequence[str], name: str, score: Score) -> FloatArray:
    """One score over all competing rows, in the graph's own ids."""
    parts = []
    for node_type in types:
        count = graph.num_nodes(node_type)
        known = score.node_types if isinstance(score, Scores) else list(score)
        if node_type not in known:
            parts.append(np.zeros(count))
            continue
        found = score.values(node_type) if isinstance(score, Scores) else score[node_type]
        values = np.asarray(found, dtype=np.float64)
        where = f"score {name!r}, node type {node_type!r}"
        if values.shape != (count,):
            raise InputError(
                f"{where}: expected shape ({count},), one value per node of {graph.path}, found {values.shape}"
            )
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            raise InputError(f"{where}: expected finite values, found {values[bad[0]]} at node {bad[0]}")
        parts.append(values if graph.order is None else values[graph.new_to_old(node_type)])
    return np.concatenate(parts)


def _curve_rows(num_rows: int) -> IntArray:
    points = np.geomspace(1, max(num_rows, 1), CURVE_POINTS).round().astype(np.int64)
    return np.unique(np.concatenate([[0], np.minimum(points, num_rows)])).astype(np.int64)


def _key(relation: Any) -> str:
    return relation if isinstance(relation, str) else ":".join(relation)
