"""Run a whole chain from one file, going on where an earlier run stopped."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tiering.errors import ExistsError, TieringError
from tiering.execution import Budget, parse_memory
from tiering.formats.artifact import Artifact
from tiering.formats.graph import Graph
from tiering.formats.layout import Layout
from tiering.formats.manifest import KINDS, read_document
from tiering.formats.scores import Scores
from tiering.io.checksum import sampled_digest
from tiering.pipeline.config import read_config
from tiering.pipeline.stages import import_dataset, import_options, layout, reorder, score

A = TypeVar("A", bound=Artifact)


def run_config(
    path: str | os.PathLike[str],
    *,
    threads: int | str | None = None,
    memory: str | int | Budget | None = None,
    force: bool = False,
) -> list[dict[str, Any]]:
    """Run the chain dataset -> graph -> scores -> reordered graph -> layout that a TOML file describes.

    A stage is skipped if its output is valid and records the same options and the same inputs as would be used now.

    Parameters
    ----------
    path
        Configuration: sections ``dataset`` (path, format, options of the source), ``score`` (method, train, seed,
        options of `tiering.scores.score_graph`), ``reorder``, ``layout`` (gpu, peer, cpu, ssd, page), ``output`` (dir;
        default: beside the file), ``run`` (memory). Paths in it are relative to the file. The artifacts are ``graph``,
        ``scores``, ``reordered`` and ``layout`` in the output directory.
    memory
        What to stay within, such as ``8GiB``, ``50%`` or ``auto``. Default: what the configuration says.
    force
        Redo every stage.

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
    """
    config = read_config(Path(path))
    budget = parse_memory(config.memory if memory is None else memory)
    chain = _Chain(config.out, force)
    options = import_options(config.source, config.format, config.edge_ids, config.dataset)
    graph = chain.stage(
        "import", "graph", Graph, lambda found: _import_current(found, options),
        lambda target, replace: import_dataset(
            config.source, target, config.format, edge_ids=config.edge_ids, threads=threads, memory=budget,
            force=replace, **config.dataset,
        ),
    )  # fmt: skip
    scores = chain.stage(
        "score", "scores", Scores, lambda found: _score_current(found, graph, config.score),
        lambda target, replace: score(graph, target, threads=threads, memory=budget, force=replace, **config.score),
    )  # fmt: skip
    reordered = chain.stage(
        "reorder", "reordered", Graph, lambda found: _reorder_current(found, graph, scores, config.features),
        lambda target, replace: reorder(
            graph, scores, target, features=config.features, threads=threads, memory=budget, force=replace
        ),
    )  # fmt: skip
    chain.stage(
        "layout", "layout", Layout, lambda found: _layout_current(found, reordered, config.layout),
        lambda target, replace: layout(
            reordered, target, threads=threads, memory=budget, force=replace, **config.layout
        ),
    )  # fmt: skip
    return chain.report


class _Chain:
    """Runs stages or skips them, and keeps the report."""

    def __init__(self, out: Path, force: bool) -> None:
        self._out, self._force = out, force
        self.report: list[dict[str, Any]] = []

    def stage(
        self, name: str, folder: str, kind: type[A], current: Callable[[A], bool], run: Callable[[Path, bool], A]
    ) -> A:
        """The artifact of a stage: the one there if it is `current`, else what `run` makes."""
        begun, target = time.perf_counter(), self._out / folder
        found = None if self._force else _current(target, kind, current)
        artifact = run(target, _replaceable(target)) if found is None else found
        seconds = round(time.perf_counter() - begun, 3)
        self.report.append({"stage": name, "done": found is None, "seconds": seconds, "path": str(target)})
        return artifact


def _current(target: Path, kind: type[A], same: Callable[[A], bool]) -> A | None:
    """The artifact at `target` if it is valid and what would be made now; else ``None``."""
    try:
        artifact = kind.open(target)
        return artifact if not artifact.problems("structure") and same(artifact) else None
    except (TieringError, OSError):
        return None


def _replaceable(target: Path) -> bool:
    """Whether `target` may be replaced: only artifacts are, never a directory of the user's.

    Raises
    ------
    ExistsError
        If something else is there.
    """
    if not target.exists():
        return False
    try:
        document, _ = read_document(target)
        ours = str(document["format"]).removeprefix("tiering.") in KINDS
    except (TieringError, OSError, KeyError, TypeError):
        ours = False
    if not ours:
        raise ExistsError(f"{target}: exists and is no artifact of this package; move it away, or set [output] dir")
    return True


def _recorded(artifact: Artifact, stage: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Options and inputs of an artifact made by `stage`; empty ones if another stage made it."""
    provenance = artifact.manifest.provenance
    if provenance["stage"] != stage:
        return {}, {}
    return provenance.get("options", {}), provenance.get("inputs", {})


def _import_current(found: Graph, options: dict[str, Any]) -> bool:
    recorded, files = _recorded(found, "import")
    if any(recorded.get(key) != value for key, value in options.items()):
        return False
    return all(Path(file).is_file() and sampled_digest(Path(file)) == digest for file, digest in files.items())


def _score_current(found: Scores, graph: Graph, scoring: Mapping[str, Any]) -> bool:
    from tiering.scores import plan_score

    plan = plan_score(graph, **scoring)
    recorded, files = _recorded(found, "score")
    asked = {key: value for key, value in recorded.items() if key != "reached"}
    return (asked, files, found.manifest.provenance.get("seed")) == (plan.options, plan.inputs, plan.seed)


def _reorder_current(found: Graph, graph: Graph, scores: Scores, features: bool) -> bool:
    inputs = {"graph": graph.digest, "scores": scores.digest}
    return _recorded(found, "reorder") == ({"features": features}, inputs)


def _layout_current(found: Layout, graph: Graph, tiers: Mapping[str, Any]) -> bool:
    from tiering.layout.writer import layout_options

    options = layout_options(**tiers)
    return _recorded(found, "layout") == (options, {"graph": graph.digest})
