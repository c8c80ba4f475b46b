"""Targets of batches: the nodes of a split, or links and negative pairs, and the names that callers have for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import Relation, named_relations
from tiering.errors import InputError
from tiering.formats.arrow import as_array
from tiering.formats.graph import Graph, checked_lists, checked_range, checked_split
from tiering.loader.options import LinkOptions, SeedOptions
from tiering.sampling import EpochPlan, LinkPlan, Links, NegativeDraws, Negatives, Sampler, SamplingOptions, batches
from tiering.sampling.plan import id_array
from tiering.text.units import format_count

Ids = npt.NDArray[np.int64]
EDGE_IDS = "edge_ids"  # edge data with each edge's position in the source, which `import --edge-ids` keeps
_MEANING = {"original": "original ids", "rank": "ranks"}
SEED_IDS = ("rank", "original", "name")
Plan = EpochPlan | LinkPlan  # the batches of an epoch


class NodeIds:
    """A caller's ids of nodes: ids of the source (``original``), or ranks (``rank``)."""

    def __init__(self, graph: Graph, kind: str = "original") -> None:
        if kind not in _MEANING:
            raise InputError(f"ids: expected original (ids of the source) or rank, found {kind!r}")
        self.kind = kind
        """``original`` or ``rank``."""
        self._graph, self._ordered = graph, graph.order is not None

    def ranks(self, node_type: str, nodes: Any, what: str) -> Ids:
        """Return the ranks of nodes given by ids, or by a mask over these: torch, NumPy, Arrow or lists."""
        array, count = as_array(nodes, what), self._graph.num_nodes(node_type)
        if array.dtype == np.bool_:
            if array.shape != (count,):
                raise InputError(f"{what}: expected a mask of shape ({count},), one per node, found {array.shape}")
            array = np.flatnonzero(array)
        ids = id_array(array, what, count, f"{_MEANING[self.kind]} of {node_type!r}")
        return self.to_ranks(node_type, ids) if self.kind == "original" else ids

    def from_ranks(self, node_type: str, ranks: Ids) -> Ids:
        """Return the caller's ids of ranks."""
        return self.originals(node_type, ranks) if self.kind == "original" else ranks

    def to_ranks(self, node_type: str, originals: Ids) -> Ids:
        """Return the ranks of ids of the source, which are not checked."""
        return self._mapped("old_to_new", node_type, originals)

    def originals(self, node_type: str, ranks: Ids) -> Ids:
        """Return the ids of the source of ranks, which are not checked."""
        return self._mapped("new_to_old", node_type, ranks)

    def end_times(self, relation: Relation) -> tuple[Any, Any]:
        """Return the times of the nodes of a relation's ends by id of the source; ``None`` for types without."""
        times = [(t, self._graph.node_times(t)) for t in relation[::2]]
        src, dst = (of if of is None else of[self.to_ranks(t, np.arange(of.size))] for t, of in times)
        return src, dst

    def _mapped(self, name: str, node_type: str, ids: Ids) -> Ids:
        """Return the entries of a map of the graph's order; `FormatError` if one is no node."""
        if not self._ordered:
            return ids
        nodes = getattr(self._graph, name)(node_type)[ids].astype(np.int64)
        return checked_range(nodes, self._graph.num_nodes(node_type), self._graph, f"{name} of node type {node_type!r}")


def find_node_type(graph: Graph, node_type: str | None, what: str) -> str:
    """Return the node type named, or the only one."""
    types = graph.node_types
    if node_type is None and len(types) != 1:
        raise InputError(f"{what}: the type is missing; give it as (type, ids) or node_type; types: {', '.join(types)}")
    return types[0] if node_type is None else node_type


