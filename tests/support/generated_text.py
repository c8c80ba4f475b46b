"""Text files of edges made at random, with what an import must make of them by Python's csv module and by pyarrow.

`generate_text` makes one file: delimiters guessed and given, quotes, line breaks in quotes, comments, line ends, a byte
order mark, gzip, and one mistake in every fourth. `BLOCK_SIZES` are sizes of blocks to read it in, at each of which the
result must be the same.
"""

from __future__ import annotations

import csv
import gzip
import io
import random
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from tiering.datasets.open import open_dataset

Edges = list[tuple[str, str]]
BLOCK_SIZES = (64, 200, 1000, 16 << 20)
BLANK = "space"
NODES = 1000
"""Numbers as ids are below this; option ``num_nodes`` says so."""
_LETTERS = "abcXYZ019 éß漢'-._#%\u2028\x0b"
_DELIMITERS = {"\t": "tab", ",": ",", ";": ";", "|": "|", " ": BLANK}
_BLANK_FIELD = re.compile(r'(?<!\S)"((?:[^"]|"")*)"(?!\S)|(\S+)')


def edges_in_order(path: Path, **options: Any) -> Edges:
    """Edges as the reader of text gives them, by name or by decimal id."""
    with open_dataset(path, "edgelist", work_dir=path.parent, **options) as data:
        edges, names = data.edges[0], data.nodes["node"].names
        ends = zip(edges.src.tolist(), edges.dst.tolist(), strict=True)
        if names is None:
            return [(str(u), str(v)) for u, v in ends]
        return [(names.encoded(u).decode(), names.encoded(v).decode()) for u, v in ends]


@dataclass
class GeneratedText:
    """A text file of edges, and what an import with `options` must make of it."""

    data: bytes
    """The file, plain or gzip."""
    options: dict[str, Any]
    """Options of the import."""
    expected: Edges | None
    """Names, or ids as decimals, of the ends of each edge, by Python's csv module; ``None`` where `error` is said."""
    error: str | None
    """Pattern that the message of the refusal matches."""
    rows: bytes = field(default=b"", repr=False)
    """The file unpacked, without byte order mark, comments and header."""
    delimiter: str = ","
    """One character; a blank stands for any number of blanks and tabs."""
    width: int = 2

    def arrow_edges(self) -> Edges:
        """The edges by pyarrow, parsed as a whole; of fields that are not separated by blanks."""
        names = [str(i) for i in range(self.width)]
        table = pa_csv.read_csv(
            io.BytesIO(self.rows),
            pa_csv.ReadOptions(column_names=names, block_size=len(self.rows) + 1),
            pa_csv.ParseOptions(
                delimiter=self.delimiter, quote_char=False if self.delimiter == "\t" else '"', newlines_in_values=True
            ),
            pa_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), null_values=[], strings_can_be_null=False
            ),
        )
        ends = zip(table.column(0).to_pylist(), table.column(1).to_pylist(), strict=True)
        return [(self._id(u), self._id(v)) for u, v in ends]

    def csv_edges(self) -> list[tuple[str, str]]:
        """The edges by Python's csv module; fields that are separated by blanks by a regular expression."""
        text = self.rows.decode()
        if self.delimiter == " ":
            rows = [[_blank_field(m) for m in _BLANK_FIELD.finditer(line)] for line in text.split("\n")]
        else:
            quoting = csv.QUOTE_NONE if self.delimiter == "\t" else csv.QUOTE_MINIMAL
            rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter, quoting=quoting))
        assert all(len(row) in (0, self.width) for row in rows), self
        return [(self._id(row[0]), self._id(row[1])) for row in rows if row]

    def _id(self, text: str) -> str:
        return text if self.options.get("string_ids") else str(int(text))


def _blank_field(match: re.Match[str]) -> str:
    return match[2] if match[2] is not None else match[1].replace('""', '"')


