"""The steps of the pipeline as tasks: what a stage is handed in the place of its own way to make files."""

from __future__ import annotations

from tiering.artifacts.manifest import relation_key
from tiering.artifacts.writer import ArtifactWriter
from tiering.cluster.session import Cluster
from tiering.cluster.stages import lists
from tiering.graph.build import RelationMaker
from tiering.graph.plan import RelationPlan


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
