"""Format ``mtx``: a square sparse matrix of the Matrix Market, plain or gzip: a header, then text of edges, ids from 1.

Entry (i, j) is edge i -> j, of a symmetric matrix also j -> i. Values are weights if ``--weight-column value`` asks.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from tiering.artifacts.regular import require_file
from tiering.datasets.edge_sink import EdgeSink
from tiering.datasets.import_context import Detector, ImportContext, Reader
from tiering.datasets.options import node_count
from tiering.datasets.readers.edge_list import read_edges
from tiering.datasets.text import BANNER, BLANK, ColumnParser, TextBlock, TextSyntax, find_data, is_mtx, read_blocks
from tiering.errors import InputError, quoted
from tiering.formats.dataset import Dataset

_FIELDS = ("pattern", "real", "integer")
_SYMMETRIES = ("general", "symmetric")


def _open_matrix(path: Path, context: ImportContext) -> Dataset:
    require_file(path, "a Matrix Market file")
    context.record_file(path)
    field, symmetry = _read_banner(path)
    start, _ = find_data(path, TextBlock(b""), b"[ \t]*%", strict=True)
    line = start.raw.split(b"\n", 1)[0]
    nodes, entries = _parse_size(path, start.line, line.decode(errors="replace").strip())
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

    read_edges(start.after(len(line) + 1), parser, sink, shift_ids)
    if taken != entries:
        what = f"expected {entries} entries as its header says, found {taken}"
        raise InputError(f"{path}: {what}; was a download interrupted?")
    context.notes["matrix"] = {"field": field, "symmetry": symmetry, "entries": entries}
    if width > len(columns):
        context.notes["matrix"]["ignored_columns"] = ["value"]
    return sink.finish(nodes)


def _read_banner(path: Path) -> tuple[str, str]:
    first = next(read_blocks(path, "reading the header"), TextBlock(b"")).raw.split(b"\n", 1)[0]
    banner = first[:200].decode(errors="replace").lower().split()
    kinds = [f"{BANNER.decode().lower()} matrix coordinate {field} {way}" for field in _FIELDS for way in _SYMMETRIES]
    if " ".join(banner) not in kinds:
        raise InputError(
            f"{path}: expected a first line of %%MatrixMarket matrix coordinate, {'/'.join(_FIELDS)}, "
            f"{'/'.join(_SYMMETRIES)}, found {quoted(' '.join(banner))}; convert the matrix, for example with "
            "scipy.io.mmread and mmwrite"
        )
    return banner[3], banner[4]


def _parse_size(path: Path, line: int, text: str) -> tuple[int, int]:
    if not re.fullmatch(r"\d{1,18}\s+\d{1,18}\s+\d{1,18}", text):
        problem = f"line {line}: expected numbers of rows, columns and entries, found {quoted(text)}"
        raise InputError(f"{path}: {problem}; was a download interrupted?")
    rows, columns, entries = map(int, text.split())
    if rows != columns:
        raise InputError(
            f"{path}: line {line}: expected a square matrix, of which a row and a column are a node, found {rows} x "
            f"{columns}; write edges between two types of nodes as format igb or csr"
        )
    return node_count(rows, f"{path}: line {line}"), entries


def _add_reversed(columns: dict[str, Any]) -> dict[str, Any]:
    """Return each entry, and after one off the diagonal its reverse."""
    loops = columns["src"] == columns["dst"]
    entries = np.repeat(np.arange(loops.size), np.where(loops, 1, 2))
    reverse = np.diff(entries, prepend=-1) == 0
    twice = {name: values[entries] for name, values in columns.items()}
    src, dst = twice["src"], twice["dst"]
    return {**twice, "src": np.where(reverse, dst, src), "dst": np.where(reverse, src, dst)}


READER = Reader(
    _open_matrix,
    frozenset({"weight_column"}),
    file=Detector(
        "a Matrix Market file (.mtx, also .gz)",
        lambda path: ".mtx" in [suffix.lower() for suffix in path.suffixes[-2:]] or is_mtx(path),
    ),
)
