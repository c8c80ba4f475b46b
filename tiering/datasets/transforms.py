"""Changes to the edges that the user asks for at import: none happens unasked, each is recorded with its counts.

They run in a fixed order: remove self loops, add reverse edges, remove duplicates, add self loops. So
``self_loops="remove", reverse_edges=True, deduplicate=True`` gives a simple undirected graph. Edge weights, types and
ids go with their edges; a reverse edge has those of the edge it reverses, an added self loop has weight 1, type -1
and id -1. Cost: one pass each, new columns in memory or temporary files; the user's files are not touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import relation_key
from tiering.datasets.edges import largest_id
from tiering.datasets.reading import Reading, chunks
from tiering.datasets.scratch import Appender
from tiering.errors import InputError
from tiering.formats.protocols import Dataset, EdgeData

Array = npt.NDArray[Any]
LARGEST_BUCKET, BYTES_PER_EDGE = 1 << 24, 64
"""Edges that `deduplicate` sorts at a time, and the memory they take; less where the budget is."""
MOST_BUCKETS = 256
"""Three open files each."""
_ODD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
"""Multipliers that spread pairs of ids over buckets: without them the list of a hub would be one bucket's."""
_SELF_LOOP_VALUES = {"weight": 1, "type": -1}


def transform(dataset: Dataset, reading: Reading) -> None:
    """Apply the options ``self_loops``, ``reverse_edges`` and ``deduplicate`` to all relations, in place.

    Raises
    ------
    InputError
        If an id is out of range; checked here because changed edges no longer have the place they had in the file.
    """
    options = reading.options
    if options.self_loops == "keep" and not options.reverse_edges and not options.deduplicate:
        return
    for edge in dataset.edges:
        _check_range(edge, dataset)
    if options.self_loops == "remove":
        for edge in _loop_relations(dataset):
            _record(edge, "remove self loops", reading, _keep(edge, _not_loops(edge, reading), reading))
    if options.reverse_edges:
        _add_reverse(dataset, reading)
    if options.deduplicate:
        for edge in dataset.edges:
            keep = first_of_equals(edge, dataset.nodes[edge.relation[0]].num_nodes, reading)
            _record(edge, "deduplicate", reading, _keep(edge, keep, reading))
    if options.self_loops == "add":
        for edge in _loop_relations(dataset):
            num_nodes = dataset.nodes[edge.relation[0]].num_nodes
            _record(edge, "add self loops", reading, _add_loops(edge, num_nodes, reading))


def _check_range(edge: EdgeData, dataset: Dataset) -> None:
    for what, column, node_type in (
        ("source", edge.src, edge.relation[0]),
        ("destination", edge.dst, edge.relation[2]),
    ):
        num_nodes = dataset.nodes[node_type].num_nodes
        largest = largest_id(column, edge.where, what)
        if largest.id >= num_nodes:
            raise InputError(
                f"{largest.place} is outside 0..{num_nodes - 1} "
                f"({num_nodes} {node_type} nodes); correct the file or --num-nodes"
            )


def _loop_relations(dataset: Dataset) -> list[EdgeData]:
    return [edge for edge in dataset.edges if edge.relation[0] == edge.relation[2]]


def _record(edge: EdgeData, step: str, reading: Reading, before: int) -> None:
    reading.changed(step, relation_key(edge.relation), before, edge.num_edges)
    edge.where = f"{edge.where} after {step}" if edge.num_edges != before else edge.where


def _columns(edge: EdgeData) -> dict[str, Array]:
    """All columns of an edge list by name; ``data.NAME`` for those of `EdgeData.data`."""
    columns = {"src": edge.src, "dst": edge.dst, **{f"data.{k}": v for k, v in edge.data.items()}}
    if edge.edge_ids is not None:
        columns["edge_ids"] = edge.edge_ids
    return columns


def _set_column(edge: EdgeData, name: str, values: Array) -> None:
    if name.startswith("data."):
        edge.data[name[5:]] = values
    else:
        setattr(edge, name, values)


def _collect(pieces: Iterable[Array], size: int, dtype: npt.DTypeLike, reading: Reading) -> Array:
    out, at = reading.scratch.array(size, dtype), 0
    for piece in pieces:
        out[at : at + piece.shape[0]] = piece
        at += piece.shape[0]
    return out


def _selected(column: Array, keep: npt.NDArray[np.bool_]) -> Iterator[Array]:
    for part in chunks(column.shape[0]):
        yield column[part][keep[part]]


def _whole(column: Array) -> Iterator[Array]:
    for part in chunks(column.shape[0]):
        yield column[part]


def _keep(edge: EdgeData, keep: npt.NDArray[np.bool_], reading: Reading) -> int:
    """Keep the marked edges; returns the number there were."""
    before, after = edge.num_edges, int(np.count_nonzero(keep))
    if after < before:
        for name, column in _columns(edge).items():
            _set_column(edge, name, _collect(_selected(column, keep), after, column.dtype, reading))
    return before


def _not_loops(edge: EdgeData, reading: Reading) -> npt.NDArray[np.bool_]:
    keep = reading.scratch.array(edge.num_edges, bool)
    for part in chunks(edge.num_edges):
        keep[part] = edge.src[part] != edge.dst[part]
    return keep


def _add_reverse(dataset: Dataset, reading: Reading) -> None:
    existing = set(dataset.relations)
    for edge in list(dataset.edges):
        source, name, target = edge.relation
        if source == target:
            _record(edge, "add reverse edges", reading, _append_reverse(edge, reading))
        elif (target, f"rev_{name}", source) in existing or name.startswith("rev_"):
            reading.warn(f"{relation_key(edge.relation)}: not reversed, there is a relation that does it already")
        else:
            reverse = EdgeData(
                relation=(target, f"rev_{name}", source),
                src=edge.dst,
                dst=edge.src,
                where=edge.where,
                data=dict(edge.data),
                edge_ids=edge.edge_ids,
            )
            dataset.edges.append(reverse)
            reading.changed("add reverse edges", relation_key(reverse.relation), 0, reverse.num_edges)


