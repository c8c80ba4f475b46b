"""Blocks of inference: runs of destinations, cut by their edges, as targets of a loader; what a layer gets."""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.manifest import Relation
from tiering.formats.features import EDGE_FEATURES
from tiering.formats.graph import Graph, checked_lists
from tiering.loader.batches.batch import Batch, Block
from tiering.loader.inference.degrees import list_ranges
from tiering.text.units import format_count

if TYPE_CHECKING:
    import torch

Ids = npt.NDArray[np.int64]
LEAST_NODES = 16  # that a function gets: matrix products of fewer than 12 rows are rounded by the number of threads


@dataclass(frozen=True)
class NodeRuns:
    """Destinations of one type, all or `ids`, in blocks ``[bounds[b], bounds[b + 1])``."""

    node_type: str
    ids: Ids | None
    bounds: Ids
    edges: Ids  # of each block

    def __len__(self) -> int:
        return int(self.bounds[-1] - self.bounds[0])

    @property
    def largest(self) -> int:
        """The block with the most rows, about; that there is one tells a loader that in-lists are read in order."""
        return int((self.edges + np.diff(self.bounds)).argmax())

    def nodes(self, begin: int, end: int) -> Ids:
        """Return the ids of destinations by their numbers."""
        return np.arange(begin, end) if self.ids is None else np.asarray(self.ids[begin:end], np.int64)

    def block_of(self, number: int) -> int:
        """Return the block that a destination is in."""
        return int(np.searchsorted(self.bounds, number, "right")) - 1

    def since(self, block: int, end: int | None = None) -> NodeRuns:
        """Return the blocks from a number on, perhaps to another."""
        stop = len(self.edges) if end is None else end
        return NodeRuns(self.node_type, self.ids, self.bounds[block : stop + 1], self.edges[block:stop])

    def plan(self, epoch: int, places: Ids | None = None) -> RunPlan:
        """Return the blocks as batches of an epoch."""
        return RunPlan(self, epoch)

    def __repr__(self) -> str:
        return f"{self.node_type!r}: {format_count(len(self))} nodes in {format_count(len(self.edges))} blocks"


@dataclass(frozen=True)
class RunPlan:
    """The batches of an epoch over `NodeRuns`, as `tiering.sampling.EpochPlan`, without an array of all nodes."""

    runs: NodeRuns
    epoch: int

    def __len__(self) -> int:
        return len(self.runs.edges)

    def __getitem__(self, batch: int) -> dict[str, Ids]:
        runs = self.runs
        return {runs.node_type: runs.nodes(*map(int, runs.bounds[batch : batch + 2]))}

    def seeds_of(self, batch: int) -> tuple[dict[str, Ids], None]:
        """Return the destinations of a batch, which have no times."""
        return self[batch], None

    def places_of(self, batch: int) -> dict[str, Ids]:
        """Return the numbers of a batch's destinations."""
        return {self.runs.node_type: np.arange(*self.runs.bounds[batch : batch + 2])}


def cut_runs(
    graph: Graph, node_type: str, ids: Ids | None, edges: int, positions: npt.NDArray[Any] | None = None
) -> NodeRuns:
    """Cut destinations into blocks of about `edges` in-edges and destinations together, by graph and nodes alone.

    With `positions` of all nodes in an order, destinations are positions, `ids` too. A block has more only where it has
    one destination; so much bounds its messages, and the rows of its sources. Cost: some reads of the offsets for each
    block; with `ids` one pass over theirs, with `positions` 8 bytes of memory for each node.
    """
    offsets = [checked_lists(graph, relation)[0] for relation in graph.relations if relation[2] == node_type]
    if positions is not None:
        offsets = [native.relabel_indptr(indptr, positions) for indptr in offsets]
    count = graph.num_nodes(node_type) if ids is None else ids.size
    if ids is not None:
        degrees = sum((indptr[ids + 1] - indptr[ids] for indptr in offsets), np.zeros_like(ids))
        offsets = [np.concatenate([[0], np.cumsum(degrees)])]

    def before(i: int) -> int:
        return sum(int(indptr[i]) for indptr in offsets)

    bounds = [0]
    while bounds[-1] < count:
        begin = bounds[-1]
        most = range(begin + 1, min(begin + edges, count) + 1)
        past = bisect_right(most, before(begin) + begin + edges, key=lambda i: before(i) + i)
        bounds.append(most[max(0, past - 1)])
    ends = np.array(bounds, np.int64)
    return NodeRuns(node_type, ids, ends, np.diff([before(i) for i in bounds]).astype(np.int64))


