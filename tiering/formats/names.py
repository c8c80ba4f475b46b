"""The names artifact: names of nodes in the source, as text, by original id. See ``data_specs/names.md``."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.manifest import Problem, array_problems, mismatch
from tiering.errors import InputError, MissingError, quoted
from tiering.formats.order import Order
from tiering.text.description import Part, Table
from tiering.text.units import format_count


@dataclass(frozen=True)
class NameTable:
    """Distinct names in ascending order of their UTF-8 bytes: name k is ``data[offsets[k]:offsets[k + 1]]``.

    It is the name of node k, or, where nodes have another order, of node ``ids[k]``: node i has name ``ranks[i]``.
    """

    offsets: npt.NDArray[np.int64]
    data: npt.NDArray[np.uint8]
    ids: npt.NDArray[np.int64] | None = None
    ranks: npt.NDArray[np.int64] | None = None

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays by the names of their files."""
        arrays = zip(_FILES, (self.offsets, self.data, self.ids, self.ranks), strict=True)
        return {name: array for name, array in arrays if array is not None}

    def __len__(self) -> int:
        return int(self.offsets.shape[0]) - 1

    def encoded(self, position: int) -> bytes:
        """Return a name as UTF-8."""
        return self.data[int(self.offsets[position]) : int(self.offsets[position + 1])].tobytes()

    def take(self, nodes: npt.NDArray[np.int64]) -> Any:
        """Return the names of nodes as an array of Arrow, strings. Cost: the names of these nodes are read."""
        import pyarrow as pa

        names = pa.LargeStringArray.from_buffers(len(self), pa.py_buffer(self.offsets), pa.py_buffer(self.data))
        return names.take(pa.array(nodes if self.ranks is None else self.ranks[nodes])).cast(pa.string())

    def position(self, encoded: bytes) -> int | None:
        """Return the position of a name, if it is there. Cost: of 10 million names some 25 are read."""
        at = bisect.bisect_left(range(len(self)), encoded, key=self.encoded)
        return at if at < len(self) and self.encoded(at) == encoded else None


TABLE_ORDER = "table_order"
"""Name in ``requires`` of names whose nodes are not in ascending order."""
_FILES = {"offsets": "int64", "bytes": "uint8", "ids": "int64", "ranks": "int64"}  # in the order of `NameTable`


class Names(Artifact):
    """Names of the nodes of those types that have some, and their original ids."""

    kind = "names"

    def table(self, node_type: str | None = None) -> NameTable:
        """Return the names of a type by original id, mapped read-only."""
        folder = f"nodes/{self._resolve_type(node_type)}"
        files = [f"{folder}/{name}" for name in _FILES]
        return NameTable(*(self.manifest.array(file) for file in files if file in self.manifest.files))

    def _body_problems(self) -> Iterator[Problem]:
        for node_type in self.node_types:
            ordered = any(f"nodes/{node_type}/{name}" in self.manifest.files for name in ("ids", "ranks"))
            for name, dtype in list(_FILES.items())[: None if ordered else 2]:
                yield from array_problems(self.manifest, f"nodes/{node_type}/{name}", None, [dtype])
            if ordered and TABLE_ORDER not in self.manifest.requires:
                yield mismatch("requires", repr(TABLE_ORDER), "none")

    def _structure_problems(self) -> Iterator[Problem]:
        for node_type in self.node_types:
            table, where = self.table(node_type), f"nodes/{node_type}/offsets"
            offsets, size = table.offsets, table.data.size
            if offsets[0] != 0 or offsets[-1] != size:
                yield Problem(where, f"expected 0 .. {size}, found {offsets[0]} .. {offsets[-1]}", "value")
            elif not (rises := np.diff(offsets) > 0).all():
                yield Problem(where, f"offsets do not increase at node {np.argmin(rises)}", "value")
            elif (ids := table.ids) is not None and not (
                np.array_equal(ranks := np.argsort(ids), table.arrays["ranks"])
                and np.array_equal(ids[ranks], np.arange(len(table)))
            ):
                yield Problem(f"nodes/{node_type}/ranks", "expected the inverse of ids, found other values", "value")

    def _content_problems(self, threads: int) -> Iterator[Problem]:
        import pyarrow as pa
        import pyarrow.compute as pc

        for node_type in self.node_types:
            table = self.table(node_type)
            buffers = [None, pa.py_buffer(table.offsets), pa.py_buffer(table.data)]
            names = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(table), buffers)
            at = pc.index(pc.less(names[:-1], names[1:]), False).as_py() + 1 if len(table) > 1 else 0
            if at:
                yield Problem(f"nodes/{node_type}/bytes", f"name {at} is not greater than the name before it", "value")

    def _summarize_content(self) -> dict[str, Any]:
        return {"node_types": {name: {"nodes": len(self.table(name))} for name in self.node_types}}

    def _describe_content(self, summary: Mapping[str, Any]) -> list[Part]:
        rows = [(name, format_count(entry["nodes"])) for name, entry in summary["node_types"].items()]
        return [Table("Names", ("type", "nodes"), rows)]


