"""The record of an import in words: what was read as what, what was not read, what was changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tiering.artifacts.remote_path import as_path

_ENDS = {  # format -> which values are the ends of an edge, where no columns are chosen
    **dict.fromkeys(("mtx", "npz"), "an entry's row is the source, and its column is the destination"),
    **dict.fromkeys(("igb", "npy", "pyg"), "edge_index holds source, destination"),
    "ogb": "edge_index or edge.csv.gz holds source, destination",
    "csc": "indices hold the sources of each node's in-edges",
    "csr": "indices hold the destinations of each node's out-edges",
    "graphbolt": "edges hold source, destination",
}
_STEPS = {
    "add reverse edges": ("added", "reversed edges"),
    "add self loops": ("added", "self loops"),
    "deduplicate": ("removed", "duplicate edges"),
    "remove self loops": ("removed", "self loops"),
}
_ROLES = {"src": "source", "dst": "destination"}
_SHOWN = 8


def describe_import(summary: Mapping[str, Any], inputs: Iterable[str]) -> dict[str, str]:
    """Return an account of an import by topic, from a graph's summary and source files; tables by their own names."""
    changes = summary["changes"]
    if "format" not in changes:
        return {}
    source = as_path(changes["source"])
    inside = [path.relative_to(source) for path in map(as_path, inputs) if path.is_relative_to(source)]
    names = sorted(str(path) for path in inside if path.parts)
    files = f" ({_listed(names)})" if names else ""
    text, tables = changes.get("text", {}), changes.get("tables", [])
    columns = text.get("columns") or changes.get("columns")
    header = {True: "; the first line is a header", False: "; no header"}.get(text.get("header"), "")
    ends = f"{_columns(columns)}{header}" if columns else "" if tables else _ENDS.get(changes["format"], "")
    topics = {"read": f"{changes['format']} {source}{files}", "edges": ends}
    if time := summary.get("time"):
        unit = f", dates in {time['unit']}" if time["unit"] else ""
        topics["times"] = f"{time['name']} of {time['along']} ({time['dtype']}{unit})"
    for table in tables:
        end = "" if table["header"] else "; no header"
        topics[f"table {table['table']}"] = f"{_listed(table['files'])}: {_columns(table['columns'])}{end}"
    for node_type, classes in changes.get("classes", {}).items():
        topics[f"classes of {node_type}"] = _listed(f"{k} {name}" for k, name in enumerate(classes))
    unread = [*text.get("ignored_columns", []), *changes.get("ignored_columns", [])]
    unread += [column for table in tables for column in table["ignored_columns"]]
    unread += changes.get("matrix", {}).get("ignored_columns", [])
    topics["not read"] = "; ".join(
        f"{what} {_listed(str(value) or '(unnamed)' for value in values)}"
        for what, values in (
            ("columns", unread),
            ("files", [Path(file).name for file in changes.get("ignored_files", [])]),
            ("arrays", changes.get("ignored_arrays", [])),
        )
        if values
    )
    topics["guessed"] = _listed(
        f"{what} {guess.get('value', guess) if isinstance(guess, dict) else guess}"
        for what, guess in changes.get("inferred", {}).items()
    )
    topics["changed"] = "; ".join(_changes(changes))
    return {topic: words for topic, words in topics.items() if words}


def column_name(changes: Mapping[str, Any], table: str, column: int, dim: int) -> str:
    """Return the name that the source has for a feature column of a type; its number if there is none."""
    tables = [one["columns"].get("features", []) for one in changes.get("tables", []) if one["table"] == table]
    return str(tables[0][column] if tables and 0 <= column < len(tables[0]) == dim else column)


def _columns(columns: Mapping[str, Any]) -> str:
    roles = sorted(columns, key=lambda role: (list(_ROLES).index(role) if role in _ROLES else len(_ROLES), role))
    named = {role: columns[role] if isinstance(columns[role], list) else [columns[role]] for role in roles}
    return ", ".join(f"{_ROLES.get(role, role)} {_listed(map(str, names))}" for role, names in named.items())


def _changes(changes: Mapping[str, Any]) -> Iterable[str]:
    for step in changes.get("changes", []):
        verb, edges = _STEPS.get(step["step"], (step["step"], "edges"))
        before, after = step["edges_before"], step["edges_after"]
        is_new = edges == "reversed edges" and before == 0
        what = f"added relation {step['relation']}:" if is_new else f"{step['relation']}: {verb}"
        yield f"{what} {abs(after - before):,} {edges}"
    if "names" in changes:
        yield f"{changes['names']['nodes']} names numbered in ascending order"
    if "compact_ids" in changes:
        yield f"{changes['compact_ids']['nodes']} ids renumbered in ascending order"
    if first := changes.get("options", {}).get("first_id"):
        yield f"{first} subtracted from each id"
    if changes.get("matrix", {}).get("symmetry") == "symmetric":
        yield "mirrored edges of a symmetric matrix were added"
    for node_type, made in changes.get("random", {}).items():
        yield f"random {_listed(key for key in made if key != 'seed')} of {node_type}"


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
