"""Formats ``edgelist``, one edge per line (SNAP, KONECT, CSV), and ``mtx`` (Matrix Market); plain or gzip, streamed.

Cost: one pass, 16 bytes of temporary disk per edge (24 with weights), memory for one block.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any

import numpy as np

from tiering.artifacts.storage import require_file
from tiering.datasets.edge_sink import EdgeSink, choose_columns, find_end_names
from tiering.datasets.import_context import Detector, ImportContext, Reader, files_that
from tiering.datasets.options import COLUMN_OPTIONS, NO_COMMENT, RAW_OPTIONS, TEXT_OPTIONS, ImportOptions, node_count
from tiering.datasets.text import (
    BANNER,
    BLANK,
    ColumnParser,
    TextBlock,
    TextSyntax,
    find_data,
    guess_delimiter,
    is_mtx,
    read_blocks,
)  # fmt: skip
from tiering.errors import InputError, quoted
from tiering.formats.dataset import Dataset
from tiering.formats.npy_file import read_start
from tiering.text.progress import note

_FIELDS, _SYMMETRIES = ("pattern", "real", "integer"), ("general", "symmetric")  # of matrices
_NO_EDGES = re.compile(r"(readme|licen[cs]e|meta|num_nodes\.)", re.IGNORECASE)  # beginnings of names of other texts
SUFFIXES = (".txt", ".csv", ".tsv", ".edges", ".edgelist", ".el")
Change = Callable[[dict[str, Any]], dict[str, Any]]  # of columns by name
# Function from the syntax and the fields of the first two records to a parser, and whether the first is a header.
MakeParser = Callable[[TextSyntax, list[str], list[str]], tuple[ColumnParser, bool]]
_WHOLE = re.compile(r"[+-]?\d+")
_COLUMN_NAME = re.compile(r"[A-Za-z_]*(_id|Id|ID|_name|Name|_key)|(?i:id|name|user|item|node)")
NUMERIC = re.compile(r"\"?[+-]?(\.?\d.*|nan|inf|infinity)", re.IGNORECASE | re.DOTALL)


def read_text(path: Path, context: ImportContext) -> EdgeSink:
    """Return the sink with the edges of a text file; says how many lines were left out as comments."""
    require_file(path, "a text file of edges")
    context.record_file(path)
    if is_mtx(path):
        raise InputError(f"{path}: expected edges, found a Matrix Market file, which counts from 1; give --format mtx")
    start, parser = find_start(path, context.options, partial(_make_parser, path, context))
    sink = EdgeSink(path, context, weighted="weight" in parser.columns, named=parser.named)
    read_edges(start, parser, sink)
    return sink


def read_edges(start: TextBlock, parser: ColumnParser, sink: EdgeSink, change: Change | None = None) -> None:
    """Read the lines from `start` on into `sink`, block by block, with `change` applied to the columns of each."""
    path = sink.path
    for block in read_blocks(path, "reading edges", start, parser.syntax, most=sink.block_bytes):
        if columns := parser.parse(block):
            try:
                sink.append(columns if change is None else change(columns))
            except InputError:
                if parser.first_id:
                    parser.find_damage(block)  # which names the line
                raise
    if parser.comments:
        hint = " (--comment none takes them for edges)" if change is None else ""
        note(f"note: {path}: lines left out as comments: {parser.comments}{hint}")
    _require_edges(sink.rows, path, parser.comments)


def is_edge_list(path: Path) -> bool:
    """Return whether a file has a suffix of text, or a name of KONECT's, and is not numpy's."""
    named = path.name.startswith("out.") or any(suffix.lower() in SUFFIXES for suffix in path.suffixes[-2:])
    return named and path.is_file() and read_start(path, 6) != b"\x93NUMPY"


def find_start(
    path: Path, options: ImportOptions, make: MakeParser, *, narrow: bool = False
) -> tuple[TextBlock, ColumnParser]:
    """Return the first line of data, and a parser as the first lines are; a text of one column may be if `narrow`."""
    newlines = options.quoted_newlines
    comment = (options.comment or "").replace(NO_COMMENT, "")
    # A name may begin with any character: then the one that the user says is the only one that begins comments.
    names = options.string_ids or options.src_column is not None or options.dst_column is not None
    marks = comment + "#%" * (options.comment is None or (comment != "" and not names))
    indent = rb"" if options.string_ids and options.delimiter != "space" else rb"[ \t]*"
    leading = indent + b"[%s]" % re.escape(marks or "\0").encode()
    start, comments = find_data(path, TextBlock(b""), leading, not newlines)
    _require_edges(len(start.raw), path, comments)
    sample, _ = TextSyntax("\t", comment=comment).without_comments(start.raw)
    delimiter = options.delimiter or guess_delimiter(sample, options.string_ids, newlines, str(path), narrow)
    syntax = TextSyntax(delimiter, newlines, comment)
    if newlines and not syntax.quotes:
        raise InputError(
            f"{path}: --quoted-newlines: expected a delimiter such as a comma, found {delimiter!r}, where quotes close "
            "on their line; leave it out, or name the --delimiter"
        )
    first = next(read_blocks(path, "reading edges", start, syntax)) if newlines else start
    (_, record), second = islice(chain(syntax.records(first.raw, first.line), [(0, b"")]), 2)
    syntax.refuse_open_quote(record, path, first.line)
    parser, header = make(syntax, syntax.fields(record), syntax.fields(second[1]))
    if header:
        start, more = find_data(path, first.after(len(record) + 1), leading, not newlines)
        comments += more
        _require_edges(len(start.raw), path, comments)
    parser.comments, parser.first, parser.first_id = comments, 0 if header else start.line, options.first_id
    return start, parser


def _make_parser(
    path: Path, context: ImportContext, syntax: TextSyntax, fields: list[str], second: list[str]
) -> tuple[ColumnParser, bool]:
    """Return a parser of the columns, chosen by the fields of the first records, and whether the first is a header."""
    options, width = context.options, len(fields)
    header = _has_header(fields, options, path)
    names = fields if header else list(map(str, range(width)))
    stated = _states_ends(path, context)
    ids = [k < 2 if stated else options.string_ids or _WHOLE.fullmatch(field) for k, field in enumerate(fields)]
    named = any(column and not column.isdecimal() for column in (options.src_column, options.dst_column))
    pair = find_end_names(fields)
    guessed = header and not named and options.header is None and pair is None
    names_follow = len(second) == width and not any(map(_WHOLE.fullmatch, second))
    if (guessed or pair) and names_follow and not options.string_ids:
        found = f"found {quoted(' '.join(fields))}, {quoted(' '.join(second))}"
        advice = "if ids are names, say --string-ids"
        advice += ", and --header if the first line is one, else --no-header" * guessed
        types = [name for name in fields if name not in (pair or fields)]
        advice += f", and --type-column {types[0]} if each of its values is a relation" if types else ""
        raise InputError(f"{path}: expected whole numbers as ids, {found}; {advice}")
    columns = choose_columns(names, options, str(path), ids)
    shown_as = fields if header else range(width)
    if guessed:
        note(f"note: {path}: the first line is taken for a header: {quoted(' '.join(fields))} (else: --no-header)")
    unused = [shown_as[i] for i in range(width) if i not in columns.values()]
    context.notes["text"] = {
        "delimiter": "blanks" if syntax.blanks else syntax.delimiter,
        "header": header,
        "columns": {name: shown_as[i] for name, i in columns.items()},
        **({"ignored_columns": unused} if unused else {}),
    }
    return ColumnParser(path, syntax, columns, width, options.string_ids), header


def _states_ends(path: Path, context: ImportContext) -> bool:
    """Return whether comments, as KONECT's first line and SNAP's ``# From To``, say that the first columns are ends."""
    block = next(read_blocks(path, "reading the header", strict=False), TextBlock(b""))
    text = block.raw[:10_000].decode(errors="replace").split("\n")
    lines = list(takewhile(lambda line: line.startswith(("#", "%")), text))
    konect = re.match(r"%\s*(sym|asym|bip)\b", lines[0]) if lines else None
    if konect and konect[1] == "bip" and context.options.src_column is None:
        problem = "expected edges between nodes of one kind, found a bipartite graph of KONECT"
        raise InputError(f"{path}: {problem}; say --relation left:to:right={path}:0,1")
    if konect and konect[1] == "sym" and not context.options.reverse_edges:
        context.warn(f"{path}: the graph is undirected, each edge is there once; --reverse-edges adds the other way")
    titles = [line.strip("#% ").split() for line in lines]
    return konect is not None or any(find_end_names(title) == tuple(title[:2]) for title in titles)


