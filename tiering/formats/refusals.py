"""What the core refuses of a graph, said with the names of the graph."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tiering.errors import FormatError, RefusedError
from tiering.formats.graph import Graph
from tiering.formats.manifest import Relation, relation_key


@contextmanager
def graph_errors(graph: Graph, relation: Relation | None = None) -> Iterator[None]:
    """Say of which graph and relation the core refuses the adjacency.

    Parameters
    ----------
    relation
        The one that is read; ``None`` if all are, in the order of `Graph.relations`.

    Raises
    ------
    FormatError
        Instead of `RefusedError`.
    """
    try:
        yield
    except RefusedError as error:
        text = named(str(error), graph.relations)
        place = "" if relation is None else f"relation {relation_key(relation)}: "
        raise FormatError(f"{graph.path}: {place}{text}; {damaged(graph.path)}") from error


def named(text: str, relations: Sequence[Relation]) -> str:
    """The core's message with names of relations instead of their numbers."""
    return re.sub(r"\brelation (\d+)", lambda m: f"relation {relation_key(relations[int(m[1])])}", text)


def damaged(path: object) -> str:
    """What to do about a graph whose adjacency is refused."""
    return f"the graph is damaged: run `tiering check {path} --full`"
