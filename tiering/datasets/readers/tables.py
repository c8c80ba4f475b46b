"""Format ``tables``: tables of edges between node types, and of nodes, in text and parquet, as one typed graph.

Cost: one pass over the files, and for each type a sort on disk as `tiering.datasets.name_ids` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.datasets.arrays import SourceArray
from tiering.datasets.edges import LargestId, check_weights
from tiering.datasets.import_context import Detector, GrowingFile, ImportContext, Reader, chunks, first_wrong
from tiering.datasets.name_ids import NameIds, OtherIdsError, decode_numbers
from tiering.datasets.nodes import LabelArray, NodeArrays, make_dataset, read_arrays_beside
from tiering.datasets.options import COLUMN_OPTIONS, RAW_OPTIONS, TABLE_OPTIONS, TEXT_OPTIONS
from tiering.datasets.table_files import Column, TableFile, find_splits, number_labels
from tiering.datasets.table_sources import find_tables, is_typed
from tiering.datasets.table_specs import ROW, TIME, TableSpec, clean_name, strip_type
from tiering.errors import InputError, quoted
from tiering.formats.arrow import pa, pc
from tiering.formats.dataset import Dataset, EdgeData
from tiering.formats.names import NameTable
from tiering.formats.times import convert_exact
from tiering.text.progress import note_at

Ids = npt.NDArray[np.int64]
_MOST_CLASSES = 100_000


@dataclass
class _Table:
    """A table, its files, and what was read of it so far."""

    spec: TableSpec
    files: list[TableFile]
    numbers: dict[str, GrowingFile] = field(default_factory=dict)  # weights and edge data, or features
    codes: GrowingFile | None = None  # positions of labels, or types of edges, among the distinct ones; -1 for none
    classes: dict[str, int] = field(default_factory=dict)  # their distinct values
    dim: int = 0
    count: int = 0
    lacking: int = 0  # rows that lack a value of a feature, or an end

    @property
    def where(self) -> str:
        """The files, for messages."""
        return f"{self.files[0].path}{f' and {len(self.files) - 1} more' if len(self.files) > 1 else ''}"

    def key(self, role: str) -> str:
        """Return a name of a column of ids that no other table's column has."""
        return f"{self.spec.described} {role}"

    def pieces(self) -> Iterator[tuple[int, dict[str, list[Column]]]]:
        """Yield the rows and the columns by role of each piece of all files."""
        return chain.from_iterable(file.pieces() for file in self.files)

    def add_classes(self, texts: Any, what: str, where: str, context: ImportContext) -> None:
        """Add labels, or types of edges; `InputError` if too many are distinct."""
        encoded = texts.dictionary_encode()
        codes = [self.classes.setdefault(text, len(self.classes)) for text in encoded.dictionary.to_pylist()]
        if len(self.classes) > _MOST_CLASSES:
            problem = f"expected at most {_MOST_CLASSES} distinct {what}, found more"
            raise InputError(f"{where}: {problem}; name another column")
        self.codes = self.codes or context.scratch.growing_file(np.int64)
        self.codes.append(np.array([*codes, -1])[encoded.indices.fill_null(len(codes)).to_numpy()])

    def report(self, context: ImportContext) -> None:
        """Warn of rows with a missing value; `InputError` if an end is missing in all rows."""
        if self.lacking and "id" in self.spec.ends:
            context.warn(f"{self.where}: {self.lacking} rows lack a value of a feature: it is NaN")
        elif self.lacking:
            text = f"{self.where}: {self.lacking} rows lack an id of an end: they are no edges of {self.spec.described}"
            if not self.count:
                raise InputError(f"{text}, and there are no others; name the columns of ids")
            context.warn(text)

    def add_numbers(self, name: str, values: npt.NDArray[Any], context: ImportContext) -> None:
        """Add values at the end of a column, int64 or float32; float64 once a whole number does not do."""
        file, blocks = self.numbers.get(name) or context.scratch.growing_file(values.dtype), [values]
        if values.dtype.kind == "f" and file.dtype.kind == "i":
            whole, file = file.finish(), context.scratch.growing_file(np.float64)
            blocks = [*(whole[part] for part in chunks(whole.shape[0])), values]
        for block in blocks:
            if block.dtype.kind != file.dtype.kind and (wrong := convert_exact(block, file.dtype)[1]).size:
                found = f"found {block[wrong[0]]} in {name}; round it"
                raise InputError(f"{self.where}: expected whole numbers up to 2^53 next to fractions, {found}")
            file.append(block)
        self.numbers[name] = file


