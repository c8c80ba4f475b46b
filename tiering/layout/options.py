"""The options of a layout: sizes of tiers, SSDs, and the division of a GPU's memory with adjacency lists."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

from tiering.errors import InputError
from tiering.layout.cost_model import AccessCosts, read_access_costs
from tiering.layout.tiers import Capacities, parse_capacities, parse_page
from tiering.units import Size, parse_size

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
class LayoutOptions:
    """Options of a layout, parsed and checked by `of`."""

    capacities: Capacities
    """Sizes of the tiers."""
    page_bytes: int
    """Unit of SSD I/O."""
    folders: tuple[Path, ...]
    """One for each SSD, absolute."""
    cache: Size | None
    """Share of a GPU's memory for adjacency lists, or ``auto``; ``None``: it is for feature rows alone."""
    costs: AccessCosts
    """Costs of accesses, by which `cache` is planned."""
    recorded: Mapping[str, Any]
    """The options as the manifest records them."""
    edge_features: bool = True
    """Whether features of edges are placed in the tiers, where the graph has some."""
    fit: str | None = None
    """The reordered graph on which costs are measured before the layout is planned: a path, or ``auto`` for the one
    that is laid out. ``None``: `costs` are used as they are."""

    @classmethod
    def resolve(cls, options: LayoutOptions | None, keywords: Mapping[str, Any]) -> LayoutOptions:
        """Return `options`, or those that `keywords` make; not both may be given."""
        if options is not None and keywords:
            raise TypeError(f"layout: expected LayoutOptions or keywords, found both ({', '.join(keywords)}); give one")
        return cls.of(**keywords) if options is None else options

    @classmethod
    def of(
        cls,
        gpu: str | int | None = None,
        peer: str | None = None,
        cpu: str | int | None = None,
        ssd: Sequence[Pathlike] = (),
        page: str | int = "4KiB",
        adjacency_cache: str | int | None = None,
        access_costs: Pathlike | None = None,
        fit: Pathlike | None = None,
        edge_features: str = "auto",
    ) -> LayoutOptions:
        """Parse options as a user gives them.

        Parameters
        ----------
        gpu, cpu
            Size such as ``8GiB``, ``25%`` of all feature bytes, or ``auto`` for the rest. `cpu` is by default ``auto``
            without `ssd`, and 0 with it.
        peer
            ``PxSIZE``: rows interleaved over P GPUs, SIZE on each.
        ssd
            Directories, one per SSD, created if missing, for the rest of the rows, striped page by page.
        page
            Unit of SSD I/O, a power of two.
        adjacency_cache
            Division of `gpu` between feature rows and adjacency lists (the first columns of each relation, without
            edge data): ``none``, all of it for rows; the share of the lists, such as ``30%``; ``auto``, the division
            that saves most time (`plan_split`). With it, `gpu` may be as large as all rows and lists.
        access_costs
            With `adjacency_cache`: file of measured costs (`tiering.layout.cost_model.read_access_costs`) in place of
            the assumed ones.
        fit
            With `adjacency_cache`, in place of `access_costs`: the reordered graph, or ``auto`` for the one that is
            laid out, on which costs are measured on a GPU of this machine (`tiering.loader.gpu.fit`).
        edge_features
            ``auto``: rows of edge features (edge data ``feat``) are placed in the tiers together with those of nodes.
            ``none``: loaders read them from the graph's own files.

        Raises
        ------
        MissingError
            If there is no file `access_costs`.
        InputError
            If an option has another form, two `ssd` are one directory, or `access_costs` or `fit` have no effect.
        """
        if edge_features not in ("auto", "none"):
            raise InputError(f"edge features: expected auto or none, found {edge_features!r}")
        folders, cache = tuple(resolve_directories(ssd)), _parse_cache(adjacency_cache)
        if cache is None and access_costs is not None:
            raise InputError(
                "access costs: matter only where memory is shared with adjacency lists; give --adjacency-cache auto "
                "too, or leave them out"
            )
        if fit is not None:
            fit = _checked_fit(fit, cache, access_costs)
        costs = AccessCosts() if access_costs is None else read_access_costs(access_costs)
        capacities, page_bytes = parse_capacities(gpu, peer, cpu, ssd=bool(folders)), parse_page(page)
        recorded: dict[str, Any] = {"gpu": gpu, "peer": peer, "cpu": cpu}
        recorded |= {"ssd": [str(folder) for folder in folders], "page_bytes": page_bytes}
        if cache is not None:
            # Keys of provenance keep their first names, so that artifacts of earlier versions have these options. The
            # figures are recorded, so that another file of the same name is noticed.
            recorded |= {"split": cache.text, **({"gpu_times": costs.to_json()} if fit is None else {"fit": fit})}
        if edge_features == "none":
            recorded["edge_features"] = edge_features
        return cls(capacities, page_bytes, folders, cache, costs, recorded, edge_features == "auto", fit)

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


def _checked_fit(fit: Pathlike, cache: Size | None, access_costs: Pathlike | None) -> str:
    """Return ``auto`` or an absolute path; refuse `fit` with costs, or without a cache."""
    if cache is None:
        raise InputError(
            "fit: measures what matters only where memory is shared with adjacency lists; give --adjacency-cache auto "
            "too, or leave it out"
        )
    if access_costs is not None:
        raise InputError("fit: measures the costs that --access-costs gives; leave one of the two out")
    return "auto" if str(fit) == "auto" else str(Path(fit).absolute())
