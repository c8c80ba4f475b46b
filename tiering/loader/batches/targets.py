"""Targets of batches: the nodes of a split, or links and negative pairs."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from tiering.errors import InputError
from tiering.formats.graph import Graph, checked_lists, checked_split
from tiering.loader.inputs import Ids, NodeIds, as_array, find_link_type, find_node_type
from tiering.loader.options import LinkOptions, SeedOptions
from tiering.sampling import EpochPlan, LinkPlan, Links, SamplingOptions, batches
from tiering.text.units import format_count

Plan = EpochPlan | LinkPlan  # the batches of an epoch


class NodeTargets:
    """Nodes of one type: those of a split, unless ids are given."""

    def __init__(self, graph: Graph, options: SeedOptions, sampling: SamplingOptions) -> None:
        self._options, self._sampling = options, sampling
        node_type, split = options.node_type, options.split
        if split is not None and not isinstance(split, str):
            raise InputError(
                f"split: expected its name, found {split!r}; neighbours per hop come second (fanouts=, num_neighbors=)"
            )
        if options.seeds is not None or split is None:
            node_type, what = find_node_type(graph, node_type, "seeds"), "seeds"
            self.ids = np.arange(graph.num_nodes(node_type)) if options.seeds is None else as_array(options.seeds)
        else:
            if node_type is None:
                owners = [known for known in graph.node_types if split in graph.splits(known)]
                node_type = owners[0] if len(owners) == 1 else None
            self.ids, what = checked_split(graph, split, node_type), f"split {split!r}"
        self.node_type: str = node_type or graph.node_types[0]
        if self.ids.size == 0:
            where = f"{graph.path.parent}: {what} of node type {self.node_type!r}"
            raise InputError(f"{where} is empty; there is nothing to load")

    def __len__(self) -> int:
        return len(self.ids)

    def plan(self, epoch: int, places: Ids | None = None) -> EpochPlan:
        """Return the batches of an epoch, or with `places` one batch of the seeds there."""
        options, sampling, seeds = self._options, self._sampling, {self.node_type: self.ids}
        if places is not None:
            ends = np.array([0, places.size])
            return EpochPlan(epoch, seeds, {self.node_type: places}, {self.node_type: ends})
        return batches(
            seeds, sampling.batch_size, epoch,
            seed=sampling.seed, drop_last=options.drop_last, shuffle=options.shuffle,
        )  # fmt: skip

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
            pairs = as_array(links.pairs)
            if pairs.ndim != 2 or pairs.shape[0] != 2 or pairs.dtype.kind not in "iu":
                raise InputError(
                    "links: expected whole numbers of shape (2, links), sources above destinations, found "
                    f"{pairs.dtype} of shape {pairs.shape}"
                )
            self.links = Links.of_ids(relation, pairs[0], pairs[1], num_nodes, ids_of)
        self._options, self._negatives, self._sampling = options, links.negatives, sampling

    def __len__(self) -> int:
        return self.links.count

    def plan(self, epoch: int, places: Ids | None = None) -> LinkPlan:
        """Return the batches of an epoch, or with `places` one batch of the links there."""
        options, size = self._options, self._sampling.batch_size if places is None else places.size
        return LinkPlan(
            self.links, size, epoch, seed=self._sampling.seed, negatives=self._negatives, order=places,
            drop_last=options.drop_last, shuffle=options.shuffle,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"{':'.join(self.links.relation)}: {format_count(len(self))} links"


Targets: TypeAlias = NodeTargets | LinkTargets  # the nodes or links that the batches of a loader are made for
