"""The dry run of an export: memory and disk of each relation, of each node type and of its feature rows."""

from __future__ import annotations

from pathlib import Path

from tiering.artifacts.manifest import relation_key
from tiering.exports.arrays import COPY_MEMORY, PIECE_BYTES, permuting_memory, row_sizes, streaming_memory
from tiering.exports.source import ExportSource
from tiering.exports.tier_rows import TierRows
from tiering.formats.shape import EdgeShape, GraphShape
from tiering.memory import Budget
from tiering.plan import StageEstimate, StepEstimate, base_memory
from tiering.reorder.plan import expected_memory, relabelling_steps
from tiering.reorder.rows import minimum_memory, plan_rows


def plan_export(source: ExportSource, out: Path, budget: Budget, threads: int) -> StageEstimate:
    """Plan an export; raise `BudgetError` if the memory does not suffice."""
    shape = GraphShape.of(source.graph, tables=False)
    budget.require(_least_memory(source, shape), "pieces of what is exported")
    steps = [_plan_relation(edges, shape, source, budget, threads) for edges in shape.edges]
    steps += [_plan_nodes(name, shape, source) for name in shape.node_types]
    steps += [_plan_rows(name, source, budget) for name in source.feature_types]
    written = {out: sum(step.disk_written for step in steps)}
    return StageEstimate("export", out, tuple(steps), written, base_memory(budget), threads=threads)


def _least_memory(source: ExportSource, shape: GraphShape) -> int:
    """Return the memory with which every part of an export can be written."""
    needs = [COPY_MEMORY, expected_memory(shape, features=False) if source.restored else 0]
    for table, (forth, _) in ((source.table(name), source.maps(name)) for name in source.feature_types):
        permuted = minimum_memory(table, forth is None, row_sizes(table)) + permuting_memory(table) + 2 * PIECE_BYTES
        needs.append(streaming_memory(table) if forth is None and isinstance(table, TierRows) else permuted)
    return max(needs)


def _plan_relation(
    edges: EdgeShape, shape: GraphShape, source: ExportSource, budget: Budget, threads: int
) -> StepEstimate:
    """Plan the edges of a relation; with original ids they are relabelled in a scratch file."""
    stored, columns = shape.edge_bytes(edges), shape.num_nodes(edges.relation[2]) + 1
    id_bytes = shape.nodes[edges.relation[0]].id_bytes
    written = stored + (16 - id_bytes) * edges.num_edges - 8 * columns
    how, memory, scratch = "copied", COPY_MEMORY, 0
    if source.restored:
        how, scratch = "relabelled", stored
        memory = max(memory, *(step.memory for step in relabelling_steps(edges, shape, budget, threads)))
    read = round(stored * edges.uncached)
    return StepEstimate(relation_key(edges.relation), how, memory, read, written, scratch, edges.num_edges, "edge")


def _plan_nodes(node_type: str, shape: GraphShape, source: ExportSource) -> StepEstimate:
    """Plan labels, splits, labels of the splits, and original ids where ids are ranks."""
    node = shape.nodes[node_type]
    written = sum(node.arrays.values())
    if source.order == "rank":
        written += node.num_nodes * node.id_bytes
    if "label" in node.arrays:
        written += 8 * sum(node.splits.values())
    return StepEstimate(f"nodes of {node_type}", "copied", COPY_MEMORY, 0, written, 0, node.num_nodes, "node")


def _plan_rows(node_type: str, source: ExportSource, budget: Budget) -> StepEstimate:
    """Plan the feature rows of a type."""
    table, (forth, _) = source.table(node_type), source.maps(node_type)
    name, nbytes = f"features of {node_type}", table.bytes
    read = table.bytes_on_disk() if isinstance(table, TierRows) else 0
    if forth is None:
        return StepEstimate(name, "in order", streaming_memory(table), read or nbytes, nbytes, 0, table.rows, "row")
    rows = plan_rows(table, False, budget.without(permuting_memory(table)), row_sizes(table))
    read = rows.passes * read if isinstance(table, TierRows) else rows.disk_read(table)
    memory = rows.memory + permuting_memory(table)
    return StepEstimate(name, rows.how, memory, read, nbytes, rows.bytes_scratch, table.rows, "row")