def _require_edges(size: int, path: Path, comments: int) -> None:
    if size == 0:
        besides = f" but {comments} comments (--comment none takes them for edges)" if comments else ""
        raise InputError(f"{path}: expected edges, found none{besides}; was a download interrupted?")


def _has_header(fields: list[str], options: ImportOptions, path: Path) -> bool:
    """Return whether the first line is a header: no id looks like a number; of names, it has usual names of columns."""
    if options.header is not None:
        return options.header
    asked = (options.src_column, options.dst_column)
    if any(column and not column.isdecimal() for column in asked):
        return True
    if options.string_ids:
        if (pair := find_end_names(fields)) is None and all(map(_COLUMN_NAME.fullmatch, fields[:2])):
            problem = f"expected to know whether the first line is a header, found {quoted(' '.join(fields[:2]))}"
            raise InputError(f"{path}: {problem}; say --header and name --src-column and --dst-column, or --no-header")
        return pair is not None
    ends = [position if column is None else int(column[:9]) for position, column in enumerate(asked)]
    return not any(NUMERIC.fullmatch(fields[end]) for end in ends if end < len(fields))


def _open_matrix(path: Path, context: ImportContext) -> Dataset:
    path = context.choose_file(path, files_that(_is_named_mtx), "Matrix Market")
    require_file(path, "a Matrix Market file")
    context.record_file(path)
    field, symmetry, nodes, size, start = _read_header(path)
    width, asked = 2 if field == "pattern" else 3, context.options.weight_column
    if asked is not None and (asked not in ("value", "2") or width == 2):
        has = "this one has no values: leave it out" if width == 2 else "say value"
        raise InputError(f"{path}: --weight-column: expected value, found {quoted(asked)}; {has}")
    columns = {"src": 0, "dst": 1, **({} if asked is None else {"weight": 2})}
    parser = ColumnParser(path, TextSyntax(BLANK, comment="%"), columns, width)
    sink, taken = EdgeSink(path, context, weighted=asked is not None), 0

    def shift_ids(read: dict[str, Any]) -> dict[str, Any]:
        nonlocal taken
        first, taken = taken + 1, taken + len(read["src"])
        for name, what in (("src", "row"), ("dst", "column")):
            wrong = (read[name] < 1) | (read[name] > nodes)
            if wrong.any():
                at = int(np.argmax(wrong))
                found = f"expected a {what} of 1 to {nodes}, found {read[name][at]}"
                raise InputError(f"{path}: entry {first + at}: {found}; correct the file")
            read[name] = read[name] - 1
        return read if symmetry == "general" else _add_reversed(read)

    read_edges(start, parser, sink, shift_ids)
    if taken != size:
        what = f"expected {size} entries as its header says, found {taken}"
        raise InputError(f"{path}: {what}; was a download interrupted?")
    context.notes["matrix"] = {"field": field, "symmetry": symmetry, "entries": size}
    if width > len(columns):
        context.notes["matrix"]["ignored_columns"] = ["value"]
    return sink.finish(nodes)


