"""Methods of a layout for users of DGL: loaders as DGL's ``DataLoader`` over its samplers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from tiering.errors import InputError
from tiering.formats.layout import Layout
from tiering.loader.adapters import AdaptedBatches, choose_sampler, edge_names, require_library
from tiering.loader.keywords import DGL, DGL_LINKS, adopt
from tiering.loader.loader import Loader
from tiering.loader.options import LoaderOptions, OriginalIds
from tiering.loader.original_ids import NodeIds

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tiering.loader.layout import TieredLayout
    from tiering.loader.options import BatchKeywords, NodeKeywords


class ForDgl:
    """Methods of `tiering.loader.TieredLayout` for users of DGL, with DGL's keywords; errors as of `pyg_loader`."""

    artifact: Layout

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
            As of `TieredLayout.loader`.
        fanouts
            As DGL's: one per layer, the input layer's first (the reverse of `TieredLayout.loader`'s), for all relations
            or by relation.
        indices
            Seeds instead of a split: **original ids**, by node type where there are several; ``None``: all nodes.
            ``seeds`` takes ranks.
        replace, prob
            Draw neighbours with replacement; in proportion to the edge data ``weight``.
        feature_name, label_name
            Names in ``blocks[0].srcdata`` and ``blocks[-1].dstdata``; ``dgl.NID`` are ids of the source.
        edge_attrs, return_edge_id, transform
            As of `pyg_loader`; edges' ids are ``dgl.EID``, edge data keeps its names, such as ``feat``.
        """
        require_library("DGL")
        from tiering.loader.dgl.batch import DglAdapter

        graph, words = self.artifact.graph, adopt("dgl_loader", DGL, options)
        words |= sampling_keywords(fanouts, replace, prob, words)
        if indices is None:
            split = None
        elif indices is not ...:
            by_type = indices if isinstance(indices, Mapping) else dict.fromkeys(graph.node_types, indices)
            if len(by_type) != 1:
                raise InputError(
                    f"indices: expected ids of one type, as {{type: ids}}, found {len(by_type)}; types: "
                    f"{', '.join(graph.node_types)}"
                )
            ((node_type, ids),) = by_type.items()
            words |= {"node_type": node_type, "seeds": NodeIds(graph).ranks(node_type, ids, "indices")}
        words["split"] = split
        adapter = partial(DglAdapter, feature_name=feature_name, label_name=label_name)
        batches = AdaptedBatches(adapter, edge_names(graph, edge_attrs, return_edge_id), transform)
        return Loader(cast("TieredLayout", self), LoaderOptions.of(features, words, call="dgl_loader"), batches)

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
        """Return a loader of batches of edges as of DGL's ``as_edge_prediction_sampler``.

        Batches are ``(input nodes, pair graph, negative graph, blocks)``, without `negative_sampler` three of these.

        Parameters
        ----------
        fanouts, replace, prob, feature_name, label_name, edge_attrs, return_edge_id, transform
            As of `dgl_loader`; the pair graph has edge data and ``dgl.EID`` as blocks have.
        indices
            Edges by their ids in the source (``import --edge-ids``), or as (sources, destinations), **original ids**;
            by relation where there are several: ``{("user", "rates", "item"): ids}``. ``None``: all edges.
        negative_sampler
            DGL's ``Uniform(k)``, or k: other destinations for the source of each edge; or what ``negatives`` of
            `TieredLayout.link_loader` may be. A pure function of the seed, the epoch and the batch.
        features, batch_size, shuffle, device, memory, ...
            As of `TieredLayout.link_loader`.
        """
        require_library("DGL")
        from tiering.loader.dgl.batch import DglLinkAdapter
        from tiering.loader.dgl.inputs import find_edges, find_negatives

        graph, words = self.artifact.graph, adopt("dgl_link_loader", DGL_LINKS, options)
        words |= sampling_keywords(fanouts, replace, prob, words)
        links = find_edges(graph, indices)
        asked = LoaderOptions.of(features, words, links.options(find_negatives(negative_sampler)), "dgl_link_loader")
        adapter = partial(DglLinkAdapter, links=links, feature_name=feature_name, label_name=label_name)
        batches = AdaptedBatches(adapter, edge_names(graph, edge_attrs, return_edge_id), transform)
        return Loader(cast("TieredLayout", self), asked, batches)


def sampling_keywords(fanouts: Any, replace: bool, prob: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords of `SamplingOptions` that say how DGL draws neighbours: in every layer anew."""
    if isinstance(fanouts, (str, bytes)) or not isinstance(fanouts, Sequence) or not fanouts:
        raise InputError(f"fanouts: expected one entry per layer such as [10, 10], found {fanouts!r}")
    sampler = choose_sampler(options, replace, prob, "prob")
    return {"fanouts": list(reversed(fanouts)), "frontier": "all", "sampler": sampler}
