"""Methods of a layout for users of PyG: loaders, stores and samplers as those of PyG."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from tiering.errors import InputError
from tiering.formats.graph import Graph
from tiering.formats.layout import Layout
from tiering.loader.adapters import AdaptedBatches, choose_sampler, edge_names, require_library
from tiering.loader.keywords import PYG, PYG_LINKS, adopt
from tiering.loader.loader import Loader
from tiering.loader.options import LinkOptions, LoaderOptions, OriginalIds, ReadOptions, group_keywords
from tiering.loader.original_ids import NodeIds
from tiering.sampling import Negatives, SamplingOptions
from tiering.units import parse_fanouts

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tiering.loader.layout import TieredLayout
    from tiering.loader.options import BatchKeywords, NodeKeywords
    from tiering.loader.pyg.sampler import TieredSampler
    from tiering.loader.pyg.stores import TieredFeatureStore, TieredGraphStore


class ForPyg:
    """Methods of `tiering.loader.TieredLayout` for users of PyG, with PyG's keywords.

    `CapabilityError`: the library is not installed. `InputError`, `MissingError`: an argument does not fit, as of
    `TieredLayout.loader`; ids are none of the source's; no relation has such edge data.
    """

    artifact: Layout

    @property
    def _layout(self) -> TieredLayout:
        return cast("TieredLayout", self)

    def pyg_loader(
        self,
        split: str | None = "train",
        num_neighbors: Any = (10, 10),
        *,
        input_nodes: OriginalIds = ...,
        replace: bool = False,
        weight_attr: str | None = None,
        edge_attrs: Collection[str] | None = None,
        return_edge_id: bool | None = None,
        masks: bool = True,
        transform: Callable[[Any], Any] | None = None,
        features: Any = "tiers",
        **options: Unpack[NodeKeywords],
    ) -> Loader:
        """Return a loader of mini-batches as those of ``torch_geometric.loader.NeighborLoader``.

        ``Data`` where the graph has one node type and one relation, else ``HeteroData``: seeds first, with
        ``x``, ``y``, ``edge_index``, ``n_id`` (ids of the source), ``input_id``, ``batch_size``,
        ``num_sampled_nodes``, ``num_sampled_edges``, ``train_mask`` and the like. Needs PyG, not pyg-lib.

        Parameters
        ----------
        split, features, batch_size, shuffle, device, memory, ...
            As of `TieredLayout.loader`.
        num_neighbors
            As PyG's: per hop, the seeds' own first, for all relations or by relation.
        input_nodes
            Seeds instead of a split: **original ids**, a mask over them, a node type, or (type, one of these);
            ``None``: all nodes. ``seeds`` takes ranks.
        replace, weight_attr
            Draw neighbours with replacement; in proportion to the edge data ``weight``.
        edge_attrs
            Edge data to take along; all by default. ``weight`` is called ``edge_weight``, ``type`` ``edge_type``,
            features (``feat``, from the tiers where the layout places them) ``edge_attr``.
        return_edge_id
            Whether edges have ``e_id``, their positions in the source; by default where ``import --edge-ids`` kept
            them.
        masks
            Whether nodes say which splits they are in; 1 byte of memory per node.
        transform
            Called with each batch, in the background. On a GPU, tensors in what it returns are found in ``Data``,
            dicts, lists and tuples.
        """
        require_library("PyG")
        from tiering.loader.pyg.batch import PygAdapter

        graph, words = self.artifact.graph, adopt("pyg_loader", PYG, options)
        if input_nodes is not ...:
            words["node_type"], words["seeds"] = find_input_nodes(graph, input_nodes, options.get("node_type"))
        words |= {"split": split, **sampling_keywords(graph, num_neighbors, replace, weight_attr, words)}
        names = edge_names(graph, edge_attrs, return_edge_id)
        batches = AdaptedBatches(partial(PygAdapter, masks=masks), names, transform)
        return Loader(self._layout, LoaderOptions.of(features, words, call="pyg_loader"), batches)

    def pyg_link_loader(
        self,
        num_neighbors: Any = (10, 10),
        *,
        edge_label_index: OriginalIds = None,
        edge_label: Any = None,
        neg_sampling: Any = None,
        replace: bool = False,
        weight_attr: str | None = None,
        edge_attrs: Collection[str] | None = None,
        return_edge_id: bool | None = None,
        masks: bool = True,
        transform: Callable[[Any], Any] | None = None,
        features: Any = "tiers",
        **options: Unpack[BatchKeywords],
    ) -> Loader:
        """Return a loader of mini-batches as those of ``torch_geometric.loader.LinkNeighborLoader``.

        Parameters
        ----------
        num_neighbors, replace, weight_attr, edge_attrs, return_edge_id, masks, transform
            As of `pyg_loader`.
        edge_label_index
            Links as pairs of **original ids**, shape (2, links), a relation (all of its edges, in the order of its
            ``indices``), or (relation, pairs).
        edge_label
            Labels of the links given; with negatives of mode binary, classes from 0 on become 1 and more, as in PyG.
        neg_sampling
            PyG's ``NegativeSampling``, its mode (``binary``, ``triplet``), or a mapping of its arguments. Negatives
            are a pure function of the seed, the epoch and the batch.
        features, batch_size, shuffle, device, memory, ...
            As of `TieredLayout.link_loader`.
        """
        require_library("PyG")
        from tiering.loader.pyg.batch import PygAdapter

        graph, given = self.artifact.graph, {**options, "neg_sampling": neg_sampling}
        words = adopt("pyg_link_loader", PYG_LINKS, given)
        negatives = make_negatives(words.pop("neg_sampling"))
        relation, pairs = find_links(graph, edge_label_index)
        label = label_links(edge_label, pairs, negatives)
        words |= sampling_keywords(graph, num_neighbors, replace, weight_attr, words)
        names = edge_names(graph, edge_attrs, return_edge_id)
        asked = LoaderOptions.of(features, words, LinkOptions(relation, pairs, negatives), "pyg_link_loader")
        batches = AdaptedBatches(partial(PygAdapter, masks=masks, edge_label=label), names, transform)
        return Loader(self._layout, asked, batches)

    def pyg_stores(
        self, ids: str = "original", *, masks: bool = True, **options: Any
    ) -> tuple[TieredFeatureStore, TieredGraphStore]:
        """Return the ``(FeatureStore, GraphStore)`` that PyG's own loaders take as ``data``.

        Tensors of each node type are ``x``, ``y`` (-1 for none), ``train_mask`` and the like, and ``n_id``, the ids
        themselves; relations are in CSC. For reading only; in host memory. Groups and edge types are named ``None``
        where the graph has one node type and one relation, as in PyG.

        Parameters
        ----------
        ids
            Ids of nodes in indices and edges, and of the sampler: ``original`` (those of the source) or ``rank``.
        masks
            Whether there are ``train_mask`` and the like; 1 byte of memory per node.
        engine, drives, depth, direct, threads, verify
            How rows are read; see `tiering.loader.options.ReadOptions`.

        Notes
        -----
        Memory tiers are loaded now, so that forked workers share them. With ``original`` ids each request for edges
        renumbers the relation, 8 bytes of memory per edge; `pyg_sampler` needs none.
        """
        require_library("PyG")
        from tiering.loader.pyg.stores import TieredFeatureStore, TieredGraphStore

        (reading,) = group_keywords("pyg_stores", (ReadOptions,), options)
        return TieredFeatureStore(self._layout, ids, masks, reading), TieredGraphStore(self._layout, ids)

    def pyg_sampler(
        self,
        num_neighbors: Any = (10, 10),
        *,
        ids: str = "original",
        seed: int = 0,
        replace: bool = False,
        weight_attr: str | None = None,
    ) -> TieredSampler:
        """Return the ``BaseSampler`` that PyG's ``NodeLoader`` and ``LinkLoader`` take; needs no pyg-lib.

        A batch is a pure function of `seed`, the epoch (``sampler.set_epoch(e)``, before an epoch begins) and the
        nodes or links that it is for, whichever worker draws it. ``e_id`` are positions in the source where ``import
        --edge-ids`` kept them; with ranks, positions in the relation's ``indices``.

        Parameters
        ----------
        num_neighbors, replace, weight_attr
            As of `pyg_loader`.
        ids
            ``original`` or ``rank``, as of the stores.
        seed
            Seed of the run, 0 to 2^64 - 1.
        """
        require_library("PyG")
        from tiering.loader.pyg.sampler import TieredSampler

        words = sampling_keywords(self.artifact.graph, num_neighbors, replace, weight_attr, {})
        words["fanouts"] = parse_fanouts(words["fanouts"], "num_neighbors")
        return TieredSampler(self._layout, SamplingOptions(seed=seed, **words), ids)


def sampling_keywords(
    graph: Graph, num_neighbors: Any, replace: bool, weight_attr: str | None, options: dict[str, Any]
) -> dict[str, Any]:
    """Return the keywords of `SamplingOptions` that say how PyG draws neighbours: a node samples once."""
    if hasattr(num_neighbors, "get_values"):  # torch_geometric.sampler.NumNeighbors
        num_neighbors = num_neighbors.get_values(graph.relations)
    sampler = choose_sampler(options, replace, weight_attr, "weight_attr")
    return {"fanouts": num_neighbors, "frontier": "new", "sampler": sampler}


def find_input_nodes(graph: Graph, nodes: Any, node_type: str | None) -> tuple[str, npt.NDArray[np.int64]]:
    """Return type and ranks of ``input_nodes``: original ids, a mask over them, or a type, alone or before these."""
    if isinstance(nodes, tuple) and len(nodes) == 2 and isinstance(nodes[0], str):
        node_type, nodes = nodes
    elif isinstance(nodes, str):
        node_type, nodes = nodes, None
    node_type = find_input_type(graph, node_type)
    nodes = np.arange(graph.num_nodes(node_type)) if nodes is None else nodes
    return node_type, NodeIds(graph).ranks(node_type, nodes, "input_nodes")


def find_input_type(graph: Graph, node_type: str | None) -> str:
    """Return the node type given, or the only one."""
    types = graph.node_types
    if node_type is None and len(types) != 1:
        raise InputError(f"input_nodes: say which type they are of, as (type, ids); types: {', '.join(types)}")
    return types[0] if node_type is None else node_type


def find_links(graph: Graph, links: Any) -> tuple[Any, npt.NDArray[np.int64] | None]:
    """Return relation and ranks of ``edge_label_index``, which has original ids; no ranks: all edges."""
    relation = None
    if isinstance(links, str) or (isinstance(links, tuple) and len(links) == 3 and isinstance(links[0], str)):
        relation, links = links, None
    elif isinstance(links, Sequence) and len(links) == 2 and isinstance(links[0], (str, tuple)):
        relation, links = links
    resolved = graph.relation(relation)
    if links is None:
        return resolved, None
    src, dst = links
    ends = ((resolved[0], src, "sources"), (resolved[2], dst, "destinations"))
    return resolved, np.stack([NodeIds(graph).ranks(t, ids, f"edge_label_index: {what}") for t, ids, what in ends])


def make_negatives(sampling: Any) -> Negatives | None:
    """Return the negatives of PyG's ``NegativeSampling``, its mode, or a mapping of its arguments."""
    if not hasattr(sampling, "src_weight") or isinstance(sampling, Negatives):
        return Negatives.of(sampling)
    weights = [None if weight is None else np.asarray(weight) for weight in (sampling.src_weight, sampling.dst_weight)]
    return Negatives(sampling.mode.value, float(sampling.amount), *weights)


def label_links(labels: Any, pairs: npt.NDArray[np.int64] | None, negatives: Negatives | None) -> Any:
    """Return ``edge_label`` as a tensor; with negatives, classes from 0 on become 1 and more, as in PyG."""
    import torch

    if labels is None:
        return None
    if pairs is None:
        raise InputError("edge_label: give the links that it labels, edge_label_index, in the same order")
    if negatives is not None and negatives.triplets:
        raise InputError("edge_label: triplets have no labels; leave it out, or draw negatives in mode binary")
    label, count = torch.as_tensor(labels), pairs.shape[1]
    if len(label) != count:
        raise InputError(f"edge_label: expected one label for each of {count} links, found {len(label)}")
    return label + 1 if negatives is not None and label.min() == 0 else label
