"""Pre-sampled counts with an analytic prior: how much of a node's count is signal is read off the counts themselves.

A few epochs rank the hottest nodes well and the rest hardly at all; an analytic score ranks all, with errors.
Among nodes that the prior takes for alike, counts of several epochs scatter by the noise of sampling, their means by
noise and true difference. The posterior mean weighs by that (empirical Bayes, Efron and Morris 1973; no parameter).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tiering import native
from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.graph import Graph
from tiering.formats.shape import SizedGraph
from tiering.run.grid import Int64Array
from tiering.run.job import Job
from tiering.scores.counts import CHUNK, AccessSums, count_arrays, reached, read_sums
from tiering.scores.options import ScoreOptions
from tiering.scores.pagerank import wrpr, wrpr_need
from tiering.scores.presample import COUNTING, count_by_tasks, count_epochs, presample_need
from tiering.scores.request import SLACK, Float64Array, MemoryNeed, Method, ScoreColumns, ScoreRequest, list_nodes
from tiering.scores.vip import SAMPLERS, vip, vip_need
from tiering.text.units import format_count

FIXED_WEIGHT = 0.25
"""Epochs that the prior counts for where one epoch alone was sampled, which says nothing about noise."""
FIRST_BIN = 200  # nodes of the hottest bin
GROWTH = 1.15  # nodes of a bin per node of the bin before
LARGEST_BIN = 1 << 22  # nodes at which bins stop growing, which bounds the memory
_DROPPED_BITS = 53 - 24
UNSEEN = 1e-9  # factor of the prior in bins in which nothing was counted: they rank by the prior, below all others


def hybrid(graph: Graph, request: ScoreRequest) -> ScoreColumns:
    """Compute method ``hybrid``: posterior means; the prior is ``vip`` or, for other samplers, ``wrpr`` scaled."""
    return _posterior(graph, request, count_epochs(graph, request, squares=needs_squares(request)))


def _run_tasks(job: Job, writer: ArtifactWriter, graph: Graph, request: ScoreRequest) -> ScoreColumns:
    """Count by tasks; compute the prior and weigh both in this process."""
    squares = needs_squares(request)
    return _posterior(graph, request, read_sums(job, graph, count_by_tasks(job, graph, request, squares), squares))


def needs_squares(request: ScoreRequest) -> bool:
    """Return whether the epochs that the prior counts for are found from the counts of several epochs."""
    return request.options.prior_weight is None and request.options.epochs > 1


def _posterior(graph: Graph, request: ScoreRequest, sums: AccessSums) -> ScoreColumns:
    """Compute the prior, and weigh it with the counts in its memory."""
    epochs, weight = request.options.epochs, request.options.prior_weight
    weight = FIXED_WEIGHT if weight is None else weight
    train = {t: np.unique(ids) if t in request.seed_time else ids for t, ids in request.train.items()}
    besides = replace(request, train=train, budget=request.budget.without(sums.nbytes))
    prior = vip(graph, besides) if request.sampled.sampler in SAMPLERS else _ranked_prior(graph, besides, sums)
    columns = (*prior.feature.values(), *prior.adjacency.values())
    for column in columns:
        round_prior(column)
    totals, of_squares = count_arrays(sums.total), count_arrays(sums.squares or sums.total)
    for column, total, squares in zip(columns, totals, of_squares, strict=True):
        if sums.squares is not None:
            shrink(column, total, squares, epochs, request.threads)
            continue
        for begin in range(0, column.size, CHUNK):
            part = column[begin : begin + CHUNK]
            part *= weight
            part += total[begin : begin + CHUNK]
            part /= weight + epochs
    return ScoreColumns(prior.feature, prior.adjacency, reached(request, sums.total.total))


def hybrid_need(graph: SizedGraph, request: ScoreRequest) -> MemoryNeed:
    """Return the memory of the largest step: counting, the prior, and weighing one against the other.

    Counting is ``presample``, with 16 (N + D) more where the counts of several epochs tell what is noise. The prior is
    ``vip`` (``wrpr``) plus 8 (N + D) of counts, or 16. Weighing holds both, 8 (N + D) and 8 or 16, and per node of
    one type up to 28 to sort (40 from 2^31 nodes), then 72 per node of a bin of at most 2^22.
    """
    squares = needs_squares(request)
    vectors = 8 * (graph.num_nodes() + list_nodes(graph))
    counts = vectors * (2 if squares else 1)
    counting = presample_need(graph, request).plus(2 * vectors if squares else 0)
    largest = max(map(graph.num_nodes, graph.node_types), default=0)
    sort = largest * (28 if largest < 2**31 else 40) if squares else 0
    ranked = largest * (4 if largest < 2**31 else 8) + 72 * min(LARGEST_BIN, largest)
    weighing = vectors + counts + max(sort, ranked, 8 * graph.num_nodes()) + SLACK
    prior = vip_need if request.sampled.sampler in SAMPLERS else wrpr_need
    before = prior(graph, replace(request, options=ScoreOptions())).plus(counts)
    what = f"hybrid: counters, prior and order of {format_count(graph.num_nodes())} nodes and their lists"
    minimum = max(counting.minimum, before.minimum, weighing)
    recommended = max(counting.recommended, before.recommended, weighing)
    return replace(before, minimum=minimum, recommended=recommended, what=what)


def round_prior(values: Float64Array) -> None:
    """Round numbers of 0 or more to 24 significant bits in place, because their last bits depend on libm.

    Nodes whose priors differ in the last bits alone then tie: counts and ids order them, on every machine alike.
    """
    bits = values.view(np.int64)
    bits += 1 << (_DROPPED_BITS - 1)
    bits &= -(1 << _DROPPED_BITS)


def shrink(prior: Float64Array, total: Int64Array, squares: Int64Array, epochs: int, threads: int = 1) -> None:
    """Replace `prior` by the posterior mean of accesses per epoch, from sums of counts and their squares over epochs.

    Nodes are cut into bins by falling prior. In each, with x a node's mean count per epoch: noise = mean variance
    between epochs / epochs; signal = variance of x - noise, at least 0; share = signal / (signal + noise);
    posterior = share x + (1 - share) prior (mean of x) / (mean of prior).
    """
    order, begin, size = native.sort_by_score(prior, threads), 0, float(FIRST_BIN)
    while begin < order.size:
        nodes = order[begin : begin + int(size)]
        prior[nodes] = _shrink_bin(prior[nodes], total[nodes], squares[nodes], epochs)
        begin, size = begin + nodes.size, min(size * GROWTH, LARGEST_BIN)


def _shrink_bin(prior: Float64Array, total: Int64Array, squares: Int64Array, epochs: int) -> Float64Array:
    mean = total / epochs
    level, expected = float(mean.mean()), float(prior.mean())
    if level == 0:
        return prior * UNSEEN
    noise = float((squares - total * mean).mean()) / (epochs - 1) / epochs
    signal = max(float(mean.var()) - noise, 0.0)
    share = signal / (signal + noise) if signal + noise > 0 else 1.0
    ranked = prior * (level / expected) if expected > 0 else np.full(prior.size, level)
    posterior: Float64Array = share * mean + (1 - share) * ranked
    return posterior


def _ranked_prior(graph: Graph, request: ScoreRequest, sums: AccessSums) -> ScoreColumns:
    """Return ``wrpr`` as a prior: each column scaled to the sum of its counts: 0 for a type that no batch reached."""
    ranks, epochs = wrpr(graph, replace(request, options=ScoreOptions())).feature, request.options.epochs

    def scaled(values: Float64Array, counts: Int64Array) -> Float64Array:
        total = float(values.sum())
        return values * (float(counts.sum()) / epochs / total if total > 0 else 0.0)

    return ScoreColumns(
        {node_type: scaled(ranks[node_type], counts) for node_type, counts in sums.total.features.items()},
        {relation: scaled(ranks[relation[2]], counts) for relation, counts in sums.total.adjacency.items()},
    )


HYBRID = Method(
    hybrid, hybrid_need, (*COUNTING, "prior_weight"), _run_tasks, needs_train=True, counts=True, weighs=needs_squares
)
