"""Text of numbers in columns, plain or gzip: streamed in blocks of whole lines, parsed, and the damaged line named."""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

from tiering.datasets.import_context import one_line
from tiering.datasets.name_ids import OtherIdsError
from tiering.datasets.unread import refuse_unread
from tiering.errors import InputError, TieringError, quoted
from tiering.formats.arrow import pa, pa_csv
from tiering.formats.npy_file import read_start
from tiering.text.progress import progress

BLOCK_BYTES = 16 * 1024 * 1024
_PARSED_BYTES = 1024 * 1024  # bytes of a block that are parsed together; lines are shorter
_SAMPLE_BYTES = 64 * 1024  # bytes of the first lines of data, by which the delimiter is guessed
MAX_COLUMNS = 10_000
_BANNER = b"%%MatrixMarket"  # first bytes of a file of the Matrix Market
BLANK = "space"  # delimiter: any number of spaces and tabs
_BLANKS = re.compile(rb" {2,}")
_EDGE_BLANKS = re.compile(rb"^ | (?=\r?\n|\Z)", re.MULTILINE)
_TAB_TO_SPACE = bytes.maketrans(b"\t", b" ")
_BLANK_TOKEN = re.compile(rb'(?<![^ \t\n])(?:("(?:[^"\n]|"")*"(?![^ \t\r\n]))|("[^ \t\r\n]*))|[ \t]+')
_LOOSE = re.compile(rb"[ \t]*\d+(?! *\t *\d)[ \t]+\d")  # two numbers that something else than one tab separates
_MOST = 0.9  # of the lines: the others may be damaged
_EMPTY_LINE = re.compile(rb"^\r?\n", re.MULTILINE)
_HEX = re.compile(b"0[xX]")
_LONE_RETURN = re.compile(rb"\r(?!\n|\Z)")
_OTHERS = {  # first bytes of files that are no text, after gzip's layer if there is one
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
_MAP = "correct a damaged line; give --string-ids if ids are names"
_WANTED = {  # column -> what belongs in it, and what to do where something else is
    "src": ("a whole number as source id", _MAP),
    "dst": ("a whole number as destination id", _MAP),
    "weight": ("a weight", "correct the line"),
}


class TextSyntax:
    """The delimiter, whether quoted fields may hold line breaks, and the character that begins comments, if any."""

    def __init__(self, delimiter: str, newlines: bool = False, comment: str = "") -> None:
        self.blanks, self.newlines = delimiter == BLANK, newlines
        self.delimiter = " " if self.blanks else delimiter
        self.quotes = delimiter not in ("\t", BLANK)
        self._mark, mark = comment.encode() or b"\0", re.escape(self.delimiter.encode())  # no text holds NUL
        comment_line = rb"^%s%s[^\n]*\n?" % (rb"[ \t]*" if self.blanks else b"", re.escape(self._mark))
        self._comment = re.compile(comment_line, re.MULTILINE)
        self._token = re.compile(rb'(%s)|(?:^|%s)"[^"]*(?:""[^"]*)*("|\Z)' % (comment_line, mark), re.MULTILINE)
        self._field = re.compile(rb'(?:"([^"]*(?:""[^"]*)*)")?([^%s]*)%s' % (mark, mark))

    def fields(self, record: bytes) -> list[str]:
        """Return the fields of a record without blanks around them, at most one more than `MAX_COLUMNS`."""
        record = record.removesuffix(b"\r")
        if self.delimiter == "\t":
            parts = iter(record.split(b"\t"))
        else:
            found = self._field.finditer(self.single_blanks(record) + self.delimiter.encode())
            parts = ((field[1] or b"").replace(b'""', b'"') + field[2] for field in found)
        return [part.decode(errors="replace").strip() for part in islice(parts, MAX_COLUMNS + 1)]

    def single_blanks(self, text: bytes) -> bytes:
        """Return text as pyarrow takes it: one space where `BLANK` separates fields, and quotes as in CSV."""
        if not self.blanks:
            return text
        if b'"' in text:
            # One space for blanks; a quoted field as it is; in quotes of CSV one that begins with an ordinary quote.
            text = _BLANK_TOKEN.sub(lambda t: t[1] or (b'"%s"' % t[2].replace(b'"', b'""') if t[2] else b" "), text)
        else:
            text = text.translate(_TAB_TO_SPACE)
            text = _BLANKS.sub(b" ", text) if b"  " in text else text
        if text[:1] == b" " or text[-1:] == b" " or any(mark in text for mark in (b" \n", b" \r", b"\n ")):
            text = _EDGE_BLANKS.sub(b"", text)
        return text

    def masked(self, text: bytes) -> bytes:
        """Return text of the same size whose line ends are ends of records: quotes in place of quoted fields."""
        if not (self.newlines and b'"' in text):
            return text
        return self._token.sub(lambda token: token[0] if token[1] else b'"' * len(token[0]), text)

    def without_comments(self, text: bytes) -> tuple[bytes, int]:
        """Return text without comments, and their number."""
        comments = list(self._comment.finditer(self.masked(text))) if self._mark in text else []
        cuts = [0, *(place for comment in comments for place in comment.span()), len(text)]
        return b"".join(text[cuts[k] : cuts[k + 1]] for k in range(0, len(cuts), 2)), len(comments)

    def records(self, text: bytes, line: int) -> Iterator[tuple[int, bytes]]:
        """Yield the first line number and the text of each record that is neither empty nor a comment."""
        begin = 0
        for masked in self.masked(text).split(b"\n"):
            record = text[begin : begin + len(masked)]
            if record.strip(b" \t\r" if self.blanks else b"\r") and not self._comment.match(record):
                yield line, record
            line, begin = line + record.count(b"\n") + 1, begin + len(masked) + 1

    def open_quote(self, text: bytes) -> int | None:
        """Return the position of the first quoted field that does not close (on its line, without line breaks)."""
        tokens = self._token.finditer(text) if self.quotes and b'"' in text else iter(())
        wrong = (t for t in tokens if not t[1] and not (t[2] and (self.newlines or b"\n" not in t[0])))
        return next((token.start() + (token[0][:1] != b'"') for token in wrong), None)

    def refuse_open_quote(self, text: bytes, path: Path, line: int) -> None:
        """Refuse a field in quotes that does not close; `line` is the number of the first line of `text`."""
        if (at := self.open_quote(text)) is not None:
            number, found = line + text.count(b"\n", 0, at), text[at : at + 80].split(b"\n")[0].decode(errors="replace")
            remedy = "" if self.newlines else ", or give --quoted-newlines if fields contain line breaks"
            raise InputError(
                f"{path}: line {number}: a quote does not close{'' if self.newlines else ' on its line'}, found "
                f"{found!r}; correct the line{remedy}"
            )


def guess_delimiter(sample: bytes, named: bool, newlines: bool, where: str, narrow: bool = False) -> str:
    """Return the delimiter that most of the first lines have; blanks separate numbers only: names may hold them."""
    plain = re.sub(rb'"[^"]*(?:"|\Z)' if newlines else rb'"[^"\n]*"', b"", sample)

    def fraction(mark: bytes, text: bytes) -> float:
        lines = [line for line in text.split(b"\n") if line.strip()]
        return sum(mark in line for line in lines) / max(1, len(lines))

    tabs = fraction(b"\t", sample)
    marks = [mark for mark in ",;|" if fraction(mark.encode(), plain) > _MOST]
    first, counts = sample.split(b"\n")[0], {line.count(b"\t") for line in sample.split(b"\n") if line.strip()}
    if tabs == 1 and not named and (_LOOSE.match(sample) or len(counts) > 1):  # blanks are as good between numbers
        return BLANK
    if tabs == 1 and (not marks or fraction(b"\t", plain) == 1):
        return "\t"
    if named and len(marks) + (tabs > _MOST) > 1:
        both = " and ".join(["tabs", *marks] if tabs > _MOST else marks)
        raise InputError(f"{where}: expected one delimiter, found {both} in most lines; give --delimiter")
    marks += [mark for mark in "\t,;|"[not named :] if mark.encode() in plain.split(b"\n")[0]]
    if not marks and not named and len(first.split()) >= 2:
        return BLANK
    if not marks and narrow:
        return ","
    if not marks:
        what, blanks = ("names", ", such as space where no name holds one") if named else ("ids", "")
        raise InputError(
            f"{where}: expected two {what} per line separated by {'' if named else 'space, '}tab, comma, semicolon or "
            f"|, found {first[:80].decode(errors='replace')!r}; give --delimiter{blanks}"
        )
    return marks[0]


@dataclass(frozen=True)
class TextBlock:
    """Whole lines of a file."""

    raw: bytes
    line: int = 1  # number of its first line in the file, from 1
    offset: int = 0  # position of its first byte in the file, unpacked

    def after(self, size: int) -> TextBlock:
        """Return the block without its first `size` bytes, which are whole lines."""
        return TextBlock(self.raw[size:], self.line + self.raw.count(b"\n", 0, size), self.offset + size)


def is_mtx(path: Path) -> bool:
    """Return whether a text, plain or gzip, begins like a file of the Matrix Market."""
    try:
        with _open(path) as file:
            return file.read(len(_BANNER)) == _BANNER
    except (OSError, EOFError, zlib.error):
        return False


def read_blocks(
    path: Path, what: str, start: TextBlock | None = None, syntax: TextSyntax | None = None, strict: bool = True,
    most: int = _PARSED_BYTES,
) -> Iterator[TextBlock]:  # fmt: skip
    """Read a text, plain or gzip, from `start` on, in blocks of records, of `most` bytes; `strict`: no lone returns."""
    syntax, start = syntax or TextSyntax("\t"), start or TextBlock(b"")
    line, offset = start.line, start.offset
    with _open(path) as file, progress(path.stat().st_size, what, "B", scale=True) as bar:
        file.seek(offset)
        for raw in _blocks(file, path, line, syntax, min(BLOCK_BYTES, most)):
            if offset == 0 and raw.startswith(codecs.BOM_UTF8):
                raw, offset = raw.removeprefix(codecs.BOM_UTF8), len(codecs.BOM_UTF8)
            # Carriage returns alone once ended lines: comments and line numbers would be wrong.
            returns = strict and b"\r" in raw and raw.count(b"\r") > raw.count(b"\r\n")
            if returns and (alone := _LONE_RETURN.search(syntax.masked(raw))) is not None:
                number = line + raw.count(b"\n", 0, alone.start())
                problem = f"line {number}: expected lines that end in a line feed, found a carriage return alone"
                raise InputError(f"{path}: {problem}; convert them, for example with tr '\\r' '\\n'")
            yield TextBlock(raw, line, offset)
            line += raw.count(b"\n")
            offset += len(raw)
            bar.update(len(raw))


def find_data(path: Path, start: TextBlock, comments: bytes, strict: bool) -> tuple[TextBlock, list[bytes]]:
    """Return up to 64 KiB after lines that are empty or begin with pattern `comments`, and the begins of the latter."""
    skipped = re.compile(rb"[ \t\r]*(?:\n|\Z)|(%s[^\n]*(?:\n|\Z))" % comments)
    sample, found = TextBlock(b""), []
    for block in read_blocks(path, "reading edges", start, strict=strict):
        at = 0
        while not sample.raw and at < len(block.raw) and (line := skipped.match(block.raw, at)) is not None:
            at = line.end()
            found += [line[1][:1000]] if line[1] is not None else []
        sample = TextBlock(sample.raw + block.raw, sample.line, sample.offset) if sample.raw else block.after(at)
        if len(sample.raw) >= _SAMPLE_BYTES:
            break
    return replace(sample, raw=sample.raw[: sample.raw.rfind(b"\n", 0, _SAMPLE_BYTES) + 1] or sample.raw), found


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    packed = read_start(path, 2) == b"\x1f\x8b"
    with path.open("rb") as file:
        yield cast(BinaryIO, gzip.GzipFile(fileobj=file)) if packed else file


def _blocks(file: BinaryIO, path: Path, line: int, syntax: TextSyntax, size: int) -> Iterator[bytes]:
    """Yield blocks that end at the end of a record; `line` is the number of the first line."""
    rest, first = b"", file.tell() == 0
    while True:
        try:
            data = file.read(size)
        except TieringError:
            raise
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{path}: damaged or truncated gzip data ({error}); get the file again") from error
        if not data:
            break
        what = next((what for magic, what in _OTHERS.items() if first and data.startswith(magic)), "")
        if what:
            refuse_unread([path])
            advice = "unpack or convert it first, or give its --format"
            raise InputError(f"{path}: expected text, found {what}; {advice}")
        first = False
        if b"\0" in data:
            raise InputError(f"{path}: expected text, found binary data; check the path and --format")
        if b"\n" not in data and len(rest) + len(data) <= 4 * BLOCK_BYTES:
            rest += data
            continue
        data = rest + data
        end = syntax.masked(data).rfind(b"\n") + 1
        if end:
            yield data[:end]
            line += data.count(b"\n", 0, end)
        rest = data[end:]
        if len(rest) > 4 * BLOCK_BYTES:
            syntax.refuse_open_quote(rest, path, line)
            raise InputError(f"{path}: expected lines of text, found none in {len(rest)} bytes; check the path")
    if rest:
        if syntax.newlines:
            syntax.refuse_open_quote(rest, path, line)
        yield rest


class ColumnParser:
    """A parser of columns of a text, ids and weights, to arrays."""

    def __init__(
        self, path: Path, syntax: TextSyntax, columns: dict[str, int], width: int, named: bool = False
    ) -> None:
        """`columns` (``src``, ``dst``, ``weight``) of `width` are wanted; `named`: ids are names."""
        if width > MAX_COLUMNS:
            raise InputError(f"{path}: expected at most {MAX_COLUMNS} columns, found more; check --delimiter")
        self.path, self.syntax, self.columns, self.width, self.named = path, syntax, columns, width, named
        self.comments = 0  # comments skipped so far
        self.first = 0  # number of the first line, if it is data that might be a header
        self.first_id = 0  # least id
        self.dense = False  # whether ids are made dense
        self.doubtful = list[bytes]()  # comments before the first edge with as many fields
        self.counts = [0, 0]  # line 1, if it may be the numbers of nodes and edges

    def parse(self, block: TextBlock) -> dict[str, Any]:
        """Return the columns of a block as numpy arrays, names as pyarrow arrays; empty if it has no records."""
        text, comments = self.syntax.without_comments(block.raw)
        self.comments += comments
        if not text.strip(b" \t\r\n" if self.syntax.blanks else b"\r\n"):
            return {}
        text = text if text.endswith(b"\n") else text + b"\n"
        table = None
        # Most texts have a single blank between fields, and to look first takes longer than to parse. Columns that are
        # not looked at might hide what is wrong.
        if self.syntax.blanks and not self.named and len(self.columns) == self.width and b'"' not in text:
            with suppress(pa.ArrowException):
                table = self._parse(text, "\t" if b"\t" in text[: text.index(b"\n")] else " ")
        if table is None:
            text = self.syntax.single_blanks(text)
            table = self._parse_whole(text, block)
        if not self.named and (b"x" in text or b"X" in text) and _HEX.search(text):  # pyarrow reads 0x1F as 31
            self.find_damage(block)
        columns = ((name, table.column(str(i))) for name, i in self.columns.items())
        return {name: column if pa.types.is_string(column.type) else column.to_numpy() for name, column in columns}

    def _parse_whole(self, text: bytes, block: TextBlock) -> pa.Table:
        """Return the table of a text; `InputError` names the damaged line."""
        problem = ""
        for size in (_PARSED_BYTES, len(text)):  # perhaps a long line alone is in the way
            try:
                table = self._parse(text, self.syntax.delimiter, size)
            except pa.ArrowException as error:
                problem = one_line(error)
                continue
            if not self.syntax.quotes or self.syntax.newlines or b'"' not in text:
                return table
            last, lines = text.rstrip(b"\r\n"), text.count(b"\n") - len(_EMPTY_LINE.findall(text))
            if table.num_rows == lines and self.syntax.open_quote(last[last.rfind(b"\n") + 1 :]) is None:
                return table
            problem = f"{table.num_rows} rows"
        self.find_damage(block)
        raise InputError(f"{self.path}: lines from {block.line} on: {problem}; correct the file")

    def _parse(self, text: bytes, delimiter: str, block_size: int = _PARSED_BYTES) -> pa.Table:
        ids, quoted = pa.string() if self.named else pa.int64(), delimiter != "\t" and b'"' in text
        kinds = {str(i): pa.float64() if name == "weight" else ids for name, i in self.columns.items()}
        names, size = [str(i) for i in range(self.width)], len(text) + 1 if quoted else block_size
        # A copy that knows no Python: threads of Arrow that drop it while the interpreter ends would abort.
        copy = pa.allocate_buffer(len(text))
        pa.FixedSizeBufferWriter(copy).write(text)
        return pa_csv.read_csv(
            pa.BufferReader(copy),
            # Each thread of Arrow keeps memory: with little memory blocks are small, and this thread parses alone.
            pa_csv.ReadOptions(column_names=names, block_size=size, use_threads=len(text) > 2 * _PARSED_BYTES),
            pa_csv.ParseOptions(delimiter=delimiter, quote_char='"' if quoted else False, newlines_in_values=quoted),
            pa_csv.ConvertOptions(include_columns=list(kinds), column_types=kinds, null_values=[]),
        )

    def find_damage(self, block: TextBlock) -> None:
        """Raise an error that names the first damaged line: pyarrow names rows of the block, at best."""
        if not self.syntax.newlines:
            self.syntax.refuse_open_quote(block.raw, self.path, block.line)
        for number, record in self.syntax.records(block.raw, block.line):
            fields, start = self.syntax.fields(record), record[:80].strip().decode(errors="replace")
            remark = f"; give --comment '{start[0]}' if it is a comment" if start[:1] in ("#", "%") else ""
            if len(fields) != self.width:
                problem = f"line {number}: expected {self.width} fields, found {len(fields)}: {start!r}"
                raise InputError(f"{self.path}: {problem}; correct the line, or give --delimiter{remark}")
            for name, i in self.columns.items():
                if (name == "weight" or not self.named) and not _fits(fields[i], name):
                    wanted, remedy = _WANTED[name]
                    if name != "weight" and fields[i].lstrip("-").isdecimal():  # more than 64 bits
                        if self.dense:
                            raise OtherIdsError
                        remedy = "make ids dense with --compact-ids"
                    remark = remark or ("; give --header if this line is a header" if number == self.first else "")
                    problem = f"line {number}: expected {wanted}, found {quoted(fields[i])}"
                    raise InputError(f"{self.path}: {problem}; {remedy}{remark}")
                if name != "weight" and not self.named and int(fields[i]) < self.first_id:
                    problem = f"line {number}: expected ids from {self.first_id} (--first-id), found {fields[i]}"
                    raise InputError(f"{self.path}: {problem}; correct the line or the option")


def _fits(text: str, name: str) -> bool:
    if name != "weight":
        return re.fullmatch("-?[0-9]{1,4000}", text) is not None and -(2**63) <= int(text) < 2**63
    try:
        float(text)
    except ValueError:
        return False
    return True
