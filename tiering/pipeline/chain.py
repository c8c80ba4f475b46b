"""A whole chain from one file: run, going on where an earlier run stopped, or planned before anything exists."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.atomic import OutputDirectory
from tiering.artifacts.checksum import sampled_digest
from tiering.artifacts.overlap import lies_in, refuse_foreign
from tiering.errors import TieringError
from tiering.formats.graph import Graph
from tiering.formats.layout import Layout
from tiering.formats.scores import Scores
from tiering.formats.shape import GraphShape, SizedGraph
from tiering.memory import parse_memory
from tiering.pipeline.commands import (
    Memory,
    Threads,
    Workers,
    check_output,
    import_options,
    import_to,
    layout,
    open_carrier,
    reorder_graph,
    score_graph,
    scratch_of,
)
from tiering.pipeline.config import ChainConfig, read_config
from tiering.pipeline.estimate import estimate_layout, estimate_reorder, estimate_score, import_plan
from tiering.plan import Estimate, StageEstimate, base_memory
from tiering.progress import kept, note
from tiering.run.carrier import Carrier, ClusterOptions
from tiering.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from tiering.loader import TieredLayout

A = TypeVar("A", bound=Artifact)
FOLDERS = {"import": "graph", "score": "scores", "reorder": "reordered", "layout": "layout"}
"""Directory of each stage's artifact, stages in the order in which they run."""


def run_chain(
    config: str | os.PathLike[str],
    *,
    threads: Threads = None,
    memory: Memory = None,
    force: bool = False,
    verify: bool = True,
    cluster: Workers = None,
) -> TieredLayout:
    """Run the whole chain that a TOML file describes; its parameters are those of `run_config`.

    Returns
    -------
    TieredLayout
        The layout, ready to read.
    """
    import tiering

    report = run_config(config, threads=threads, memory=memory, force=force, verify=verify, cluster=cluster)
    made: TieredLayout = tiering.open(report[-1]["path"])
    return made


def run_config(
    path: str | os.PathLike[str],
    *,
    threads: Threads = None,
    memory: Memory = None,
    force: bool = False,
    verify: bool = True,
    cluster: Workers = None,
) -> list[dict[str, Any]]:
    """Run the chain dataset -> graph -> scores -> reordered graph -> layout that a TOML file describes.

    A stage is skipped if its output is valid and records the same options and the same inputs as would be used now.

    Parameters
    ----------
    path
        Configuration: sections ``dataset`` (path, format, options of the source), ``score`` (method, from, train, seed,
        options of `tiering.scores.score_graph`), ``reorder``, ``layout`` (gpu, peer, cpu, ssd, page, adjacency_cache,
        access_costs, edge_features; an adjacency cache gets the chain's own scores), ``output`` (dir; default: next to
        the file), ``run`` (memory). Paths in it are relative to the file. The artifacts are ``graph``, ``scores``,
        ``reordered`` and ``layout`` in the output directory.
    memory
        What every stage stays within, such as ``8GiB``, ``50%`` or ``auto``. Default: what the configuration says.
    force
        Redo every stage.
    verify
        Compare what the stages read of artifacts with its checksums.
    cluster
        The work of each stage is cut into tasks; see `tiering.pipeline.commands`.

    Returns
    -------
    list of dict
        Per stage ``stage``, ``done`` (``False``: skipped), ``seconds``, ``path``.

    Raises
    ------
    InputError
        If the file is no TOML or has unknown keys; or as the stages do.
    ExistsError
        If something that is no artifact stands where one would be written.

    Notes
    -----
    Which stage runs, and how long each took, goes to standard error. A stage that is stopped goes on from what it has
    finished when the same chain is run again.
    """
    config = read_config(Path(path))
    _check_outputs(Path(path), config, cluster)
    with open_carrier(cluster) as carrier:
        return _run(config, carrier, threads, memory, force, verify)


