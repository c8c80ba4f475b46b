"""Tables of nodes and edges as users describe them: as options, in Python, Neo4j's headers, GraphStorm's JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from tiering.errors import InputError, quoted
from tiering.formats.arrow import ArrowStream, name_type

EDGE_ROLES = ("src", "dst", "weight", "type", "data", "time")
NODE_ROLES = ("id", "features", "label", "split", "time")
ROW = "#"
"""Name of the column that numbers the rows of any table: 0, 1, 2..."""
TIME = "time"  # name of times for which tables name columns of their own
_PART = re.compile(r"([-_ ]?(header|part)|[-_ ]?\d+)+$", re.IGNORECASE)  # end of the name of a part of a table
_NAMED = re.compile(r"(.*?):(?!//)(.*)", re.DOTALL)  # files, a colon that is no URL's, and columns
_KEY = re.compile(r"(?:(.*?)[-_ ]?)(?:id|Id|ID)")  # column of ids, and the type of node that they are of
_NEO4J_ROLES = {"ID": "id", "START_ID": "src", "END_ID": "dst", "TYPE": "type"}
_NEO4J = re.compile(
    r"(?P<name>[^:]*):(?:(?P<role>ID|START_ID|END_ID|TYPE|LABEL|IGNORE)|[a-z]+(?:\{.*\})?(?:\[\])?)"
    r"(?:\((?P<group>[^){]*)\))?(?:\{.*\})?"
)


@dataclass(frozen=True)
class TableSpec:
    """A table: the node type or relation that it holds, its files, its columns by role."""

    owner: tuple[str, ...]  # a node type, or a relation's three parts
    files: tuple[str | ArrowStream, ...]  # paths, directories, patterns, tables; none: the source itself
    columns: Mapping[str, tuple[str, ...]]

    @property
    def ends(self) -> dict[str, str]:
        """The node type of each column of ids, by the column's role."""
        return {"src": self.owner[0], "dst": self.owner[2]} if len(self.owner) == 3 else {"id": self.owner[0]}

    @property
    def roles(self) -> tuple[str, ...]:
        """Roles that columns of the table may have, roles of ids first."""
        return EDGE_ROLES if len(self.owner) == 3 else NODE_ROLES

    @property
    def described(self) -> str:
        """The node type, or the relation with colons."""
        return ":".join(self.owner)

    @classmethod
    def parse(cls, owner: Any, table: Any, what: str, edges: bool) -> TableSpec:
        """Return the table of one option: `table` is a path, with columns behind a colon, a stream, or a mapping."""
        spec = cls(tuple(owner.split(":") if isinstance(owner, str) else map(str, owner)), (), {})
        if len(spec.owner) != (3 if edges else 1) or not all(spec.owner):
            form = "SRC:NAME:DST=FILE, such as user:rates:movie=ratings.csv" if edges else "TYPE=FILE"
            raise InputError(f"{what}: expected {form}, found {quoted(str(owner))}")
        if isinstance(table, Mapping):
            columns = {str(role): as_texts(one) for role, one in table.items() if role not in ("file", "files")}
            files = _as_files(table.get("file", table.get("files")))
        else:
            columns, files = {}, _as_files(table)
        name = files[0] if not columns and len(files) == 1 else None
        named = _NAMED.fullmatch(name) if isinstance(name, str) and not Path(name).exists() else None
        if named:
            path, names = named.groups()
            if names.count(",") + 1 != len(spec.ends):
                form = "FILE:SRC,DST" if edges else "FILE:ID"
                raise InputError(f"{what}: {spec.described}: expected {form}, found {quoted(name)}")
            files, columns = as_texts(path), dict(zip(spec.ends, map(as_texts, names.split(",")), strict=True))
        if wrong := sorted(columns.keys() - set(spec.roles)):
            expected = f"expected {', '.join(spec.roles)} or file, found {quoted(wrong[0])}"
            raise InputError(f"{what}: {spec.described}: {expected}")
        return cls(spec.owner, files, columns)


def as_texts(value: Any) -> tuple[str, ...]:
    """Return one value or several as text, without empty ones."""
    values = value if isinstance(value, (list, tuple)) else (value,)
    named = (name_type(one) if isinstance(one, ArrowStream) else one for one in values)
    return tuple(str(one) for one in named if one not in (None, ""))


def _as_files(value: Any) -> tuple[str | ArrowStream, ...]:
    values = value if isinstance(value, (list, tuple)) else (value,)
    return tuple(chain.from_iterable((one,) if isinstance(one, ArrowStream) else as_texts(one) for one in values))


def parse_tables(value: Any, what: str) -> tuple[TableSpec, ...]:
    """Return the tables of ``--relation`` or ``--nodes``: texts ``OWNER=FILE``, or a mapping from owner to table."""
    if isinstance(value, ArrowStream):
        form = "{(source, name, destination): table}" if what.endswith("relation") else "{type: table}"
        raise InputError(f"{what}: expected a mapping {form}, found {name_type(value)}; name the table's type")
    if isinstance(value, str) and all(part.count("=") == 1 for part in value.split(",")):
        value = value.split(",")
    pairs = value.items() if isinstance(value, Mapping) else [one.partition("=")[::2] for one in as_texts(value)]
    return tuple(TableSpec.parse(owner, table, what, what.endswith("relation")) for owner, table in pairs)


