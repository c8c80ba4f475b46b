"""Which part of a GPU's memory adjacency lists get: from the artifacts to `tiering.placement.plan_split` and back."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tiering.artifacts.manifest import Relation, relation_key
from tiering.errors import InputError
from tiering.formats.adjacency_prefix import ListBytes
from tiering.formats.features import FeatureTable
from tiering.formats.graph import Graph
from tiering.formats.order import Order
from tiering.formats.refusals import of_ranks
from tiering.formats.scores import Scores
from tiering.memory import Budget
from tiering.placement import (
    AccessTimes,
    Beyond,
    Capacities,
    Lists,
    Split,
    Table,
    gpu_budget,
    parse_split,
    plan_split,
    read_access_times,
    split_memory,
)
from tiering.sampling import list_read_places, resolve_fanouts
from tiering.units import Size, format_count

COMPARED = 1000
"""Ranks of each type whose scores are compared."""


@dataclass(frozen=True)
class SplitRequest:
    """A split that was asked for."""

    mode: Size
    """``auto``, or a share."""
    times: AccessTimes
    """What accesses cost."""

    def options(self) -> dict[str, Any]:
        """As recorded: the figures themselves, so that another file of the same name is noticed."""
        return {"split": self.mode.text, "gpu_times": self.times.to_json()}


def parse_request(split: str | int | None, gpu_times: str | os.PathLike[str] | None) -> SplitRequest | None:
    """The split that was asked for; ``None`` for none.

    Raises
    ------
    MissingError
        If there is no file `gpu_times`.
    InputError
        If `split` is none of those that `tiering.placement.parse_split` knows, or `gpu_times` holds no times
        (`tiering.placement.read_access_times`) or is given without a split.
    """
    mode = parse_split(split)
    if mode is not None:
        return SplitRequest(mode, AccessTimes() if gpu_times is None else read_access_times(gpu_times))
    if gpu_times is not None:
        raise InputError("gpu times: matter only where memory is split; give --split auto too, or leave them out")
    return None


def split_gpu(
    graph: Graph,
    tables: Mapping[str, FeatureTable],
    capacities: Capacities,
    request: SplitRequest | None,
    scores: Scores | None,
    budget: Budget,
    images: int,
) -> tuple[Split | None, Capacities]:
    """Divide the memory of a GPU between feature rows and adjacency lists of a reordered graph.

    Parameters
    ----------
    capacities
        Sizes as given; that of the gpu tier is divided.
    request
        ``None``: nothing is divided.
    scores
        Those that the graph was ordered by.
    images
        SSDs of the ssd tier; 0 without one.

    Returns
    -------
    Split
        What lies there; ``None`` without a split.
    Capacities
        Sizes of the tiers of feature rows: the gpu tier has what the lists leave.

    Raises
    ------
    InputError
        If the scores are not those the graph was ordered by, or say nothing about adjacency; if there are none for a
        split, or some without one; if there is no memory to split, or more than all there is to hold.
    BudgetError
        If planning takes more memory than there is.

    Notes
    -----
    Cost: one pass over the order, its scores and ``indptr``; reads of lists are looked up at random, slow where they do
    not fit the page cache. Memory: `split_need`.
    """
    if request is None or scores is None:
        _refuse_half(request, scores)
        return None, capacities
    check_ordered_by(graph, scores)
    lists = adjacency_lists(graph, scores)
    order = order_of(graph)
    rows = [Table(name, table.rows, table.row_bytes, order.score(name)) for name, table in tables.items()]
    total = gpu_budget(capacities.gpu, rows, lists)
    columns = sum(each.columns for each in lists)
    budget.require(split_need(graph, tables), f"split: places of {format_count(columns)} adjacency lists")
    features = sum(table.rows * table.row_bytes for table in rows)
    beyond = Beyond.of(capacities, features, images)
    found = plan_split(request.mode, total, rows, lists, request.times, beyond)
    return found, replace(capacities, gpu=found.gpu)


def _refuse_half(request: SplitRequest | None, scores: Scores | None) -> None:
    """Refuse a split without scores, and scores without a split."""
    if scores is not None:
        raise InputError("scores: matter only where memory is split; give --split auto too, or leave them out")
    if request is not None:
        raise InputError(
            f"split: {request.mode.text} needs the scores that the graph was ordered by, for the reads of adjacency "
            "lists; give them with --scores S"
        )


def split_need(graph: Graph, tables: Mapping[str, FeatureTable]) -> int:
    """Bytes of memory that planning a split takes; see `tiering.placement.split_memory`."""
    columns = sum(graph.num_nodes(relation[2]) for relation in graph.relations)
    return split_memory(sum(table.rows for table in tables.values()), columns)


def order_of(graph: Graph) -> Order:
    """The order of a reordered graph; others are refused."""
    if graph.order is None:
        raise InputError(
            f"{graph.path}: expected a reordered graph; run `tiering reorder {graph.path} --scores S --out R` first"
        )
    return graph.order


def check_ordered_by(graph: Graph, scores: Scores) -> None:
    """Refuse scores other than those that gave a graph its order: its scores and theirs are to be on one scale.

    Raises
    ------
    InputError
        If they are of another graph, or one of the first `COMPARED` ranks of a type has another score.
    """
    order = order_of(graph)
    remedy = "give the scores that `tiering reorder` was given"
    if scores.graph_digest != order.manifest.body["graph_digest"]:
        raise InputError(f"{scores.path}: of another graph than the one that {graph.path} was made from; {remedy}")
    for node_type in order.node_types:
        ranked = order.score(node_type)[:COMPARED]
        own = of_ranks(scores.values(node_type), graph, node_type, 0, COMPARED)
        if (wrong := np.flatnonzero(ranked != own)).size:
            rank = int(wrong[0])
            raise InputError(
                f"{graph.path}: ordered by other scores than {scores.path}: {node_type} of rank {rank} has "
                f"{float(ranked[rank])!r} in the order and {float(own[rank])!r} in the scores; {remedy}"
            )


def adjacency_lists(graph: Graph, scores: Scores) -> list[Lists]:
    """Lists of every relation, in ranks, with their reads.

    Raises
    ------
    InputError
        If the scores' method predicts no reads of adjacency, or they record no fanouts.
    """
    sampling = scores.manifest.provenance.get("options", {}).get("sampling", {})
    if graph.relations and not (scores.relations and "fanouts" in sampling and "sampler" in sampling):
        raise InputError(
            f"{scores.path}: {scores.method} says nothing about reads of adjacency lists; score by the sampler, as by "
            "`tiering score G --method hybrid --fanouts 10,10 --out S`, and reorder by these scores"
        )
    if not graph.relations:
        return []
    found = []
    hops = resolve_fanouts(graph.relations, sampling["fanouts"])
    for index, relation in enumerate(graph.relations):
        indptr, _ = graph.csc(relation)
        places = _places(sampling["sampler"], [hop[index] for hop in hops])
        size = ListBytes.of_graph(graph, relation, weights=sampling["sampler"] == "weighted")
        found.append(Lists(relation_key(relation), indptr, size, _reads(graph, scores, relation), places))
    return found


def _reads(graph: Graph, scores: Scores, relation: Relation) -> Callable[[int, int], np.ndarray[Any, Any]]:
    """Reads of lists by rank; a range of ranks is looked up at random."""
    reads = scores.adjacency(relation)
    return lambda begin, end: of_ranks(reads, graph, relation[2], begin, end)


def _places(sampler: str, fanouts: list[int]) -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    return lambda degrees: list_read_places(degrees, sampler, fanouts)
