"""The sampler that options describe."""

from __future__ import annotations

from typing import Any, cast

from tiering.errors import InputError
from tiering.sampling.base import Sampler
from tiering.sampling.graph import SampledGraph, resolve_fanouts
from tiering.sampling.neighbor import LayerSampler, NeighborSampler
from tiering.sampling.options import DrawRule, SamplingOptions
from tiering.sampling.pinsage import RandomWalkSampler


def make_sampler(graph: SampledGraph, options: SamplingOptions) -> Sampler:
    """Make the sampler that `options` describe; `InputError` if it does not fit the graph."""
    name, fanouts = options.sampler, options.fanouts
    every: dict[str, Any] = {"frontier": options.frontier, "seed": options.seed}
    if name == "pinsage":
        walks = {name: getattr(options, name) for name in ("num_walks", "walk_length", "restart", "metapaths")}
        return RandomWalkSampler(graph, fanouts, **walks, **every)
    if name == "ladies":
        return LayerSampler(graph, fanouts, **every)
    if name == "full":
        for hop, numbers in enumerate(resolve_fanouts(graph.relations, fanouts)):
            if bad := [number for number in numbers if number not in (-1, 0)]:
                raise InputError(
                    f"fanouts of hop {hop}: sampler 'full' takes all neighbours, expected -1 (or 0 to skip a "
                    f"relation), found {bad[0]}; for two hops write -1,-1"
                )
    rule = cast(DrawRule, "uniform" if name == "full" else name)
    return NeighborSampler(graph, fanouts, rule=rule, **every)
