"""Formats ``edgelist``, one edge per line (SNAP, KONECT, CSV), and ``mtx`` (Matrix Market); plain or gzip, streamed.

Cost: one pass, 16 bytes of temporary disk per edge (24 with weights), memory for one block.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tiering.artifacts.storage import require_file
from tiering.datasets.edge_sink import EdgeSink, choose_columns, find_end_names
from tiering.datasets.import_context import CHUNK, NODE, Detector, ImportContext, Reader, files_that
from tiering.datasets.options import COLUMN_OPTIONS, NO_COMMENT, RAW_OPTIONS, TEXT_OPTIONS, ImportOptions, node_count
from tiering.datasets.text import ColumnParser, TextBlock, TextSyntax, find_data, guess_delimiter, is_mtx, read_blocks
from tiering.errors import InputError, quoted
from tiering.formats.dataset import Dataset
from tiering.formats.npy_file import read_start
from tiering.text.progress import note

_FIELDS, _SYMMETRIES = ("pattern", "real", "integer"), ("general", "symmetric")  # of matrices
NO_EDGES = re.compile(r"(readme|licen[cs]e|meta|num_nodes\.)", re.IGNORECASE)  # beginnings of names of other texts
SUFFIXES = (".txt", ".csv", ".tsv", ".edges", ".edgelist", ".el")
Change = Callable[[dict[str, Any]], dict[str, Any]]  # of columns by name
# Function from the syntax, the fields of the first records and comments to a parser, and whether the first is a header.
MakeParser = Callable[[TextSyntax, list[list[str]], list[bytes]], tuple[ColumnParser, bool]]
_WHOLE = re.compile(r"[+-]?\d+")
_COLUMN_NAME = re.compile(r"[A-Za-z_]*(_id|Id|ID|_name|Name|_key)|(?i:id|name|user|item|node)")
NUMERIC = re.compile(r"\"?[+-]?(\.?\d.*|nan|inf|infinity)", re.IGNORECASE | re.DOTALL)


class NoRowsError(InputError):
    """A text has no lines but perhaps comments and a header."""


def read_text(path: Path, context: ImportContext) -> EdgeSink:
    """Return the sink with the edges of a text file; says what was skipped: comments, a first line of counts."""
    require_file(path, "a text file of edges")
    context.record_file(path)
    if is_mtx(path):
        raise InputError(f"{path}: this is a Matrix Market file, which counts from 1; give --format mtx")
    start, parser = find_start(path, context.options, partial(_make_parser, path, context))
    refuse_doubtful(parser, parser.named)
    sink = rest = EdgeSink(path, context, weighted="weight" in parser.columns, named=parser.named)
    read_edges(start, parser, sink)
    (nodes, edges), is_edge = parser.counts, parser.width == 2  # or the line was left out, as it is short
    if nodes < 1 or (is_edge and edges != sink.rows - 1):
        return sink
    if is_edge:
        rest, parser.comments = EdgeSink(path, context, named=parser.named), 0
        read_edges(start.after(start.raw.index(b"\n") + 1), parser, rest, dict)
    known, line = rest.count_nodes(), f"the first line, {nodes} {edges}"
    if edges == rest.rows and nodes in {*known, context.options.num_nodes.get(NODE)}:
        note(f"note: {path}: {line}, is skipped: it states the number of nodes and edges (else: --no-header)")
        return rest
    if not is_edge:
        parser.width = 2
        parser.find_damage(start)
    if (nodes > max(known) and edges > 2) or edges > CHUNK:  # of one or two edges the numbers are so by chance
        found = f"expected an edge or numbers of nodes and edges, found {line}, before {edges} edges"
        raise InputError(f"{path}: {found}; give --no-header if it is an edge, else --num-nodes {nodes}")
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
        hint = " (--comment none reads them as edges)" if change is None else ""
        note(f"note: {path}: lines skipped as comments: {parser.comments}{hint}")
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
    marks = comment + ("#%" if options.comment is None or (comment and not names) else "")
    indent = rb"" if options.string_ids and options.delimiter != "space" else rb"[ \t]*"
    leading = indent + b"[%s]" % re.escape(marks or "\0").encode()
    start, comments = find_data(path, TextBlock(b""), leading, not newlines)
    _require_edges(len(start.raw), path, len(comments))
    sample, _ = TextSyntax("\t", comment=comment).without_comments(start.raw)
    delimiter = options.delimiter or guess_delimiter(sample, options.string_ids, newlines, str(path), narrow)
    syntax = TextSyntax(delimiter, newlines, comment)
    if newlines and not syntax.quotes:
        raise InputError(
            f"{path}: --quoted-newlines: does not apply to delimiter {delimiter!r}, where quotes close "
            "on their line; omit the option, or give --delimiter"
        )
    first = next(read_blocks(path, "reading edges", start, syntax)) if newlines else start
    records = [record for _, record in islice(syntax.records(first.raw, first.line), 5000)]
    syntax.refuse_open_quote(records[0], path, first.line)
    parser, header = make(syntax, list(map(syntax.fields, records)), comments)
    parser.comments, parser.first, parser.dense = len(comments), 0 if header else start.line, options.compact_ids
    parser.first_id = options.first_id or -(2**63) * options.compact_ids
    if header:
        start, comments = find_data(path, first.after(len(records[0]) + 1), leading, not newlines)
        parser.comments += len(comments)
        _require_edges(len(start.raw), path, parser.comments)
    parser.doubtful = [one for one in comments if options.comment is None and len(syntax.fields(one)) == parser.width]
    return start, parser


def refuse_doubtful(parser: ColumnParser, named: bool) -> None:
    """Refuse a line before the first edge that may be a comment or, if ids are `named`, an edge."""
    for line in parser.doubtful[:named]:
        problem = f"found {quoted(text := line.decode(errors='replace').strip())}, which may be an edge between names"
        remedy = f"give --comment '{text[0]}' if it is a comment, --comment none if it is an edge"
        raise InputError(f"{parser.path}: cannot tell whether a line is a comment, {problem}; {remedy}")


def _make_parser(
    path: Path, context: ImportContext, syntax: TextSyntax, records: list[list[str]], comments: list[bytes]
) -> tuple[ColumnParser, bool]:
    """Return a parser of the columns, chosen by the fields of the first records, and whether the first is a header."""
    options, fields, second = context.options, records[0], records[1] if len(records) > 1 else [""]
    whole = context.format == "edgelist" and options.header is None and all(map(_WHOLE.fullmatch, fields))
    counts = [int(field) for field in fields] if whole and len(fields) == 2 else [0, 0]
    fields = second if counts[0] and counts[1] >= len(records) - 1 and len(second) > 2 else fields
    header, width = fields is records[0] and _has_header(fields, records, options, path), len(fields)
    names = fields if header else list(map(str, range(width)))
    stated = (0, 1) if _is_konect(path, context, comments) else find_titles(path, comments, syntax, width)
    if stated and not header and options.src_column is options.dst_column is None:
        options = replace(options, src_column=str(stated[0]), dst_column=str(stated[1]))
    values = second if header and len(second) == width else fields
    ids = [options.string_ids or _WHOLE.fullmatch(value) for value in values]
    named = any(column and not column.isdecimal() for column in (options.src_column, options.dst_column))
    pair = find_end_names(fields)
    guessed = header and not named and options.header is None and pair is None
    names_follow = len(second) == width and not any(map(_WHOLE.fullmatch, second))
    if (guessed or pair) and names_follow and not options.string_ids:
        found = f"found {quoted(' '.join(fields))}, {quoted(' '.join(second))}"
        advice = "give --string-ids if ids are names"
        advice += ", and --header if the first line is one, else --no-header" if guessed else ""
        types = [name for name in fields if name not in (pair or fields)]
        advice += f", and --type-column {types[0]} if each of its values is a relation" if types else ""
        raise InputError(f"{path}: expected whole numbers as ids, {found}; {advice}")
    columns = choose_columns(names, options, str(path), ids)
    shown_as = fields if header else range(width)
    if guessed:
        note(f"note: {path}: the first line is read as a header: {quoted(' '.join(fields))} (else: --no-header)")
    unused = [shown_as[i] for i in range(width) if i not in columns.values()]
    context.notes["text"] = {
        "delimiter": "blanks" if syntax.blanks else syntax.delimiter,
        "header": header,
        "columns": {name: shown_as[i] for name, i in columns.items()},
        **({"ignored_columns": unused} if unused else {}),
    }
    parser = ColumnParser(path, syntax, columns, width, options.string_ids)
    parser.counts = counts
    return parser, header or fields is not records[0]


def find_titles(path: Path, comments: list[bytes], syntax: TextSyntax, width: int) -> tuple[int, int] | None:
    """Return positions of the ends as comments name all columns, or the first two: SNAP's ``# FromNodeId ToNodeId``."""
    texts = [line.strip(b"#% \t\r\n") for line in comments[:200]]
    titles = [title for text in texts for title in (syntax.fields(text), text.decode(errors="replace").split())]
    titles = [title if len(title) == width else title[:2] for title in titles]
    ends = {(title.index(pair[0]), title.index(pair[1])) for title in titles if (pair := find_end_names(title))}
    if len(ends) > 1:
        raise InputError(f"{path}: comments name source and destination in two orders; give --src-column, --dst-column")
    return min(ends, default=None) if width > 1 else None


