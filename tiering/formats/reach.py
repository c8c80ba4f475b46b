"""Feature rows that no batch reads: no path of relations leads from their nodes to the training nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from tiering.artifacts.manifest import Relation, relation_key
from tiering.formats.shape import SizedGraph
from tiering.text.units import format_bytes

Fanouts = Sequence[int | Mapping[str, int]]  # of each hop: one number, or a number for each relation by key


def reached_types(relations: Iterable[Relation], seeds: Collection[str], fanouts: Fanouts | None) -> set[str]:
    """Return the node types of which batches hold nodes: seeds, and sources of edges that lead to them hop by hop."""
    relations, reached, last = list(relations), set(seeds), set(seeds)
    for hop in [-1] * len(relations) if fanouts is None else fanouts:
        drawn = [r for r in relations if (hop if isinstance(hop, int) else hop.get(relation_key(r), 0)) != 0]
        last = {source for source, _, target in drawn if target in last}
        reached |= last
    return reached


def note_unread_rows(graph: SizedGraph, seeds: Collection[str], fanouts: Fanouts | None = None) -> list[str]:
    """Return a note on node types with features that no seed reaches, if there are any; no `fanouts`: by any hops."""
    tables = {name: table for name in graph.node_types if (table := graph.feature_table(name)) is not None}
    if not (unread := sorted(tables.keys() - reached_types(graph.relations, seeds, fanouts))) or not seeds:
        return []
    both = [*graph.relations, *((target, f"rev_{name}", source) for source, name, target in graph.relations)]
    hops = None if fanouts is None else [-1] * len(fanouts)
    helps = reached_types(both, seeds, hops) & set(unread)
    within = "" if fanouts is None else f" within {len(fanouts)} hops"
    text = f"no training node reaches {', '.join(unread)}{within}: no batch reads their feature rows"
    again = "; import the graph with --add-reverse (under [dataset]: reverse_edges = true) to use them" if helps else ""
    return [f"{text}, {format_bytes(sum(tables[name].bytes for name in unread))}{again}"]
