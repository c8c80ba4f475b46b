"""Where the tables of an LDBC dataset lie, and their columns of ids, streamed from text, plain or gzip."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv

from tiering.artifacts.manifest import Relation
from tiering.artifacts.regular import entries, is_folder
from tiering.datasets.readers.ldbc_schema import DELIMITER, EXPLODED, node_type_of_table, relation_of_table
from tiering.datasets.text import Block, read_blocks
from tiering.errors import InputError, shown

PARTS = ("static", "dynamic")
_PART_FILE = re.compile(r"part[-_].*\.csv(\.gz)?")
_TABLE_FILE = re.compile(r"([A-Za-z]+(?:_[A-Za-z]+_[A-Za-z]+)?)(?:_\d+_\d+)?\.csv(?:\.gz)?")
"""A table, or a part of one, in a file: ``person_0_0.csv``; what an update stream holds is called otherwise."""
_ON_THE_WAY = re.compile(r"graphs|csv|raw|bi|initial_snapshot|.*-fk|social_network.*|(out-)?sf[0-9.]+.*", re.IGNORECASE)
"""Folders in which the tables may lie further down."""
_DEPTH = 6
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_HEX_FIELD = re.compile(rb'(?:^|\|)"?-?0[xX]', re.MULTILINE)


@dataclass(frozen=True)
class Table:
    """A table of nodes or of edges, in one file or many."""

    where: str
    """Its folder, or its first file, for messages."""
    files: tuple[Path, ...]


@dataclass(frozen=True)
class Tables:
    """The tables of one dataset."""

    nodes: dict[str, Table]
    edges: dict[Relation, Table]
    exploded: bool
    """Whether attributes of persons with several values have tables of their own."""


def find_roots(path: Path) -> list[Path]:
    """Folders with tables in ``static`` and ``dynamic``, at `path` or below where the generators put them."""
    found, level = [], [path]
    for _ in range(_DEPTH):
        following = []
        for folder in level:
            if all(is_folder(folder / part) for part in PARTS):
                if "Person" in find_tables(folder).nodes:
                    found.append(folder)
            else:
                following += [e for e in entries(folder) if _ON_THE_WAY.fullmatch(e.name) and is_folder(e)]
        level = following
    return found


def find_tables(root: Path) -> Tables:
    """The tables below a root: a folder with parts for each, or files named after them."""
    files: dict[str, list[Path]] = {}
    places: dict[str, str] = {}
    for part in PARTS:
        for entry in entries(root / part):
            if is_folder(entry):
                parts = [file for file in entries(entry) if _PART_FILE.fullmatch(file.name)]
                files.setdefault(entry.name, []).extend(parts)
                places.setdefault(entry.name, str(entry))
            elif named := _TABLE_FILE.fullmatch(entry.name):
                files.setdefault(named[1], []).append(entry)
                places.setdefault(named[1], str(entry))
    nodes, edges = {}, {}
    for name, parts in files.items():
        table = Table(places[name], tuple(parts))
        if (node_type := node_type_of_table(name)) is not None:
            nodes[node_type] = table
        elif (relation := relation_of_table(name)) is not None:
            edges[relation] = table
    exploded = {name.lower() for name in EXPLODED} & {name.lower() for name in files}
    return Tables(nodes, edges, bool(exploded))


class Columns(dict[str, npt.NDArray[np.int64]]):
    """Columns of ids of some rows by what they hold; where `present` names one, its marked rows alone are filled."""

    def __init__(self) -> None:
        super().__init__()
        self.present: dict[str, npt.NDArray[np.bool_]] = {}


Choose = Callable[[Sequence[str], bool], dict[str, int]]
"""From the fields of a file's first line, and whether that is a header: positions of columns by what they hold."""


def read_columns(
    file: Path, what: str, choose: Choose, header: bool | None, may_lack: frozenset[str]
) -> Iterator[Columns]:
    """Columns of ids of a file, block by block; those of `may_lack` may be empty in a row, others are refused then.

    Without `header` the first line is one if its first field begins with a letter: data begin with a date or an id.
    """
    parser: _Parser | None = None
    for block in read_blocks(file, f"reading {what}"):
        if parser is None:
            text = block.raw.lstrip(b"\r\n").split(b"\n", 1)[0].decode(errors="replace").strip("\r")
            if not text.strip():
                continue
            fields = _fields(text)
            named = fields[0][:1].isalpha() if header is None else header
            parser = _Parser(file, choose(fields, named), len(fields), named, may_lack)
        yield parser.parse(block)


