"""One function per command, which opens what it is given and calls its stage: the public API beside `open`, `check`.

Artifacts are given opened or by path; what is read of them is compared with their checksums unless `verify` is off.
`threads` is a number or ``auto``; `memory` is what to stay within, such as ``8GiB``, ``50%`` or ``auto``, and never
changes the result; `force` replaces what is at `out`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.checksum import digest_bytes
from tiering.artifacts.storage import nearest_folder
from tiering.errors import FormatError, InputError, RefusedError
from tiering.formats.graph import Graph
from tiering.formats.layout import Layout
from tiering.formats.own_arrays import OwnValues
from tiering.formats.protocols import Dataset
from tiering.formats.registry import open_artifact
from tiering.formats.scores import Scores
from tiering.formats.shape import GraphShape
from tiering.formats.train_set import Train
from tiering.memory import Budget, parse_memory

if TYPE_CHECKING:
    from tiering.evaluation import Evaluation
    from tiering.exports import Export
    from tiering.layout import LayoutOptions
    from tiering.loader import TieredLayout
    from tiering.sampling import Fanout

A = TypeVar("A", bound=Artifact)
CHECKSUM_FEATURES = "checksum_features"
"""Option of an import that is not the source's."""
Pathlike = str | os.PathLike[str]
Memory = str | int | Budget | None
Threads = int | str | None


def generate_dataset(out: Pathlike, *, nodes: int, edges: int, **options: Any) -> Path:
    """Generate a dataset in IGB's form; returns its directory, for `import_graph`.

    Options: see `tiering.datasets.synthetic.generate` (``dim``, ``classes``, ``seed``, ``hetero``...).
    """
    from tiering.datasets.synthetic import generate

    generate(out, nodes=nodes, edges=edges, **options)
    return Path(out)


def import_graph(
    source: Pathlike,
    out: Pathlike,
    format: str = "auto",  # noqa: A002 - the name the command line has
    *,
    edge_ids: bool = False,
    threads: Threads = None,
    memory: Memory = None,
    force: bool = False,
    **options: Any,
) -> Graph:
    """Import a dataset of the user's as a graph artifact.

    Parameters
    ----------
    source
        File or directory.
    format
        ``auto``, ``npy``, ``csc``, ``csr``, ``igb``, ``edgelist`` or ``parquet``.
    edge_ids
        Keep each edge's position in the input.
    **options
        Of the source: see `tiering.datasets.options.ImportOptions`. ``checksum_features=True``: feature files are read
        whole, and a checksum is recorded of each block of 64 MiB, which stages and `tiering check --full` compare;
        without, 64 samples of 64 KiB are.
    """
    from tiering.graph import build_graph

    seed = int(options.get("split_seed") or 0) if options.get("split") else None
    recorded = import_options(source, format, edge_ids, options)
    with open_source(source, Path(out), format, memory, options) as dataset:
        return build_graph(
            dataset, out, edge_ids=edge_ids, checksum_features=bool(options.get(CHECKSUM_FEATURES)), options=recorded,
            seed=seed, threads=threads, memory=memory, force=force,
        )  # fmt: skip


def open_source(source: Pathlike, out: Path, format: str, memory: Memory, options: Mapping[str, Any]) -> Dataset:  # noqa: A002
    """The dataset of an import; temporary files go to the disk that has room for the graph."""
    from tiering.datasets import open_dataset

    given = {"work_dir": nearest_folder(out.absolute().parent), **options}
    given.pop(CHECKSUM_FEATURES, None)
    return open_dataset(source, format=format, memory=memory, **given)


def import_options(source: Pathlike, format: str, edge_ids: bool, options: Mapping[str, Any]) -> dict[str, Any]:  # noqa: A002
    """What an import is asked to do, as recorded; defaults are left out, the file names seen are in."""
    from tiering.datasets.options import given_options

    path = Path(source).absolute()
    of_source = {name: value for name, value in options.items() if name != CHECKSUM_FEATURES}
    return {
        "source": str(path),
        "source_files": _listing(path),
        "asked_format": format,
        "edge_ids": edge_ids,
        "given": given_options(of_source),
        **({CHECKSUM_FEATURES: True} if options.get(CHECKSUM_FEATURES) else {}),
    }


def _listing(path: Path) -> str:
    """Digest of the names of the data files under `path`: notices one that came or went. Artifacts are left out."""
    names = []
    for folder, folders, files in os.walk(path):
        if "manifest.json" in files:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        own = [name for name in files if Path(name).suffix not in ("", ".toml", ".json", ".png", ".md")]
        names += [os.path.relpath(Path(folder) / name, path) for name in sorted(own) if not name.startswith(".")]
    return digest_bytes(os.fsencode("\n".join(names)))


def transpose_graph(
    graph: Graph | Pathlike,
    out: Pathlike,
    *,
    threads: Threads = None,
    memory: Memory = None,
    force: bool = False,
    verify: bool = True,
) -> Graph:
    """Turn every edge of a graph round; see `tiering.graph.transpose_graph`."""
    from tiering.graph import transpose_graph as transpose

    with reading(graph := opened(graph, Graph, verify)):
        return transpose(graph, out, threads=threads, memory=memory, force=force)