@dataclass(frozen=True)
class GraphValues:
    """Edge data and factors of nodes, which functions may read in addition to edges."""

    edge_data: Mapping[Relation, Mapping[str, npt.NDArray[Any]]] = field(default_factory=dict)
    """Along the relation's ``indices``."""
    factors: npt.NDArray[np.float32] | None = None
    """Factors of all nodes by their degrees (`tiering.loader.inference.degrees`)."""


@dataclass(frozen=True)
class InferenceBlock:
    """Destinations of one type, their in-lists, and the sources of these: destinations are the first of their type."""

    node_type: str
    """Type of the destinations."""
    nodes: Mapping[str, torch.Tensor]
    """Ranks of the sources by type, int64; the destinations come first."""
    edges: Mapping[Relation, torch.Tensor]
    """By relation, int64, shape (2, edges): positions of sources above positions of destinations."""
    num_dst: int
    """Destinations: rows of the result."""
    positions: Mapping[Relation, torch.Tensor] = field(default_factory=dict, repr=False)
    """Places of the edges in the relation's ``indices``, where the graph has edge data."""
    values: GraphValues = field(default=GraphValues(), repr=False)
    """Source of `edge_data` and `factors`."""

    @classmethod
    def of(cls, batch: Batch, values: GraphValues) -> InferenceBlock:
        """Return the only block of a batch; one without edges where none were sampled."""
        block: Block = batch.blocks()[0]
        t = batch.seed_type
        return cls(t, batch.nodes, block.edge_index, block.num_dst[t], block.positions, values)

    def edge_data(self, name: str) -> Any:
        """Return the edge data ``name`` of the only relation, else of each that has it; ``None`` if none has.

        Read when requested, from the graph's files; row i belongs to edge i of ``edges``.
        """
        data = self.values.edge_data
        found = {r: self.edge_values(r, name) for r in self.positions if name in data[r]}
        return (next(iter(found.values())) if len(self.edges) == 1 else found) if found else None

    def edge_values(self, relation: Relation, name: str) -> torch.Tensor:
        """Return the edge data ``name`` of a relation that has it."""
        return _rows(self.values.edge_data[relation][name], self.positions[relation])

    @property
    def edge_weight(self) -> Any:
        """Edge data ``weight``, under PyG's name; see `edge_data`."""
        return self.edge_data("weight")

    @property
    def edge_attr(self) -> Any:
        """Features of edges, under PyG's name; see `edge_data`."""
        return self.edge_data(EDGE_FEATURES)

    @property
    def factors(self) -> torch.Tensor:
        """Factors of the sources by their degrees in the whole graph, of the one node type."""
        assert self.values.factors is not None  # asked for by the layer
        return _rows(self.values.factors, self.nodes[self.node_type])

    def padded(self, x: Any) -> tuple[InferenceBlock, Any]:
        """Return the block and its rows with at least `LEAST_NODES` destinations: the last again, with one edge each.

        DGL refuses destinations without.
        """
        import torch

        t, count = self.node_type, self.num_dst
        more = LEAST_NODES - count
        if more <= 0:
            return self, x

        def extend(rows: torch.Tensor) -> torch.Tensor:
            return torch.cat([rows[:count], rows[count - 1 : count].expand(more, *rows.shape[1:]), rows[count:]])

        edges, positions, added = {}, {}, torch.arange(count, LEAST_NODES, device=self.nodes[t].device)
        for r, e in self.edges.items():
            again = torch.tensor([-1] * more if r[2] == t and e.shape[1] else [], dtype=torch.int64, device=e.device)
            src, dst = torch.cat([e[0], e[0, again]]), torch.cat([e[1], added[: len(again)]])
            edges[r] = torch.stack([src + more * (src >= count) if r[0] == t else src, dst])
            if r in self.positions:
                positions[r] = torch.cat([self.positions[r], self.positions[r][again]])
        nodes = {**self.nodes, t: extend(self.nodes[t])}
        block = replace(self, nodes=nodes, edges=edges, num_dst=LEAST_NODES, positions=positions)
        if isinstance(x, dict):
            return block, {**x, t: extend(x[t])} if t in x else x
        return block, extend(x)

    @property
    def num_src(self) -> int | dict[str, int]:
        """Sources; by type where the graph has several."""
        counts = {t: len(ids) for t, ids in self.nodes.items()}
        return counts if len(counts) > 1 else sum(counts.values())

    @property
    def edge_index(self) -> Any:
        """``edges`` of the only relation, else all of them, by relation."""
        return next(iter(self.edges.values())) if len(self.edges) == 1 else self.edges

    def adjacency(self, relation: Relation | None = None) -> torch.Tensor:
        """Return the edges of a relation, by default of the only one, as a CSR matrix of ones, (num_dst, sources).

        ``torch.sparse.mm(block.adjacency(), x, "mean")`` is several times as fast as gathering a message for each edge.
        """
        import torch

        (key,) = self.edges if relation is None else (relation,)
        src, dst = self.edges[key]
        if bool((dst[1:] < dst[:-1]).any()):
            order = torch.argsort(dst, stable=True)
            src, dst = src[order], dst[order]
        ends = torch.searchsorted(dst, torch.arange(self.num_dst + 1, device=dst.device))
        shape, ones = (self.num_dst, len(self.nodes[key[0]])), torch.ones(len(src), device=src.device)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*Sparse (CSR|invariant)")
            return torch.sparse_csr_tensor(ends, src, ones, shape, check_invariants=False)


