"""Replicas of LDBC SNB: composite-merged-fk of the Spark generator, mode bi, with its traps.

Several parts for each table, each with a header and rows in no order of ids; ids of 64 bits with gaps; edges in columns
of node tables, empty where there is none; content in quotes that holds the delimiter; and posts in Indonesian, whose
code is ``id``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tiering.datasets.generated.communities import EDGE_BLOCK, Ids, Shuffle
from tiering.datasets.generated.containers import written
from tiering.datasets.generated.content import Content
from tiering.datasets.readers.ldbc_schema import (
    ATTRIBUTES,
    COLUMNS,
    DELIMITER,
    FOREIGN_KEYS,
    MANY_TO_MANY,
    STATIC,
    ForeignKey,
    folder_of,
)
from tiering.datasets.sources.source import Source
from tiering.progress import Progress

PARTS = 3
"""Of each table, at least."""
_FIRST, _GAP = 1 << 41, 1 << 26
"""Of the sparse ids the first, and the mean difference from one to the next."""
_CELLS = {
    "creationDate": ["2010-02-03T16:08:50.000+00:00", "2012-11-30T00:00:00.127+00:00"],
    "content": ["About Rumi", "", r'"she said \"yes | no\" twice"', "maybe"],
    "language": ["en;id", "id", "fr"],
    "length": ["10"],
    "classYear": ["2008"],
    "workFrom": ["2010"],
}
"""Column -> values that its rows have in turn; others have words."""


def write_ldbc(source: Source, root: Path, seed: int, bar: Progress) -> None:
    """Write the tables of a replica below `root`, its initial snapshot."""
    content = Content(source, seed)
    for stream, node_type in enumerate(source.nodes):
        names = COLUMNS[node_type].split()
        blocks = _node_blocks(content, node_type, names, stream)
        _write(root / folder_of(node_type), names, blocks, seed, bar)
    for relation, table in MANY_TO_MANY.items():
        ends = [f"{end}{k}Id" if relation[0] == relation[2] else f"{end}Id" for k, end in _ends_of(table)]
        names = ["creationDate", *ends, *ATTRIBUTES.get(table, ())]
        _write(root / folder_of(table), names, _edge_blocks(content, "__".join(relation), names), seed, bar)


def sparse_ids(node_type: str, numbers: Ids) -> Ids:
    """The id of each node of a type in the files; ascending, so that an import gives the numbers back."""
    if node_type in STATIC:
        return numbers
    ids: Ids = _FIRST + numbers * _GAP + numbers * 0x9E3779B1 % _GAP
    return ids


def _ends_of(table: str) -> list[tuple[int, str]]:
    source, _, target = table.split("_")
    return [(1, source), (2, target)]


def _rows(count: int) -> Iterator[range]:
    """The rows of each part."""
    parts = max(PARTS, -(-count // EDGE_BLOCK))
    for k in range(parts):
        yield range(count * k // parts, count * (k + 1) // parts)


def _node_blocks(content: Content, node_type: str, names: list[str], stream: int) -> Iterator[list[list[str]]]:
    count = content.source.nodes[node_type]
    order = Shuffle(count, (content.seed, 11, stream))
    keys = {key.columns[0]: _Key(content, key, count) for key in FOREIGN_KEYS[node_type]}
    for rows in _rows(count):
        numbers = order.forward(np.arange(rows.start, rows.stop))
        columns = []
        for name in names:
            if name == "id":
                columns.append(list(map(str, sparse_ids(node_type, numbers).tolist())))
            elif name in keys:
                columns.append(keys[name].cells(rows, numbers))
            else:
                columns.append(_cells(name, rows))
        yield columns


def _edge_blocks(content: Content, relation: str, names: list[str]) -> Iterator[list[list[str]]]:
    source, _, target = relation.split("__")
    edges = _Stream(content.edges(relation))
    for rows in _rows(content.source.edges[relation]):
        pairs = edges.take(len(rows))
        if source == target:  # known once, whoever knows whom
            pairs = np.sort(pairs, axis=1)
        ends = [sparse_ids(end, pairs[:, k]).tolist() for k, end in enumerate((source, target))]
        yield [_cells(name, rows) if k not in (1, 2) else list(map(str, ends[k - 1])) for k, name in enumerate(names)]


def _cells(name: str, rows: range) -> list[str]:
    values = _CELLS.get(name, [f"{name} of this", f"another {name}"])
    return [values[row % len(values)] for row in rows]


class _Key:
    """A column of the other ends of edges: as many rows of the table as there are edges have one.

    Those of comments that answer comments are the last, so that a comment answers a post or a comment.
    """

    def __init__(self, content: Content, key: ForeignKey, count: int) -> None:
        self._other, relation = key.relation[2 - key.owner_end], "__".join(key.relation)
        self._within = key.relation[0] == key.relation[2]
        self._count, self._column = count, 1 if key.owner_end == 0 else 0
        edges = min(count, content.source.edges[relation])
        self._given = range(count - edges, count) if key.columns[0] == "ParentCommentId" else range(edges)
        self._edges = _Stream(content.edges(relation))

    def cells(self, rows: range, numbers: Ids) -> list[str]:
        """The column in some rows, which follow those of the call before."""
        first, last = max(rows.start, self._given.start), min(rows.stop, self._given.stop)
        if first >= last:
            return [""] * len(rows)
        others = self._edges.take(last - first)[:, self._column]
        if self._within:  # none is its own part or answer
            own = numbers[first - rows.start : last - rows.start]
            others = np.where(others == own, (own + 1) % self._count, others)
        given = list(map(str, sparse_ids(self._other, others).tolist()))
        return [""] * (first - rows.start) + given + [""] * (rows.stop - last)


class _Stream:
    """Edges in pieces of any size."""

    def __init__(self, blocks: Iterator[Ids]) -> None:
        self._blocks, self._rest = blocks, np.empty((0, 2), np.int64)

    def take(self, count: int) -> Ids:
        """The next edges, shape (count, 2)."""
        pieces = [self._rest]
        while sum(map(len, pieces)) < count:
            pieces.append(next(self._blocks))
        edges = np.concatenate(pieces)
        self._rest = edges[count:]
        return edges[:count]


def _write(folder: Path, names: list[str], blocks: Iterator[list[list[str]]], seed: int, bar: Progress) -> None:
    """The parts of a table, named as Spark names them."""
    for part, columns in enumerate(blocks):
        lines = [DELIMITER.join(names), *map(DELIMITER.join, zip(*columns, strict=True)), ""]
        data = "\n".join(lines).encode()
        with written(folder / f"part-{part:05d}-00000000-0000-4000-8000-{seed % 2**48:012x}-c000.csv") as file:
            file.write(data)
        bar.update(len(data))
    with written(folder / "_SUCCESS"):
        pass
