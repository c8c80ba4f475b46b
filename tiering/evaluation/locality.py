"""Locality of a training set: nodes that its batches read, compared with a random training set of the same size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from tiering.evaluation.cache_order import IntArray
from tiering.evaluation.counting import ReferenceEpochs
from tiering.text.units import format_count

SEEDS = 1 << 16  # training nodes that are sampled at most; of more, a random part
LOCAL = 1.5  # locality from which scores that do not know the training nodes serve far fewer reads (docs/scores.md)


@dataclass(frozen=True)
class Locality:
    """Nodes that one epoch reads at least once: of the training set, and of as many random nodes of the same types."""

    seeds: int
    nodes: int
    random_nodes: int

    @property
    def ratio(self) -> float:
        """The locality: 1 for a training set that is spread like random nodes, more for one that keeps to a part."""
        return self.random_nodes / self.nodes

    def __str__(self) -> str:
        seeds, nodes, others = map(format_count, (self.seeds, self.nodes, self.random_nodes))
        measured = f"an epoch with {seeds} training nodes reads {nodes} nodes, with {seeds} random nodes {others}"
        advice = "; order by hybrid, vip or presample, which know the training nodes" if self.ratio >= LOCAL else ""
        return f"locality {self.ratio:.1f}: {measured}{advice}"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**asdict(self), "ratio": self.ratio}


def measure_locality(epochs: ReferenceEpochs) -> Locality:
    """Sample the first of some epochs, with up to `SEEDS` of the training nodes, then with as many random nodes.

    Random nodes depend on the seed of the options, and take the times of the training nodes. Memory: a byte for each
    node of the graph. Cost: sampling of twice as many training nodes.
    """
    graph, rng = epochs.sampler.graph, np.random.default_rng(epochs.options.seed)
    train = {t: np.asarray(ids) for t, ids in epochs.train.items()}
    total = sum(ids.size for ids in train.values())
    parts = {t: _choose(rng, ids.size, -(-ids.size * min(SEEDS, total) // total)) for t, ids in train.items()}
    kept = {t: train[t][part] for t, part in parts.items()}
    drawn = {t: _choose(rng, graph.num_nodes(t), part.size) for t, part in parts.items()}
    times = {t: values[parts[t]] for t, values in epochs.seed_time.items()}
    read = (replace(epochs, train=nodes, epochs=epochs.epochs[:1], seed_time=times) for nodes in (kept, drawn))
    return Locality(sum(part.size for part in parts.values()), *map(_count_read, read))


def _choose(rng: np.random.Generator, count: int, size: int) -> IntArray:
    """Return `size` of the first `count` numbers, ascending: each once, unless `size` exceeds `count`."""
    return np.sort(rng.choice(count, size, replace=size > count, shuffle=False))


def _count_read(epoch: ReferenceEpochs) -> int:
    """Return the number of nodes of all types that an epoch reads at least once."""
    graph = epoch.sampler.graph
    read = {t: np.zeros(graph.num_nodes(t), bool) for t in graph.node_types}

    def mark(nodes: Mapping[str, IntArray]) -> IntArray:
        for node_type, ids in nodes.items():
            read[node_type][ids] = True
        return np.empty(0, np.int64)

    for _ in epoch.map_batches(mark, "sampling to measure the locality"):
        pass
    return sum(int(np.count_nonzero(seen)) for seen in read.values())