def _open_tables(path: Path, context: ImportContext) -> Dataset:
    found, plain = find_tables(path, context)
    tables = [_Table(*one) for one in found]
    columns: dict[str, list[str]] = {}  # keys of the columns of ids of each node type
    kinds: dict[str, Any] = {}  # their kinds, see `whole_ids`
    for table in tables:
        for role, node_type in table.spec.ends.items():
            columns.setdefault(node_type, []).append(table.key(role))
            named = context.options.string_ids or any(file.holds_names(role) for file in table.files)
            kinds[node_type] = pa.string() if named else kinds.get(node_type, pa.int64())
    sorters: dict[str, NameIds] = {}
    while not sorters:  # what ids are is known when all of a type are read: if they are others, from the beginning
        tables = [_Table(*one) for one in found]
        sorters = {node_type: NameIds(context.scratch, keys, len(columns)) for node_type, keys in columns.items()}
        try:
            for table in tables:
                (_read_nodes if "id" in table.spec.ends else _read_edges)(table, sorters, kinds, context)
        except OtherIdsError:
            sorters = {}
            context.scratch.close()
    for table in tables:
        table.report(context)
    nodes = {table.spec.owner[0]: table for table in tables if "id" in table.spec.ends}
    numbered: dict[str, _Numbering] = {}
    for t, sorter in sorters.items():
        where = nodes[t].where if t in nodes else f"ids of {t} in edges"
        numbered[t] = _Numbering(t, where, nodes.get(t), *sorter.finish(), kinds[t])
        numbered[t].number(context)
    edges = [one for table in tables if "src" in table.spec.ends for one in _make_edges(table, numbered, context)]
    beside = read_arrays_beside(edges[0] if len(edges) == 1 else None, context) if plain else NodeArrays()
    arrays = {t: _make_nodes(numbered[t], beside if plain else NodeArrays(), context) for t in sorted(columns)}
    dataset = make_dataset(path.name.split(".")[0] or "tables", arrays, edges, context)
    for t, numbering in numbered.items():
        dataset.nodes[t].names, dataset.nodes[t].extra = numbering.names, dataset.nodes[t].extra | numbering.extra
    return dataset


def _read_nodes(table: _Table, sorters: dict[str, NameIds], kinds: dict[str, Any], context: ImportContext) -> None:
    [node_type] = table.spec.owner
    for rows, columns in table.pieces():
        [column] = columns["id"]
        ids = column.ids(kinds, node_type)
        column.refuse_nulls(ids, "an id in each row")
        sorters[node_type].append(table.key("id"), ids, column.where, column.row)
        table.count += rows
        for label in columns["label"]:
            table.add_classes(label.strings(), "labels", label.where, context)
        for split in columns["split"]:
            table.add_numbers("split", split.split_codes(), context)
        if columns["features"]:
            block = np.concatenate([one.rows() for one in columns["features"]], axis=1)
            table.dim = table.dim or block.shape[1]
            if block.shape[1] != table.dim:
                problem = f"expected {table.dim} values of features, found {block.shape[1]} from row {column.row} on"
                raise InputError(f"{column.where}: {problem}; give all rows the same number of values")
            table.add_numbers("rows", block.reshape(-1), context)
            table.lacking += int(np.isnan(block).any(axis=1).sum())
        for time in columns["time"]:
            table.add_numbers(TIME, time.times(context), context)


def _read_edges(table: _Table, sorters: dict[str, NameIds], kinds: dict[str, Any], context: ImportContext) -> None:
    for rows, columns in table.pieces():
        ids = {role: columns[role][0].ids(kinds, node_type) for role, node_type in table.spec.ends.items()}
        valid = pc.and_(ids["src"].is_valid(), ids["dst"].is_valid())
        for role, node_type in table.spec.ends.items():
            column = columns[role][0]
            sorters[node_type].append(table.key(role), ids[role].filter(valid), column.where, column.row)
        for column in columns["type"]:
            types = column.strings()
            column.refuse_nulls(types, "a type of each edge")
            table.add_classes(types.filter(valid), "types of edges", column.where, context)
        chosen = valid.to_numpy(zero_copy_only=False)
        for column in [*columns["weight"], *columns["data"]]:
            values, key = column.numbers(), "row" if column.name == ROW else clean_name(strip_type(column.name))
            if column in columns["weight"]:
                check_weights(values, column.where, column.row)
                key = "weight"
            table.add_numbers(key, column.exact(values)[chosen], context)
        for column in columns["time"]:
            table.add_numbers(context.time_name or TIME, column.times(context)[chosen], context)
        table.count += valid.true_count
        table.lacking += rows - valid.true_count


