"""DGL and GraphBolt: ``python peers.py dgl|graphbolt FOLDER``, by an interpreter that has them.

Reads the arrays and ``task.json`` in FOLDER. DGL 1.1 samples a hop and numbers its nodes in one fused step; ids are
int64 there: with int32 ids the fused step of 1.1.3 returns only about half the edges. GraphBolt samples as its
NeighborSampler does per hop (sample, then number the unique nodes), without its datapipes; ids are int32 where the
graph's are: a third faster than int64.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from loop import serve


def make(library: str, folder: str) -> tuple[str, dict[str, Callable[..., Any]]]:
    """Return the name of the side, and its works."""
    place = Path(folder)
    task = json.loads((place / "task.json").read_text())
    arrays = {file.stem: np.load(file) for file in place.glob("*.npy")}
    if "seeds" not in arrays:
        return _dgl_graph(arrays, place)
    samplers, name = (_dgl_samplers if library == "dgl" else _graphbolt_samplers)(task, arrays)
    return name, _two_ways(samplers, arrays["seeds"])


def _two_ways(samplers: Any, seeds: Any) -> dict[str, Callable[..., Any]]:
    """Return all threads in one batch; a thread, with its own sampler, per batch, several batches at a time."""
    import torch

    kind = np.int32 if getattr(samplers[0], "narrow", False) else np.int64
    threads = len(samplers)
    batches = [torch.from_numpy(batch.astype(kind)) for batch in seeds]

    def share(t: int) -> int:
        torch.set_num_threads(1)
        return sum(samplers[t](batch) for batch in batches[t::threads])

    def in_one_batch() -> int:
        torch.set_num_threads(threads)
        return sum(samplers[0](batch) for batch in batches)

    def side_by_side() -> int:
        with ThreadPoolExecutor(threads) as pool:
            return sum(pool.map(share, range(threads)))

    return {"in one batch": in_one_batch, "batches side by side": side_by_side}


def _dgl_samplers(task: dict[str, Any], arrays: dict[str, Any]) -> tuple[list[Any], str]:
    import dgl
    import torch

    walks = task["sampler"] == "pinsage"
    # Walks go along the edges: of the reversed graph, as ours are defined, whose CSR is the graph's CSC.
    csc = (
        "csr" if walks else "csc",
        tuple(torch.from_numpy(arrays[n].astype(np.int64)) for n in ("indptr", "indices")),
    )
    graph = dgl.graph((csc[0], (*csc[1], torch.empty(0, dtype=torch.int64))))
    if "weights" in arrays:
        graph.edata["weight"] = torch.from_numpy(arrays["weights"])
    if walks:
        options = (task["walk_length"], task["restart"], task["num_walks"])
        hops = [dgl.sampling.RandomWalkNeighborSampler(graph, *options, fanout) for fanout in task["fanouts"]]

        def by_walks(seeds: Any) -> int:
            edges = 0
            for hop in hops:
                block = dgl.to_block(hop(seeds), seeds)
                edges += int(block.num_edges())
                seeds = block.srcdata[dgl.NID]
            return edges

        return [by_walks] * task["threads"], f"dgl {dgl.__version__} RandomWalkNeighborSampler"

    class Neighbors:
        def __init__(self) -> None:
            prob = "weight" if "weights" in arrays else None
            self.sampler = dgl.dataloading.NeighborSampler(
                task["fanouts"][::-1], prob=prob, replace=task["sampler"] == "replacement"
            )
            self(torch.from_numpy(arrays["seeds"][0]))  # makes the table of the fused step, when that step runs

        def __call__(self, seeds: Any) -> int:
            return sum(int(block.num_edges()) for block in self.sampler.sample_blocks(graph, seeds)[2])

    samplers = [Neighbors() for _ in range(task["threads"])]
    how = "fused" if samplers[0].sampler.mapping else "not fused"
    return samplers, f"dgl {dgl.__version__} NeighborSampler ({how})"


def _graphbolt_samplers(task: dict[str, Any], arrays: dict[str, Any]) -> tuple[list[Any], str]:
    import dgl
    import torch
    from dgl import graphbolt

    class Sampler:
        narrow = arrays["indices"].dtype == np.int32 and "times" not in arrays

        def __init__(self) -> None:
            data = {key: torch.from_numpy(arrays[key]) for key in ("weights", "times") if key in arrays} or None
            self._weight = "weights" if "weights" in arrays else None
            self._fanouts = [torch.tensor([fanout]) for fanout in task["fanouts"]]
            self._graph = graphbolt.fused_csc_sampling_graph(
                torch.from_numpy(arrays["indptr"]), torch.from_numpy(arrays["indices"]), edge_attributes=data
            )

        def __call__(self, nodes: Any) -> int:
            if "times" in arrays:  # rows are nodes, and their times
                (fanout,) = self._fanouts
                seeds, when = nodes[0].to(self._graph.indices.dtype), nodes[1]
                drawn = self._graph.temporal_sample_neighbors(seeds, when, fanout, edge_timestamp_attr_name="times")
                return int(drawn.sampled_csc.indices.numel())
            edges = 0
            for fanout in self._fanouts:
                drawn = self._graph.sample_neighbors(
                    nodes, fanout, task["sampler"] == "replacement", self._weight
                ).sampled_csc
                edges += drawn.indices.numel()
                nodes, _ = graphbolt.unique_and_compact_csc_formats(drawn, nodes)
            return edges

    return [Sampler()] * task["threads"], f"graphbolt {dgl.__version__} (torch {torch.__version__.split('+')[0]})"


def _dgl_graph(arrays: dict[str, Any], folder: Path) -> tuple[str, dict[str, Callable[..., Any]]]:
    """Return the conversion of an edge list to CSC, and the renumbering of a graph."""
    import dgl
    import torch

    graph = dgl.graph(
        (torch.from_numpy(arrays["src"]), torch.from_numpy(arrays["dst"])), num_nodes=arrays["nodes"].item()
    )

    def to_csc() -> None:
        graph.formats("csc")  # what is converted is kept by the new graph alone

    def save_csc() -> None:
        for name, tensor in zip(("indptr", "indices"), graph.formats("csc").adj_tensors("csc")[:2]):  # noqa: B905
            np.save(folder / f"{name}.npy", tensor.numpy())

    def reorder() -> None:
        dgl.reorder_graph(
            graph, node_permute_algo="custom", edge_permute_algo="dst", store_ids=False,
            permute_config={"nodes_perm": arrays["new_to_old"]},
        )  # fmt: skip

    return f"dgl {dgl.__version__}", {"to csc": to_csc, "save csc": save_csc, "reorder": reorder}


if __name__ == "__main__":
    serve(make)
