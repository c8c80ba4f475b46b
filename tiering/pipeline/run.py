"""Run a whole chain from one file, going on where an earlier run stopped."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.atomic import OutputDirectory
from tiering.artifacts.checksum import sampled_digest
from tiering.artifacts.document import KINDS, open_directory, read_document
from tiering.errors import ExistsError, TieringError
from tiering.formats.graph import Graph
from tiering.formats.layout import Layout
from tiering.formats.scores import Scores
from tiering.memory import Budget, parse_memory
from tiering.pipeline.config import ChainConfig, read_config
from tiering.pipeline.stages import import_dataset, import_options, layout, reorder, score
from tiering.progress import kept, note
from tiering.units import format_bytes, format_seconds

A = TypeVar("A", bound=Artifact)


def run_config(
    path: str | os.PathLike[str],
    *,
    threads: int | str | None = None,
    memory: str | int | Budget | None = None,
    force: bool = False,
    verify: bool = True,
) -> list[dict[str, Any]]:
    """Run the chain dataset -> graph -> scores -> reordered graph -> layout that a TOML file describes.

    A stage is skipped if its output is valid and records the same options and the same inputs as would be used now.

    Parameters
    ----------
    path
        Configuration: sections ``dataset`` (path, format, options of the source), ``score`` (method, train, seed,
        options of `tiering.scores.score_graph`), ``reorder``, ``layout`` (gpu, peer, cpu, ssd, page, split, gpu_times;
        a split gets the chain's own scores), ``output`` (dir; default: beside the file), ``run`` (memory). Paths in it
        are relative to the file. The artifacts are ``graph``, ``scores``, ``reordered`` and ``layout`` in the output
        directory.
    memory
        What to stay within, such as ``8GiB``, ``50%`` or ``auto``. Default: what the configuration says.
    force
        Redo every stage.
    verify
        Compare what the stages read of artifacts with its checksums.

    Returns
    -------
    list of dict
        Per stage ``stage``, ``done`` (``False``: skipped), ``seconds``, ``path``.

    Notes
    -----
    Which stage runs, and how long each took, goes to standard error. A stage that is stopped goes on from what it has
    finished when the same chain is run again.

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
        lambda target, replace: score(
            graph, target, threads=threads, memory=budget, force=replace, verify=verify, **config.score
        ),
    )  # fmt: skip
    reordered = chain.stage(
        "reorder", "reordered", Graph, lambda found: _reorder_current(found, graph, scores, config.features),
        lambda target, replace: reorder(
            graph, scores, target, features=config.features, threads=threads, memory=budget, force=replace,
            verify=verify,
        ),
    )  # fmt: skip
    known = scores if config.splits else None
    chain.stage(
        "layout", "layout", Layout, lambda found: _layout_current(found, reordered, known, config.layout),
        lambda target, replace: layout(
            reordered, target, scores=known, threads=threads, memory=budget, force=replace, verify=verify,
            **config.layout,
        ),
    )  # fmt: skip
    return chain.report


STAGES = ("import", "score", "reorder", "layout")


class _Chain:
    """Runs stages or skips them, tells how far it is, and keeps the report."""

    def __init__(self, out: Path, force: bool) -> None:
        self._out, self._force = out, force
        self.report: list[dict[str, Any]] = []

    def stage(
        self, name: str, folder: str, kind: type[A], current: Callable[[A], bool], run: Callable[[Path, bool], A]
    ) -> A:
        """The artifact of a stage: the one there if it is `current`, else what `run` makes."""
        begun, target = time.perf_counter(), self._out / folder
        place = f"[{len(self.report) + 1}/{len(STAGES)}] {name}"
        OutputDirectory.settle(target)
        found = None if self._force else _current(target, kind, current)
        if found is None:
            note(f"{place}: making {target}")
            # What an unfinished run has made of older artifacts of the chain is not worth a question, its dataset is.
            artifact = run(target, replaceable(target) or bool(self.report))
        else:
            artifact = found
        seconds = time.perf_counter() - begun
        note(f"{place}: {_made(artifact, seconds) if found is None else f'{target} was there'}")
        kept.append(str(target))
        self.report.append({"stage": name, "done": found is None, "seconds": round(seconds, 3), "path": str(target)})
        return artifact


def _made(artifact: Artifact, seconds: float) -> str:
    manifest = artifact.manifest
    nbytes = sum(entry.bytes for entry in manifest.files.values())
    nbytes += sum(entry.bytes for entry in manifest.external.values())
    return f"done in {format_seconds(seconds)}, {format_bytes(nbytes)}, {format_bytes(nbytes / seconds)}/s"


def _current(target: Path, kind: type[A], same: Callable[[A], bool]) -> A | None:
    """The artifact at `target` if it is valid and what would be made now; else ``None``."""
    try:
        artifact = kind.open(target)
        return artifact if not artifact.problems("structure") and same(artifact) else None
    except (TieringError, OSError):
        return None


def replaceable(target: Path) -> bool:
    """Whether `target` may be replaced: only artifacts are, never a directory of the user's.

    Raises
    ------
    ExistsError
        If something else is there.
    """
    if not target.exists():
        return False
    try:
        document, _ = read_document(open_directory(target))
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


def _layout_current(found: Layout, graph: Graph, scores: Scores | None, tiers: Mapping[str, Any]) -> bool:
    from tiering.layout.writer import layout_options

    inputs = {"graph": graph.digest, **({} if scores is None else {"scores": scores.digest})}
    return _recorded(found, "layout") == (layout_options(**tiers), inputs)


def current_import(target: Path, config: ChainConfig) -> Graph | None:
    """The graph at `target` if `run_config` would keep it."""
    options = import_options(config.source, config.format, config.edge_ids, config.dataset)
    return _current(target, Graph, lambda found: _import_current(found, options))


def current_score(target: Path, graph: Graph, scoring: Mapping[str, Any]) -> Scores | None:
    """The scores at `target` if `run_config` would keep them."""
    return _current(target, Scores, lambda found: _score_current(found, graph, scoring))


def current_reorder(target: Path, graph: Graph, scores: Scores, features: bool) -> Graph | None:
    """The reordered graph at `target` if `run_config` would keep it."""
    return _current(target, Graph, lambda found: _reorder_current(found, graph, scores, features))


def current_layout(target: Path, graph: Graph, scores: Scores | None, tiers: Mapping[str, Any]) -> Layout | None:
    """The layout at `target` if `run_config` would keep it; `scores` where it splits the GPU's memory."""
    return _current(target, Layout, lambda found: _layout_current(found, graph, scores, tiers))
