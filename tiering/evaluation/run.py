"""Evaluation of scores: the fraction of the sampler's accesses that a tier filled by a score would serve.

Accesses are counted, not modelled: the training sampler runs for some epochs, and every unique node of every batch is
one access to its feature row. A score orders all rows by expected accesses per byte; its hit rate at a capacity is the
fraction of accesses that go to the rows at the front of the order that fit. The oracle orders by the counts themselves:
no score does better on these epochs (but for the last row, which may not fit).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from tiering.errors import InputError
from tiering.evaluation.bootstrap import Bootstrap
from tiering.evaluation.cache_order import ASSUMED, CacheOrder, Score, competing_rows, join_scores
from tiering.evaluation.counting import ReferenceEpochs, count_list_reads
from tiering.evaluation.link_traffic import SsdCounter, SsdReads, SsdUnits
from tiering.evaluation.memory import ReadingMemory, evaluation_memory
from tiering.evaluation.metrics import MetricSpec, compute
from tiering.evaluation.options import EvaluationOptions
from tiering.evaluation.result import ORACLE, Evaluation
from tiering.evaluation.ssd_reading import ReadingSpec
from tiering.formats.graph import Graph
from tiering.formats.scores import GIVEN, Scores
from tiering.formats.train_set import Train, resolve_train
from tiering.layout.tiers import Capacities
from tiering.memory import Budget, parse_memory
from tiering.options import options_of
from tiering.readahead.disk_speed import DiskSpeed, read_speed
from tiering.sampling import Fanout, SamplingOptions, make_sampler
from tiering.units import parse_threads


def evaluate(
    graph: Graph,
    scores: Mapping[str, Score],
    sampling: SamplingOptions | Sequence[Fanout],
    *,
    train: Train = None,
    tiers: Capacities | None = None,
    threads: int | str | None = None,
    memory: str | int | Budget | None = None,
    **options: Any,
) -> Evaluation:
    """Sample some epochs of training and report the fraction of the accesses that each score would have served.

    Parameters
    ----------
    graph
        The graph to sample, in original ids or reordered.
    scores
        Name to score; `named_scores` names artifacts. Vectors hold one value per node, in original ids; a node type
        without a vector counts as score 0. May be empty: then only the oracle is reported.
    sampling
        How training samples: `tiering.sampling.SamplingOptions`, or the fanouts alone, with its other fields
        (``batch_size``, ``seed``, ``frontier``, ``sampler``...) as `options`.
    train
        Training nodes, where the graph's own split is not meant: `tiering.formats.train_set.resolve_train`.
    tiers
        Sizes of tiers (`tiering.layout.parse_capacities`), to report what they would move.
    memory
        Memory to stay within: ``8GiB``, ``50%``, a budget; ``auto`` is most of what is free. Where it is short, fewer
        threads sample; the result is the same, but for simulated reading, which has fewer batches then.
    **options
        Fields of `tiering.evaluation.options.EvaluationOptions`: ``epochs`` (3); ``first_epoch``, by default the first
        that no score of the same seed has counted (`unseen_epoch`), so that all scores predict; ``shares`` (capacities
        as fractions of the bytes of all rows, at most 50); ``resamples`` of the bootstrap (200; 0 for no intervals);
        ``page`` and ``block`` of SSD reads; ``row_bytes`` (`tiering.evaluation.cache_order.competing_rows`);
        ``rows_in_memory`` and ``ssd_model`` (a `DiskSpeed` or a file with one) to simulate reading from SSD
        (`tiering.evaluation.ssd_reading`).

    Raises
    ------
    InputError
        If there are no training nodes (the message says how to give them), or a parameter, score or tier does not fit.
    BudgetError
        If the memory is less than the minimum (`tiering.evaluation.memory.evaluation_memory`).

    Notes
    -----
    Cost: the sampling, twice with an ssd tier, and one sort of all rows per score.
    """
    asked = EvaluationOptions(**{name: options.pop(name) for name in options_of(EvaluationOptions) if name in options})
    if isinstance(sampling, SamplingOptions) and options:
        raise InputError(f"{', '.join(options)}: expected inside the sampling options, since these are given")
    if ORACLE in scores:
        raise InputError(f"scores: {ORACLE!r} is the name of the true counts; give the score another name")
    workers = parse_threads(threads)
    how = sampling if isinstance(sampling, SamplingOptions) else SamplingOptions(sampling, **options)
    first = unseen_epoch(scores, how.seed) if asked.first_epoch is None else asked.first_epoch
    nodes = resolve_train(graph, train, how.seed)
    rows = competing_rows(graph, asked.row_bytes)
    spec = MetricSpec(rows, tuple(asked.shares), tiers, SsdUnits.parse(asked.page, asked.block))
    reading = _plan_reading(spec, asked.rows_in_memory, asked.ssd_model)
    budget, trained = parse_memory(memory), sum(ids.size for ids in nodes.values())
    need = evaluation_memory(graph, rows, how, scores=len(scores), ssd=spec.has_ssd, train=trained)
    room = None if reading is None else ReadingMemory.plan(budget, need, rows, reading.max_bytes)
    samplers = need.threads(budget if room is None else budget.without(room.bytes), workers)
    epochs = ReferenceEpochs(make_sampler(graph, how), nodes, how, range(first, first + asked.epochs), samplers)
    batches = None if reading is None or room is None else reading.sample(epochs, room)
    orders = {name: spec.cut(join_scores(graph, rows, name, score), workers) for name, score in scores.items()}
    tally = epochs.count(spec.bucket_maps(orders.values()) if asked.resamples else [])
    truth = rows.join(tally.accesses.features)
    orders[ORACLE] = spec.cut(truth, workers)
    ssd_reads = _count_ssd_reads(spec, epochs, orders)
    ssd_reading = None
    if reading is not None and batches is not None:
        values = chain(((n, join_scores(graph, rows, n, score)) for n, score in scores.items()), [(ORACLE, truth)])
        ssd_reading = reading.simulate(((name, rows.sort(own, workers)) for name, own in values), batches)
    parameters = {
        **how.to_json(),
        "epochs": asked.epochs,
        "first_epoch": first,
        "resamples": asked.resamples,
        "train_nodes": {t: int(ids.size) for t, ids in nodes.items()},
        "node_types": list(rows.types),
    }
    return compute(
        spec, orders, tally, Bootstrap(tally.groups, asked.resamples, how.seed), ssd_reads, ssd_reading=ssd_reading,
        adjacency=count_list_reads(graph, tally.accesses, how), batches=tally.batches, seen=_seen(scores, how.seed),
        parameters=parameters,
    )  # fmt: skip


def named_scores(graph: Graph, scores: Sequence[Scores]) -> dict[str, Score]:
    """Name artifacts by their method, and by their directory too where a method comes twice.

    Raises
    ------
    InputError
        If one was computed on another graph.
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

    Epochs of one run share their batches, and hop by hop their draws, even where fanouts or depth differ: only the
    seed matters.
    """
    return max((seen.stop for seen in _seen(scores, seed).values()), default=0)


def _seen(scores: Mapping[str, Score], seed: int) -> dict[str, range]:
    """Return the epochs of the run with `seed` that each score has counted; other scores are left out."""
    counted = {name: score.counted_epochs(seed) for name, score in scores.items() if isinstance(score, Scores)}
    return {name: epochs for name, epochs in counted.items() if epochs}


def _plan_reading(
    spec: MetricSpec, sizes: Sequence[str | int], model: DiskSpeed | str | Path | None
) -> ReadingSpec | None:
    if not sizes and model is None:
        return None
    if not sizes or model is None:
        lacking = "ssd model: expected the disk's speed" if sizes else "rows in memory: expected a size such as 4GiB"
        raise InputError(f"{lacking}, found nothing: simulated reading takes both")
    if ASSUMED in spec.rows.origins:
        raise InputError(
            "rows in memory: the graph has no features, and reading takes rows of known size; say what a row has with "
            "--row-bytes"
        )
    speed = model if isinstance(model, DiskSpeed) else read_speed(Path(model))
    return ReadingSpec.parse(spec.rows, sizes, spec.units.page_bytes, speed)


def _count_ssd_reads(
    spec: MetricSpec, epochs: ReferenceEpochs, orders: Mapping[str, CacheOrder]
) -> dict[str, dict[str, SsdReads]]:
    """Return the reads of SSDs by score and node type: the batches are sampled a second time."""
    if not spec.counts_ssd_reads:
        return {}
    counter = SsdCounter(spec.rows, {name: order.positions for name, order in orders.items()}, spec.units)
    return counter.name_sums(functools.reduce(np.add, epochs.map_batches(counter.count, "counting pages")))