def score_graph(
    graph: Graph | Pathlike,
    out: Pathlike,
    method: str = "auto",
    *,
    scores: OwnValues | None = None,
    train: Train = None,
    seed: int | None = None,
    threads: Threads = None,
    memory: Memory = None,
    force: bool = False,
    verify: bool = True,
    **options: Any,
) -> Scores:
    """Score the nodes of a graph; methods and options: see `tiering.scores.score_graph`.

    ``scores`` takes those that you have computed: an array, the path of a ``.npy`` file, or a mapping from node type to
    one of these.
    """
    from tiering.scores import score_graph as score

    with reading(graph := opened(graph, Graph, verify)):
        return score(
            graph, method, out, scores=scores, train=train, seed=seed, threads=threads, memory=memory, force=force,
            **options,
        )  # fmt: skip


def evaluate_scores(
    graph: Graph | Pathlike,
    scores: Sequence[Scores | Pathlike] = (),
    *,
    fanouts: Sequence[Fanout] = (10, 10, 10),
    verify: bool = True,
    **options: Any,
) -> Evaluation:
    """Count the reads of sampled epochs: what share would caches filled by each score have served?

    Parameters
    ----------
    scores
        Scores of the graph; the oracle, which knows the reads, is always there.
    fanouts
        From the seeds outwards.
    **options
        Of `tiering.evaluation.evaluate`: ``epochs``, ``tiers``, ``shares``..., and of the sampler (``batch_size``,
        ``seed``...).
    """
    from tiering.evaluation import evaluate, named_scores

    judged = [opened(one, Scores, verify) for one in scores]
    with reading(graph := opened(graph, Graph, verify), *judged):
        result = evaluate(graph, named_scores(graph, judged), fanouts, **options)
        for artifact in (graph, *judged):
            artifact.finish_reads()
    return result


def reorder_graph(
    graph: Graph | Pathlike,
    scores: Scores | Pathlike,
    out: Pathlike,
    *,
    first: OwnValues | None = None,
    features: bool = False,
    threads: Threads = None,
    memory: Memory = None,
    force: bool = False,
    verify: bool = True,
) -> Graph:
    """Renumber the nodes of a graph by falling score; see `tiering.reorder.reorder_graph`.

    ``first`` are nodes that come before all others, in the order given: an array of original ids, the path of a
    ``.npy`` file, or a mapping from node type to one of these. A layout fills its fastest tiers with them.
    """
    from tiering.reorder import expected_memory, order_nodes, read_first
    from tiering.reorder import reorder_graph as reorder

    graph, scores = opened(graph, Graph, verify), opened(scores, Scores, verify)
    refuse_reordered(graph)
    with reading(graph, scores):
        budget = parse_memory(memory).expecting(expected_memory(GraphShape.of(graph), features))
        chosen = None if first is None else read_first(graph, first)
        order = order_nodes(graph, scores, threads, budget, first=chosen)
        return reorder(
            graph, scores, order, out, first=chosen, features=features, threads=threads, memory=budget, force=force
        )


def refuse_reordered(graph: Graph) -> None:
    """Refuse to reorder a graph again."""
    if graph.order is not None:
        raise InputError(f"{graph.path}: this graph is reordered already; reorder the graph it was made from")


def write_layout(reordered: Graph | Pathlike, out: Pathlike, **options: Any) -> TieredLayout:
    """Place the feature rows of a reordered graph in tiers; returns the layout, ready to read.

    Sizes come one by one, ``gpu="8GiB", cpu="64GiB", ssd=[...]``, or whole: `tiering.layout.LayoutOptions.of` says
    which there are. ``scores`` are those that the graph was ordered by: with an adjacency cache, or to place edge
    features by the reads of lists that they predict.
    """
    import tiering

    made: TieredLayout = tiering.open(layout(reordered, out, **options).path)
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
    **given: Any,
) -> Layout:
    """The artifact of `write_layout`, which takes the same."""
    from tiering.layout import LayoutOptions
    from tiering.layout import write_layout as write

    asked = LayoutOptions.given(options, given)
    known = None if scores is None else opened(scores, Scores, verify)
    with reading(graph := opened(graph, Graph, verify), *(() if known is None else (known,))):
        return write(graph, out, asked, scores=known, threads=threads, memory=memory, force=force)


def export_layout(
    layout: TieredLayout | Layout | Graph | Pathlike,
    to: str,
    out: Pathlike,
    *,
    original_order: bool = False,
    threads: Threads = None,
    memory: Memory = None,
    force: bool = False,
    verify: bool = True,
) -> Export:
    """Write a layout or graph for another program; see `tiering.exports.write_export`."""
    from tiering.exports import write_export

    with reading(artifact := exported(layout, verify)):
        return write_export(
            artifact, to, out, original_order=original_order, threads=threads, memory=memory, force=force
        )


def exported(artifact: TieredLayout | Layout | Graph | Pathlike, verify: bool = False) -> Layout | Graph:
    """A layout or graph to be exported, opened if it is a path; other artifacts are refused."""
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


def opened(artifact: A | Pathlike, kind: type[A], verify: bool = False) -> A:
    """An artifact, opened if it is a path; with `verify`, what is read of it is compared with its checksums."""
    one = artifact if isinstance(artifact, kind) else kind.open(artifact)  # type: ignore[arg-type]
    if verify:
        one.verify_reads()
    return one
