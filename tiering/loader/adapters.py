"""Common parts of loaders for PyG and DGL: their keywords, adapters of batches, attributes of nodes and edges."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiering import cuda
from tiering.artifacts.manifest import Relation
from tiering.errors import CapabilityError, InputError
from tiering.formats.features import EDGE_FEATURES
from tiering.formats.graph import Graph, checked_labels, checked_range, checked_split
from tiering.loader.batches.batch import Batch
from tiering.loader.batches.tensors import as_int64, has_bit
from tiering.loader.gpu.device import Device
from tiering.loader.gpu.rows import GpuRows
from tiering.loader.options import FeatureSource
from tiering.loader.targets import EDGE_IDS, Targets

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class BatchSource:
    """The graph, the targets, the relations and the device of the batches that an adapter converts."""

    graph: Graph
    targets: Targets
    edge_rows: Mapping[Relation, FeatureSource | None]  # relations of the edges in a batch; their rows in the tiers
    device: Device | None  # None: batches lie in host memory


@dataclass(frozen=True)
class AdaptedBatches:
    """The contents of another library's batches, and the class of their adapter, with arguments of its own."""

    make_adapter: Callable[[AdaptedBatches, BatchSource], Adapter]
    edge_names: tuple[str, ...] = ()  # edge data to take along
    transform: Callable[[Any], Any] | None = None  # called with each batch, in the background


class Adapter(ABC):
    """A converter of a loader's batches into another library's batches."""

    def __init__(self, holds: AdaptedBatches, source: BatchSource, splits: bool) -> None:
        graph, device, names = source.graph, source.device, holds.edge_names
        self.nodes = {t: NodeAttributes(graph, t, device, splits) for t in graph.node_types}
        # With random walks relations are metapaths, whose edges have no positions.
        self.edges: dict[Relation, EdgeAttributes | None] = dict.fromkeys(source.edge_rows)
        for r in graph.relations if names else []:
            if r in self.edges:
                self.edges[r] = EdgeAttributes(graph, r, device, names, source.edge_rows[r])
        self.homogeneous = len(self.nodes) == len(self.edges) == 1  # then batches have no names of types
        self._transform = holds.transform

    def adapt(self, batch: Batch) -> Any:
        """Return the other library's batch, after the user's transform."""
        made = self.convert(batch)
        return made if self._transform is None else self._transform(made)

    @abstractmethod
    def convert(self, batch: Batch) -> Any:
        """Return the other library's batch."""

    @abstractmethod
    def contents(self, value: Any) -> Iterable[Any]:
        """Return the tensors, and objects that hold some, in an object of the other library; nothing for others."""


