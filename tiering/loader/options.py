"""Options of tables and loaders, in groups that are passed whole; `TieredLayout` takes their fields as keywords."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict

from tiering.errors import InputError
from tiering.readahead.disk_speed import MEASURED, DiskSpeed, read_speed
from tiering.readahead.memory import WORKERS
from tiering.sampling import Negatives, SamplingOptions
from tiering.sampling.options import SamplingKeywords, SubgraphKeywords
from tiering.sampling.plan import whole_number
from tiering.text.options import option
from tiering.text.units import parse_device

if TYPE_CHECKING:
    import torch


OriginalIds: TypeAlias = Any
"""Nodes by their ids in the source, as scripts for other libraries have them; `TieredLayout.new_to_old` leads back."""


class FeatureSource(Protocol):
    """An object that a loader can take features from."""

    def gather(self, ids: Any, out: torch.Tensor | None = None) -> torch.Tensor:
        """Return the rows of `ids` in request order."""


@dataclass(frozen=True)
class ReadOptions:
    """Options of reading rows from memory and SSD."""

    engine: str = option("auto", "Engine that reads SSDs.", "auto|io_uring|threads")
    """Engine that reads the ssd tier: ``auto`` (io_uring, else threads; logged), ``io_uring``, ``threads``; with a
    GPU ``bam``, which reads `drives` by itself."""
    drives: tuple[str, ...] = ()
    """With engine ``bam``: drives that hold the stripe files, in their order, such as ``/dev/libnvm0``."""
    depth: int | str = option(
        "auto", "Reads in flight per stripe file.", "N|auto", cli=str, cli_default="auto",
        from_cli=lambda text: int(text) if text.isdigit() else text,
    )  # fmt: skip
    """Reads in flight for each stripe file, at most. ``auto``: the disks' reads per second times the latency of one
    read, of ``ssd_model`` or as measured, 128 to 256; 128 where these are not known. Engine ``bam`` reads each drive
    through as many pairs of queues as that takes, 255 reads each; ``auto``: 4 pairs."""
    direct: str = option("auto", "Read past the page cache; auto: only rows that it does not have.", "auto|on|off")
    """O_DIRECT reads: ``on``, ``off``, or ``auto``: on, but rows that the page cache has are taken from there."""
    threads: int | str | None = "auto"
    """Threads that copy rows from memory."""
    verify: bool = False
    """Whether files of the memory tiers are compared with their checksums when they are loaded, and each page of the
    ssd tier, read whole, before rows are taken from it. A loader compares the adjacency, too, when it is made."""
    dtype: Any = option(None, "Dtype of rows in batches.", "float32|float16|bfloat16", cli=str | None)
    """Dtype of delivered rows, decoded or rounded on the way (beyond 65504 to infinity as ``float16``): ``float32``,
    ``float16`` or ``bfloat16``, or torch's. By default the source's; ``float32`` where a codec stored others."""

    def __post_init__(self) -> None:
        if self.dtype is not None:  # one table, whichever way the caller spells it
            object.__setattr__(self, "dtype", str(getattr(self.dtype, "__name__", self.dtype)).removeprefix("torch."))
        drives: Any = self.drives
        drives = [drives] if isinstance(drives, str | Path) else drives
        object.__setattr__(self, "drives", tuple(map(str, drives)))
        if self.depth != "auto":
            whole_number(self.depth, 1, 2**31, "depth", " of at least 1, or auto")
        if (self.engine == "bam") != bool(self.drives):
            raise InputError(
                "drives: needs engine='bam', and engine='bam' needs drives, one per stripe file; found "
                f"{self.drives!r} with engine={self.engine!r}"
            )


@dataclass(frozen=True)
class DeviceOptions:
    """Options of where rows and batches arrive."""

    device: Any = "cpu"
    """``cpu``: in host memory, where all tiers but ssd live. ``cuda``, ``cuda:1``, a ``torch.device``: in the memory of
    that GPU, where the gpu tier lives; a batch is ready for the stream that torch works on."""
    max_sms: int | str = "auto"
    """With a GPU: multiprocessors that a gather may use (0: all; ``auto``: a tenth)."""
    peers: Any = "auto"
    """Processes of this machine that hold one copy of what lies in host memory, and with a GPU share the peer tier.
    ``auto``: torch's default process group, with a GPU also processes that ``torchrun`` started; ``off``: none; a
    ``torch.distributed.ProcessGroup``; or a `tiering.loader.PeerGroup`. A loader shares the buffer (on the CPU the
    tiers, too) if its `rank` and `world_size` match the initialized group; the processes then make the same
    loaders in the same order and begin the same epochs."""
    gpu: str | int | None = None
    """Feature rows in each GPU's memory, if not as many as in the layout: ``6GiB``, ``9%`` of all rows, 0. No file
    changes: one layout serves GPUs and machines of different sizes."""
    cpu: str | int | None = None
    """Feature rows in host memory, in the same forms; by default all up to the end of the layout's cpu tier. Rows of
    the ssd tier are read into memory at first; rows of the layout's own memory tiers must stay in memory."""

    @property
    def index(self) -> int | None:
        """Number of the GPU; -1 for torch's current one, ``None`` for the host."""
        return parse_device(self.device)


