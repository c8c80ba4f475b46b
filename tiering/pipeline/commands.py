"""One function per command, which opens what it is given and calls its stage: the public API next to `open`, `check`.

Artifacts are given opened or by path; what is read of them is compared with their checksums unless `verify` is off.
`out` is the directory to create; `force` replaces what is at `out`. `threads` is a number, or ``auto`` (also ``None``):
every processor; `memory` is what to stay within, bytes or text such as ``8GiB``, ``50%`` or ``auto``, most of what is
free; neither changes the result. `cluster`, a `tiering.ClusterOptions`: the work is cut into tasks, for
threads or for the workers of a Ray cluster; the result is the same bytes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.checksum import digest_bytes
from tiering.artifacts.overlap import refuse_overlap
from tiering.artifacts.storage import nearest_folder
from tiering.errors import FormatError, InputError, RefusedError
from tiering.formats.dataset import Dataset
from tiering.formats.graph import Graph
from tiering.formats.layout import Layout
from tiering.formats.registry import open_artifact
from tiering.formats.scores import Scores
from tiering.formats.shape import GraphShape
from tiering.formats.train_set import Train
from tiering.formats.user_arrays import UserValues
from tiering.memory import Budget, parse_memory
from tiering.run.carrier import Carrier, ClusterOptions
from tiering.units import parse_fanouts, parse_threads

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tiering.datasets.options import ImportKeywords
    from tiering.evaluation import Evaluation
    from tiering.evaluation.options import EvaluationKeywords
    from tiering.exports import Export
    from tiering.layout import LayoutOptions
    from tiering.layout.options import LayoutKeywords
    from tiering.loader import TieredLayout
    from tiering.sampling.options import Fanouts
    from tiering.scores.request import ScoreKeywords

A = TypeVar("A", bound=Artifact)
CHECKSUM_FEATURES = "checksum_features"
"""Option of an import that is not the source's."""
Pathlike = str | os.PathLike[str]
Memory = str | int | Budget | None
Threads = int | str | None
Workers: TypeAlias = "ClusterOptions | Carrier | None"


def generate_dataset(
    out: Pathlike,
    *,
    nodes: int,
    edges: int,
    dim: int = 128,
    classes: int = 8,
    seed: int = 0,
    hetero: bool = False,
    dtype: str = "float32",
    split: tuple[float, float, float] = (0.1, 0.05, 0.1),
    featureless: Sequence[str] = (),
    force: bool = False,
) -> Path:
    """Generate a dataset in IGB's form; its parameters are those of `tiering.datasets.generated.generate`.

    Returns
    -------
    pathlib.Path
        `out`, for `import_graph`.
    """
    from tiering.datasets.generated import generate

    generate(
        out, nodes=nodes, edges=edges, dim=dim, classes=classes, seed=seed, hetero=hetero, dtype=dtype, split=split,
        featureless=featureless, force=force,
    )  # fmt: skip
    return Path(out)


def import_graph(
    source: Pathlike | Any,
    out: Pathlike,
    format: str = "auto",  # noqa: A002 - the name the command line has
    *,
    edge_ids: bool = False,
    threads: Threads = None,
    memory: Memory = None,
    force: bool = False,
    cluster: Workers = None,
    **options: Unpack[ImportKeywords],
) -> Graph:
    """Import a dataset of the user's as a graph artifact.

    Parameters
    ----------
    source
        File or directory; or a graph in memory: PyG's `Data` or `HeteroData`, or a `DGLGraph`; its features are copied.
    format
        ``auto``, ``npy``, ``csc``, ``csr``, ``igb``, ``edgelist``, ``mtx``, ``parquet``,
        ``ogb``, ``npz``, ``pyg``, ``dgl`` or ``graphbolt``.
    edge_ids
        Keep each edge's position in the input.
    **options
        Of the source: see `tiering.datasets.options.ImportOptions`. ``checksum_features=True``: feature files are read
        whole, and a checksum is recorded of each block of 64 MiB, which stages and `tiering check --full` compare;
        without, 64 samples of 64 KiB are.
    threads, memory, force, cluster
        As in every stage; see `tiering.pipeline.commands`.

    Returns
    -------
    Graph
        The artifact at `out`, opened.
    """
    check_output(out, [source], cluster, around=scratch_of(options))
    return import_to(
        source, out, format, edge_ids=edge_ids, threads=threads, memory=memory, force=force, cluster=cluster, **options
    )


