"""One function per command, which opens what it is given and calls its stage: the public API next to `open`, `check`.

Artifacts are given opened or by path. Every stage takes `out`, the directory to create; `force`: replace its content;
`threads`, a number, or ``auto``: every processor; `memory`, the limit, such as ``8GiB``, ``50%`` or ``auto``;
`verify`: compare what is read with its checksums; `cluster`, a `tiering.ClusterOptions`: run the work as tasks on
threads or on workers of a Ray cluster. None of these changes the result. `estimate_score` is `score_graph`'s dry run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

from tiering import evaluation
from tiering.artifacts.reader import uncached_bytes
from tiering.artifacts.storage import disk_of
from tiering.errors import InputError
from tiering.formats.feature_rows import checked_tables
from tiering.formats.graph import Graph
from tiering.formats.scores import Scores
from tiering.formats.shape import GraphShape
from tiering.formats.user_arrays import Train, UserValues
from tiering.memory import parse_memory
from tiering.pipeline.sources import (
    CHECKSUM_FEATURES,
    import_options,
    open_source,
    plan_source,
    scratch_of,
    table_files,
)
from tiering.pipeline.stage import Pathlike, StageKeywords, StageRun, reading, refuse_reordered
from tiering.run.plan import Estimate
from tiering.text.progress import grouped_notes, note
from tiering.text.units import format_bytes, parse_threads

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tiering.datasets.options import ImportKeywords
    from tiering.evaluation import Evaluation
    from tiering.evaluation.options import EvaluationKeywords
    from tiering.exports.export import Export
    from tiering.formats.embeddings import Embeddings
    from tiering.formats.layout import Layout
    from tiering.layout.options import LayoutKeywords, LayoutOptions
    from tiering.loader import TieredLayout
    from tiering.sampling.options import Fanouts
    from tiering.scores.options import ScoreKeywords

    class ImportCommand(ImportKeywords, StageKeywords, total=False):
        """Keywords of `import_graph`."""

    class ScoreCommand(ScoreKeywords, StageKeywords, total=False):
        """Keywords of `score_graph`."""

    class LayoutCommand(LayoutKeywords, StageKeywords, total=False):
        """Keywords of `write_layout`."""


P = ParamSpec("P")


def import_graph(
    source: Pathlike | Any = None,
    out: Pathlike | None = None,
    format: str = "auto",  # noqa: A002 - the name the command line has
    *,
    edge_ids: bool | None = None,
    **options: Unpack[ImportCommand],
) -> Graph:
    """Import a dataset as a graph artifact.

    Parameters
    ----------
    source
        File or directory; or a URL such as ``s3://bucket/data``, or a graph in memory (PyG's `Data` or `HeteroData`,
        or a `DGLGraph`), whose features are copied.
        Not needed where `relations` maps ``(source, name, destination)`` to tables, and `nodes` types. The source,
        and each table, may be any object with ``__arrow_c_stream__``, such as a frame or a reader; it is read once.
    format
        ``auto``, ``npy``, ``csc``, ``csr``, ``igb``, ``edgelist``, ``mtx``, ``parquet``,
        ``tables``, ``ogb``, ``npz``, ``pyg``, ``dgl`` or ``graphbolt``.
    edge_ids
        Keep each edge's position in the source as edge data, 8 bytes each. ``None``: where the source is PyG's or
        DGL's, in memory or as a file, so that batches name the edges that `source` names by position.
    **options
        Options of the source (`tiering.datasets.options.ImportOptions`) and of every stage. With
        ``checksum_features=True`` each block of 64 MiB of feature files gets a checksum, else 64 samples of 64 KiB.
    """
    if out is None:
        raise InputError("out: the output directory is missing; name the directory of the graph to write")
    run, given = StageRun.split(out, options)
    tables = table_files(given)
    if source is None and not tables:
        raise InputError("source: the dataset is missing; give a dataset, or tables of edges (--relation)")
    source = tables[0] if source is None else source
    run.check_output([source, tables], around=scratch_of(given))
    if run.dry_run:
        stage, shape = plan_source(run, source, format, edge_ids, given)
        return run.estimate(stage, shape=shape)  # type: ignore[no-any-return]
    with (
        grouped_notes(),
        run.carrier() as carrier,
        open_source(run, source, format, given, in_place=carrier is not None, edge_ids=edge_ids) as dataset,
    ):
        chosen = dataset.notes["format"]
        recorded = import_options(source, chosen, format=format, edge_ids=edge_ids, **given)
        if "content" in dataset.notes:
            recorded["content"] = dataset.notes["content"]
        if run.expect is not None:
            run.expect(GraphShape.of_dataset(dataset, edge_ids=recorded["edge_ids"], path=run.path))
        from tiering.graph.build import build_graph

        built = build_graph(
            dataset, out, edge_ids=recorded["edge_ids"], options=recorded,
            checksum_features=bool(given.get(CHECKSUM_FEATURES)),
            seed=int(given.get("split_seed") or 0) if given.get("split") else given.get("seed"), threads=run.threads,
            memory=run.memory, force=run.force, carrier=carrier,
        )  # fmt: skip
    if edge_ids is None and recorded["edge_ids"]:
        size = format_bytes(8 * built.num_edges())
        note(f"note: each edge keeps its position in the source, {size} in all; --no-edge-ids saves this space")
    for warning in built.manifest.body["changes"].get("warnings", []):
        note(f"note: {warning}")
    return built


def score_graph(
    graph: Graph | Pathlike,
    out: Pathlike,
    method: str = "auto",
    *,
    scores: UserValues | None = None,
    train: Train = None,
    seed_time: UserValues | None = None,
    seed: int | None = None,
    **options: Unpack[ScoreCommand],
) -> Scores:
    """Score the nodes of a graph by their expected reads per epoch: float64 by node type, shape (num_nodes,).

    Parameters
    ----------
    graph
        A graph in original ids, opened or by path.
    method
        ``degree``, ``rpr``, ``wrpr``, ``presample``, ``vip``, ``hybrid``; ``auto``: the best for the other arguments.
    train
        Training nodes instead of the split ``train``: another split, ids, a fraction as ``"1%"``, a ``.npy`` file,
        or one of these by node type (`tiering.formats.user_arrays.resolve_train`).
    seed_time
        With ``time``: the time of each training node, in their order, which may come several times then: an array, a
        ``.npy`` file, or one of these by type. By default a node's own.
    seed
        Seed of the sampler and of a fraction of training nodes; 0 by default.
    scores
        Your own scores, not a method's: an array, Arrow column or ``.npy`` file, or a mapping from node type to one.
    **options
        Options of sampling (``fanouts``, ``batch_size``: `tiering.sampling.SamplingOptions`), of methods (``damping``,
        ``epochs``...: `tiering.scores.request.ScoreOptions`), of every stage.
    """
    from tiering.scores import plan as planning

    run, given = StageRun.split(out, options)
    base = run.open(graph, Graph)
    run.check_output([base, scores, train, seed_time])
    refuse_reordered(base, "score")
    asked: dict[str, Any] = {"scores": scores, "train": train, "seed": seed, "threads": run.threads}
    asked |= {"seed_time": seed_time, "memory": run.memory, **given}
    if run.dry_run:
        plan = planning.plan_score(base, method, carrier=run.planner, **asked)
        stage = plan.stage(base, GraphShape.of(base), run.path)
        return run.estimate(stage, base, prefix="nodes/")  # type: ignore[no-any-return]
    with run.carrier(base) as carrier:
        return planning.score_graph(base, method, out, force=run.force, carrier=carrier, **asked)


def evaluate_scores(
    graph: Graph | TieredLayout | Layout | Pathlike,
    scores: Sequence[Scores | Pathlike] = (),
    *,
    fanouts: Fanouts = (10, 10, 10),
    verify: bool = True,
    **options: Unpack[EvaluationKeywords],
) -> Evaluation:
    """Count the reads of sampled epochs, and the fraction of them that caches filled by each score would have served.

    Parameters
    ----------
    graph
        Graph, reordered or not, or a layout, opened or by path. A layout's order is evaluated as the score ``layout``,
        by default with its tiers; ids in `train` are the source's ids.
    scores
        Scores of the graph; the oracle, which knows the reads, is always there.
    fanouts
        Neighbors per hop, the seeds' own first, in any form of `tiering.text.units.parse_fanouts`.
    **options
        Options of `tiering.evaluation.evaluate`: ``epochs`` (3), ``shares`` (capacities, 0 to 1), ``tiers``..., and of
        `tiering.sampling.SamplingOptions`: ``batch_size`` (1024 nodes), ``seed`` (0)...
    """
    from tiering.evaluation.layout_order import layout_order
    from tiering.formats.layout import Layout
    from tiering.formats.registry import open_artifact

    run = StageRun("", verify=verify)
    artifact: Any = open_artifact(graph) if isinstance(graph, str | os.PathLike) else getattr(graph, "artifact", graph)
    if not isinstance(artifact, Graph | Layout):
        kind = getattr(artifact, "kind", type(artifact).__name__)
        place = getattr(artifact, "path", graph)
        raise InputError(f"{place}: expected a graph or a layout to evaluate, found {kind}")
    base = run.open(artifact.graph if isinstance(artifact, Layout) else artifact, Graph)
    judged = [run.open(one, Scores) for one in scores]
    with reading(base, *judged):
        own = layout_order(artifact) if isinstance(artifact, Layout) else {"scores": {}}
        known = {**own.pop("scores"), **evaluation.named_scores(base, judged)}
        result = evaluation.evaluate(base, known, fanouts, **{**own, **options})
        for read in (base, *judged):
            read.finish_reads()
    return result


def reorder_graph(
    graph: Graph | Pathlike,
    scores: Scores | Pathlike | None,
    out: Pathlike,
    *,
    first: UserValues | None = None,
    features: bool = False,
    **options: Unpack[StageKeywords],
) -> Graph:
    """Renumber the nodes of a graph by falling score: ids are ranks, and `Graph.new_to_old` leads back.

    Parameters
    ----------
    graph, scores
        A graph in original ids and scores of it, opened or by path. Only a dry run takes no scores.
    first
        Nodes that come before all others, in order: original ids, a ``.npy`` file, or a mapping from node type to one.
    features
        Also write the feature tables in rank order; otherwise the features stay as the graph has them.
    """
    from tiering.reorder import graph as relabeling
    from tiering.reorder.plan import ReorderPlan
    from tiering.reorder.rank import check_scores, read_first

    run = StageRun(out, **options)
    base = run.open(graph, Graph)
    known: Any = None if run.dry_run and scores is None else run.open(scores, Scores)
    run.check_output([base, known, first])
    refuse_reordered(base, "reorder")
    if known is not None:
        check_scores(base, known)
    if features and isinstance(base, Graph):
        checked_tables(base)
    budget, threads, shape = parse_memory(run.memory), parse_threads(run.threads), GraphShape.of(base)
    chosen = {} if first is None else read_first(base, first)
    values = [] if known is None else [known.values(node_type) for node_type in base.node_types]
    uncached = sum(map(uncached_bytes, values)) / max(1, sum(array.nbytes for array in values))
    plan = ReorderPlan(shape, budget, threads, uncached, tuple(chosen))
    if run.dry_run:
        compared = (base.part("names"), None if features else base.features) if isinstance(base, Graph) else ()
        sizes = shape.reordered(run.path, features=features)
        return run.estimate(plan.stage(run.path, features, run.planner), *compared, shape=sizes)  # type: ignore[no-any-return]
    with run.carrier(base, known) as carrier:
        if carrier is None:
            plan.require_memory(features)
        return relabeling.reorder_graph(
            base, known, out, first=chosen, features=features, threads=threads, memory=budget, force=run.force,
            carrier=carrier,
        )  # fmt: skip


def write_layout(
    reordered: Graph | Pathlike,
    out: Pathlike,
    options: LayoutOptions | None = None,
    *,
    scores: Scores | Pathlike | None = None,
    **settings: Unpack[LayoutCommand],
) -> TieredLayout:
    """Place the feature rows of a reordered graph in tiers; return the layout, ready to read.

    Parameters
    ----------
    reordered
        Graph from `reorder_graph`, opened or by path.
    options, **settings
        Sizes as keywords, ``gpu="8GiB", cpu="64GiB", ssd=["/nvme0", "/nvme1"]``, or one object
        (`tiering.layout.options.LayoutOptions`), and options of every stage. `fanouts` and `batch_size` describe
        the batches for which automatic sizes reserve memory.
    scores
        Scores that the graph was ordered by: needed for an adjacency cache, used for edge features.
    """
    from tiering.loader.layout import TieredLayout

    return TieredLayout(layout(reordered, out, options, scores=scores, **settings))


def layout(
    graph: Graph | Pathlike,
    out: Pathlike,
    options: LayoutOptions | None = None,
    *,
    scores: Scores | Pathlike | None = None,
    **settings: Unpack[LayoutCommand],
) -> Layout:
    """Write the artifact of `write_layout`, which takes the same parameters; a dry run takes sizes for the graph."""
    run, sizes = StageRun.split(out, settings)
    if options is not None and sizes:
        raise TypeError(f"layout: expected LayoutOptions or keywords, found both ({', '.join(sizes)}); give one")
    from tiering.layout import writer
    from tiering.layout.inputs import LayoutInput
    from tiering.layout.options import LayoutOptions
    from tiering.layout.plan import plan_layout
    from tiering.layout.stripe_files import folders_apart
    from tiering.pipeline.sizes import measure_room

    asked, base = LayoutOptions.of(**sizes) if options is None else options, run.open(graph, Graph)
    known = None if scores is None else run.open(scores, Scores)
    read = (base,) if known is None else (base, known)
    run.check_output(read, folders_apart(run.path, asked.folders))
    asked = measure_room(asked, base)
    if isinstance(base, GraphShape):
        plan = plan_layout(LayoutInput.expected(base, asked), asked, budget := parse_memory(run.memory))
        return run.estimate(plan.stage(run.path, budget, 0, run.planner))  # type: ignore[no-any-return]
    with run.carrier(*read) as carrier:
        if asked.fit is not None:
            from tiering.loader.gpu.fit import fit_costs

            asked = fit_costs(asked, base, known, run.memory)
        if not run.dry_run:
            return writer.write_layout(
                base, out, asked, scores=known, threads=run.threads, memory=run.memory, force=run.force,
                carrier=carrier,
            )  # fmt: skip
        shape, budget = GraphShape.of(base), parse_memory(run.memory)
        plan = plan_layout(LayoutInput.of(base, asked, known), asked, budget)
        copied = 0 if disk_of(base.path) == disk_of(run.path) else shape.graph_bytes() + shape.order_bytes()
        return run.estimate(plan.stage(run.path, budget, copied, run.planner), base)  # type: ignore[no-any-return]


def export_layout(
    layout: TieredLayout | Layout | Graph | Embeddings | Pathlike,
    out: Pathlike,
    *,
    original_order: bool = False,
    stored: bool = False,
    format: str = "npy",  # noqa: A002 - the name the command line has
    **options: Unpack[StageKeywords],
) -> Export:
    """Write a layout, graph or embeddings as ``.npy`` files, or embeddings as ``parquet``, for other programs.

    See `tiering.exports.export.write_export` and ``export_embeddings``.
    """
    from tiering.exports.export import export_embeddings, write_export
    from tiering.formats.embeddings import Embeddings
    from tiering.formats.layout import Layout
    from tiering.formats.registry import open_artifact

    run = StageRun(out, **options)
    artifact: Any = open_artifact(layout) if isinstance(layout, str | os.PathLike) else layout
    artifact = getattr(artifact, "artifact", artifact)  # of a layout that is ready to read
    if not isinstance(artifact, Layout | Graph | Embeddings):
        kind = getattr(artifact, "kind", type(artifact).__name__)
        place = getattr(artifact, "path", artifact)
        raise InputError(f"{place}: expected a layout, a graph or embeddings to export, found {kind}")
    if run.cluster is not None:
        raise InputError("cluster: an export does not run as tasks; omit `cluster`")
    run.check_output([artifact])
    if isinstance(artifact, Embeddings):
        if run.dry_run or stored:
            raise InputError("dry run, stored: have no effect on embeddings; omit them")
        if run.verify:
            artifact.verify_reads()
        return export_embeddings(
            artifact, out, original_order=original_order, format=format, threads=run.threads, memory=run.memory,
            force=run.force,
        )  # fmt: skip
    if format != "npy":
        raise InputError(f"format: expected npy, found {format!r}; only embeddings are exported in other formats")
    if run.dry_run:
        from tiering.exports.arrays import ExportPlan

        plan = ExportPlan(artifact, original_order, parse_memory(run.memory), parse_threads(run.threads), stored)
        return run.estimate(plan.stage(run.path))  # type: ignore[no-any-return]
    if run.verify:
        artifact.verify_reads()
    with reading(artifact):
        return write_export(
            artifact, out, original_order=original_order, stored=stored, threads=run.threads, memory=run.memory,
            force=run.force,
        )  # fmt: skip


def _dry_run(command: Callable[P, Any]) -> Callable[P, Estimate]:
    """Return the dry run of a command, which takes the same, and sizes in the place of a graph that does not exist."""

    @wraps(command)
    def estimate(*args: P.args, **options: P.kwargs) -> Estimate:
        return Estimate((command(*args, **options, dry_run=True)[0],))  # type: ignore[arg-type]

    estimate.__name__ = f"estimate_{command.__name__.partition('_')[0]}"
    estimate.__doc__ = f"Estimate the time, memory and disk space of `{command.__name__}`; nothing is written."
    return estimate


estimate_import, estimate_score = _dry_run(import_graph), _dry_run(score_graph)
estimate_reorder = _dry_run(reorder_graph)
estimate_layout, estimate_export = _dry_run(layout), _dry_run(export_layout)