def _rows(table: npt.NDArray[Any], places: torch.Tensor) -> torch.Tensor:
    """Return rows of a table of the graph on the device of their places; 16 bits without a dtype are bfloat16."""
    import torch

    rows = np.take(table, places.cpu().numpy(), axis=0)
    if rows.dtype == np.uint16:
        return torch.from_numpy(rows.view(np.int16)).view(torch.bfloat16).to(places.device)
    return torch.from_numpy(rows).to(places.device)


def needed_nodes(graph: Graph, nodes: Mapping[str, Ids] | None, layers: Sequence[bool]) -> list[dict[str, Ids | None]]:
    """Return by layer the destinations of each type (``None``: all) for results of `nodes`.

    `layers` says which read neighbors. Cost: one pass over the in-lists of the nodes for each layer; a bit of memory
    for each node, and 8 bytes for each that is needed.
    """
    if nodes is None:
        return [dict.fromkeys(graph.node_types) for _ in layers]
    marks = {t: np.zeros(graph.num_nodes(t), bool) for t in graph.node_types}
    for t, ids in nodes.items():
        marks[t][ids] = True
    needed: list[dict[str, Ids | None]] = []
    for reads_neighbors in reversed(layers):
        wanted = {t: mask.copy() for t, mask in marks.items()}
        needed.insert(0, {t: np.flatnonzero(mask) for t, mask in wanted.items()})
        for relation in graph.relations if reads_neighbors else ():
            (indptr, indices), mask = checked_lists(graph, relation), wanted[relation[2]]
            for begin, end in list_ranges(indptr):
                kept = np.repeat(mask[begin:end], np.diff(indptr[begin : end + 1]))
                marks[relation[0]][indices[indptr[begin] : indptr[end]][kept]] = True
    return needed