class Lookup:
    """A table looked up by int64 ids: on a GPU by a kernel, in a pinned copy, or if `mapped` by the host."""

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
    """Original ids, labels and, on request, splits (1 byte per node for 8) of the nodes of one type, by rank."""

    def __init__(self, graph: Graph, node_type: str, device: Device | None, splits: bool) -> None:
        keys, labels, count = graph.node_keys(node_type), checked_labels(graph, node_type), graph.num_nodes(node_type)
        if keys is not None:
            keys = checked_range(keys, count, graph, f"order of node type {node_type!r}")
        self._classes = not graph.has_label_values(node_type)
        if labels is not None and device is not None and self._classes and labels.max(initial=0) < 1 << 31:
            labels = labels.astype(np.int32)
        self._original = None if keys is None else Lookup(keys, device)
        self._labels = None if labels is None else Lookup(labels, device, mapped=not self._classes)
        names = graph.splits(node_type) if splits else []
        self.masks: dict[str, list[int]] = {}  # mask -> bits of its columns, ``train-0``... of ``train``
        masks = np.zeros((count if names else 0, -(-len(names) // 8)), np.uint8)
        for k, split in enumerate(names):
            masks[checked_split(graph, split, node_type), k // 8] |= np.uint8(1 << k % 8)
            name, _, number = split.rpartition("-")
            self.masks.setdefault(name if number.isdecimal() else split, []).append(k)
        self._masks = Lookup(masks, device)
        times = graph.node_times(node_type)
        self._times = None if times is None else Lookup(times, device, mapped=True)
        table = graph.feature_table(node_type)
        self._flat = table is not None and table.ndim == 1

    def features(self, rows: torch.Tensor) -> torch.Tensor:
        """Return feature rows in the shape of the source, which may be one number for each node."""
        return rows.squeeze(1) if self._flat else rows

    def original_ids(self, ranks: torch.Tensor) -> torch.Tensor:
        """Return the ids of the source, int64."""
        return ranks if self._original is None else as_int64(self._original(ranks))

    def labels(self, ranks: torch.Tensor) -> torch.Tensor | None:
        """Return the classes, int64, -1 for none, or numbers as the source had them; ``None`` without labels."""
        labels = None if self._labels is None else self._labels(ranks)
        return labels if labels is None or not self._classes else as_int64(labels)

    def times(self, ranks: torch.Tensor) -> torch.Tensor | None:
        """Return the times of nodes; ``None`` where they have none of their own."""
        return None if self._times is None else self._times(ranks)

    def splits(self, ranks: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return per split a mask of the nodes in it, bool; of several columns where the source had several."""
        import torch

        found = self._masks(ranks) if self.masks else ranks
        columns = {name: [has_bit(found[:, k // 8], k % 8) for k in bits] for name, bits in self.masks.items()}
        return {name: masks[0] if len(masks) == 1 else torch.stack(masks, 1) for name, masks in columns.items()}


class EdgeAttributes:
    """Edge data of one relation by position in its ``indices``; features that lie in the tiers come from `features`."""

    def __init__(
        self, graph: Graph, relation: Relation, device: Device | None, names: Collection[str],
        features: FeatureSource | None = None,
    ) -> None:  # fmt: skip
        import torch

        data, self._sources = graph.edge_data(relation), dict[str, Callable[[torch.Tensor], torch.Tensor]]()
        for name in names:
            if name == EDGE_FEATURES and name in data and features is not None:
                unchecked: Any = {"checked": False} if isinstance(features, GpuRows) else {}
                gather = partial(features.gather, **unchecked)  # the sampler's positions are in range
                flat = data[name].ndim == 1
                self._sources[name] = (lambda ids, gather=gather: gather(ids).squeeze(1)) if flat else gather  # type: ignore[misc]
            elif name == EDGE_FEATURES and name in data and data[name].dtype == np.uint16:  # torch takes no uint16
                lookup = Lookup(data[name].view(np.int16), device, mapped=True)
                self._sources[name] = lambda positions, lookup=lookup: lookup(positions).view(torch.bfloat16)  # type: ignore[misc]
            elif name in data:
                self._sources[name] = Lookup(data[name], device, mapped=True)

    def __call__(self, positions: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the data of each edge by name."""
        return {name: source(positions) for name, source in self._sources.items()}


def edge_names(graph: Graph, names: Collection[str] | None, ids: bool | None) -> tuple[str, ...]:
    """Return the names of a loader's edge data: `names` or all, and ids if `ids`, ``None``: where these were kept."""
    known = {name: relation for relation in graph.relations for name in graph.edge_data(relation)}
    hidden = {EDGE_IDS} if graph.time is None or graph.time.along == "edges" else {EDGE_IDS, graph.time.name}
    wanted = [name for name in known if name not in hidden] if names is None else list(names)
    if unknown := [name for name in wanted if name not in known]:
        raise InputError(
            f"edge_attrs: no relation has edge data {unknown[0]!r}; available: {', '.join(known) or 'none'}"
        )
    if ids and EDGE_IDS not in known:
        raise InputError(
            f"{graph.path}: positions of edges in the source were not kept; import again with --edge-ids, or omit "
            "edge ids"
        )
    return (*wanted, EDGE_IDS) if ids or (ids is None and EDGE_IDS in known) else tuple(wanted)


def choose_sampler(options: dict[str, Any], replace: bool, weight: str | None, weight_option: str) -> str:
    """Return the name of the sampler that `replace`, a weight, or ``sampler`` requests; the last leaves `options`."""
    if refused := [name for name in ("fanouts", "frontier") if name in options]:
        raise TypeError(f"unexpected keyword argument {refused[0]!r}: the library that batches are for determines it")
    if weight not in (None, "weight", "edge_weight"):  # PyG's name of it
        raise InputError(f"{weight_option}: neighbors can be sampled only by the edge data 'weight', found {weight!r}")
    asked = {"replace": replace, weight_option: weight, "sampler": options.get("sampler")}
    if len(both := [name for name, value in asked.items() if value]) > 1:
        raise InputError(f"{', '.join(both)}: each chooses how neighbors are sampled; omit one of them")
    return str(options.pop("sampler", None) or ("weighted" if weight else "replacement" if replace else "uniform"))


_LIBRARIES = {"PyG": ("torch_geometric", (2, 5), "pyg"), "DGL": ("dgl", (1, 1, 3), "dgl")}
"""Package, least version and extra by name."""


def require_library(name: str) -> None:
    """Import ``PyG`` or ``DGL``; `CapabilityError` says how to get it, or one that serves."""
    package, least, extra = _LIBRARIES[name]
    expected = f"{package} {'.'.join(map(str, least))} or later: pip install 'tiering[{extra}]'"
    try:
        installed = version(package)
    except PackageNotFoundError:
        raise CapabilityError(f"batches for {name}: expected {expected}; it is not installed") from None
    if tuple(map(int, re.findall(r"\d+", installed)[: len(least)])) < least:
        raise CapabilityError(f"batches for {name}: expected {expected}; found {installed}")
    try:
        import_module(package)
    except Exception as error:  # such as a library for another torch
        raise CapabilityError(
            f"batches for {name}: {package} {installed} is installed, but cannot be imported ({error}); does it "
            "match this version of torch?"
        ) from error


_STORES = "PyG's own loaders support it, with `pyg_stores` and `pyg_sampler`"
_SEED = "use `seed` for the order of an epoch and the sampled neighbors"


@dataclass(frozen=True)
class Foreign:
    """A keyword of another library's loader."""

    harmless: tuple[Any, ...] | None = None  # values that change nothing; None: all of them
    instead: str = ""  # what to do where a value would change something
    becomes: Callable[[Any], dict[str, Any]] | None = None  # keywords of these loaders for a value


_COMMON = {
    "num_workers": Foreign(becomes=lambda count: {"workers": count} if count else {}),
    "persistent_workers": Foreign(), "pin_memory": Foreign(), "prefetch_factor": Foreign(), "timeout": Foreign(),
    "multiprocessing_context": Foreign(),
    "worker_init_fn": Foreign((None,), "batches are sampled by threads of this process, and no worker processes start"),
    "generator": Foreign((None,), _SEED),
    "batch_sampler": Foreign((None,), f"batches come from `split` or seeds; {_STORES}"),
    "collate_fn": Foreign((None,), "use `transform`, which is called with each batch"),
}  # fmt: skip
PYG = {
    **_COMMON,
    "num_neighbours": Foreign(becomes=lambda counts: {"num_neighbors": counts}),
    "directed": Foreign((True,), "batches have the sampled edges; `pyg_stores` serves the whole graph"),
    "subgraph_type": Foreign(becomes=lambda kind: {"subgraph_type": getattr(kind, "value", kind)}),
    "time_attr": Foreign(becomes=lambda name: {} if name is None else {"time": name}),
    "input_time": Foreign(becomes=lambda times: {} if times is None else {"seed_time": times}),
    "edge_label_time": Foreign((None,), "`pyg_link_loader` accepts times of links"),
    "is_sorted": Foreign(), "filter_per_worker": Foreign(),
    "transform_sampler_output": Foreign((None,), _STORES),
    "custom_cls": Foreign((None,), _STORES),
}  # fmt: skip
"""Keywords of ``NeighborLoader`` and ``LinkNeighborLoader`` by name."""
PYG_LINKS = {
    **PYG,
    "input_time": Foreign((None,), "give the times of links as edge_label_time"),
    "neg_sampling_ratio": Foreign(
        becomes=lambda ratio: {"neg_sampling": {"mode": "binary", "amount": ratio}} if ratio else {}
    ),
}
DGL = {
    **_COMMON,
    "use_uva": Foreign(), "use_ddp": Foreign(), "ddp_seed": Foreign(), "use_prefetch_thread": Foreign(),
    "use_alternate_streams": Foreign(), "pin_prefetcher": Foreign(),
    **dict.fromkeys(("prefetch_node_feats", "prefetch_edge_feats", "prefetch_labels"), Foreign()),
    "gpu_cache": Foreign((None, {}), "the layout's gpu tier is the cache: `tiering layout --gpu 4GiB`"),
    "exclude": Foreign((None,), "import the dataset without the edges that are to be predicted"),
    "output_device": Foreign(becomes=lambda device: {} if device is None else {"device": device}),
}  # fmt: skip
"""Keywords of ``dgl.dataloading.DataLoader`` and its samplers by name."""
DGL_LINKS = {**DGL, **dict.fromkeys(("reverse_eids", "reverse_etypes"), DGL["exclude"])}
"""Keywords of DGL's edge loaders: also ``as_edge_prediction_sampler``'s."""


_TABLES = {"pyg_loader": PYG, "pyg_link_loader": PYG_LINKS, "dgl_loader": DGL, "dgl_link_loader": DGL_LINKS}


def adopt(call: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a loader, another library's replaced by what they become; `InputError` if they matter."""
    table = _TABLES[call]
    own = {name: value for name, value in options.items() if name not in table}
    for name in [name for name in options if name in table]:
        foreign, value = table[name], options[name]
        plain = getattr(value, "value", value)  # of an enum
        if foreign.harmless is not None and not any(_same(plain, known) for known in foreign.harmless):
            expected = " or ".join(map(repr, foreign.harmless))
            raise InputError(f"{call}({name}=...): expected {expected}, found {value!r}: {foreign.instead}")
        for key, made in (foreign.becomes(value) if foreign.becomes else {}).items():
            if own.get(key) is not None:
                raise InputError(f"{call}: {name} and {key} mean the same; omit one of them")
            own[key] = made
    return own


def _same(value: Any, known: Any) -> bool:
    return value is known or (type(value) is type(known) and bool(value == known))
