"""Epochs of one loader for PyG or DGL, in a process of its own: prints a JSON line of seconds and memory.

``python framework_epoch.py SIDE LAYOUT JSON``: the options are ``fanouts`` (seeds' own hop first), ``batch_size``,
``epochs``, ``workers`` (threads or processes that sample), and ``table`` (the rows in one file, by rank).
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

import tiering
from tiering.artifacts.manifest import storage_dtype
from tiering.loader.layout import TieredLayout


def native(layout: TieredLayout, frontier: str, **options: Any) -> Iterable[Any]:
    """Return our loader's own batches."""
    return layout.loader(**common(options), fanouts=options["fanouts"], frontier=frontier)


def pyg(layout: TieredLayout, **options: Any) -> Iterable[Any]:
    """Return our loader with batches for PyG."""
    return layout.pyg_loader(**common(options), num_neighbors=options["fanouts"])


def dgl(layout: TieredLayout, **options: Any) -> Iterable[Any]:
    """Return our loader with batches for DGL."""
    return layout.dgl_loader(**common(options), fanouts=options["fanouts"][::-1])


def pyg_stores(layout: TieredLayout, **options: Any) -> Iterable[Any]:
    """Return PyG's `NodeLoader` over our stores and sampler."""
    from torch_geometric.loader import NodeLoader

    return NodeLoader(
        layout.pyg_stores(), layout.pyg_sampler(options["fanouts"]), torch.from_numpy(originals(layout)),
        batch_size=options["batch_size"], shuffle=True, num_workers=options["workers"],
    )  # fmt: skip


def pyg_own(layout: TieredLayout, **options: Any) -> Iterable[Any]:
    """Return PyG's `NeighborLoader` over graph and features in memory; it samples by pyg-lib or torch-sparse."""
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    (indptr, indices), rows = layout.csc(layout.relations[0]), mapped_rows(layout, options["table"])
    targets = np.repeat(np.arange(layout.num_nodes()), np.diff(indptr))
    edges = torch.from_numpy(np.stack([indices.astype(np.int64), targets]))
    data = Data(x=torch.from_numpy(np.array(rows)), edge_index=edges)
    return NeighborLoader(
        data, options["fanouts"], input_nodes=torch.from_numpy(np.array(layout.split("train"))), is_sorted=True,
        batch_size=options["batch_size"], shuffle=True, num_workers=options["workers"],
    )  # fmt: skip


def mapped_rows(layout: TieredLayout, table: str) -> Any:
    """Return the feature rows by rank, mapped."""
    entry = layout.artifact.type_layout(layout.feature_types[0])
    return np.memmap(table, storage_dtype(entry.dtype), "r", shape=(entry.num_nodes, entry.dim))


def dgl_own(layout: TieredLayout, mapped: bool, **options: Any) -> Iterable[Any]:
    """Return DGL's sampler and loader over the graph in memory; features in memory, or in a memory map of workers."""
    import dgl

    indptr, indices = layout.csc(layout.relations[0])
    graph = dgl.graph(("csc", (indptr, indices.astype(np.int64), [])), num_nodes=layout.num_nodes())
    rows = mapped_rows(layout, options["table"])
    sampler = dgl.dataloading.NeighborSampler(options["fanouts"][::-1])
    train = torch.from_numpy(np.array(layout.split("train")))
    if mapped:

        def collate(seeds: list[torch.Tensor]) -> Any:
            inputs, outputs, blocks = sampler.sample(graph, torch.stack(seeds))
            return inputs, outputs, blocks, torch.from_numpy(rows[inputs.numpy()])

        return torch.utils.data.DataLoader(
            train, batch_size=options["batch_size"], shuffle=True, collate_fn=collate, num_workers=options["workers"]
        )
    features = torch.from_numpy(np.array(rows))

    def gathered() -> Iterable[Any]:
        loader = dgl.dataloading.DataLoader(
            graph, train, sampler, batch_size=options["batch_size"], shuffle=True, num_workers=options["workers"]
        )
        for inputs, outputs, blocks in loader:
            yield inputs, outputs, blocks, features[inputs]

    class Epochs:
        """A function that begins a new epoch at each call."""

        def __iter__(self) -> Any:
            return iter(gathered())

    return Epochs()


def common(options: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords of our loaders."""
    return {name: options[name] for name in ("batch_size", "workers")}


def originals(layout: TieredLayout) -> Any:
    """Return the original ids of the training nodes."""
    return layout.new_to_old()[layout.split("train")].astype(np.int64)


SIDES: dict[str, Callable[..., Iterable[Any]]] = {
    "native, for PyG": lambda layout, **options: native(layout, "new", **options),
    "pyg_loader": pyg,
    "NodeLoader over our stores": pyg_stores,
    "PyG's NeighborLoader": pyg_own,
    "native, for DGL": lambda layout, **options: native(layout, "all", **options),
    "dgl_loader": dgl,
    "DGL, features in memory": lambda layout, **options: dgl_own(layout, mapped=False, **options),
    "DGL, memory map in torch's DataLoader": lambda layout, **options: dgl_own(layout, mapped=True, **options),
}
"""By name: what gives the batches of an epoch each time it is iterated."""


def main() -> None:
    """Run the epochs that the arguments ask for."""
    side, path, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    epochs = options.pop("epochs")
    with tiering.open(path) as layout:
        loader, seconds = SIDES[side](layout, **options), []
        for _ in range(epochs):
            start, count = time.perf_counter(), 0
            for _batch in loader:
                count += 1
            seconds.append((time.perf_counter() - start) / count)
    peak = sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) * 1024
    print(json.dumps({"seconds": seconds, "batches": count, "peak": peak}))


if __name__ == "__main__":
    main()
