"""The tasks that the steps of the pipeline would be cut into: planned by the code that has them run, and not run.

What that code would read of finished tasks, to plan on, is made up here: edges in equal shares. A graph whose edges are
shared unevenly has the same tasks with the same sums; the largest takes more where a node has more than a share.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import relation_key
from tiering.artifacts.writer import ArtifactWriter
from tiering.cluster.grid import even_bounds
from tiering.cluster.manifests import Manifest
from tiering.cluster.running import Job
from tiering.cluster.segments import Columns
from tiering.cluster.session import Cluster, ClusterOptions
from tiering.cluster.stages import inclusion, ranks, relabel, rows
from tiering.cluster.stages.sweeps import Ranges
from tiering.cluster.steps import StageTasks
from tiering.cluster.tasks import Stage
from tiering.formats.features import FeatureTable
from tiering.formats.shape import GraphShape, SizedGraph
from tiering.graph.plan import RelationPlan
from tiering.layout.images import ImageSet
from tiering.layout.plan import LayoutPlan
from tiering.scores.plan import ScorePlan
from tiering.scores.vip import SAMPLERS
from tiering.task_steps import TaskStep, joined

AnyArray = npt.NDArray[Any]
Read = dict[str, AnyArray]
Steps = tuple[TaskStep, ...]


@dataclass
class ForeseenJob(Job):
    """Keeps the stages that it is asked to run."""

    sweeps: int = 0
    """After which scores no longer change."""
    stages: list[Stage] = field(default_factory=list)
    threads: int = 1
    most: int = 0
    """Bytes that the store holds at its fullest."""
    _held: int = 0

    def run(self, stage: Stage, only: Iterable[int] | None = None) -> list[Manifest]:
        self.stages.append(stage)
        self._held += stage.traffic.left
        self.most = max(self.most, self._held)
        if stage.function in ("tiering.cluster.files:join", "tiering.cluster.stages.rows:write"):
            return []  # no files to be put in their place
        return [{"facts": self._facts(stage, index)} for index in range(stage.tasks)]

    def drop(self, *stages: Stage) -> None:
        self._held -= sum(stage.traffic.left for stage in stages)

    def give(self, name: str, columns: Columns, bounds: Sequence[int] = ()) -> Stage:
        return Stage(name, "tiering.cluster.tasks:give", 1)

    def read(self, stage: str, index: int, part: int = 0) -> Read:
        found = next(one for one in self.stages if one.name == stage)
        return _READ[found.function.removeprefix("tiering.cluster.stages.")](found.params, index)

    def _facts(self, stage: Stage, index: int) -> dict[str, Any]:
        """Of a task of a stage whose facts are planned with."""
        if stage.function.endswith("ranks:cut"):
            bounds = even_bounds(stage.params["num_nodes"], stage.params["parts"])
            return {"rows": _shares(bounds[index + 1] - bounds[index], stage.params["parts"]).tolist()}
        if stage.function.endswith("pagerank:sweep"):
            return {"changes": [0.0 if int(stage.name.rpartition("-")[2]) >= self.sweeps else 1.0]}
        return {"accesses": 0, "positive": True}


def _shares(count: int, parts: int) -> npt.NDArray[np.int64]:
    """So many things in `parts` shares, which differ by one at the most."""
    return np.diff(np.arange(parts + 1, dtype=np.int64) * count // max(1, parts))


def _counted(params: Mapping[str, Any], index: int) -> Read:
    bounds = even_bounds(params["num_edges"], params["parts"])
    return {"edges": _shares(bounds[index + 1] - bounds[index], ((params["num_dst"] - 1) >> params["shift"]) + 1)}


def _weighed(params: Mapping[str, Any], index: int) -> Read:
    edges = _counted(params, index)["edges"]
    return {"old": edges, "new": edges}


def _lists_weighed(params: Mapping[str, Any], index: int) -> Read:
    number, part = Ranges(params).list_tasks[index]
    relation, bounds = params["relations"][number], params["lists"][number]
    edges = even_bounds(relation["edges"], len(bounds) - 1)
    shift = params["runs"][number]
    counts = np.zeros(((relation["columns"] - 1) >> shift) + 1, np.int64)
    own = slice(bounds[part] >> shift, max(bounds[part] >> shift, (bounds[part + 1] - 1) >> shift) + 1)
    counts[own] = _shares(edges[part + 1] - edges[part], own.stop - own.start)
    return {"edges": counts}


def _lists_counted(params: Mapping[str, Any], index: int) -> Read:
    number, part = Ranges(params).list_tasks[index]
    relation, cuts = params["relations"][number], len(params["lists"][number]) - 1
    edges, source = even_bounds(relation["edges"], cuts), relation["src"]
    bins = -(-params["num_nodes"][source] // (1 << params["shifts"][source]))
    return {"edges": _shares(edges[part + 1] - edges[part], bins)}


def _piece_cut(params: Mapping[str, Any], index: int) -> Read:
    number, begin, end = params["pieces"][index]
    relation, shift = params["relations"][number], params["shifts"][params["relations"][number]["dst"]]
    counts = np.zeros(((relation["columns"] - 1) >> shift) + 1, np.int64)
    own = slice(begin >> shift, ((end - 1) >> shift) + 1)
    edges = relation["edges"] * end // relation["columns"] - relation["edges"] * begin // relation["columns"]
    counts[own] = _shares(edges, own.stop - own.start)
    return {"edges": counts}


def _sampled(params: Mapping[str, Any], index: int) -> Read:
    bounds = even_bounds(params["num_nodes"], params["parts"])
    count = min(bounds[index + 1] - bounds[index], 4 * params["parts"])
    ids = bounds[index] + np.arange(count)
    return {"key": ids.astype(np.uint64), "id": ids}


_READ: dict[str, Callable[[Mapping[str, Any], int], Read]] = {
    "lists:count": _counted,
    "relabel:weigh": _weighed,
    "sweeps:weigh": _lists_weighed,
    "sweeps:count": _lists_counted,
    "ranks:sample": _sampled,
    "frontier:cut": _piece_cut,
}
"""What tasks leave that is planned with, by their function."""


class _FutureArtifact(ArtifactWriter):
    """An artifact that is not written."""

    def __init__(self, path: Path) -> None:
        self._at = path

    @property
    def path(self) -> Path:  # type: ignore[override]
        return self._at

    def has(self, *names: str) -> bool:
        return False


class _FutureImages(ImageSet):
    """Images that are not written: all are missing."""

    def __init__(self, plan: LayoutPlan) -> None:
        self._folders = plan.folders

    def folder(self, image: int) -> Path:
        return self._folders[image]

    def missing(self) -> list[int]:
        return list(range(len(self._folders)))


def _steps(stages: Sequence[Stage]) -> Steps:
    steps = [TaskStep(stage.name, stage.tasks, stage.memory, **vars(stage.traffic)) for stage in stages if stage.tasks]
    return tuple(joined(steps))


class Foresight(Cluster):
    """The tasks of a session, step by step; there are none where the process that leads does it all."""

    def __init__(self, options: ClusterOptions) -> None:
        super().__init__(options)
        self._planned = ForeseenJob()

    def job(self, writer: ArtifactWriter) -> Job:
        return self._planned

    def _begin(self, sweeps: int = 0) -> tuple[StageTasks, list[Stage]]:
        self._planned = ForeseenJob(sweeps)
        return StageTasks(self), self._planned.stages

    def importing(self, relations: Sequence[RelationPlan], out: Path) -> Steps:
        """Of those relations that are made elsewhere."""
        tasks, stages = self._begin()
        maker = tasks.importing()
        for relation in relations:
            if relation.elsewhere:
                maker.make(_FutureArtifact(out), relation)
        return _steps(stages)

    def scoring(self, graph: SizedGraph, plan: ScorePlan, out: Path) -> Steps:
        tasks, stages = self._begin(plan.sweeps)
        scoring = tasks.scoring()
        if not scoring.takes(graph, plan):
            return ()
        if plan.name != "hybrid":
            scoring.make(_FutureArtifact(out), graph, plan)
        else:  # who leads the job weighs, which is not foreseen
            scoring.count(self._planned, graph, plan)
            if plan.request.sampled.sampler in SAMPLERS:
                inclusion.include(self._planned, graph, plan, self.grid)
        return _steps(stages)

    @property
    def store(self) -> int:
        """Bytes that the store holds at its fullest, in the step that was planned last."""
        return self._planned.most

    def takes_relation(self, plan: RelationPlan) -> bool:
        """Whether tasks would make the lists of a relation."""
        return StageTasks(self).importing().takes(plan)

    def reordering(
        self, shape: GraphShape, tables: Mapping[str, FeatureTable], out: Path, first: Collection[str] = ()
    ) -> tuple[Steps, set[str]]:
        """And what of `tiering.reorder.plan.plan_reorder` they do; `tables`: those that are written again, `first`:
        node types of which the user puts some nodes first, which is left to who leads.
        """
        tasks, stages = self._begin()
        done, target, reordering = set(), _FutureArtifact(out), tasks.reordering()
        for number, (name, node) in enumerate(shape.nodes.items()):
            if name not in first and reordering.takes_order(node.num_nodes):
                ranks.write_order(self._planned, target, f"order-{number}", "", name, node.num_nodes, self.grid)
                done.add(name)
        for number, relation in enumerate(shape.relations):
            if reordering.takes_relation(shape, relation):
                relabel.write_relation(self._planned, target, f"relation-{number}", shape, relation, "", self.grid)
                done.add(relation_key(relation))
        if tables and reordering.takes_tables(tables):
            rows.write_tables(self._planned, target, shape, tables, "", self.grid)
            done.add("features")
        return _steps(stages), done

    def laying_out(self, graph: SizedGraph, plan: LayoutPlan, out: Path) -> Steps:
        tasks, stages = self._begin()
        tasks.rows()(_FutureArtifact(out), _FutureImages(plan), plan, graph)
        return _steps(stages)
