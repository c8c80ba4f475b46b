"""Which part of a GPU's memory adjacency lists get: from the artifacts to `tiering.layout.cache_split` and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tiering.artifacts.manifest import Relation, relation_key
from tiering.errors import InputError
from tiering.formats.adjacency_prefix import ListBytes
from tiering.formats.graph import Graph
from tiering.formats.order import Order
from tiering.formats.refusals import of_ranks
from tiering.formats.scores import Scores
from tiering.layout.cache_split import CacheSplit, gpu_budget, plan_split, split_memory
from tiering.layout.capacities import Table
from tiering.layout.options import LayoutOptions
from tiering.layout.prefix_benefit import Lists, LowerTiers
from tiering.memory import Budget
from tiering.sampling import list_read_places, resolve_fanouts
from tiering.units import format_count

COMPARED = 1000
"""Ranks of each type whose scores are compared."""


def divide_gpu(
    graph: Graph, order: Order, rows: Sequence[Table], options: LayoutOptions, scores: Scores | None, budget: Budget
) -> CacheSplit:
    """Divide the memory of a GPU between feature rows and adjacency lists of a reordered graph.

    Parameters
    ----------
    rows
        Feature rows, with the scores of the order.
    scores
        Those that the graph was ordered by.

    Raises
    ------
    InputError
        If the scores are not those the graph was ordered by, or say nothing about adjacency; if there are none for an
        adjacency cache, or some without one; if there is no memory to divide, or more than all there is to hold.
    BudgetError
        If planning takes more memory than there is.

    Notes
    -----
    Cost: one pass over the order, its scores and ``indptr``; reads of lists are looked up at random, slow where they do
    not fit the page cache. Memory: `split_memory`.
    """
    if options.cache is None:
        raise InputError(
            "scores: matter only where memory is shared with adjacency lists; give --adjacency-cache auto too, or "
            "leave them out"
        )
    if scores is None:
        raise InputError(
            f"adjacency cache: {options.cache.text} needs the scores that the graph was ordered by, for the reads of "
            "adjacency lists; give them with --scores S"
        )
    check_ordered_by(graph, order, scores)
    lists = adjacency_lists(graph, scores)
    total = gpu_budget(options.capacities.gpu, rows, lists)
    columns, features = sum(each.columns for each in lists), sum(table.rows * table.row_bytes for table in rows)
    need = split_memory(sum(table.rows for table in rows), columns)
    budget.require(need, f"adjacency cache: places of {format_count(columns)} adjacency lists")
    lower = LowerTiers.of(options.capacities, features, len(options.folders))
    return plan_split(options.cache, total, rows, lists, options.costs, lower)


def check_ordered_by(graph: Graph, order: Order, scores: Scores) -> None:
    """Refuse scores other than those that gave a graph its order: its scores and theirs are to be on one scale.

    Raises
    ------
    InputError
        If they are of another graph, or one of the first `COMPARED` ranks of a type has another score.
    """
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
    sampler, hops = sampling["sampler"], resolve_fanouts(graph.relations, sampling["fanouts"])
    return [
        Lists(
            relation_key(relation),
            graph.csc(relation)[0],
            ListBytes.of_graph(graph, relation, weights=sampler == "weighted"),
            _reads(graph, scores, relation),
            _places(sampler, [hop[index] for hop in hops]),
        )
        for index, relation in enumerate(graph.relations)
    ]


def _reads(graph: Graph, scores: Scores, relation: Relation) -> Callable[[int, int], np.ndarray[Any, Any]]:
    """Reads of lists by rank; a range of ranks is looked up at random."""
    reads = scores.adjacency(relation)
    return lambda begin, end: of_ranks(reads, graph, relation[2], begin, end)


def _places(sampler: str, fanouts: list[int]) -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    return lambda degrees: list_read_places(degrees, sampler, fanouts)
