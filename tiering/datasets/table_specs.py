"""Tables of nodes and edges as users describe them: on the command line, in Python, Neo4j's headers, GraphStorm's JSON.

``user:rates:movie=ratings.csv:userId,movieId`` is a table of edges, ``movie=movies.parquet:movieId`` one of nodes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiering.artifacts.manifest import Relation
from tiering.errors import InputError, quoted

EDGE_ROLES = ("src", "dst", "weight", "type", "data")
NODE_ROLES = ("id", "features", "label")
NEO4J_ROLES = {"ID": "id", "START_ID": "src", "END_ID": "dst", "TYPE": "type", "LABEL": "label"}
_NEO4J = re.compile(
    r"(?P<name>[^:]*):(?:(?P<role>ID|START_ID|END_ID|TYPE|LABEL|IGNORE)|[a-z]+(?:\{.*\})?(?:\[\])?)"
    r"(?:\((?P<group>[^){]*)\))?(?:\{.*\})?"
)
_ENDINGS = ("", "id", "key", "index", "idx")


@dataclass(frozen=True)
class TableSpec:
    """A table: the node type or relation that it holds, its files, its columns by role."""

    owner: str | Relation
    files: tuple[str, ...]  # paths, directories or patterns; none: the source itself
    columns: Mapping[str, tuple[str, ...]]

    @property
    def roles(self) -> tuple[str, ...]:
        """Roles that columns of the table may have."""
        return NODE_ROLES if isinstance(self.owner, str) else EDGE_ROLES

    @property
    def described(self) -> str:
        """The node type, or the relation with colons."""
        return self.owner if isinstance(self.owner, str) else ":".join(self.owner)

    @classmethod
    def parse(cls, owner: Any, table: Any, what: str, edges: bool) -> TableSpec:
        """Return the table of one option: `table` is a path, with columns behind a colon, or a mapping by role."""
        parts = tuple(owner.split(":")) if isinstance(owner, str) else tuple(map(str, owner))
        if len(parts) != (3 if edges else 1) or not all(parts):
            form = "SRC:NAME:DST=FILE, such as user:rates:movie=ratings.csv" if edges else "TYPE=FILE"
            raise InputError(f"{what}: expected {form}, found {quoted(str(owner))}")
        spec = cls(parts if edges else parts[0], (), {})  # type: ignore[arg-type]
        columns: dict[str, tuple[str, ...]] = {}
        files: Sequence[Any] = [file for file in _as_list(table) if file]
        if isinstance(table, Mapping):
            columns = {str(role): _as_list(one) for role, one in table.items()}
            files = columns.pop("file", columns.pop("files", ()))
        elif len(files) == 1 and not Path(files[0]).exists():
            path, colon, named = files[0].partition(":")
            roles = spec.roles[: 2 if edges else 1]
            if colon and named.count(",") + 1 != len(roles):
                form = "FILE:SRC,DST" if edges else "FILE:ID"
                raise InputError(f"{what}: {spec.described}: expected {form}, found {quoted(files[0])}")
            files = [path] if path else []
            columns = {role: (name,) for role, name in zip(roles, named.split(","), strict=True)} if colon else {}
        if wrong := sorted(columns.keys() - set(spec.roles)):
            expected = f"expected {', '.join(spec.roles)} or file, found {quoted(wrong[0])}"
            raise InputError(f"{what}: {spec.described}: {expected}")
        return cls(spec.owner, tuple(files), columns)


def parse_tables(value: Any, what: str) -> tuple[TableSpec, ...]:
    """Return the tables of ``--relation`` or ``--nodes``: texts ``OWNER=FILE``, or a mapping from owner to table."""
    if isinstance(value, Mapping):
        pairs: Iterable[tuple[Any, Any]] = value.items()
    else:
        pairs = [str(one).partition("=")[::2] for one in ([value] if isinstance(value, str) else value)]
    return tuple(TableSpec.parse(owner, table, what, what.endswith("relation")) for owner, table in pairs)


def strip_type(column: str) -> str:
    """Return the name of a property in a header of Neo4j's: ``age`` for ``age:int``; other names as they are."""
    header = _NEO4J.fullmatch(column)
    return header["name"] if header and not header["role"] else column