def _run(
    config: ChainConfig, carrier: Carrier | None, threads: Threads, memory: Memory, force: bool, verify: bool
) -> list[dict[str, Any]]:
    """Run every stage in its order; return what was done, and where it lies."""
    chain, report = _Chain(config, force), list[dict[str, Any]]()
    common = {"threads": threads, "memory": config.memory if memory is None else memory, "cluster": carrier}

    def stage(name: str, current: Callable[[], A | None], make: Callable[..., A]) -> A:
        """Return the artifact of a stage: the current one, or what ``make(out=target, ...)`` makes."""
        begun, target = time.perf_counter(), chain.target(name)
        place = f"[{len(report) + 1}/{len(FOLDERS)}] {name}"
        OutputDirectory.recover(target)
        artifact = was_there = current()
        if artifact is None:
            note(f"{place}: making {target}")
            if target.exists():
                refuse_foreign(target)
            # What an unfinished run has made of older artifacts of the chain is not worth a question, its dataset is.
            artifact = make(out=target, force=target.exists() or bool(report), **common)
        seconds = time.perf_counter() - begun
        note(f"{place}: {_made(artifact, seconds) if was_there is None else f'{target} was there'}")
        kept.append(str(target))
        report.append({"stage": name, "done": was_there is None, "seconds": round(seconds, 3), "path": str(target)})
        return artifact

    imported = partial(import_to, config.source, format=config.format, edge_ids=config.edge_ids, **config.dataset)
    graph = stage("import", chain.graph, imported)
    scored = partial(score_graph, graph, verify=verify, **config.score)
    scores = stage("score", partial(chain.scores, graph), scored)
    ranked = partial(reorder_graph, graph, scores, first=config.first, features=config.features, verify=verify)
    reordered = stage("reorder", partial(chain.reordered, graph, scores), ranked)
    known = scores if config.layout.cache is not None else None
    placed = partial(layout, reordered, options=config.layout, scores=known, verify=verify)
    stage("layout", partial(chain.layout, reordered, known), placed)
    return report


def estimate_run(
    path: str | os.PathLike[str],
    *,
    threads: Threads = None,
    memory: Memory = None,
    force: bool = False,
    cluster: ClusterOptions | None = None,
) -> Estimate:
    """Estimate what `run_config` would take; a stage that would be skipped has no steps.

    Each stage is planned from what is there and current, or from the sizes that the one before will leave. Raises what
    `run_config` does before its first stage, and `BudgetError` where a stage would.
    """
    config = read_config(Path(path))
    _check_outputs(Path(path), config, cluster)
    chain = _Chain(config, force)
    common: dict[str, Any] = {"threads": threads, "memory": config.memory if memory is None else memory}
    common["cluster"] = cluster
    out = {name: chain.target(name) for name in FOLDERS}
    for target in out.values():
        if target.exists():
            refuse_foreign(target)
    held = base_memory(parse_memory(common["memory"]))
    plans = {name: StageEstimate(name, target, (), {}, held) for name, target in out.items()}

    graph: SizedGraph | None = chain.graph()
    if graph is None:
        plans["import"], graph = import_plan(
            config.source, out["import"], config.format, edge_ids=config.edge_ids, **common, **config.dataset
        )
    scores = chain.scores(graph) if isinstance(graph, Graph) else None
    if scores is None:
        (plans["score"],) = estimate_score(graph, out["score"], **common, **config.score).plans
    reordered: SizedGraph | None = None
    if isinstance(graph, Graph) and scores is not None:
        reordered = chain.reordered(graph, scores)
    known = scores if config.layout.cache is not None else None
    if isinstance(reordered, Graph) and chain.layout(reordered, known) is not None:
        return Estimate(tuple(plans.values()))
    if reordered is None:
        asked = {"first": config.first, "features": config.features}
        (plans["reorder"],) = estimate_reorder(graph, scores, out["reorder"], **asked, **common).plans
        reordered = GraphShape.of(graph).reordered(out["reorder"], features=config.features)
    (plans["layout"],) = estimate_layout(reordered, out["layout"], config.layout, scores=known, **common).plans
    return Estimate(tuple(plans.values()))


