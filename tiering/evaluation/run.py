"""How good a score is: the share of the sampler's accesses that a tier filled by it would serve.

The truth is counted, not modelled: the training sampler runs for some epochs, and every unique node of every batch is
one access to its feature row. A score lines all rows up by expected accesses per byte; its hit rate at a capacity is
the share of accesses that go to the rows at the front of the line that fit. The oracle lines up by the counts
themselves: no score does better on these epochs (but for the last row, which may not fit).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from tiering.errors import InputError
from tiering.evaluation.bootstrap import MAX_GROUPS, RESAMPLES, Bootstrap
from tiering.evaluation.counting import BUCKETS, ReferenceEpochs, list_reads
from tiering.evaluation.findings import SHARES, Line, Questions, answer
from tiering.evaluation.line import ASSUMED, RowBytes, Score, competing_rows, score_vector
from tiering.evaluation.memory_need import ReadingRoom, evaluation_need
from tiering.evaluation.result import ORACLE, Evaluation
from tiering.evaluation.ssd_reading import ReadingSpec
from tiering.evaluation.traffic import SsdCounter, SsdUnits
from tiering.formats.graph import Graph
from tiering.formats.scores import Scores
from tiering.formats.train_set import Train, resolve_train
from tiering.layout.tiers import Capacities
from tiering.memory import Budget, parse_memory
from tiering.readahead.disk_speed import DiskSpeed, read_speed
from tiering.sampling import Fanout, SamplingOptions, make_sampler
from tiering.sampling.options import SamplingKeywords
from tiering.units import parse_threads

__all__ = ["ORACLE", "SHARES", "Evaluation", "evaluate", "named_scores", "unseen_epoch"]


class EvaluationKeywords(SamplingKeywords, total=False):
    """What `evaluate` takes by keyword, for editors."""

    seed: int
    epochs: int
    first_epoch: int | None
    train: Train
    shares: Sequence[float]
    tiers: Capacities | None
    page: str | int
    block: str | int
    row_bytes: RowBytes
    resamples: int
    rows_in_memory: Sequence[str | int]
    ssd_model: DiskSpeed | str | Path | None
    threads: int | str | None
    memory: str | int | Budget | None


def evaluate(
    graph: Graph,
    scores: Mapping[str, Score],
    sampling: SamplingOptions | Sequence[Fanout],
    *,
    epochs: int = 3,
    first_epoch: int | None = None,
    train: Train = None,
    shares: Sequence[float] = SHARES,
    tiers: Capacities | None = None,
    page: str | int = SsdUnits.page_bytes,
    block: str | int = SsdUnits.block_bytes,
    row_bytes: RowBytes = None,
    resamples: int = RESAMPLES,
    rows_in_memory: Sequence[str | int] = (),
    ssd_model: DiskSpeed | str | Path | None = None,
    threads: int | str | None = None,
    memory: str | int | Budget | None = None,
    **options: Any,
) -> Evaluation:
    """Sample some epochs of training and report what share of the accesses each score would have served.

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
    epochs
        Epochs to count, from `first_epoch` on.
    first_epoch
        By default the first that no score of the same seed has counted (`unseen_epoch`), so that all scores predict.
        0 with a score pre-sampled on the same seed is the exact future.
    train
        Training nodes, where the graph's own split is not meant: `tiering.formats.train_set.resolve_train`.
    shares
        Capacities to report, as shares of the bytes of all rows in [0, 1]; at most 50. With rows of one size that is
        a share of the rows.
    tiers
        Sizes of tiers (`tiering.layout.parse_capacities`), to report what they would move.
    page, block
        Sizes in which the ssd tier is read: the layout's page, and where reads may begin and end
        (`tiering.evaluation.traffic.SsdUnits`).
    row_bytes
        Bytes of a row of the types without features: `tiering.evaluation.line.competing_rows`.
    resamples
        Draws of the bootstrap; 0 for no intervals.
    rows_in_memory, ssd_model
        Simulate reading from SSD: sizes of memory for rows (``4GiB``, ``10%`` of the bytes of all rows), where all rows
        lie on a disk of that speed, in the order of each score (`tiering.evaluation.ssd_reading`). The model is a
        `DiskSpeed` or a file that has one (`tiering.readahead.disk_speed.read_speed`).
    memory
        What to stay within: ``8GiB``, ``50%``, a budget; ``auto`` is most of what is free. Where it is short, fewer
        threads sample; the result is the same, but for simulated reading, which has fewer batches then.

    Raises
    ------
    InputError
        If there are no training nodes (the message says how to give them), or a parameter, score or tier does not fit.
    BudgetError
        If the memory is less than the minimum (`tiering.evaluation.memory_need.evaluation_need`).

    Notes
    -----
    Rows of all node types are in one line, by score per byte, ties by type and id, as in `tiering layout`. Cost: the
    sampling, twice with an ssd tier, and one sort of all rows per score. Memory:
    `tiering.evaluation.memory_need.evaluation_need`.
    """
    _check_parameters(epochs, first_epoch, resamples, scores)
    workers = parse_threads(threads)
    if isinstance(sampling, SamplingOptions) and options:
        raise InputError(f"{', '.join(options)}: expected inside the sampling options, since these are given")
    chosen = sampling if isinstance(sampling, SamplingOptions) else SamplingOptions(sampling, **options)
    first = unseen_epoch(scores, chosen.seed) if first_epoch is None else first_epoch
    nodes = resolve_train(graph, train, chosen.seed)
    rows = competing_rows(graph, row_bytes)
    questions = Questions(rows, tuple(shares), tiers, SsdUnits.parse(page, block))
    budget = parse_memory(memory)
    trained = sum(ids.size for ids in nodes.values())
    need = evaluation_need(graph, rows, chosen, scores=len(scores), ssd=questions.has_ssd, train=trained)
    asked = _reading_question(questions, rows_in_memory, ssd_model)
    room = None if asked is None else ReadingRoom.of(budget, need, rows, asked.max_bytes)
    samplers = need.threads(budget if room is None else budget.without(room.bytes), workers)
    judged = ReferenceEpochs(make_sampler(graph, chosen), nodes, chosen, range(first, first + epochs), samplers)
    known = None if asked is None or room is None else asked.sample(judged, room)
    rankings = {name: questions.rank(score_vector(graph, rows, name, score), workers) for name, score in scores.items()}
    ranked = list(rankings.values()) if resamples else []
    maps = [(t, ranking.buckets[rows.part(i)]) for ranking in ranked for i, t in enumerate(rows.types)]
    counted = judged.count(maps)
    hits = counted.hits.reshape(len(ranked), len(rows.types), -1, BUCKETS) if ranked else None
    truth = rows.join(counted.accesses.features)
    rankings[ORACLE] = questions.rank(truth, workers)
    ssd = {}
    if questions.reads_ssd:
        places = {name: ranking.places for name, ranking in rankings.items()}
        counter = SsdCounter(rows.types, rows.row_bytes, places, questions.units)
        ssd = counter.reads(functools.reduce(np.add, judged.map_batches(counter.see, "counting pages")))
    reading = None
    if asked is not None and known is not None:
        values = ((name, score_vector(graph, rows, name, score)) for name, score in scores.items())
        lines = ((name, rows.line(own, workers)) for name, own in chain(values, [(ORACLE, truth)]))
        reading = asked.simulate(lines, known)
    bootstrap = Bootstrap(min(counted.batches, MAX_GROUPS), resamples, chosen.seed)
    by_score = [*([None] * len(scores) if hits is None else hits), None]  # the oracle has no error bars
    scored = {
        name: Line(questions, ranking, truth, own, bootstrap)
        for (name, ranking), own in zip(rankings.items(), by_score, strict=True)
    }
    parameters = {
        **chosen.to_json(),
        "epochs": epochs,
        "first_epoch": first,
        "resamples": resamples,
        "train_nodes": {t: int(ids.size) for t, ids in nodes.items()},
        "node_types": list(rows.types),
    }
    return answer(
        questions,
        scored,
        truth,
        ssd,
        adjacency=list_reads(graph, counted.accesses, chosen),
        batches=counted.batches,
        seen=_seen(scores, chosen.seed),
        parameters=parameters,
        ssd_reading=reading,
    )


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
            how = "--from FILE" if score.given else f"--method {score.method}"
            raise InputError(
                f"{score.path}: computed on another graph than {graph.path} (digest {score.graph_digest}, expected "
                f"{graph.digest}); run `tiering score {graph.path} {how} --out NEW`"
            )
        name = score.method if methods.count(score.method) == 1 else f"{score.method} ({score.path.name})"
        named[name if name not in named else f"{score.method} ({score.path})"] = score
    return named


def unseen_epoch(scores: Mapping[str, Score], seed: int) -> int:
    """First epoch of the run with `seed` that none of the scores has counted.

    Epochs of one run share their batches, and hop by hop their draws, even where fanouts or depth differ: only the
    seed matters.
    """
    return max((seen.stop for seen in _seen(scores, seed).values()), default=0)


def _seen(scores: Mapping[str, Score], seed: int) -> dict[str, range]:
    """Epochs of the run with `seed` that each score has counted; scores that counted none are left out."""
    counted = {name: score.counted_epochs(seed) for name, score in scores.items() if isinstance(score, Scores)}
    return {name: epochs for name, epochs in counted.items() if epochs}


def _reading_question(
    questions: Questions, sizes: Sequence[str | int], model: DiskSpeed | str | Path | None
) -> ReadingSpec | None:
    if not sizes and model is None:
        return None
    if not sizes or model is None:
        lacking = "ssd model: expected the disk's speed" if sizes else "rows in memory: expected a size such as 4GiB"
        raise InputError(f"{lacking}, found nothing: simulated reading takes both")
    if ASSUMED in questions.rows.origins:
        raise InputError(
            "rows in memory: the graph has no features, and reading takes rows of known size; say what a row has with "
            "--row-bytes"
        )
    speed = model if isinstance(model, DiskSpeed) else read_speed(Path(model))
    return ReadingSpec.parse(questions.rows, sizes, questions.units.page_bytes, speed)


def _check_parameters(epochs: int, first_epoch: int | None, resamples: int, scores: Mapping[str, Score]) -> None:
    if epochs < 1:
        raise InputError(f"epochs: expected 1 or more, found {epochs}")
    if first_epoch is not None and first_epoch < 0:
        raise InputError(f"first epoch: expected 0 or more, found {first_epoch}")
    if resamples < 0:
        raise InputError(f"resamples: expected 0 or more, found {resamples}")
    if ORACLE in scores:
        raise InputError(f"scores: {ORACLE!r} is the name of the true counts; give the score another name")
