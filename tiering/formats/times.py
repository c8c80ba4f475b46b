"""Times of a graph: when each edge, or each node, came to be. See ``data_specs/graph.md``."""

from __future__ import annotations

from typing import NamedTuple

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.manifest import Manifest
from tiering.errors import MissingError

REQUIRES = "time"  # feature of the format that a reader of a graph with times must know


class GraphTime(NamedTuple):
    """The times of a graph: one name, kind, dtype and unit in all of its relations and node types."""

    name: str  # name of the arrays
    along: str  # what has a time of its own: ``edges`` or ``nodes``
    dtype: str  # ``int64`` or ``float64``
    unit: str | None = None  # unit of dates, counted from 1970, as numpy spells it: ``s``, ``us``...

    @classmethod
    def of(cls, manifest: Manifest) -> GraphTime | None:
        """Return the times of the graph with this manifest; ``None`` if it was imported without."""
        return cls(**manifest.body["time"]) if "time" in manifest.body else None


def require_time(graph: Artifact, name: str) -> GraphTime:
    """Return the times of a graph, which are to be of that name; `MissingError` says which there are."""
    found = GraphTime.of(graph.manifest)
    if found is None:
        raise MissingError(f"{graph.path}: expected times {name}, found a graph without; import it with --time {name}")
    if found.name != name:
        raise MissingError(f"{graph.path}: expected times {name}, found {found.name} of {found.along}; name those")
    return found
