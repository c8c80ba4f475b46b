"""Factors of nodes by their degrees in the whole graph, which no block has: of its sources it has no in-lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.formats.graph import Graph, checked_lists, graph_errors
from tiering.memory import Budget

EDGES = 1 << 20  # that are looked at together


def list_ranges(indptr: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield ranges of lists that have about `EDGES` edges together, at least one list each."""
    begin = 0
    while begin < indptr.size - 1:
        end = max(begin + 1, int(np.searchsorted(indptr, indptr[begin] + EDGES, "right")) - 1)
        yield begin, end
        begin = end


class Degrees(NamedTuple):
    """A rule to count degrees, and the power that makes factors of them."""

    ends: str
    """``in``: sums over in-lists, as PyG's ``gcn_norm`` makes them; ``out``: edges from a node, at least 1, as DGL."""
    power: float
    weighted: bool = False
    """Whether edges count as much as their edge data ``weight`` says, else 1."""
    loop: float | None = None
    """``in``: weight of the self loop that a node without one gets; ``None``: none is added."""

    def factors(self, graph: Graph, budget: Budget) -> npt.NDArray[Any]:
        """Return the factor of each node of a graph of one relation: one pass over its edges."""
        relation = graph.relation()
        (indptr, indices), count = checked_lists(graph, relation), graph.num_nodes(relation[0])
        budget.require(12 * count, f"degrees of {count} nodes")
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.ends == "out":
                with graph_errors(graph, relation):
                    counts = native.out_degrees(indices, count).astype(np.float32)
                out: npt.NDArray[np.float32] = np.power(np.maximum(counts, 1), np.float32(self.power))
                return out
            weights = graph.edge_data(relation)["weight"] if self.weighted else None
            found = np.zeros(count, np.float32)
            for begin, end in list_ranges(indptr):
                edges = slice(int(indptr[begin]), int(indptr[end]))
                found[begin:end] = self._sums(
                    np.repeat(np.arange(end - begin), np.diff(indptr[begin : end + 1])), indices[edges] - begin,
                    np.ones(edges.stop - edges.start) if weights is None else weights[edges], end - begin,
                )  # fmt: skip
            np.power(found, self.power, out=found)
        found[np.isposinf(found)] = 0
        return found

    def _sums(
        self, dst: npt.NDArray[np.int64], src: npt.NDArray[np.int64], weights: npt.NDArray[Any], count: int
    ) -> npt.NDArray[Any]:
        """Return the sum over each in-list; where loops are added, a node's last self loop counts as its only one."""
        if self.loop is None:
            return np.bincount(dst, weights, count)
        own, loops = src == dst, np.full(count, self.loop)
        loops[dst[own]] = weights[own]
        sums: npt.NDArray[Any] = np.bincount(dst[~own], weights[~own], count) + loops
        return sums
