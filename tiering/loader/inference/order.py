"""The order in which inference takes nodes and keeps tables: by rank, the dataset's, reverse Cuthill-McKee, any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.checksum import digest_bytes
from tiering.artifacts.manifest import id_bytes
from tiering.artifacts.storage import AnyArray
from tiering.errors import InputError, quoted
from tiering.formats.arrow import as_array
from tiering.formats.graph import Graph, checked_lists
from tiering.memory import Budget
from tiering.sampling.plan import id_array
from tiering.text.units import format_count

ORDERS = ("rank", "original", "rcm")
_LIBRARY = 32 << 20  # bytes that scipy's sparse graphs take once they are loaded
_RCM_BYTES = 48, 32  # memory of reverse Cuthill-McKee by node and edge, as measured


@dataclass(frozen=True)
class NodeOrder:
    """Positions of nodes by type; without maps the position of a node is its rank."""

    name: str
    """One of `ORDERS`, or the digest of an order that the user gave."""
    ranks: Mapping[str, AnyArray] = field(default_factory=dict)
    """Rank of the node at each position."""
    positions: Mapping[str, AnyArray] = field(default_factory=dict)
    """Position of each rank."""

    @classmethod
    def make(cls, graph: Graph, order: Any, budget: Budget) -> NodeOrder:
        """Return the order that a name of `ORDERS`, or arrays of original ids, stand for.

        `InputError`: no such name, or not each node once. `BudgetError`: no memory for reverse Cuthill-McKee.
        """
        if isinstance(order, str):
            if order == "rank":
                return cls(order)
            if order == "original":
                types = graph.node_types
                return cls(order, {t: graph.old_to_new(t) for t in types}, {t: graph.new_to_old(t) for t in types})
            if order != "rcm":
                names = ", ".join(("auto", *ORDERS))
                raise InputError(f"order: expected {names} or ids of all nodes, found {quoted(order)}")
            name, ranks = order, _cuthill_mckee(graph, budget)
        else:
            ranks = _read_order(graph, order)
            name = digest_bytes(b"".join(ids.tobytes() for ids in ranks.values()))
        positions = {t: np.empty_like(ids) for t, ids in ranks.items()}
        for t, ids in ranks.items():
            positions[t][ids] = np.arange(ids.size, dtype=ids.dtype)
        return cls(name, ranks, positions)

    def ranks_of(self, node_type: str, positions: AnyArray) -> AnyArray:
        """Return the ranks of the nodes at positions."""
        return self.ranks[node_type][positions] if self.ranks else positions

    def positions_of(self, node_type: str, ranks: AnyArray) -> AnyArray:
        """Return the positions of nodes by rank."""
        return self.positions[node_type][ranks] if self.ranks else ranks


def _read_order(graph: Graph, order: Any) -> dict[str, AnyArray]:
    """Return the ranks of the nodes that a user's order names by original ids."""
    types = graph.node_types
    if not isinstance(order, Mapping):
        if len(types) > 1:
            raise InputError(f"order: give a mapping with ids for each node type: {', '.join(types)}; found one array")
        order = {types[0]: order}
    if set(order) != set(types):
        raise InputError(f"order: expected ids for each node type: {', '.join(types)}; found {', '.join(order)}")
    ranks = {}
    for t in types:
        count = graph.num_nodes(t)
        ids = id_array(as_array(order[t], "order"), "order", count, f"original ids of {t!r}")
        found = np.zeros(count, bool)
        found[ids] = True
        if ids.size != count or not found.all():
            lost = "none is missing" if found.all() else f"node {int(found.argmin())} is missing"
            raise InputError(
                f"order: expected each of the {count} nodes of type {t!r} once, found {ids.size} ids, and {lost}; "
                "give the dataset's ids of all nodes of this graph in the order for inference"
            )
        ranks[t] = graph.old_to_new(t)[ids]
    return ranks


def rcm_bytes(graph: Graph) -> int:
    """Return the memory that reverse Cuthill-McKee of a graph takes."""
    return _RCM_BYTES[0] * graph.num_nodes() + _RCM_BYTES[1] * graph.num_edges()


def kept_bytes(graph: Graph) -> int:
    """Return the memory that stays in use after reverse Cuthill-McKee: the library, and maps of the nodes."""
    return _LIBRARY + 16 * graph.num_nodes()


def _cuthill_mckee(graph: Graph, budget: Budget) -> dict[str, AnyArray]:
    """Return the ranks of all nodes by reverse Cuthill-McKee over the edges of all relations in both directions."""
    from scipy.sparse import block_array, csr_array, csr_matrix
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    types, counts = graph.node_types, [graph.num_nodes(t) for t in graph.node_types]
    what = f"reverse Cuthill-McKee of {format_count(sum(counts))} nodes and {format_count(graph.num_edges())} edges"
    budget.require(rcm_bytes(graph), f"{what} (order='rcm'; another order needs less)")
    lists = [[csr_array((rows, columns), dtype=np.int8) for columns in counts] for rows in counts]
    for relation in graph.relations:
        (indptr, indices), at = checked_lists(graph, relation), (types.index(relation[2]), types.index(relation[0]))
        ones, shape = np.ones(indices.size, np.int8), (counts[at[0]], counts[at[1]])
        lists[at[0]][at[1]] += csr_array((ones, indices, indptr.astype(indices.dtype)), shape=shape)
    whole = lists[0][0] if len(types) == 1 else block_array(lists, format="csr")
    del lists
    order: npt.NDArray[Any] = reverse_cuthill_mckee(csr_matrix(whole + whole.T), symmetric_mode=True)
    ends = np.cumsum([0, *counts])
    return {
        t: (order[(order >= begin) & (order < end)] - begin).astype(f"i{id_bytes(int(end - begin))}")
        for t, begin, end in zip(types, ends[:-1], ends[1:], strict=True)
    }
