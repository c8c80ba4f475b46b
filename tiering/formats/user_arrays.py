"""Arrays that the user gives, one for a node type: in memory, as numpy files, or as text such as ``paper=hot.npy``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tiering.artifacts.checksum import checksum_file, digest_bytes
from tiering.errors import InputError
from tiering.formats.npy_file import NpyFile, as_column, open_npy
from tiering.formats.shape import SizedGraph

UserValues: TypeAlias = "str | os.PathLike[str] | np.ndarray[Any, Any] | list[Any] | Mapping[str, Any]"


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
    """Return arrays by node type, of `kinds` of numpy dtypes such as ``iuf``.

    `values` are an array or a ``.npy`` path, of the only node type or the only one with features; text ``TYPE=FILE``,
    or a list of such; or a mapping from node type to an array or path. `what` and `option` are for messages.
    """
    arrays: dict[str, UserArray] = {}
    for node_type, value in _by_type(graph, values, option):
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


def _by_type(graph: SizedGraph, sources: UserValues, option: str) -> Iterator[tuple[str, Any]]:
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
                raise InputError(f"{option}: say which node type is meant, as TYPE=FILE; types: {', '.join(types)}")
            yield types[0], one


def _array(value: Any, what: str, where: str, kinds: str) -> UserArray:
    words = "whole numbers" if "f" not in kinds else "numbers"
    if isinstance(value, (str, os.PathLike)):
        file: NpyFile = open_npy(Path(value), what)
        return UserArray(file.column(kinds, words), str(value), file.path)
    try:
        values = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise InputError(f"{where}: expected {what}, found {type(value).__name__} ({error})") from error
    if values.size == 0 and not hasattr(value, "dtype"):
        values = values.astype(np.int64)  # an empty list has no dtype of its own
    return UserArray(np.ascontiguousarray(as_column(values, where, what, kinds, words)), where)