def import_to(
    source: Pathlike | Any,
    out: Pathlike,
    format: str,  # noqa: A002
    *,
    edge_ids: bool,
    threads: Threads,
    memory: Memory,
    force: bool,
    cluster: Workers,
    **options: Unpack[ImportKeywords],
) -> Graph:
    """Do what `import_graph` does, to an `out` that was checked."""
    from tiering.graph import build_graph

    seed = int(options.get("split_seed") or 0) if options.get("split") else None
    recorded = import_options(source, format, edge_ids, options)
    with (
        carried(cluster) as carrier,
        open_source(source, Path(out), format, memory, options, in_place=carrier is not None) as dataset,
    ):
        if "content" in dataset.notes:
            recorded["content"] = dataset.notes["content"]
        return build_graph(
            dataset, out, edge_ids=edge_ids, checksum_features=bool(options.get(CHECKSUM_FEATURES)), options=recorded,
            seed=seed, threads=threads, memory=memory, force=force, carrier=carrier,
        )  # fmt: skip


def check_output(
    out: Pathlike,
    reads: Iterable[Any],
    cluster: Workers,
    ssd: Iterable[Path] = (),
    around: Iterable[tuple[Path, str]] = (),
) -> None:
    """Refuse an output that overlaps what the command reads or where else it writes.

    `reads` are artifacts, paths, mappings to paths, texts such as ``paper=ids.npy,author=1%``, or arrays.
    """
    options: Any = getattr(cluster, "options", cluster)
    stores = [] if options is None or options.store is None else [Path(options.store)]
    refuse_overlap(Path(out).absolute(), _paths(reads), [*ssd, *stores], around)


def _paths(reads: Iterable[Any]) -> Iterator[Path]:
    for one in reads:
        if isinstance(one, Mapping | list | tuple):
            yield from _paths(one.values() if isinstance(one, Mapping) else one)
        elif isinstance(one, str | os.PathLike):
            texts = (os.fsdecode(one), *re.split("[,=]", os.fsdecode(one)))
            yield from (Path(text) for text in texts if text and Path(text).exists())
        elif hasattr(one, "path"):
            yield Path(one.path)


def scratch_of(options: Mapping[str, Any]) -> list[tuple[Path, str]]:
    """Return the directory of an import's temporary files, if one is given."""
    return [(Path(options["work_dir"]), "holds temporary files of the command")] if options.get("work_dir") else []


@contextmanager
def open_carrier(cluster: Workers) -> Iterator[Carrier | None]:
    """Start a carrier from options, and end it; ``None`` where these cut nothing."""
    if isinstance(cluster, ClusterOptions):
        with Carrier(cluster) as carrier:
            yield carrier if cluster.cuts else None
    else:
        yield cluster


@contextmanager
def carried(cluster: Workers) -> Iterator[Carrier | None]:
    """Start the carrier of a stage; when all went well, remove what its tasks wrote to the shuffle."""
    with open_carrier(cluster) as carrier:
        yield carrier
        if carrier is not None:
            carrier.finish()


def open_source(
    source: Pathlike | Any,
    out: Path,
    format: str,  # noqa: A002
    memory: Memory,
    options: Mapping[str, Any],
    *,
    in_place: bool = False,
) -> Dataset:
    """Open the dataset of an import; temporary files go to the disk that has room for the graph."""
    from tiering.datasets import open_dataset

    given = {"work_dir": nearest_folder(out.absolute().parent), **options}
    given.pop(CHECKSUM_FEATURES, None)
    return open_dataset(source, format=format, memory=memory, in_place=in_place, **given)


def import_options(source: Pathlike | Any, format: str, edge_ids: bool, options: Mapping[str, Any]) -> dict[str, Any]:  # noqa: A002
    """Return the recorded options of an import: without defaults, with the file names read."""
    from tiering.datasets.options import given_options

    in_hand = not isinstance(source, (str, os.PathLike))
    path = Path(type(source).__qualname__) if in_hand else Path(source).absolute()
    of_source = {name: value for name, value in options.items() if name != CHECKSUM_FEATURES}
    return {
        "source": str(path),
        "source_files": "" if in_hand else _listing(path),
        "asked_format": format,
        "edge_ids": edge_ids,
        "given": given_options(of_source),
        **({CHECKSUM_FEATURES: True} if options.get(CHECKSUM_FEATURES) else {}),
    }


def _listing(path: Path) -> str:
    """Return a digest of the names of the data files under `path`, artifacts left out, to notice changes."""
    names = []
    for folder, folders, files in os.walk(path):
        if "manifest.json" in files:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        own = [name for name in files if Path(name).suffix not in ("", ".toml", ".json", ".png", ".md")]
        names += [os.path.relpath(Path(folder) / name, path) for name in sorted(own) if not name.startswith(".")]
    return digest_bytes(os.fsencode("\n".join(names)))