def strip_type(column: str) -> str:
    """Return the name of a property in a header of Neo4j's: ``age`` for ``age:int``; other names as they are."""
    header = _NEO4J.fullmatch(column)
    return header["name"] if header and not header["role"] else column


def neo4j_types(columns: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return columns and types of nodes by role, where a header is of Neo4j's import: ``:START_ID(Person)``."""
    headers = [header for header in map(_NEO4J.fullmatch, columns) if header and header["role"] in _NEO4J_ROLES]
    return {_NEO4J_ROLES[one["role"]]: (one[0], clean_name(one["group"] or "") or "node") for one in headers}


def tables_by_keys(headers: Mapping[str, Sequence[str]]) -> str:
    """Return options that name the tables in files by columns such as ``user_id``; empty if no two tables are related.

    A table whose key is ``id``, or named as its file is, holds nodes, and its other keys lead to theirs; one with two
    keys holds edges, one with another key alone that type's nodes. Files with equal columns are one table.
    """
    groups = dict[tuple[str, ...], list[str]]()
    for file, columns in headers.items():
        groups.setdefault(tuple(columns), []).append(file)
    nodes, relations = dict[str, str](), list[tuple[str, str, str, str]]()
    for columns, files in groups.items():
        stem = _PART.sub("", Path(files[0]).name.split(".")[0]).lower()
        own = stem.removesuffix("s")
        keys = {(match[1] or own).lower(): match[0] for match in map(_KEY.fullmatch, columns) if match}
        table = ",".join(files)
        if own in keys or len(keys) == 1:
            node = own if own in keys else next(iter(keys))
            key = keys.pop(node)
            nodes[node] = f"--nodes {node}={table}:{key}"
            relations += [(node, "to", other, f"{table}:{key},{column}") for other, column in keys.items()]
        elif len(keys) > 1:
            (src, first), (dst, second) = list(keys.items())[:2]
            relations.append((src, stem, dst, f"{table}:{first},{second}"))
    known = [one for one in relations if one[0] in nodes or one[2] in nodes]
    edges = [f"--relation {src}:{name}:{dst}={files}" for src, name, dst, files in known]
    return " ".join([*edges, *nodes.values()]) if edges and len(groups) > 1 else ""


def neo4j_tables(headers: Mapping[Path, Sequence[str]]) -> list[TableSpec]:
    """Return the tables in files with headers of Neo4j's; ids without a group are of one type, ``node``.

    A file without header is a part of the one whose name is alike but for numbers, header or part at its end.
    """
    nodes: dict[str, list[str]] = {}
    relations, groups = [], dict[str, list[Path]]()
    for path in headers if any(headers.values()) else ():
        groups.setdefault(_PART.sub("", path.name.split(".")[0]), []).append(path)
    for group, paths in groups.items():
        known = {tuple(headers[path]): path for path in paths}
        if () in known and len(known) != 2:
            problem = "no header of Neo4j here or in a file whose name differs only in a number"
            raise InputError(f"{known[()]}: {problem}; add it, move the file, or name all tables with --relation")
        for files in [paths] if () in known else [[path] for path in paths]:
            stem, found = files[0].name.split(".")[0], neo4j_types(max(tuple(headers[path]) for path in files))
            if {"src", "dst"} <= found.keys():
                owner = (found["src"][1], clean_name((() in known and group) or stem), found["dst"][1])
                columns = {role: (name,) for role, (name, _) in found.items()}
                relations.append(TableSpec(owner, tuple(map(str, files)), columns))
            elif "id" in found:
                nodes.setdefault(found["id"][1], []).extend(map(str, files))
    return [TableSpec((owner,), tuple(files), {}) for owner, files in nodes.items()] + relations


def graphstorm_tables(path: Path, warn: Callable[[str], None]) -> list[TableSpec]:
    """Return the tables of a configuration of GraphStorm's ``gconstruct``; `warn` of what it does in addition."""
    document, specs = json.loads(path.read_bytes()), []
    try:
        for entry in [*document.get("nodes", ()), *document["edges"]]:
            edges, features, labels = "relation" in entry, entry.get("features", ()), entry.get("labels", ())
            wanted = [column for feature in features for column in as_texts(feature["feature_col"])]
            label = [one["label_col"] for one in labels if "label_col" in one]
            table = {"file": entry["files"]}
            if edges:
                table |= {"src": entry["source_id_col"], "dst": entry["dest_id_col"], "data": wanted + label}
            else:
                table |= {"id": entry.get("node_id_col", ROW), "features": wanted, "label": label[:1]}
            specs.append(TableSpec.parse(entry["relation" if edges else "node_type"], table, str(path), edges))
            kinds = {str(one["feature_col"]): one.get("transform", {}).get("name") or "noop" for one in features}
            if changed := [column for column, kind in kinds.items() if kind != "noop"]:
                warn(f"{path}: transforms are not applied: {', '.join(changed)} are read as they are")
            if any("split_pct" in one or "custom_split_filenames" in one for one in labels):
                warn(f"{path}: splits of {specs[-1].described} are not made; say --split 0.8,0.1,0.1")
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: the GraphStorm configuration has no {error}; correct it") from error
    return specs


def clean_name(text: str) -> str:
    """Return a text as the name of a relation or node type: letters, digits and ``. + -``, others as ``_``."""
    return re.sub(r"[^A-Za-z0-9.+-]+", "_", text).strip("_")[:100]