def _checked(ids: Any, count: int, node_type: str) -> npt.NDArray[np.int64]:
    wanted = np.asarray(ids.cpu() if hasattr(ids, "cpu") else ids, np.int64).reshape(-1)
    outside = (wanted < 0) | (wanted >= count)
    if outside.any():
        raise MissingError(f"names: expected ids 0..{count - 1} of {node_type}, found {wanted[np.argmax(outside)]}")
    return wanted


class NodeNames:
    """Names of the nodes of one type by the ids of a graph, which are ranks where it is reordered."""

    def __init__(self, table: NameTable, order: Order | None, node_type: str) -> None:
        self._table, self._order, self._type = table, order, node_type

    def __len__(self) -> int:
        return len(self._table)

    def of(self, ids: npt.ArrayLike) -> list[str]:
        """Return the names in the source of nodes of the graph, ids of shape (n,)."""
        wanted = _checked(ids, len(self), self._type)
        old = wanted if self._order is None else self._order.new_to_old(self._type)[wanted]
        ranks = old if self._table.ranks is None else self._table.ranks[old]
        return [self._table.encoded(int(one)).decode() for one in ranks]

    def find(self, names: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return the ids in the graph, int64 of shape (names,), of nodes with these names; a binary search for each."""
        if wrong := [name for name in names if not isinstance(name, str)]:
            raise InputError(f"names: names of {self._type} are text, found {wrong[0]!r}; give names as text")
        positions = [self._table.position(name.encode()) for name in names]
        if None in positions:
            name = names[positions.index(None)]
            raise MissingError(f"names: no node of type {self._type} has the name {quoted(name)}")
        ids = np.array(positions, np.int64)
        ids = ids if self._table.ids is None else self._table.ids[ids]
        return ids if self._order is None else self._order.old_to_new(self._type)[ids].astype(np.int64)


class NodeNumbers:
    """Whole numbers that are ids of nodes of one type in the source, by the ids of a graph; as `NodeNames`."""

    def __init__(self, numbers: npt.NDArray[Any], first: int, node_type: str) -> None:
        self._numbers, self._first, self._type = numbers, first, node_type  # node i is numbers[i] + first

    def __len__(self) -> int:
        return len(self._numbers)

    def of(self, ids: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return the ids in the source, int64 or uint64, of nodes of the graph, ids of shape (n,)."""
        numbers: npt.NDArray[Any] = self._numbers[_checked(ids, len(self), self._type)]
        return numbers.astype(np.int64) + self._first if self._first else numbers

    def find(self, numbers: Any) -> npt.NDArray[np.int64]:
        """Return the ids in the graph, int64 of shape (numbers,), of nodes with these ids in the source.

        The first call sorts the numbers of all nodes: 8 bytes for each.
        """
        wanted = numbers.tolist() if hasattr(numbers, "tolist") else list(numbers)
        if wrong := [one for one in wanted if isinstance(one, bool) or not isinstance(one, (int, np.integer))]:
            raise InputError(f"names: ids of {self._type} are whole numbers, found {wrong[0]!r}; give whole numbers")
        held = np.iinfo(self._numbers.dtype)
        nearest = [min(max(int(one) - self._first, held.min), held.max) for one in wanted]
        places = np.searchsorted(self._numbers, np.array(nearest, held.dtype), sorter=self._ascending)
        ids = self._ascending[np.minimum(places, len(self) - 1)] if len(self) else places[:0]
        known = set(self.of(ids).tolist())
        if missing := [one for one in wanted if one not in known]:
            raise MissingError(f"names: no node of type {self._type} has the id {missing[0]}")
        return ids

    @cached_property
    def _ascending(self) -> npt.NDArray[np.int64]:
        return np.argsort(self._numbers, kind="stable")
