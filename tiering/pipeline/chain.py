"""A whole chain from one file: run, resumed where an earlier run stopped, or planned before anything exists."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.atomic import OutputDirectory
from tiering.artifacts.checksum import sampled_digest
from tiering.artifacts.overlap import lies_in, refuse_foreign
from tiering.artifacts.remote_path import as_path, open_remote
from tiering.errors import BudgetError, TieringError
from tiering.formats.graph import Graph
from tiering.formats.import_record import describe_import
from tiering.formats.known_defects import print_defects
from tiering.formats.layout import Layout
from tiering.formats.scores import Scores
from tiering.formats.shape import GraphShape
from tiering.layout.stripe_files import folders_apart
from tiering.memory import parse_memory
from tiering.pipeline.commands import import_graph, layout, reorder_graph, score_graph
from tiering.pipeline.config import ChainConfig, in_section, read_config
from tiering.pipeline.sources import find_new_files, import_options, scratch_of
from tiering.pipeline.stage import StageKeywords, StageRun
from tiering.reorder.rank import first_digests, read_first
from tiering.run.plan import Estimate, StageEstimate, StepEstimate, base_memory
from tiering.scores.plan import plan_score
from tiering.text.progress import kept, note
from tiering.text.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tiering.loader import TieredLayout

A = TypeVar("A", bound=Artifact)
FOLDERS = {"import": "graph", "score": "scores", "reorder": "reordered", "layout": "layout"}
"""Directory of each stage's artifact, stages in the order in which they run."""
SECTIONS = {**{stage: stage for stage in FOLDERS}, "import": "dataset"}
MEASURED = ("name", "format", "content", "checksum_features", "reached", "gpu_times", "chosen", "source_files")
"""Options that a stage records although the user did not give them: a rerun keeps the recorded values."""


def run_chain(config: str | os.PathLike[str], **options: Unpack[StageKeywords]) -> TieredLayout:
    """Run the whole chain that a TOML file describes, as `run_config` does; return the layout, ready to read."""
    from tiering.loader import TieredLayout

    return TieredLayout(Layout.open(run_config(config, **options)[-1]["path"]))


def run_config(path: str | os.PathLike[str], **options: Unpack[StageKeywords]) -> list[dict[str, Any]]:
    """Run the chain dataset -> graph -> scores -> reordered graph -> layout that a TOML file describes.

    A stage is skipped if its output is valid and records the same options and inputs as would be used now; one that was
    stopped resumes after the stages that it finished.

    Parameters
    ----------
    path
        Configuration: sections ``dataset`` (path, format, options of the source), ``score`` (method, from, train, seed,
        options of `tiering.score_graph`), ``reorder``, ``layout``, ``output`` (dir; default: next to the file), ``run``
        (memory). Paths in it are relative to the file.
    **options
        Options of every stage (`tiering.pipeline.commands`); ``force``: redo every stage.

    Returns
    -------
    list of dict
        Per stage ``stage``, ``done`` (``False``: skipped), ``seconds``, ``path``.
    """
    chain = _Chain.of(path, StageRun("", **options))
    with chain.shared.carrier() as carrier:
        chain.shared = replace(chain.shared, cluster=carrier)
        chain.run()
    return chain.report


def estimate_run(path: str | os.PathLike[str], **options: Unpack[StageKeywords]) -> Estimate:
    """Estimate what `run_config` would take; a stage that would be skipped has no steps."""
    chain = _Chain.of(path, StageRun("", **options, dry_run=True))
    chain.run()
    return Estimate(tuple(chain.plans))


