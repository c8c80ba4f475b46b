"""The steps of the pipeline as tasks: what a stage is handed in the place of its own way to make files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import xxhash

from tiering.artifacts.manifest import Relation
from tiering.artifacts.writer import ArtifactWriter
from tiering.cluster.running import Job
from tiering.cluster.session import Cluster
from tiering.cluster.stages import (
    accesses,
    degrees,
    frontier,
    inclusion,
    lists,
    pagerank,
    ranks,
    relabel,
    rows,
    sweeps,
)
from tiering.formats.features import FeatureTable
from tiering.formats.graph import Graph, relation_folder
from tiering.formats.scores import Scores
from tiering.formats.shape import SizedGraph
from tiering.graph.plan import RelationPlan
from tiering.layout.images import ImageSet
from tiering.layout.plan import LayoutPlan
from tiering.scores.hybrid import posterior, prior_weight, ranked_prior
from tiering.scores.plan import ScorePlan
from tiering.scores.vip import SAMPLERS

METHODS = ("degree", "rpr", "wrpr", "vip", "presample", "hybrid")
"""Scores that tasks compute."""


class StageTasks:
    """Makers of the files of artifacts, by tasks of one session.

    What is not cut by the grid is left to the stage, in the process that leads: tasks would move it for nothing.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def importing(self) -> Importing:
        """The lists of the relations of an import."""
        return Importing(self._cluster)

    def rows(self) -> Callable[[ArtifactWriter, ImageSet, LayoutPlan, SizedGraph], bool]:
        """The tiers and images of a layout: a `tiering.layout.writer.RowsMaker`."""

        def make(writer: ArtifactWriter, images: ImageSet, plan: LayoutPlan, graph: SizedGraph) -> bool:
            if self._cluster.grid.whole(rows.task_bytes(plan.entries.values())):
                return False
            rows.write_rows(self._cluster.job(writer), writer, images, plan, graph, self._cluster.grid)
            return True

        return make

    def scoring(self) -> Scoring:
        """The columns of scores."""
        return Scoring(self._cluster)

    def reordering(self) -> Reordering:
        """Orders and relations of a reorder."""
        return Reordering(self._cluster)


class Importing:
    """A `tiering.graph.build.RelationMaker`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def takes(self, plan: RelationPlan) -> bool:
        return not self._cluster.grid.whole(lists.task_bytes(plan))

    def make(self, writer: ArtifactWriter, plan: RelationPlan) -> None:
        # By its key: a run that goes on makes fewer relations, under the same names. Names of files have a limit.
        name = "__".join(plan.edges.relation)
        name = name if len(name) <= 100 else f"{name[:80]}-{xxhash.xxh3_64_hexdigest(name.encode())}"
        lists.write_relation(self._cluster.job(writer), writer, name, plan, self._cluster.grid)


class Scoring:
    """A `tiering.scores.score.ScoreMaker`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def takes(self, graph: SizedGraph, plan: ScorePlan) -> bool:
        cluster = self._cluster
        if plan.method.counts and cluster.options.executor == "ray" and cluster.grid.shards != 1:
            return True  # epochs take long on graphs of any size
        return plan.name in METHODS and not cluster.grid.whole(sweeps.task_bytes(graph))

    def make(self, writer: ArtifactWriter, graph: SizedGraph, plan: ScorePlan) -> tuple[list[str], dict[str, Any]]:
        job, grid = self._cluster.job(writer), self._cluster.grid
        features = [f"nodes/{node_type}/feature" for node_type in graph.node_types]
        if plan.name == "degree":
            return features, degrees.write_degrees(job, writer, graph, grid)
        if plan.name in ("rpr", "wrpr"):
            return features, pagerank.write_ranks(job, writer, graph, plan, grid)
        names = [column.file for column in accesses.columns_of(graph)]
        if plan.name == "vip":
            return names, inclusion.write_inclusion(job, writer, graph, plan, grid)
        if plan.name == "hybrid" and isinstance(graph, Graph):
            return names, self._weigh(job, writer, graph, plan)
        job.expect(1)
        return names, accesses.write_presample(job, writer, graph, plan, self.count(job, graph, plan))

    def count(self, job: Job, graph: SizedGraph, plan: ScorePlan) -> accesses.Counted:
        """Count what sampled epochs read: by batches, or hop by hop where the adjacency does not fit a task."""
        grid = self._cluster.grid
        if frontier.by_hop(graph, plan, grid):
            return frontier.count_epochs(job, graph, plan, grid)
        return accesses.count_epochs(job, graph, plan, grid)

    def _weigh(self, job: Job, writer: ArtifactWriter, graph: Graph, plan: ScorePlan) -> dict[str, Any]:
        """``hybrid``: tasks count and make the prior, who leads the job weighs both, in memory."""
        request, grid = plan.request, self._cluster.grid
        job.expect(4 + 2 * len(request.sampled.fanouts) if request.sampled.sampler in SAMPLERS else 0)
        counted = self.count(job, graph, plan)
        tally = accesses.read_tally(job, graph, plan, counted, squares=prior_weight(request) is None)
        if request.sampled.sampler in SAMPLERS:
            prior = inclusion.read_inclusion(job, graph, plan, grid)
        else:
            prior = ranked_prior(graph, replace(request, scratch=writer.path), tally)
        columns = posterior(prior, tally, request)
        for node_type, values in columns.feature.items():
            writer.put(f"nodes/{node_type}/feature", values)
        for relation, values in columns.adjacency.items():
            writer.put(f"{relation_folder(relation)}/adjacency", values)
        return columns.reached


class Reordering:
    """A `tiering.reorder.nodes.ReorderMaker`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def takes_order(self, count: int) -> bool:
        """Whether tasks bring so many nodes into order."""
        return count > 0 and not self._cluster.grid.whole(count * ranks.NODE_BYTES)

    def takes_relation(self, graph: SizedGraph, relation: Relation) -> bool:
        """Whether tasks bring its lists into order."""
        nbytes = relabel.task_bytes(graph, relation, relabel.entry_files(graph, relation))
        return graph.num_edges(relation) > 0 and not self._cluster.grid.whole(nbytes)

    def takes_tables(self, tables: Mapping[str, FeatureTable]) -> bool:
        """Whether tasks bring the rows of all tables into order."""
        return not self._cluster.grid.whole(rows.task_bytes(rows.in_one_tier(*table) for table in tables.items()))

    def order(self, part: ArtifactWriter, scores: Scores, node_type: str, count: int) -> bool:
        if not self.takes_order(count):
            return False
        job, name = self._cluster.job(part), f"order-{scores.node_types.index(node_type)}"
        ranks.write_order(job, part, name, str(scores.path), node_type, count, self._cluster.grid)
        return True

    def relation(self, writer: ArtifactWriter, graph: Graph, relation: Relation) -> bool:
        if not self.takes_relation(graph, relation):
            return False
        job, name = self._cluster.job(writer), f"relation-{graph.relations.index(relation)}"
        order = str(writer.path / "order")
        relabel.write_relation(job, writer, name, graph, relation, order, self._cluster.grid)
        return True

    def features(self, part: ArtifactWriter, graph: Graph, tables: Mapping[str, FeatureTable], order: Path) -> bool:
        if not self.takes_tables(tables):
            return False
        rows.write_tables(self._cluster.job(part), part, graph, tables, str(order), self._cluster.grid)
        return True