@dataclass(frozen=True)
class SeedOptions:
    """Nodes that batches start from, and their order."""

    split: str | None = option("train", "Split whose nodes are the seeds of batches.", "NAME")
    """Split whose nodes are the seeds; ``None``: all nodes of the type."""
    node_type: str | None = None
    """Type of the seeds; optional where one type has the split."""
    seeds: Any = None
    """Nodes to use instead of a split: ids, a mask over them, or names, in a list, an array or a column of Arrow."""
    seed_ids: str = "rank"
    """Kind of the ids in `seeds`: ``rank``; ``original``: ids of the source; ``name``: your own names, or numbers, of
    nodes (`tiering.formats.graph.Graph.names`), or ids of the source where the graph keeps none."""
    seed_time: Any = None
    """With `time`: the time of each seed, in the order of the split or of `seeds`; by default the node's own."""
    shuffle: bool = True
    """Whether seeds come in random order; ``False``, for validation: in the order given."""
    drop_last: bool = False
    """Whether to omit a short last batch; with several processes, their last round if it is incomplete."""
    rank: int | None = None
    """Rank of this process. Each process gets the same number of batches: batch k of rank r is batch r + k x world_size
    of one process. Seeds of a last, incomplete round are divided evenly; at most world_size - 1 are repeated. By
    default the rank in torch's default process group, or in ``torchrun``'s environment."""
    world_size: int | None = None
    """Number of processes that train together; 1: this process gets all batches."""


@dataclass(frozen=True)
class LinkOptions:
    """Links that batches are made of; see `TieredLayout.link_loader`."""

    relation: Any = None
    """Relation of the links, in any form of `tiering.formats.graph.Graph.relation`."""
    pairs: Any = None
    """Ids (ranks) of shape (2, links), sources above destinations; ``None``: all edges of the relation."""
    negatives: Negatives | None = None
    """Negative pairs to sample in addition."""
    order: Any = None
    """Links without `pairs`, in order, as positions in the relation's ``indices``; ``None``: all."""
    input_id: Any = None
    """Names of the links for PyG's and DGL's adapters; ``None``: their positions."""
    time: Any = None
    """Times of the links, in their order; needed with the sampler's `time`, and only then."""


@dataclass(frozen=True)
class PipelineOptions:
    """Options of the background stages that make batches."""

    workers: Any = option(
        None, "Number of sampling threads. Default: half of the processors, 1 to 4.", "N", cli=int | None
    )
    """Threads that sample. By default half of the processors that this process may use, at least 1 and at most 4
    (at least 2 with ``in_order=False``)."""
    prefetch: int = 2
    """Batches kept ready in addition to batches in progress."""
    in_order: bool = True
    """Whether batches come in order. ``False`` (GNNDrive's reordering of mini-batches): as they are ready, in an order
    that differs from run to run. Several are then gathered, converted and transformed at a time, also where rows are
    read ahead: a slow batch does not hold up the others of its window. No effect, and a warning, with a GPU or one
    worker; of processes that share a buffer, only batches of other libraries are converted side by side."""
    edge_positions: bool = False
    """Whether batches hold the position of each edge in its relation's ``indices``: 8 bytes per edge."""
    edge_features: bool = False
    """Whether batches hold the features of their edges (`Batch.edge_features`); each batch reads rows of the ssd tier
    by itself."""
    sample_on: str = "auto"
    """Sampler of batches for a GPU: ``gpu``, ``cpu`` (the host) or ``auto``: the GPU, except for ``pinsage`` and
    ``ladies``, which run on the host only. Batches are the same."""
    progress: bool = False
    """Whether to show a progress bar, and what the epoch is bound by, on a terminal and in notebooks."""

    def __post_init__(self) -> None:
        if self.workers is None:
            object.__setattr__(self, "workers", max(2 - self.in_order, WORKERS))
        for name, lowest in (("workers", 1), ("prefetch", 0)):
            whole_number(getattr(self, name), lowest, 2**31, name, f" of at least {lowest}")
        if self.sample_on not in ("auto", "cpu", "gpu"):
            raise InputError(f"sample_on: expected auto, cpu or gpu, found {self.sample_on!r}")


