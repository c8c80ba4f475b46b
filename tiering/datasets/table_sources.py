"""The files of tables of nodes and edges, found by options, headers of Neo4j's or a configuration of GraphStorm."""

from __future__ import annotations

import re
from glob import glob
from itertools import chain
from pathlib import Path

from tiering.artifacts.remote_path import open_remote
from tiering.artifacts.storage import entries
from tiering.datasets.arrow_tables import add_stream
from tiering.datasets.import_context import RELATION, ImportContext
from tiering.datasets.options import RAW_OPTIONS, TIME_OPTIONS
from tiering.datasets.readers import edge_list, parquet
from tiering.datasets.table_files import TableFile, open_parts, refuse_unknown
from tiering.datasets.table_specs import TableSpec, graphstorm_tables, neo4j_tables, neo4j_types, tables_by_keys
from tiering.datasets.text import read_blocks
from tiering.datasets.unread import refuse_table_formats
from tiering.errors import InputError, MissingError
from tiering.formats.arrow import ArrowStream
from tiering.formats.npy_file import read_start
from tiering.text.arguments import is_url
from tiering.text.options import spell_flag

Tables = list[tuple[TableSpec, list[TableFile]]]


def find_tables(path: Path, context: ImportContext) -> tuple[Tables, bool]:
    """Return the tables that the options name, or headers of Neo4j's, or a configuration of GraphStorm.

    True: there is none of these, and the source holds edges between nodes of one type, as in the plain formats.
    """
    options, specs = context.options, [*context.options.nodes, *context.options.relation]
    tables: Tables = []
    plain, own = False, [path]
    if not options.relation and path.suffix == ".json":
        specs = graphstorm_tables(path, context.warn)
        context.record_file(path)
    elif not options.relation:
        texts = filter(_is_text, entries(path)) if path.is_dir() else {path} - context.streams.keys()
        specs += neo4j_tables({text: neo4j_header(text) for text in texts})
        plain = not specs
        if plain and path.is_dir():
            own = parquet.files_inside(path) or [context.choose_file(path, edge_list.texts_inside, "edges")]
            context.folder = path
        specs += [TableSpec(RELATION, (), {})] if plain or (specs == [*options.nodes] and not path.is_dir()) else []
    if not any("src" in spec.ends for spec in specs):
        raise InputError(f"{path}: expected tables of edges, found none; name them with --relation SRC:NAME:DST=FILE")
    for option in [] if plain else sorted({"compact_ids", "first_id", *RAW_OPTIONS} - TIME_OPTIONS):
        if option in context.notes["options"]:
            problem = "does not apply with --relation or --nodes, where ids are numbered by type"
            raise InputError(f"{spell_flag(option)}: {problem}; omit it")
    for spec in specs:
        if any(spec.owner == other.owner for other, _ in tables):
            raise InputError(f"{spec.described}: named twice; give all its files at once")
        paths = [file for name in spec.files for file in _find_files(name, path, spec, context)] or own
        found = [one.absolute() for one in paths if one not in context.streams]
        context.known.update(chain(*((one, *one.parents) for one in found)))
        files = open_parts(paths, spec, context)
        rows_of_nodes = {file.path for other, parts in tables if "id" in other.ends for file in parts}
        for file in files if "src" in spec.ends else ():
            if file.path in rows_of_nodes:  # foreign keys of nodes: times in the table are the nodes'
                file.columns["time"] = []
        tables.append((spec, files))
        file = files[0]
        used = {role: names for role, names in file.columns.items() if names}
        unused = [name for name in file.names if name not in chain(*used.values())]
        entry = {"table": spec.described, "files": list(map(str, paths)), "columns": used, "header": file.header}
        if streams := [context.streams[one] for one in paths if one in context.streams]:
            schema = {field.name: str(field.type) for field in streams[0].schema}
            entry |= {"schema": schema, "rows": sum(stream.rows for stream in streams)}
        context.notes.setdefault("tables", []).append({**entry, "ignored_columns": unused})
    refuse_unknown(options, [file for _, files in tables for file in files])
    if path.is_dir() and not plain:
        context.record_ignored(entries(path))
    return tables, plain


def _find_files(name: str | ArrowStream, source: Path, spec: TableSpec, context: ImportContext) -> list[Path]:
    """Return the files of a path, a directory, a pattern or several, next to the source or as they are; or a stream."""
    if isinstance(name, ArrowStream):
        return [add_stream(name, spec.described, context)]
    several = is_url(name) and "," in name
    for folder in () if several else (source if source.is_dir() else source.parent, Path()):
        path = open_remote(name) if is_url(name) else Path(name) if name[:1] == "/" else folder / name
        inside = path.rglob("*") if path.is_dir() else map(Path, glob(str(path)))  # noqa: PTH207 - absolute patterns too
        files = sorted(filter(_is_table, inside)) if path.is_dir() else sorted(inside)
        if path.is_file() or files:
            refuse_table_formats([] if path.is_file() else files)
            return [path] if path.is_file() else files
    if "," in name:
        return [file for one in name.split(",") for file in _find_files(one, source, spec, context)]
    raise MissingError(f"{name}: no such table; check the path")


def _is_table(path: Path) -> bool:
    named = any(suffix.lower() in (*edge_list.SUFFIXES, *parquet.SUFFIXES) for suffix in path.suffixes[-2:])
    return named and not path.name.startswith((".", "_")) and path.is_file()


def _is_text(path: Path) -> bool:
    return _is_table(path) and not parquet.is_parquet(path) and not edge_list.NO_EDGES.match(path.name)


def _first_line(path: Path) -> list[str]:
    """Return the first line of a text as names of columns; of other files none."""
    if parquet.is_parquet(path) or not edge_list.is_edge_list(path):
        return []
    block = next(read_blocks(path, "reading the header", strict=False), None)
    line = b"" if block is None else block.raw.split(b"\n", 1)[0][:10_000]
    return re.split(r"[,;|\t]", line.decode(errors="replace").replace('"', "").strip())


def neo4j_header(path: Path) -> list[str]:
    """Return the first line of a text as names of columns, if it is a header of Neo4j's import."""
    columns = _first_line(path)
    return columns if {"id", "src", "dst"} & set(neo4j_types(columns)) else []


def refuse_unnamed_tables(path: Path, format: str) -> None:  # noqa: A002
    """Refuse a directory of tables of several types, such as users, items and ratings; name the options it needs."""
    headers = dict[Path, list[str]]()
    for file in edge_list.texts_inside(path) if format == "edgelist" else parquet.files_inside(path):
        if format == "edgelist":
            headers[file] = _first_line(file)
        else:
            with parquet.open_file(file) as table:
                headers[file] = table.schema_arrow.names
    if proposed := tables_by_keys({str(file.relative_to(path)): columns for file, columns in headers.items()}):
        raise InputError(
            f"{path}: expected edges of one type, found several related tables; to import them, give "
            f"{proposed}, and name the other columns of nodes with --features and --label"
        )


def is_typed(path: Path) -> bool:
    """Return whether a file or directory says by itself that it holds tables of several types."""
    if path.is_dir():
        return any(map(neo4j_header, filter(_is_text, entries(path))))
    return bool(neo4j_header(path)) or (path.suffix == ".json" and b'"source_id_col"' in read_start(path, 1 << 20))