def find_nodes(graph: Graph, nodes: Any, node_type: str | None, what: str) -> tuple[str, Ids, Ids | None]:
    """Return type, ranks and ``input_id`` of seeds: original ids, a mask over them, a type, or type and ids.

    ``None``: all nodes, in the order of the source. ``input_id``: the ids that a mask chooses, else ``None``.
    """
    if isinstance(nodes, Mapping):
        if len(nodes) != 1:
            types = ", ".join(graph.node_types)
            raise InputError(f"{what}: expected ids of one type, as {{type: ids}}, found {len(nodes)}; types: {types}")
        ((node_type, nodes),) = nodes.items()
    elif isinstance(nodes, (tuple, list)) and len(nodes) == 2 and isinstance(nodes[0], str):
        node_type, nodes = nodes
    elif isinstance(nodes, str):
        node_type, nodes = nodes, None
    node_type = find_node_type(graph, node_type, what)
    ids = np.arange(graph.num_nodes(node_type)) if nodes is None else as_array(nodes, what)
    return node_type, NodeIds(graph).ranks(node_type, ids, what), np.flatnonzero(ids) if ids.dtype == np.bool_ else None


def find_link_type(graph: Graph, named: Any, edges: bool) -> Relation:
    """Return the relation of links; if not the graph's own `edges`, any of its types, by default called ``to``."""
    types = tuple(named) if isinstance(named, (tuple, list)) else ()
    other = len(types) in (2, 3) and not edges and not named_relations(graph.relations, types)
    if other and {types[0], types[-1]} <= set(graph.node_types):
        return types[0], types[1] if len(types) == 3 else "to", types[-1]
    return graph.relation(named)


def find_links(graph: Graph, links: Any, what: str = "edge_label_index") -> LinkOptions:
    """Return PyG's ``edge_label_index``: links between original ids, or all edges in the order of the source.

    A relation, (relation, pairs) or pairs; ``None``: all edges of the only relation.
    """
    relation = None
    if isinstance(links, str) or (isinstance(links, Sequence) and all(isinstance(part, str) for part in links)):
        relation, links = links, None
    elif isinstance(links, Sequence) and len(links) == 2 and isinstance(links[0], (str, tuple)):
        relation, links = links
    relation = find_link_type(graph, relation, edges=links is None)
    if links is not None:
        ends = zip(relation[::2], links, ("sources", "destinations"), strict=True)
        return LinkOptions(relation, np.stack([NodeIds(graph).ranks(t, ids, f"{what}: {end}") for t, ids, end in ends]))
    if (ids := graph.edge_data(relation).get(EDGE_IDS)) is None:
        return LinkOptions(relation)
    order = np.argsort(ids, kind="stable")
    places = ids[order]
    input_id = None if np.array_equal(places, np.arange(places.size)) else places
    return LinkOptions(relation, order=order, input_id=input_id)


def find_edges(graph: Graph, indices: Any) -> LinkOptions:
    """Return DGL's ``indices``: ids in the source, (sources, destinations), ``{relation: one of these}``, all."""
    by_relation = indices if isinstance(indices, Mapping) else {None: indices}
    if len(by_relation) != 1:
        raise InputError(
            f"indices: expected edges of one relation, as {{relation: ids}}, found {len(by_relation)}; make a "
            "loader for each"
        )
    ((relation, edges),) = by_relation.items()
    if isinstance(edges, tuple) or getattr(edges, "ndim", 1) == 2:
        if len(edges) != 2 or np.shape(edges[0]) != np.shape(edges[1]):
            raise InputError("indices: expected edge ids, or (sources, destinations) of equal length")
        return find_links(graph, (graph.relation(None) if relation is None else relation, tuple(edges)), "indices")
    links = find_links(graph, graph.relation(relation))
    if edges is None:
        return links
    label, ids = ":".join(links.relation), id_array(as_array(edges, "indices"), "indices", meaning="edge ids")
    if links.order is None:
        raise InputError(
            f"indices: ids of edges of {label} were not kept; import with --edge-ids, or pass the edges as "
            "(sources, destinations), original ids"
        )
    known = np.arange(links.order.size) if links.input_id is None else links.input_id  # rising
    places = np.searchsorted(known, ids)
    if (wrong := np.flatnonzero(np.append(known, -1)[places] != ids)).size:
        raise InputError(f"indices: entry {wrong[0]} is {ids[wrong[0]]}, not an edge id of {label} of {graph.path}")
    return replace(links, order=links.order[places], input_id=ids)


