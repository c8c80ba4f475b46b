"""Format ``tables``: tables of edges between node types, and of nodes, in text and parquet, as one typed graph.

Ids of a type are numbered in the order of its table of nodes; without one, distinct ids in ascending order. Cost: one
pass over the files, and for each type a sort on disk as `tiering.datasets.name_ids` says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from glob import glob
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from tiering.artifacts.manifest import Relation
from tiering.artifacts.storage import entries
from tiering.datasets.arrays import SourceArray
from tiering.datasets.edges import check_weights
from tiering.datasets.import_context import RELATION, Detector, ImportContext, Reader
from tiering.datasets.name_ids import NameIds
from tiering.datasets.nodes import LabelArray, NodeArrays, make_dataset
from tiering.datasets.options import COLUMN_OPTIONS, TABLE_OPTIONS, TEXT_OPTIONS
from tiering.datasets.readers import edge_list, parquet
from tiering.datasets.scratch import GrowingFile, chunks, mark_changes
from tiering.datasets.table_columns import ColumnChooser
from tiering.datasets.table_files import ClassColumn, Column, NumberColumn, TableFile, read_ids, read_numbers, read_rows
from tiering.datasets.table_numbers import Numbering, number_nodes
from tiering.datasets.table_specs import (
    TableSpec,
    clean_name,
    graphstorm_tables,
    neo4j_columns,
    neo4j_tables,
    strip_type,
)  # fmt: skip
from tiering.datasets.text import read_blocks
from tiering.errors import InputError, MissingError, quoted
from tiering.formats.dataset import Dataset, EdgeData
from tiering.formats.npy_file import read_start


@dataclass
class _Table:
    """A table with its files, the columns of each by role, and what was read of it so far."""

    spec: TableSpec
    files: list[tuple[TableFile, dict[str, list[str]]]]
    numbers: dict[str, NumberColumn] = field(default_factory=dict)  # weights and edge data
    classes: ClassColumn | None = None  # labels, or types of edges
    rows: GrowingFile | None = None  # file of features
    dim: int = 0
    count: int = 0
    lacking: int = 0  # rows that were left out because an end is missing

    @property
    def where(self) -> str:
        """The files, for messages."""
        names = [str(file.path) for file, _ in self.files]
        return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"

    def ends(self) -> list[tuple[str, str]]:
        """Return roles of columns of ids, and the node type of each."""
        owner = self.spec.owner
        return [("id", owner)] if isinstance(owner, str) else [("src", owner[0]), ("dst", owner[2])]

    def pieces(self) -> Iterator[tuple[int, dict[str, list[Column]]]]:
        """Yield rows and columns by role of each piece of all files."""
        for file, columns in self.files:
            for row, rows, piece in file.pieces([name for names in columns.values() for name in names]):
                made = {
                    role: [Column(name, piece[name], f"{file.path}: column {name}", row) for name in names]
                    for role, names in columns.items()
                }
                yield rows, made

    def add_classes(self, columns: list[Column], what: str, context: ImportContext) -> None:
        """Add labels, or types of edges, if there is such a column."""
        for column in columns:
            self.classes = self.classes or ClassColumn(context.scratch, what)
            self.classes.append(column)


def _open_tables(path: Path, context: ImportContext) -> Dataset:
    tables = _find_tables(path, context)
    types = dict.fromkeys(node_type for table in tables for _, node_type in table.ends())
    owners = [table.spec.owner for table in tables]
    for owner in owners:
        if owners.count(owner) > 1:
            raise InputError(f"{tables[owners.index(owner)].spec.described}: named twice; give all files of it at once")
    named = {
        node_type for table in tables for role, node_type in table.ends()
        if context.options.string_ids or any(file.holds_names(columns[role][0]) for file, columns in table.files)
    }  # fmt: skip
    keys: dict[str, list[str]] = {node_type: [] for node_type in types}
    for k, table in enumerate(tables):
        for role, node_type in table.ends():
            keys[node_type].append(f"{k} {role}")
    sorters = {node_type: NameIds(context.scratch, keys[node_type], len(types)) for node_type in types}
    for k, table in enumerate(tables):
        (_read_nodes if isinstance(table.spec.owner, str) else _read_edges)(table, k, sorters, named, context)
    numbered: dict[str, Numbering] = {}
    for node_type in types:
        at = owners.index(node_type) if node_type in owners else None
        where = f"ids of {node_type} in edges" if at is None else tables[at].where
        one = Numbering(node_type, where, *sorters[node_type].finish(), node_type in named)
        number_nodes(one, None if at is None else f"{at} id", context)
        numbered[node_type] = one
    related = [(k, table) for k, table in enumerate(tables) if not isinstance(table.spec.owner, str)]
    edges = [edges for k, table in related for edges in _make_edges(table, k, numbered, context)]
    nodes = {table.spec.owner: table for table in tables if isinstance(table.spec.owner, str)}
    arrays = {t: _make_nodes(nodes.get(t), numbered[t], context) for t in sorted(types)}
    dataset = make_dataset(path.name.split(".")[0] or "tables", arrays, edges, context)
    for node_type, numbering in numbered.items():
        dataset.nodes[node_type].names = numbering.names
        dataset.nodes[node_type].extra |= numbering.extra
    return dataset


def _find_tables(path: Path, context: ImportContext) -> list[_Table]:
    """Return the tables that the options name, or headers of Neo4j's, or a configuration of GraphStorm."""
    options, specs = context.options, [*context.options.nodes, *context.options.relation]
    if not options.relation and path.suffix == ".json":
        specs, warnings = graphstorm_tables(path)
        context.record_file(path)
        for warning in warnings:
            context.warn(warning)
    elif not options.relation:
        texts = filter(_is_table, entries(path)) if path.is_dir() else [path]
        specs += neo4j_tables({text: neo4j_header(text) for text in texts})
        specs += [TableSpec(RELATION, (), {})] if len(specs) == len(options.nodes) and not path.is_dir() else []
    if not any(isinstance(spec.owner, tuple) for spec in specs):
        raise InputError(f"{path}: expected tables of edges, found none; name them with --relation SRC:NAME:DST=FILE")
    chooser, tables = ColumnChooser(options), []
    for spec in specs:
        is_header = partial(chooser.is_header, spec=spec)
        paths = [file for name in spec.files for file in _find_files(name, path)] or [path]
        files = [TableFile(file, context, is_header) for file in paths]
        tables.append(_Table(spec, [(file, chooser.choose(spec, file)) for file in files]))
        _record(tables[-1], context)
    chooser.refuse_unseen()
    if path.is_dir():
        context.record_ignored(entries(path))
    return tables


