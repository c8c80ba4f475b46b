"""Edges that come as columns, as from text and parquet: which columns, and a sink of blocks that makes a dataset."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.datasets.edges import LargestId, check_weights, find_largest_id
from tiering.datasets.import_context import CHUNK, NODE, RELATION, ImportContext
from tiering.datasets.name_ids import NameIds, decode_numbers
from tiering.datasets.nodes import make_dataset, read_arrays_beside
from tiering.datasets.options import MAX_NODES, ImportOptions
from tiering.errors import InputError, StorageError, quoted
from tiering.formats.arrow import pa
from tiering.formats.dataset import Dataset, EdgeData
from tiering.formats.names import NameTable
from tiering.text.options import spell_flag
from tiering.text.progress import note, note_at
from tiering.text.units import format_bytes

ENDS = {"src": "source", "dst": "destination"}
DTYPES = {"src": "<i8", "dst": "<i8", "weight": "<f8"}  # content of a column of edges -> its dtype after it was read
_END_NAMES = (
    ("src", "dst"), ("source", "target"), ("source", "destination"), ("from", "to"), ("head", "tail"), ("u", "v"),
    ("subject", "object"), ("start", "end"), ("citing", "cited"), ("follower", "followee"), ("follower", "followed"),
    ("sender", "receiver"), ("sender", "recipient"), ("origin", "destination"), ("parent", "child"), ("row", "col"),
    ("h", "t"), ("caller", "callee"), ("src", "dest"), ("src", "target"), ("s", "t"), ("src", "tgt"),
    ("source", "dest"), ("source", "sink"), ("from", "dest"), ("who", "whom"),
)  # fmt: skip
"""Words by which the names of two columns differ that are ends of edges: ``src,dst``, ``FromNodeId,ToNodeId``."""
_NUMBERED = (("1", "2"), ("0", "1"), ("a", "b"), ("i", "j"))  # the same, of the first two columns only
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_VALUES = {
    "weight", "type", "label", "time", "timestamp", "date", "year", "rating", "score", "value", "sign", "count",
}  # fmt: skip
"""Last words of names of columns that are no ids: weights, times."""
_INDEX = ("", "index", "unnamed: 0")  # names of columns that number the rows, as pandas writes them
_SPARSE = 8


def check_values(values: npt.NDArray[Any], where: str, first: int, content: str, least: int = 0) -> LargestId:
    """Refuse values that no edge can have, the first of which has number `first`; return the largest id, from 0."""
    if content == "weight":
        check_weights(values, where, first)
        return LargestId()
    largest = find_largest_id(values, where, ENDS[content], first, least)
    return largest._replace(id=largest.id - least, smallest=largest.smallest - least) if values.size else largest


class EdgeSink:
    """Columns ``src``, ``dst`` and, if `weighted`, ``weight``, in temporary files; names and sparse ids are sorted."""

    def __init__(self, path: Path, context: ImportContext, *, weighted: bool = False, named: bool = False) -> None:
        self.path, self.rows, self.largest = path, 0, LargestId()
        self._context, self.block_bytes = context, context.scratch.text_block
        self._named, self._names = named, NameIds(context.scratch) if named or context.options.compact_ids else None
        contents = [*(ENDS if self._names is None else ()), *(["weight"] if weighted else [])]
        self._files = {content: context.scratch.growing_file(DTYPES[content]) for content in contents}

    def append(self, columns: Mapping[str, Any], where: Mapping[str, str] | None = None) -> None:
        """Add a block of edges, all of its columns; `where` each comes from, for messages: by default the path."""
        for content, values in columns.items():
            place = str(self.path) if where is None else where[content]
            if self._names is not None and self._named and content in ENDS:
                self._names.append(content, values, place, self.rows)
                continue
            values, first_id = values.astype(DTYPES[content], copy=False), self._context.options.first_id
            if self._names is None or content not in ENDS or first_id:  # those that are made dense may be negative
                self.largest = self.largest.merge(check_values(values, place, self.rows, content, first_id))
            try:
                if self._names is not None and content in ENDS:
                    self._names.append(content, pa.array(values))
                else:
                    self._files[content].append(values - first_id if first_id and content in ENDS else values)
            except StorageError as error:
                raise StorageError(error.errno, f"{place}: after {self.rows} edges: {error}") from error
        self.rows += len(columns["src"])

    def finish_columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the columns, mapped; nothing can be appended afterwards."""
        return {content: file.finish() for content, file in self._files.items()}

    def count_nodes(self) -> set[int]:
        """Return numbers of nodes that a file may state: by the largest id, from 0 or 1; of few edges, those there."""
        if self._names is not None:
            return {len(self._names.finish()[1])}
        columns, count = self.finish_columns(), self.largest.id + 1
        distinct = np.unique([columns[end] for end in ENDS]).size if self.rows <= CHUNK else count
        return {count, count - (self.largest.smallest > 0), distinct}

    def finish(self, num_nodes: int | None = None) -> Dataset:
        """Return the dataset of the columns; `num_nodes` as the file states it, if it does."""
        ends, names = ({}, None) if self._names is None else self._names.finish()
        ids, names = (None, names) if names is None or self._named else (decode_numbers(names), None)
        columns = self.finish_columns() | ends
        return describe_edges(self.path, columns, self.largest, self._context, num_nodes, names, ids)