def _is_konect(path: Path, context: ImportContext, comments: list[bytes]) -> bool:
    """Return whether the first comment is KONECT's first line, after which the first two columns are ends."""
    konect = re.match(rb"%\s*(sym|asym|bip)\b", comments[0]) if comments else None
    if konect and konect[1] == b"bip" and context.options.src_column is None:
        problem = "expected edges between nodes of one kind, found a bipartite graph of KONECT"
        raise InputError(f"{path}: {problem}; give --relation left:to:right={path}:0,1")
    if konect and konect[1] == b"sym" and not context.options.reverse_edges:
        context.warn(f"{path}: the graph is undirected, each edge is there once; --reverse-edges adds the other way")
    return konect is not None


def _require_edges(size: int, path: Path, comments: int) -> None:
    if size == 0:
        besides = f", only {comments} comments (--comment none reads them as edges)" if comments else ""
        raise NoRowsError(f"{path}: the file has no edges{besides}; get it again if a download was interrupted")


def heads_numbers(records: list[list[str]]) -> bool:
    """Return whether the first record has an empty cell or a word in a column where all others have numbers."""
    first, *others = records
    words = [k for k, field in enumerate(first) if not NUMERIC.fullmatch(field)]
    return others != [] and any(all(NUMERIC.fullmatch("".join(one[k : k + 1])) for one in others) for k in words)


