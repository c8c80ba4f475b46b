"""Epochs of the loader, by one way to get feature rows, in a process of its own: prints a JSON line of seconds.

``python epoch.py SIDE LAYOUT JSON``: the options are keywords of `TieredLayout.loader`, and ``batches`` and ``seconds``
of an epoch at most, ``epochs``, ``table`` (the rows in one file, by rank), ``threads`` of the memory maps, and
``train``: whether GraphSAGE of the examples is trained, on the host.
"""

from __future__ import annotations

import json
import mmap
import os
import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import tiering
from tiering.artifacts.manifest import storage_dtype
from tiering.memory import own_memory


class MappedRows:
    """Rows of a file through a memory map: as people write it, or with random access announced and many threads."""

    def __init__(self, path: Path, dtype: str, shape: tuple[int, int], threads: int) -> None:
        self._rows = np.memmap(path, storage_dtype(dtype), "r", shape=shape)
        self._dtype = getattr(torch, dtype)
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._threads = threads
        if threads > 1:
            self._rows._mmap.madvise(mmap.MADV_RANDOM)  # type: ignore[attr-defined]

    def gather(self, ids: Any) -> torch.Tensor:
        """Return the rows of `ids`."""
        wanted: npt.NDArray[np.int64] = np.asarray(ids)
        if self._pool is None:
            rows = self._rows[wanted]
        else:
            rows = np.empty((wanted.size, self._rows.shape[1]), self._rows.dtype)
            cuts = np.linspace(0, wanted.size, 8 * self._threads + 1).astype(int)

            def part(k: int) -> None:
                first, last = cuts[k], cuts[k + 1]
                np.take(self._rows, wanted[first:last], axis=0, out=rows[first:last], mode="clip")

            list(self._pool.map(part, range(len(cuts) - 1)))
        return torch.from_numpy(rows.view(np.uint8)).view(self._dtype)


class Training:
    """Steps of GraphSAGE, of 64 hidden units, on the host."""

    def __init__(self, loader: Any, hops: int) -> None:
        sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
        from train_graphsage import GraphSage

        self._net = GraphSage(loader, hops, 64, loader.layout.num_classes(loader.node_type), 0.5)
        self._optimizer = torch.optim.Adam(self._net.parameters())
        self.seconds = 0.0

    def step(self, batch: Any) -> None:
        """Run forward, backward, and the change of weights."""
        start = time.perf_counter()
        self._optimizer.zero_grad()
        torch.nn.functional.cross_entropy(self._net(batch), batch.y, ignore_index=-1).backward()
        self._optimizer.step()
        self.seconds += time.perf_counter() - start


def main() -> None:
    """Run the epochs that the arguments ask for."""
    side, path, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    most, epochs, table = options.pop("batches"), options.pop("epochs"), options.pop("table")
    threads, memory, limit = options.pop("threads"), options.pop("memory"), options.pop("seconds")
    train = options.pop("train")
    layout = tiering.open(path)
    node_type = layout.feature_types[0]
    features: Any = "tiers"
    if side in ("memmap", "memmap, 16 threads"):
        entry = layout.artifact.type_layout(node_type)
        features = MappedRows(Path(table), entry.dtype, (entry.num_nodes, entry.dim), threads if "16" in side else 1)
    elif side == "memory":
        memory = "auto"
    elif side == "tiers":
        memory = "tiers"
    torch.zeros(1)
    start = time.perf_counter()
    loader = layout.loader(features=features, memory=memory, **options)
    times = {"made": time.perf_counter() - start, "epochs": [], "first": [], "training": []}
    training = Training(loader, len(options["fanouts"])) if train else None
    for epoch in range(epochs):
        start, count, rows = time.perf_counter(), 0, 0
        trained = training.seconds if training else 0.0
        for batch in loader.epoch(epoch):
            if not count:
                times["first"].append(time.perf_counter() - start)
            count, rows = count + 1, rows + len(batch.x)
            if training:
                training.step(batch)
            if count == most or (count > 1 and time.perf_counter() - start > limit):
                break
        times["epochs"].append((time.perf_counter() - start) / count)
        times["training"].append((training.seconds - trained) / count if training else 0.0)
    ahead = getattr(loader, "lookahead", None)
    read = ahead is not None and ahead.buffer is not None  # else rows came from memory or the page cache
    print(
        json.dumps(
            {
                **times, "batches": count, "rows": rows, "own": own_memory(),
                "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "pid": os.getpid(),
                "choice": str(ahead.choice) if read else None,
                "foreseen": ahead.choice.seconds if read else None,
                "speed": str(ahead.speed) if read else None,
                "buffer": ahead.buffer.counters() if read else None,
            }
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()
