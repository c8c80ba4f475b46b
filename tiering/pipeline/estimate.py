"""Dry runs of commands: the plans of their stages, made without running them. Nothing is written.

The functions take what those of `tiering.pipeline.commands` take, and sizes in the place of a graph that does not exist
yet.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.reader import uncached_bytes
from tiering.artifacts.storage import disk_of
from tiering.errors import InputError
from tiering.formats.dataset import Dataset
from tiering.formats.feature_rows import checked_tables
from tiering.formats.graph import Graph
from tiering.formats.layout import Layout
from tiering.formats.scores import Scores
from tiering.formats.shape import GraphShape, SizedGraph
from tiering.formats.train_set import Train
from tiering.formats.user_arrays import UserValues
from tiering.memory import parse_memory
from tiering.pipeline.commands import (
    Memory,
    Pathlike,
    Threads,
    check_output,
    open_checked,
    open_exportable,
    open_source,
    refuse_reordered,
    scratch_of,
)
from tiering.plan import Estimate, StageEstimate, StepEstimate
from tiering.run.carrier import Carrier, ClusterOptions
from tiering.units import parse_threads

if TYPE_CHECKING:
    from tiering.datasets.specs import DatasetSpec
    from tiering.layout import LayoutOptions

PARSED = ("edgelist", "mtx", "npz", "parquet", "dgl")
"""Formats that are read as a whole when they are opened."""


def estimate_import(
    source: Pathlike,
    out: Pathlike,
    format: str = "auto",  # noqa: A002
    *,
    cluster: ClusterOptions | None = None,
    **options: Any,
) -> Estimate:
    """Estimate what `import_graph` would take.

    The dataset is opened as the import opens it: `PARSED` formats are read, into temporary files without names.
    """
    check_output(out, [source], cluster, around=scratch_of(options))
    return Estimate((import_plan(source, out, format, cluster=cluster, **options)[0],))


def import_plan(
    source: Pathlike,
    out: Pathlike,
    format: str,  # noqa: A002 - the name the command line has
    *,
    edge_ids: bool = False,
    threads: Threads = None,
    memory: Memory = None,
    cluster: ClusterOptions | None = None,
    **options: Any,
) -> tuple[StageEstimate, GraphShape]:
    """Plan an import and the sizes of its graph; a published dataset that is missing is sized by its specification."""
    from tiering.datasets.specs import find_spec, make_sized_dataset
    from tiering.graph.plan import plan_import

    target, spec, published, carrier = Path(out).absolute(), options.get("spec"), None, _carrier(cluster)
    if spec is not None and not Path(source).exists():
        published = find_spec(str(spec))
    with (
        open_source(source, target, format, memory, options, in_place=carrier is not None)
        if published is None
        else make_sized_dataset(published, Path(source).absolute(), options.get("split"))
    ) as dataset:
        opening = _opening(dataset) if published is None else _future_opening(dataset)
        plan = plan_import(dataset, parse_memory(memory), edge_ids=edge_ids, out=target, carrier=carrier)
        stage = plan.stage(target)
    return replace(stage, steps=(opening, *stage.steps), threads=parse_threads(threads)), plan.shape


def _carrier(cluster: ClusterOptions | None) -> Carrier | None:
    """Return a carrier that is only asked what it cuts."""
    return Carrier(cluster) if cluster is not None and cluster.cuts else None


class SpecSizes(NamedTuple):
    """Plan of importing a published dataset: the types and relations whose files must be there."""

    nodes: int
    edges: int
    graph_bytes: int
    """Sizes of the graph to be written, features apart."""
    least_memory: int


def estimate_spec(source: DatasetSpec) -> SpecSizes | None:
    """Return the sizes of a published dataset and of its import; ``None`` if they are not published."""
    from tiering.datasets.specs import make_sized_dataset
    from tiering.graph.plan import least_memory

    try:
        with make_sized_dataset(source, Path()) as dataset:
            shape = GraphShape.of_dataset(dataset)
            return SpecSizes(shape.num_nodes(), shape.num_edges(), shape.graph_bytes(), least_memory(dataset))
    except InputError:
        return None


def _opening(dataset: Dataset) -> StepEstimate:
    """Return the step of opening the dataset, which is already done."""
    in_place = any(edges.decode for edges in dataset.edges)
    read = sum(file.bytes for file in dataset.files.values()) if dataset.format in PARSED and not in_place else 0
    arrays = [array for edges in dataset.edges for array in (edges.src, edges.dst, *edges.data.values())]
    nameless = [array for array in arrays if isinstance(array, np.memmap) and array.filename is None]
    return StepEstimate("open", "done now", 0, read, 0, sum(array.nbytes for array in nameless))


def _future_opening(dataset: Dataset) -> StepEstimate:
    """Return the step of reading the files of a missing dataset once, features apart."""
    labels = [node.labels for node in dataset.nodes.values() if node.labels is not None]
    read = sum(array.nbytes for array in (*labels, *(array for edges in dataset.edges for array in edges.arrays)))
    return StepEstimate("files", "read once", 0, read)


def _open_sized(graph: SizedGraph | Pathlike) -> SizedGraph:
    return graph if isinstance(graph, GraphShape) else open_checked(graph, Graph)


def estimate_score(
    graph: SizedGraph | Pathlike,
    out: Pathlike,
    method: str = "auto",
    *,
    scores: UserValues | None = None,
    train: Train = None,
    seed: int | None = None,
    threads: Threads = None,
    memory: Memory = None,
    cluster: ClusterOptions | None = None,
    **options: Any,
) -> Estimate:
    """Estimate what `score_graph` would take."""
    from tiering.scores import plan_score

    check_output(out, [graph := _open_sized(graph), scores, train], cluster)
    if isinstance(graph, Graph) and graph.order is not None:
        raise InputError(f"{graph.path}: this graph is reordered; score the graph it was made from")
    plan = plan_score(
        graph, method, scores=scores, train=train, seed=seed, threads=parse_threads(threads), memory=memory,
        carrier=_carrier(cluster), **options,
    )  # fmt: skip
    stage = plan.stage(graph, GraphShape.of(graph), Path(out).absolute())
    return Estimate((_with_checksums(stage, graph, prefix="nodes/"),))


def _with_checksums(stage: StageEstimate, *artifacts: object, prefix: str = "") -> StageEstimate:
    """Add a step for the files of artifacts that are compared with their checksums before results are published."""
    nbytes = sum(_uncached_files(artifact, prefix) for artifact in artifacts if isinstance(artifact, Artifact))
    step = StepEstimate("checksums", "compared at the end", disk_read=nbytes)
    return replace(stage, steps=(*stage.steps, step)) if nbytes else stage


def _uncached_files(artifact: Artifact, prefix: str) -> int:
    """Return the bytes of an artifact's files outside the page cache, without feature tables, read row by row."""
    files = [name for name, entry in artifact.manifest.files.items() if entry.bytes and name.startswith(prefix)]
    inside = [artifact.part(name) for name in artifact.parts() if name != "features"]
    own = sum(uncached_bytes(artifact.manifest.array(name)) for name in files)
    return own + sum(_uncached_files(part, prefix) for part in inside if part is not None)


