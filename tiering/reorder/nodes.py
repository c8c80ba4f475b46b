"""What belongs to the nodes of a reordered graph: the order itself, scores by rank, labels, splits, extra arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.errors import InputError
from tiering.execution import Budget
from tiering.formats.artifact import Artifact, ArtifactWriter
from tiering.formats.feature_rows import take
from tiering.formats.features import FeatureTable
from tiering.formats.graph import Graph
from tiering.formats.scores import Scores
from tiering.io.storage import open_raw
from tiering.ranked_rows import RankedRows
from tiering.reorder.windows import put
from tiering.units import format_count

AnyArray = npt.NDArray[Any]

SPLIT_CHUNK = 1 << 20
"""Ids of a split that are mapped together."""


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
        table = FeatureTable(source.path / source_name, rows, entry.bytes // rows, "uint8", 0, "original")
        scratch = self.writer.path / "scratch"
        with (
            RankedRows(
                table, maps.new_to_old, maps.old_to_new, budget=self.budget, scratch=scratch, threads=self.threads
            ) as ranked,
            to.stream(name, entry.dtype, entry.shape) as file,
        ):
            for _, chunk in ranked.chunks(0, rows):
                file.write(chunk)


def write_order(
    arrays: NodeArrays, graph: Graph, scores: Scores, new_to_old: Mapping[str, AnyArray], provenance: dict[str, Any]
) -> dict[str, RankMaps]:
    """Write the nested order artifact; return both maps per node type.

    An order is asked for once, written, and dropped.

    Raises
    ------
    InputError
        If an order is no permutation.
    BudgetError
        If the inverse of an order does not fit: as many bytes as the order.
    """
    part = arrays.writer.part("order", "order")
    maps: dict[str, RankMaps] = {}
    for node_type in graph.node_types:
        names = [f"nodes/{node_type}/{name}" for name in ("new_to_old", "old_to_new")]
        inverse = None
        if not part.has(*names):
            inverse = _write_maps(part, names, new_to_old[node_type], graph.num_nodes(node_type), node_type, arrays)
        maps[node_type] = RankMaps(*(_mapped(part, name, graph.num_nodes(node_type)) for name in names))
        if len(graph.node_types) == 1:
            maps[node_type].inverse = inverse
        arrays.write(part, f"nodes/{node_type}/score", scores, f"nodes/{node_type}/feature", maps[node_type])
    part.commit({"graph_digest": graph.digest, "node_types": list(graph.node_types)}, provenance)
    return maps


def _write_maps(
    part: ArtifactWriter, names: list[str], order: AnyArray, count: int, node_type: str, arrays: NodeArrays
) -> AnyArray:
    """Write an order and its inverse, which proves that it is a permutation; return the inverse."""
    if order.shape != (count,):
        raise InputError(f"order of node type {node_type!r}: expected {count} ids, found {order.shape}")
    arrays.budget.require(order.nbytes, f"order of {format_count(count)} nodes of type {node_type!r}: its inverse")
    try:
        inverse: AnyArray = native.invert_permutation(order, arrays.threads)
    except ValueError as error:
        raise InputError(f"order of node type {node_type!r}: not a permutation: {error}") from error
    for name, ids in zip(names, (order, inverse), strict=True):
        put(part, name, ids)
    return inverse


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
    with writer.stream(name, "int64", ids.shape) as file:
        for begin in range(0, ids.shape[0], SPLIT_CHUNK):
            new = take(old_to_new, ids[begin : begin + SPLIT_CHUNK], threads)
            file.write(new.astype(np.int64, copy=False))