@dataclass
class _Numbering:
    """Ids of the nodes of a type: rows of its table, then the ids that edges alone have, else in ascending order."""

    node_type: str
    where: str  # the table of nodes, or where else their number comes from
    table: _Table | None
    ranks: Mapping[str, Ids]  # by key of a column of ids: positions among `known`
    known: NameTable  # ids of the source, ascending
    kind: Any  # of `whole_ids`
    count: int = 0
    ids: Ids | None = None  # of each rank, -1 for none; ``None``: the rank itself
    names: NameTable | None = None
    largest: LargestId | None = None  # of ids that stay as they are
    extra: dict[str, Ids] = field(default_factory=dict)

    def number(self, context: ImportContext) -> None:
        """Set the ids, and names or the node array of original ids."""
        options, self.count = context.options, len(self.known)
        asked = options.num_nodes.get(self.node_type)
        order = None if self.table is None else self._order_by_table(self.table, context)
        if self.kind == pa.string():
            if options.first_id:
                raise InputError("--first-id: names are always numbered 0, 1, 2...; omit the option")
            sorted_alike = order is None or self.ids is None or _is_range(self.ids)
            self.names = self.known if sorted_alike else replace(self.known, ids=self.ids, ranks=order)
            return
        values = decode_numbers(self.known, self.kind)
        least, most = (int(values[0]), int(values[-1])) if values.size else (0, -1)
        if (first := options.first_id) and least < first:
            problem = f"expected ids from {first} (--first-id), found {least}"
            raise InputError(f"{self.where}: {problem}; correct the file or the option")
        kept = context.folder is not None or first or most < 16 * values.size
        if asked is None and least >= 0 and kept and not (options.relation or options.nodes or options.compact_ids):
            asked = most - first + 1  # ids of one plain table stay as they are
            self.largest = LargestId(most - first, f"{self.where}: id {most}", least - first)
        if order is None and asked is not None and not options.compact_ids:
            values, least, most = values - first if first else values, least - first, most - first
            if wrong := [value for value in (most, least) if values.size and not 0 <= value < asked]:
                problem = f"--num-nodes says {asked} nodes, ids 0..{asked - 1}, but id {wrong[0]} occurs"
                raise InputError(f"{self.where}: {problem}; correct the option, or omit it")
            self.ids, self.count = values, asked
            return
        values = values if order is None else context.scratch.gather(values, order)
        if options.compact_ids:
            context.notes["compact_ids"] = {"nodes": self.count, "largest": most}
        if options.compact_ids or not _is_range(values):
            self.extra = {"original_id": values}
            how = "in ascending order" if order is None else "in the order of their table"
            note_at(f"ids of {self.node_type}", f" are numbered {how}; original_id has the ids of the source")

    def _order_by_table(self, table: _Table, context: ImportContext) -> Ids:
        """Set the ids of ranks by the rows of the table; return the rank of each id."""
        size, rows, self.count = len(self.known), self.ranks[table.key("id")], table.count
        self.ids = ids = context.scratch.array(size, np.int64)
        ids[:] = -1
        for part in chunks(rows.size):
            ids[rows[part]] = np.arange(part.start, part.stop)
        for part in chunks(rows.size):
            if (twice := ids[rows[part]] != np.arange(part.start, part.stop)).any():
                row = part.start + int(np.argmax(twice))
                problem = f"expected each id once, found {self._spell(rows[row])} at row {row} and again later"
                raise InputError(f"{self.where}: {problem}; remove one of the rows")
        if size == self.count or context.options.unknown_ids != "add":
            return rows
        added = f"{self.where}: {size - self.count} nodes of {self.node_type}"
        note_at(added, " were added, because only edges name them")
        order = context.scratch.array(size, np.int64)
        order[: self.count] = rows
        for part in chunks(size):
            wanted = part.start + np.flatnonzero(ids[part] < 0)
            ids[wanted] = np.arange(self.count, self.count + wanted.size)
            order[ids[wanted]] = wanted
            self.count += wanted.size
        return order

    def find_ids(self, key: str, where: str, context: ImportContext) -> Ids:
        """Return the ids of a column of edges; `InputError` on ids that are missing in the table of nodes."""
        ranks = self.ranks[key]
        ids = ranks if self.ids is None else context.scratch.gather(self.ids, ranks)
        if (edge := first_wrong(ids, lambda part: part < 0)) is not None:
            unknown = sum(int(np.count_nonzero(ids[part] < 0)) for part in chunks(ids.size))
            raise InputError(
                f"{where}: {unknown} of {ids.size} edges name a node of {self.node_type} that is missing in "
                f"{self.where}, the first {self._spell(ranks[edge])} at edge {edge}; correct a file, or give "
                "--unknown-ids add"
            )
        return ids

    def _spell(self, rank: int) -> str:
        name = self.known.encoded(rank)
        sign = 1 << 63 if self.kind == pa.int64() else 0
        return repr(name.decode() if self.kind == pa.string() else int.from_bytes(name, "big") - sign)


