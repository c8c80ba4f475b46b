"""Format ``mtx``: a square sparse matrix of the Matrix Market, plain or gzip, streamed: entry (i, j) is edge i -> j.

Indices count from 1. A symmetric matrix holds one triangle: an entry off the diagonal is two edges, i -> j and then
j -> i. Values (real, integer) are weights if ``--weight-column value`` asks for them. Cost: as of text
(`tiering.datasets.readers.edge_list`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.regular import require_file
from tiering.datasets.options import node_count
from tiering.datasets.reader import Reader, Reading, Sign
from tiering.datasets.tables import TableSink
from tiering.datasets.text import BLANK, Block, ColumnParser, TextSyntax, read_blocks, starts_with
from tiering.errors import InputError, shown
from tiering.formats.protocols import Dataset
from tiering.progress import note

BANNER = b"%%MatrixMarket"
VALUE_COLUMN = ("value", "2")
"""Names of the column of values, for option ``weight_column``."""
_FIELDS = ("pattern", "real", "integer")
_SYMMETRIES = ("general", "symmetric", "skew-symmetric")
_ENDS = {"src": "row", "dst": "column"}


@dataclass(frozen=True)
class _Header:
    """What a file says before its entries."""

    field: str
    symmetry: str
    nodes: int
    entries: int


def _open_matrix(path: Path, reading: Reading) -> Dataset:
    require_file(path, "a Matrix Market file")
    reading.used(path)
    kind: tuple[str, str] | None = None
    entries: _Entries | None = None
    for block in read_blocks(path, "reading entries"):
        if kind is None:
            kind = _kind(path, block)
        if entries is None:
            size = _size_line(path, block)
            if size is None:
                continue
            header, block = _Header(*kind, *size[:2]), size[2]
            entries = _Entries(path, header, reading)
        entries.take(block)
    if entries is None:
        raise InputError(
            f"{path}: expected a line of rows, columns and entries, found none; was a download interrupted?"
        )
    return entries.finish(reading)


def _kind(path: Path, block: Block) -> tuple[str, str]:
    """Field and symmetry from the first line."""
    banner = block.raw.split(b"\n", 1)[0].decode(errors="replace").lower().split()
    if banner[:1] != [BANNER.decode().lower()] or len(banner) != 5:
        raise InputError(
            f"{path}: expected a Matrix Market header of five words, such as %%MatrixMarket matrix coordinate pattern "
            f"general, found {shown(' '.join(banner))}; correct it"
        )
    _, what, layout, field, symmetry = banner
    if (what, layout) != ("matrix", "coordinate") or field not in _FIELDS or symmetry not in _SYMMETRIES:
        raise InputError(
            f"{path}: expected a Matrix Market matrix coordinate, {'/'.join(_FIELDS)}, {'/'.join(_SYMMETRIES)}, found "
            f"{' '.join(banner[1:])}; convert it, for example with scipy.io.mmread and mmwrite"
        )
    return field, symmetry


def _size_line(path: Path, block: Block) -> tuple[int, int, Block] | None:
    """Nodes, entries and what follows, by the first line that is no comment; `None` if the block has none."""
    match = re.compile(rb"(?:[ \t\r]*(?:%[^\n]*)?\n)*([^%\s][^\n]*|[ \t]+[^%\s][^\n]*)(?:\n|\Z)").match(block.raw)
    if match is None:
        return None
    text = match[1].decode(errors="replace").strip()
    line = block.line + block.raw.count(b"\n", 0, match.start(1))
    if not re.fullmatch(r"\d{1,18}\s+\d{1,18}\s+\d{1,18}", text):
        raise InputError(f"{path}: line {line}: expected numbers of rows, columns and entries, found {shown(text)}")
    rows, columns, entries = map(int, text.split())
    if rows != columns:
        raise InputError(
            f"{path}: line {line}: expected a square matrix, of which a row and a column are a node, found {rows} x "
            f"{columns}; write edges between two types of nodes as format igb or csr"
        )
    return node_count(rows, f"{path}: line {line}"), entries, block.after(match.end())


class _Entries:
    """Takes entries, makes edges of them, and checks them against the header."""

    def __init__(self, path: Path, header: _Header, reading: Reading) -> None:
        self._path, self._header, self._taken = path, header, 0
        self._sides: set[str] = set()
        width, asked = 2 if header.field == "pattern" else 3, reading.options.weight_column
        if asked is not None and (asked not in VALUE_COLUMN or width == 2):
            has = "this one has no values: leave it out" if width == 2 else "say value"
            raise InputError(f"{path}: --weight-column: expected value, found {shown(asked)}; {has}")
        columns = {"src": 0, "dst": 1, **({} if asked is None else {"weight": 2})}
        self._parser = ColumnParser(path, TextSyntax(BLANK, comment="%"), columns, width)
        self._sink = TableSink(reading.scratch, asked is not None)
        ignored = {"ignored_columns": ["value"]} if width == 3 and asked is None else {}
        reading.notes["matrix"] = {
            "field": header.field,
            "symmetry": header.symmetry,
            "entries": header.entries,
            **ignored,
        }

    def take(self, block: Block) -> None:
        columns = self._parser.parse(block)
        if not columns:
            return
        for name, what in _ENDS.items():
            self._check(columns[name], what)
        self._taken += columns["src"].shape[0]
        if self._taken > self._header.entries:
            raise self._wrong_count(f"{self._taken} and more")
        columns |= {name: columns[name] - 1 for name in _ENDS}
        if self._header.symmetry != "general":
            columns = self._both_directions(columns)
        for name, values in columns.items():
            self._sink.append(name, values, str(self._path))

    def _check(self, ids: npt.NDArray[np.int64], what: str) -> None:
        wrong = (ids < 1) | (ids > self._header.nodes)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise InputError(
                f"{self._path}: entry {self._taken + at + 1}: expected a {what} of 1 to {self._header.nodes}, found "
                f"{ids[at]}; correct the file"
            )

    def _both_directions(self, columns: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Each entry off the diagonal twice, the second time reversed; one triangle must be empty."""
        src, dst = columns["src"], columns["dst"]
        self._sides |= {side for side, there in (("below", (src > dst).any()), ("above", (src < dst).any())) if there}
        if len(self._sides) == 2:
            raise InputError(
                f"{self._path}: expected one triangle of a {self._header.symmetry} matrix, found entries above and "
                "below the diagonal; say general in the first line if all entries are there"
            )
        times = np.where(src == dst, 1, 2)
        second = np.zeros(int(times.sum()), bool)
        second[(np.cumsum(times) - 1)[times == 2]] = True
        once = {name: np.repeat(values, times) for name, values in columns.items()}
        if "weight" in once and self._header.symmetry == "skew-symmetric":
            once["weight"] = np.where(second, -once["weight"], once["weight"])
        return {
            **once,
            "src": np.where(second, once["dst"], once["src"]),
            "dst": np.where(second, once["src"], once["dst"]),
        }

    def finish(self, reading: Reading) -> Dataset:
        if self._taken != self._header.entries:
            raise self._wrong_count(str(self._taken))
        if self._parser.comments:
            note(f"note: {self._path}: lines left out as comments: {self._parser.comments}")
        if self._taken == 0:
            raise InputError(f"{self._path}: expected edges, found a matrix without entries")
        return self._sink.finish(self._path, reading, self._header.nodes)

    def _wrong_count(self, count: str) -> InputError:
        return InputError(
            f"{self._path}: expected {self._header.entries} entries as its header says, found {count}; was a download "
            "interrupted?"
        )


def _is_matrix(path: Path) -> bool:
    return ".mtx" in [suffix.lower() for suffix in path.suffixes[-2:]] or starts_with(path, BANNER)


READER = Reader(
    _open_matrix,
    takes=frozenset({"weight_column"}),
    file=Sign("a Matrix Market file (.mtx, also .gz)", _is_matrix),
)
