"""The options of a layout: sizes of tiers, SSDs, and the division of a GPU's memory with adjacency lists."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from tiering.errors import InputError
from tiering.sampling.options import Fanouts, SamplingOptions
from tiering.text.arguments import require_local
from tiering.text.options import choice, option
from tiering.text.units import Size, parse_bytes, parse_size

if TYPE_CHECKING:
    from tiering.layout.cost_model import AccessCosts
    from tiering.layout.sizes import TierRoom
    from tiering.layout.tiers import Capacities

Pathlike = str | os.PathLike[str]
FANOUTS = (10, 10, 10)
"""Fanouts of a batch where nothing is said of batches."""
BATCHES = ("fanouts", "batch_size")
"""Options of `SamplingOptions` that say how large the batches are for which automatic sizes leave memory."""


class LayoutKeywords(TypedDict, total=False):
    """Keywords of `LayoutOptions`, for editors and type checkers."""

    gpu: str | int | None
    peer: str | None
    cpu: str | int | None
    ssd: Pathlike | Sequence[Pathlike]
    page: str | int
    adjacency_cache: str | int | None
    access_costs: Pathlike | None
    fit: Pathlike | None
    edge_features: str
    dtype: str | Sequence[str]
    step_memory: str | int | None
    fanouts: Fanouts
    batch_size: int


@dataclass(frozen=True)
class LayoutOptions:
    """Options of a layout as a user gives them, checked, and what they mean.

    `InputError` if an option has another form, two `ssd` are one directory, or `access_costs` or `fit` have no effect;
    `MissingError` if there is no file `access_costs`.
    """

    gpu: str | int | None = option(
        None, "Rows in each GPU: 8GiB, or 3% of all feature bytes; auto: free memory minus a training step. Shared "
        "with lists by --adjacency-cache. Default, without --peer and --cpu: auto if there is a GPU.",
        "SIZE|auto", cli=str | None,
    )  # fmt: skip
    peer: str | None = option(None, "Rows interleaved over P GPUs, SIZE on each: 4x8GiB.", "PxSIZE")
    cpu: str | int | None = option(
        None, "Rows in host memory: 64GiB, 20%, or 0 for none; auto: free memory minus the loader's. Default: auto "
        "without other sizes, or without --ssd.", "SIZE|auto", cli=str | None,
    )  # fmt: skip
    ssd: Pathlike | Sequence[Pathlike] = option(
        (), "Directory for a stripe file, one per SSD; repeatable. The remaining rows are striped over them by page.",
        "DIR", cli=list[Path] | None,
    )  # fmt: skip
    step_memory: str | int | None = option(
        None, "For --gpu auto: GPU memory of a training step. Default: estimated for GraphSAGE of width 256, from "
        "one sampled batch.", "SIZE", cli=str | None,
    )  # fmt: skip
    page: str | int = option("4KiB", "Unit of SSD reads, a power of two.", "SIZE", cli=str, cli_default="4KiB")
    adjacency_cache: str | int | None = option(
        None, "Part of --gpu for the hottest adjacency lists: a fraction such as 30%, or auto: the part that saves "
        "most time. Default: none.", "none|auto|PERCENT", cli=str | None,
    )  # fmt: skip
    access_costs: Pathlike | None = option(
        None, "For --adjacency-cache: JSON file of measured access costs. Default: assumed costs of PCIe 4.0.", "FILE",
        cli=Path | None,
    )  # fmt: skip
    fit: Pathlike | None = option(
        None, "For --adjacency-cache: measure access costs now on this machine's GPU, by sampling and gathering on "
        "this graph (auto) or on another reordered graph.", "auto|GRAPH", cli=str | None,
    )  # fmt: skip
    edge_features: str = option(
        "auto", "auto: place edge features in the tiers too, if the graph has any. none: loaders read them from the "
        "graph's files.", "auto|none",
    )  # fmt: skip
    dtype: str | Sequence[str] = option(
        "auto", "Dtype of stored rows: float32, float16, bfloat16, float8_e4m3 or int8; auto: float16 if no value "
        "changes, else the source's dtype. TYPE=DTYPE for one node type or relation; repeatable.", "[TYPE=]DTYPE",
        cli=list[str] | None,
    )  # fmt: skip
    sampling: SamplingOptions | None = None  # of batches for which automatic sizes leave memory; None: `FANOUTS`
    measured: AccessCosts | None = None  # costs that were measured for `fit`
    room: TierRoom | None = None  # memory of the machine, by which automatic sizes are chosen; None: all rows fit
    capacities: Capacities = field(init=False)
    page_bytes: int = field(init=False)
    folders: tuple[Path, ...] = field(init=False)  # directories of `ssd`, absolute
    cache: Size | None = field(init=False)  # the parsed `adjacency_cache`
    costs: AccessCosts = field(init=False)  # costs of accesses, by which `cache` is planned
    dtypes: Mapping[str, str] = field(init=False)  # `dtype` by table; that of all others under ""
    recorded: Mapping[str, Any] = field(init=False)  # the options as the manifest records them

    def __post_init__(self) -> None:
        from tiering.layout.cost_model import AccessCosts, read_access_costs
        from tiering.layout.tiers import parse_capacities, parse_page

        choice("auto", "none")(self.edge_features, "edge features")
        folders, cache = tuple(resolve_directories(self.ssd)), _parse_cache(self.adjacency_cache)
        for name, value in (("access costs: have", self.access_costs), ("fit: has", self.fit)):
            if value is not None and cache is None:
                raise InputError(f"{name} an effect only with --adjacency-cache; give --adjacency-cache auto too")
        if self.fit is not None and self.access_costs is not None:
            raise InputError("fit: measures the costs that --access-costs gives; omit one of the two")
        given = AccessCosts() if self.access_costs is None else read_access_costs(self.access_costs)
        costs, page_bytes = self.measured or given, parse_page(self.page)
        recorded: dict[str, Any] = {"gpu": self.gpu, "peer": self.peer, "cpu": self.cpu}
        recorded |= {"ssd": [str(folder) for folder in folders], "page_bytes": page_bytes}
        if cache is not None:
            # Keys of provenance keep their first names, so that artifacts of earlier versions have these options. The
            # figures are recorded, so that another file of the same name is noticed.
            recorded["split"] = cache.text
            if self.fit is not None:
                recorded["fit"] = "auto" if str(self.fit) == "auto" else str(Path(self.fit).absolute())
            if self.fit is None or self.measured is not None:
                recorded["gpu_times"] = costs.to_json()
        if self.step_memory is not None:
            recorded["step_memory"] = parse_bytes(self.step_memory, "step memory")
        if self.edge_features == "none":
            recorded["edge_features"] = self.edge_features
        dtypes = _parse_dtypes(self.dtype)
        if dtypes != {"": "auto"}:
            recorded["dtype"] = dtypes
        capacities = parse_capacities(self.gpu, self.peer, self.cpu, ssd=bool(folders))
        vars(self).update(
            capacities=capacities,
            page_bytes=page_bytes,
            folders=folders,
            cache=cache,
            costs=costs,
            dtypes=dtypes,
            recorded=recorded,
        )
        if self.sampling is not None and self.automatic:
            recorded["sampling"] = self.sampling.record()

    @classmethod
    def of(cls, sampling: Mapping[str, Any] | None = None, **options: Any) -> LayoutOptions:
        """Return the options, `BATCHES` among them, with `sampling` as another stage has it."""
        batches = {**(sampling or {}), **{name: options.pop(name) for name in BATCHES if name in options}}
        return cls(**options, sampling=SamplingOptions(**{"fanouts": FANOUTS, **batches}) if batches else None)

    @property
    def automatic(self) -> list[str]:
        """Tiers whose sizes the machine decides."""
        none = self.capacities.gpu is None and self.peer is None and self.cpu is None
        asked = {"gpu": none or str(self.gpu) == "auto", "cpu": none or str(self.cpu) == "auto"}
        asked["cpu"] |= self.cpu is None and not self.folders
        return [tier for tier, chosen in asked.items() if chosen]

    def with_capacities(self, capacities: Capacities) -> LayoutOptions:
        """Return a copy of the options with other sizes of tiers; the record keeps the sizes that the user gave."""
        options = copy(self)
        vars(options).update(capacities=capacities)
        return options

    def dtype_of(self, table: str) -> str:
        """Return the dtype by which the rows of a table are to be stored."""
        return self.dtypes.get(table, self.dtypes[""])


def resolve_directories(ssd: Pathlike | Sequence[Pathlike]) -> list[Path]:
    """Return the absolute paths of one SSD directory, or of several, which must differ; create nothing."""
    require_local(ssd=(ssd := [ssd] if isinstance(ssd, str | os.PathLike) else ssd))
    folders = [Path(os.path.realpath(folder)) for folder in ssd]
    for given, folder in zip(ssd, folders, strict=True):
        if folder.exists() and not folder.is_dir():
            raise InputError(f"ssd: {given}: expected a directory, found a file; give a directory on the SSD")
    for (one, folder), (two, other) in combinations(zip(ssd, folders, strict=True), 2):
        if folder == other or (folder.exists() and other.exists() and folder.samefile(other)):
            raise InputError(f"ssd: {one} and {two} are the same directory ({folder}); give each SSD its own")
    return folders


def _parse_dtypes(dtype: str | Sequence[str]) -> dict[str, str]:
    """Parse ``int8``, ``paper=int8``, or several of these; a name without a table is for all others."""
    from tiering.codecs import AUTO, CODECS

    dtypes: dict[str, str] = {}
    if isinstance(dtype, Mapping):
        dtype = [f"{table}={name}" for table, name in dtype.items()]
    for text in dtype.split(",") if isinstance(dtype, str) else dtype if isinstance(dtype, Sequence) else [dtype]:
        table, _, name = str(text).rpartition("=")
        if name not in (AUTO, *CODECS):
            raise InputError(f"dtype: expected {', '.join((AUTO, *CODECS))}, or TYPE= and one of these, found {text!r}")
        if dtypes.setdefault(table, name) != name:
            of = f"of {table!r} " if table else ""
            raise InputError(
                f"dtype: rows {of}cannot be stored as both {dtypes[table]} and {name}; give one of the two"
            )
    return {"": AUTO, **dtypes}


def _parse_cache(text: str | int | None) -> Size | None:
    """Parse ``none`` (also ``None``), ``auto``, or a share such as ``30%``."""
    if text is None or str(text).strip().lower() == "none":
        return None
    with suppress(InputError):
        if (cache := parse_size(text)).bytes is None:
            return cache
    raise InputError(
        "adjacency cache: expected none, auto, or the fraction of --gpu for adjacency lists, such as 30%; found "
        f"{text!r}"
    )