def _append_reverse(edge: EdgeData, reading: Reading) -> int:
    """Append each edge that is no self loop, reversed; returns the number of edges there were."""
    before, keep = edge.num_edges, _not_loops(edge, reading)
    total = before + int(np.count_nonzero(keep))
    second = {"src": edge.dst, "dst": edge.src}
    for name, column in _columns(edge).items():
        tail = second.get(name, column)
        dtype = np.result_type(column.dtype, tail.dtype)
        _set_column(edge, name, _collect(_chain(_whole(column), _selected(tail, keep)), total, dtype, reading))
    return before


def _chain(*parts: Iterable[Array]) -> Iterator[Array]:
    for part in parts:
        yield from part


def _add_loops(edge: EdgeData, num_nodes: int, reading: Reading) -> int:
    """Append a self loop for each node without one, by id; returns the number of edges there were."""
    before = edge.num_edges
    missing = np.ones(num_nodes, bool)
    for part in chunks(before):
        src = edge.src[part]
        missing[src[src == edge.dst[part]]] = False
    total = before + int(np.count_nonzero(missing))
    for name, column in _columns(edge).items():
        endpoint = name in ("src", "dst")
        dtype: np.dtype[Any] = column.dtype if endpoint or name == "data.weight" else np.dtype(np.int64)
        value = None if endpoint else _SELF_LOOP_VALUES.get(name[5:], -1)
        _set_column(edge, name, _collect(_chain(_whole(column), _marked(missing, value)), total, dtype, reading))
    return before


def _marked(mask: npt.NDArray[np.bool_], value: int | None) -> Iterator[Array]:
    """The places of a mask that are set, or as many times `value`."""
    for part in chunks(mask.shape[0]):
        places = part.start + np.flatnonzero(mask[part])
        yield places if value is None else np.full(places.size, value)


def first_of_equals(edge: EdgeData, num_src: int, reading: Reading) -> npt.NDArray[np.bool_]:
    """Mark the first of each set of equal edges.

    Edges are dealt into buckets by a hash of both ends, so that equal edges meet in one, and each bucket is sorted
    by itself. Memory: `BYTES_PER_EDGE` of a bucket, which takes half of what the budget leaves at the most; temporary
    disk: 1 byte per edge, and 24 if there is more than one bucket.
    """
    keep = reading.scratch.array(edge.num_edges, bool)
    keep[:] = False
    most = max(1, min(LARGEST_BUCKET, reading.scratch.budget.left() // (2 * BYTES_PER_EDGE)))
    buckets = min(MOST_BUCKETS, -(-edge.num_edges // most))
    if buckets <= 1:
        keep[_firsts(edge.src[:], edge.dst[:], num_src)] = True
        return keep
    files = [tuple(reading.scratch.appender("<i8") for _ in range(3)) for _ in range(buckets)]
    for part in chunks(edge.num_edges):
        _deal(edge, part, files)
    for columns in files:
        src, dst, position = (column.finish() for column in columns)
        keep[_firsts_by_pieces(src, dst, position, num_src, most)] = True
    return keep


def _deal(edge: EdgeData, part: slice, files: list[tuple[Appender, ...]]) -> None:
    """Append the edges of `part`, with their places, to the files of their buckets, in order."""
    src, dst = edge.src[part], edge.dst[part]
    mixed = src.astype(np.uint64) * _ODD[0] + dst.astype(np.uint64) * _ODD[1]
    bucket = ((mixed >> np.uint64(40)) % np.uint64(len(files))).astype(np.uint8)
    del mixed
    ends = np.cumsum(np.bincount(bucket, minlength=len(files)))
    order = np.argsort(bucket, kind="stable")
    for columns, end, start in zip(files, ends, (0, *ends[:-1]), strict=True):
        inside = order[start:end]
        for column, values in zip(columns, (src[inside], dst[inside], inside + part.start), strict=True):
            column.append(values)


def _firsts_by_pieces(src: Array, dst: Array, position: Array, num_src: int, most: int) -> Array:
    """Positions of the first of each set of equal edges of a bucket, `most` at a time.

    The hash deals out different edges evenly; a bucket that is larger all the same has many that are equal, and of
    those only the first is carried from piece to piece.
    """
    columns = src, dst, position
    found = [column[:0] for column in columns]
    for start in range(0, src.shape[0], most):
        pieces = [
            np.concatenate((held, column[start : start + most])) for held, column in zip(found, columns, strict=True)
        ]
        first = np.sort(_firsts(pieces[0], pieces[1], num_src))
        found = [piece[first] for piece in pieces]
    return found[2]


def _firsts(src: Array, dst: Array, num_src: int) -> Array:
    """Places of the first of each set of equal pairs, in no useful order."""
    if src.shape[0] == 0:
        return np.empty(0, np.int64)
    if int(dst.max()) >= (2**63 - 1) // max(1, num_src):
        order = np.lexsort((src, dst))  # stable: the first of equals comes first
        return order[_changes(src[order]) | _changes(dst[order])]
    pair = dst.astype(np.int64)
    pair *= num_src
    pair += src
    order = np.argsort(pair, kind="stable")
    return order[_changes(pair[order])]


def _changes(values: Array) -> npt.NDArray[np.bool_]:
    """Where a value differs from the one before it."""
    changes = np.ones(values.size, bool)
    np.not_equal(values[1:], values[:-1], out=changes[1:])
    return changes
