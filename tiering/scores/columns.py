"""Columns of a score that tasks have made: each lies in consecutive tasks of a step, front to back."""

from __future__ import annotations

from collections.abc import Sequence

from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.graph import relation_folder
from tiering.formats.shape import SizedGraph
from tiering.run.files import JoinedFile, PartitionRange, join_step, make_files
from tiering.run.job import Job

Range = Sequence[int]
"""Number of a column, type or relation; the first of its nodes in a task, and the one behind the last."""


def column_sizes(graph: SizedGraph) -> tuple[dict[str, int], dict[str, int]]:
    """Return the nodes of the columns of features and of adjacency lists, by the files of the artifact."""
    return (
        {f"nodes/{node_type}/feature": graph.num_nodes(node_type) for node_type in graph.node_types},
        {f"{relation_folder(relation)}/adjacency": graph.num_nodes(relation[2]) for relation in graph.relations},
    )


def join_columns(
    job: Job, writer: ArtifactWriter, columns: dict[str, int], step: str, ranges: Sequence[Range], *,
    partition: int = 0, divisor: float | None = None, name: str = "files",
) -> None:  # fmt: skip
    """Write columns from a partition of the tasks of a step, one task for each of `ranges`."""
    files, largest = [], max((end - begin for _, begin, end in ranges), default=0)
    for number, (file, size) in enumerate(columns.items()):
        tasks = [task for task, (column, _, _) in enumerate(ranges) if column == number]
        parts = [PartitionRange(step, tasks[0], tasks[-1] + 1, partition)] if tasks else []
        files.append(JoinedFile(file, "float64", (size,), parts, divided_by=divisor))
    make_files(job, writer, join_step(name, writer.path, files, 8 * largest))