def describe_edges(
    path: Path, columns: dict[str, Any], largest: LargestId, context: ImportContext,
    num_nodes: int | None = None, names: NameTable | None = None, ids: npt.NDArray[np.int64] | None = None,
) -> Dataset:  # fmt: skip
    """Return the dataset of columns of edges: count the nodes; `ids`: the original ones, if they were made dense."""
    edges = EdgeData(RELATION, columns.pop("src"), columns.pop("dst"), where=str(path), data=columns)
    arrays, extra = read_arrays_beside(edges, context), {}
    arrays.splits = {k: split.renumber(ids, names, context.options.first_id) for k, split in arrays.splits.items()}
    if names is not None:
        for option in ("compact_ids", "first_id"):
            if getattr(context.options, option):
                raise InputError(f"{spell_flag(option)}: names are always numbered 0, 1, 2...; omit the option")
        arrays.counts.append((f"{path}: names that occur (other nodes do not exist)", len(names)))
        context.notes["names"] = {"nodes": len(names), "bytes": int(names.data.shape[0]), "ids": "ascending by name"}
    elif num_nodes is not None:
        arrays.counts.append((str(path), num_nodes))
    elif ids is not None:
        arrays.counts.append((f"{path}: ids that occur (with --compact-ids others do not exist)", int(ids.size)))
        extra = {"original_id": ids}
        context.notes["compact_ids"] = {"nodes": int(ids.size), "largest": int(ids[-1]) if ids.size else None}
    else:
        arrays.largest = largest
        if not arrays.counts:
            _check_sparse(edges, largest, context)
    dataset = make_dataset((context.folder or path).name.split(".")[0], {NODE: arrays}, [edges], context)
    dataset.nodes[NODE].names, dataset.nodes[NODE].extra = names, {**extra, **dataset.nodes[NODE].extra}
    return dataset


def _check_sparse(edges: EdgeData, largest: LargestId, context: ImportContext) -> None:
    """Refuse ids so sparse that the largest is likely to be wrong, unless option ``num_nodes`` is there."""
    stated, count = context.options.num_nodes.get(NODE), largest.id + 1
    if stated is None and count > _SPARSE * max(1, 2 * edges.num_edges):
        others = f", or give --num-nodes {count} if the other nodes exist"
        raise InputError(
            f"{largest.place} is the largest id, but {edges.num_edges} edges touch at most {2 * edges.num_edges} "
            f"nodes: the ids are sparse, and indptr would take {format_bytes(8 * (count + 1))} of memory; correct the "
            f"id, make ids dense with --compact-ids{others if largest.id < MAX_NODES else ''}"
        )


def choose_columns(
    columns: Sequence[str], options: ImportOptions, where: str, ids: Sequence[object] = ()
) -> dict[str, int]:
    """Return positions of ``src``, ``dst``, perhaps ``weight``; without names columns are "0"..., ends where `ids`."""
    if len(columns) < 2:
        raise InputError(f"{where}: expected two or more columns (source, destination), found {len(columns)}")
    names = [name.strip().lower() for name in columns]
    chosen: dict[str, int] = {}
    if "weight" in names and options.weight_column is None:
        chosen["weight"] = find_once("weight", names, where)
    for role in ("src", "dst", "weight"):
        name = getattr(options, f"{role}_column")
        if name in columns:
            chosen[role] = find_once(str(name), columns, where)
        elif name is not None and name.isdecimal() and len(name) < 10 and int(name) < len(columns):
            chosen[role] = int(name)
        elif name is not None:
            listed = ", ".join(columns)[:500]
            raise InputError(f"{where}: --{role}-column {name[:80]}: no such column; there are: {listed}")
    if not {"src", "dst"} <= chosen.keys():
        chosen = {**_find_ends(columns, chosen, where, ids or [True] * len(columns)), **chosen}
    if chosen["src"] == chosen["dst"]:
        raise InputError(f"{where}: source and destination are the same column {chosen['src']}; name two columns")
    if chosen.get("weight") in (chosen["src"], chosen["dst"]):
        problem = f"column {chosen['weight']} is named for both ids and weights"
        raise InputError(f"{where}: {problem}; name them with --src-column, --dst-column and --weight-column")
    if index := [names[k] for k in range(len(names)) if names[k] in _INDEX and k not in chosen.values()]:
        note_at(where, f": column {quoted(index[0])} is skipped as an index of rows")
    src, dst = (columns[chosen[end]] for end in ENDS)
    relation = _suggest_relation(where, src, dst)
    named = options.src_column is not None and options.dst_column is not None and not (src + dst).isdecimal()
    if named and "SRC" not in relation and find_end_names((src, dst), (*_END_NAMES, *_NUMBERED)) is None:
        note(f"note: {where}: equal values in {src} and {dst} are one node; {relation} makes two node types")
    return {role: chosen[role] for role in ("src", "dst", "weight") if role in chosen}