def neo4j_columns(columns: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return columns and groups of ids by role, where a header is of Neo4j's import: ``:START_ID(Person)``."""
    headers = [(column, _NEO4J.fullmatch(column)) for column in columns]
    return {
        NEO4J_ROLES[header["role"]]: (column, header["group"] or "")
        for column, header in headers
        if header and header["role"] in NEO4J_ROLES
    }


def neo4j_tables(headers: Mapping[Path, Sequence[str]]) -> list[TableSpec]:
    """Return the tables in files with headers of Neo4j's; ids without a group are of one type, ``node``."""
    nodes: dict[str, list[str]] = {}
    relations = []
    for path, header in headers.items():
        found = neo4j_columns(header)
        stem = clean_name(path.name.split(".")[0])
        if "src" in found and "dst" in found:
            ends = [clean_name(found[end][1]) or "node" for end in ("src", "dst")]
            columns: dict[str, tuple[str, ...]] = {
                role: (found[role][0],) for role in ("src", "dst", "type") if role in found
            }
            relations.append(TableSpec((ends[0], stem, ends[1]), (str(path),), columns))
        elif "id" in found:
            nodes.setdefault(clean_name(found["id"][1]) or "node", []).append(str(path))
    return [TableSpec(owner, tuple(files), {}) for owner, files in nodes.items()] + relations


def graphstorm_tables(path: Path) -> tuple[list[TableSpec], list[str]]:
    """Return the tables of a configuration of GraphStorm's ``gconstruct``, and warnings of what it does in addition."""
    document, specs, warnings = json.loads(path.read_text()), [], []
    try:
        for entry in [*document.get("nodes", ()), *document["edges"]]:
            edges = "relation" in entry
            owner = tuple(entry["relation"]) if edges else entry["node_type"]
            features, labels = entry.get("features", ()), entry.get("labels", ())
            columns = {"src": entry["source_id_col"], "dst": entry["dest_id_col"]} if edges else {}
            columns |= {} if edges else {"id": entry.get("node_id_col", ROW)}
            wanted = [column for f in features for column in _as_list(f["feature_col"])]
            label = [one["label_col"] for one in labels if "label_col" in one]
            columns |= {"data": wanted + label} if edges else {"features": wanted, "label": label[:1]}
            changed = [
                str(f["feature_col"]) for f in features if f.get("transform", {}).get("name") not in (None, "noop")
            ]
            if changed:
                warnings.append(f"{path}: transforms are not applied: {', '.join(changed)} are read as they are")
            if any("split_pct" in one or "custom_split_filenames" in one for one in labels):
                warnings.append(f"{path}: splits of {owner} are not made; say --split 0.8,0.1,0.1")
            specs.append(TableSpec.parse(owner, {"file": _as_list(entry["files"]), **columns}, str(path), edges))
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: expected a configuration of GraphStorm, found no {error}; correct it") from error
    return specs, warnings


ROW = "#"
"""Name of the column that numbers the rows of any table: 0, 1, 2..."""


def _as_list(value: Any) -> tuple[str, ...]:
    many = isinstance(value, (list, tuple))
    return tuple(os.fspath(one) if isinstance(one, os.PathLike) else str(one) for one in (value if many else (value,)))


def clean_name(text: str) -> str:
    """Return a text as the name of a relation or node type: letters, digits and ``. + -``, others as ``_``."""
    return re.sub(r"[^A-Za-z0-9.+-]+", "_", text).strip("_")[:100]


def usual_columns(columns: Sequence[str], node_type: str) -> list[str]:
    """Return columns that name a type's ids by themselves: ``movieId``, ``movie_id`` or ``movie`` for ``movie``."""
    wanted = {re.sub("[^a-z0-9]", "", node_type.lower()) + ending for ending in _ENDINGS}
    return [column for column in columns if re.sub("[^a-z0-9]", "", column.lower()) in wanted]
