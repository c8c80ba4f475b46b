"""Attributes of nodes and edges other than features: original ids, classes, splits, edge data, by a batch's ids."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiering import cuda
from tiering.artifacts.manifest import Relation
from tiering.errors import InputError
from tiering.formats.features import EDGE_FEATURES
from tiering.formats.graph import Graph
from tiering.formats.graph_checks import checked_labels, checked_range, checked_split
from tiering.loader.batches.tensors import as_int64, has_bit, high_bits
from tiering.loader.gpu.device import Device
from tiering.loader.gpu.rows import GpuRows
from tiering.loader.options import FeatureSource

if TYPE_CHECKING:
    import torch

EDGE_IDS = "edge_ids"
"""Name of the edge data with the position of each edge in the source, which `import --edge-ids` keeps."""


class Lookup:
    """A table whose rows are looked up by int64 ids; the rows arrive where the ids lie.

    For a GPU a kernel reads a copy in page-locked memory, so that the host does not wait. Tables along edges are too
    large for a copy: if `mapped`, the host fetches the ids and reads the table itself.
    """

    def __init__(self, table: npt.NDArray[Any], device: Device | None, mapped: bool = False) -> None:
        self._table, self._device, self._memory = table, device, None
        if device is None or mapped or not table.size:
            return
        with cuda.device_errors(f"a table of {table.nbytes} bytes for {device.name}"):
            self._memory = cuda.PinnedMemory(device.index, table.nbytes)
        copy = self._memory.array().view(table.dtype).reshape(table.shape)
        copy[...] = table
        ends, row_bytes = [0, 0, len(table), len(table)], table.nbytes // len(table)
        self._rows = cuda.RowTable(device.index, row_bytes, ends, 0, [], self._memory.address, 0)
        self._table = copy

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the rows of `ids`, which must be in range."""
        import torch

        if self._device is None:
            return torch.from_numpy(np.take(self._table, ids.numpy(), axis=0))
        if self._memory is None:
            return self._device.send(torch.from_numpy(np.take(self._table, ids.cpu().numpy(), axis=0)))
        dtype = torch.from_numpy(self._table[:0]).dtype
        rows = self._device.empty((len(ids), *self._table.shape[1:]), dtype)
        with cuda.device_errors(f"looking up {len(ids)} ids on {self._device.name}"):
            self._rows.gather(ids.data_ptr(), len(ids), rows.data_ptr(), self._device.current())
        return rows


class NodeAttributes:
    """Original ids, classes and, on request, splits of the nodes of one type, by rank.

    With splits a node's class and splits are one number, so that each node costs two reads of memory, not three.
    Memory: 4 bytes per node for these (8 where they need it); for a GPU all tables lie in page-locked host memory.
    `FormatError` names an id or a class that is out of range. Cost: one pass over each array.
    """

    def __init__(self, graph: Graph, node_type: str, device: Device | None, splits: bool) -> None:
        keys, labels, count = graph.node_keys(node_type), checked_labels(graph, node_type), graph.num_nodes(node_type)
        if keys is not None:
            keys = checked_range(keys, count, graph, f"order of node type {node_type!r}")
        self._original = None if keys is None else Lookup(keys, device)
        self._splits = graph.splits(node_type) if splits else []
        self._labelled = labels is not None
        if self._splits:
            chosen = [checked_split(graph, split, node_type) for split in self._splits]
            self._known = Lookup(packed(labels, chosen, count), device)
        elif labels is not None:
            self._known = Lookup(labels, device)

    def original_ids(self, ranks: torch.Tensor) -> torch.Tensor:
        """Return the ids of the source, int64."""
        return ranks if self._original is None else as_int64(self._original(ranks))

    def labels(self, ranks: torch.Tensor) -> torch.Tensor | None:
        """Return the classes, int64, -1 for none; ``None`` if the type has no labels."""
        return self.labels_and_splits(ranks)[0]

    def labels_and_splits(self, ranks: torch.Tensor) -> tuple[torch.Tensor | None, dict[str, torch.Tensor]]:
        """Return classes as of `labels`, and per split a mask of the nodes in it, bool."""
        if not self._splits:
            return (self._known(ranks) if self._labelled else None), {}
        known, bits = self._known(ranks), len(self._splits)
        inside = {split: has_bit(known, k) for k, split in enumerate(self._splits)}
        return (high_bits(known, bits) if self._labelled else None), inside