@dataclass(frozen=True)
class MemoryOptions:
    """Memory for rows of the ssd tier, and the loader's lookahead."""

    memory: Any = option(
        "auto", "Loader memory: 8GiB, 50% or auto; tiers: no look-ahead.", "SIZE", cli=str, cli_default="auto"
    )
    """Memory that this process, or all of its machine that share host memory, may hold (``8GiB``, ``50%``, ``auto``:
    most of what is free): tiers, batches, samplers, the adjacency in the page cache. Rows of the ssd tier are read
    into memory at first if all fit in addition, else into a buffer ahead of the batches; for a GPU both are
    page-locked. ``tiers``: the layout's memory tiers alone; each batch reads its rows of the ssd tier by itself."""
    window: int | str = option(
        "auto", "Maximum number of batches that are read together, or auto.", "N", cli=str, cli_default="auto",
        from_cli=lambda text: int(text) if text.isdigit() else text,
    )  # fmt: skip
    """Batches whose rows are read together, in the order of their pages; ``auto``: chosen by simulation."""
    ssd_model: Any = option(None, "JSON file with the speed of the disks, from doctor --json.", "FILE", cli=Path | None)
    """JSON file with ``reads_per_second``, ``bytes_per_second`` and perhaps ``latency`` (seconds) of the disks, which
    ``tiering doctor --json`` prints; measured by default."""

    def __post_init__(self) -> None:
        _ = self.speed  # an error also where nothing will be read ahead
        if self.window != "auto":
            whole_number(self.window, 1, 2**63, "window", " of at least 1, or auto")

    @property
    def speed(self) -> DiskSpeed | None:
        """The model of the disks in `ssd_model`; ``None``: they are measured."""
        measured = not self.ssd_model or str(self.ssd_model) == MEASURED
        return None if measured else read_speed(Path(self.ssd_model))


@dataclass(frozen=True)
class LoaderOptions:
    """All options of a loader."""

    features: str | FeatureSource | Mapping[str, FeatureSource] | None
    """Source of the features; see `TieredLayout.loader`."""
    seeds: SeedOptions
    sampling: SamplingOptions
    reading: ReadOptions
    device: DeviceOptions
    pipeline: PipelineOptions
    memory: MemoryOptions
    links: LinkOptions | None = None

    @classmethod
    def of(
        cls, features: Any, keywords: Mapping[str, Any], links: LinkOptions | None = None, call: str = "loader"
    ) -> LoaderOptions:
        """Return the options from keywords of `TieredLayout.loader`; errors name the function `call`."""
        groups = (SeedOptions, SamplingOptions, ReadOptions, DeviceOptions, PipelineOptions, MemoryOptions)
        return replace(cls(features, *group_keywords(call, groups, keywords)), links=links)


def group_keywords(call: str, groups: tuple[type, ...], keywords: Mapping[str, Any]) -> list[Any]:
    """Return one object of each class, made of the keywords that are its fields; `TypeError` for others."""
    owners = {field.name: group for group in groups for field in fields(group)}
    for name in keywords:
        if name not in owners:
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}")
    return [group(**{name: keywords[name] for name in keywords if owners[name] is group}) for group in groups]


class RowKeywords(TypedDict, total=False):
    """Keywords of `TieredLayout.features`: fields of `ReadOptions` and `DeviceOptions`."""

    engine: str
    drives: Sequence[str]
    depth: int | str
    direct: str
    threads: int | str | None
    verify: bool
    dtype: Any
    device: Any
    max_sms: int | str
    peers: Any
    gpu: str | int | None
    cpu: str | int | None


class BatchKeywords(RowKeywords, SamplingKeywords, SubgraphKeywords, total=False):
    """Keywords of all loaders: in addition fields of `SeedOptions`, `PipelineOptions` and `MemoryOptions`."""

    seed: int
    shuffle: bool
    drop_last: bool
    rank: int | None
    world_size: int | None
    workers: int | None
    prefetch: int
    in_order: bool
    edge_positions: bool
    edge_features: bool
    sample_on: str
    progress: bool
    memory: str | int
    window: int | str
    ssd_model: Any


class NodeKeywords(BatchKeywords, total=False):
    """Keywords of loaders of nodes: in addition the seeds, unless a split has them."""

    node_type: str | None
    seed_time: Any
    seeds: Any
    seed_ids: str