def score_graph(
    graph: Graph | Pathlike,
    out: Pathlike,
    method: str = "auto",
    *,
    scores: UserValues | None = None,
    train: Train = None,
    seed: int | None = None,
    threads: Threads = None,
    memory: Memory = None,
    force: bool = False,
    verify: bool = True,
    cluster: Workers = None,
    **options: Unpack[ScoreKeywords],
) -> Scores:
    """Score the nodes of a graph; see `tiering.scores.score_graph`.

    Parameters
    ----------
    graph
        A graph in original ids, opened or by path.
    method
        ``degree``, ``rpr``, ``wrpr``, ``presample``, ``vip``, ``hybrid``; ``auto``: the best that is known with what
        is given.
    train
        Training nodes, where the graph's split ``train`` is not meant: another split, ids, a share such as ``"1%"``, a
        ``.npy`` file, or one of these by node type (`tiering.formats.train_set.resolve_train`).
    seed
        Of the sampler and of a share of training nodes; 0 unless given.
    **options
        How training samples: ``fanouts`` (per hop, the seeds' own first), ``batch_size`` (nodes), ``sampler``,
        ``frontier``...: `tiering.sampling.SamplingOptions`. Of the methods: ``damping``, ``sweeps``, ``epochs``...:
        `tiering.scores.request.ScoreOptions`, with defaults.
    scores
        Those that you have computed, in place of a method: an array, the path of a ``.npy`` file, or a mapping from
        node type to one of these.
    out, threads, memory, force, verify, cluster
        As in every stage; see `tiering.pipeline.commands`.

    Returns
    -------
    Scores
        The artifact at `out`, opened: float64 by node type, shape (num_nodes,), expected accesses per epoch.
    """
    from tiering.scores import score_graph as score

    check_output(out, [graph := open_checked(graph, Graph, verify), scores, train], cluster)
    with reading(graph), carried(cluster) as carrier:
        return score(
            graph, method, out, scores=scores, train=train, seed=seed, threads=threads, memory=memory, force=force,
            carrier=carrier, **options,
        )  # fmt: skip


