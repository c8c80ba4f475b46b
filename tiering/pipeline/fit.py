"""``layout --fit``: the costs by which a GPU's memory is divided, measured before the division."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tiering.errors import InputError
from tiering.formats.feature_rows import checked_tables
from tiering.formats.graph import Graph
from tiering.formats.scores import Scores
from tiering.memory import parse_memory
from tiering.progress import note

if TYPE_CHECKING:
    from tiering.layout import LayoutOptions
    from tiering.memory import Budget


def fitted(
    options: LayoutOptions, graph: Graph, scores: Scores | None, memory: str | int | Budget | None
) -> LayoutOptions:
    """Options whose costs were measured on a GPU of this machine, if that is what they ask for; else as they are.

    What was found is said on standard error, and recorded.
    """
    if options.fit is None:
        return options
    from tiering.layout.adjacency_cache import adjacency_lists, check_ordered_by
    from tiering.layout.edge_rows import edge_feature_tables
    from tiering.layout.plan import order_of
    from tiering.loader.gpu.fit import fit_access_costs

    if scores is None:
        raise InputError(
            "fit: needs the scores that the graph was ordered by, which say how training samples; give them with "
            "--scores S"
        )
    check_ordered_by(graph, order_of(graph), scores)
    adjacency_lists(graph, scores)  # refuses scores that say nothing about sampling, before anything is measured
    on = graph if options.fit == "auto" else _measured_on(Path(options.fit), graph)
    tables = {**checked_tables(graph), **(edge_feature_tables(graph) if options.edge_features else {})}
    row_bytes = {name: table.row_bytes for name, table in tables.items()}
    sampling = scores.manifest.provenance["options"]["sampling"]
    found = fit_access_costs(on, sampling, row_bytes, parse_memory(memory))
    note(f"note: {found}")
    if found.doubtful:
        note(
            f"note: the times of {' and '.join(found.doubtful)} hardly depend on what is cached: the GPU or its link "
            "was busy with other work, or the graph is too small to tell; measure again, or leave --fit out"
        )
    return options.measured(found.costs)


def _measured_on(path: Path, graph: Graph) -> Graph:
    """Another reordered graph of the same node types and relations."""
    from tiering.layout.plan import order_of

    other = Graph.open(path)
    order_of(other)
    for what, ours, theirs in (
        ("node types", graph.node_types, other.node_types),
        ("relations", graph.relations, other.relations),
    ):
        if list(ours) != list(theirs):
            raise InputError(
                f"fit: {path}: expected a graph with the {what} of {graph.path} ({_listed(ours)}), found "
                f"{_listed(theirs)}; give --fit auto to measure on the graph that is laid out"
            )
    return other


def _listed(names: object) -> str:
    return ", ".join(name if isinstance(name, str) else ":".join(name) for name in names)  # type: ignore[attr-defined]
