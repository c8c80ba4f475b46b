"""What an import should make of the edges of a small damaged input, by plain Python and numpy: a judge for readers."""

from __future__ import annotations

import gzip
import math
import re
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet

from tiering.formats.graph import Graph

Pairs = list[tuple[int, int]]


class Refuse(Exception):  # noqa: N818 - an answer
    """The input is wrong."""


class Unsure(Exception):  # noqa: N818 - an answer
    """The judge does not know this form."""


def expected_edges(kind: str, file: Path) -> Pairs:
    """Edges of the file, sorted."""
    if kind in ("npy", "igb"):
        return _of_numpy(file)
    if kind == "parquet":
        return _of_parquet(sorted(file.parent.glob("*.parquet")))
    data = file.read_bytes()
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise Refuse from error
    return _of_text(data)


def edges_of(graph: Path, kind: str) -> Pairs:
    """Edges of the graph that was made, sorted."""
    problems = Graph.check(graph, "full")
    if problems:
        raise AssertionError(problems)
    indptr, indices = Graph.open(graph).csc("paper:cites:paper" if kind == "igb" else None)
    dst = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return sorted(zip(indices.tolist(), dst.tolist(), strict=True))


def _of_numpy(file: Path) -> Pairs:
    try:
        array = np.load(file, allow_pickle=False)
    except Exception as error:
        raise Refuse from error
    if array.shape == (2, 2):
        raise Unsure
    if array.ndim != 2 or 2 not in array.shape or array.dtype.kind != "i":
        raise Refuse
    pairs = array if array.shape[1] == 2 else array.T
    return sorted(tuple(map(int, pair)) for pair in pairs)


def _of_parquet(files: list[Path]) -> Pairs:
    try:
        tables = [pa_parquet.read_table(file, columns=["src", "dst"]) for file in files]
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise Unsure from error
    pairs = [zip(table["src"].to_pylist(), table["dst"].to_pylist(), strict=True) for table in tables]
    return sorted(pair for each in pairs for pair in each)


def _of_text(data: bytes) -> Pairs:
    data = data.removeprefix(b"\xef\xbb\xbf")
    if b"\0" in data or re.search(rb"\r(?!\n|\Z)", data):
        raise Refuse
    if b'"' in data:
        raise Unsure
    texts = [line.decode(errors="replace").strip() for line in data.split(b"\n")]
    texts = [line for line in texts if line]
    while texts and texts[0][0] in "#%":
        texts.pop(0)
    if not texts:
        raise Refuse
    delimiter = next((mark for mark in ",;|" if mark in texts[0]), None)
    rows = [[field.strip() for field in line.split(delimiter)] for line in texts]
    if any(len(row) != len(rows[0]) for row in rows):
        raise Refuse
    columns = {"src": 0, "dst": 1}
    if not re.match(r"[+-]?\.?\d", rows[0][0]) and not re.match(r"[+-]?\.?\d", rows[0][1]):
        names = [name.lower() for name in rows.pop(0)]
        if names[:2] != ["src", "dst"]:
            raise Unsure
        if "weight" in names:
            columns["weight"] = names.index("weight")
    for row in rows:
        if "weight" in columns and not _is_weight(row[columns["weight"]]):
            raise Refuse
        if not all(re.fullmatch("-0+|[0-9]+", row[columns[end]]) for end in ("src", "dst")):
            raise Refuse
    return sorted((int(row[0]), int(row[1])) for row in rows)


def _is_weight(text: str) -> bool:
    try:
        return 0 <= float(text) < math.inf
    except ValueError:
        return False
