"""Evaluation of scores: the fraction of the sampler's accesses that a tier filled by a score would serve.

Accesses are counted, not modeled: the training sampler runs for some epochs, and every unique node of every batch is
one access to its feature row. A score orders all rows by expected accesses per byte; its hit rate at a capacity is the
fraction of accesses that go to the rows at the front of the order that fit. The oracle orders by the counts themselves.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from tiering.errors import InputError
from tiering.evaluation.cache_order import (
    ORACLE,
    CacheOrder,
    FloatArray,
    IntArray,
    LinkTraffic,
    Rows,
    Score,
    competing_rows,
)
from tiering.evaluation.counting import Bootstrap, ReferenceEpochs, count_list_reads, evaluation_memory
from tiering.evaluation.locality import measure_locality
from tiering.evaluation.options import EvaluationOptions
from tiering.evaluation.result import Evaluation, TypeResult
from tiering.formats.graph import Graph
from tiering.formats.scores import GIVEN, Scores
from tiering.formats.user_arrays import Train, UserValues, resolve_times, resolve_train
from tiering.layout.tiers import Capacities
from tiering.memory import Budget, parse_memory
from tiering.sampling import SamplingOptions, make_sampler
from tiering.sampling.lists import window_lists
from tiering.sampling.options import Fanouts
from tiering.text.options import options_of
from tiering.text.units import parse_threads

CURVE_POINTS = (110, 90)  # points of a curve: evenly spaced on a logarithmic scale of capacity, and on a linear one


def evaluate(
    graph: Graph,
    scores: Mapping[str, Score],
    sampling: SamplingOptions | Fanouts,
    *,
    train: Train = None,
    seed_time: UserValues | None = None,
    tiers: Capacities | None = None,
    threads: int | str | None = None,
    memory: str | int | Budget | None = None,
    source_ids: bool = False,
    **options: Any,
) -> Evaluation:
    """Sample some epochs of training and report the fraction of the accesses that each score would have served.

    `graph` has original ids or is reordered. `scores` by name (`named_scores` names artifacts) have one value per node,
    in original ids; a node type without a vector counts as score 0. The oracle is always reported. `sampling` may be
    the fanouts alone, with its other fields among the `options`, fields of `EvaluationOptions`: by default
    ``first_epoch`` is the first that no score of the same seed has counted (`unseen_epoch`), so that all predict.
    `train`, `source_ids` and `seed_time`: `tiering.formats.user_arrays.resolve_train` and ``resolve_times``; with times
    nodes may come several times. With `tiers` the report says what they would move.

    Cost: the sampling, twice with an ssd tier, the locality's (`measure_locality`), and one sort of all rows per score.
    Where the memory is short (`evaluation_memory`), fewer threads sample; the result is the same.
    """
    asked = EvaluationOptions(**{name: options.pop(name) for name in options_of(EvaluationOptions) if name in options})
    if isinstance(sampling, SamplingOptions) and options:
        raise InputError(f"{', '.join(options)}: give these inside the sampling options, which are given too")
    if ORACLE in scores:
        raise InputError(f"scores: {ORACLE!r} is the name of the true counts; give the score another name")
    workers = parse_threads(threads)
    how = sampling if isinstance(sampling, SamplingOptions) else SamplingOptions(**{"fanouts": sampling, **options})
    first = unseen_epoch(scores, how.seed) if asked.first_epoch is None else asked.first_epoch
    nodes = resolve_train(graph, train, how.seed, repeats=seed_time is not None, source_ids=source_ids)
    sampler = make_sampler(graph, how)
    times = sampler.seed_times(nodes, resolve_times(seed_time, nodes))
    rows = competing_rows(graph, asked.row_bytes)
    spec = MetricSpec(rows, asked, tiers)
    if tiers is not None:  # refuse sizes that no score fits, before anything is counted
        rows.plan_tiers([np.broadcast_to(np.float64(0), count) for count in rows.counts], tiers)
    budget, trained = parse_memory(memory), sum(array.size for one in (nodes, times) for array in one.values())
    need = evaluation_memory(graph, rows, how, scores=len(scores), ssd=tiers is not None and tiers.ssd, train=trained)
    samplers = need.threads(budget, workers)
    lists = window_lists(sampler, budget.left() - need.minimum)
    epochs = ReferenceEpochs(sampler, nodes, how, range(first, first + asked.epochs), samplers, times, lists)
    orders = {name: spec.cut(rows.join_scores(graph, name, score), workers) for name, score in scores.items()}
    locality = measure_locality(epochs)
    kinds = list(enumerate(rows.types)) if asked.resamples else []
    accesses, hits = epochs.count([(t, o.buckets[rows.slice_type(i)]) for o in orders.values() for i, t in kinds])
    truth = rows.join(accesses.features)
    orders[ORACLE] = spec.cut(truth, workers)
    adjacency = count_list_reads(graph, accesses, how, asked.epochs)
    about: dict[str, Any] = {"adjacency": adjacency, "seen": _seen(scores, how.seed), "locality": locality}
    about["parameters"] = {
        **how.to_json(), "epochs": asked.epochs, "first_epoch": first, "resamples": asked.resamples,
        "train_nodes": {t: int(ids.size) for t, ids in nodes.items()}, "node_types": list(rows.types),
    }  # fmt: skip
    ssd_reads = _count_ssd_reads(spec, epochs, orders)
    about |= {"batches": epochs.batches, "touched_rows": int(np.count_nonzero(truth)), "accesses": int(truth.sum())}
    return compute(spec, orders, truth, hits, Bootstrap(hits.shape[1], asked.resamples, how.seed), ssd_reads, **about)


def named_scores(graph: Graph, scores: Sequence[Scores]) -> dict[str, Score]:
    """Name artifacts by their method, and by their directory too where a method comes twice.

    `InputError` if one was computed on another graph.
    """
    methods = [score.method for score in scores]
    named: dict[str, Score] = {}
    for score in scores:
        if graph.order is None and score.graph_digest != graph.digest:
            how = "--from FILE" if score.method == GIVEN else f"--method {score.method}"
            raise InputError(
                f"{score.path}: computed on another graph than {graph.path} (digest {score.graph_digest}, expected "
                f"{graph.digest}); run `tiering score {graph.path} {how} --out NEW`"
            )
        name = score.method if methods.count(score.method) == 1 else f"{score.method} ({score.path.name})"
        named[name if name not in named else f"{score.method} ({score.path})"] = score
    return named


def unseen_epoch(scores: Mapping[str, Score], seed: int) -> int:
    """Return the first epoch of the run with `seed` that none of the scores has counted.

    Epochs of one run share their batches, and hop by hop their samples, even where fanouts or depth differ: only the
    seed matters.
    """
    return max((seen.stop for seen in _seen(scores, seed).values()), default=0)


def _seen(scores: Mapping[str, Score], seed: int) -> dict[str, range]:
    """Return the epochs of the run with `seed` that each score has counted; other scores are omitted."""
    counted = {name: score.counted_epochs(seed) for name, score in scores.items() if isinstance(score, Scores)}
    return {name: epochs for name, epochs in counted.items() if epochs}


@dataclass(frozen=True)
class MetricSpec:
    """Metrics to compute of every score: hit rates at shares of all bytes and along a curve, traffic of `tiers`."""

    rows: Rows
    options: EvaluationOptions
    tiers: Capacities | None

    @cached_property
    def curve_bytes(self) -> IntArray:
        """Capacities of the curves in bytes: int64, ascending, from 0 to all."""
        least = min(self.rows.row_bytes)
        most = max(self.rows.bytes // least, 1)
        points = np.concatenate([np.geomspace(1, most, CURVE_POINTS[0]), np.linspace(0, most, CURVE_POINTS[1])])
        capacities = np.minimum(points.round().astype(np.int64) * least, self.rows.bytes)
        return np.unique(np.concatenate([[0], capacities, [self.rows.bytes]]))

    def cut(self, values: Any, threads: int) -> CacheOrder:
        """Return the cache order of a score, cut at the shares first, then along the curve, then at the tiers."""
        capacities = [int(share * self.rows.bytes) for share in self.options.shares]
        return CacheOrder.cut(self.rows, values, np.concatenate([capacities, self.curve_bytes]), self.tiers, threads)


def _count_ssd_reads(
    spec: MetricSpec, epochs: ReferenceEpochs, orders: Mapping[str, CacheOrder]
) -> dict[str, IntArray]:
    """Return bytes and pages read from SSDs by score, shape (types, 2): the batches are sampled a second time."""
    cut = list(orders.values())
    if not cut[0].positions or not spec.rows.bytes_known:
        return {}
    visit = partial(spec.rows.count_ssd_reads, cut, spec.options.page_bytes, spec.options.block_bytes)
    sums: IntArray = functools.reduce(operator.add, epochs.map_batches(visit, "counting pages"))
    return dict(zip(orders, sums, strict=True))


class OrderMetrics(NamedTuple):
    """Metrics of one cache order at its capacities, by type and, last, of all rows: shape (types + 1, capacities)."""

    rates: FloatArray
    cached: IntArray  # rows that fit
    intervals: Sequence[FloatArray | None]
    traffic: LinkTraffic | None


def measure_order(
    spec: MetricSpec, order: CacheOrder, truth: IntArray, hits: IntArray | None, bootstrap: Bootstrap, ssd_reads: Any
) -> OrderMetrics:
    """Compute the metrics of an order.

    `hits`, int64 of shape (types, groups of batches, buckets), are the rows read, for the intervals, if there are any.
    """
    rows, tiers, links, traffic = spec.rows, spec.tiers, None, None
    served, cached = (np.vstack([sums, sums.sum(0)]) for sums in (order.count(rows, truth), order.count(rows)))
    intervals: list[FloatArray | None] = [None] * len(served)
    if hits is not None:
        shares = order.cuts[: len(spec.options.shares)]  # of a type no curve is drawn
        counted = [*((of_type, shares) for of_type in hits), (hits.sum(axis=0), order.cuts)]
        intervals = [bootstrap.interval(_up_to(reads, cuts), reads.sum(axis=1)) for reads, cuts in counted]
    if tiers is not None:
        if hits is not None:
            in_tiers = [np.diff(_up_to(of_type, order.tier_cuts), axis=1) for of_type in hits]
            moved = np.tensordot(rows.row_bytes, in_tiers, 1)
            links = bootstrap.interval(moved, moved.sum(axis=1), LinkTraffic.link_weights(tiers.num_peers))
        reads = np.diff(served[:-1, order.tier_cuts], axis=1)
        traffic = LinkTraffic(rows, order.ranges, reads, ssd_reads, tiers.num_peers, spec.options.epochs, links)
    rates = served[:, order.cuts] / np.maximum(served[:, -1:], 1)
    return OrderMetrics(rates, cached[:, order.cuts], intervals, traffic)


def compute(
    spec: MetricSpec, orders: Mapping[str, CacheOrder], truth: IntArray, hits: IntArray, bootstrap: Bootstrap,
    ssd_reads: Mapping[str, IntArray], **about: Any,
) -> Evaluation:  # fmt: skip
    """Compute all metrics of the scores, `ORACLE` last, which has no intervals.

    `truth`: accesses by row. `hits` has counted the buckets of the scores, or none. `ssd_reads` are by score over all
    epochs, where they are counted. `about` holds the fields of `Evaluation` that are known.
    """
    rows, options, tiers = spec.rows, spec.options, spec.tiers
    by_score = dict(zip(orders, hits.reshape(-1, len(rows.types), *hits.shape[1:]), strict=False))
    metrics = {
        name: measure_order(spec, order, truth, by_score.get(name), bootstrap, ssd_reads.get(name))
        for name, order in orders.items()
    }
    types, shares, total = {}, len(options.shares), max(1, int(truth.sum()))
    for index, name in enumerate(rows.types):
        accesses, own = truth[rows.slice_type(index)], _rates(metrics, index, shares)
        size, origin, read = (rows.counts[index], rows.row_bytes[index]), rows.origins[index], int(accesses.sum())
        types[name] = TypeResult(*own, *size, origin, read, read / total, int(np.count_nonzero(accesses)))
    capacities = None
    if tiers is not None:
        sizes = {name: getattr(tiers, name) for name in ("gpu", "peer", "cpu")}
        texts = {name: None if size is None else size.text for name, size in sizes.items()}
        units = {"page_bytes": options.page_bytes, "block_bytes": options.block_bytes}
        capacities = {**texts, "num_peers": tiers.num_peers, "ssd": tiers.ssd, **units}
    return Evaluation(
        *_rates(metrics, -1, shares), list(options.shares), types, rows.size, rows.bytes,
        tiers=None if tiers is None else {name: own.traffic for name, own in metrics.items() if own.traffic},
        capacities=capacities,
        curve_bytes=spec.curve_bytes,
        curves={name: own.rates[-1, shares:] for name, own in metrics.items()},
        curve_rows={name: own.cached[-1, shares:] for name, own in metrics.items()},
        bands={name: band[shares:] for name, own in metrics.items() if (band := own.intervals[-1]) is not None},
        **about,
    )  # fmt: skip


def _rates(metrics: Mapping[str, OrderMetrics], index: int, shares: int) -> tuple[Any, Any, Any]:
    """Return the fields of `tiering.evaluation.result.Rates`, of one type or, the last, of all."""
    ends = {name: own.intervals[index] for name, own in metrics.items() if name != ORACLE}
    intervals = {name: [None] * shares if own is None else own[:shares].tolist() for name, own in ends.items()}
    hit_rates = {name: own.rates[index, :shares].tolist() for name, own in metrics.items()}
    return hit_rates, intervals, {name: own.cached[index, :shares].tolist() for name, own in metrics.items()}


def _up_to(hits: IntArray, cuts: IntArray) -> IntArray:
    """Return the rows in the buckets in front of each cut, from shape (groups, buckets) to (groups, cuts)."""
    return np.where(cuts > 0, np.cumsum(hits, axis=1)[:, cuts - 1], 0)
