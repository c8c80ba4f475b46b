"""The plan of a reorder: its steps, which of them run as tasks, and the memory and disk of each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.artifacts.file_writer import appending_memory
from tiering.artifacts.manifest import Relation, id_bytes, relation_key
from tiering.formats.features import FeatureTable
from tiering.formats.shape import EdgeShape, GraphShape, SizedGraph
from tiering.memory import Budget
from tiering.reorder.adjacency import PIECES, RelabelSizes
from tiering.reorder.arrays import SIZES, NodeArrays, plan_nodes
from tiering.reorder.rank import nodes_per_run, sort_bytes
from tiering.reorder.table_reader import disk_read, plan_reading
from tiering.reorder.tasks.order import NODE_BYTES
from tiering.reorder.tasks.relabel import COLUMN_BYTES, task_bytes, value_sizes
from tiering.reorder.tasks.rows import tables_task_bytes
from tiering.run.grid import MAX_RUNS
from tiering.run.job import Carrier
from tiering.run.move import MAX_PASSES, ReadPlan, least_memory, plan_moves
from tiering.run.options import ClusterOptions
from tiering.run.places import Places
from tiering.run.plan import StageEstimate, StepEstimate, base_memory

_LEAST_TASK = 64 << 20  # bytes of a task that cuts lists
_TASK_MEMORY = 2 * BLOCK_BYTES + appending_memory(1 << 62)  # and these bytes: new ids of sources, a file
_OWN_TASKS = _LEAST_TASK + _TASK_MEMORY  # memory with which lists of any length are cut


class ReorderStep(NamedTuple):
    """One step of a reorder: ``order`` or ``nodes`` of a node type, a ``relation``, or the ``features``."""

    kind: str
    key: Any = ""
    nbytes: int = 0  # memory of a task that took all of it
    carrier: Carrier | None = None  # cuts it into tasks; ``None``: this process takes it

    def parts(self, nbytes: int) -> int:
        """Return into how many tasks something is cut that would take so much memory in one."""
        return 1 if self.carrier is None else self.carrier.grid.parts(nbytes)


def own_carrier(budget: Budget, threads: int) -> Carrier | None:
    """Return the carrier of relations that this process cuts into tasks of its own; none where memory is small."""
    memory = budget.left() - _TASK_MEMORY
    if memory < _LEAST_TASK:
        return None
    return Carrier(ClusterOptions(task_memory=memory, workers=1, threads=threads), memory=budget)


def relation_step(graph: SizedGraph, relation: Relation, budget: Budget, own: Carrier | None) -> ReorderStep:
    """Return the step of a relation in this process, where `own` cuts what would be read more than `MAX_PASSES` times.

    `own`: see `own_carrier`.
    """
    edges, source, destination = (graph.num_edges(relation), *(graph.num_nodes(relation[end]) for end in (0, 2)))
    sizes = RelabelSizes(edges, source, destination, value_sizes(graph, relation))
    if own is None or sizes.passes(budget) <= MAX_PASSES:
        return ReorderStep("relation", relation)
    return ReorderStep("relation", relation, task_bytes(graph, relation), own)


def reorder_steps(
    graph: SizedGraph, tables: Mapping[str, FeatureTable], pinned: Collection[str], carrier: Carrier | None,
    budget: Budget, own: Carrier | None,
) -> Iterator[ReorderStep]:  # fmt: skip
    """Yield the steps in the order of the run; `tables` are written again, no tasks rank node types of `pinned`.

    `own`: see `relation_step`, for relations that no tasks of a `carrier` make.
    """

    def cut(kind: str, key: Any, nbytes: int) -> ReorderStep:
        return ReorderStep(kind, key, nbytes, carrier if carrier is not None and carrier.uses_tasks(nbytes) else None)

    for name in graph.node_types:
        yield cut("order", name, 0 if name in pinned else graph.num_nodes(name) * NODE_BYTES)
    for relation in graph.relations:
        step = cut("relation", relation, task_bytes(graph, relation) if graph.num_edges(relation) else 0)
        yield relation_step(graph, relation, budget, own) if step.carrier is None else step
    for name in graph.node_types:
        yield ReorderStep("nodes", name)
    if tables:
        yield cut("features", "", tables_task_bytes(tables))


def inverse_kept(num_types: int, nbytes: int, budget: Budget) -> int:
    """Return the bytes of an inverse order that stay in memory when it is made: all `nbytes`, or none."""
    # Relations of several types take turns: each reads its own.
    return nbytes if num_types == 1 and 5 * nbytes <= budget.left() else 0


def _in_words(windows: int) -> str:
    return "one pass" if windows <= 1 else f"{windows} passes"


@dataclass(frozen=True)
class ReorderPlan:
    """The steps of a reorder, with the memory and disk that they take.

    `uncached`: the share of the scores that the page cache does not hold. `pinned`: node types of which the user puts
    some nodes first. Memory: both maps of a type while they are made; new offsets, maps and a window of a relation;
    arrays of nodes and features as `tiering.run.move` plans them.
    """

    shape: GraphShape
    budget: Budget
    threads: int
    uncached: float = 0.0
    pinned: Collection[str] = ()

    def stage(self, out: Path, features: bool, carrier: Carrier | None) -> StageEstimate:
        """Return the steps for an artifact at `out`, which writes the feature tables again with `features`."""
        if carrier is None:
            self.require_memory(features)
        shape, tables = self.shape, self.shape.tables if features else {}
        own = own_carrier(self.budget, self.threads)
        planned = reorder_steps(shape, tables, self.pinned, carrier, self.budget, own)
        steps = [made for step in planned for made in self.estimates(step)]
        left = shape.graph_bytes() + shape.order_bytes() + sum(table.bytes for table in tables.values())
        held = base_memory(self.budget)
        return StageEstimate("reorder", out, tuple(steps), {out: left}, held=held, threads=self.threads)

    def least_memory(self, features: bool) -> int:
        """Return the least bytes with which relations, rows, scores and other arrays of the nodes can be reordered."""
        relations = [min(self._sizes(edges).minimum(), _OWN_TASKS) for edges in self.shape.edges]
        nodes = [self._along(count, item) for count, item in self._node_items()]
        return max([*relations, least_memory([*nodes, *(self._rows() if features else ())])])

    def _node_items(self) -> Iterator[tuple[int, int]]:
        """Yield number and bytes of the values in the arrays along nodes."""
        for node in self.shape.nodes.values():
            yield node.num_nodes, 8
            for key, nbytes in node.arrays.items():
                if node.num_nodes and not key.startswith("split-"):
                    yield node.num_nodes, nbytes // node.num_nodes

    def _along(self, count: int, item_bytes: int) -> tuple[Places, ReadPlan]:
        return Places.row_by_row(count, item_bytes), plan_nodes(count, item_bytes)

    def _rows(self) -> list[tuple[Places, ReadPlan]]:
        """Return what becomes of the feature tables."""
        tables = (table for table in self.shape.tables.values() if table.bytes)
        return [
            (Places.row_by_row(table.rows, table.row_bytes, number), plan_reading(table, False))
            for number, table in enumerate(tables)
        ]

    def require_memory(self, features: bool) -> None:
        """Raise `BudgetError` unless the memory suffices for every step of a reorder."""
        budget = self.budget.expecting(self.least_memory(features))
        for name, node in self.shape.nodes.items():
            mask_bytes = node.num_nodes if name in self.pinned else 0
            nodes_per_run(name, node.num_nodes, self.threads, budget.without(mask_bytes))
        budget.require(budget.expected, "nodes, edges and rows, in pieces of 64 MiB,")

    def _edges(self, relation: Relation) -> EdgeShape:
        return next(edges for edges in self.shape.edges if edges.relation == relation)

    def _sizes(self, edges: EdgeShape) -> RelabelSizes:
        source, destination = (self.shape.num_nodes(edges.relation[end]) for end in (0, 2))
        return RelabelSizes(edges.num_edges, source, destination, tuple(edges.values.values()))

    def estimates(self, step: ReorderStep) -> Iterator[StepEstimate]:
        """Yield an estimate for each part of a step that runs in this process, or one for the tasks of the step."""
        if step.carrier is not None:
            parts = step.parts(step.nbytes)
            yield replace(self._whole(step), how=f"{parts} tasks", memory=-(-step.nbytes // parts), in_store=True)
        elif step.kind == "order":
            yield from self._order(step.key)
        elif step.kind == "relation":
            yield from self._relation(self._edges(step.key))
        elif step.kind == "nodes":
            yield from self._node_arrays(step.key)
        else:
            yield from self._features()

    def _whole(self, step: ReorderStep) -> StepEstimate:
        """Return the bytes that the tasks of a step read, write and shuffle."""
        shape = self.shape
        if step.kind == "order":
            count = shape.num_nodes(step.key)
            read, written = round(8 * count * self.uncached), 2 * self._map_bytes(step.key) + 8 * count
            shuffled = 4 * self._map_bytes(step.key) + 16 * count  # cut: id, score; merged: these, and id, rank
            name, unit = f"order of {step.key}", "node"
        elif step.kind == "relation":
            edges = self._edges(step.key)
            written = shape.edge_bytes(edges)
            read = round(written * edges.uncached)
            nodes, parts = shape.num_nodes(step.key[2]), step.parts(shape.num_nodes(step.key[2]) * COLUMN_BYTES)
            shuffled = written + self._map_bytes(step.key[2]) + 16 * parts * min(nodes, MAX_RUNS)
            name, count, unit = relation_key(step.key), edges.num_edges, "edge"
        else:
            read = written = sum(table.bytes for table in shape.tables.values())
            shuffled = written + sum(table.rows * id_bytes(table.rows) for table in shape.tables.values())
            name, count, unit = "features", sum(table.rows for table in shape.tables.values()), "row"
        return StepEstimate(
            name, "", disk_read=read, disk_written=written, disk_scratch=shuffled, amount=count, unit=unit
        )

    def _map_bytes(self, node_type: str) -> int:
        return self.shape.num_nodes(node_type) * id_bytes(self.shape.num_nodes(node_type))

    def _inverse(self, node_type: str) -> int:
        """Return the bytes of the inverse order, if it stays in memory after it was made."""
        return inverse_kept(len(self.shape.nodes), self._map_bytes(node_type), self.budget)

    def _arrays(self, nbytes: int) -> NodeArrays:
        return NodeArrays(self.budget.without(nbytes), SIZES, self.threads)

    def _order(self, node_type: str) -> Iterator[StepEstimate]:
        """Yield the nodes by score, the order with its inverse, and the score by rank."""
        count, one = self.shape.num_nodes(node_type), self._map_bytes(node_type)
        mask_bytes = count if node_type in self.pinned else 0
        memory, passes, how = mask_bytes + sort_bytes(count, self.threads), 2, "in memory"
        if (together := nodes_per_run(node_type, count, self.threads, self.budget.without(mask_bytes))) < count:
            pieces = -(-count // together)
            memory, passes, how = self.budget.left(), 2 + pieces, f"{pieces} pieces"
        read = round(passes * 8 * count * self.uncached)
        yield StepEstimate(f"rank {node_type}", how, memory=memory, disk_read=read, amount=count, unit="node")
        held = one if not mask_bytes and together >= count else 0  # the order in memory, not read back
        arrays, how = self._arrays(held), "in memory"
        memory, passes, scratch = held + one + min(SIZES.node_piece, 4 * one), 1, 0
        if not arrays.fits(one):
            (cost,) = arrays.plan(count, id_bytes(count)).costs
            how, memory, passes, scratch = cost.how, held + cost.memory, cost.passes, cost.scratch
        yield StepEstimate(
            f"order of {node_type}", how, memory=memory, disk_read=0 if held else one * passes, disk_written=2 * one,
            disk_scratch=scratch, amount=count, unit="node",
        )  # fmt: skip
        yield self._array(f"score of {node_type}", node_type, 8 * count, self._inverse(node_type), self.uncached)

    def _node_arrays(self, node_type: str) -> Iterator[StepEstimate]:
        """Yield the arrays that run along the nodes, and splits."""
        for key, nbytes in sorted(self.shape.nodes[node_type].arrays.items()):
            name, how = f"{node_type} {key}", "some at a time"
            if key.startswith("split-"):
                yield StepEstimate(name, how, memory=20 << 20, disk_written=nbytes, amount=nbytes // 8, unit="node")
            else:
                yield self._array(name, node_type, nbytes, 0, 0.0)

    def _array(self, name: str, node_type: str, nbytes: int, inverse: int, uncached: float) -> StepEstimate:
        """Return the step of an array along the nodes of a type; `inverse` bytes of ranks are in memory."""
        count = self.shape.num_nodes(node_type)
        (cost,) = self._arrays(inverse).plan(count, nbytes // max(1, count)).costs
        read = round(nbytes * uncached) + (0 if inverse else self._map_bytes(node_type))
        return StepEstimate(
            name, cost.how, amount=cost.passes * count, unit="row", memory=inverse + cost.memory,
            disk_read=cost.passes * read, disk_written=nbytes, disk_scratch=cost.scratch,
        )  # fmt: skip

    def _relation(self, edges: EdgeShape) -> Iterator[StepEstimate]:
        """Yield offsets, then each file that runs along the entries by windows."""
        sizes, name = self._sizes(edges), relation_key(edges.relation)
        sizes.require(name, self.budget)
        _, offsets, _ = sizes.parts()
        inverse = self._inverse(edges.relation[2])
        read = round(offsets * edges.uncached) + (0 if inverse else self._map_bytes(edges.relation[2]))
        yield StepEstimate(
            f"{name} indptr", "in memory", memory=inverse + offsets, disk_read=read,
            disk_written=offsets, amount=sizes.num_dst, unit="node",
        )  # fmt: skip
        yield self._entries(f"{name} indices", sizes, sizes.id_bytes, inverse, edges.uncached, indices=True)
        for key, item in sorted(edges.values.items()):
            yield self._entries(f"{name} {key}", sizes, item, inverse, edges.uncached, indices=False)

    def _entries(
        self, name: str, sizes: RelabelSizes, item: int, inverse: int, uncached: float, *, indices: bool
    ) -> StepEstimate:
        """Return the step of a file along the entries, made in windows; columns count as equally long."""
        written, (sources, offsets, _) = sizes.num_edges * item, sizes.parts()
        window = sizes.window(self.budget, inverse, item, indices=indices)
        count = -(-written // max(1, window))
        maps = max(inverse, sizes.sources_kept(self.budget) if indices else 0)
        again = max(0, sources - inverse) if indices else 0
        return StepEstimate(
            name, _in_words(count), memory=maps + offsets + window + (PIECES * sizes.piece if uncached else 0),
            disk_read=round(count * written * uncached) + again, disk_written=written,
            amount=count * sizes.num_edges, unit="edge",
        )  # fmt: skip

    def _features(self) -> Iterator[StepEstimate]:
        """Yield the feature tables in rank order."""
        tables = {name: table for name, table in self.shape.tables.items() if table.bytes}
        costs = plan_moves(self._rows(), self.budget, "rows, in pieces,").costs
        for (name, table), cost in zip(tables.items(), costs, strict=True):
            yield StepEstimate(
                f"features of {name}", cost.how, memory=cost.memory, disk_read=disk_read(table, cost),
                disk_written=table.bytes, disk_scratch=cost.scratch, amount=table.rows, unit="row",
            )  # fmt: skip