@dataclass
class _Chain:
    """The stages of a chain; each is skipped where its artifact is current, else run, or planned in a dry run."""

    config: ChainConfig
    shared: StageRun  # options of every stage
    report: list[dict[str, Any]] = field(default_factory=list)
    plans: list[StageEstimate] = field(default_factory=list)

    @classmethod
    def of(cls, path: str | os.PathLike[str], shared: StageRun) -> _Chain:
        """Read a configuration; refuse outputs that overlap what is read, stripe files or the store."""
        config = read_config(Path(path))
        reads = [config.reorder.get("first"), *(config.score.get(name) for name in ("scores", "train", "seed_time"))]
        local = [config.source] if isinstance(config.source, Path) else []
        reads += [source for source in local if not lies_in(Path(path), source)]
        apart = folders_apart(config.out / FOLDERS["layout"], config.layout.folders)
        for folder in FOLDERS.values():
            around = [*((source, "holds the dataset") for source in local), *scratch_of(config.dataset)]
            replace(shared, out=config.out / folder).check_output(reads, apart, around)
        memory = config.memory if shared.memory is None else shared.memory
        return cls(config, replace(shared, memory=memory, checked=True))

    def run(self) -> None:
        """Run every stage in its order; add what was done to the report, or to the plans."""
        config = self.config

        def import_identity(found: Graph) -> dict[str, Any]:
            if isinstance(config.source, str):
                open_remote(config.source)
            files = {file: sampled_digest(as_path(file)) for file in found.manifest.provenance["inputs"]}
            place = replace(self.shared, out=found.path)
            for file in find_new_files(place, config.source, found.manifest, config.dataset):
                note(f"note: {file} is new and belongs to the dataset: importing the graph again")
                files[file] = ""
            made = found.manifest.changes["format"]
            return {"options": import_options(config.source, made, **config.dataset), "inputs": files}

        made = partial(import_graph, config.source, **config.dataset)
        self._go_on(self._stage("import", Graph, import_identity, made))

    def _check(self, shape: GraphShape) -> None:
        """Refuse before the import what the stages after it would refuse."""
        imported = StageEstimate("import", self.config.out, (StepEstimate("import", "first"),))
        with suppress(BudgetError):  # whose memory is another one then
            _Chain(self.config, replace(self.shared, dry_run=True, cluster=None), plans=[imported])._go_on(shape)

    def _go_on(self, graph: Any) -> None:
        """Run the stages after the import, of a graph or in a dry run of its sizes."""
        config = self.config

        def score_identity(_: Scores) -> dict[str, Any]:
            plan = plan_score(graph, **config.score)
            return {"options": plan.options, "inputs": plan.inputs, "seed": plan.seed}

        def reorder_identity(_: Graph) -> dict[str, Any]:
            first = first_digests(read_first(graph, config.reorder["first"])) if "first" in config.reorder else {}
            inputs = {"graph": graph.digest, "scores": scores.digest, **first}
            return {"options": {"features": config.reorder.get("features", False)}, "inputs": inputs}

        def layout_identity(_: Layout) -> dict[str, Any]:
            inputs = {"graph": reordered.digest, **({} if known is None else {"scores": known.digest})}
            return {"options": dict(config.layout.recorded), "inputs": inputs}

        scores = self._stage("score", Scores, score_identity, partial(score_graph, graph, **config.score))
        ranked = partial(reorder_graph, graph, scores, **config.reorder)
        reordered = self._stage("reorder", Graph, reorder_identity, ranked)
        known = scores if config.layout.cache is not None else None
        placed = partial(layout, reordered, options=config.layout, scores=known)
        self._stage("layout", Layout, layout_identity, placed)

    def _stage(
        self, name: str, kind: type[A], identity: Callable[[A], dict[str, Any]], make: Callable[..., Any]
    ) -> Any:
        """Return the artifact of a stage, with its section of the file in what it refuses; see `_made`."""
        with in_section(self.config.path, SECTIONS[name]):
            return self._made(name, kind, identity, make)

    def _made(self, name: str, kind: type[A], identity: Callable[[A], dict[str, Any]], make: Callable[..., Any]) -> Any:
        """Return the artifact of a stage: the current one, or what ``make(out=target, ...)`` makes; or its sizes."""
        target, shared, begun = self.config.out / FOLDERS[name], self.shared, time.perf_counter()
        if not shared.dry_run:
            OutputDirectory.recover(target)
        found = None if any(plan.steps for plan in self.plans) else self._current(name, kind, identity)
        if found is None and target.exists():
            refuse_foreign(target)
        # What an unfinished run has made of older artifacts of the chain is not worth a question, its dataset is.
        again = {**vars(shared), "out": target, "force": target.exists() or bool(self.report)}
        again["expect"] = self._check
        if shared.dry_run:
            there = StageEstimate(name, target, (), held=base_memory(parse_memory(shared.memory)))
            plan, shape = (there, None) if found else make(**again)
            self.plans.append(plan)
            return found or shape
        place = f"[{len(self.report) + 1}/{len(FOLDERS)}] {name}"
        if found is None:
            note(f"{place}: writing {target}")
        artifact = found or make(**again)
        seconds = time.perf_counter() - begun
        if found is None:
            manifest = artifact.manifest
            nbytes = sum(file.bytes for files in (manifest.files, manifest.external) for file in files.values())
            speed = format_bytes(nbytes / seconds)
            note(f"{place}: done in {format_seconds(seconds)}, {format_bytes(nbytes)}, {speed}/s")
            if isinstance(artifact, Graph) and not self.report:
                for topic, words in describe_import(artifact.summary(), manifest.provenance["inputs"]).items():
                    note(f"{topic}: {words}")
        else:
            note(f"{place}: up to date, kept {target}")
            print_defects(artifact)
        kept.append(str(target))
        self.report.append({"stage": name, "done": found is None, "seconds": round(seconds, 3), "path": str(target)})
        return artifact

    def _current(self, stage: str, kind: type[A], identity: Callable[[A], dict[str, Any]]) -> A | None:
        """Return the artifact that is there, if it is valid and what would be made now."""
        if self.shared.force:
            return None
        try:
            artifact = kind.open(self.config.out / FOLDERS[stage])
            made, wanted = artifact.manifest.provenance, identity(artifact)
            options = {key: value for key, value in made["options"].items() if key in MEASURED} | wanted["options"]
            same = made == {**made, "stage": stage, **wanted, "options": options}
            return artifact if same and not artifact.problems("structure") else None
        except (TieringError, OSError, KeyError):
            return None
