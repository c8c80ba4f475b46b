"""What an export will take: memory and disk of each relation, of each node type and of its feature rows."""

from __future__ import annotations

from pathlib import Path

from tiering.artifacts.manifest import relation_key
from tiering.exports.arrays import COPY_MEMORY, PIECE_BYTES, permuting_memory, row_sizes, streaming_memory
from tiering.exports.kinds import Kind
from tiering.exports.source import Source
from tiering.exports.tier_rows import TierRows
from tiering.formats.shape import EdgeShape, GraphShape
from tiering.memory import Budget
from tiering.plan import StagePlan, Step, held_memory
from tiering.reorder.plan import expected_memory, relabelling_steps
from tiering.reorder.rows import minimum_memory, plan_rows


def plan_export(source: Source, kind: Kind, out: Path, budget: Budget, threads: int) -> StagePlan:
    """Plan of an export; `BudgetError` if the memory does not suffice."""
    shape = GraphShape.of(source.graph, tables=False)
    budget.require(_least_memory(source, shape), "pieces of what is exported")
    steps = [_relation(edges, shape, source, kind, budget, threads) for edges in shape.edges]
    steps += [_nodes(name, shape, source, kind) for name in shape.node_types]
    steps += [_rows(name, source, budget) for name in source.feature_types]
    left = {out: sum(step.disk_written for step in steps)}
    return StagePlan("export", out, tuple(steps), left, held_memory(budget), threads=threads)


def _least_memory(source: Source, shape: GraphShape) -> int:
    """Memory with which every part of an export can be written."""
    needs = [COPY_MEMORY, expected_memory(shape, features=False) if source.restored else 0]
    for table, (forth, _) in ((source.table(name), source.maps(name)) for name in source.feature_types):
        permuted = minimum_memory(table, forth is None, row_sizes(table)) + permuting_memory(table) + 2 * PIECE_BYTES
        needs.append(streaming_memory(table) if forth is None and isinstance(table, TierRows) else permuted)
    return max(needs)


def _relation(edges: EdgeShape, shape: GraphShape, source: Source, kind: Kind, budget: Budget, threads: int) -> Step:
    """The edges of a relation; turned back from ranks in a scratch file, where they are."""
    stored, columns = shape.edge_bytes(edges), shape.num_nodes(edges.relation[2]) + 1
    ids = edges.num_edges * shape.nodes[edges.relation[0]].id_bytes
    written = stored
    if kind.edge_index:
        written += 16 * edges.num_edges - ids - 8 * columns
    elif kind.wide:
        written += 8 * edges.num_edges - ids
    memory, scratch = COPY_MEMORY, 0
    if source.restored:
        memory = max(memory, *(step.memory for step in relabelling_steps(edges, shape, budget, threads)))
        scratch = stored
    how = "relabelled" if source.restored else "copied"
    read = round(stored * edges.uncached)
    return Step(relation_key(edges.relation), how, memory, read, written, scratch, edges.num_edges, "edge")


def _nodes(node_type: str, shape: GraphShape, source: Source, kind: Kind) -> Step:
    """Labels, splits, and original ids where ids are ranks."""
    node = shape.nodes[node_type]
    written = sum(node.arrays.values())
    if source.order == "rank":
        written += node.num_nodes * node.id_bytes
    if kind.seeds and "label" in node.arrays:
        written += 8 * sum(node.splits.values())
    return Step(f"nodes of {node_type}", "copied", COPY_MEMORY, 0, written, 0, node.num_nodes, "node")


def _rows(node_type: str, source: Source, budget: Budget) -> Step:
    """The feature rows of a type."""
    table, (forth, _) = source.table(node_type), source.maps(node_type)
    name, nbytes = f"features of {node_type}", table.bytes
    read = table.bytes_on_disk() if isinstance(table, TierRows) else 0
    if forth is None:
        return Step(name, "in order", streaming_memory(table), read or nbytes, nbytes, 0, table.rows, "row")
    rows = plan_rows(table, False, budget.without(permuting_memory(table)), row_sizes(table))
    read = rows.passes * read if isinstance(table, TierRows) else rows.disk_read(table)
    memory = rows.memory + permuting_memory(table)
    return Step(name, rows.how, memory, read, nbytes, rows.bytes_scratch, table.rows, "row")
