"""LADIES, layer-wise importance sampling: the whole frontier draws its neighbours together."""

from __future__ import annotations

from collections.abc import Sequence

from tiering.sampling.base import FrontierRule, Sampler
from tiering.sampling.fanouts import Fanout
from tiering.sampling.graph import SampledGraph


class LayerSampler(Sampler):
    """LADIES: at every hop a number of nodes is drawn for the whole frontier, important ones more likely.

    At a hop and relation the candidates are the in-neighbours u of the frontier. With d(v) = in-degree of v in the
    relation, u's importance is the sum of 1 / d(v)^2 over its edges u -> v into the frontier, parallel edges each.
    `layer_sizes` candidates are drawn without replacement, each next one with probability in proportion to importance
    among the rest; fewer candidates are all taken. All edges into the frontier from drawn nodes are kept, and from
    nodes that were known before the hop. The weight of an edge u -> v is 1 / (d(v) * importance of u), scaled so that
    the weights of v's edges sum to 1.

    Parameters
    ----------
    layer_sizes
        One entry per hop, the seeds' own hop first: nodes to draw, one number for every relation or a mapping
        ``relation -> number``; each relation has a draw of its own. -1 takes all candidates, 0, in a mapping, skips
        the relation.
    graph, frontier, seed
        As for `NeighborSampler`. For any frontier rule edges from all known nodes are kept.

    Raises
    ------
    InputError
        If layer sizes, frontier or seed do not fit the graph.

    Notes
    -----
    A hop reads the whole lists of the frontier: time goes with the sum of its in-degrees.

    The authors' code (Zou et al., NeurIPS 2019) differs in details: it adds a self-loop to every node of the graph
    (import with self-loops to get the same), keeps the seeds but no other known nodes from hop to hop, and joins
    parallel edges to one of their summed weight before it squares. Known nodes are weighted by importance, as there.
    """

    def __init__(
        self,
        graph: SampledGraph,
        layer_sizes: Sequence[Fanout],
        *,
        frontier: FrontierRule = "all",
        seed: int = 0,
    ) -> None:
        super().__init__(graph, layer_sizes, frontier=frontier, seed=seed, rule="ladies")