def _check_outputs(path: Path, config: ChainConfig, cluster: Workers) -> None:
    """Refuse outputs of the stages that overlap the dataset, stripe files or the store, before the first stage runs.

    They may lie in the dataset's directory where the chain's file at `path` does.
    """
    inside = lies_in(path, config.source)
    for folder in FOLDERS.values():
        around = [(config.source, "holds the dataset"), *scratch_of(config.dataset)]
        check_output(config.out / folder, [] if inside else [config.source], cluster, config.layout.folders, around)


class _Chain:
    """The artifacts of a chain that are there, valid, and what would be made now; ``None`` for others."""

    def __init__(self, config: ChainConfig, force: bool) -> None:
        self._config, self._force = config, force

    def target(self, stage: str) -> Path:
        """Return where a stage's artifact lies."""
        return self._config.out / FOLDERS[stage]

    def graph(self) -> Graph | None:
        """Return the graph of the import."""
        config = self._config
        options = import_options(config.source, config.format, config.edge_ids, config.dataset)

        def same(graph: Graph) -> bool:
            recorded, files = _recorded(graph, "import")
            if any(recorded.get(key) != value for key, value in options.items()):
                return False
            return all(Path(file).is_file() and sampled_digest(Path(file)) == digest for file, digest in files.items())

        return self._current("import", Graph, same)

    def scores(self, graph: Graph) -> Scores | None:
        """Return the scores of this graph."""
        from tiering.scores import plan_score

        def same(scores: Scores) -> bool:
            plan, (recorded, inputs) = plan_score(graph, **self._config.score), _recorded(scores, "score")
            asked = {key: value for key, value in recorded.items() if key != "reached"}
            return (asked, inputs, scores.manifest.provenance.get("seed")) == (plan.options, plan.inputs, plan.seed)

        return self._current("score", Scores, same)

    def reordered(self, graph: Graph, scores: Scores) -> Graph | None:
        """Return this graph reordered by these scores."""
        from tiering.reorder import first_digests, read_first

        def same(reordered: Graph) -> bool:
            first = {} if self._config.first is None else read_first(graph, self._config.first)
            inputs = {"graph": graph.digest, "scores": scores.digest, **first_digests(first)}
            return _recorded(reordered, "reorder") == ({"features": self._config.features}, inputs)

        return self._current("reorder", Graph, same)

    def layout(self, graph: Graph, scores: Scores | None) -> Layout | None:
        """Return the layout of this reordered graph, with an adjacency cache by these scores."""
        inputs = {"graph": graph.digest, **({} if scores is None else {"scores": scores.digest})}
        options = self._config.layout

        def same(layout: Layout) -> bool:
            recorded, of = _recorded(layout, "layout")
            if options.fit is not None:  # what was measured then still holds
                recorded = {key: value for key, value in recorded.items() if key != "gpu_times"}
            return (recorded, of) == (options.recorded, inputs)

        return self._current("layout", Layout, same)

    def _current(self, stage: str, kind: type[A], same: Callable[[A], bool]) -> A | None:
        if self._force:
            return None
        try:
            artifact = kind.open(self.target(stage))
            return artifact if not artifact.problems("structure") and same(artifact) else None
        except (TieringError, OSError):
            return None


def _recorded(artifact: Artifact, stage: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the options and inputs of an artifact made by `stage`; empty ones if another stage made it."""
    provenance = artifact.manifest.provenance
    if provenance["stage"] != stage:
        return {}, {}
    return provenance.get("options", {}), provenance.get("inputs", {})


def _made(artifact: Artifact, seconds: float) -> str:
    manifest = artifact.manifest
    nbytes = sum(file.bytes for file in manifest.files.values())
    nbytes += sum(file.bytes for file in manifest.external.values())
    return f"done in {format_seconds(seconds)}, {format_bytes(nbytes)}, {format_bytes(nbytes / seconds)}/s"
