"""What commands would do: plans of stages, made without running them. Nothing is written."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tiering.artifacts.streaming import uncached_bytes
from tiering.errors import InputError
from tiering.execution import Budget, parse_memory
from tiering.execution.forecast import Forecast
from tiering.execution.plan import StagePlan, Step
from tiering.execution.rates import Rates, measure_rates
from tiering.formats.features import FeatureTable
from tiering.formats.graph import Graph
from tiering.formats.protocols import Dataset
from tiering.formats.scores import Scores
from tiering.formats.shape import FutureGraph, GraphShape
from tiering.formats.train_set import Train
from tiering.pipeline.stages import Pathlike, dataset_for, opened
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
    plan, _, rates = import_plan(source, target, format, edge_ids, parse_threads(threads), budget, options)
    return Forecast((plan,), rates)


def import_plan(
    source: Pathlike,
    out: Path,
    format: str,  # noqa: A002 - the name the command line has
    edge_ids: bool,
    threads: int,
    budget: Budget,
    options: Mapping[str, Any],
) -> tuple[StagePlan, GraphShape, Rates]:
    """Plan of an import, the sizes of the graph it would make, and the rates behind the plan."""
    from tiering.datasets import open_dataset  # noqa: F401 - loaded now, so that opening alone is timed
    from tiering.graph.predict import predict_import as predict

    begun = time.perf_counter()
    with dataset_for(source, out, format, budget, options) as dataset:
        opening = _opening(dataset, time.perf_counter() - begun)
        rates = measure_rates(threads, _largest(dataset), out)
        plan, shape = predict(dataset, out, budget, rates, edge_ids=edge_ids)
    return StagePlan("import", out, (opening, *plan.steps), plan.left, plan.held), shape, rates


def _opening(dataset: Dataset, seconds: float) -> Step:
    """Opening the dataset: done just now, and timed."""
    read = sum(found.bytes for found in dataset.files.values()) if dataset.format in PARSED else 0
    arrays = [array for edges in dataset.edges for array in (edges.src, edges.dst, *edges.data.values())]
    nameless = [array for array in arrays if isinstance(array, np.memmap) and array.filename is None]
    scratch = sum(array.nbytes for array in nameless)
    return Step("open", "measured now", 0, read, 0, scratch, seconds)


def _largest(dataset: Dataset) -> Path | None:
    """The largest file of a dataset."""
    files = [(found.bytes, path) for path, found in dataset.files.items() if Path(path).is_file()]
    return Path(max(files)[1]) if files else None


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
    """What `tiering.pipeline.score` would take. Methods that sample do so for half a second, to learn their speed."""
    graph, target = opened(graph, Graph), Path(out).absolute()
    rates = measure_rates(parse_threads(threads), _largest_file(graph), target)
    given = {"method": method, "train": train, "seed": seed, **options}
    return Forecast((score_plan(graph, target, parse_memory(memory), rates, given),), rates)


def score_plan(
    graph: Graph | FutureGraph, out: Path, budget: Budget, rates: Rates, given: Mapping[str, Any]
) -> StagePlan:
    """Plan of a score of a graph, or of one that does not exist yet."""
    from tiering.scores import plan_score
    from tiering.scores.predict import predict_score as predict

    if graph.order is not None:
        raise InputError(f"{graph.path}: this graph is reordered; score the graph it was made from")
    shape = graph if isinstance(graph, FutureGraph) else GraphShape.of_graph(graph)
    plan = plan_score(graph, **given, threads=rates.threads, memory=budget)  # type: ignore[arg-type]
    return predict(graph, plan, shape, out, rates)


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
    target = Path(out).absolute()
    rates = measure_rates(parse_threads(threads), _largest_file(graph), target)
    values = [scores.values(node_type) for node_type in graph.node_types]
    uncached = sum(map(uncached_bytes, values)) / max(1, sum(each.nbytes for each in values))
    shape, budget = GraphShape.of_graph(graph), parse_memory(memory)
    return Forecast((reorder_plan(shape, target, budget, rates, features, uncached),), rates)


def reorder_plan(
    shape: GraphShape, out: Path, budget: Budget, rates: Rates, features: bool, uncached: float = 0.0
) -> StagePlan:
    """Plan of ranking and reorder together; `uncached` is the share of the scores that is not in the page cache."""
    from tiering.order.predict import predict_order
    from tiering.reorder.predict import predict_reorder as predict

    ranking = predict_order(shape, budget, rates, uncached)
    return predict(shape, ranking, out, budget, rates, features=features, uncached=uncached)


def _largest_file(graph: Graph) -> Path | None:
    files = {name: entry.bytes for name, entry in graph.manifest.files.items()}
    return graph.path / max(files, key=files.__getitem__) if files else None


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
    paths = [table.path for table in tables.values()]
    rates = measure_rates(parse_threads(threads), max(paths, key=lambda p: p.stat().st_size, default=None), target)
    shape = GraphShape.of_graph(graph)
    copied = 0 if _one_file_system(graph.path, target) else shape.graph_bytes() + shape.order_bytes()
    sizes = {"gpu": gpu, "peer": peer, "cpu": cpu, "ssd": ssd, "page": page, "split": split, "gpu_times": gpu_times}
    budget = parse_memory(memory)
    return Forecast((layout_plan(graph, tables, target, budget, rates, sizes, known, copied),), rates)


def layout_plan(
    graph: Graph | Path,
    tables: dict[str, FeatureTable],
    out: Path,
    budget: Budget,
    rates: Rates,
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
    plan = predict(tiers, tables, out, folders, budget, rates, copied=copied)
    return StagePlan(plan.stage, out, (*steps, *plan.steps), plan.left, plan.held, notes)


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
    """Divide the GPU's memory as the layout would: done just now, and timed."""
    from tiering.layout.split import parse_request, split_gpu, split_need

    begun, request = time.perf_counter(), parse_request(sizes.get("split"), sizes.get("gpu_times"))
    divided, left = split_gpu(graph, tables, capacities, request, scores, budget, images)
    if divided is None:
        return left, (), ()
    lists = sum(graph.num_nodes(relation[2]) for relation in graph.relations)
    need, seconds = split_need(graph, tables), time.perf_counter() - begun
    step = Step("split", "measured now", need, seconds=seconds, amount=lists, unit="list")
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
