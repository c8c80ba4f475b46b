"""Deterministic sampling: the same samplers for scoring, evaluation and training.

A batch is a pure function of the graph, the seeds and ``(seed, epoch, batch)``: the number of threads, the order
of the calls and the machine do not matter. Random numbers are keyed by the *original* node id, so a reordered
graph samples the images of the very same batches.
"""

from typing import TYPE_CHECKING

from tiering.text.arguments import lazy_names

__all__ = [
    "SAMPLERS", "AccessCounts", "EpochPlan", "Fanout", "FrontierRule", "LayerSampler", "LinkPlan", "LinkedNodes",
    "Links", "NegativeDraws", "Negatives", "NeighborSampler", "RandomWalkSampler", "Relation", "SampledBatch",
    "SampledEdges", "SampledGraph", "Sampler", "SamplingOptions", "Seeds", "Subgraphs", "batches", "checked_weights",
    "epoch_order", "link_nodes", "list_read_bytes", "list_read_entries", "list_read_places", "make_sampler",
    "resolve_fanouts", "runs_of_batches",
]  # fmt: skip

if TYPE_CHECKING:
    from tiering.sampling.base import AccessCounts, FrontierRule, SampledBatch, SampledEdges, Sampler, Seeds
    from tiering.sampling.graph import Relation, SampledGraph, checked_weights, resolve_fanouts
    from tiering.sampling.links import LinkedNodes, LinkPlan, Links, NegativeDraws, Negatives, link_nodes
    from tiering.sampling.memory import list_read_bytes, list_read_entries, list_read_places
    from tiering.sampling.options import SAMPLERS, Fanout, SamplingOptions, Subgraphs
    from tiering.sampling.plan import EpochPlan, batches, epoch_order, runs_of_batches
    from tiering.sampling.samplers import LayerSampler, NeighborSampler, RandomWalkSampler, make_sampler
else:
    __getattr__ = lazy_names(__name__, "options", "samplers", "base", "graph", "links", "memory", "plan")
