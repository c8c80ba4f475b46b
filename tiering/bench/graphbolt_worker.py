"""Samples with GraphBolt on request. Run by an interpreter that has GraphBolt and need not have `tiering`.

``python graphbolt_worker.py FOLDER``: reads graph, seeds and task from FOLDER, prints ``{"name": ...}``, then answers
each line on standard input, ``in one batch`` or ``side by side``, with ``{"edges": ...}``. Ends with its input.

Sampling is what `dgl.graphbolt.NeighborSampler` does per hop (sample, then number the unique nodes), without its
datapipes. Ids are int32 where the graph's are: a third faster than int64.
"""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np


class Sides:
    """The two ways of using threads."""

    def __init__(self, folder: Path) -> None:
        import dgl
        import torch
        from dgl import graphbolt

        self.name = f"graphbolt {dgl.__version__} (torch {torch.__version__.split('+')[0]})"
        self._torch, self._graphbolt = torch, graphbolt
        task = json.loads((folder / "task.json").read_text())
        self._threads, self._replace = int(task["threads"]), bool(task["replace"])
        self._fanouts = [torch.tensor([fanout]) for fanout in task["fanouts"]]
        indices = torch.from_numpy(np.load(folder / "indices.npy"))
        self._seeds = [torch.from_numpy(batch).to(indices.dtype) for batch in np.load(folder / "seeds.npy")]
        weights = folder / "weights.npy"
        edge_data = {"weight": torch.from_numpy(np.load(weights))} if weights.exists() else None
        self._weight = None if edge_data is None else "weight"
        self._graph = graphbolt.fused_csc_sampling_graph(
            torch.from_numpy(np.load(folder / "indptr.npy")), indices, edge_attributes=edge_data
        )

    def in_one_batch(self) -> int:
        """One batch after the other, all threads in each."""
        self._torch.set_num_threads(self._threads)
        return sum(self._sample(seeds) for seeds in self._seeds)

    def side_by_side(self) -> int:
        """One thread per batch, several batches at a time."""
        with ThreadPoolExecutor(self._threads) as pool:
            return sum(pool.map(self._share, range(self._threads)))

    def _share(self, t: int) -> int:
        self._torch.set_num_threads(1)
        return sum(self._sample(seeds) for seeds in self._seeds[t :: self._threads])

    def _sample(self, nodes: Any) -> int:
        edges = 0
        for fanout in self._fanouts:
            drawn = self._graph.sample_neighbors(nodes, fanout, self._replace, self._weight).sampled_csc
            edges += drawn.indices.numel()
            nodes, _ = self._graphbolt.unique_and_compact_csc_formats(drawn, nodes)
        return edges


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    sides = Sides(Path(sys.argv[1]))
    print(json.dumps({"name": sides.name}), file=answers, flush=True)
    for line in sys.stdin:
        edges = sides.in_one_batch() if line.strip() == "in one batch" else sides.side_by_side()
        print(json.dumps({"edges": edges}), file=answers, flush=True)


if __name__ == "__main__":
    main()
