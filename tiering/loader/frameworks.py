"""Methods of a layout for users of PyG and DGL: loaders, stores and samplers with their interfaces."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tiering.artifacts.manifest import Relation
from tiering.errors import InputError
from tiering.formats.graph import Graph
from tiering.loader.adapters import AdaptedBatches, Adapter, adopt, choose_sampler, edge_names, require_library
from tiering.loader.loader import Loader
from tiering.loader.open_tables import OpenTables
from tiering.loader.options import LoaderOptions, OriginalIds, ReadOptions, group_keywords
from tiering.loader.targets import find_edges, find_links, find_nodes, link_labels, make_negatives
from tiering.sampling import SamplingOptions
from tiering.text.units import parse_fanouts

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tiering.loader.options import BatchKeywords, NodeKeywords
    from tiering.loader.pyg.stores import TieredFeatureStore, TieredGraphStore, TieredSampler
    from tiering.sampling.options import SubgraphKeywords


class ForFrameworks(OpenTables):
    """Methods of `tiering.loader.TieredLayout` for users of PyG and DGL, with the keywords of these libraries.

    `CapabilityError`: the library is not installed. `InputError`, `MissingError`: an argument does not fit, as in
    `TieredLayout.loader`; an id is not in the source; no relation has such edge data.
    """

    @property
    def num_node_features(self) -> Any:
        """Values per feature row, 0 without features, as PyG counts: by type where the graph has several."""
        dims = {t: self.feature_dim(t) if t in self.feature_types else 0 for t in self.node_types}
        return dims if len(dims) > 1 else sum(dims.values())

    num_features = num_node_features

    @property
    def num_edge_features(self) -> Any:
        """Values per row of edges' features, 0 without: by relation where the graph has several."""
        dims = {r: (self.graph.edge_feature_shape(r) or (0, ""))[0] for r in self.relations}
        return dims if len(dims) > 1 else sum(dims.values())

    def metadata(self) -> tuple[list[str], list[Relation]]:
        """Return node types and relations, as ``HeteroData.metadata`` does for ``to_hetero``."""
        return self.node_types, self.relations

    def pyg_loader(
        self,
        split: str | None = "train",
        num_neighbors: Any = (10, 10),
        *,
        input_nodes: OriginalIds = ...,
        input_id: Any = None,
        replace: bool = False,
        weight_attr: str | None = None,
        edge_attrs: Collection[str] | None = None,
        return_edge_id: bool | None = None,
        masks: bool = True,
        hetero: bool = False,
        transform: Callable[[Any], Any] | None = None,
        features: Any = "tiers",
        **options: Unpack[NodeKeywords],
    ) -> Loader:
        """Return a loader of mini-batches like ``torch_geometric.loader.NeighborLoader``.

        ``Data`` where the graph has one node type and one relation, else ``HeteroData``: seeds first, with
        ``x``, ``y``, ``edge_index``, ``n_id`` (ids of the source), ``input_id``, ``batch_size``,
        ``num_sampled_nodes``, ``num_sampled_edges``, ``train_mask`` and the like. Needs PyG, not pyg-lib.

        Parameters
        ----------
        split, features, batch_size, shuffle, device, memory, ...
            The same as in `TieredLayout.loader`.
        num_neighbors
            As in PyG: per hop, the seeds' own first, for all relations or by relation.
        input_nodes
            Seeds instead of a split: **original ids**, a mask over them, a node type, or (type, one of these);
            ``None``: all nodes, in the order of the source. ``seeds`` takes ranks.
        input_id
            Numbers by which batches identify seeds. Default, as in PyG: ids for a mask, else positions of the seeds.
        time_attr, input_time, temporal_strategy, disjoint, subgraph_type
            As in PyG: times that ``import --time`` kept, and the time of each seed, by default its node's own.
        replace, weight_attr
            Sample neighbors with replacement; in proportion to the edge data ``weight`` (PyG: ``edge_weight``).
        edge_attrs
            Edge data in batches; all by default. ``weight`` is called ``edge_weight``, ``type`` ``edge_type``,
            features (``feat``, from the tiers where the layout places them) ``edge_attr``.
        return_edge_id
            Whether edges have ``e_id``, their positions in the source; by default where ``import --edge-ids`` kept
            them.
        masks
            Whether batches have ``train_mask`` and the like; 1 byte of memory per node.
        hetero
            Whether batches are ``HeteroData`` also where the graph has one node type and one relation.
        transform
            Called with each batch, in the background. On a GPU, tensors in what it returns are found in ``Data``,
            dicts, lists and tuples.
        """
        require_library("PyG")
        from tiering.loader.pyg.batch import PygAdapter

        words = adopt("pyg_loader", options)
        ids = self._enter_seeds(words, split, input_nodes, "input_nodes")
        input_id = ids if input_id is None else input_id
        num_neighbors = words.pop("num_neighbors", num_neighbors)
        words |= pyg_sampling(self.graph, num_neighbors, replace, weight_attr, words)
        adapter = partial(PygAdapter, masks=masks, hetero=hetero, input_id=input_id)
        asked = LoaderOptions.of(features, words, call="pyg_loader")
        return self._load(asked, adapter, edge_attrs, return_edge_id, transform)

    def pyg_link_loader(
        self,
        num_neighbors: Any = (10, 10),
        *,
        edge_label_index: OriginalIds = None,
        edge_label: Any = None,
        input_id: Any = None,
        edge_label_time: Any = None,
        neg_sampling: Any = None,
        replace: bool = False,
        weight_attr: str | None = None,
        edge_attrs: Collection[str] | None = None,
        return_edge_id: bool | None = None,
        masks: bool = True,
        hetero: bool = False,
        transform: Callable[[Any], Any] | None = None,
        features: Any = "tiers",
        **options: Unpack[BatchKeywords],
    ) -> Loader:
        """Return a loader of mini-batches like ``torch_geometric.loader.LinkNeighborLoader``.

        Parameters
        ----------
        num_neighbors, replace, weight_attr, edge_attrs, return_edge_id, masks, hetero, transform
            The same as in `pyg_loader`.
        edge_label_index
            Links as pairs of **original ids**, shape (2, links), a relation (all of its edges, in the order of the
            source where ``import --edge-ids`` kept it, else of its ``indices``), or (relation, pairs). The relation
            of pairs need not be one of the graph's. 16 bytes of memory per edge for the source's order.
        input_id
            Numbers by which batches identify links. Default: positions in `edge_label_index`.
        edge_label
            Labels of the links; with negatives of mode binary, classes from 0 on become 1 and more, as in PyG.
        edge_label_time
            With ``time_attr``: the time of each link.
        neg_sampling
            PyG's ``NegativeSampling``, its mode (``binary``, ``triplet``), or a mapping of its arguments. Negatives
            are a pure function of the seed, the epoch and the batch.
        features, batch_size, shuffle, device, memory, ...
            The same as in `TieredLayout.link_loader`.
        """
        require_library("PyG")
        from tiering.loader.pyg.batch import PygAdapter

        words = adopt("pyg_link_loader", {**options, "neg_sampling": neg_sampling})
        links = find_links(self.graph, edge_label_index)
        links = dataclasses.replace(links, negatives=make_negatives(words.pop("neg_sampling")), time=edge_label_time)
        num_neighbors = words.pop("num_neighbors", num_neighbors)
        words |= pyg_sampling(self.graph, num_neighbors, replace, weight_attr, words)
        label, input_id = link_labels(links, edge_label), links.input_id if input_id is None else input_id
        adapter = partial(PygAdapter, masks=masks, hetero=hetero, input_id=input_id, edge_label=label)
        asked = LoaderOptions.of(features, words, links, "pyg_link_loader")
        return self._load(asked, adapter, edge_attrs, return_edge_id, transform)

    def pyg_stores(
        self, ids: str = "original", *, masks: bool = True, hetero: bool = False, **options: Any
    ) -> tuple[TieredFeatureStore, TieredGraphStore]:
        """Return the ``(FeatureStore, GraphStore)`` that PyG's own loaders take as ``data``.

        Tensors of each node type are ``x``, ``y`` (-1 for none), ``train_mask`` and the like, and ``n_id``, the ids
        themselves; relations are in CSC; edge data come with the batches of `pyg_sampler`. For reading only; in host
        memory. Groups and edge types are named ``None`` where the graph has one node type and one relation, as in PyG.

        Parameters
        ----------
        ids
            Ids of nodes in indices and edges, and of the sampler: ``original`` (ids of the source) or ``rank``.
        masks
            Whether there are ``train_mask`` and the like; 1 byte of memory per node.
        hetero
            Whether groups and edge types have names also where there is one of each; the same as in `pyg_sampler`.
        engine, drives, depth, direct, threads, verify, dtype
            How rows are read; see `tiering.loader.options.ReadOptions`.

        Notes
        -----
        Memory tiers are loaded now, so that forked workers share them. With ``original`` ids each request for edges
        renumbers the relation, 8 bytes of memory per edge; `pyg_sampler` needs none.
        """
        require_library("PyG")
        from tiering.loader.pyg.stores import TieredFeatureStore, TieredGraphStore

        (reading,) = group_keywords("pyg_stores", (ReadOptions,), options)
        return TieredFeatureStore(self, ids, masks, reading, hetero), TieredGraphStore(self, ids, hetero)

    def pyg_sampler(
        self,
        num_neighbors: Any = (10, 10),
        *,
        ids: str = "original",
        seed: int = 0,
        replace: bool = False,
        weight_attr: str | None = None,
        edge_attrs: Collection[str] | None = None,
        hetero: bool = False,
        time_attr: str | None = None,
        **subgraphs: Unpack[SubgraphKeywords],
    ) -> TieredSampler:
        """Return the ``BaseSampler`` that PyG's ``NodeLoader`` and ``LinkLoader`` take; needs no pyg-lib.

        A batch is a pure function of `seed`, the epoch (``sampler.set_epoch(e)``, before an epoch begins) and the
        nodes or links that it is for, whichever worker samples it. ``e_id`` are positions in the source where ``import
        --edge-ids`` kept them; with ranks, positions in the relation's ``indices``.

        Parameters
        ----------
        num_neighbors, replace, weight_attr, edge_attrs, hetero
            The same as in `pyg_loader`; edge data come from the graph's files.
        ids
            ``original`` or ``rank``, the same as for the stores.
        seed
            Seed of the run, 0 to 2^64 - 1.
        time_attr, disjoint, temporal_strategy, time_window, subgraph_type
            The same as in `pyg_loader`; PyG's loaders take ``input_time`` and ``edge_label_time``.
        """
        require_library("PyG")
        from tiering.loader.pyg.stores import TieredSampler

        words = pyg_sampling(self.graph, num_neighbors, replace, weight_attr, {})
        words["fanouts"] = parse_fanouts(words["fanouts"], "num_neighbors")
        names = edge_names(self.graph, edge_attrs, None)
        about: dict[str, Any] = {**subgraphs, "time": time_attr}
        how = SamplingOptions(seed=seed, **words, **about)
        return TieredSampler(self, how, ids, names, hetero)

    def dgl_loader(
        self,
        split: str | None = "train",
        fanouts: Any = (10, 10),
        *,
        indices: OriginalIds = ...,
        replace: bool = False,
        prob: str | None = None,
        feature_name: str = "feat",
        label_name: str = "label",
        edge_attrs: Collection[str] | None = None,
        return_edge_id: bool | None = None,
        transform: Callable[[Any], Any] | None = None,
        features: Any = "tiers",
        **options: Unpack[NodeKeywords],
    ) -> Loader:
        """Return a loader of batches as ``dgl.dataloading.DataLoader``'s: ``(input nodes, output nodes, blocks)``.

        Parameters
        ----------
        split, features, batch_size, shuffle, device, memory, ...
            The same as in `TieredLayout.loader`.
        fanouts
            As DGL's: one per layer, the input layer's first (the reverse of `TieredLayout.loader`'s), for all relations
            or by relation.
        indices
            Seeds instead of a split: **original ids**, by node type where there are several; ``None``: all nodes, in
            the order of the source. ``seeds`` takes ranks.
        replace, prob
            Sample neighbors with replacement; in proportion to the edge data ``weight``.
        feature_name, label_name
            Names in ``blocks[0].srcdata`` and ``blocks[-1].dstdata``; ``dgl.NID`` are ids of the source.
        edge_attrs, return_edge_id, transform
            The same as in `pyg_loader`; edges' ids are ``dgl.EID``, edge data keeps its names, such as ``feat``.
        """
        require_library("DGL")
        from tiering.loader.dgl import DglAdapter

        words = adopt("dgl_loader", options)
        words |= dgl_sampling(fanouts, replace, prob, words)
        self._enter_seeds(words, split, indices, "indices")
        adapter = partial(DglAdapter, feature_name=feature_name, label_name=label_name)
        asked = LoaderOptions.of(features, words, call="dgl_loader")
        return self._load(asked, adapter, edge_attrs, return_edge_id, transform)

    def dgl_link_loader(
        self,
        fanouts: Any = (10, 10),
        *,
        indices: Any = None,
        negative_sampler: Any = None,
        replace: bool = False,
        prob: str | None = None,
        feature_name: str = "feat",
        label_name: str = "label",
        edge_attrs: Collection[str] | None = None,
        return_edge_id: bool | None = None,
        transform: Callable[[Any], Any] | None = None,
        features: Any = "tiers",
        **options: Unpack[BatchKeywords],
    ) -> Loader:
        """Return a loader of batches of edges like DGL's ``as_edge_prediction_sampler``.

        Batches are ``(input nodes, pair graph, negative graph, blocks)``, without `negative_sampler` three of these.

        Parameters
        ----------
        fanouts, replace, prob, feature_name, label_name, edge_attrs, return_edge_id, transform
            The same as in `dgl_loader`; the pair graph has edge data and ``dgl.EID`` as blocks have.
        indices
            Edges by their ids in the source (``import --edge-ids``), or as (sources, destinations), **original ids**;
            by relation where there are several: ``{("user", "rates", "item"): ids}``. ``None``: all edges.
        negative_sampler
            DGL's ``Uniform(k)``, or k: other destinations for the source of each edge; or what ``negatives`` of
            `TieredLayout.link_loader` may be. A pure function of the seed, the epoch and the batch.
        features, batch_size, shuffle, device, memory, ...
            The same as in `TieredLayout.link_loader`.
        """
        require_library("DGL")
        from tiering.loader.dgl import DglLinkAdapter, find_negatives

        words = adopt("dgl_link_loader", options)
        words |= dgl_sampling(fanouts, replace, prob, words)
        links = find_edges(self.graph, indices)
        adapter = partial(DglLinkAdapter, links=links, feature_name=feature_name, label_name=label_name)
        links = dataclasses.replace(links, negatives=find_negatives(negative_sampler))
        asked = LoaderOptions.of(features, words, links, "dgl_link_loader")
        return self._load(asked, adapter, edge_attrs, return_edge_id, transform)

    def _enter_seeds(self, words: dict[str, Any], split: str | None, nodes: Any, what: str) -> Any:
        """Add the split, or nodes of the source (all where nothing is named), to keywords; return ``input_id``."""
        words["split"], input_id = split, None
        if nodes is not ... or (split is None and words.get("seeds") is None):
            if words.pop("seed_ids", None) is not None and nodes is not ...:
                raise InputError(
                    f"seed_ids: {what} already takes ids of the source; give seeds= instead of {what}, or omit seed_ids"
                )
            nodes, node_type = None if nodes is ... else nodes, words.get("node_type")
            words["node_type"], words["seeds"], input_id = find_nodes(self.graph, nodes, node_type, what)
        return input_id

    def _load(
        self, options: LoaderOptions, adapter: Callable[..., Adapter], edge_attrs: Collection[str] | None,
        return_edge_id: bool | None, transform: Callable[[Any], Any] | None,
    ) -> Loader:  # fmt: skip
        """Return a loader whose batches an adapter converts."""
        names = edge_names(self.graph, edge_attrs, return_edge_id)
        return Loader(self, options, AdaptedBatches(adapter, names, transform))


def pyg_sampling(
    graph: Graph, num_neighbors: Any, replace: bool, weight_attr: str | None, options: dict[str, Any]
) -> dict[str, Any]:
    """Return the keywords of `SamplingOptions` that say how PyG samples neighbors: a node samples once."""
    if hasattr(num_neighbors, "get_values"):  # torch_geometric.sampler.NumNeighbors
        num_neighbors = num_neighbors.get_values(graph.relations)
    sampler = choose_sampler(options, replace, weight_attr, "weight_attr")
    return {"fanouts": num_neighbors, "frontier": "new", "sampler": sampler}


def dgl_sampling(fanouts: Any, replace: bool, prob: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords of `SamplingOptions` with which sampling matches DGL's: again in every layer."""
    if isinstance(fanouts, (str, bytes)) or not isinstance(fanouts, Sequence) or not fanouts:
        raise InputError(f"fanouts: expected one entry per layer such as [10, 10], found {fanouts!r}")
    sampler = choose_sampler(options, replace, prob, "prob")
    return {"fanouts": list(reversed(fanouts)), "frontier": "all", "sampler": sampler}
