"""What commands would do: plans of stages, made without running them. Nothing is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tiering.artifacts.streaming import uncached_bytes
from tiering.errors import InputError
from tiering.formats.features import FeatureTable
from tiering.formats.graph import Graph
from tiering.formats.protocols import Dataset
from tiering.formats.scores import Scores
from tiering.formats.shape import FutureGraph, GraphShape
from tiering.formats.train_set import Train
from tiering.memory import Budget, parse_memory
from tiering.pipeline.stages import Pathlike, dataset_for, opened
from tiering.plan import Forecast, StagePlan, Step
from tiering.units import parse_threads

if TYPE_CHECKING:
    from tiering.layout import LayoutOptions

Memory = str | int | Budget | None
PARSED = ("edgelist", "parquet")
"""Formats that are read as a whole when they are opened."""


def predict_import(
    source: Pathlike,
    out: Pathlike,
    format: str = "auto",  # noqa: A002 - the name the command line has
    *,
    edge_ids: bool = False,
    threads: int | str | None = None,
    memory: Memory = None,
    **options: Any,
) -> Forecast:
    """What `tiering.pipeline.import_dataset` would take.

    The dataset is opened as the import opens it: text and parquet are read, into temporary files without names.
    """
    budget, target = parse_memory(memory), Path(out).absolute()
    plan, _ = import_plan(source, target, format, edge_ids, parse_threads(threads), budget, options)
    return Forecast((plan,))


def import_plan(
    source: Pathlike,
    out: Path,
    format: str,  # noqa: A002 - the name the command line has
    edge_ids: bool,
    threads: int,
    budget: Budget,
    options: Mapping[str, Any],
) -> tuple[StagePlan, GraphShape]:
    """Plan of an import, and the sizes of the graph it would make."""
    from tiering.graph.plan import plan_import

    with dataset_for(source, out, format, budget, options) as dataset:
        opening = _opening(dataset)
        plan = plan_import(dataset, budget, edge_ids=edge_ids)
        stage = plan.stage(out)
    return replace(stage, steps=(opening, *stage.steps), threads=threads), plan.shape


def _opening(dataset: Dataset) -> Step:
    """Opening the dataset: done just now."""
    read = sum(found.bytes for found in dataset.files.values()) if dataset.format in PARSED else 0
    arrays = [array for edges in dataset.edges for array in (edges.src, edges.dst, *edges.data.values())]
    nameless = [array for array in arrays if isinstance(array, np.memmap) and array.filename is None]
    scratch = sum(array.nbytes for array in nameless)
    return Step("open", "done now", 0, read, 0, scratch)


def predict_score(
    graph: Graph | Pathlike,
    out: Pathlike,
    method: str = "auto",
    *,
    train: Train = None,
    seed: int | None = None,
    threads: int | str | None = None,
    memory: Memory = None,
    **options: Any,
) -> Forecast:
    """What `tiering.pipeline.score` would take."""
    graph, target = opened(graph, Graph), Path(out).absolute()
    given = {"method": method, "train": train, "seed": seed, **options}
    return Forecast((score_plan(graph, target, parse_memory(memory), parse_threads(threads), given),))


def score_plan(
    graph: Graph | FutureGraph, out: Path, budget: Budget, threads: int, given: Mapping[str, Any]
) -> StagePlan:
    """Plan of a score of a graph, or of one that does not exist yet."""
    from tiering.scores import plan_score

    if isinstance(graph, Graph) and graph.order is not None:
        raise InputError(f"{graph.path}: this graph is reordered; score the graph it was made from")
    shape = graph if isinstance(graph, FutureGraph) else GraphShape.of_graph(graph)
    return plan_score(graph, **given, threads=threads, memory=budget).stage(graph, shape, out)


def predict_reorder(
    graph: Graph | Pathlike,
    scores: Scores | Pathlike,
    out: Pathlike,
    *,
    features: bool = False,
    threads: int | str | None = None,
    memory: Memory = None,
) -> Forecast:
    """What `tiering.pipeline.reorder` would take."""
    from tiering.formats.feature_rows import checked_tables
    from tiering.reorder import check_scores, plan_reorder

    graph, scores = opened(graph, Graph), opened(scores, Scores)
    if graph.order is not None:
        raise InputError(f"{graph.path}: this graph is reordered already; reorder the graph it was made from")
    check_scores(graph, scores)
    if features:
        checked_tables(graph)
    values = [scores.values(node_type) for node_type in graph.node_types]
    uncached = sum(map(uncached_bytes, values)) / max(1, sum(each.nbytes for each in values))
    shape, budget, target = GraphShape.of_graph(graph), parse_memory(memory), Path(out).absolute()
    return Forecast((plan_reorder(shape, target, budget, parse_threads(threads), features, uncached),))


def predict_layout(
    graph: Graph | Pathlike,
    out: Pathlike,
    options: LayoutOptions | None = None,
    *,
    scores: Scores | Pathlike | None = None,
    threads: int | str | None = None,
    memory: Memory = None,
    **given: Any,
) -> Forecast:
    """What `tiering.pipeline.layout` would take; how it would divide the GPU's memory stands among the notes."""
    from tiering.formats.feature_rows import checked_tables
    from tiering.layout import LayoutOptions

    graph, target = opened(graph, Graph), Path(out).absolute()
    known, asked = None if scores is None else opened(scores, Scores), LayoutOptions.given(options, given)
    tables = checked_tables(graph)
    shape = GraphShape.of_graph(graph)
    copied = 0 if _one_file_system(graph.path, target) else shape.graph_bytes() + shape.order_bytes()
    plan = layout_plan(graph, tables, target, parse_memory(memory), asked, known, copied)
    return Forecast((replace(plan, threads=parse_threads(threads)),))


def layout_plan(
    graph: Graph | Path,
    tables: dict[str, FeatureTable],
    out: Path,
    budget: Budget,
    options: LayoutOptions,
    scores: Scores | None = None,
    copied: int = 0,
) -> StagePlan:
    """Plan of a layout of a graph, or of one that does not exist yet (its path): then all scores count as equal.

    Parameters
    ----------
    scores
        Those the graph was ordered by, for an adjacency cache.
    """
    from tiering.layout.plan import plan_future_layout, plan_layout

    if isinstance(graph, Graph):
        plan = plan_layout(graph, tables, options, scores, budget)
    else:
        plan = plan_future_layout(graph, tables, options)
    return plan.stage(tables, out, options.folders, budget, copied)


def _one_file_system(one: Path, other: Path) -> bool:
    nearest = next(each for each in (other, *other.parents) if each.exists())
    return one.stat().st_dev == nearest.stat().st_dev