def _suggest_relation(where: str, src: str, dst: str) -> str:
    """Return the option that makes nodes of two types of two columns: types by the names, if those differ."""
    types = ["".join(_split_words(name, "id")) or "node" for name in (src, dst)]
    owner = "SRC:NAME:DST" if types[0] == types[1] or (src + dst).isdecimal() else ":to:".join(types)
    return f"--relation {owner}={where}:{src},{dst}"


def _find_ends(columns: Sequence[str], chosen: Mapping[str, int], where: str, ids: Sequence[object]) -> dict[str, int]:
    """Return positions of the ends that are not chosen: by names, or the only columns there are; refuse a guess."""
    places = [k for k, name in enumerate(columns) if k != chosen.get("weight") and not _is_value(name)]
    plain = all(columns[k].isdecimal() for k in places)
    pair = find_end_names(columns)
    if pair is None and not plain and (numbered := find_end_names(columns[:2], _NUMBERED)) == tuple(columns[:2]):
        pair = numbered
    names = [name.strip().lower() for name in columns]
    if pair is not None:
        return {end: find_once(name.strip().lower(), names, where) for end, name in zip(ENDS, pair, strict=True)}
    others = [k for k in places if k not in chosen.values()]
    free = [k for k in others if not plain or ids[k] or len(others) == 2]
    lacking = [end for end in ENDS if end not in chosen]
    if plain and len(lacking) == 1:
        return dict(zip(ENDS, places, strict=False))
    if len(free) == len(lacking) and (plain or len(lacking) == 1):
        return dict(zip(lacking, free, strict=True))
    listed, (src, dst) = ", ".join(columns)[:500], free[:2] if len(free) > 1 else (0, 1)
    found = f"{len(columns)} columns without names" if plain else listed
    raise InputError(
        f"{where}: cannot tell which columns are source and destination, found {found}; give "
        f"--src-column {columns[src]} --dst-column {columns[dst]} if both have ids of one node type, "
        f"or {_suggest_relation(where, columns[src], columns[dst])} if they have ids of two types"
        f"{'; --type-column names a column of edge types' if len(columns) > 2 else ''}"
        f"{f'; --nodes TYPE={where} reads a table of nodes' if 'id' in names else ''}"
    )


def find_end_names(columns: Sequence[str], pairs: Sequence[tuple[str, str]] = _END_NAMES) -> tuple[str, str] | None:
    """Return the columns of sources and destinations, if their names differ as names of ends do."""
    words = [() if _is_value(name) else _split_words(name) for name in columns]
    for (first, second), (k, word) in product(pairs, enumerate(words)):
        other = tuple(second if part == first else part for part in word)
        if word.count(first) == 1 and other in words:
            return columns[k], columns[words.index(other)]
    return None


def _is_value(name: str) -> bool:
    """Return whether a column holds no ids by its name: an index of rows, weights, times (``start_time``)."""
    words = _split_words(name)
    return name.strip().lower() in _INDEX or (words[-1:] or ("",))[0] in _VALUES


def _split_words(name: str, left_out: str = "") -> tuple[str, ...]:
    """Return the words of a name in lower case: ``from node id`` of ``FromNodeId``, but for one."""
    return tuple(word.lower() for word in _WORD.findall(name) if word.lower() != left_out)


def find_once(column: str, columns: Sequence[str], where: str) -> int:
    """Return the position of a column; raise where several columns have its name."""
    times = list(columns).count(column)
    if times > 1:
        raise InputError(f"{where}: column {column} occurs {times} times; give each column its own name")
    return list(columns).index(column)