def _find_files(name: str, source: Path) -> list[Path]:
    """Return the files of a path, a directory of parts or a pattern, next to the source or in the current directory."""
    for folder in (source if source.is_dir() else source.parent, Path()):
        path = folder / name
        inside = path.rglob("*") if path.is_dir() else map(Path, glob(str(path)))  # noqa: PTH207 - absolute patterns too
        files = sorted(filter(_is_table, inside)) if path.is_dir() else sorted(inside)
        if files := [path] if path.is_file() else files:
            return files
    raise MissingError(f"{name}: no such table; check the path")


def _is_table(path: Path) -> bool:
    named = any(suffix.lower() in (*edge_list.SUFFIXES, *parquet.SUFFIXES) for suffix in path.suffixes[-2:])
    return named and not path.name.startswith((".", "_")) and path.is_file()


def neo4j_header(path: Path) -> list[str]:
    """Return the first line of a text as names of columns, if it is a header of Neo4j's import."""
    if parquet.is_parquet(path) or not edge_list.is_edge_list(path):
        return []
    block = next(read_blocks(path, "reading the header", strict=False), None)
    line = b"" if block is None else block.raw.split(b"\n", 1)[0][:10_000]
    columns = re.split(r"[,;|\t]", line.decode(errors="replace").replace('"', "").strip())
    return columns if {"id", "src", "dst"} & set(neo4j_columns(columns)) else []


def _record(table: _Table, context: ImportContext) -> None:
    """Record which columns of a table are read and which are not."""
    file, columns = table.files[0]
    used = {role: names for role, names in columns.items() if names}
    unused = [name for name in file.names if not any(name in names for names in used.values())]
    entry = {"table": table.spec.described, "files": [str(one.path) for one, _ in table.files], "columns": used}
    context.notes.setdefault("tables", []).append({**entry, "header": file.header, "ignored_columns": unused})


