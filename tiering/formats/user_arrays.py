"""Values that users give by node type: training nodes; arrays in memory, numpy files or text like ``paper=hot.npy``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tiering.artifacts.checksum import checksum_file, digest_bytes
from tiering.artifacts.storage import file_exists
from tiering.errors import InputError, MissingError
from tiering.formats.arrow import ArrowStream, as_array
from tiering.formats.npy_file import NpyFile, as_column, open_npy
from tiering.formats.shape import GraphShape, SizedGraph
from tiering.text.units import parse_size

UserValues: TypeAlias = "str | os.PathLike[str] | np.ndarray[Any, Any] | list[Any] | ArrowStream | Mapping[str, Any]"
IdArray: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Train: TypeAlias = "UserValues | None"
_STEP = 1 << 18  # ids that are compared at a time
HOW_TO = (
    "give one with --train: a split of the graph, a .npy file of node ids, or a percentage of the nodes such as 1% "
    "(TYPE=SPLIT, TYPE=FILE or TYPE=PERCENT if several node types are possible)"
)


def resolve_train(
    graph: SizedGraph, train: Train = None, seed: int = 0, *, repeats: bool = False, source_ids: bool = False
) -> dict[str, IdArray]:
    """Return training nodes by node type: int64 ids, at least one, of the types that have any.

    `train` is ``None``: the splits ``train``; another split; for one type an array of ids, a ``.npy`` file, or a share
    such as ``"1%"``, sampled without replacement and sorted; for several, one of these by type, as a mapping or as text
    such as ``paper=1%,author=ids.npy``. With `repeats` an id may come several times. With `source_ids` arrays and files
    of a reordered graph hold ids of the source, not ranks.
    """
    given = _train_by_type(graph, train, seed, source_ids)
    splits = {name for node_type in graph.node_types for name in graph.splits(node_type)}
    if isinstance(graph, GraphShape) and (train is None or (isinstance(train, str) and train in splits)):
        return {node_type: ids for node_type, (ids, _) in given.items() if ids.size}
    checked = {t: _checked(graph, t, ids, where, repeats) for t, (ids, where) in given.items()}
    nodes = {node_type: ids for node_type, ids in checked.items() if ids.size}
    if not nodes:
        raise InputError(f"{graph.path}: the training set is empty; {HOW_TO}")
    return nodes


def _train_by_type(
    graph: SizedGraph, train: Train, seed: int, source_ids: bool
) -> dict[str, tuple[np.ndarray[Any, Any], str]]:
    split = "train" if train is None else train
    if isinstance(split, str) and (owners := [t for t in graph.node_types if split in graph.splits(t)]):
        return {t: (graph.split(split, t), f"split {split} of {t!r}") for t in owners}
    if train is None:
        splits = sorted({split for t in graph.node_types for split in graph.splits(t)})
        known = f", but {', '.join(splits[:8])}{'...' if len(splits) > 8 else ''}" if splits else ""
        raise InputError(f"{graph.path}: the graph has no split `train`{known}; {HOW_TO}")
    if isinstance(train, str) and "=" in train:
        pairs = {name.strip(): value.strip() for name, _, value in (part.partition("=") for part in train.split(","))}
        if not all(pairs) or not all(pairs.values()):
            raise InputError(f"train: expected TYPE=FILE.npy or TYPE=PERCENT separated by commas, found {train!r}")
        train = pairs
    if isinstance(train, Mapping):
        return {t: (_ids(graph, t, value, seed, source_ids), _name(t, value)) for t, value in train.items()}
    if isinstance(train, str) and not train.strip().endswith("%"):
        _require_file(Path(train))  # before a type is asked for that would not help
    node_type = _only_type(graph)
    return {node_type: (_ids(graph, node_type, train, seed, source_ids), _name(node_type, train))}


def _name(node_type: str, train: Any) -> str:
    return f"train set of {node_type!r}" + (f", {train}" if isinstance(train, (str, os.PathLike)) else "")


def _only_type(graph: SizedGraph) -> str:
    with_split = [t for t in graph.node_types if "train" in graph.splits(t)]
    labeled = [t for t in graph.node_types if graph.num_classes(t) is not None]
    for candidates in (graph.node_types, with_split, labeled):
        if len(candidates) == 1:
            return candidates[0]
    types = ", ".join(graph.node_types)
    raise InputError(f"{graph.path}: the node type of the training nodes is not clear; give TYPE=...; types: {types}")


def _ids(graph: SizedGraph, node_type: str, value: Any, seed: int, source_ids: bool) -> np.ndarray[Any, Any]:
    count = graph.num_nodes(node_type)
    if isinstance(value, str) and value.strip().endswith("%"):
        fraction = parse_size(value, "train").fraction or 0.0
        if fraction == 0:
            raise InputError(f"train: expected a percentage above 0%, found {value!r}")
        size = min(count, max(1, int(count * fraction)))
        return np.sort(np.random.default_rng(seed).choice(count, size, replace=False))
    if isinstance(value, str) and value in graph.splits(node_type):
        return graph.split(value, node_type)
    if isinstance(value, (str, os.PathLike)):
        _require_file(Path(value))
        ids = open_npy(Path(value), "node ids").array()
    else:
        ids = as_array(value, f"train set of {node_type!r}")
    if not source_ids or getattr(graph, "order", None) is None:
        return ids
    checked = _checked(graph, node_type, ids, _name(node_type, value), repeats=True)
    return graph.old_to_new(node_type)[checked]  # type: ignore[union-attr] # a graph with ranks is one on disk


def _require_file(path: Path) -> None:
    if not file_exists(path, "node ids"):
        raise MissingError(f"{path}: no file and no split has this name; {HOW_TO}")


def _checked(graph: SizedGraph, node_type: str, ids: np.ndarray[Any, Any], where: str, repeats: bool) -> IdArray:
    where = f"{graph.path}: {where}"
    if ids.size == 0:
        return np.empty(0, np.int64)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise InputError(f"{where}: expected whole numbers of shape (n,), found {ids.dtype} of shape {ids.shape}")
    return np.ascontiguousarray(check_ids(ids, graph.num_nodes(node_type), where, str(graph.path), repeats=repeats))


def resolve_times(seed_time: UserValues | None, train: Mapping[str, IdArray]) -> dict[str, Any] | None:
    """Return times of training nodes by type, unchecked: an array or a ``.npy`` file, or one by type as in `train`."""
    if seed_time is None:
        return None
    if isinstance(seed_time, str) and "=" in seed_time:
        seed_time = {t.strip(): file.strip() for t, _, file in (part.partition("=") for part in seed_time.split(","))}
    if not isinstance(seed_time, Mapping):
        if len(train) != 1:
            raise InputError(f"seed_time: the node type is not clear; give TYPE=FILE; types: {', '.join(train)}")
        seed_time = {next(iter(train)): seed_time}
    files = {t: Path(file) for t, file in seed_time.items() if isinstance(file, str | os.PathLike)}
    return {**seed_time, **{t: open_npy(file, "times", dates=True).array() for t, file in files.items()}}


def check_ids(
    values: np.ndarray[Any, Any], count: int, where: str, counted_by: str = "", *, repeats: bool = False
) -> IdArray:
    """Return node ids as int64; refuse one outside 0..`count` - 1, and `repeats`. Ascending ids take no memory."""
    ids: IdArray = values.astype(np.int64, copy=False)  # those above 2^63 turn negative
    if ids.size and (ids.min() < 0 or ids.max() >= count):
        outside = np.flatnonzero((ids < 0) | (ids >= count))
        origin = f"; {count} nodes, as {counted_by} says" if counted_by else ""
        raise InputError(
            f"{where}: expected ids 0..{count - 1}, found {values[outside[0]]} at position {outside[0]} "
            f"({outside.size} out of range{origin}); correct the ids, or check that they are ids of this graph"
        )
    if repeats or all(np.all(np.diff(ids[start : start + _STEP + 1]) > 0) for start in range(0, ids.size, _STEP)):
        return ids
    seen = np.zeros(count, bool)
    seen[ids] = True
    if np.count_nonzero(seen) != ids.size:
        unique, times = np.unique(ids, return_counts=True)
        twice = unique[times > 1]
        raise InputError(f"{where}: expected each id once, found {twice.size} repeated, such as {twice[0]}")
    return ids


@dataclass(frozen=True)
class UserArray:
    """Numbers of shape (n,) that the user gives."""

    values: np.ndarray[Any, Any]  # mapped, if they come from a file
    where: str  # the file, or which argument it was, for messages
    file: Path | None = None

    @property
    def digest(self) -> str:
        """Digest of the whole file, or of dtype and values. Cost: reads them."""
        if self.file is not None:
            return checksum_file(self.file)
        return digest_bytes(f"{self.values.dtype.str} {digest_bytes(self.values.view(np.uint8).data)}".encode())


def read_user_arrays(graph: SizedGraph, values: UserValues, what: str, option: str, kinds: str) -> dict[str, UserArray]:
    """Return arrays by node type, of `kinds` of numpy dtypes such as ``iuf``; `what` and `option` are for messages.

    `values` are an array (of Arrow, too) or a ``.npy`` path, of the only node type (with features), text ``TYPE=FILE``
    or a list of it, or a mapping.
    """
    arrays: dict[str, UserArray] = {}
    for node_type, value in _split_by_type(graph, values, option):
        if node_type in arrays:
            raise InputError(f"{option}: node type {node_type!r} is given twice; give one array for each type")
        arrays[node_type] = _array(value, what, f"{option} of {node_type!r}", kinds)
    if not arrays:
        raise InputError(f"{option}: expected {what} of a node type, found none; types: {', '.join(graph.node_types)}")
    return arrays


def featured_types(graph: SizedGraph) -> list[str]:
    """Return the node types with features; all, if none has any."""
    featured = [node_type for node_type in graph.node_types if graph.feature_table(node_type) is not None]
    return featured or list(graph.node_types)


def _split_by_type(graph: SizedGraph, sources: UserValues, option: str) -> Iterator[tuple[str, Any]]:
    if isinstance(sources, Mapping):
        unknown = sorted(set(map(str, sources)) - set(graph.node_types))
        if unknown:
            known = ", ".join(graph.node_types)
            raise InputError(f"{option}: {graph.path} has no node type {', '.join(unknown)}; types: {known}")
        yield from sources.items()
        return
    several = isinstance(sources, (list, tuple)) and all(isinstance(one, (str, os.PathLike)) for one in sources)
    values: list[Any] = list(sources) if several else [sources]  # type: ignore[arg-type]
    for one in values:
        name, sign, file = one.partition("=") if isinstance(one, str) else ("", "", "")
        if name.strip() in graph.node_types and file.strip():
            yield name.strip(), file.strip()
        elif sign and not Path(name + sign + file).exists():  # a path may well have a = in it
            known = ", ".join(graph.node_types)
            raise InputError(f"{option}: expected FILE or TYPE=FILE, found {one!r}; types: {known}")
        else:
            types = featured_types(graph)
            if len(types) > 1:
                raise InputError(f"{option}: the node type is not clear; give TYPE=FILE; types: {', '.join(types)}")
            yield types[0], one


def _array(value: Any, what: str, where: str, kinds: str) -> UserArray:
    words = "whole numbers" if "f" not in kinds else "numbers"
    if isinstance(value, (str, os.PathLike)):
        file: NpyFile = open_npy(Path(value), what)
        return UserArray(file.column(kinds, words), str(value), file.path)
    values = as_array(value, where)
    if values.size == 0 and not hasattr(value, "dtype"):
        values = values.astype(np.int64)  # an empty list has no dtype of its own
    return UserArray(np.ascontiguousarray(as_column(values, where, what, kinds, words)), where)