def _read_header(path: Path) -> tuple[str, str, int, int, TextBlock]:
    """Return kinds of values and of symmetry, numbers of nodes and entries, and the lines after."""
    first = next(read_blocks(path, "reading the header"), TextBlock(b"")).raw.split(b"\n", 1)[0]
    banner = first[:200].decode(errors="replace").lower().split()
    kinds = [f"{BANNER.decode().lower()} matrix coordinate {field} {way}" for field in _FIELDS for way in _SYMMETRIES]
    if " ".join(banner) not in kinds:
        raise InputError(
            f"{path}: expected a first line of %%MatrixMarket matrix coordinate, {'/'.join(_FIELDS)}, "
            f"{'/'.join(_SYMMETRIES)}, found {quoted(' '.join(banner))}; convert the matrix, for example with "
            "scipy.io.mmread and mmwrite"
        )
    start, _ = find_data(path, TextBlock(b""), b"[ \t]*%", strict=True)
    line = start.raw.split(b"\n", 1)[0]
    text = line.decode(errors="replace").strip()
    if not re.fullmatch(r"\d{1,18}\s+\d{1,18}\s+\d{1,18}", text):
        problem = f"line {start.line}: expected numbers of rows, columns and entries, found {quoted(text)}"
        raise InputError(f"{path}: {problem}; was a download interrupted?")
    rows, columns, size = map(int, text.split())
    if rows != columns:
        raise InputError(
            f"{path}: line {start.line}: expected a square matrix, of which a row and a column are a node, found "
            f"{rows} x {columns}; write edges between two types of nodes as format igb or csr"
        )
    count = node_count(rows, f"{path}: line {start.line}")
    return banner[3], banner[4], count, size, start.after(len(line) + 1)


def _add_reversed(columns: dict[str, Any]) -> dict[str, Any]:
    """Return each entry, and after one off the diagonal its reverse."""
    loops = columns["src"] == columns["dst"]
    twice_each = np.repeat(np.arange(loops.size), np.where(loops, 1, 2))
    reverse = np.diff(twice_each, prepend=-1) == 0
    twice = {name: values[twice_each] for name, values in columns.items()}
    src, dst = twice["src"], twice["dst"]
    return {**twice, "src": np.where(reverse, dst, src), "dst": np.where(reverse, src, dst)}


def _texts_inside(folder: Path) -> list[Path]:
    """Return the texts of a directory that may hold its edges: of other names than .txt, if there are any."""
    texts = files_that(lambda file: is_edge_list(file) and not _NO_EDGES.match(file.name))(folder)
    return [file for file in texts if ".txt" not in file.suffixes] or texts


def _is_named_mtx(path: Path) -> bool:
    return ".mtx" in [suffix.lower() for suffix in path.suffixes[-2:]]


READER = Reader(
    lambda path, context: read_text(context.choose_file(path, _texts_inside, "edges"), context).finish(),
    COLUMN_OPTIONS | TEXT_OPTIONS | RAW_OPTIONS,
    directory=Detector("a text of edges", lambda p: _texts_inside(p) and not (p / "indptr.npy").exists()),
    file=Detector(f"text ({', '.join(SUFFIXES)}, also .gz)", is_edge_list),
)
MTX_READER = Reader(
    _open_matrix,
    RAW_OPTIONS | {"weight_column"},
    directory=Detector("one .mtx", files_that(_is_named_mtx)),
    file=Detector("a Matrix Market file (.mtx, also .gz)", lambda path: _is_named_mtx(path) or is_mtx(path)),
)