def _is_range(values: Ids) -> bool:
    return all((values[part] == np.arange(part.start, part.stop)).all() for part in chunks(values.size))


def _make_nodes(numbering: _Numbering, arrays: NodeArrays, context: ImportContext) -> NodeArrays:
    """Add number, features and labels of a type; nodes that edges add have features of 0 and no label."""
    table = numbering.table
    known = numbering.extra.get("original_id"), numbering.names, context.options.first_id
    arrays.splits = {name: split.renumber(*known) for name, split in arrays.splits.items()}
    if numbering.largest is not None and arrays.counts:
        arrays.largest = numbering.largest
    else:
        arrays.counts.append((numbering.where, numbering.count))
    if table is not None and "rows" in table.numbers:
        for _ in range(numbering.count - table.count):
            table.numbers["rows"].append(np.zeros(table.dim, np.float32))
        rows = table.numbers["rows"].finish().reshape(-1, table.dim)
        arrays.features = SourceArray(table.where, rows, "float32", Path(table.where)).features()
    if table is not None and TIME in table.numbers:
        arrays.times = table.numbers[TIME].finish()
        if numbering.count != table.count:
            added = f"found none for the {numbering.count - table.count} nodes that only edges name"
            raise InputError(f"{table.where}: expected a time of each {numbering.node_type}, {added}; add them to it")
    if table is not None and "split" in table.numbers:
        arrays.splits = find_splits(table.numbers["split"].finish(), table.where)
    if table is not None and table.codes is not None:
        nodes = numbering.node_type, numbering.count
        labels = number_labels(table.codes.finish(), list(table.classes), nodes, context)
        arrays.labels = LabelArray(table.where, lambda _: labels, numbering.count)
    return arrays


def _make_edges(table: _Table, numbered: dict[str, _Numbering], context: ImportContext) -> list[EdgeData]:
    """Return the edges of a table: one relation, or one for each of the types in a column."""
    (source, name, target), names, bounds = table.spec.owner, [table.spec.owner[1]], [0, table.count]
    columns: dict[str, npt.NDArray[Any]] = {key: file.finish() for key, file in table.numbers.items()}
    for role, node_type in table.spec.ends.items():
        columns[role] = numbered[node_type].find_ids(table.key(role), table.where, context)
    if table.codes is not None:
        codes, texts = table.codes.finish(), list(table.classes)
        names = [clean_name(text) for text in texts]
        for name, text in zip(names, texts, strict=True):
            if not name or names.count(name) > 1:
                problem = f"type {quoted(text)}: its name {name!r} equals another type's; rename the type"
                raise InputError(f"{table.where}: {problem}")
        if names != texts:
            context.notes["relation_names"] = dict(zip(names, texts, strict=True))
        columns, bounds = _group(codes, columns, len(names), context)
    made = []
    for name, low, high in zip(names, bounds, bounds[1:], strict=False):
        own = {key: column[low:high] for key, column in columns.items()}
        made.append(EdgeData((source, name, target), own.pop("src"), own.pop("dst"), table.where, own))
    return made


def _group(
    codes: Ids, columns: dict[str, npt.NDArray[Any]], groups: int, context: ImportContext
) -> tuple[dict[str, npt.NDArray[Any]], list[int]]:
    """Return columns group by group, in their order inside each, and the bounds."""
    counts = sum(np.bincount(codes[part], minlength=groups) for part in chunks(codes.size))
    bounds = np.append(0, np.cumsum(counts))
    out = {name: context.scratch.array(codes.size, column.dtype) for name, column in columns.items()}
    ends = bounds[:-1].copy()
    for part in chunks(codes.size):
        order = np.argsort(codes[part], kind="stable")
        own = codes[part][order]
        places = ends[own] + np.arange(own.size) - np.searchsorted(own, own)
        for name, column in columns.items():
            out[name][places] = column[part][order]
        ends += np.bincount(own, minlength=groups)
    return out, bounds.tolist()


READER = Reader(
    _open_tables,
    COLUMN_OPTIONS | TEXT_OPTIONS | TABLE_OPTIONS | RAW_OPTIONS | {"label"},
    Detector("Neo4j's import files (:ID, :START_ID)", is_typed),
    Detector("a Neo4j import file, a GraphStorm .json", is_typed),
)
