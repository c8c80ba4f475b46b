"""Text of numbers in columns, plain or gzip: streamed in blocks of whole lines, parsed, and the damaged line named."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.csv as pa_csv

from tiering.datasets.tables import one_line
from tiering.errors import InputError, shown
from tiering.formats.npy_file import read_start
from tiering.progress import progress

BLOCK_BYTES = 16 * 1024 * 1024
_PARSED_BYTES = 1024 * 1024
"""Of a block, parsed at a time, side by side; lines are shorter."""
BLANK = "blanks"
"""Delimiter: any number of spaces and tabs."""
_COMMENT = re.compile(rb"^[ \t]*[#%][^\n]*\n?", re.MULTILINE)
_BLANKS = re.compile(rb" {2,}")
_EDGE_BLANKS = re.compile(rb"^ | (?=\r?\n|\Z)", re.MULTILINE)
_TAB_TO_SPACE = bytes.maketrans(b"\t", b" ")
_HEX = re.compile(b"0[xX]")
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
_MAP = "correct a damaged line; if ids are names, say --string-ids"
_WANTED = {
    "src": ("a whole number as source id", _MAP),
    "dst": ("a whole number as destination id", _MAP),
    "weight": ("a weight", "correct the line"),
}
"""Column -> what belongs in it, and what to do where something else is."""


@dataclass(frozen=True)
class Block:
    """Whole lines of a file."""

    raw: bytes
    line: int
    """Number of its first line in the file, from 1."""

    def body(self) -> bytes:
        """It without comments."""
        return _COMMENT.sub(b"", self.raw) if b"#" in self.raw or b"%" in self.raw else self.raw

    def after(self, size: int) -> Block:
        """It without the first `size` bytes, which are whole lines."""
        return Block(self.raw[size:], self.line + self.raw.count(b"\n", 0, size))


def starts_with(path: Path, start: bytes) -> bool:
    """Whether a text begins so, plain or gzip."""
    try:
        with _open(path) as file:
            return file.read(len(start)) == start
    except (OSError, EOFError, zlib.error):
        return False


def read_blocks(path: Path, what: str) -> Iterator[Block]:
    """A text file, plain or gzip, block by block; `what` is being read, for the bar of progress."""
    line = 1
    with _open(path) as file, progress(path.stat().st_size, what, "B", scale=True) as bar:
        for raw in _blocks(file, path):
            _refuse_lone_returns(raw, path, line)
            yield Block(raw, line)
            line += raw.count(b"\n")
            bar.update(len(raw))


def _open(path: Path) -> BinaryIO:
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
    for magic, what in _OTHERS.items():
        if start.startswith(magic):
            raise InputError(f"{path}: expected text, found {what}; unpack or convert it first, or choose its --format")


def _refuse_lone_returns(block: bytes, path: Path, line: int) -> None:
    """A carriage return alone ended lines long ago; comments and numbers of lines would go wrong."""
    if b"\r" not in block or block.count(b"\r") == block.count(b"\r\n"):
        return
    alone = _LONE_RETURN.search(block)
    if alone is not None:
        number = line + block.count(b"\n", 0, alone.start())
        raise InputError(
            f"{path}: line {number}: expected lines that end in a line feed, found a carriage return alone; convert "
            f"them, for example with tr '\\r' '\\n'"
        )


class ColumnParser:
    """Makes arrays of the columns of a text: ids, and weights."""

    def __init__(self, path: Path, delimiter: str) -> None:
        self.path, self.blanks = path, delimiter == BLANK
        self.delimiter = " " if self.blanks else delimiter
        self.width, self.columns, self.header, self.named = 0, dict[str, int](), False, False

    def choose(self, columns: dict[str, int], width: int, header: bool, named: bool = False) -> None:
        """Say which columns (``src``, ``dst``, ``weight``) of how many are wanted, and what is in the file."""
        self.columns, self.width, self.header, self.named = columns, width, header, named
        self._skip = header

    def fields(self, line: str) -> list[str]:
        """Fields of a line."""
        if self.blanks:
            line = " ".join(line.split())
        try:
            parts = next(csv.reader([line], delimiter=self.delimiter), [])
        except csv.Error:  # a field of more than 128 KiB
            parts = line.split(self.delimiter)
        return [part.strip() for part in parts]

    def parse(self, block: Block, body: bytes) -> dict[str, Any]:
        """Columns of a block as numpy arrays, names as pyarrow arrays; `body` is the block without comments."""
        text = body if body.endswith(b"\n") else body + b"\n"  # pyarrow cannot skip a header without
        table = self._parse_single_blanks(text)
        if table is None:
            text = _single_blanks(text) if self.blanks else text
            table = self._parse_whole(text, block)
        if not self.named and (b"x" in text or b"X" in text) and _HEX.search(text):  # pyarrow reads 0x1F as 31
            self._find_damage(block)
        self._skip = False
        columns = {name: table.column(str(i)) for name, i in self.columns.items()}
        return {
            name: column if self.named and name != "weight" else column.to_numpy() for name, column in columns.items()
        }

    def _parse_single_blanks(self, text: bytes) -> pa.Table | None:
        """The table of a text with a single blank between fields, which most are: to look first takes longer than to
        parse. ``None``: it is another text, or has columns that are not looked at and may hide what is wrong.
        """
        if not self.blanks or self.named or len(self.columns) != self.width:
            return None
        try:
            return self._parse(text, "\t" if b"\t" in text[: text.index(b"\n")] else " ")
        except pa.ArrowException:
            return None

    def _parse_whole(self, text: bytes, block: Block) -> pa.Table:
        """The table of a text; raises what is wrong with it."""
        try:
            return self._parse(text, self.delimiter)
        except pa.ArrowException:  # perhaps for a long line alone
            pass
        try:
            return self._parse(text, self.delimiter, len(text))
        except pa.ArrowException as error:
            self._find_damage(block)
            raise InputError(f"{self.path}: lines from {block.line} on: {one_line(error)}; correct the file") from error

    def _parse(self, text: bytes, delimiter: str, block_size: int = _PARSED_BYTES) -> pa.Table:
        ids = pa.string() if self.named else pa.int64()
        kinds = {str(i): pa.float64() if name == "weight" else ids for name, i in self.columns.items()}
        return pa_csv.read_csv(
            io.BytesIO(text),
            pa_csv.ReadOptions(
                column_names=[str(i) for i in range(self.width)], skip_rows=int(self._skip), block_size=block_size
            ),
            pa_csv.ParseOptions(delimiter=delimiter, ignore_empty_lines=True),
            pa_csv.ConvertOptions(
                include_columns=list(kinds), column_types=kinds, null_values=[], strings_can_be_null=False
            ),
        )

    def _find_damage(self, block: Block) -> None:
        """Name the first line that is damaged: pyarrow names rows of the block, at best."""
        skip, first = self._skip, block.line == 1 and not self.header
        for number, raw in enumerate(block.raw.split(b"\n"), start=block.line):
            text = raw.decode(errors="replace").strip()
            if not text or text[0] in "#%":
                continue
            if skip:
                skip = False
                continue
            fields = self.fields(text)
            if len(fields) != self.width:
                raise InputError(
                    f"{self.path}: line {number}: expected {self.width} fields, found {len(fields)}: {text[:80]!r}; "
                    "correct the line, or name the --delimiter"
                )
            for name, i in self.columns.items():
                if (name == "weight" or not self.named) and not _fits(fields[i], name):
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
