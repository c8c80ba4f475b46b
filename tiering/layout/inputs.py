"""Input of a layout: rows to place and how hot they are, and adjacency lists that a GPU may hold in their place.

All that planning asks of the graph and of its scores is read here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tiering.artifacts.manifest import Relation, relation_key
from tiering.errors import InputError
from tiering.formats.adjacency_prefix import ListBytes
from tiering.formats.encoded_rows import EncodedTable, encoded_table
from tiering.formats.feature_rows import checked_tables
from tiering.formats.features import FeatureTable
from tiering.formats.graph import Graph, checked_lists, take_by_rank
from tiering.formats.order import Order
from tiering.formats.reach import note_unread_rows
from tiering.formats.scores import Scores
from tiering.formats.shape import GraphShape, SizedGraph
from tiering.formats.tier_rows import TierRows
from tiering.layout.cost_model import AdjacencyLists, EdgeScores, Floats, read_range
from tiering.layout.options import LayoutOptions
from tiering.layout.tiers import RankedTable
from tiering.sampling import list_read_entries, list_read_places, resolve_fanouts

COMPARED = 1000  # ranks of each type whose scores are compared with those of the order
USUAL_FANOUT = 10  # neighbors that a read of a list draws where no scores are given: the loader's default


@dataclass(frozen=True)
class LayoutInput:
    """Tables of the node types with features, then of the relations (by key) with edge features, by rank.

    `place` is the graph, for messages. Without `order`, of a graph that does not exist yet, all scores count as equal.
    `lists` are given where GPUs are to cache them.
    """

    place: Path
    order: Order | None
    tables: Mapping[str, FeatureTable | EncodedTable]
    rows: Sequence[RankedTable]
    lists: Sequence[AdjacencyLists] = ()
    notes: tuple[str, ...] = ()  # notes for the user

    @classmethod
    def of(cls, graph: Graph, options: LayoutOptions, scores: Scores | None) -> LayoutInput:
        """Return the input of a reordered graph, and of the scores that it was ordered by; other graphs are refused.

        Cost: dtype ``auto`` reads float32 rows up to the first number that float16 cannot hold.
        """
        order, found = require_order(graph), checked_tables(graph)
        edges = edge_feature_tables(graph) if options.edge_features == "auto" else {}
        coded = _code_tables(graph.path, {**found, **edges}, options, look=True)
        tables, of_edges = ({name: coded[name] for name in part} for part in (found, edges))
        if scores is not None:
            if options.cache is None and not of_edges:
                raise InputError(
                    "scores: have an effect only with --adjacency-cache or edge features; give --adjacency-cache "
                    "auto too, or omit scores"
                )
            check_ordered_by(graph, order, scores)
        elif options.cache is not None:
            raise InputError(
                f"adjacency cache: {options.cache.text} needs the scores that the graph was ordered by, to predict "
                "reads of adjacency lists; give them with --scores S"
            )
        rows = [RankedTable(t, rows.rows, rows.row_bytes, order.score(t), order.first(t)) for t, rows in tables.items()]
        lists = [] if options.cache is None or scores is None else adjacency_lists(graph, scores)
        placed = edge_tables_to_place(graph, order, of_edges, scores)
        return cls(graph.path, order, {**tables, **of_edges}, rows + placed, lists, _unread(graph))

    @classmethod
    def expected(cls, shape: GraphShape, options: LayoutOptions) -> LayoutInput:
        """Return the input of a graph that does not exist yet."""
        found = shape.tables | (dict(sorted(shape.edge_tables.items())) if options.edge_features == "auto" else {})
        tables = _code_tables(shape.path, found, options, look=False)
        rows = [RankedTable(name, t.rows, t.row_bytes, np.broadcast_to(0.0, t.rows)) for name, t in tables.items()]
        return cls(shape.path, None, tables, rows, notes=_unread(shape))

    @property
    def bytes(self) -> int:
        """Bytes of all rows."""
        return sum(table.rows * table.row_bytes for table in self.rows)


def _unread(graph: SizedGraph) -> tuple[str, ...]:
    return tuple(note_unread_rows(graph, [name for name in graph.node_types if "train" in graph.splits(name)]))


def _code_tables(
    place: Path, tables: Mapping[str, FeatureTable], options: LayoutOptions, *, look: bool
) -> dict[str, FeatureTable | EncodedTable]:
    """Return tables as the option `dtype` wants them stored; refuse names of tables that there are not."""
    if unknown := options.dtypes.keys() - tables.keys() - {""}:
        known = ", ".join(tables) or "none"
        raise InputError(f"dtype: {place} has no features of {min(unknown)!r}; tables with features: {known}")
    return {
        name: encoded_table(table, options.dtype_of(name), f"{table.path}: {name}", look=look)
        for name, table in tables.items()
    }


def require_order(graph: Graph) -> Order:
    """Return the order of a reordered graph; refuse other graphs."""
    if graph.order is None:
        raise InputError(
            f"{graph.path}: expected a reordered graph; run `tiering reorder {graph.path} --scores S --out R` first"
        )
    return graph.order


def check_ordered_by(graph: Graph, order: Order, scores: Scores) -> None:
    """Refuse scores other than those that gave a graph its order, by the first `COMPARED` ranks of each type."""
    remedy = "give the scores that were given to `tiering reorder`"
    if scores.graph_digest != order.manifest.body["graph_digest"]:
        raise InputError(f"{scores.path}: its graph is not the one that {graph.path} was made from; {remedy}")
    for node_type in order.node_types:
        ranked = order.score(node_type)[:COMPARED]
        own = take_by_rank(scores.values(node_type), graph, node_type, 0, COMPARED)
        if (wrong := np.flatnonzero(ranked != own)).size:
            rank = int(wrong[0])
            raise InputError(
                f"{graph.path}: ordered by other scores than {scores.path}: {node_type} of rank {rank} has "
                f"{float(ranked[rank])!r} in the order and {float(own[rank])!r} in the scores; {remedy}"
            )


def adjacency_lists(graph: Graph, scores: Scores) -> list[AdjacencyLists]:
    """Return the lists of every relation, in ranks, with their reads as the scores predict them."""
    lists = []
    for relation in graph.relations:
        sampler, fanouts = list_sampling(graph, relation, scores)
        key, indptr = relation_key(relation), checked_lists(graph, relation)[0]
        size = ListBytes.of_graph(graph, relation, weights=sampler == "weighted")
        reads = partial(take_by_rank, scores.adjacency(relation), graph, relation[2])
        positions = partial(list_read_places, sampler=sampler, fanouts=fanouts)
        lists.append(AdjacencyLists(key, indptr, size, reads, positions))
    return lists


def list_sampling(
    graph: Graph, relation: Relation, scores: Scores, purpose: str = "", remedy: str = ""
) -> tuple[str, list[int]]:
    """Return the sampler and the fanouts of a relation, by hop, that scores predict; the error names a `purpose`."""
    sampling = scores.manifest.provenance.get("options", {}).get("sampling", {})
    if not (scores.relations and "fanouts" in sampling and "sampler" in sampling):
        raise InputError(
            f"{scores.path}: {scores.method} does not predict reads of adjacency lists{purpose}; {remedy}score with "
            "fanouts, as by `tiering score G --method hybrid --fanouts 10,10 --out S`, and reorder by these scores"
        )
    hops, number = resolve_fanouts(graph.relations, sampling["fanouts"]), graph.relations.index(relation)
    return sampling["sampler"], [hop[number] for hop in hops]


def edge_feature_tables(graph: Graph) -> dict[str, FeatureTable]:
    """Return the edge features of each relation that has some, by its key."""
    tables = {relation_key(relation): graph.edge_feature_table(relation) for relation in graph.relations}
    return {key: table for key, table in sorted(tables.items()) if table is not None}


def edge_tables_to_place(
    graph: Graph, order: Order, tables: Mapping[str, FeatureTable | EncodedTable | TierRows], scores: Scores | None
) -> list[RankedTable]:
    """Return the tables of `edge_feature_tables` with scores.

    With `scores` a list is read as often as they predict, by their sampler and fanouts; without, as often as the
    feature row of its node by the scores of the order, `USUAL_FANOUT` neighbors at a time.
    """
    purpose, remedy = ", which place edge features", "omit --scores, or "
    placed = []
    for key, table in tables.items():
        relation, sampler, fanouts = graph.relation(key), "uniform", [USUAL_FANOUT]
        if scores is None:
            ranked = order.score(relation[2])
            reads: Callable[[int, int], Floats] = partial(read_range, ranked)
        else:
            sampler, fanouts = list_sampling(graph, relation, scores, purpose, remedy)
            reads = partial(take_by_rank, scores.adjacency(relation), graph, relation[2])
        entries = partial(list_read_entries, sampler=sampler, fanouts=fanouts)
        own = EdgeScores.of(checked_lists(graph, relation)[0], reads, entries)
        placed.append(RankedTable(key, table.rows, table.row_bytes, own))
    return placed
