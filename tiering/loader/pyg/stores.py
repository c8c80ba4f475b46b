"""A layout as PyG's own loaders take it: a `FeatureStore`, a `GraphStore`, both for reading only, a `BaseSampler`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias, cast

import numpy as np
import torch
import torch_geometric.sampler as pyg
import xxhash
from torch_geometric.data import EdgeAttr, FeatureStore, GraphStore, TensorAttr
from torch_geometric.data.graph_store import EdgeLayout

from tiering.artifacts.manifest import Relation, relation_key
from tiering.errors import CapabilityError, InputError, MissingError
from tiering.formats.arrow import as_array
from tiering.formats.graph import Graph, checked_lists
from tiering.loader.adapters import EdgeAttributes, NodeAttributes
from tiering.loader.batches.windows import ListWindows
from tiering.loader.open_tables import OpenTables
from tiering.loader.options import DeviceOptions, ReadOptions
from tiering.loader.pyg.batch import PYG_NAMES, edge_label, new_by_hop
from tiering.loader.targets import EDGE_IDS, Ids, NodeIds, find_link_type, find_node_type, make_negatives
from tiering.memory import available_memory
from tiering.sampling import Links, NegativeDraws, Negatives, SamplingOptions, link_nodes, make_sampler
from tiering.sampling.links import numbers_of_links
from tiering.sampling.plan import whole_number

_HOST = DeviceOptions()
AnyOutput: TypeAlias = Any  # pyg.SamplerOutput, pyg.HeteroSamplerOutput: PyG has no types
CSC = EdgeLayout.CSC
_MASK = "_mask"
_PIECE = 1 << 22  # edges renumbered at a time


def homogeneous(graph: Graph, hetero: bool) -> bool:
    """Return whether PyG names neither the nodes' type nor the edges', which it always does with `hetero`."""
    return len(graph.node_types) == len(graph.relations) == 1 and not hetero


class EdgeValues(dict[str, torch.Tensor]):
    """A batch's edge data of one relation, by PyG's names; for PyG's loaders an index without a number of nodes."""

    def size(self, dim: int = 0) -> None:
        """Return ``None``, which leaves the number of nodes unset."""


class BatchNodes(torch.Tensor):
    """Ids of a batch's nodes, and `edges`, its edge data: PyG's loaders ask a store by nodes alone."""

    edges: EdgeValues


class BatchNodesByType(dict[Any, Any]):
    """Ids of a batch's nodes by type; `edges`, its edge data, are looked up by relation, but not listed."""

    edges: dict[Relation, EdgeValues]

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self.edges

    def __missing__(self, key: Any) -> EdgeValues:
        return self.edges[key]


class _OverLayout:
    """The common part of both stores: a layout, ids as the caller has them, nothing that is written."""

    def __init__(self, layout: OpenTables, ids: str, hetero: bool) -> None:
        super().__init__()
        self._layout, self._artifact, self._graph = layout, layout.artifact, layout.artifact.graph
        self._ids, self._alone = NodeIds(self._graph, ids), homogeneous(self._graph, hetero)

    def _refuse(self, *_: Any) -> bool:
        raise CapabilityError(
            f"{self._layout.artifact.path}: stores of a layout are read-only; change the dataset and make the "
            "layout again"
        )

    _put_tensor = _remove_tensor = _put_edge_index = _remove_edge_index = _refuse

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._layout.artifact.path}, ids: {self._ids.kind}>"


