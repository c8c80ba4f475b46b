"""What commands would do: plans of stages, made without running them. Nothing is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
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
from tiering.units import Size, parse_threads

if TYPE_CHECKING:
    from tiering.placement import Capacities

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
    from tiering.graph.plan import plan_import as predict

    with dataset_for(source, out, format, budget, options) as dataset:
        opening = _opening(dataset)
        plan, shape = predict(dataset, out, budget, edge_ids=edge_ids)
    return replace(plan, steps=(opening, *plan.steps), threads=threads), shape


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
    from tiering.scores.predict import predict_score as predict

    if isinstance(graph, Graph) and graph.order is not None:
        raise InputError(f"{graph.path}: this graph is reordered; score the graph it was made from")
    shape = graph if isinstance(graph, FutureGraph) else GraphShape.of_graph(graph)
    return predict(graph, plan_score(graph, **given, threads=threads, memory=budget), shape, out)


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
    from tiering.order import check_scores

    graph, scores = opened(graph, Graph), opened(scores, Scores)
    if graph.order is not None:
        raise InputError(f"{graph.path}: this graph is reordered already; reorder the graph it was made from")
    check_scores(graph, scores)
    if features:
        checked_tables(graph)
    values = [scores.values(node_type) for node_type in graph.node_types]
    uncached = sum(map(uncached_bytes, values)) / max(1, sum(each.nbytes for each in values))
    shape, budget, target = GraphShape.of_graph(graph), parse_memory(memory), Path(out).absolute()
    return Forecast((reorder_plan(shape, target, budget, parse_threads(threads), features, uncached),))


def reorder_plan(
    shape: GraphShape, out: Path, budget: Budget, threads: int, features: bool, uncached: float = 0.0
) -> StagePlan:
    """Plan of ranking and reorder together; `uncached` is the share of the scores that is not in the page cache."""
    from tiering.order.predict import predict_order
    from tiering.reorder.predict import predict_reorder as predict

    ranking = predict_order(shape, budget, threads, uncached)
    plan = predict(shape, ranking, out, budget, features=features, uncached=uncached)
    return replace(plan, threads=threads)


def predict_layout(
    graph: Graph | Pathlike,
    out: Pathlike,
    *,
    gpu: str | int | None = None,
    peer: str | None = None,
    cpu: str | int | None = None,
    ssd: Sequence[Pathlike] = (),
    page: str | int = "4KiB",
    split: str | None = None,
    scores: Scores | Pathlike | None = None,
    gpu_times: Pathlike | None = None,
    threads: int | str | None = None,
    memory: Memory = None,
) -> Forecast:
    """What `tiering.pipeline.layout` would take; how it would split the GPU's memory stands among the notes."""
    from tiering.formats.feature_rows import checked_tables

    graph, target = opened(graph, Graph), Path(out).absolute()
    known = None if scores is None else opened(scores, Scores)
    tables = checked_tables(graph)
    shape = GraphShape.of_graph(graph)
    copied = 0 if _one_file_system(graph.path, target) else shape.graph_bytes() + shape.order_bytes()
    sizes = {"gpu": gpu, "peer": peer, "cpu": cpu, "ssd": ssd, "page": page, "split": split, "gpu_times": gpu_times}
    plan = layout_plan(graph, tables, target, parse_memory(memory), sizes, known, copied)
    return Forecast((replace(plan, threads=parse_threads(threads)),))


def layout_plan(
    graph: Graph | Path,
    tables: dict[str, FeatureTable],
    out: Path,
    budget: Budget,
    sizes: Mapping[str, Any],
    scores: Scores | None = None,
    copied: int = 0,
) -> StagePlan:
    """Plan of a layout of a graph, or of one that does not exist yet (its path): then all scores count as equal.

    Parameters
    ----------
    sizes
        Arguments of `tiering.layout.writer.layout_options`.
    scores
        Those the graph was ordered by, for a split.
    """
    from tiering.layout.predict import predict_layout as predict
    from tiering.layout.split import order_of
    from tiering.layout.tiers import plan_layout
    from tiering.layout.writer import layout_options
    from tiering.placement import parse_capacities

    options = layout_options(**sizes)
    folders = [Path(folder) for folder in options["ssd"]]
    capacities = parse_capacities(sizes.get("gpu"), sizes.get("peer"), sizes.get("cpu"), ssd=bool(folders))
    if isinstance(graph, Graph):
        where, score = graph.path, order_of(graph).score
        capacities, steps, notes = _split(graph, tables, capacities, sizes, scores, budget, len(folders))
    else:
        where, score = graph, partial(_equal_scores, tables)
        capacities, steps, notes = _future_split(tables, capacities, "split" in options)
    tiers = plan_layout(where, score, tables, capacities, options["page_bytes"], len(folders))
    plan = predict(tiers, tables, out, folders, budget, copied=copied)
    return replace(plan, steps=(*steps, *plan.steps), notes=notes)


Divided = tuple["Capacities", tuple[Step, ...], tuple[str, ...]]
"""Sizes of the tiers of feature rows once the GPU's memory is divided, what that takes, and what there is to say."""


def _split(
    graph: Graph,
    tables: Mapping[str, FeatureTable],
    capacities: Capacities,
    sizes: Mapping[str, Any],
    scores: Scores | None,
    budget: Budget,
    images: int,
) -> Divided:
    """Divide the GPU's memory as the layout would: done just now."""
    from tiering.layout.split import parse_request, split_gpu, split_need

    request = parse_request(sizes.get("split"), sizes.get("gpu_times"))
    divided, left = split_gpu(graph, tables, capacities, request, scores, budget, images)
    if divided is None:
        return left, (), ()
    lists = sum(graph.num_nodes(relation[2]) for relation in graph.relations)
    step = Step("split", "done now", split_need(graph, tables), amount=lists, unit="list")
    return left, (step,), (str(divided),)


def _future_split(tables: Mapping[str, FeatureTable], capacities: Capacities, split: bool) -> Divided:
    """Without scores: rows get all of the GPU's memory, as far as other tiers keep some."""
    notes: list[str] = []
    if split and capacities.gpu is not None:
        total = sum(table.rows * table.row_bytes for table in tables.values())
        nbytes = min(total, capacities.gpu.of(total))
        kept = nbytes >= max((table.row_bytes for table in tables.values()), default=1) and not (
            capacities.ssd and nbytes == total
        )
        capacities = replace(capacities, gpu=Size(capacities.gpu.text, bytes=nbytes) if kept else None)
        notes.append("split: what adjacency lists get of the GPU's memory depends on scores; counted as none")
    if len(tables) > 1:
        notes.append("rows of several types: how they share the tiers depends on scores")
    return capacities, (), tuple(notes)


def _equal_scores(tables: Mapping[str, FeatureTable], node_type: str | None = None) -> np.ndarray[Any, Any]:
    return np.broadcast_to(0.0, tables[str(node_type)].rows)


def _one_file_system(one: Path, other: Path) -> bool:
    nearest = next(each for each in (other, *other.parents) if each.exists())
    return one.stat().st_dev == nearest.stat().st_dev