class _Parser:
    """Makes arrays of the columns of one file."""

    def __init__(self, file: Path, places: dict[str, int], width: int, header: bool, may_lack: frozenset[str]) -> None:
        self._file, self._places, self._width, self._skip, self._may_lack = file, places, width, header, may_lack

    def parse(self, block: Block) -> Columns:
        """Columns of a block."""
        table = self._table(block.raw)
        if table is None and _filled_lines(block.raw) > self._skip:
            self._refuse(block)
        if _has_hexadecimal(block.raw):
            self._find_damage(block)
        columns = Columns()
        for name, place in self._places.items():
            if table is None:
                columns[name] = np.empty(0, np.int64)
                continue
            column = table.column(str(place))
            if column.null_count and name not in self._may_lack:
                self._refuse(block)
            if column.null_count:
                columns.present[name] = column.is_valid().to_numpy()
                column = column.fill_null(0)
            columns[name] = column.to_numpy()
        self._skip = False
        return columns

    def _table(self, raw: bytes) -> Any:
        """The block parsed, with quotes if it has any, else as it is; ``None`` if it is damaged or has no rows."""
        text = raw if raw.endswith(b"\n") else raw + b"\n"
        for quoted in (True, False) if b'"' in text else (False,):
            try:
                table = pa_csv.read_csv(
                    io.BytesIO(text),
                    pa_csv.ReadOptions(
                        column_names=[str(i) for i in range(self._width)],
                        skip_rows=int(self._skip),
                        block_size=len(text),
                    ),
                    pa_csv.ParseOptions(
                        delimiter=DELIMITER,
                        quote_char='"' if quoted else False,
                        escape_char="\\" if quoted else False,
                    ),
                    pa_csv.ConvertOptions(
                        include_columns=[str(i) for i in self._places.values()],
                        column_types={str(i): pa.int64() for i in self._places.values()},
                        null_values=[""],
                    ),
                )
            except pa.ArrowException:
                continue
            lines = table.num_rows + self._skip
            if not quoted or lines == text.count(b"\n") or lines == _filled_lines(raw):  # an open quote joins lines
                return table
        return None

    def _refuse(self, block: Block) -> None:
        """Raise for a block that is damaged."""
        self._find_damage(block)
        raise InputError(
            f"{self._file}: lines from {block.line} on: expected {self._width} fields in each, found quotes that are "
            "not closed; correct the file"
        )

    def _find_damage(self, block: Block) -> None:
        """Raise for the first line that is damaged, if a line alone is."""
        skip = self._skip
        for number, raw in enumerate(block.raw.split(b"\n"), start=block.line):
            text = raw.decode(errors="replace").strip("\r")
            if not text:
                continue
            if skip:
                skip = False
                continue
            fields = _fields(text)
            if len(fields) != self._width:
                raise InputError(
                    f"{self._file}: line {number}: expected {self._width} fields separated by {DELIMITER}, found "
                    f"{len(fields)}: {shown(text[:80])}; correct the line, or get the file again"
                )
            for name, place in self._places.items():
                field = fields[place].strip()
                if not (field or name in self._may_lack):
                    raise InputError(
                        f"{self._file}: line {number}: expected a whole number as {name}, found nothing; correct the "
                        "line, or get the file again"
                    )
                if field and not (_INTEGER.fullmatch(field) and -(2**63) <= int(field) < 2**63):
                    raise InputError(
                        f"{self._file}: line {number}: expected a whole number below 2^63 as {name}, found "
                        f"{shown(field)}; correct the line, or get the file again"
                    )


def _has_hexadecimal(raw: bytes) -> bool:
    """Whether a field begins so: pyarrow reads 0x1F as 31."""
    return (b"0x" in raw or b"0X" in raw) and _HEX_FIELD.search(raw) is not None


def _filled_lines(raw: bytes) -> int:
    """Lines that are not empty."""
    return sum(1 for line in raw.split(b"\n") if line.strip(b"\r"))


def _fields(line: str) -> list[str]:
    """Fields of a line."""
    if '"' in line:
        try:
            return next(csv.reader([line], delimiter=DELIMITER, escapechar="\\"), [])
        except csv.Error:  # a field of more than 128 KiB
            pass
    return line.split(DELIMITER)