def packed(
    labels: npt.NDArray[np.int64] | None, splits: Sequence[npt.NDArray[np.int64]], count: int
) -> npt.NDArray[np.integer[Any]]:
    """Return for each of `count` nodes one bit for each of `splits`, and above these the class, if there are any."""
    largest = 0 if labels is None else int(labels.max(initial=0))
    fits = len(splits) < 32 and largest < 1 << (31 - len(splits))
    dtype: type[np.integer[Any]] = np.int32 if fits else np.int64
    known: npt.NDArray[np.integer[Any]] = np.zeros(count, dtype) if labels is None else labels.astype(dtype)
    known <<= dtype(len(splits))  # -1, for no class, stays -1 when shifted back
    for k, nodes in enumerate(splits):
        known[nodes] |= dtype(1 << k)
    return known


class EdgeAttributes:
    """Edge data of one relation, by position in its ``indices``.

    `names`: the wanted keys of `Graph.edge_data`; those that the relation lacks are left out. Features that lie in the
    tiers come from `features`, all else from the graph's own files.
    """

    def __init__(
        self,
        graph: Graph,
        relation: Relation,
        device: Device | None,
        names: Collection[str],
        features: FeatureSource | None = None,
    ) -> None:
        data = graph.edge_data(relation)
        self._names, self._features = [name for name in names if name in data], features
        looked_up = [name for name in self._names if name != EDGE_FEATURES or features is None]
        self._tables = {name: Lookup(_as_stored(name, data[name]), device, mapped=True) for name in looked_up}
        self._bfloat16 = EDGE_FEATURES in looked_up and data[EDGE_FEATURES].dtype == np.uint16

    def __call__(self, positions: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the data of each edge by name."""
        return {name: self._of(name, positions) for name in self._names}

    def _of(self, name: str, positions: torch.Tensor) -> torch.Tensor:
        import torch

        if name in self._tables:
            values = self._tables[name](positions)
            return values.view(torch.bfloat16) if name == EDGE_FEATURES and self._bfloat16 else values
        assert self._features is not None
        if isinstance(self._features, GpuRows):
            return self._features.gather(positions, checked=False)  # the sampler's own positions are in range
        return self._features.gather(positions)


def _as_stored(name: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return edge data as torch takes it: the bits of ``bfloat16`` as ``int16``."""
    return values.view(np.int16) if name == EDGE_FEATURES and values.dtype == np.uint16 else values


def edge_names(graph: Graph, names: Collection[str] | None, ids: bool | None) -> list[str]:
    """Return the names of a loader's edge data: `names` or all, with the edges' ids in the source if `ids`.

    `ids` ``None``: where `import` kept them. `InputError` if no relation has them.
    """
    known = {name: relation for relation in graph.relations for name in graph.edge_data(relation)}
    wanted = [name for name in known if name != EDGE_IDS] if names is None else list(names)
    if unknown := [name for name in wanted if name not in known]:
        raise InputError(
            f"edge_attrs: no relation has edge data {unknown[0]!r}; there is: {', '.join(known) or 'none'}"
        )
    if ids and EDGE_IDS not in known:
        raise InputError(
            f"{graph.path}: edge ids: where the edges stood in the source was not kept; import with --edge-ids, or do "
            "without them"
        )
    return wanted + ([EDGE_IDS] if ids or (ids is None and EDGE_IDS in known) else [])