def _read_nodes(table: _Table, k: int, sorters: dict[str, NameIds], named: set[str], context: ImportContext) -> None:
    [(_, node_type)] = table.ends()
    for rows, columns in table.pieces():
        [column] = columns["id"]
        ids = read_ids(column, node_type in named)
        column.refuse(ids.is_null(), "an id in each row", "fill or remove it")
        sorters[node_type].append(f"{k} id", ids, column.where, column.row)
        table.count += rows
        table.add_classes(columns["label"], "labels", context)
        if columns["features"]:
            block = np.concatenate([read_rows(one) for one in columns["features"]], axis=1).astype(np.float32)
            table.rows = table.rows or context.scratch.growing_file(np.float32)
            table.dim = table.dim or block.shape[1]
            if block.shape[1] != table.dim:
                problem = f"expected {table.dim} values of features, found {block.shape[1]} from row {column.row} on"
                raise InputError(f"{column.where}: {problem}; give all rows as many")
            table.rows.append(block.reshape(-1))
            table.lacking += int(np.isnan(block).any(axis=1).sum())


def _read_edges(table: _Table, k: int, sorters: dict[str, NameIds], named: set[str], context: ImportContext) -> None:
    for rows, columns in table.pieces():
        ends = [(f"{k} {role}", node_type, columns[role][0]) for role, node_type in table.ends()]
        ids = [read_ids(column, node_type in named) for _, node_type, column in ends]
        keep = pc.and_(*(one.is_valid() for one in ids))
        if context.options.unknown_ids != "drop":
            ends[0][2].refuse(pc.invert(keep), "an id at both ends of each edge", "fill it, or say --unknown-ids drop")
        elif keep.true_count < rows:
            table.lacking += rows - keep.true_count
            ids = [one.filter(keep) for one in ids]
            columns = {
                role: [one._replace(array=one.array.filter(keep)) for one in some] for role, some in columns.items()
            }
        for (key, node_type, column), one in zip(ends, ids, strict=True):
            sorters[node_type].append(key, one, column.where, column.row)
        table.add_classes(columns["type"], "types of edges", context)
        for column in [*columns["weight"], *columns["data"]]:
            values = read_numbers(column)
            if column in columns["weight"]:
                check_weights(values, column.where, column.row)
            key = "weight" if column in columns["weight"] else clean_name(strip_type(column.name))
            table.numbers.setdefault(key, NumberColumn(context.scratch)).append(values)
        table.count += len(ids[0])


def _make_nodes(table: _Table | None, numbering: Numbering, context: ImportContext) -> NodeArrays:
    """Return number, features and labels of a type; nodes that edges add have features of 0 and no label."""
    arrays = NodeArrays(counts=[(numbering.where, numbering.count)])
    if table is None:
        return arrays
    added = numbering.count - table.count
    if table.rows is not None:
        for _ in range(added):
            table.rows.append(np.zeros(table.dim, np.float32))
        rows = table.rows.finish().reshape(-1, table.dim)
        arrays.features = SourceArray(table.where, rows, "float32", Path(table.where)).features()
        if table.lacking:
            context.warn(f"{table.where}: {table.lacking} rows lack a value of a feature: it is NaN")
    if table.classes is not None:
        labels = _make_labels(table, added, context)
        arrays.labels = LabelArray(table.where, lambda _: labels, numbering.count)
    return arrays


def _make_labels(table: _Table, added: int, context: ImportContext) -> npt.NDArray[Any]:
    """Return numbers as they are, else the position of each text among all, sorted; -1 for none."""
    assert table.classes is not None
    codes, texts = table.classes.finish()
    try:
        numbers = np.array([float(text) for text in texts])
        values = np.append(numbers, np.nan)
        if (np.isnan(values) | (values == np.floor(values))).all():
            values = np.nan_to_num(values, nan=-1).astype(np.int64)
    except ValueError:
        classes = sorted(texts)
        values = np.append(np.searchsorted(np.array(classes, object), np.array(texts, object)), -1)
        context.notes.setdefault("classes", {})[table.spec.described] = classes
    out = context.scratch.array(codes.size + added, values.dtype)
    for part in chunks(codes.size):
        out[part] = values[codes[part]]
    out[codes.size :] = values[-1]
    return out


