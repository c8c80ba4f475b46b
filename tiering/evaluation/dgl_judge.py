"""DGL's sampler as judge: an implementation that shares no code with ours decides what training reads.

DGL and torch are imported here by name when this judge is asked for, and nowhere else in the stages.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.errors import CapabilityError, InputError
from tiering.evaluation.counting import BUCKETS, BucketMap, See
from tiering.evaluation.line import IntArray
from tiering.formats.graph import Graph
from tiering.sampling import AccessCounts, EpochPlan, SamplingOptions, resolve_fanouts

SAMPLERS = ("uniform", "replacement", "full")
"""Ways of sampling that DGL's NeighborSampler has too."""


class DglJudge:
    """`dgl.dataloading.NeighborSampler` on the same graph, homogeneous or heterogeneous.

    The batches are ours, and so is the order of the fanouts; DGL gets them reversed. Every batch has a seed of its own
    and is drawn by one thread, so a run repeats bit for bit. Memory: a copy of the adjacency in int64.
    """

    def __init__(self, graph: Graph, options: SamplingOptions) -> None:
        if options.sampler not in SAMPLERS:
            raise InputError(
                f"judge dgl: its NeighborSampler draws {', '.join(SAMPLERS)}, not {options.sampler!r}; use --judge own"
            )
        if options.frontier != "all":
            raise InputError(f"judge dgl: DGL has the frontier rule 'all' only, found {options.frontier!r}")
        self._dgl, self._torch = load_dgl()
        self.name = f"dgl {self._dgl.__version__}"
        self._types, self._seed = list(graph.node_types), options.seed
        arrays = {relation: ("csc", self._adjacency(graph, relation)) for relation in graph.relations}
        self._graph = self._dgl.heterograph(arrays, num_nodes_dict={t: graph.num_nodes(t) for t in self._types})
        hops = resolve_fanouts(graph.relations, options.fanouts)
        fanouts = [dict(zip(graph.relations, hop, strict=True)) for hop in reversed(hops)]
        self._read = [[r for r, fanout in hop.items() if fanout] for hop in fanouts]  # relations of each block
        self._sampler = self._dgl.dataloading.NeighborSampler(fanouts, replace=options.sampler == "replacement")

    def _adjacency(self, graph: Graph, relation: tuple[str, str, str]) -> tuple[Any, Any, list[int]]:
        indptr, indices = graph.csc(relation)
        wide = (np.array(part, dtype=np.int64) for part in (indptr, indices))
        return (*(self._torch.from_numpy(part) for part in wide), [])

    def count(
        self, plan: EpochPlan, first: int, last: int, counts: AccessCounts, maps: Sequence[BucketMap], threads: int
    ) -> IntArray:
        """See `tiering.evaluation.counting.Judge.count`; `threads` does not matter."""
        hits = np.zeros((len(maps), last - first, BUCKETS), np.int64)
        with self._one_thread():
            for batch in range(first, last):
                nodes, blocks = self._sample(plan, batch)
                for of_map, buckets in zip(hits[:, batch - first], maps, strict=True):
                    for node_type, own in buckets.items():
                        of_map += np.bincount(own[nodes[node_type]], minlength=BUCKETS)
                for node_type, ids in nodes.items():
                    counts.features[node_type][ids] += 1
                for block, relations in zip(blocks, self._read, strict=True):
                    for relation in relations:
                        counts.adjacency[relation][block.dstnodes[relation[2]].data[self._dgl.NID].numpy()] += 1
        return hits

    def each(self, plan: EpochPlan, first: int, last: int, see: See, threads: int) -> Iterator[npt.NDArray[Any]]:
        """See `tiering.evaluation.counting.Judge.each`; `threads` does not matter."""
        with self._one_thread():
            for batch in range(first, last):
                yield see(self._sample(plan, batch)[0])

    def _sample(self, plan: EpochPlan, batch: int) -> tuple[dict[str, Any], list[Any]]:
        """Unique nodes of a batch per type, and its blocks, the seeds' own last."""
        key = np.random.SeedSequence([self._seed, plan.epoch, batch]).generate_state(1)[0]
        self._dgl.seed(int(key) >> 1)
        seeds = {t: self._torch.from_numpy(ids.copy()) for t, ids in plan[batch].items() if ids.size}
        nodes, _, blocks = self._sampler.sample_blocks(self._graph, seeds)
        if not isinstance(nodes, dict):
            nodes = {self._types[0]: nodes}
        return {node_type: ids.numpy() for node_type, ids in nodes.items()}, blocks

    @contextmanager
    def _one_thread(self) -> Iterator[None]:
        """DGL's random numbers belong to threads: with one, they do not depend on the machine."""
        ours, theirs = self._torch.get_num_threads(), self._dgl.utils.get_num_threads()
        self._torch.set_num_threads(1)
        self._dgl.utils.set_num_threads(1)
        try:
            yield
        finally:
            self._torch.set_num_threads(ours)
            self._dgl.utils.set_num_threads(theirs)


def load_dgl() -> tuple[Any, Any]:
    """DGL and torch; `CapabilityError` if one of them cannot be imported."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module("dgl"), importlib.import_module("torch")
    except (ImportError, OSError) as error:
        raise CapabilityError(
            f"judge dgl: DGL cannot be loaded ({error}); pip install 'tiering[torch]' dgl==1.1.3 (it has wheels for "
            "Python 3.7 to 3.11), or use --judge own"
        ) from error