def evaluate_scores(
    graph: Graph | Pathlike,
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
        Opened or by path, reordered or not.
    scores
        Scores of the graph; the oracle, which knows the reads, is always there.
    fanouts
        Neighbours per hop, the seeds' own first, in any form of `tiering.units.parse_fanouts`.
    **options
        Of `tiering.evaluation.evaluate`: ``epochs`` (3), ``shares`` (capacities, 0 to 1), ``tiers``..., and of
        `tiering.sampling.SamplingOptions`: ``batch_size`` (1024 nodes), ``seed`` (0)...

    Returns
    -------
    Evaluation
        Hit rates by score and capacity; shows them as a table and curves in notebooks.
    """
    from tiering.evaluation import evaluate, named_scores

    judged = [open_checked(one, Scores, verify) for one in scores]
    with reading(graph := open_checked(graph, Graph, verify), *judged):
        result = evaluate(graph, named_scores(graph, judged), parse_fanouts(fanouts), **options)
        for artifact in (graph, *judged):
            artifact.finish_reads()
    return result


def reorder_graph(
    graph: Graph | Pathlike,
    scores: Scores | Pathlike,
    out: Pathlike,
    *,
    first: UserValues | None = None,
    features: bool = False,
    threads: Threads = None,
    memory: Memory = None,
    force: bool = False,
    verify: bool = True,
    cluster: Workers = None,
) -> Graph:
    """Renumber the nodes of a graph by falling score; see `tiering.reorder.reorder_graph`.

    Parameters
    ----------
    graph, scores
        A graph in original ids and scores of it, opened or by path.
    features
        Also write the feature tables in rank order; otherwise the features stay as the graph has them.
    first
        Nodes that come before all others, in the order given: an array of original ids, the path of a ``.npy`` file,
        or a mapping from node type to one of these. A layout fills its fastest tiers with them.
    out, threads, memory, force, verify, cluster
        As in every stage; see `tiering.pipeline.commands`.

    Returns
    -------
    Graph
        The artifact at `out`, opened: ids are ranks, and `Graph.new_to_old` leads back.
    """
    from tiering.reorder import order_nodes, read_first, require_memory
    from tiering.reorder import reorder_graph as reorder

    graph, scores = open_checked(graph, Graph, verify), open_checked(scores, Scores, verify)
    refuse_reordered(graph)
    check_output(out, [graph, scores, first], cluster)
    with reading(graph, scores), carried(cluster) as carrier:
        budget, workers = parse_memory(memory), parse_threads(threads)
        chosen = None if first is None else read_first(graph, first)
        if carrier is None:
            require_memory(budget, GraphShape.of(graph), features, workers, chosen or ())
        order = order_nodes(graph, scores, workers, budget, first=chosen)
        return reorder(
            graph, scores, order, out, first=chosen, features=features, threads=workers, memory=budget, force=force,
            carrier=carrier,
        )  # fmt: skip


def refuse_reordered(graph: Graph) -> None:
    """Refuse to reorder a graph again."""
    if graph.order is not None:
        raise InputError(f"{graph.path}: this graph is reordered already; reorder the graph it was made from")


def write_layout(
    reordered: Graph | Pathlike,
    out: Pathlike,
    options: LayoutOptions | None = None,
    *,
    scores: Scores | Pathlike | None = None,
    threads: Threads = None,
    memory: Memory = None,
    force: bool = False,
    verify: bool = True,
    cluster: Workers = None,
    **settings: Unpack[LayoutKeywords],
) -> TieredLayout:
    """Place the feature rows of a reordered graph in tiers.

    Parameters
    ----------
    reordered
        From `reorder_graph`, opened or by path.
    options, **settings
        Sizes one by one, ``gpu="8GiB", cpu="64GiB", ssd=["/nvme0", "/nvme1"]``, or whole:
        `tiering.layout.LayoutOptions.of` says which there are.
    scores
        Those that the graph was ordered by: with an adjacency cache, or to place edge features by the reads of
        lists that they predict.
    out, threads, memory, force, verify, cluster
        As in every stage; see `tiering.pipeline.commands`.

    Returns
    -------
    TieredLayout
        The layout at `out`, ready to read.
    """
    import tiering

    written = layout(
        reordered, out, options, scores=scores, threads=threads, memory=memory, force=force, verify=verify,
        cluster=cluster, **settings,
    )  # fmt: skip
    made: TieredLayout = tiering.open(written.path)
    return made


def layout(
    graph: Graph | Pathlike,
    out: Pathlike,
    options: LayoutOptions | None = None,
    *,
    scores: Scores | Pathlike | None = None,
    threads: Threads = None,
    memory: Memory = None,
    force: bool = False,
    verify: bool = True,
    cluster: Workers = None,
    **settings: Unpack[LayoutKeywords],
) -> Layout:
    """Write the artifact of `write_layout`, which takes the same parameters."""
    from tiering.layout import LayoutOptions
    from tiering.layout import write_layout as write

    asked = LayoutOptions.resolve(options, settings)
    known = None if scores is None else open_checked(scores, Scores, verify)
    read = (graph := open_checked(graph, Graph, verify), *(() if known is None else (known,)))
    check_output(out, read, cluster, asked.folders)
    with reading(*read), carried(cluster) as carrier:
        if asked.fit is not None:
            from tiering.loader.gpu.fit import fit_costs

            asked = fit_costs(asked, graph, known, memory)
        return write(graph, out, asked, scores=known, threads=threads, memory=memory, force=force, carrier=carrier)


def export_layout(
    layout: TieredLayout | Layout | Graph | Pathlike,
    out: Pathlike,
    *,
    original_order: bool = False,
    threads: Threads = None,
    memory: Memory = None,
    force: bool = False,
    verify: bool = True,
) -> Export:
    """Write a layout or graph as ``.npy`` files for other programs; see `tiering.exports.write_export`."""
    from tiering.exports import write_export

    with reading(artifact := open_exportable(layout, verify)):
        return write_export(artifact, out, original_order=original_order, threads=threads, memory=memory, force=force)


def open_exportable(artifact: TieredLayout | Layout | Graph | Pathlike, verify: bool = False) -> Layout | Graph:
    """Open a layout or graph to export, if given as a path; other artifacts are refused."""
    one: Any = open_artifact(artifact) if isinstance(artifact, str | os.PathLike) else artifact
    one = getattr(one, "artifact", one)  # of a layout that is ready to read
    if not isinstance(one, Layout | Graph):
        kind = getattr(one, "kind", type(one).__name__)
        raise InputError(f"{getattr(one, 'path', one)}: expected a layout or a graph to export, found {kind}")
    if verify:
        one.verify_reads()
    return one


@contextmanager
def reading(*artifacts: Artifact) -> Iterator[None]:
    """Say which of these is damaged where the core refuses what was read of them: `FormatError`, not `RefusedError`."""
    try:
        yield
    except RefusedError as error:
        for artifact in artifacts:
            artifact.finish_reads()  # says it best, where checksums tell
        places = ", ".join(str(artifact.path) for artifact in artifacts)
        raise FormatError(f"{places}: {error}; an input is damaged: run `tiering check --full` on each") from error


def open_checked(artifact: A | Pathlike, kind: type[A], verify: bool = False) -> A:
    """Open an artifact, if given as a path; with `verify`, what is read of it is compared with its checksums."""
    one = artifact if isinstance(artifact, kind) else kind.open(artifact)  # type: ignore[arg-type]
    if verify:
        one.verify_reads()
    return one