def estimate_reorder(
    graph: SizedGraph | Pathlike,
    scores: Scores | Pathlike | None,
    out: Pathlike,
    *,
    first: UserValues | None = None,
    features: bool = False,
    threads: Threads = None,
    memory: Memory = None,
    cluster: ClusterOptions | None = None,
) -> Estimate:
    """Estimate what `reorder_graph` would take; without `scores`, by any scores."""
    from tiering.reorder import check_scores, plan_reorder, read_first

    graph, uncached = _open_sized(graph), 0.0
    check_output(out, [graph, scores, first], cluster)
    if isinstance(graph, Graph):
        refuse_reordered(graph)
        if features:
            checked_tables(graph)
    if isinstance(graph, Graph) and scores is not None:
        check_scores(graph, scores := open_checked(scores, Scores))
        values = [scores.values(node_type) for node_type in graph.node_types]
        uncached = sum(map(uncached_bytes, values)) / max(1, sum(array.nbytes for array in values))
    shape, budget, target = GraphShape.of(graph), parse_memory(memory), Path(out).absolute()
    chosen = () if first is None else tuple(read_first(graph, first))
    plan = plan_reorder(shape, target, budget, parse_threads(threads), features, uncached, chosen, _carrier(cluster))
    if isinstance(graph, Graph):
        plan = _with_checksums(plan, graph.part("names"), None if features else graph.features)
    return Estimate((plan,))


def estimate_layout(
    graph: SizedGraph | Pathlike,
    out: Pathlike,
    options: LayoutOptions | None = None,
    *,
    scores: Scores | Pathlike | None = None,
    threads: Threads = None,
    memory: Memory = None,
    cluster: ClusterOptions | None = None,
    **settings: Any,
) -> Estimate:
    """Estimate what `write_layout` would take; the notes say how it would divide the GPU's memory.

    Costs that are to be measured (`fit`) are measured. Where the graph does not exist yet, all scores count as equal.
    """
    from tiering.layout import LayoutOptions
    from tiering.layout.plan import plan_future_layout, plan_layout

    graph, target, copied = _open_sized(graph), Path(out).absolute(), 0
    known, asked = None if scores is None else open_checked(scores, Scores), LayoutOptions.resolve(options, settings)
    check_output(out, [graph, known], cluster, asked.folders)
    if isinstance(graph, Graph):
        if asked.fit is not None:
            from tiering.loader.gpu.fit import fit_costs

            asked = fit_costs(asked, graph, known, memory)
        tables, shape = checked_tables(graph), GraphShape.of(graph)
        budget = parse_memory(memory)
        plan = plan_layout(graph, tables, asked, known, budget)
        if disk_of(graph.path) != disk_of(target):
            copied = shape.graph_bytes() + shape.order_bytes()
    else:
        tables, budget = graph.tables, parse_memory(memory)
        tables |= dict(sorted(graph.edge_tables.items())) if asked.edge_features else {}
        plan = plan_future_layout(graph.path, tables, asked)
    stage = _with_checksums(plan.stage(target, budget, copied, _carrier(cluster)), graph)
    return Estimate((replace(stage, threads=parse_threads(threads)),))


def estimate_export(
    layout: Layout | Graph | Pathlike,
    out: Pathlike,
    *,
    original_order: bool = False,
    threads: Threads = None,
    memory: Memory = None,
) -> Estimate:
    """Estimate what `export_layout` would take."""
    from tiering.exports import ExportSource, plan_export

    check_output(out, [artifact := open_exportable(layout)], None)
    source = ExportSource(artifact, original=original_order)
    return Estimate((plan_export(source, Path(out).absolute(), parse_memory(memory), parse_threads(threads)),))
