"""What a reorder will take: memory and disk of ranks, maps, relations, node arrays and features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tiering.artifacts.file_writer import appending_memory
from tiering.artifacts.manifest import relation_key
from tiering.artifacts.windows import count_windows
from tiering.formats.shape import EdgeShape, GraphShape
from tiering.memory import Budget
from tiering.plan import StagePlan, Step, held_memory
from tiering.reorder.adjacency import RelabelSizes, require_relabel
from tiering.reorder.rank import plan_ranking
from tiering.reorder.rows import minimum_memory, plan_rows
from tiering.reorder.sizes import SIZES


def plan_reorder(
    shape: GraphShape, out: Path, budget: Budget, threads: int, features: bool = False, uncached: float = 0.0
) -> StagePlan:
    """Plan of a reorder.

    Parameters
    ----------
    features
        The feature tables are written again in rank order.
    uncached
        Share of the scores that the page cache does not hold.

    Raises
    ------
    BudgetError
        Where the reorder would.

    Notes
    -----
    Memory: both maps of a type while they are made; per relation `RelabelSizes.in_memory`, or what the budget leaves;
    for arrays of the nodes a window, and for features that of `tiering.reorder.rows`.
    """
    plan = _Plan(shape, budget, uncached)
    steps = plan_ranking(shape, budget, threads, uncached)
    for name in shape.node_types:
        steps += plan.maps(name)
    for edges in shape.edges:
        steps += plan.relation(edges)
    for name in shape.node_types:
        steps += plan.node_arrays(name)
    left = shape.graph_bytes() + shape.order_bytes()
    if features:
        steps += plan.features()
        left += sum(table.bytes for table in shape.tables.values())
    return StagePlan("reorder", out, tuple(steps), {out: left}, held_memory(), threads=threads)


def expected_memory(shape: GraphShape, features: bool) -> int:
    """Bytes with which relations and rows can be brought into order at all."""
    relations = [_relabel_sizes(edges, shape).minimum() for edges in shape.edges]
    tables = shape.tables.values() if features else ()
    rows = [minimum_memory(table, False) + appending_memory(table.bytes) for table in tables]
    return max([*relations, *rows], default=0)


def _relabel_sizes(edges: EdgeShape, shape: GraphShape) -> RelabelSizes:
    source, _, destination = edges.relation
    items = tuple(edges.values.values())
    return RelabelSizes(edges.num_edges, shape.num_nodes(source), shape.num_nodes(destination), items)


def _windows_in_words(count: int) -> str:
    return "in memory" if count <= 1 else f"{count} windows"


@dataclass(frozen=True)
class _Plan:
    """Steps after the ranking."""

    shape: GraphShape
    budget: Budget
    uncached: float

    def maps(self, node_type: str) -> Iterator[Step]:
        """The order, its inverse, and the score by rank."""
        node = self.shape.nodes[node_type]
        count, one, left = node.num_nodes, node.num_nodes * node.id_bytes, self.budget.left()
        windows = -(-one // max(SIZES.block, left - SIZES.node_piece)) if 2 * one > left else 1
        memory, read = (2 * one, 0) if windows == 1 else (left, one * windows)
        yield Step(f"order of {node_type}", _windows_in_words(windows), memory, read, 2 * one, 0, count, "node")
        yield self._array(f"score of {node_type}", node_type, 8 * count, self.uncached)

    def node_arrays(self, node_type: str) -> Iterator[Step]:
        """Arrays that run along the nodes, and splits."""
        for name, nbytes in sorted(self.shape.nodes[node_type].arrays.items()):
            if name.startswith("split-"):
                yield Step(f"{node_type} {name}", "some at a time", 20 << 20, 0, nbytes, 0, nbytes // 8, "node")
            else:
                yield self._array(f"{node_type} {name}", node_type, nbytes, 0.0)

    def _array(self, name: str, node_type: str, nbytes: int, uncached: float) -> Step:
        """An array that runs along the nodes of a type, brought into rank order."""
        count, kept = self.shape.num_nodes(node_type), self._kept(node_type)
        room = max(SIZES.block, self.budget.left() - kept - SIZES.node_piece)
        windows = -(-nbytes // (room // SIZES.block * SIZES.block))
        ranks = 0 if kept else self.shape.nodes[node_type].id_bytes * count
        read = windows * (round(nbytes * uncached) + ranks)
        memory = kept + min(nbytes, room) + min(SIZES.node_piece, 4 * nbytes)
        return Step(name, _windows_in_words(windows), memory, read, nbytes, 0, windows * count, "row")

    def _kept(self, node_type: str) -> int:
        """Bytes of the inverse order, if it stays in memory after it was made."""
        node = self.shape.nodes[node_type]
        one = node.id_bytes * node.num_nodes
        return one if len(self.shape.nodes) == 1 and 6 * one <= self.budget.left() else 0

    def relation(self, edges: EdgeShape) -> Iterator[Step]:
        """Offsets, then each file that runs along the entries by windows."""
        sizes, destination = _relabel_sizes(edges, self.shape), edges.relation[2]
        name, kept = relation_key(edges.relation), self._kept(destination)
        require_relabel(name, sizes, self.budget)
        sources, offsets, _ = sizes.parts()
        ranks = 0 if kept else self.shape.nodes[destination].id_bytes * sizes.num_dst
        read = round(offsets * edges.uncached) + ranks
        memory = kept + min(offsets, self.budget.left())
        yield Step(f"{name} indptr", "in memory", memory, read, offsets, 0, sizes.num_dst, "node")
        inside = sizes.in_memory() <= self.budget.left()
        held = sources + (offsets if inside else 0)
        again = (0 if kept else sources) + (0 if inside else offsets)
        yield self._entries(f"{name} indices", sizes, sizes.id_bytes, held, again, edges.uncached)
        for key, item in sorted(edges.values.items()):
            yield self._entries(f"{name} {key}", sizes, item, offsets if inside else 0, 0, edges.uncached)

    def _entries(self, name: str, sizes: RelabelSizes, item: int, held: int, again: int, uncached: float) -> Step:
        """A file along the entries; `held` bytes are maps and offsets, of which `again` are read back."""
        written, left = sizes.num_edges * item, self.budget.left()
        columns = 0 if held >= 8 * (sizes.num_dst + 1) else sizes.num_dst
        count = count_windows(sizes.num_edges, columns, item, left - held - sizes.pieces())
        window = min(written, -(-written // max(1, count) // SIZES.block) * SIZES.block)
        memory = held + (sizes.pieces() if uncached else 0) + window + 8 * -(-columns // max(1, count))
        read = round(count * written * max(uncached, 0.0)) + again
        return Step(name, _windows_in_words(count), memory, read, written, 0, count * sizes.num_edges, "edge")

    def features(self) -> Iterator[Step]:
        """Feature tables in rank order, written in pieces in the background."""
        for name, table in self.shape.tables.items():
            pieces = appending_memory(table.bytes)
            rows = plan_rows(table, False, self.budget.without(pieces))
            yield Step(
                f"features of {name}", rows.how, rows.memory + pieces, rows.disk_read(table), table.bytes,
                rows.bytes_scratch, table.rows, "row",
            )  # fmt: skip
