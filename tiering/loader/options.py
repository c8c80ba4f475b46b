"""What tables and loaders are asked for: groups of options that travel together, passed whole.

`TieredLayout.features` and `TieredLayout.loader` take the fields of these groups as keywords.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tiering import native
from tiering.errors import InputError
from tiering.sampling import Negatives, SamplingOptions
from tiering.units import parse_bytes, parse_device, parse_fanouts

if TYPE_CHECKING:
    import torch


class FeatureSource(Protocol):
    """Anything a loader can take features from."""

    def gather(self, ids: Any, out: torch.Tensor | None = None) -> torch.Tensor:
        """Rows of `ids` in request order."""


@dataclass(frozen=True)
class ReadOptions:
    """How rows are read from memory and SSD."""

    engine: str = "auto"
    """How the ssd tier is read: ``auto`` (io_uring, else threads; logged), ``io_uring``, ``threads``."""
    depth: int = native.DEFAULT_DEPTH
    """SSD reads in flight at most: the default saturates one NVMe SSD."""
    direct: str = "auto"
    """O_DIRECT reads: ``auto``, ``on`` or ``off``."""
    threads: int | str | None = "auto"
    """Threads that copy rows from memory."""
    verify: bool = False
    """Whether the files of the memory tiers are compared with their checksums when they are loaded, and each page of
    the ssd tier before rows are taken from it; whole pages are read then. A loader compares the adjacency, too, once,
    when it is made."""


@dataclass(frozen=True)
class DeviceOptions:
    """Where rows and batches arrive."""

    device: Any = "cpu"
    """``cpu``: in host memory, where all tiers but ssd live. ``cuda``, ``cuda:1``, a ``torch.device``: in the memory of
    that GPU, where the gpu tier lives; a batch is ready for the stream that torch works on."""
    max_sms: int | str = "auto"
    """With a GPU: multiprocessors that a gather may use (0: all; ``auto``: a tenth)."""
    peers: Any = "auto"
    """Processes of this machine that hold one copy of what lies in host memory, and with a GPU share the peer tier.
    ``auto``: those of torch's default process group; with a GPU also those that ``torchrun`` started; ``off``: none; a
    ``torch.distributed.ProcessGroup``; or a `tiering.loader.PeerGroup`.
    A loader shares what it reads ahead (on the CPU the tiers, too) where its `rank` and `world_size` are those of the
    group, once that is initialised; ranks make the same loaders in the same order then, and begin the same epochs."""

    @property
    def index(self) -> int | None:
        """Number of the GPU, -1 for torch's current one; ``None`` for the host."""
        return parse_device(self.device)


@dataclass(frozen=True)
class SeedOptions:
    """Which nodes batches start from, and in what order."""

    split: str | None = "train"
    """Split whose nodes are the seeds."""
    node_type: str | None = None
    """Type of the seeds; may be left out where one type has the split."""
    seeds: Any = None
    """Ids (ranks) to use instead of a split."""
    shuffle: bool = True
    """``False``: seeds in the order given, for validation."""
    drop_last: bool = False
    """Leave out a last batch that is short; with several processes, batches that not all of them would get."""
    rank: int | None = None
    """Number of this process among those that train together. Each gets batches of its own, equally many, which are
    together those of one process alone. Unless told: of torch's default process group, or of ``torchrun``'s
    environment."""
    world_size: int | None = None
    """How many processes train together; 1: this process gets all batches."""


@dataclass(frozen=True)
class LinkOptions:
    """Which links batches are made of; see `TieredLayout.link_loader`."""

    relation: Any = None
    """The relation that they are of, in any form of `tiering.formats.graph.Graph.relation`."""
    pairs: Any = None
    """Ids (ranks) of shape (2, links), sources above destinations; ``None``: all edges of the relation."""
    negatives: Negatives | None = None
    """Pairs that are no links, drawn beside them."""