class TieredFeatureStore(_OverLayout, FeatureStore):  # type: ignore[misc] # PyG has no types
    """A layout's tensors of nodes, by node type: ``x`` from the tiers, ``y``, ``train_mask`` and the like, ``n_id``."""

    def __init__(self, layout: OpenTables, ids: str, masks: bool, reading: ReadOptions, hetero: bool = False) -> None:
        super().__init__(layout, ids, hetero)
        self._masks, self._reading = masks, reading
        # Loaded now, as the memory tiers are, which processes forked from this one share.
        self._attributes = {t: NodeAttributes(self._graph, t, None, masks) for t in self._graph.node_types}
        for node_type in self._artifact.feature_types:
            layout.open_table(node_type, reading, _HOST)

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """Return new attributes of all types and of relations: PyG's loaders write the index into them."""
        graph, alone = self._graph, self._alone
        names: list[tuple[Any, str]] = [(t, name) for t in graph.node_types for name in self._names(t)]
        names += [(r, name) for r in graph.relations for name in self._edge_names(r)]
        return [TensorAttr(None if alone else group, name) for group, name in names]

    def _edge_names(self, relation: Relation) -> list[str]:
        """Return PyG's names of a relation's edge data, whose values `pyg_sampler` sends along."""
        return [PYG_NAMES.get(name, name) for name in self._graph.edge_data(relation) if name != EDGE_IDS]

    def _get_tensor(self, attr: TensorAttr) -> torch.Tensor:
        return self._multi_get_tensor([attr])[0]

    def _multi_get_tensor(self, attrs: list[TensorAttr]) -> list[torch.Tensor]:
        """Look ids up once that several attributes of a type are requested."""
        known: dict[tuple[str, int], Ids] = {}
        tensors: list[Any] = []
        for attr in attrs:
            relation = self._graph.relations[0] if self._alone else attr.group_name
            if isinstance(relation, tuple) and attr.attr_name in self._edge_names(relation):
                values = attr.index if isinstance(attr.index, EdgeValues) else getattr(attr.index, "edges", {})
                tensors.append(values.get(attr.attr_name))  # None, which PyG leaves out, for samplers of others
                continue
            node_type = self._type(attr)
            key = (node_type, id(attr.index))
            if key not in known:
                known[key] = self._ranks(node_type, attr.index)
            rows = self._rows(node_type, attr.attr_name, known[key])
            tensors.append(rows[0] if isinstance(attr.index, (int, np.integer)) else rows)
        return tensors

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        try:
            graph, node_type = self._graph, self._type(attr)
        except MissingError:
            return None
        if attr.index is not None:
            return tuple(self._get_tensor(attr).shape)
        if attr.attr_name == "n_id":
            return (graph.num_nodes(node_type),)
        rows = self._rows(node_type, attr.attr_name, np.empty(0, np.int64))
        return graph.num_nodes(node_type), *rows.shape[1:]

    def _names(self, node_type: str) -> list[str]:
        graph, names = self._graph, ["x"] if node_type in self._artifact.feature_types else []
        names += ["y"] if graph.num_classes(node_type) is not None else []
        return [*names, *(mask + _MASK for mask in self._attributes[node_type].masks), "n_id"]

    def _type(self, attr: TensorAttr) -> str:
        """Return the node type that is named, or the only one; `MissingError` if there is none with such a tensor."""
        types = self._graph.node_types
        node_type = types[0] if attr.group_name is None and len(types) == 1 else str(attr.group_name)
        if attr.attr_name not in (names := self._names(node_type)):
            what = f"{self._artifact.path}: node type {node_type!r}"
            raise MissingError(f"{what} has no tensor {attr.attr_name!r}; tensors: {', '.join(names)}")
        return node_type

    def _ranks(self, node_type: str, index: Any) -> Ids:
        index = slice(None) if index is None else index
        if isinstance(index, slice):
            index = np.arange(*index.indices(self._graph.num_nodes(node_type)))
        elif isinstance(index, (int, np.integer)):
            index = [index]
        return self._ids.ranks(node_type, index, f"index of {node_type!r}")

    def _rows(self, node_type: str, name: str, ranks: Ids) -> torch.Tensor:
        attributes, nodes = self._attributes[node_type], torch.from_numpy(ranks)
        if name == "x":
            return attributes.features(self._layout.open_table(node_type, self._reading, _HOST).gather(ranks))
        if name == "n_id":
            return torch.from_numpy(self._ids.from_ranks(node_type, ranks))
        if name != "y":
            return attributes.splits(nodes)[name.removesuffix(_MASK)]
        labels = attributes.labels(nodes)
        assert labels is not None
        return labels

    def __reduce__(self) -> tuple[Any, ...]:
        return TieredFeatureStore, (self._layout, self._ids.kind, self._masks, self._reading, not self._alone)


