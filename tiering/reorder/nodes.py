"""What belongs to the nodes of a reordered graph: the order itself, scores by rank, labels, splits, extra arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.artifact import Artifact
from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.artifacts.storage import open_raw
from tiering.artifacts.writer import ArtifactWriter
from tiering.errors import InputError, TieringError
from tiering.formats.feature_rows import take
from tiering.formats.features import FeatureTable
from tiering.formats.graph import Graph
from tiering.formats.scores import Scores
from tiering.memory import Budget
from tiering.ranked_rows import RankedRows
from tiering.reorder.arrays import put, whole_rows, write_inverse, write_rows

AnyArray = npt.NDArray[Any]
Orders: TypeAlias = "Mapping[str, AnyArray]"
"""``new_to_old`` by node type."""

SPLIT_CHUNK = 1 << 20
"""Ids of a split that are mapped together."""


@runtime_checkable
class Pieces(Protocol):
    """Orders that come in pieces where they do not fit into memory."""

    def pieces(self, node_type: str) -> Iterator[AnyArray]:
        """``new_to_old`` of a node type, one piece after the other; at least one."""
        ...


@dataclass
class RankMaps:
    """Both directions of the order of a node type, memory-mapped from the artifact that is being written."""

    new_to_old: AnyArray
    old_to_new: AnyArray
    inverse: AnyArray | None = None
    """``old_to_new`` in memory, where it was just made and every relation needs it."""

    def random(self) -> AnyArray:
        """``old_to_new``, in memory if it is there."""
        return self.old_to_new if self.inverse is None else self.inverse


@dataclass(frozen=True)
class NodeArrays:
    """Writes arrays that run along the nodes."""

    writer: ArtifactWriter
    budget: Budget
    threads: int

    def write(self, to: ArtifactWriter, name: str, source: Artifact, source_name: str, maps: RankMaps) -> None:
        """Write the array `source_name` of `source` in rank order, within the budget; what is there already stays."""
        entry = source.manifest.files[source_name]
        if to.has(name):
            return
        rows = entry.shape[0]
        if entry.bytes == 0:
            to.put(name, source.manifest.array(source_name), entry.dtype)
            return
        if whole_rows(entry.bytes // rows):
            whole = source.manifest.array(source_name).reshape(rows, -1).view(np.uint8)
            with to.file(name, entry.dtype, entry.shape) as blocks:
                write_rows(blocks, whole, maps.random(), self.budget, self.threads)
            return
        manifest = source.manifest
        table = FeatureTable(
            source.path / source_name, rows, entry.bytes // rows, "uint8", 0, "original", manifest.place(source_name),
            manifest.verifier(source_name) if manifest.verify else None,
        )  # fmt: skip
        scratch = self.writer.path / "scratch"
        with (
            RankedRows(
                table, maps.new_to_old, maps.old_to_new, budget=self.budget, scratch=scratch, threads=self.threads
            ) as ranked,
            to.file(name, entry.dtype, entry.shape) as file,
        ):
            for _, chunk in ranked.chunks(0, rows):
                file.append(chunk)


def write_order(
    arrays: NodeArrays, graph: Graph, scores: Scores, new_to_old: Orders, provenance: dict[str, Any]
) -> dict[str, RankMaps]:
    """Write the nested order artifact; return both maps per node type.

    An order is asked for once, written, and dropped.

    Raises
    ------
    InputError
        If an order is no permutation.
    """
    part = arrays.writer.part("order", "order")
    maps: dict[str, RankMaps] = {}
    for node_type in graph.node_types:
        maps[node_type] = _write_maps(arrays, part, node_type, graph.num_nodes(node_type), new_to_old)
        if len(graph.node_types) > 1:
            maps[node_type].inverse = None  # relations take turns: each holds its own
        arrays.write(part, f"nodes/{node_type}/score", scores, f"nodes/{node_type}/feature", maps[node_type])
    part.commit({"graph_digest": graph.digest, "node_types": list(graph.node_types)}, provenance)
    return maps


def _write_maps(arrays: NodeArrays, part: ArtifactWriter, node_type: str, count: int, orders: Orders) -> RankMaps:
    """Write an order and its inverse, which proves that it is a permutation."""
    names = [f"nodes/{node_type}/{name}" for name in ("new_to_old", "old_to_new")]
    inverse = None
    try:
        whole = None if part.has(names[0]) else _write_pieces(part, names[0], node_type, count, orders)
        order = _mapped(part, names[0], count) if whole is None else whole
        if not part.has(names[1]):
            if order.nbytes <= arrays.budget.left() - BLOCK_BYTES:
                inverse = native.invert_permutation(order, arrays.threads)
                put(part, names[1], inverse)
            else:
                write_inverse(part, names[1], order, arrays.budget, arrays.threads)
    except TieringError:
        raise
    except ValueError as error:
        raise InputError(f"order of node type {node_type!r}: not a permutation: {error}") from error
    if inverse is not None and 4 * inverse.nbytes > arrays.budget.left():
        inverse = None
    return RankMaps(_mapped(part, names[0], count), _mapped(part, names[1], count), inverse)


def _write_pieces(part: ArtifactWriter, name: str, node_type: str, count: int, orders: Orders) -> AnyArray | None:
    """Write an order; return it if it came in one piece."""
    pieces = orders.pieces(node_type) if isinstance(orders, Pieces) else iter([orders[node_type]])
    first, second = next(pieces), next(pieces, None)
    if second is None:
        if first.shape != (count,):
            raise InputError(f"order of node type {node_type!r}: expected {count} ids, found {first.shape}")
        put(part, name, first)
        return first
    with part.file(name, first.dtype.name, (count,)) as file:
        file.append(first)
        file.append(second)
        del first, second
        for piece in pieces:
            file.append(piece)
    return None


def _mapped(part: ArtifactWriter, name: str, count: int) -> AnyArray:
    """A file of ids that was just written."""
    wide = (part.path / name).stat().st_size == 8 * count
    return open_raw(part.path / name, np.dtype(np.int64 if wide else np.int32), (count,))


def write_nodes(arrays: NodeArrays, graph: Graph, node_type: str, maps: RankMaps) -> None:
    """Write every array of a node type: splits hold ids, which are mapped in place; all others run along the nodes."""
    folder, writer = f"nodes/{node_type}/", arrays.writer
    splits = {f"{folder}split-{name}" for name in graph.splits(node_type)}
    for name in sorted(graph.manifest.files):
        if name in splits:
            _write_split(writer, name, graph.manifest.array(name), maps.old_to_new, arrays.threads)
        elif name.startswith(folder):
            arrays.write(writer, name, graph, name, maps)


def _write_split(writer: ArtifactWriter, name: str, ids: AnyArray, old_to_new: AnyArray, threads: int) -> None:
    """Write the new ids of a split, some at a time."""
    if writer.has(name):
        return
    with writer.file(name, "int64", ids.shape) as file:
        for begin in range(0, ids.shape[0], SPLIT_CHUNK):
            new = take(old_to_new, ids[begin : begin + SPLIT_CHUNK], threads)
            file.append(new.astype(np.int64, copy=False))