@dataclass(frozen=True)
class PipelineOptions:
    """How batches are made in the background."""

    workers: int = 2
    """Threads that sample."""
    prefetch: int = 2
    """Batches kept ready beyond those being worked on."""
    in_order: bool = True
    """``False``: batches come as they are ready, those of few rows past those of many (GNNDrive's reordering of
    mini-batches): the same batches, each once, in an order that differs from run to run. Rows that are read ahead, or
    by a GPU, come in order all the same."""
    edge_positions: bool = False
    """Whether batches say where each of their edges stands in its relation's ``indices``: 8 bytes per edge."""
    edge_features: bool = False
    """Whether batches have the features of their edges (`Batch.edge_features`), of relations that have some in the
    tiers; each batch reads those of the ssd tier by itself."""
    sample_on: str = "auto"
    """Who samples for a GPU: it (``gpu``), or the host (``cpu``). ``auto`` is the GPU, except for the samplers
    ``pinsage`` and ``ladies``, which run on the host only. Batches are the same."""
    progress: bool = False
    """Show a bar, with a line that says what the epoch is bound by, where standard error is a terminal, and in
    notebooks."""
    peer_adjacency_cache: int | str = 0
    """Memory on each of the peers' GPUs for adjacency lists that they share, such as ``2GiB``: those next in rank after
    the ones that the layout puts on every GPU. All processes give the same."""

    def __post_init__(self) -> None:
        for name, lowest in (("workers", 1), ("prefetch", 0)):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or value < lowest:
                raise InputError(f"{name}: expected a whole number of at least {lowest}, found {value!r}")
        if self.sample_on not in ("auto", "cpu", "gpu"):
            raise InputError(f"sample_on: expected auto, cpu or gpu, found {self.sample_on!r}")


@dataclass(frozen=True)
class MemoryOptions:
    """Memory for rows of the ssd tier, and how far a loader looks ahead to use it well."""

    memory: Any = "auto"
    """What this process, or all of its machine that share host memory, may hold (``8GiB``, ``50%``, ``auto``: most of
    what is free): tiers, batches, samplers, the adjacency in the page cache. If all rows of the ssd tier fit beside
    them, they are read once, in order; if not, a buffer is filled ahead of the batches; for a GPU both are page-locked.
    ``tiers``: the layout's memory tiers alone; each batch reads its rows of the ssd tier by itself."""
    window: int | str = "auto"
    """Batches whose rows are read together, in the order of their pages; ``auto``: what simulation finds best."""
    ssd_model: Any = None
    """JSON file with ``reads_per_second`` and ``bytes_per_second`` of the disks, as ``tiering doctor --json`` finds
    them; measured unless told."""
    reserve: int | str | None = None
    """With a GPU: its memory that is to be left to training beside the layout's rows and lists (``6GiB``); less is
    refused before training begins. ``auto``: the first steps are watched, `Loader.stats` says what they took, and a
    warning says if the layout should put more or less on the GPU."""

    def __post_init__(self) -> None:
        if self.reserve not in (None, "auto"):
            object.__setattr__(self, "reserve", parse_bytes(self.reserve, "reserve"))
        if self.window == "auto":
            return
        if isinstance(self.window, bool) or not isinstance(self.window, (int, np.integer)) or self.window < 1:
            raise InputError(f"window: expected auto or a whole number of at least 1, found {self.window!r}")


@dataclass(frozen=True)
class LoaderOptions:
    """All that a loader is asked for."""

    features: str | FeatureSource | Mapping[str, FeatureSource] | None
    """Where features come from; see `TieredLayout.loader`."""
    seeds: SeedOptions
    sampling: SamplingOptions
    reading: ReadOptions
    device: DeviceOptions
    pipeline: PipelineOptions
    memory: MemoryOptions
    links: LinkOptions | None = None

    @classmethod
    def of(cls, features: Any, keywords: dict[str, Any], links: LinkOptions | None = None) -> LoaderOptions:
        """From the keywords of `TieredLayout.loader`."""
        keywords = {**keywords, "fanouts": parse_fanouts(keywords.get("fanouts", (10, 10)))}
        groups = (SeedOptions, SamplingOptions, ReadOptions, DeviceOptions, PipelineOptions, MemoryOptions)
        return replace(cls(features, *grouped("loader", groups, keywords)), links=links)


def grouped(call: str, groups: tuple[type, ...], keywords: Mapping[str, Any]) -> list[Any]:
    """One object of each class, made from the keywords that are its fields; `TypeError` for others."""
    given: list[dict[str, Any]] = [{} for _ in groups]
    owners = {field.name: own for group, own in zip(groups, given, strict=True) for field in fields(group)}
    for name, value in keywords.items():
        if name not in owners:
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}")
        owners[name][name] = value
    return [group(**own) for group, own in zip(groups, given, strict=True)]
