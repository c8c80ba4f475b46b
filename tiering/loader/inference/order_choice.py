"""The choice of the order in which layers take nodes: the fewest bytes that are read, and moved for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tiering.errors import BudgetError
from tiering.formats.embeddings import PAGE_BYTES, RowsEntry
from tiering.formats.layout import Layout
from tiering.loader.inference.blocks import NodeRuns
from tiering.loader.inference.order import ORDERS, NodeOrder, kept_bytes
from tiering.loader.inference.ordered import feature_entries, graph_bytes, scratch_bytes
from tiering.loader.inference.page_count import CountedTable, count_reads
from tiering.memory import Budget, available_memory


@dataclass(frozen=True)
class OrderCosts:
    """The bytes that layers read in an order, by counting pages."""

    layout: Layout
    tables: Sequence[Mapping[str, RowsEntry]]
    """Outputs of the layers."""
    neighbors: Sequence[bool]
    """Whether layers read neighbors; the others read their input once."""
    memory: Sequence[int]
    """Bytes for rows by layer."""
    budget: Budget
    """Memory in which rows are moved."""
    spare: int
    """Bytes that no layer needs."""
    cut: Callable[[int, NodeOrder], Mapping[str, NodeRuns]]
    """Returns the blocks of a layer."""

    def cheapest(self) -> NodeOrder:
        """Return the order with the fewest bytes; reverse Cuthill-McKee only if there is memory for it."""
        best, graph = NodeOrder("rank"), self.layout.graph
        most = self._total(best)
        once = sum(sum(t.nbytes for t in self._inputs(k, alike=k > 0).values()) for k in range(len(self.tables)))
        for name in ORDERS[1:] if most > once + self._moved() else ():  # else no order reads less
            if name == "rcm" and self.spare < kept_bytes(graph):
                continue
            with suppress(BudgetError):
                scratch_bytes(graph, self.tables[-1:], self.budget)
                order = NodeOrder.make(graph, name, self.budget)
                if (total := self._total(order)) < most:
                    best, most = order, total
        return best

    def first(self, order: NodeOrder) -> tuple[int, bool]:
        """Return the bytes of the first layer's rows, and whether features are moved into the order before."""
        by_rank = self.count(0, order, alike=False)
        if not order.ranks:
            return by_rank, False
        if graph_bytes(self.layout.graph) > available_memory() // 2:  # in-lists are read one by one, a page each
            by_rank += PAGE_BYTES * sum(map(len, self.cut(0, order).values()))
        features = feature_entries(self.layout)
        try:
            scratch = scratch_bytes(self.layout.graph, [features], self.budget)
        except BudgetError:
            return by_rank, False
        moved = self.count(0, order) + 2 * (RowsEntry.total(features) + scratch)
        return min(by_rank, moved), moved < by_rank

    def count(self, number: int, order: NodeOrder, alike: bool = True) -> int:
        """Return about the bytes of its input that a layer reads; `alike`: rows lie in the order, too, not by rank."""
        tables = self._inputs(number, alike)
        total = sum(table.nbytes for table in tables.values())
        if total <= self.memory[number] or not self.neighbors[number]:
            return total
        return count_reads(self.layout.graph, self.cut(number, order), order, tables, self.memory[number], alike)

    def _total(self, order: NodeOrder) -> int:
        """Return the bytes that all layers read in an order, and those that are read and written to move rows."""
        layers = self.first(order)[0] + sum(self.count(k, order) for k in range(1, len(self.tables)))
        return layers + (self._moved() if order.ranks else 0)

    def _moved(self) -> int:
        """Return the bytes that another order than ranks reads and writes in addition: the graph, the last table."""
        return 2 * (graph_bytes(self.layout.graph) + RowsEntry.total(self.tables[-1]))

    def _inputs(self, number: int, alike: bool) -> dict[str, CountedTable]:
        """Return the rows that a layer reads."""
        if number or alike:
            entries = self.tables[number - 1] if number else feature_entries(self.layout)
            return {t: CountedTable(e.rows, e.row_bytes) for t, e in entries.items() if e.rows}
        features = [self.layout.type_layout(t) for t in self.layout.feature_types]
        return {e.node_type: CountedTable(e.num_nodes, e.row_bytes, e.ranges["ssd"][0]) for e in features}
