"""Format ``edgelist``: one edge per line, as SNAP, KONECT and CSV files have it; plain or gzip, streamed.

Lines that start with ``#`` or ``%`` are comments. Fields are separated by tabs, spaces (any number), commas,
semicolons or ``|``. A first line neither of whose ids begins like a number is a header. With option ``string_ids`` ids
are names (`tiering.datasets.name_ids`). Cost: one pass over the text, 16 bytes of temporary disk per edge (24 with
weights), memory for one block.
"""

from __future__ import annotations

import re
from pathlib import Path

from tiering.artifacts.regular import require_file
from tiering.datasets.name_ids import NameSink
from tiering.datasets.options import COLUMN_OPTIONS, TEXT_OPTIONS, ImportOptions
from tiering.datasets.reader import Reader, Reading, Sign
from tiering.datasets.tables import TableSink, choose_columns, named_ends
from tiering.datasets.text import BLANK, ColumnParser, read_blocks
from tiering.errors import InputError
from tiering.formats.npy_file import read_start
from tiering.formats.protocols import Dataset

SUFFIXES = (".txt", ".csv", ".tsv", ".edges", ".edgelist", ".el")
MAX_COLUMNS = 10_000
_NUMERIC = re.compile(r"[+-]?(\.?\d.*|nan|inf|infinity)", re.IGNORECASE | re.DOTALL)
_DELIMITERS = {"tab": "\t", "\\t": "\t", "space": BLANK, " ": BLANK}


def _open_edge_list(path: Path, reading: Reading) -> Dataset:
    return read_text(path, reading).finish(path, reading)


def read_text(path: Path, reading: Reading) -> TableSink | NameSink:
    """The columns of a text file of edges, in temporary files."""
    require_file(path, "a text file of edges")
    reading.used(path)
    parser: ColumnParser | None = None
    sink: TableSink | NameSink | None = None
    for block in read_blocks(path, "reading edges"):
        if block.line == 1 and block.raw.startswith(b"%%MatrixMarket"):
            raise InputError(
                f"{path}: expected edges, found a Matrix Market file, which counts from 1; give --format mtx"
            )
        body = block.body()
        if body.strip():
            if parser is None or sink is None:
                parser = _parser(path, body, reading)
                sink = (NameSink if parser.named else TableSink)(reading.scratch, "weight" in parser.columns)
            for name, values in parser.parse(block, body).items():
                sink.append(name, values, str(path))
    if sink is None or sink.rows() == 0:
        raise InputError(f"{path}: expected edges, found none; was a download interrupted?")
    return sink


def _is_edge_list(path: Path) -> bool:
    named = any(suffix.lower() in SUFFIXES for suffix in path.suffixes[-2:])
    return named and read_start(path, 6) != b"\x93NUMPY"


READER = Reader(
    _open_edge_list,
    takes=COLUMN_OPTIONS | TEXT_OPTIONS,
    file=Sign(f"text ({', '.join(SUFFIXES)}, also .gz)", _is_edge_list),
)


def _parser(path: Path, first: bytes, reading: Reading) -> ColumnParser:
    """Delimiter, header and columns, found in the first block."""
    options = reading.options
    line = first.lstrip().split(b"\n", 1)[0].decode(errors="replace").strip()
    delimiter = _delimiter(line, options.delimiter, str(path))
    parser = ColumnParser(path, delimiter)
    fields = parser.fields(line)
    width = len(fields)
    if width > MAX_COLUMNS:
        raise InputError(f"{path}: expected at most {MAX_COLUMNS} columns, found {width}; check --delimiter")
    header = _has_header(fields, options)
    names = fields if header else list(map(str, range(width)))
    parser.choose(choose_columns(names, options, str(path)), width, header, options.string_ids)
    shown_as = fields if header else range(width)
    unused = [shown_as[i] for i in range(width) if i not in parser.columns.values()]
    reading.notes["text"] = {
        "delimiter": delimiter,
        "header": header,
        "columns": {name: shown_as[i] for name, i in parser.columns.items()},
        **({"ignored_columns": unused} if unused else {}),
    }
    return parser


def _has_header(fields: list[str], options: ImportOptions) -> bool:
    """Whether the first line is a header: neither of the two ids looks like a number, damaged or not.

    Where ids are names, whether it has the names that columns of ends have.
    """
    if options.header is not None:
        return options.header
    asked = (options.src_column, options.dst_column)
    if any(column and not column.isdecimal() for column in asked):
        return True
    if options.string_ids:
        return named_ends(fields) is not None
    ends = [position if column is None else int(column[:9]) for position, column in enumerate(asked)]
    return not any(_NUMERIC.fullmatch(fields[end]) for end in ends if end < len(fields))


def _delimiter(line: str, wanted: str | None, where: str) -> str:
    """One character, or `BLANK` for any number of spaces and tabs."""
    if wanted is not None:
        delimiter = _DELIMITERS.get(wanted, wanted)
        if delimiter != BLANK and (len(delimiter) != 1 or not delimiter.isascii() or delimiter in '0123456789+-."\r\n'):
            raise InputError(f"--delimiter: expected one character, tab or space, found {wanted!r}")
        return delimiter
    for candidate in (",", ";", "|"):
        if candidate in line:
            return candidate
    if len(line.split()) >= 2:
        return BLANK
    raise InputError(
        f"{where}: expected two ids per line separated by tab, space, comma, semicolon or |, found {line[:80]!r}; "
        "name the --delimiter"
    )