class TieredGraphStore(_OverLayout, GraphStore):  # type: ignore[misc] # PyG has no types
    """A layout's relations in PyG's CSC: ``(row, colptr)``, int64; by ``original`` ids each request renumbers.

    Where the import kept ids of edges also as COO in the order of the source, which takes 32 bytes of memory per edge.
    """

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """Return new attributes of all relations, with the numbers of nodes of their types."""
        graph, alone = self._graph, self._alone
        return [
            EdgeAttr(None if alone else r, layout, layout == CSC, (graph.num_nodes(r[0]), graph.num_nodes(r[2])))
            for r in graph.relations
            for layout in self._layouts(r)
        ]

    def _layouts(self, relation: Relation) -> list[EdgeLayout]:
        """Return the forms of a relation: the order of the source (COO) needs the ids of its edges."""
        kept = self._ids.kind == "original" and EDGE_IDS in self._graph.edge_data(relation)
        return [CSC, EdgeLayout.COO] if kept else [CSC]

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[torch.Tensor, torch.Tensor]:
        edge_type = edge_attr.edge_type
        relation = self._graph.relation(None if edge_type is None else tuple(edge_type))
        if edge_attr.layout not in self._layouts(relation):
            layout = edge_attr.layout.value
            raise InputError(
                f"{relation_key(relation)}: adjacency is stored as csc, found a request for {layout}; "
                f"graph_store.{layout}() converts it"
            )
        indptr, indices = checked_lists(self._graph, relation)
        if edge_attr.layout == EdgeLayout.COO:
            order = np.argsort(self._graph.edge_data(relation)[EDGE_IDS], kind="stable")
            row = self._ids.from_ranks(relation[0], indices[order].astype(np.int64))
            col = self._ids.from_ranks(relation[2], np.searchsorted(indptr, order, side="right") - 1)
            return torch.from_numpy(row), torch.from_numpy(col)
        if self._ids.kind == "rank":
            return torch.from_numpy(indices.astype(np.int64)), torch.from_numpy(indptr.copy())
        return self._renumbered(relation, indptr, indices)

    def _renumbered(self, relation: Relation, indptr: Ids, indices: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the adjacency in original ids: the same lists, in the order of their destinations' original ids."""
        ranks = self._ids.ranks(relation[2], np.arange(indptr.size - 1), "destinations")
        first, counts = indptr[ranks], np.diff(indptr)[ranks]
        colptr = np.concatenate(([0], np.cumsum(counts)))
        row = np.empty(indices.size, np.int64)
        begin = 0
        while begin < counts.size:  # as many lists at a time as have so many edges, but one at least
            end = max(begin + 1, int(np.searchsorted(colptr, colptr[begin] + _PIECE, side="right")) - 1)
            shift = np.repeat(first[begin:end] - colptr[begin:end], counts[begin:end])
            sources = indices[np.arange(colptr[begin], colptr[end]) + shift]
            row[colptr[begin] : colptr[end]] = self._ids.from_ranks(relation[0], sources.astype(np.int64))
            begin = end
        return torch.from_numpy(row), torch.from_numpy(colptr)

    def __reduce__(self) -> tuple[Any, ...]:
        return TieredGraphStore, (self._layout, self._ids.kind, not self._alone)


class _Bidirectional:
    """An output whose edge data, which then belong to other edges, go where PyG makes it bidirectional."""

    def to_bidirectional(self, *arguments: Any, **keywords: Any) -> Any:
        out = super().to_bidirectional(*arguments, **keywords)  # type: ignore[misc]
        out.node = dict(out.node) if isinstance(out.node, dict) else out.node.as_subclass(torch.Tensor)
        return out


class _Output(_Bidirectional, pyg.SamplerOutput): ...  # type: ignore[misc] # PyG has no types


class _HeteroOutput(_Bidirectional, pyg.HeteroSamplerOutput): ...  # type: ignore[misc]


class TieredSampler(pyg.BaseSampler):  # type: ignore[misc] # PyG has no types
    """A neighbor sampler for PyG's `NodeLoader` and `LinkLoader`; frontier ``new``, as PyG's.

    A batch is a pure function of the layout, the seed, the epoch and the original ids of its seeds or links.
    """

    def __init__(
        self,
        layout: OpenTables,
        options: SamplingOptions,
        ids: str,
        edge_names: tuple[str, ...],
        hetero: bool,
        epoch: torch.Tensor | None = None,
    ) -> None:
        self._layout, self._options = layout, options
        self._graph = graph = layout.artifact.graph
        self._ids = NodeIds(graph, ids)
        self._sampler = make_sampler(graph, options)
        self._windows = ListWindows.find(self._sampler, available_memory())  # of one batch, as PyG asks for one
        zero = torch.zeros((), dtype=torch.int64)
        # In memory that torch shares with other processes: workers that live on see it change.
        self._epoch: torch.Tensor = (zero if epoch is None else epoch).share_memory_()  # type: ignore[no-untyped-call]
        self._edges = {r: EdgeAttributes(graph, r, None, edge_names) for r in graph.relations}
        self._edge_names, self._alone = edge_names, homogeneous(graph, hetero)
        self._positions = ids == "rank" or bool(edge_names)
        self._draws: tuple[Any, Relation, NegativeDraws] | None = None

    @property
    def epoch(self) -> int:
        """Epoch in the key of the random numbers; 0 until `set_epoch`."""
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch in all workers, before it begins; the same seeds have other neighbors in another epoch."""
        self._epoch.fill_(whole_number(epoch, 0, 2**63, "epoch", ", 0 or more"))

    def sample_from_nodes(self, index: pyg.NodeSamplerInput, **kwargs: Any) -> AnyOutput:
        """Sample around nodes. Unless batches are disjoint a node that comes twice counts once, where it came first."""
        node_type = find_node_type(self._graph, index.input_type, "input nodes")
        seeds = self._ids.ranks(node_type, index.node, "input nodes")
        input_id, given = index.input_id, None if index.time is None else {node_type: as_array(index.time)}
        times = self._sampler.seed_times({node_type: seeds}, given)
        firsts = np.unique(seeds, return_index=True)[1]
        if input_id is not None and firsts.size != seeds.size and not self._options.disjoint:
            input_id = input_id[torch.from_numpy(np.sort(firsts))]
        key = _key(self._ids.originals(node_type, seeds), *times.values())
        return self._output({node_type: seeds}, key, (input_id, _tensor(times.get(node_type))), times or None)

    def sample_from_edges(
        self, index: pyg.EdgeSamplerInput, neg_sampling: pyg.NegativeSampling | None = None
    ) -> AnyOutput:
        """Sample around the ends of links and of negative pairs."""
        relation = find_link_type(self._graph, index.input_type, edges=False)
        src = self._ids.ranks(relation[0], index.row, "links: sources")
        dst = self._ids.ranks(relation[2], index.col, "links: destinations")
        draws = self._negative_draws(neg_sampling, relation)
        if draws is not None and draws.negatives.triplets and index.label is not None:
            raise InputError("edge_label: triplets have no labels; omit edge_label, or sample negatives in mode binary")
        links = Links.of_ids(relation, src, dst, self._num_nodes(relation), self._ids.to_ranks)
        links.time = self._sampler.link_times(index.time, links.count)
        originals = self._ids.originals(relation[0], src), self._ids.originals(relation[2], dst)
        key = _key(*originals, *([] if links.time is None else [links.time]))
        word = self._options.seed, self.epoch, key
        linked = link_nodes(links, np.arange(links.count), draws, word, self._options.disjoint)
        ends = torch.from_numpy(linked.src), torch.from_numpy(linked.dst)
        if linked.dst_negative is not None:
            negative = torch.from_numpy(linked.dst_negative).squeeze(-1)
            about: tuple[Any, ...] = (index.input_id, *ends, negative, _tensor(linked.time))
        else:
            label = edge_label(index.label, links.count, linked.src.size - links.count)
            about = (index.input_id, torch.stack(ends), label, _tensor(linked.time))
        return self._output(linked.nodes, key, about, linked.seed_time, linked.end_links)

    def _output(
        self, seeds: dict[str, Ids], key: int, metadata: tuple[Any, ...], times: dict[str, Any] | None = None,
        end_links: dict[str, Ids] | None = None,
    ) -> AnyOutput:  # fmt: skip
        """Sample and return PyG's output: edges of all hops one after the other."""
        which: dict[str, Any] = {"epoch": self.epoch, "batch": key, "positions": self._positions}
        sampled = (
            self._sampler.sample(seeds, seed_time=times, **which) if self._windows is None
            else self._windows.sample(self._sampler, [(seeds, times)], [which.pop("batch")], 1, **which)[0][0]
        )  # fmt: skip
        batch = {t: _tensor(number) for t, number in numbers_of_links(sampled.instances, end_links).items()} or None
        node = BatchNodesByType()
        node.update({t: torch.from_numpy(self._ids.from_ranks(t, ranks)) for t, ranks in sampled.nodes.items()})
        node.edges, row, col, edge, edges_by_hop = {}, {}, {}, {}, {}
        for relation in self._sampler.edge_relations:
            hops = [hop[relation] for hop in sampled.hops]
            row[relation] = torch.from_numpy(np.concatenate([edges.src for edges in hops]).astype(np.int64))
            col[relation] = torch.from_numpy(np.concatenate([edges.dst for edges in hops]).astype(np.int64))
            edge[relation], node.edges[relation] = self._edge_values(relation, [edges.positions for edges in hops])
            edges_by_hop[relation] = [len(edges) for edges in hops]
        counts = new_by_hop(sampled.num_nodes), edges_by_hop
        parts = (row, col, edge, batch, *(counts if sampled.subgraph_type == "directional" else (None, None)))
        if not self._alone:
            return _HeteroOutput(node, *parts, metadata=metadata)
        (nodes,), (values,) = node.values(), node.edges.values()
        (nodes := nodes.as_subclass(BatchNodes)).edges = values
        only = [None if part is None else next(iter(part.values())) for part in parts]
        return _Output(nodes, *only, metadata=metadata)

    def _edge_values(self, relation: Relation, positions: list[Any]) -> tuple[torch.Tensor | None, EdgeValues]:
        """Return edge ids and data. Ids are positions in the source, ``None`` if not kept; ranks': in ``indices``."""
        if not self._positions or positions[0] is None:
            return None, EdgeValues()
        places = torch.from_numpy(np.concatenate(positions))
        values = self._edges[relation](places)
        ids = values.pop(EDGE_IDS, None)
        named = EdgeValues({PYG_NAMES.get(name, name): data for name, data in values.items()})
        return places if self._ids.kind == "rank" else ids, named

    def _negative_draws(self, sampling: Any, relation: Relation) -> NegativeDraws | None:
        """Return the sampler of negatives, made once for a loader, whose batches all bring the same request."""
        if sampling is None:
            return None
        if self._draws is None or self._draws[0] is not sampling or self._draws[1] != relation:
            negatives = cast(Negatives, make_negatives(sampling))
            src = self._by_original(relation[0], negatives.src_weight)
            dst = self._by_original(relation[2], negatives.dst_weight)
            negatives = replace(negatives, src_weight=src, dst_weight=dst)
            times = self._ids.end_times(relation) if self._options.time else (None, None)
            self._draws = sampling, relation, NegativeDraws(negatives, self._num_nodes(relation), times)
        return self._draws[2]

    def _by_original(self, node_type: str, weight: Any) -> Any:
        """Return weights by original ids; weights of the wrong shape are refused by `NegativeDraws`."""
        count = self._graph.num_nodes(node_type)
        if weight is None or self._ids.kind == "original" or weight.shape != (count,):
            return weight
        return weight[self._ids.to_ranks(node_type, np.arange(count))]

    def _num_nodes(self, relation: Relation) -> tuple[int, int]:
        return self._graph.num_nodes(relation[0]), self._graph.num_nodes(relation[2])

    def __reduce__(self) -> tuple[Any, ...]:
        more = self._edge_names, not self._alone, self._epoch
        return TieredSampler, (self._layout, self._options, self._ids.kind, *more)

    def __repr__(self) -> str:
        fanouts = list(self._options.fanouts)
        return f"<TieredSampler {self._layout.artifact.path}, fanouts: {fanouts}, ids: {self._ids.kind}>"


def _key(*words: Any) -> int:
    """Return a hash of the ids and times of a batch, its number in the key of random numbers."""
    return xxhash.xxh3_64_intdigest(np.concatenate([part.view("<i8") for part in words]).tobytes())


def _tensor(array: Any) -> torch.Tensor | None:
    return None if array is None else torch.from_numpy(array)
