"""Format ``edgelist``: one edge per line, as SNAP, KONECT and CSV files have it; plain or gzip, streamed.

Lines that start with ``#`` or ``%`` are comments. Fields are separated by tabs, spaces (any number), commas,
semicolons or ``|``. A first line neither of whose ids begins like a number is a header. Cost: one pass over the text,
16 bytes of temporary disk per edge (24 with weights), memory for one block.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv

from tiering.artifacts.regular import require_file
from tiering.datasets.options import COLUMN_OPTIONS, TEXT_OPTIONS, ImportOptions
from tiering.datasets.reader import Reader, Reading, Sign
from tiering.datasets.tables import TableSink, choose_columns, one_line
from tiering.errors import InputError, shown
from tiering.formats.npy_file import read_start
from tiering.formats.protocols import Dataset
from tiering.progress import progress

BLOCK_BYTES = 16 * 1024 * 1024
SUFFIXES = (".txt", ".csv", ".tsv", ".edges", ".edgelist", ".el")
MAX_COLUMNS = 10_000
_COMMENT = re.compile(rb"^[ \t]*[#%][^\n]*\n?", re.MULTILINE)
_BLANKS = re.compile(rb" {2,}")
_EDGE_BLANKS = re.compile(rb"^ | (?=\r?\n|\Z)", re.MULTILINE)
_TAB_TO_SPACE = bytes.maketrans(b"\t", b" ")
_HEX = re.compile(b"0[xX]")
_NUMERIC = re.compile(r"[+-]?(\.?\d.*|nan|inf|infinity)", re.IGNORECASE | re.DOTALL)
_LONE_RETURN = re.compile(rb"\r(?!\n|\Z)")
_OTHERS = {
    b"PK\x03\x04": "a zip archive",
    b"\x1f\x8b": "gzip data that was packed twice",
    b"BZh": "bzip2 data",
    b"\xfd7zXZ": "xz data",
    b"\x28\xb5\x2f\xfd": "zstd data",
    b"\x93NUMPY": "a numpy file",
    b"PAR1": "a parquet file",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
"""How files begin that are no text, after gzip's layer if there is one."""
_BLANK = "blanks"
_DELIMITERS = {"tab": "\t", "\\t": "\t", "space": _BLANK, " ": _BLANK}
_MAP = "map names to numbers 0, 1, 2... first, and correct damaged lines"
_WANTED = {
    "src": ("a whole number as source id", _MAP),
    "dst": ("a whole number as destination id", _MAP),
    "weight": ("a weight", "correct the line"),
}
"""Column -> what belongs in it, and what to do where something else is."""


def _open_edge_list(path: Path, reading: Reading) -> Dataset:
    require_file(path, "a text file of edges")
    reading.used(path)
    parser, sink, line = None, None, 1
    with _open_text(path) as file, progress(path.stat().st_size, "reading edges", "B", scale=True) as bar:
        for block in _blocks(file, path):
            _refuse_lone_returns(block, path, line)
            body = _COMMENT.sub(b"", block) if b"#" in block or b"%" in block else block
            if body.strip():
                if parser is None or sink is None:
                    parser = _Parser(path, body, reading)
                    sink = TableSink(reading.scratch, "weight" in parser.columns)
                for name, values in parser.parse(body, block, line).items():
                    sink.append(name, values, str(path))
            line += block.count(b"\n")
            bar.update(len(block))
    if sink is None or sink.rows() == 0:
        raise InputError(f"{path}: expected edges, found none; was a download interrupted?")
    return sink.finish(path, reading)


def _is_edge_list(path: Path) -> bool:
    named = any(suffix.lower() in SUFFIXES for suffix in path.suffixes[-2:])
    return named and read_start(path, 6) != b"\x93NUMPY"


READER = Reader(
    _open_edge_list,
    takes=COLUMN_OPTIONS | TEXT_OPTIONS,
    file=Sign(f"text ({', '.join(SUFFIXES)}, also .gz)", _is_edge_list),
)