def _make_edges(table: _Table, k: int, numbered: dict[str, Numbering], context: ImportContext) -> list[EdgeData]:
    """Return the edges of a table: one relation, or one for each of the types in a column."""
    owner: Relation = table.spec.owner  # type: ignore[assignment]
    columns = {name: column.finish() for name, column in table.numbers.items()}
    for role, node_type in table.ends():
        columns[role] = numbered[node_type].find_ids(f"{k} {role}", table.where, context)
    relations, codes = [owner], None
    if table.classes is not None:
        codes, texts = table.classes.finish()
        if codes.min(initial=0) < 0:
            row = int(np.argmax(codes < 0))
            raise InputError(f"{table.where}: expected a type of each edge, found none at row {row}; fill or remove it")
        relations = [(owner[0], name, owner[2]) for name in _relation_names(texts, table, context)]
    if context.options.unknown_ids == "drop":
        known = context.scratch.array(table.count, np.int64)
        for part in chunks(table.count):
            inside = (columns["src"][part] >= 0) & (columns["dst"][part] >= 0)
            known[part] = np.where(inside, 0 if codes is None else codes[part], -1)
        codes = known
    bounds = [0, table.count]
    if codes is not None:
        columns, bounds = _group(codes, columns, len(relations), context)
    if dropped := table.lacking + table.count - bounds[-1]:
        context.warn(f"{table.where}: {dropped} edges of {table.spec.described} without known ends are left out")
    made = []
    for relation, low, high in zip(relations, bounds, bounds[1:], strict=False):
        own = {name: column[low:high] for name, column in columns.items()}
        made.append(EdgeData(relation, own.pop("src"), own.pop("dst"), table.where, own))
    return made


def _relation_names(texts: list[str], table: _Table, context: ImportContext) -> list[str]:
    """Return names of relations for the types of edges."""
    names = [clean_name(text) for text in texts]
    for name, text in zip(names, texts, strict=True):
        if not name or names.count(name) > 1:
            raise InputError(f"{table.where}: type {quoted(text)}: cannot be told from others as {name!r}; rename it")
    if names != texts:
        context.notes["relation_names"] = dict(zip(names, texts, strict=True))
    return names


def _group(
    codes: npt.NDArray[np.int64], columns: dict[str, npt.NDArray[Any]], groups: int, context: ImportContext
) -> tuple[dict[str, npt.NDArray[Any]], list[int]]:
    """Return columns group by group, in their order inside each, and the bounds; codes below 0 are left out."""
    counts = np.zeros(groups + 1, np.int64)
    for part in chunks(codes.size):
        counts += np.bincount(codes[part] + 1, minlength=groups + 1)
    bounds = np.concatenate([[0], np.cumsum(counts[1:])])
    out = {name: context.scratch.array(int(bounds[-1]), column.dtype) for name, column in columns.items()}
    ends = bounds[:-1].copy()
    for part in chunks(codes.size):
        order = np.argsort(codes[part], kind="stable")
        own = codes[part][order]
        order, own = order[own >= 0], own[own >= 0]
        firsts = np.flatnonzero(mark_changes(own))
        inside = np.arange(own.size) - np.repeat(firsts, np.diff(np.append(firsts, own.size)))
        for name, column in columns.items():
            out[name][ends[own] + inside] = column[part][order]
        ends += np.bincount(own, minlength=groups)
    return out, bounds.tolist()


def _is_graphstorm(path: Path) -> bool:
    return path.suffix == ".json" and b'"source_id_col"' in read_start(path, 1 << 20)


READER = Reader(
    _open_tables,
    (COLUMN_OPTIONS - {"compact_ids", "first_id"}) | TEXT_OPTIONS | TABLE_OPTIONS | {"label"},
    directory=Detector(
        "Neo4j's import files (:ID, :START_ID)", lambda path: any(map(neo4j_header, filter(_is_table, entries(path))))
    ),
    file=Detector(
        "a Neo4j import file, a GraphStorm .json", lambda path: _is_graphstorm(path) or bool(neo4j_header(path))
    ),
)
