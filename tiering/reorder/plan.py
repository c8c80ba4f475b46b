"""The plan of a reorder: the decisions of its parts, as steps with memory and disk."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.artifacts.file_writer import appending_memory
from tiering.artifacts.manifest import relation_key
from tiering.formats.shape import EdgeShape, GraphShape
from tiering.memory import Budget
from tiering.plan import StageEstimate, StepEstimate, base_memory
from tiering.reorder.adjacency import RelabelSizes
from tiering.reorder.arrays import NodeWindows
from tiering.reorder.graph import rows_budget
from tiering.reorder.nodes import inverse_kept
from tiering.reorder.rank import nodes_per_run, sort_bytes
from tiering.reorder.rows import minimum_memory, plan_rows
from tiering.reorder.rows.tasks import tables_task_bytes
from tiering.reorder.sizes import SIZES
from tiering.reorder.tasks.order import NODE_BYTES
from tiering.reorder.tasks.relabel import task_bytes
from tiering.run.carrier import Carrier
from tiering.run.grid import Grid


def plan_reorder(
    shape: GraphShape,
    out: Path,
    budget: Budget,
    threads: int,
    features: bool = False,
    uncached: float = 0.0,
    first: Collection[str] = (),
    carrier: Carrier | None = None,
) -> StageEstimate:
    """Return the plan of a reorder; `uncached` is the share of the scores that the page cache does not hold.

    `first`: node types of which the user puts some nodes first. A `carrier` runs large steps as tasks.

    Memory: both maps of a type while they are made; per relation `RelabelSizes.in_memory`, or what the budget leaves;
    for arrays of the nodes a window, and for features (if they are written again) that of `tiering.reorder.rows`.
    """
    plan = _Plan(shape, budget, threads, uncached, first)
    if carrier is None:
        require_memory(budget, shape, features, threads, first)
    cut = [n for n in shape.node_types if n not in first and _cuts(carrier, shape.num_nodes(n) * NODE_BYTES)]
    steps = [plan.ranking(name) for name in shape.node_types if name not in cut]
    for name in shape.node_types:
        if carrier is not None and name in cut:
            steps.append(plan.order_by_tasks(name, carrier.grid))
        else:
            steps += plan.order(name)
    for edges in shape.edges:
        nbytes = task_bytes(shape, edges.relation) if edges.num_edges else 0
        if carrier is not None and carrier.cuts(nbytes):
            steps.append(plan.relation_by_tasks(edges, carrier.grid))
        else:
            steps += plan.relation(edges)
    for name in shape.node_types:
        steps += plan.node_arrays(name)
    left = shape.graph_bytes() + shape.order_bytes()
    if features:
        if carrier is not None and carrier.cuts(tables_task_bytes(shape.tables)):
            steps.append(plan.features_by_tasks(carrier.grid))
        else:
            steps += plan.features()
        left += sum(table.bytes for table in shape.tables.values())
    return StageEstimate("reorder", out, tuple(steps), {out: left}, base_memory(budget), threads=threads)


def expected_memory(shape: GraphShape, features: bool) -> int:
    """Return the least bytes with which relations, rows, scores and other arrays of the nodes can be reordered."""
    relations = [_relabel_sizes(edges, shape).minimum() for edges in shape.edges]
    tables = shape.tables.values() if features else ()
    rows = [minimum_memory(table, False) + appending_memory(table.bytes) for table in tables]
    nodes = [max(8 * node.num_nodes, 0, *node.arrays.values()) for node in shape.nodes.values()]
    arrays = [min(nbytes, SIZES.block) + min(SIZES.node_piece, 4 * nbytes) for nbytes in nodes]
    return max([*relations, *rows, *arrays], default=0)


def require_memory(
    budget: Budget, shape: GraphShape, features: bool, threads: int, first: Collection[str] = ()
) -> None:
    """Raise `BudgetError` unless the memory suffices for every step of a reorder; arguments as of `plan_reorder`."""
    budget = budget.expecting(expected_memory(shape, features))
    for name in shape.node_types:
        count = shape.num_nodes(name)
        nodes_per_run(name, count, threads, budget.without(count if name in first else 0))
    budget.require(budget.expected, "nodes, edges and rows, in pieces of 64 MiB,")


def _relabel_sizes(edges: EdgeShape, shape: GraphShape) -> RelabelSizes:
    source, _, destination = edges.relation
    items = tuple(edges.values.values())
    return RelabelSizes(edges.num_edges, shape.num_nodes(source), shape.num_nodes(destination), items)


def _cuts(carrier: Carrier | None, nbytes: int) -> bool:
    return carrier is not None and carrier.cuts(nbytes)


def _in_words(windows: int) -> str:
    return "in memory" if windows <= 1 else f"{windows} windows"


def relabelling_steps(edges: EdgeShape, shape: GraphShape, budget: Budget, threads: int) -> Iterator[StepEstimate]:
    """Yield the steps of `tiering.reorder.adjacency.write_relation` for a relation whose orders are mapped."""
    return _Plan(shape, budget, threads, 0.0, ()).relation(edges)


@dataclass(frozen=True)
class _Plan:
    shape: GraphShape
    budget: Budget
    threads: int
    uncached: float
    first: Collection[str]

    def _map_bytes(self, node_type: str) -> int:
        """Return the bytes of one direction of an order."""
        node = self.shape.nodes[node_type]
        return node.num_nodes * node.id_bytes

    def _inverse(self, node_type: str) -> int:
        """Return the bytes of the inverse order, if it stays in memory after it was made."""
        return inverse_kept(len(self.shape.nodes), self._map_bytes(node_type), self.budget)

    def _windows(self, nbytes: int) -> NodeWindows:
        return NodeWindows(self.budget.without(nbytes), SIZES, self.threads)

    def ranking(self, node_type: str) -> StepEstimate:
        """Return the nodes by score."""
        count = self.shape.num_nodes(node_type)
        marked = count if node_type in self.first else 0
        memory, passes, how = marked + sort_bytes(count, self.threads), 2, "in memory"
        if (together := nodes_per_run(node_type, count, self.threads, self.budget.without(marked))) < count:
            pieces = -(-count // together)
            memory, passes, how = self.budget.left(), 2 + pieces, f"{pieces} pieces"
        return StepEstimate(
            f"rank {node_type}", how, memory, round(passes * 8 * count * self.uncached), 0, 0, count, "node"
        )

    def order(self, node_type: str) -> Iterator[StepEstimate]:
        """Yield the steps of the order, its inverse, and the score by rank."""
        count, one = self.shape.num_nodes(node_type), self._map_bytes(node_type)
        whole = node_type not in self.first and nodes_per_run(node_type, count, self.threads, self.budget) >= count
        windows = self._windows(one if whole else 0)  # whole: in memory, not read back
        number, block = windows.count(one), SIZES.block
        memory = (one if whole else min(SIZES.node_piece, 4 * one)) + min(one, max(block, windows.room))
        read = 0 if whole else one * number
        yield StepEstimate(f"order of {node_type}", _in_words(number), memory, read, 2 * one, 0, count, "node")
        yield self._array(f"score of {node_type}", node_type, 8 * count, self._inverse(node_type), self.uncached)

    def node_arrays(self, node_type: str) -> Iterator[StepEstimate]:
        """Yield the arrays that run along the nodes, and splits."""
        for name, nbytes in sorted(self.shape.nodes[node_type].arrays.items()):
            if name.startswith("split-"):
                yield StepEstimate(f"{node_type} {name}", "some at a time", 20 << 20, 0, nbytes, 0, nbytes // 8, "node")
            else:
                yield self._array(f"{node_type} {name}", node_type, nbytes, 0, 0.0)

    def _array(self, name: str, node_type: str, nbytes: int, inverse: int, uncached: float) -> StepEstimate:
        """Return the step of an array along the nodes of a type; `inverse` bytes of ranks are in memory."""
        windows, count = self._windows(inverse), self.shape.num_nodes(node_type)
        number = windows.count(nbytes)
        read = number * (round(nbytes * uncached) + (0 if inverse else self._map_bytes(node_type)))
        memory = inverse + min(nbytes, max(SIZES.block, windows.room)) + min(SIZES.node_piece, 4 * nbytes)
        return StepEstimate(name, _in_words(number), memory, read, nbytes, 0, number * count, "row")

    def relation(self, edges: EdgeShape) -> Iterator[StepEstimate]:
        """Yield offsets, then each file that runs along the entries by windows."""
        sizes, name = _relabel_sizes(edges, self.shape), relation_key(edges.relation)
        sizes.require(name, self.budget)
        _, offsets, _ = sizes.parts()
        inverse = self._inverse(edges.relation[2])
        read = round(offsets * edges.uncached) + (0 if inverse else self._map_bytes(edges.relation[2]))
        memory = inverse + min(offsets, self.budget.left())
        yield StepEstimate(f"{name} indptr", "in memory", memory, read, offsets, 0, sizes.num_dst, "node")
        yield self._entries(f"{name} indices", sizes, sizes.id_bytes, inverse, edges.uncached, indices=True)
        for key, item in sorted(edges.values.items()):
            yield self._entries(f"{name} {key}", sizes, item, inverse, edges.uncached, indices=False)

    def _entries(
        self, name: str, sizes: RelabelSizes, item: int, inverse: int, uncached: float, *, indices: bool
    ) -> StepEstimate:
        """Return the step of a file along the entries, made in windows; columns count as equally long."""
        written = sizes.num_edges * item
        maps, offsets = sizes.resident_bytes(self.budget, inverse, indices)
        columns = 0 if offsets else sizes.num_dst
        per_block = BLOCK_BYTES + item + 8 * columns * min(1.0, BLOCK_BYTES / max(1, written))
        blocks = -(-written // BLOCK_BYTES)
        count = -(-blocks // max(1, int(sizes.room(self.budget, inverse, indices) // per_block)))
        window = min(written, -(-written // max(1, count) // BLOCK_BYTES) * BLOCK_BYTES)
        pieces = sizes.pieces() if uncached else 0
        memory = maps + offsets + pieces + window + 8 * -(-columns // max(1, count))
        again = max(0, sizes.parts()[0] - inverse) + 8 * columns if indices else 0
        read = round(count * written * uncached) + again
        return StepEstimate(name, _in_words(count), memory, read, written, 0, count * sizes.num_edges, "edge")

    def features(self) -> Iterator[StepEstimate]:
        """Yield the feature tables in rank order, written in pieces in the background."""
        for name, table in self.shape.tables.items():
            rows = plan_rows(table, False, rows_budget(self.budget, table))
            memory = rows.memory + appending_memory(table.bytes)
            yield StepEstimate(
                f"features of {name}", rows.how, memory, rows.disk_read(table), table.bytes, rows.bytes_scratch,
                table.rows, "row",
            )  # fmt: skip

    def order_by_tasks(self, node_type: str, grid: Grid) -> StepEstimate:
        """Return the step of an order, its inverse and its scores by rank, in tasks."""
        count, nbytes = self.shape.num_nodes(node_type), self.shape.num_nodes(node_type) * NODE_BYTES
        written = 2 * self._map_bytes(node_type) + 8 * count
        return _task_step(
            f"order of {node_type}", nbytes, grid, round(8 * count * self.uncached), written, count, "node"
        )

    def relation_by_tasks(self, edges: EdgeShape, grid: Grid) -> StepEstimate:
        """Return the step of a relation's lists, in tasks."""
        sizes, nbytes = _relabel_sizes(edges, self.shape), task_bytes(self.shape, edges.relation)
        written = sizes.parts()[1] + edges.num_edges * (sizes.id_bytes + sum(sizes.item_bytes))
        read = round(written * edges.uncached)
        return _task_step(relation_key(edges.relation), nbytes, grid, read, written, edges.num_edges, "edge")

    def features_by_tasks(self, grid: Grid) -> StepEstimate:
        """Return the step of all feature tables, in tasks."""
        nbytes, rows = (sum(getattr(table, name) for table in self.shape.tables.values()) for name in ("bytes", "rows"))
        return _task_step("features", tables_task_bytes(self.shape.tables), grid, nbytes, nbytes, rows, "row")


def _task_step(name: str, nbytes: int, grid: Grid, read: int, written: int, amount: int, unit: str) -> StepEstimate:
    """Return a step that one task would do in `nbytes` of memory, cut by a grid."""
    parts = grid.parts(nbytes)
    return StepEstimate(name, f"{parts} tasks", -(-nbytes // parts), read, written, 0, amount, unit)