def _open_text(path: Path) -> BinaryIO:
    packed = read_start(path, 2) == b"\x1f\x8b"
    return cast(BinaryIO, gzip.open(path, "rb")) if packed else path.open("rb")


def _blocks(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Blocks that end at the end of a line."""
    rest, first = b"", True
    while True:
        try:
            data = file.read(BLOCK_BYTES)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{path}: damaged or cut gzip data ({error}); get the file again") from error
        if not data:
            break
        if first:
            _require_text(data, path)
            data, first = data.removeprefix(codecs.BOM_UTF8), False
        if b"\0" in data:
            raise InputError(f"{path}: expected text, found binary data; check the path and --format")
        end = data.rfind(b"\n") + 1
        if end:
            yield rest + data[:end]
            rest = data[end:]
            continue
        rest += data
        if len(rest) > 4 * BLOCK_BYTES:
            raise InputError(f"{path}: expected lines of text, found none in {len(rest)} bytes; check the path")
    if rest:
        yield rest


def _require_text(start: bytes, path: Path) -> None:
    if start.startswith(b"%%MatrixMarket"):
        raise InputError(
            f"{path}: a Matrix Market file counts from 1 and may hold one triangle only; convert it first, for "
            "example with scipy.io.mmread, to edge_index.npy"
        )
    for magic, what in _OTHERS.items():
        if start.startswith(magic):
            raise InputError(f"{path}: expected text, found {what}; unpack or convert it first, or choose its --format")


def _refuse_lone_returns(block: bytes, path: Path, line: int) -> None:
    """A carriage return alone ended lines long ago; comments and numbers of lines would go wrong."""
    if block.count(b"\r") == block.count(b"\r\n"):
        return
    alone = _LONE_RETURN.search(block)
    if alone is not None:
        number = line + block.count(b"\n", 0, alone.start())
        raise InputError(
            f"{path}: line {number}: expected lines that end in a line feed, found a carriage return alone; convert "
            f"them, for example with tr '\\r' '\\n'"
        )


class _Parser:
    """Knows delimiter, header and columns, found in the first block."""

    def __init__(self, path: Path, first: bytes, reading: Reading) -> None:
        options = reading.options
        self.path = path
        line = first.lstrip().split(b"\n", 1)[0].decode(errors="replace").strip()
        separator = _delimiter(line, options.delimiter, str(path))
        self.blanks = separator == _BLANK
        self.delimiter = " " if self.blanks else separator
        fields = self._fields(line)
        self.width = len(fields)
        if self.width > MAX_COLUMNS:
            raise InputError(f"{path}: expected at most {MAX_COLUMNS} columns, found {self.width}; check --delimiter")
        self.header = _has_header(fields, options)
        self.columns = choose_columns(fields if self.header else list(map(str, range(self.width))), options, str(path))
        self._skip = self.header
        shown_as = fields if self.header else range(self.width)
        unused = [shown_as[i] for i in range(self.width) if i not in self.columns.values()]
        reading.notes["text"] = {
            "delimiter": separator,
            "header": self.header,
            "columns": {name: shown_as[i] for name, i in self.columns.items()},
            **({"ignored_columns": unused} if unused else {}),
        }

    def _fields(self, line: str) -> list[str]:
        if self.blanks:
            line = " ".join(line.split())
        try:
            parts = next(csv.reader([line], delimiter=self.delimiter), [])
        except csv.Error:  # a field of more than 128 KiB
            parts = line.split(self.delimiter)
        return [part.strip() for part in parts]

    def parse(self, body: bytes, block: bytes, line: int) -> dict[str, npt.NDArray[Any]]:
        """Columns of a block whose first line has number `line` in the file; `body` is the block without comments."""
        text = _single_blanks(body) if self.blanks else body
        if not text.endswith(b"\n"):
            text += b"\n"  # pyarrow cannot skip a header without
        kinds = {str(i): pa.float64() if name == "weight" else pa.int64() for name, i in self.columns.items()}
        try:
            table = pa_csv.read_csv(
                io.BytesIO(text),
                pa_csv.ReadOptions(
                    column_names=[str(i) for i in range(self.width)], skip_rows=int(self._skip), block_size=len(text)
                ),
                pa_csv.ParseOptions(delimiter=self.delimiter, ignore_empty_lines=True),
                pa_csv.ConvertOptions(
                    include_columns=list(kinds), column_types=kinds, null_values=[], strings_can_be_null=False
                ),
            )
        except pa.ArrowException as error:
            self._find_damage(block, line)
            raise InputError(f"{self.path}: lines from {line} on: {one_line(error)}; correct the file") from error
        if _HEX.search(text):  # pyarrow reads 0x1F as 31
            self._find_damage(block, line)
        self._skip = False
        return {name: table.column(str(i)).to_numpy() for name, i in self.columns.items()}

    def _find_damage(self, block: bytes, line: int) -> None:
        """Name the first line that is damaged: pyarrow names rows of the block, at best."""
        skip, first = self._skip, line == 1 and not self.header
        for number, raw in enumerate(block.split(b"\n"), start=line):
            text = raw.decode(errors="replace").strip()
            if not text or text[0] in "#%":
                continue
            if skip:
                skip = False
                continue
            fields = self._fields(text)
            if len(fields) != self.width:
                raise InputError(
                    f"{self.path}: line {number}: expected {self.width} fields, found {len(fields)}: {text[:80]!r}; "
                    "correct the line, or name the --delimiter"
                )
            for name, i in self.columns.items():
                if not _fits(fields[i], name):
                    wanted, remedy = _WANTED[name]
                    hint = "; if this line is a header, say --header" if first else ""
                    raise InputError(
                        f"{self.path}: line {number}: expected {wanted}, found {shown(fields[i])}; {remedy}{hint}"
                    )
            first = False


def _single_blanks(text: bytes) -> bytes:
    """Fields separated by one space each: pyarrow takes one character as delimiter. Cheap where it is so already."""
    text = text.translate(_TAB_TO_SPACE)
    if b"  " in text:
        text = _BLANKS.sub(b" ", text)
    if text[:1] == b" " or text[-1:] == b" " or any(mark in text for mark in (b" \n", b" \r", b"\n ")):
        text = _EDGE_BLANKS.sub(b"", text)
    return text


def _fits(text: str, name: str) -> bool:
    """Whether a field holds what belongs in column `name`."""
    if name != "weight":
        return re.fullmatch("-?[0-9]{1,4000}", text) is not None and -(2**63) <= int(text) < 2**63
    try:
        float(text)
    except ValueError:
        return False
    return True


def _has_header(fields: list[str], options: ImportOptions) -> bool:
    """Whether the first line is a header: neither of the two ids looks like a number, damaged or not."""
    if options.header is not None:
        return options.header
    asked = (options.src_column, options.dst_column)
    if any(column and not column.isdecimal() for column in asked):
        return True
    ends = [position if column is None else int(column[:9]) for position, column in enumerate(asked)]
    return not any(_NUMERIC.fullmatch(fields[end]) for end in ends if end < len(fields))


def _delimiter(line: str, wanted: str | None, where: str) -> str:
    """One character, or `_BLANK` for any number of spaces and tabs."""
    if wanted is not None:
        delimiter = _DELIMITERS.get(wanted, wanted)
        if delimiter != _BLANK and (
            len(delimiter) != 1 or not delimiter.isascii() or delimiter in '0123456789+-."\r\n'
        ):
            raise InputError(f"--delimiter: expected one character, tab or space, found {wanted!r}")
        return delimiter
    for candidate in (",", ";", "|"):
        if candidate in line:
            return candidate
    if len(line.split()) >= 2:
        return _BLANK
    raise InputError(
        f"{where}: expected two ids per line separated by tab, space, comma, semicolon or |, found {line[:80]!r}; "
        "name the --delimiter"
    )
