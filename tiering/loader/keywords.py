"""The groups of `tiering.loader.options` as keywords, so that editors know them by name and type."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeAlias, TypedDict

from tiering.sampling.options import Fanouts, SamplingKeywords

Ranks: TypeAlias = Any
"""Nodes by the numbers that a layout gives them, hottest first; `TieredLayout.old_to_new` makes them of ids."""
OriginalIds: TypeAlias = Any
"""Nodes by their ids in the source, as scripts for other libraries have them; `TieredLayout.new_to_old` leads back."""


class RowKeywords(TypedDict, total=False):
    """Fields of `ReadOptions` and `DeviceOptions`: what `TieredLayout.features` takes."""

    engine: str
    depth: int
    direct: str
    threads: int | str | None
    verify: bool
    device: Any
    max_sms: int | str
    peers: Any


class BatchKeywords(RowKeywords, SamplingKeywords, total=False):
    """What all loaders take: besides, the seed, and fields of `PipelineOptions`, `MemoryOptions`, `SeedOptions`."""

    seed: int
    shuffle: bool
    drop_last: bool
    rank: int | None
    world_size: int | None
    workers: int
    prefetch: int
    in_order: bool
    edge_positions: bool
    edge_features: bool
    sample_on: str
    progress: bool
    peer_adjacency_cache: int | str
    memory: str | int
    window: int | str
    ssd_model: Any
    reserve: int | str | None


class LinkLoaderKeywords(BatchKeywords, total=False):
    """What `TieredLayout.link_loader` takes."""

    fanouts: Fanouts


class LoaderKeywords(LinkLoaderKeywords, total=False):
    """What `TieredLayout.loader` takes: fields of `SeedOptions` and `SamplingOptions`, too."""

    node_type: str | None
    seeds: Ranks


class AdapterKeywords(BatchKeywords, total=False):
    """What loaders for PyG and DGL have in common."""

    features: Any
    replace: bool
    edge_attrs: Collection[str] | None
    return_edge_id: bool | None
    transform: Callable[[Any], Any] | None


class PygLoaderKeywords(AdapterKeywords, total=False):
    """What `TieredLayout.pyg_loader` takes."""

    input_nodes: OriginalIds
    node_type: str | None
    seeds: Ranks
    weight_attr: str | None
    masks: bool


class PygLinkLoaderKeywords(AdapterKeywords, total=False):
    """What `TieredLayout.pyg_link_loader` takes."""

    edge_label_index: OriginalIds
    edge_label: Any
    neg_sampling: Any
    weight_attr: str | None
    masks: bool


class DglLoaderKeywords(AdapterKeywords, total=False):
    """What `TieredLayout.dgl_loader` takes."""

    indices: OriginalIds
    node_type: str | None
    seeds: Ranks
    prob: str | None
    feature_name: str
    label_name: str
