"""Memory of the methods, by formula: what a budget is held against before anything is computed.

All numbers are bytes of anonymous memory; the graph itself is mapped and costs none. N: nodes of all types; D: the sum
over relations of the nodes of the destination type; E: edges; T: training nodes. The tables of the documentation show
the same formulas. What sweeps take the core says (`tiering.native.plan_sweeps`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tiering.formats.shape import SizedGraph
from tiering.sampling.memory import batch_bytes, sums_bytes
from tiering.scores.request import ScoreRequest
from tiering.units import format_count

SLACK = 32 << 20
"""Of every method: small objects, stacks, what the allocator rounds up."""
HUGE_PAGE = 2 << 20
"""A large array takes whole ones."""
COUNTED_EDGES = 1 << 25
"""Edges whose out-degrees are counted together."""
LARGEST_BIN = 1 << 22
"""Nodes of the largest bin of ``hybrid``."""


@dataclass(frozen=True)
class Need:
    """Memory of a method."""

    minimum: int
    """With less it cannot be done."""
    sufficient: int
    """More makes it no faster."""
    what: str
    """What needs it, for people."""
    held: int = 0
    """Of both, what is held beside sweeps over the edges."""
    swept: bool = False
    """Whether it makes such sweeps."""

    def beside(self, nbytes: int, what: str = "") -> Need:
        """With `nbytes` that are held all the while."""
        return replace(
            self,
            minimum=self.minimum + nbytes,
            sufficient=self.sufficient + nbytes,
            held=self.held + nbytes,
            what=what or self.what,
        )


def list_nodes(graph: SizedGraph) -> int:
    """D: nodes of the destination type, over all relations."""
    return sum(graph.num_nodes(relation[2]) for relation in graph.relations)


def degree_need(graph: SizedGraph, request: ScoreRequest) -> Need:
    """``degree``: 8 N, 8 more for the largest type if it is the source of several relations, 4 for 2^25 edges."""
    sources = [relation[0] for relation in graph.relations]
    again = max((graph.num_nodes(source) for source in sources if sources.count(source) > 1), default=0)
    batch = 4 * min(max(map(graph.num_edges, graph.relations), default=0), COUNTED_EDGES)
    need = 8 * (graph.num_nodes() + again) + batch + 256 * 160 * request.threads + SLACK + 2 * HUGE_PAGE
    return Need(need, need, f"degree: 8 bytes for each of {format_count(graph.num_nodes())} nodes and counters")


def rank_need(graph: SizedGraph, request: ScoreRequest, sweeps: Need) -> Need:
    """``rpr``, ``wrpr``: 8 N for the scores, 8 T for the training nodes in order, and sweeps."""
    what = f"reverse PageRank: {format_count(graph.num_nodes())} nodes, their columns and one piece of the edges"
    return sweeps.beside(8 * graph.num_nodes() + 8 * request.train_size + len(graph.node_types) * HUGE_PAGE, what)


def vip_need(graph: SizedGraph, request: ScoreRequest, sweeps: Need) -> Need:
    """``vip``: 16 N, 24 D (16 D where only new nodes ask), 8 T, and sweeps."""
    lists = 24 * list_nodes(graph) + 3 * len(graph.relations) * HUGE_PAGE
    held = 16 * graph.num_nodes() + lists + 8 * request.train_size + 2 * len(graph.node_types) * HUGE_PAGE
    what = f"vip: {format_count(graph.num_nodes())} nodes, their lists and columns and one piece of the edges"
    return sweeps.beside(held, what)


def presample_need(graph: SizedGraph, request: ScoreRequest) -> Need:
    """``presample``: 8 (N + D) for the counters, 24 T for an epoch's order, and sampling.

    Sampling takes a batch per thread (`tiering.sampling.memory.batch_bytes`), one at the least, and 8 E with edge
    weights.
    """
    vectors = 8 * (graph.num_nodes() + list_nodes(graph))
    held = vectors + 24 * request.train_size + sums_bytes(graph, request.sampled) + SLACK
    batch = batch_bytes(graph, request.sampled)
    what = f"presample: counters of {format_count(graph.num_nodes())} nodes and their lists, and a batch"
    return Need(held + batch, held + request.threads * batch, what)


def hybrid_need(graph: SizedGraph, request: ScoreRequest, prior: Need) -> Need:
    """``hybrid``: the largest of its steps: counting, the prior, and weighing one against the other.

    Counting is ``presample``, with 16 (N + D) more where the counts of several epochs tell what is noise. The prior is
    ``vip`` (``wrpr``) beside 8 (N + D) of counts, or 16. Weighing holds both, 8 (N + D) and 8 or 16, and per node of
    one type up to 28 to sort (40 from 2^31 nodes), then 72 per node of a bin of at most 2^22.
    """
    squares = request.options.prior_weight is None and request.options.epochs > 1
    vectors = 8 * (graph.num_nodes() + list_nodes(graph))
    counts = vectors * (2 if squares else 1)
    counting = presample_need(graph, request).beside(2 * vectors if squares else 0)
    largest = max(map(graph.num_nodes, graph.node_types), default=0)
    sort = largest * (28 if largest < 2**31 else 40) if squares else 0
    ranked = largest * (4 if largest < 2**31 else 8) + 72 * min(LARGEST_BIN, largest)
    weighing = vectors + counts + max(sort, ranked, 8 * graph.num_nodes()) + SLACK
    before = prior.beside(counts)
    what = f"hybrid: counters, prior and order of {format_count(graph.num_nodes())} nodes and their lists"
    minimum = max(counting.minimum, before.minimum, weighing)
    return Need(minimum, max(counting.sufficient, before.sufficient, weighing), what, before.held, swept=True)
