"""Common parts of loaders for PyG and DGL: keywords as options of a `Loader`, adapters of its batches."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

from tiering.artifacts.manifest import Relation
from tiering.errors import CapabilityError, InputError
from tiering.formats.features import EDGE_FEATURES
from tiering.formats.graph import Graph
from tiering.loader.attributes import EdgeAttributes, NodeAttributes
from tiering.loader.batches.batch import Batch, EdgeRows
from tiering.loader.batches.targets import Targets
from tiering.loader.gpu.device import Device
from tiering.sampling import Sampler


class Adapter(Protocol):
    """A converter of batches to those of another library, in the background, where the batch lies and on its stream."""

    def adapt(self, batch: Batch) -> Any:
        """Return the other library's batch."""

    def contents(self, value: Any) -> Iterable[Any]:
        """Return the tensors, and objects that hold some, in an object of the other library; nothing for others."""


@dataclass(frozen=True)
class BatchSource:
    """The parts of a loader that an adapter of its batches needs."""

    graph: Graph
    sampler: Sampler
    targets: Targets
    device: Device | None
    """The GPU on which batches lie; ``None``: the host."""
    edge_rows: EdgeRows
    """Features of edges; empty unless asked for."""


@dataclass(frozen=True)
class AdaptedBatches(ABC):
    """The contents of another library's batches; makes the adapter of a loader."""

    edge_names: tuple[str, ...] = ()
    """Edge data to take along."""
    transform: Callable[[Any], Any] | None = None
    """Called with each batch, in the background."""

    @property
    def edge_positions(self) -> bool:
        """Whether batches need the positions of their edges."""
        return bool(self.edge_names)

    @property
    def edge_features(self) -> bool:
        """Whether edges' features are taken from the tiers."""
        return EDGE_FEATURES in self.edge_names

    @abstractmethod
    def adapter(self, source: BatchSource) -> Adapter:
        """Return the adapter of a loader."""

    def finished(self, made: Any) -> Any:
        """Return a batch after the user's transform."""
        return made if self.transform is None else self.transform(made)


class GraphAttributes:
    """Attributes of the graph by node type and by relation, for adapters.

    `homogeneous`: there is one of each; then the libraries' batches have no names of types.
    """

    def __init__(self, source: BatchSource, holds: AdaptedBatches, splits: bool) -> None:
        graph, device = source.graph, source.device
        self.nodes = {t: NodeAttributes(graph, t, device, splits) for t in graph.node_types}
        # With random walks relations are metapaths, whose edges have no positions.
        self.edges: dict[Relation, EdgeAttributes | None] = dict.fromkeys(source.sampler.edge_relations)
        for r in graph.relations if holds.edge_names else []:
            if r in self.edges:
                self.edges[r] = EdgeAttributes(graph, r, device, holds.edge_names, source.edge_rows.get(r))
        self.homogeneous = len(self.nodes) == len(self.edges) == 1


def choose_sampler(options: dict[str, Any], replace: bool, weight: str | None, weight_option: str) -> str:
    """Return the name of the sampler that `replace`, a weight, or ``sampler`` asks for; the last leaves `options`.

    `TypeError` if fanouts or frontier are among these: both libraries have keywords of their own for them.
    """
    if refused := [name for name in ("fanouts", "frontier") if name in options]:
        raise TypeError(f"unexpected keyword argument {refused[0]!r}: it follows from the library that batches are for")
    if weight not in (None, "weight"):
        raise InputError(f"{weight_option}: neighbours are drawn by the edge data 'weight', found {weight!r}")
    asked = {"replace": replace, weight_option: weight, "sampler": options.get("sampler")}
    if len(both := [name for name, value in asked.items() if value]) > 1:
        raise InputError(f"{', '.join(both)}: each chooses how neighbours are drawn; leave one out")
    return str(options.pop("sampler", None) or ("weighted" if weight else "replacement" if replace else "uniform"))


def require_pyg() -> None:
    """Import PyG; `CapabilityError` says how to get it, or one that serves."""
    _require("PyG", "torch_geometric", (2, 5), "pyg")


def require_dgl() -> None:
    """Import DGL; `CapabilityError` says how to get it, or one that serves."""
    _require("DGL", "dgl", (1, 1, 3), "dgl")


def _require(name: str, package: str, least: tuple[int, ...], extra: str) -> None:
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
            f"batches for {name}: {package} {installed} is installed, but cannot be imported ({error}); is it for this "
            "version of torch?"
        ) from error