def link_labels(links: LinkOptions, labels: Any) -> Any:
    """Return ``edge_label`` as a tensor by link; with negatives, classes from 0 on become 1 and more, as in PyG."""
    import torch

    if labels is None:
        return None
    if links.pairs is None and links.order is None:
        raise InputError("edge_label: needs the links that it labels: give edge_label_index, or import with --edge-ids")
    if links.negatives is not None and links.negatives.triplets:
        raise InputError("edge_label: triplets have no labels; omit edge_label, or sample negatives in mode binary")
    label, places = torch.as_tensor(labels), links.input_id
    count = (links.pairs[0] if links.order is None else links.order).size
    if len(label) != count if places is None else not 0 <= places.min() <= places.max() < len(label):
        ids = "" if places is None else f" with the edge ids {places.min()} .. {places.max()}"
        raise InputError(f"edge_label: expected one label for each of {count} links{ids}, found {len(label)}")
    label = label if places is None else label[torch.from_numpy(places)]
    return label + 1 if links.negatives is not None and label.min() == 0 else label


def make_negatives(sampling: Any) -> Negatives | None:
    """Return the negatives of PyG's ``NegativeSampling``, or what `Negatives.of` takes."""
    if isinstance(sampling, Negatives) or not hasattr(sampling, "src_weight"):
        return Negatives.of(sampling)
    weights = [None if weight is None else np.asarray(weight) for weight in (sampling.src_weight, sampling.dst_weight)]
    return Negatives(sampling.mode.value, float(sampling.amount), *weights)


def find_seeds(graph: Graph, node_type: str, options: SeedOptions) -> Ids:
    """Return the ranks of ``options.seeds``, which are ids or names as ``options.seed_ids`` says, or a mask."""
    if options.seed_ids not in SEED_IDS:
        raise InputError(f"seed_ids: expected {', '.join(SEED_IDS)}, found {options.seed_ids!r}")
    seeds, own = as_array(options.seeds, "seeds"), options.seed_ids == "name"
    if own and seeds.dtype != np.bool_ and (names := graph.names(node_type)) is not None:
        return names.find(seeds.tolist())
    return NodeIds(graph, "original" if own else options.seed_ids).ranks(node_type, seeds, "seeds")


