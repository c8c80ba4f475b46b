"""Checks that the tables of a layout agree with the graph whose rows they place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiering.artifacts.manifest import relation_key
from tiering.artifacts.problems import Problem
from tiering.formats.graph import Graph
from tiering.formats.manifest_checks import mismatch

if TYPE_CHECKING:
    from tiering.formats.layout import TypeLayout


def source_problems(where: str, entry: TypeLayout, graph: Graph) -> list[Problem]:
    """Return disagreements of a table, `where` in the body, with the graph's manifest."""
    if entry.of_edges:
        return _edge_problems(where, entry, graph)
    if entry.node_type not in graph.node_types:
        message = f"the graph has no such type, only {', '.join(graph.node_types)}"
        return [Problem(f"manifest.json: {where}", message, "value")]
    expected, table = {"num_nodes": graph.num_nodes(entry.node_type)}, graph.listed_table(entry.node_type)
    if table is not None:
        expected |= {"dim": table["dim"], "dtype": table["dtype"]}
    return [
        mismatch(f"{where}.{name}", f"{value} as the graph has it", getattr(entry, name))
        for name, value in expected.items()
        if getattr(entry, name) != value
    ]


def _edge_problems(where: str, entry: TypeLayout, graph: Graph) -> list[Problem]:
    relation = next((known for known in graph.relations if relation_key(known) == entry.node_type), None)
    if relation is None:
        message = f"the graph has no such relation, only {', '.join(map(relation_key, graph.relations))}"
        return [Problem(f"manifest.json: {where}", message, "value")]
    shape = graph.edge_feature_shape(relation)
    if shape is None:
        return [Problem(f"manifest.json: {where}", "these edges have no features in the graph", "value")]
    expected, actual = (graph.num_edges(relation), *shape), (entry.num_nodes, entry.dim, entry.dtype)
    text = "{} edges, {} x {}"
    return [] if actual == expected else [mismatch(where, text.format(*expected), text.format(*actual))]
