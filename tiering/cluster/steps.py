"""The steps of the pipeline as tasks: what a stage is handed in the place of its own way to make files."""

from __future__ import annotations

from typing import Any

from tiering.artifacts.manifest import Relation, relation_key
from tiering.artifacts.writer import ArtifactWriter
from tiering.cluster.session import Cluster
from tiering.cluster.stages import accesses, degrees, lists, ranks, relabel, rows
from tiering.formats.graph import Graph
from tiering.formats.scores import Scores
from tiering.graph.build import RelationMaker
from tiering.graph.plan import RelationPlan
from tiering.layout.images import ImageSet
from tiering.layout.plan import LayoutPlan
from tiering.layout.writer import RowsMaker
from tiering.scores.plan import ScorePlan


class StageTasks:
    """Makers of the files of artifacts, by tasks of one session."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def relations(self) -> RelationMaker:
        """The lists of the relations of an import."""
        numbers: dict[str, int] = {}

        def make(writer: ArtifactWriter, plan: RelationPlan) -> None:
            number = numbers.setdefault(relation_key(plan.edges.relation), len(numbers))
            job = self._cluster.job(writer)
            lists.write_relation(job, writer, f"relation-{number}", plan, self._cluster.grid)

        return make

    def rows(self) -> RowsMaker:
        """The tiers and images of a layout."""

        def make(writer: ArtifactWriter, images: ImageSet, plan: LayoutPlan, graph: Graph) -> None:
            rows.write_rows(self._cluster.job(writer), writer, images, plan, graph, self._cluster.grid)

        return make

    def scoring(self) -> Scoring:
        """The columns of scores."""
        return Scoring(self._cluster)

    def reordering(self) -> Reordering:
        """Orders and relations of a reorder."""
        return Reordering(self._cluster)


class Scoring:
    """A `tiering.scores.score.ScoreMaker`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def knows(self, method: str) -> bool:
        return method in ("degree", "presample")

    def make(self, writer: ArtifactWriter, graph: Graph, plan: ScorePlan) -> tuple[list[str], dict[str, Any]]:
        job, grid = self._cluster.job(writer), self._cluster.grid
        features = [f"nodes/{node_type}/feature" for node_type in graph.node_types]
        if plan.name == "degree":
            return features, degrees.write_degrees(job, writer, graph, grid)
        names = [column.file for column in accesses.columns_of(graph)]
        return names, accesses.write_presample(job, writer, graph, plan, grid)


class Reordering:
    """A `tiering.reorder.nodes.ReorderMaker`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def order(self, part: ArtifactWriter, scores: Scores, node_type: str, count: int) -> None:
        number = scores.node_types.index(node_type)
        ranks.write_order(
            self._cluster.job(part), part, f"order-{number}", str(scores.path), node_type, count, self._cluster.grid
        )

    def relation(self, writer: ArtifactWriter, graph: Graph, relation: Relation) -> None:
        job, name = self._cluster.job(writer), f"relation-{graph.relations.index(relation)}"
        order = str(writer.path / "order")
        relabel.write_relation(job, writer, name, graph, relation, order, self._cluster.grid)