def _has_header(fields: list[str], records: list[list[str]], options: ImportOptions, path: Path) -> bool:
    """Return whether the first line is a header: no id looks like a number; of names, it has usual names of columns."""
    if options.header is not None:
        return options.header
    asked = (options.src_column, options.dst_column)
    if any(column and not column.isdecimal() for column in asked):
        return True
    if options.string_ids:
        if (pair := find_end_names(fields)) is None and all(map(_COLUMN_NAME.fullmatch, fields[:2])):
            problem = f"cannot tell whether the first line is a header, found {quoted(' '.join(fields[:2]))}"
            raise InputError(f"{path}: {problem}; give --header, --src-column and --dst-column, or --no-header")
        return pair is not None or (fields[0] == "" and heads_numbers([one[:1] for one in records]))
    ends = [position if column is None else int(column[:9]) for position, column in enumerate(asked)]
    return heads_numbers(records) or not any(NUMERIC.fullmatch(fields[end]) for end in ends if end < len(fields))


def _open_matrix(path: Path, context: ImportContext) -> Dataset:
    path = context.choose_file(path, files_that(_is_named_mtx), "Matrix Market")
    require_file(path, "a Matrix Market file")
    context.record_file(path)
    field, symmetry, nodes, size, start = _read_header(path)
    width, asked = 2 if field == "pattern" else 3, context.options.weight_column
    if asked is not None and (asked not in ("value", "2") or width == 2):
        has = "the matrix has no values: omit the option" if width == 2 else "say value"
        raise InputError(f"{path}: --weight-column: expected value, found {quoted(asked)}; {has}")
    columns = {"src": 0, "dst": 1, **({} if asked is None else {"weight": 2})}
    parser = ColumnParser(path, TextSyntax("space", comment="%"), columns, width)
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
        raise InputError(f"{path}: {what}; get the file again if a download was interrupted")
    context.notes["matrix"] = {"field": field, "symmetry": symmetry, "entries": size}
    if width > len(columns):
        context.notes["matrix"]["ignored_columns"] = ["value"]
    return sink.finish(nodes)


def _read_header(path: Path) -> tuple[str, str, int, int, TextBlock]:
    """Return kinds of values and of symmetry, numbers of nodes and entries, and the lines after."""
    first = next(read_blocks(path, "reading the header"), TextBlock(b"")).raw.split(b"\n", 1)[0]
    banner = first[:200].decode(errors="replace").lower().split()
    kinds = [f"%%matrixmarket matrix coordinate {field} {way}" for field in _FIELDS for way in _SYMMETRIES]
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
        raise InputError(f"{path}: {problem}; get the file again if a download was interrupted")
    rows, columns, size = map(int, text.split())
    if rows != columns:
        raise InputError(
            f"{path}: line {start.line}: expected a square matrix, one row and column per node, found "
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


def texts_inside(folder: Path) -> list[Path]:
    """Return the texts of a directory that may hold its edges: of other names than .txt, if there are any."""
    texts = files_that(lambda file: is_edge_list(file) and not NO_EDGES.match(file.name))(folder)
    return [file for file in texts if ".txt" not in file.suffixes] or texts


def _is_named_mtx(path: Path) -> bool:
    return ".mtx" in [suffix.lower() for suffix in path.suffixes[-2:]]


READER = Reader(
    lambda path, context: read_text(context.choose_file(path, texts_inside, "edges"), context).finish(),
    COLUMN_OPTIONS | TEXT_OPTIONS | RAW_OPTIONS,
    directory=Detector("a text of edges", lambda p: texts_inside(p) and not (p / "indptr.npy").exists()),
    file=Detector(f"text ({', '.join(SUFFIXES)}, also .gz)", is_edge_list),
)
MTX_READER = Reader(
    _open_matrix,
    RAW_OPTIONS | {"weight_column"},
    directory=Detector("one .mtx", files_that(_is_named_mtx)),
    file=Detector("a Matrix Market file (.mtx, also .gz)", lambda path: _is_named_mtx(path) or is_mtx(path)),
)
