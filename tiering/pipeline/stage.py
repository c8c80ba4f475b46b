"""The part of a command that all share: inputs opened, the output checked, the carrier of its tasks, its dry run."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, TypeVar

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.overlap import refuse_overlap
from tiering.artifacts.reader import uncached_bytes
from tiering.errors import FormatError, InputError, RefusedError
from tiering.formats.graph import Graph
from tiering.formats.known_defects import print_defects
from tiering.formats.shape import GraphShape, SizedGraph
from tiering.memory import Budget
from tiering.run.job import Carrier, ClusterOptions
from tiering.run.plan import StageEstimate, StepEstimate
from tiering.text.units import parse_threads

A = TypeVar("A", bound=Artifact)
Pathlike = str | os.PathLike[str]
Memory = str | int | Budget | None
Threads = int | str | None
Workers: TypeAlias = "ClusterOptions | Carrier | None"


class StageKeywords(TypedDict, total=False):
    """Keywords of every stage, for editors and type checkers; `tiering.pipeline.commands` explains them."""

    threads: Threads
    memory: Memory
    force: bool
    verify: bool
    cluster: Workers


@dataclass(frozen=True)
class StageRun:
    """One call of a command: its output, and the options that every stage takes."""

    out: Pathlike
    threads: Threads = None
    memory: Memory = None
    force: bool = False
    verify: bool = True
    cluster: Workers = None
    dry_run: bool = False
    """The stage is planned, not run: sizes may stand in the place of a graph, and nothing is written."""
    checked: bool = False  # the output was checked by the caller
    expect: Callable[[GraphShape], None] | None = None
    """A function that an import gives the sizes of its graph before it writes anything."""

    @classmethod
    def split(cls, out: Pathlike, options: Mapping[str, Any]) -> tuple[StageRun, dict[str, Any]]:
        """Return the run, and the rest of `options`, which are the stage's own."""
        own = {field.name for field in fields(cls)}
        shared = {name: value for name, value in options.items() if name in own}
        return cls(out, **shared), {name: value for name, value in options.items() if name not in own}

    @property
    def path(self) -> Path:
        """The absolute path of the output."""
        return Path(self.out).absolute()

    def open(self, artifact: Artifact | GraphShape | Pathlike | None, kind: type[A]) -> Any:
        """Open an artifact, whose bytes are compared when they are read; a dry run takes the sizes of a graph too."""
        if self.dry_run and isinstance(artifact, GraphShape):
            return artifact
        opened = artifact if isinstance(artifact, kind) else kind.open(artifact)  # type: ignore[arg-type]
        print_defects(opened)
        if self.verify and not self.dry_run:
            opened.verify_reads()
        return opened

    def check_output(
        self, reads: Iterable[Any], ssd: Iterable[Path] = (), around: Iterable[tuple[Path, str]] = ()
    ) -> None:
        """Refuse an output that overlaps what the command `reads` (artifacts, paths, texts) or where else it writes."""
        if not self.checked:
            refuse_overlap(self.path, _paths(reads), [*ssd, *([self._store] if self._store else [])], around)

    @property
    def _store(self) -> Path | None:
        """The directory of shuffle files, if it was given."""
        options: Any = getattr(self.cluster, "options", self.cluster)
        return None if options is None or options.store is None else Path(options.store)

    @contextmanager
    def carrier(self, *read: Artifact) -> Iterator[Carrier | None]:
        """Start the carrier, remove its shuffle files when all went well; errors of the core name what is `read`."""
        with reading(*read), ExitStack() as stack:
            carrier = self.cluster
            if isinstance(carrier, ClusterOptions):
                carrier = stack.enter_context(Carrier(carrier, memory=self.memory)) if carrier.cuts else None
            yield carrier
            if carrier is not None:
                carrier.finish()

    @property
    def planner(self) -> Carrier | None:
        """The carrier of a dry run, which is only asked what it cuts."""
        cluster: Any = self.cluster
        return Carrier(cluster) if cluster is not None and cluster.cuts else None

    def estimate(
        self, stage: StageEstimate, *compared: object, prefix: str = "", shape: GraphShape | None = None
    ) -> Any:
        """Return a planned stage, which compares artifacts with their checksums at its end, and the graph's sizes."""
        nbytes = sum(_uncached_files(artifact, prefix) for artifact in compared if isinstance(artifact, Artifact))
        step = StepEstimate("checksums", "compared at the end", disk_read=nbytes)
        steps = (*stage.steps, step) if nbytes else stage.steps
        return replace(stage, steps=steps, threads=parse_threads(self.threads), store=self._store), shape


def _uncached_files(artifact: Artifact, prefix: str) -> int:
    """Return the bytes of an artifact's files outside the page cache, without feature tables, read row by row."""
    files = [name for name, entry in artifact.manifest.files.items() if entry.bytes and name.startswith(prefix)]
    inside = [artifact.part(name) for name in artifact.parts() if name != "features"]
    own = sum(uncached_bytes(artifact.manifest.array(name)) for name in files)
    return own + sum(_uncached_files(part, prefix) for part in inside if part is not None)


def _paths(reads: Iterable[Any]) -> Iterator[Path | Artifact]:
    for one in reads:
        if isinstance(one, Mapping | list | tuple):
            yield from _paths(one.values() if isinstance(one, Mapping) else one)
        elif isinstance(one, str | os.PathLike):
            texts = (os.fsdecode(one), *re.split("[,=]", os.fsdecode(one)))
            yield from (Path(text) for text in texts if text and Path(text).exists())
        elif isinstance(one, Artifact | GraphShape):
            yield one if isinstance(one, Artifact) else one.path


def refuse_reordered(graph: SizedGraph, verb: str) -> None:
    """Refuse to `verb` a graph whose ids are ranks."""
    if isinstance(graph, Graph) and graph.order is not None:
        raise InputError(f"{graph.path}: this graph is already reordered; {verb} the graph that it was made from")


@contextmanager
def reading(*artifacts: Artifact) -> Iterator[None]:
    """Turn a `RefusedError` of the core into a `FormatError` that names the artifacts that were read."""
    try:
        yield
    except RefusedError as error:
        for artifact in artifacts:
            artifact.finish_reads()  # says it best, where checksums tell
        places = ", ".join(str(artifact.path) for artifact in artifacts)
        raise FormatError(f"{places}: {error}; an input is damaged: run `tiering check --full` on each") from error
