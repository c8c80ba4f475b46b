"""The options of a layout: sizes of tiers, SSDs, and the division of a GPU's memory with adjacency lists."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from tiering.errors import InputError
from tiering.layout.cost_model import AccessCosts, read_access_costs
from tiering.layout.tiers import Capacities, parse_capacities, parse_page
from tiering.options import choice, option
from tiering.units import Size, parse_size

if TYPE_CHECKING:
    from typing_extensions import Unpack

Pathlike = str | os.PathLike[str]


class LayoutKeywords(TypedDict, total=False):
    """Keywords of `LayoutOptions.of`, for editors and type checkers."""

    gpu: str | int | None
    peer: str | None
    cpu: str | int | None
    ssd: Sequence[Pathlike]
    page: str | int
    adjacency_cache: str | int | None
    access_costs: Pathlike | None
    fit: Pathlike | None
    edge_features: str


@dataclass(frozen=True)
class LayoutSettings:
    """Options of a layout as a user gives them; `LayoutOptions` are these parsed."""

    gpu: str | int | None = option(
        None, "Rows every GPU holds: 8GiB, 3% of all feature bytes, auto: the rest; with --adjacency-cache lists too.",
        "SIZE", cli=str | None,
    )  # fmt: skip
    peer: str | None = option(None, "Rows interleaved over P GPUs, SIZE on each: 4x8GiB.", "PxSIZE")
    cpu: str | int | None = option(
        None, "Rows in host memory: 64GiB, 20%. Default: all that is left if no --ssd.", "SIZE", cli=str | None
    )
    ssd: Sequence[Pathlike] = option(
        (), "Directory of a stripe file; once for each SSD. The rest of the rows goes there, page by page.", "DIR",
        cli=list[Path] | None,
    )  # fmt: skip
    page: str | int = option("4KiB", "Unit of SSD reads, a power of two.", "SIZE", cli=str, cli_default="4KiB")
    adjacency_cache: str | int | None = option(
        None, "Part of --gpu for the hottest adjacency lists: a fraction such as 30%, or auto: what saves most time. "
        "Default: none.", "none|auto|PERCENT", cli=str | None,
    )  # fmt: skip
    access_costs: Pathlike | None = option(
        None, "For --adjacency-cache: measured costs of accesses, JSON. Default: assumed ones, PCIe 4.0.", "FILE",
        cli=Path | None,
    )  # fmt: skip
    fit: Pathlike | None = option(
        None, "For --adjacency-cache: measure those costs now on this machine's GPU, by sampling and gathering on the "
        "graph that is laid out (auto) or on another reordered graph.", "auto|GRAPH", cli=str | None,
    )  # fmt: skip
    edge_features: str = option(
        "auto", "Whether edge features lie in the tiers, next to those of nodes: auto, where the graph has some; none: "
        "loaders read them from its files.", "auto|none",
    )  # fmt: skip


@dataclass(frozen=True)
class LayoutOptions:
    """Options of a layout, parsed and checked by `of`."""

    capacities: Capacities
    page_bytes: int
    folders: tuple[Path, ...]  # one for each SSD, absolute
    cache: Size | None
    """Share of a GPU's memory for adjacency lists, or ``auto``; ``None``: it is for feature rows alone."""
    costs: AccessCosts  # costs of accesses, by which `cache` is planned
    recorded: Mapping[str, Any]  # the options as the manifest records them
    edge_features: bool = True  # whether features of edges are placed in the tiers, where the graph has some
    fit: str | None = None
    """The reordered graph to measure `costs` on first: a path, or ``auto`` for the one that is laid out."""

    @classmethod
    def resolve(cls, options: LayoutOptions | None, keywords: Mapping[str, Any]) -> LayoutOptions:
        """Return `options`, or those that `keywords` make; not both may be given."""
        if options is not None and keywords:
            raise TypeError(f"layout: expected LayoutOptions or keywords, found both ({', '.join(keywords)}); give one")
        return cls.of(**keywords) if options is None else options

    @classmethod
    def of(cls, **options: Unpack[LayoutKeywords]) -> LayoutOptions:
        """Parse options as a user gives them, keywords of `LayoutSettings`.

        Raises
        ------
        MissingError
            If there is no file `access_costs`.
        InputError
            If an option has another form, two `ssd` are one directory, or `access_costs` or `fit` have no effect.
        """
        asked = LayoutSettings(**options)
        gpu, peer, cpu, access_costs = asked.gpu, asked.peer, asked.cpu, asked.access_costs
        choice("auto", "none")(asked.edge_features, "edge features")
        folders, cache = tuple(resolve_directories(asked.ssd)), _parse_cache(asked.adjacency_cache)
        if cache is None and access_costs is not None:
            raise InputError(
                "access costs: matter only where memory is shared with adjacency lists; give --adjacency-cache auto "
                "too, or leave them out"
            )
        fit = None
        if asked.fit is not None:
            fit = "auto" if str(asked.fit) == "auto" else str(Path(asked.fit).absolute())
            if cache is None:
                raise InputError(
                    "fit: measures what matters only where memory is shared with adjacency lists; give "
                    "--adjacency-cache auto too, or leave it out"
                )
            if access_costs is not None:
                raise InputError("fit: measures the costs that --access-costs gives; leave one of the two out")
        costs = AccessCosts() if access_costs is None else read_access_costs(access_costs)
        capacities, page_bytes = parse_capacities(gpu, peer, cpu, ssd=bool(folders)), parse_page(asked.page)
        recorded: dict[str, Any] = {"gpu": gpu, "peer": peer, "cpu": cpu}
        recorded |= {"ssd": [str(folder) for folder in folders], "page_bytes": page_bytes}
        if cache is not None:
            # Keys of provenance keep their first names, so that artifacts of earlier versions have these options. The
            # figures are recorded, so that another file of the same name is noticed.
            recorded |= {"split": cache.text, **({"gpu_times": costs.to_json()} if fit is None else {"fit": fit})}
        if asked.edge_features == "none":
            recorded["edge_features"] = asked.edge_features
        return cls(capacities, page_bytes, folders, cache, costs, recorded, asked.edge_features == "auto", fit)

    def measured(self, costs: AccessCosts) -> LayoutOptions:
        """Return the options with `costs` that were measured for `fit`, which are recorded with it."""
        return replace(self, costs=costs, recorded={**self.recorded, "gpu_times": costs.to_json()})


def resolve_directories(ssd: Sequence[Pathlike]) -> list[Path]:
    """Return the absolute paths of the SSD directories, which must differ; create nothing."""
    folders = [Path(os.path.realpath(folder)) for folder in ssd]
    for k, folder in enumerate(folders):
        if folder.exists() and not folder.is_dir():
            raise InputError(f"ssd: {ssd[k]}: expected a directory, found a file; give a directory on the SSD")
        for earlier, other in enumerate(folders[:k]):
            if folder == other or (folder.exists() and other.exists() and folder.samefile(other)):
                raise InputError(
                    f"ssd: {ssd[earlier]} and {ssd[k]} are the same directory ({folder}); give each SSD its own"
                )
    return folders


def _parse_cache(text: str | int | None) -> Size | None:
    """Parse ``none`` (also ``None``), ``auto``, or a share such as ``30%``."""
    if text is None or str(text).strip().lower() == "none":
        return None
    try:
        cache = parse_size(text)
    except InputError:
        cache = Size("", bytes=0)
    if cache.bytes is not None:
        raise InputError(
            "adjacency cache: expected none, auto, or the share of --gpu that adjacency lists get, such as 30%; "
            f"found {text!r}"
        )
    return cache
