"""Text and parquet files as tables: columns by role, in pieces of rows, converted to ids, numbers and classes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tiering.artifacts.storage import require_file
from tiering.datasets.edge_sink import find_end_names, find_once
from tiering.datasets.import_context import ImportContext, chunks
from tiering.datasets.name_ids import DIGITS, OtherIdsError, is_text, whole_ids
from tiering.datasets.options import ImportOptions, PerType
from tiering.datasets.readers import edge_list, parquet
from tiering.datasets.splits import SPLIT_FILES, SplitArray
from tiering.datasets.table_specs import ROW, TableSpec, as_texts, neo4j_types, strip_type
from tiering.datasets.text import ColumnParser, TextSyntax, read_blocks
from tiering.datasets.times import check_times
from tiering.errors import InputError, quoted
from tiering.formats.arrow import pa, pc
from tiering.text.options import spell_flag
from tiering.text.progress import note, note_at

_OPTIONS = {  # role of a column -> option that names it, for every table that has it
    "src": "src_column", "dst": "dst_column", "weight": "weight_column", "type": "type_column", "data": "edge_data",
    "id": "id_column", "features": "features", "label": "label", "split": "split_column", "time": "time",
}  # fmt: skip
_IDS = {"src": "sources", "dst": "destinations", "id": "ids"}
_SPLITS = {"train": 0, "val": 1, "valid": 1, "validation": 1, "test": 2}
_ENDINGS = ("", "id", "key", "index", "idx")
_PIECE_ROWS = 1 << 16
_WHOLE = re.compile(r"\s*[+-]?\d+\s*")
_NO_LABEL = re.compile(r"unknown|none|null|nan?|n/a|nil|missing|undefined|unlabell?ed|[?]|--?|\\n", re.IGNORECASE)
_WHOLE_NUMBER = re.compile(r"[+-]?\d+(\.0*)?")


class TableFile:
    """A file or stored stream, its columns chosen by role; columns of a text without header are ``0``, ``1``..."""

    def __init__(self, path: Path, spec: TableSpec, context: ImportContext, columns: Sequence[str] = ()) -> None:
        """`columns`: of other parts of the table, which a text without a header of its own has."""
        self.path, self.spec, self.header, self.names = path, spec, True, list(columns)
        self.rank = 0  # the more, the surer is the header
        self.problem: InputError | None = None  # of a file that holds no rows
        self._options, self._is_sure = context.options, True  # whether a first line of data cannot be a header
        self._titles: tuple[int, int] | None = None  # positions of the ends as comments name them
        self._block_bytes = context.scratch.text_block
        self._stream = context.streams.get(path)
        if self._stream is None:
            require_file(path, "a table")
            context.record_file(path)
        self._is_typed = self._stream is not None or parquet.is_parquet(path)
        if self._is_typed:
            if self._stream is None:
                with parquet.open_file(path) as file:
                    self._schema = file.schema_arrow
            else:
                self._schema = self._stream.schema
            self.names, self.rank = list(self._schema.names), 2
            self._first = self.names
        else:
            names = context.options.string_ids or context.options.time is None or bool(spec.files)  # else as edgelist
            options = replace(context.options, string_ids=names, src_column=None, dst_column=None)
            try:
                self._start, self._parser = edge_list.find_start(path, options, self._make_parser, narrow=True)
            except edge_list.NoRowsError as error:
                self.problem = error

    def choose_columns(self) -> None:
        """Choose the columns by role: those that the table or an option names, else those with usual names."""
        places = {str(place): name for place, name in enumerate(self.names)}
        self.known = places | {strip_type(name): name for name in self.names} | {n: n for n in [*self.names, ROW]}
        self.columns = chosen = dict[str, list[str]]()
        for role in self.spec.roles:
            named = _named(role, self.spec, self._options)
            if role in self.spec.columns and (lacking := [name for name in named if name not in self.known]):
                listed = ", ".join(self.names)[:500]
                raise InputError(f"{self.path}: {lacking[0]}: no such column; there are: {listed}")
            columns = [self.known[name] for name in named if name in self.known]
            chosen[role] = columns or find_usual(role, self.spec, self.names)
        if "data" in chosen:
            chosen["data"] = [name for name in chosen["data"] if name not in chosen["time"]]
        used = set(chain(*chosen.values()))
        free = [name for name in self.names if name not in used]
        if self._titles and "src" in chosen and not (self.header or chosen["src"] or chosen["dst"]):
            chosen |= {end: [str(place)] for end, place in zip(("src", "dst"), self._titles, strict=True)}
        placed = len(self.names if self.header else free) == 2 and (self._is_sure or used)
        if placed and "src" in chosen and not (chosen["src"] or chosen["dst"]):
            chosen.update(src=free[:1], dst=free[1:])
        for role in self.spec.ends:
            if len(chosen[role]) != 1:
                form = "TYPE=FILE:ID" if role == "id" else "SRC:NAME:DST=FILE:SRC,DST"
                header = "" if self.header else " (give --header if this is a header, else --no-header)"
                raise InputError(
                    f"{self.path}: expected a column of {_IDS[role]} of {self.spec.described}, found "
                    f"{', '.join(self._first)[:500]}{header}; name it with {spell_flag(_OPTIONS[role])}, or as {form}"
                )
        if not self._is_typed:
            edge_list.refuse_doubtful(self._parser, any(map(self.holds_names, self.spec.ends)))

    def _make_parser(
        self, syntax: TextSyntax, records: list[list[str]], comments: list[bytes]
    ) -> tuple[ColumnParser, bool]:
        first, self._titles = records[0], edge_list.find_titles(self.path, comments, syntax, len(records[0]))
        numbers = [any(map(edge_list.NUMERIC.fullmatch, fields)) for fields in (*records, [])[:2]]
        wanted = {n for role in self.spec.roles for n in _named(role, self.spec, self._options) if not n.isdecimal()}
        usual = any(find_usual(role, self.spec, first) for role in self.spec.ends)
        named = usual or any({strip_type(field), field} & wanted for field in first)
        heads = numbers == [False, True] or edge_list.heads_numbers(records)
        header = named or heads if self._options.header is None else self._options.header
        if self.names:
            header = named or set(first) == set(self.names)
            if not header and len(first) != len(self.names):
                found = f"expected {len(self.names)} columns as in another part ({', '.join(self.names)[:200]})"
                raise InputError(f"{self.path}: {found}, found {len(first)}: {', '.join(first)[:200]}; correct it")
        self.rank = 2 if header and named else int(header and (heads or not numbers[0]))
        self.header, self._first = header or bool(self.names), first
        self._is_sure = self.header or numbers[0] or self._options.header is not None
        self.names = first if header else self.names or list(map(str, range(len(first))))
        return ColumnParser(self.path, syntax, {}, len(first), named=True), header

    def holds_names(self, role: str) -> bool:
        """Return whether ids in a column are text; of a text file its first row decides."""
        [column] = self.columns[role]
        if self._is_typed or column == ROW:
            return column != ROW and is_text(self._schema.field(column).type)
        _, record = next(self._parser.syntax.records(self._start.raw, 0))
        fields = self._parser.syntax.fields(record)
        position = find_once(column, self.names, str(self.path))
        return position < len(fields) and _WHOLE.fullmatch(fields[position]) is None

    def pieces(self) -> Iterator[tuple[int, dict[str, list[Column]]]]:
        """Yield the rows and the columns by role of each piece of the file."""
        names, row = set(chain(*self.columns.values())) - {ROW}, 0
        positions = {name: find_once(name, self.names, str(self.path)) for name in names}
        for rows, arrays in self._read(positions):
            arrays[ROW] = pa.array(np.arange(row, row + rows))
            for part in chunks(rows, _PIECE_ROWS):  # conversions take several times the bytes of a piece
                made = {
                    role: [Column(n, arrays[n][part], f"{self.path}: column {n}", row + part.start) for n in columns]
                    for role, columns in self.columns.items()
                }
                yield part.stop - part.start, made
            row += rows

    def _read(self, positions: dict[str, int]) -> Iterator[tuple[int, dict[str, Any]]]:
        if self._is_typed:
            blocks = (block for _, block in parquet.read_batches(self.path, list(positions)))
            for batch in blocks if self._stream is None else self._stream.batches():
                yield batch.num_rows, {name: batch.column(name) for name in positions}
            return
        parser = copy(self._parser)  # which counts comments
        parser.columns = {str(place): place for place in {*positions.values()} or {0}}
        for block in read_blocks(self.path, "reading tables", self._start, parser.syntax, most=self._block_bytes):
            if columns := parser.parse(block):
                arrays = {key: column.combine_chunks() for key, column in columns.items()}
                yield len(next(iter(arrays.values()))), {n: arrays[str(place)] for n, place in positions.items()}
        if parser.comments:
            note_at(str(self.path), f": lines skipped as comments: {parser.comments}")


def _times() -> tuple[Any, Any]:
    return pa.timestamp("us"), pa.timestamp("us", "UTC")


def open_parts(paths: Sequence[Path], spec: TableSpec, context: ImportContext) -> list[TableFile]:
    """Return the files of a table that hold rows; those without a header have the columns of one that has it."""
    files = [TableFile(path, spec, context) for path in paths]
    best = max(file.rank for file in files)
    heads = {tuple(file.names): str(file.path) for file in files if file.rank == best > 0}
    if best == 1 and len(heads) > 1:
        found = ", ".join(f"{', '.join(names)[:100]} in {path}" for names, path in list(heads.items())[:2])
        raise InputError(f"{spec.described}: the parts have different headers: {found}; give all parts one header")
    for k, file in enumerate(files if heads else ()):
        if file.rank < best:
            files[k] = TableFile(file.path, spec, context, next(iter(heads)))
    filled = [file for file in files if file.problem is None]
    for file in filled:
        file.choose_columns()
    if files[0].problem is not None and not filled:
        raise files[0].problem
    return filled


def _named(role: str, spec: TableSpec, options: ImportOptions) -> tuple[str, ...]:
    """Return the columns of a role that the table names, or else an option."""
    value = spec.columns.get(role, getattr(options, _OPTIONS[role]))
    return as_texts(value.get(spec.described) if isinstance(value, PerType) else value)


def find_usual(role: str, spec: TableSpec, names: Sequence[str]) -> list[str]:
    """Return the columns that a role may have by their names: one, unless it would be a guess."""
    if role not in _IDS:
        return [name for name in names if name.lower() == "weight"][:1] if role == "weight" else []
    if role in (header := neo4j_types(names)):
        return [header[role][0]]
    if role == "id" and (ids := [name for name in names if name.lower() == "id"]):
        return ids
    if role != "id" and (pair := find_end_names(names)) is not None:
        return [name for name in names if name.lower() == pair[role == "dst"].lower()]
    if role != "id" and spec.ends["src"] == spec.ends["dst"]:
        return []
    wanted = {re.sub("[^a-z0-9]", "", spec.ends[role].lower()) + ending for ending in _ENDINGS}
    return [name for name in names if re.sub("[^a-z0-9]", "", name.lower()) in wanted]


def find_splits(codes: npt.NDArray[np.int64], where: str) -> dict[str, SplitArray]:
    """Return the splits that have rows, from `Column.split_codes` of a table of nodes."""
    rows = {name: np.flatnonzero(codes == code) for code, name in enumerate(SPLIT_FILES)}
    return {name: SplitArray(ids, where) for name, ids in rows.items() if ids.size}


def refuse_unknown(options: ImportOptions, files: Sequence[TableFile]) -> None:
    """Refuse options that name a column which no table has, or are for labels where there are none."""
    if options.no_label and not any(file.columns.get("label") for file in files):
        raise InputError("--no-label: no column of labels is named; name it with --label")
    for role, option in _OPTIONS.items():
        value = getattr(options, option)
        values = (value.default, *value.by_type.values()) if isinstance(value, PerType) else (value,)
        has_role = [file for file in files if role in file.spec.roles and role not in file.spec.columns]
        for column in chain(*map(as_texts, values)):
            if not any(column in file.known for file in has_role):
                shown = (f"{one.path} ({one.spec.described}) has {', '.join(one.names)[:500]}" for one in files)
                problem = f"no table has this column; {'; '.join(shown)[:1000]}; correct it, or name its table"
                raise InputError(f"{spell_flag(option)} {column}: {problem}")


class Column(NamedTuple):
    """A piece of a column, the number of its first row, and where it comes from, for messages."""

    name: str
    array: Any
    where: str
    row: int

    def refuse_nulls(self, array: Any, expected: str) -> None:
        """Raise an error that names the first null of what the column was converted to, if it has one."""
        if count := array.null_count:
            row, more = self.row + pc.index(array.is_null(), True).as_py(), count - 1
            found = f"none at row {row} and {more} more" if more else f"none at row {row}"
            raise InputError(f"{self.where}: expected {expected}, found {found}; fill or remove it")

    def text(self, trim: bool = True) -> Any:
        """Return the text, `trim`: without blanks around it; null where it is empty; ``None`` if it is no text."""
        array = self.array.dictionary_decode() if pa.types.is_dictionary(self.array.type) else self.array
        if not is_text(array.type):
            return None
        array = pc.utf8_trim_whitespace(array) if trim else array
        return pc.if_else(pc.equal(array, ""), pa.scalar(None, array.type), array)

    def strings(self) -> Any:
        """Return text, or numbers as text; null where it is empty."""
        text = self.text()
        return self.convert((pa.string(),), "text or numbers") if text is None else text

    def split_codes(self) -> npt.NDArray[np.int64]:
        """Return the position of each row's split among train, val and test; -1 where the row has none."""
        encoded = self.strings().dictionary_encode()
        words = encoded.dictionary.to_pylist()
        if wrong := [word for word in words if word.lower() not in _SPLITS]:
            expected = "expected train, val (or valid, validation), test, or nothing"
            raise InputError(f"{self.where}: {expected}, found {quoted(wrong[0])}; correct it, or name another column")
        codes = np.array([*(_SPLITS[word.lower()] for word in words), -1], np.int64)
        positions: npt.NDArray[np.int64] = codes[encoded.indices.fill_null(len(words)).to_numpy()]
        return positions

    def convert(
        self, kinds: Sequence[Any], expected: str, remedy: str = "correct it, or name another column",
        cast: Callable[[Any, Any], Any] | None = None,
    ) -> Any:  # fmt: skip
        """Return the values as the first of some types that holds them all; an error names the first row without."""
        text, problem = self.text(), ""
        array = self.array if text is None else text
        for kind in kinds:
            try:
                return (cast or pc.cast)(array, kind)
            except (pa.ArrowException, NotImplementedError) as error:
                problem = str(error)
        for k in range(len(array) if len(array) > 1 else 0):
            self._replace(array=array[k : k + 1], row=self.row + k).convert(kinds, expected, remedy, cast)
        found = quoted(str(array[0])) if len(array) == 1 else f"values of several kinds ({problem[:160]})"
        raise InputError(f"{self.where}: expected {expected}, found {found} at row {self.row}; {remedy}")

    def ids(self, kinds: dict[str, Any], node_type: str) -> Any:
        """Return ids of a type's kind, null where there is none; `OtherIdsError` once `kinds` says another."""
        if (kind := kinds[node_type]) == pa.string() and (text := self.text(trim=False)) is not None:
            return text
        try:
            remedy = "correct it, or give --string-ids if ids are names"
            return self.convert((kind,), "a whole number as id", remedy, whole_ids)
        except OtherIdsError as other:
            kinds[node_type] = other.args[0]
            if kinds[node_type] == pa.string():
                texts = self.strings()
                row = pc.index(pc.match_substring_regex(texts, "^(0|-?[1-9][0-9]{0,17})$"), False).as_py()
                found = f"{texts[row].as_py()!r} at row {self.row + row} is not the usual form of a 64-bit whole number"
                note(f"note: {self.where}: ids are names, since {found}")
            raise

    def numbers(self) -> npt.NDArray[Any]:
        """Return numbers as int64, or float64 with NaN where there is none; times as seconds since 1970."""
        kinds = () if pa.types.is_temporal(self.array.type) else (pa.int64(), pa.float64())
        array = self.convert((*kinds, *_times()), "a number or a time")
        if pa.types.is_temporal(array.type):
            array = array.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
        values: npt.NDArray[Any] = (array.cast(pa.float64(), safe=False) if array.null_count else array).to_numpy(False)
        return values

    def times(self, context: ImportContext) -> npt.NDArray[Any]:
        """Return times as int64, dates in their own unit, or float64: see `tiering.datasets.times.check_times`."""
        text, kind, expected = self.text(), self.array.type, "a number or a date"
        array = self.array if text is None else text
        self.refuse_nulls(array, expected)
        if pa.types.is_boolean(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind):
            raise InputError(f"{self.where}: expected times, {expected} each, found {kind}; convert them")
        if not pa.types.is_temporal(kind):
            whole = (
                pa.types.is_integer(kind) if text is None else pc.all(pc.match_substring_regex(text, DIGITS)).as_py()
            )
            array = self.convert((pa.int64(),) if whole else (pa.float64(), *_times()), expected)
        zoned = getattr(array.type, "tz", None) is not None
        return check_times(self.exact(array.to_numpy(zero_copy_only=False)), self.where, context, self.row, zoned)

    def exact(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the converted values; an error names the first whole number of the column that float64 rounds."""
        if values.dtype.kind == "f" and not pa.types.is_floating(self.array.type):
            for k in np.flatnonzero(np.abs(values) >= 2.0**53):
                number = str(self.array[int(k)]).strip()
                if _WHOLE_NUMBER.fullmatch(number) and Decimal(number) != values[k]:
                    found = f"found {number} at row {self.row + k}; round it"
                    raise InputError(f"{self.where}: expected whole numbers up to 2^53 next to fractions, {found}")
        return values

    def rows(self) -> npt.NDArray[np.float32]:
        """Return a column of numbers, or of lists of one length, as (rows, values)."""
        column = self
        if "list" in str(self.array.type):
            lengths = pc.unique(pc.list_value_length(self.array)).to_pylist()
            if len(lengths) != 1 or not lengths[0]:
                problem = f"expected lists of one length, found lengths {lengths[:5]} from row {self.row} on"
                raise InputError(f"{self.where}: {problem}; pad them")
            column = self._replace(array=self.array.flatten())
        values = column.numbers().reshape(len(self.array), -1)
        for row, k in np.argwhere(np.isfinite(values) & (np.abs(values) > np.finfo(np.float32).max))[:1]:
            problem = f"expected features of float32, up to 3.4e38, found {values[row, k]} at row {self.row + row}"
            raise InputError(f"{self.where}: {problem}; correct it, or scale the column")
        return values.astype(np.float32)


def number_labels(
    codes: npt.NDArray[np.int64], texts: list[str], of: tuple[str, int], context: ImportContext
) -> npt.NDArray[Any]:
    """Return labels `of` so many nodes of a type: numbers, else the position of each text among all; -1 for none."""
    none = {text.removesuffix(".0") for text in context.options.no_label}
    known = sorted(text for text in texts if text.removesuffix(".0") not in none)
    try:
        numbers = {text: float(text) for text in known}
        values = np.array([*(numbers.get(text, np.nan) for text in texts), np.nan])
        if (np.isnan(values) | (values == np.floor(values))).all():
            values = np.nan_to_num(values, nan=-1).astype(np.int64)
    except ValueError:
        positions = {text: position for position, text in enumerate(known)}
        values = np.array([*(positions.get(text, -1) for text in texts), -1])
        context.notes.setdefault("classes", {})[of[0]] = known
        if listed := ",".join(filter(_NO_LABEL.fullmatch, known)):
            note(f"note: {listed}: classes of {of[0]}; give --no-label {listed} if they mean no label")
    out = context.scratch.array(of[1], values.dtype)
    out[codes.size :] = values[-1]
    for part in chunks(codes.size):
        out[part] = values[codes[part]]
    return out
