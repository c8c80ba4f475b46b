"""The training nodes of a run: a split of the graph, a list of ids, or a random sample."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tiering.artifacts.regular import file_exists
from tiering.errors import InputError, MissingError
from tiering.formats.npy_file import open_npy
from tiering.formats.shape import GraphShape, SizedGraph
from tiering.units import parse_size

IdArray: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Train: TypeAlias = "str | os.PathLike[str] | np.ndarray[Any, Any] | list[int] | Mapping[str, Any] | None"
_STEP = 1 << 18  # ids that are compared at a time
HOW_TO = (
    "give one with --train: a split of the graph, a .npy file of node ids, or a percentage of the nodes such as 1% "
    "(TYPE=SPLIT, TYPE=FILE or TYPE=PERCENT where several node types could be meant)"
)


def resolve_train(graph: SizedGraph, train: Train = None, seed: int = 0) -> dict[str, IdArray]:
    """Return training nodes by node type: int64 ids, at least one, of the types that have any.

    `train` is ``None``: the graph's ``train`` splits; the name of another split; for one node type an array of ids, the
    path of a ``.npy`` file of ids, or a percentage such as ``"1%"`` drawn without replacement; for several, a mapping
    from node type to one of these, or text such as ``paper=1%,author=ids.npy``. Given ids keep their order; those of a
    percentage are ``sorted(numpy.random.default_rng(seed).choice(N, size, replace=False))``, ``size = max(1, int(N *
    p))``.
    """
    given = _by_type(graph, train, seed)
    splits = {name for node_type in graph.node_types for name in graph.splits(node_type)}
    if isinstance(graph, GraphShape) and (train is None or (isinstance(train, str) and train in splits)):
        return {node_type: ids for node_type, (ids, _) in given.items() if ids.size}
    checked = {node_type: _checked(graph, node_type, ids, where) for node_type, (ids, where) in given.items()}
    nodes = {node_type: ids for node_type, ids in checked.items() if ids.size}
    if not nodes:
        raise InputError(f"{graph.path}: the training set is empty; {HOW_TO}")
    return nodes


def _by_type(graph: SizedGraph, train: Train, seed: int) -> dict[str, tuple[np.ndarray[Any, Any], str]]:
    split = "train" if train is None else train
    if isinstance(split, str) and (owners := [t for t in graph.node_types if split in graph.splits(t)]):
        return {t: (graph.split(split, t), f"split {split} of {t!r}") for t in owners}
    if train is None:
        raise InputError(f"{graph.path}: the graph has no split `train`; {HOW_TO}")
    if isinstance(train, str) and "=" in train:
        train = dict(_assignment(part) for part in train.split(","))
    if isinstance(train, Mapping):
        return {t: (_ids(graph, t, value, seed), f"train set of {t!r}") for t, value in train.items()}
    if isinstance(train, str) and not train.strip().endswith("%"):
        _require_file(Path(train))  # before a type is asked for that would not help
    node_type = _only_type(graph)
    return {node_type: (_ids(graph, node_type, train, seed), f"train set of {node_type!r}")}


def _assignment(part: str) -> tuple[str, str]:
    name, _, value = part.partition("=")
    if not name.strip() or not value.strip():
        raise InputError(f"train: expected TYPE=FILE.npy or TYPE=PERCENT separated by commas, found {part!r}")
    return name.strip(), value.strip()


def _only_type(graph: SizedGraph) -> str:
    with_split = [t for t in graph.node_types if "train" in graph.splits(t)]
    labelled = [t for t in graph.node_types if graph.num_classes(t) is not None]
    for candidates in (graph.node_types, with_split, labelled):
        if len(candidates) == 1:
            return candidates[0]
    types = ", ".join(graph.node_types)
    raise InputError(f"{graph.path}: say which node type the training nodes are of, as TYPE=...; types: {types}")


def _ids(graph: SizedGraph, node_type: str, value: Any, seed: int) -> np.ndarray[Any, Any]:
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
        return open_npy(Path(value), "node ids").array()
    return np.asarray(value)


def _require_file(path: Path) -> None:
    if not file_exists(path, "node ids"):
        raise MissingError(f"{path}: no such file, and no split of that name; {HOW_TO}")


def _checked(graph: SizedGraph, node_type: str, ids: np.ndarray[Any, Any], where: str) -> IdArray:
    where = f"{graph.path}: {where}"
    if ids.size == 0:
        return np.empty(0, np.int64)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise InputError(f"{where}: expected whole numbers of shape (n,), found {ids.dtype} of shape {ids.shape}")
    return np.ascontiguousarray(check_ids(ids, graph.num_nodes(node_type), where))


def check_ids(values: np.ndarray[Any, Any], count: int, where: str) -> IdArray:
    """Return node ids as int64; refuse one outside 0..`count` - 1, and repeats. Ascending ids take no memory."""
    ids: IdArray = values.astype(np.int64, copy=False)  # those above 2^63 turn negative
    if ids.size and (ids.min() < 0 or ids.max() >= count):
        outside = np.flatnonzero((ids < 0) | (ids >= count))
        raise InputError(
            f"{where}: expected ids 0..{count - 1}, found {values[outside[0]]} at position {outside[0]} "
            f"({outside.size} out of range); correct them, or check that they belong to this graph"
        )
    if all(np.all(np.diff(ids[start : start + _STEP + 1]) > 0) for start in range(0, ids.size, _STEP)):
        return ids
    seen = np.zeros(count, bool)
    seen[ids] = True
    if np.count_nonzero(seen) != ids.size:
        unique, times = np.unique(ids, return_counts=True)
        twice = unique[times > 1]
        raise InputError(f"{where}: expected each id once, found {twice.size} repeated, such as {twice[0]}")
    return ids