class NodeTargets:
    """Nodes of one type: a split's nodes, unless ids are given."""

    def __init__(self, graph: Graph, options: SeedOptions, sampling: SamplingOptions) -> None:
        self._options, self._sampling = options, sampling
        node_type, split = options.node_type, options.split
        if any(hasattr(split, name) for name in ("edge_index", "edge_types", "etypes")):
            found = f"found a graph ({type(split).__name__})"
            raise InputError(f"split: expected the name of a split, {found}; the graph is in the layout: omit it")
        if split is not None and not isinstance(split, str):
            raise InputError(
                f"split: expected the name of a split, found {split!r}; give neighbors per hop second (fanouts=, "
                "num_neighbors=)"
            )
        if options.seeds is not None or split is None:
            node_type, what = find_node_type(graph, node_type, "seeds"), "seeds"
            every = options.seeds is None
            self.ids = np.arange(graph.num_nodes(node_type)) if every else find_seeds(graph, node_type, options)
        else:
            if node_type is None:
                owners = [known for known in graph.node_types if split in graph.splits(known)]
                node_type = owners[0] if len(owners) == 1 else None
            self.ids, what = checked_split(graph, split, node_type), f"split {split!r}"
        self.node_type: str = node_type or graph.node_types[0]
        self.seed_time = options.seed_time
        """Times of the seeds as they were given; replaced by exact ones, once the sampler has checked them."""
        if self.ids.size == 0:
            where = f"{graph.path.parent}: {what} of node type {self.node_type!r}"
            raise InputError(f"{where} is empty; there is nothing to load")

    def __len__(self) -> int:
        return len(self.ids)

    def plan(self, epoch: int, places: Ids | None = None) -> EpochPlan:
        """Return the batches of an epoch, or with `places` one batch of the seeds there."""
        options, sampling, seeds = self._options, self._sampling, {self.node_type: self.ids}
        times = {} if self.seed_time is None else {self.node_type: self.seed_time}
        if places is not None:
            ends = np.array([0, places.size])
            return EpochPlan(epoch, seeds, {self.node_type: places}, {self.node_type: ends}, times)
        return batches(
            seeds, sampling.batch_size, epoch,
            seed=sampling.seed, drop_last=options.drop_last, shuffle=options.shuffle, seed_time=times,
            world_size=options.world_size or 1,
        )  # fmt: skip

    def check_times(self, sampler: Sampler) -> None:
        """Make the times exact in the dtype and unit of the graph's; `InputError` if one is missing or does not fit."""
        times = None if self.seed_time is None else {self.node_type: self.seed_time}
        exact = sampler.seed_times({self.node_type: self.ids}, times)
        self.seed_time = None if times is None else exact[self.node_type]

    def __repr__(self) -> str:
        return f"{self.node_type!r}: {format_count(len(self))} seeds"


class LinkTargets:
    """Links of one relation: all of its edges, unless pairs are given."""

    def __init__(self, graph: Graph, options: SeedOptions, sampling: SamplingOptions, links: LinkOptions) -> None:
        relation = find_link_type(graph, links.relation, edges=links.pairs is None)
        self.node_type = relation[2]
        num_nodes = graph.num_nodes(relation[0]), graph.num_nodes(relation[2])
        ids_of = NodeIds(graph).to_ranks
        if links.pairs is None:
            self.links = Links.of_csc(relation, *checked_lists(graph, relation), num_nodes[0], ids_of, links.order)
        else:
            pairs = as_array(links.pairs, "links")
            if pairs.ndim != 2 or pairs.shape[0] != 2 or pairs.dtype.kind not in "iu":
                raise InputError(
                    "links: expected whole numbers of shape (2, links), sources above destinations, found "
                    f"{pairs.dtype} of shape {pairs.shape}"
                )
            self.links = Links.of_ids(relation, pairs[0], pairs[1], num_nodes, ids_of)
        self._options, self._sampling, self._graph = options, sampling, graph
        self._negatives: Negatives | NegativeDraws | None = links.negatives
        self.links.time = links.time

    def check_times(self, sampler: Sampler) -> None:
        """Make the links' times exact, and sample negatives among nodes that exist; `InputError` for bad times."""
        links = self.links
        if self._options.seed_time is not None:
            raise InputError("seed_time: has no effect on links; give their times as link_time")
        links.time = sampler.link_times(links.time, links.count)
        if links.time is not None and isinstance(self._negatives, Negatives):
            times = NodeIds(self._graph).end_times(links.relation)
            self._negatives = NegativeDraws(self._negatives, links.num_nodes, times)

    def __len__(self) -> int:
        return self.links.count

    def plan(self, epoch: int, places: Ids | None = None) -> LinkPlan:
        """Return the batches of an epoch, or with `places` one batch of the links there."""
        options, sampling = self._options, self._sampling
        size, world_size = (sampling.batch_size, options.world_size or 1) if places is None else (places.size, 1)
        return LinkPlan(
            self.links, size, epoch, seed=sampling.seed, negatives=self._negatives, order=places,
            disjoint=sampling.disjoint, drop_last=options.drop_last, shuffle=options.shuffle, world_size=world_size,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"{':'.join(self.links.relation)}: {format_count(len(self))} links"


Targets: TypeAlias = NodeTargets | LinkTargets  # the nodes or links that the batches of a loader are made for