@dataclass
class _Draft:
    """Choices for one file."""

    rng: random.Random
    delimiter: str
    named: bool
    guessed: bool
    newlines: bool
    comment: str | None
    width: int

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    @property
    def quoting(self) -> bool:
        """Whether quotes mean anything."""
        return self.delimiter != "\t"

    def word(self, extra: str, least: int = 1) -> str:
        """Some characters, of names."""
        return "".join(self.rng.choice(_LETTERS + extra) for _ in range(self.rng.randint(least, 8)))

    def name(self) -> str:
        """A name as the file means it: with whatever the delimiter allows a name to hold."""
        if self.delimiter == " ":
            word = self.word('"').replace("\u2028", "").replace("\x0b", "")
            return word if word.strip(" ") else "blank"
        extra = '"' + ("" if self.guessed else ",;|".replace(self.delimiter, ""))
        if self.quoting:
            extra += "" if self.guessed else "\t" + self.delimiter * 2
            extra += "\n\r" if self.newlines else ""
        elif self.guessed:
            extra += ",;|"
        return self.word(extra)

    def id(self) -> str:
        number = str(self.rng.randrange(NODES))
        return number.zfill(5) if self.chance(0.1) else number

    def field(self, meant: str) -> str:
        """A field as it is written."""
        if not self.quoting:
            return meant
        marks = " " if self.delimiter == " " else self.delimiter + "\n\r"
        must = meant.startswith('"') or any(mark in meant for mark in marks)
        return '"' + meant.replace('"', '""') + '"' if must or self.chance(0.2) else meant

    def line(self, *, plain: bool = False) -> str:
        """A record without its end; `plain`: one that shows the delimiter to whoever guesses."""
        if plain:
            fields = ["Ada", "Bob"] if self.named else ["1", "2"]
            return self.delimiter.join([*fields, *["x"] * (self.width - 2)])
        ends = [self.name() if self.named else self.id() for _ in range(2)]
        rest = ["x", *self.texts()][: self.width - 2]
        fields = [self.field(text) for text in (*ends, *rest)]
        if self.delimiter in "\t " and self.width > 2 and '"' not in "".join(fields) and self.chance(0.2):
            fields[-1] = '"open'  # an ordinary character there
        if not self.named and self.delimiter != " " and self.chance(0.1):
            fields[1] += " "
        if self.delimiter == " ":
            return self.blanks(0) + self.blanks(1).join(fields) + self.blanks(0)
        return self.delimiter.join(fields)

    def texts(self) -> list[str]:
        """What stands in columns that are not read."""
        text = self.name() if self.named or self.delimiter != " " else "word"
        return [text if text.strip() else "text"]

    def blanks(self, least: int) -> str:
        return "".join(self.rng.choice(" \t") for _ in range(self.rng.choice((least, least, 3))))


def _draft(rng: random.Random) -> _Draft:
    delimiter, named = rng.choice("\t\t,,,;| "), rng.random() < 0.6
    guessed = rng.random() < 0.5 and not (named and delimiter == " ")
    newlines = delimiter in ",;|" and rng.random() < 0.4
    comment = rng.choice((None, None, "#", "%", "!"))
    return _Draft(rng, delimiter, named, guessed, newlines, comment, rng.choice((2, 3, 4)))


def generate_text(rng: random.Random) -> GeneratedText:
    """Make one text file of edges at random, and what an import must make of it."""
    draft = _draft(rng)
    options: dict[str, Any] = {"string_ids": True} if draft.named else {"num_nodes": NODES}
    if draft.width > 2 and (draft.named or draft.comment is None):
        options["dst_column"] = 1
    if not draft.guessed:
        options["delimiter"] = _DELIMITERS[draft.delimiter]
    if draft.newlines:
        options["quoted_newlines"] = True
    lines = [draft.line(plain=draft.guessed)]
    lines += [draft.line() for _ in range(rng.choice((1, 5, 40, 300)))]
    lines = [line for line in lines if _is_data(draft, line, first=False)]
    if not lines or not _is_data(draft, lines[0], first=True):
        lines.insert(0, draft.line(plain=True))
    pieces = [(line, True) for line in lines]
    error = _spoil(draft, pieces) if draft.chance(0.25) else None
    if draft.comment is not None:
        options["comment"] = draft.comment
        for _ in range(rng.choice((0, 1, 10))):
            pieces.insert(rng.randrange(len(pieces) + 1), (draft.comment + draft.word('",;|\t'), False))
    pieces = [(piece, is_row) for piece, is_row in pieces for piece, is_row in _with_empty(draft, piece, is_row)]
    if draft.chance(0.3):
        head = draft.delimiter.join(["src", "dst", "note", "more"][: draft.width])
        pieces.insert(0, (head, False))
    if draft.chance(0.4) and (draft.comment is None or not draft.named):
        marks = "#%" if draft.comment is None else draft.comment
        leading = [(rng.choice(marks) + draft.word('",;|\t'), False) for _ in range(rng.choice((1, 3, 30)))]
        pieces = leading + pieces
    return _finished(draft, pieces, options, error)


def _is_data(draft: _Draft, line: str, *, first: bool) -> bool:
    """Whether a line is an edge wherever it stands: no comment, not empty, and no stray carriage return."""
    marks = tuple(draft.comment or "") + (("#", "%") if first or not draft.named else ())
    return bool(line.strip()) and not line.lstrip(" \t").startswith(marks or ("\0",))


def _with_empty(draft: _Draft, piece: str, is_row: bool) -> list[tuple[str, bool]]:
    return [("", True)] * draft.chance(0.02) + [(piece, is_row)]


def _spoil(draft: _Draft, pieces: list[tuple[str, bool]]) -> str:
    """Put one mistake in; the pattern of the message that must follow, in which ``LINE`` is the number of its line."""
    fields = ["Ada", "Bob", *["x"] * (draft.width - 2)] if draft.named else ["1", "2", *["x"] * (draft.width - 2)]
    mistakes = [
        ([*fields, "x", "x"], "line LINE: expected .* fields, found"),
        ([*fields[:-1], "lone\rreturn"], "line LINE: .*carriage return alone"),
    ]
    if draft.delimiter in ",;|":
        mistakes += [([*fields[:-1], '"open'], "line LINE: a quote does not close")] * 3
    if not draft.named:
        mistakes.append((["Bob", *fields[1:]], "line LINE: expected a whole number"))
        if draft.comment != "#":
            mistakes.append((["# no", *fields[1:]], "line LINE: expected .* say --comment '#'"))
    fields, pattern = draft.rng.choice(mistakes)
    at = draft.rng.randrange(1, len(pieces) + 1)
    if draft.newlines and fields[-1] == '"open':  # which any later quote would close
        at, draft.comment = len(pieces), None
    pieces.insert(at, ("\0" + draft.delimiter.join(fields), True))  # marked, to be found when lines are numbered
    return pattern


def _finished(
    draft: _Draft, pieces: list[tuple[str, bool]], options: dict[str, Any], error: str | None
) -> GeneratedText:
    rng, rows, text, number = draft.rng, "", "", 1
    ends = rng.choice((("\n",), ("\r\n",), ("\n", "\r\n")))
    for k, (piece, is_row) in enumerate(pieces):
        if piece.startswith("\0"):
            piece, error = piece[1:], str(error).replace("LINE", str(number))
        written = piece + ("" if k == len(pieces) - 1 and draft.chance(0.3) else rng.choice(ends))
        number += written.count("\n")
        text += written
        rows += written if is_row else ""
    data = text.encode()
    if draft.chance(0.15):
        data = b"\xef\xbb\xbf" + data
    if draft.chance(0.2):
        at = rng.randrange(len(data) + 1)
        data = gzip.compress(data[:at], 1, mtime=0) + gzip.compress(data[at:], 1, mtime=0)
    made = GeneratedText(data, options, None, error, rows.encode(), draft.delimiter, draft.width)
    if error is None:
        made.expected = made.csv_edges()
    return made
