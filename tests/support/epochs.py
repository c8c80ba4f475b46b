"""Epochs of small batches, the rows that they ought to have, and what must not be left when they end."""

from __future__ import annotations

import gc
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash


def known_disk(folder: Path) -> Path:
    """A model of a disk, so that no test measures one."""
    disk = folder / "disk.json"
    disk.write_text(json.dumps({"reads_per_second": 100_000, "bytes_per_second": 1e9}))
    return disk


def small_batches(folder: Path) -> dict[str, Any]:
    """Options of loaders: small batches, a known disk, and so much under way that a window does not hold it."""
    return {
        "batch_size": 8, "fanouts": [3, 2], "seed": 7, "depth": 4, "ssd_model": known_disk(folder),
        "window": 1, "workers": 3, "prefetch": 3, "direct": "off",  # auto takes rows from the page cache
    }  # fmt: skip


def rows(batches: Any) -> list[np.ndarray]:
    return [batch.x.numpy().copy() for batch in batches]


def truth(layout: Any, options: dict[str, Any], epoch: int, **more: Any) -> list[np.ndarray]:
    """Rows of an epoch's batches by the table in memory."""
    loader = layout.loader(**{**options, **more}, features="memory")
    return rows(loader.epoch(epoch))


def seen(tensor: torch.Tensor) -> tuple[Any, ...]:
    """A tensor's type and shape, and a checksum of its bytes."""
    raw = tensor.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8).numpy()
    return tensor.dtype, tuple(tensor.shape), xxhash.xxh3_128_hexdigest(raw)


def bits(batch: Any) -> list[tuple[Any, ...]]:
    """All of a batch: types, shapes and checksums of the bytes."""
    named = [*batch.nodes.items(), *batch.features.items(), *([] if batch.y is None else [("y", batch.y)])]
    edges = [(r, tensor) for hop in (*batch.hops, *batch.weights) for r, tensor in hop.items()]
    place = batch.epoch, batch.index, batch.seed_type, batch.num_nodes
    return [place, *((name, *seen(tensor)) for name, tensor in [*named, *edges])]


def same(found: list[np.ndarray], expected: list[np.ndarray]) -> bool:
    return len(found) == len(expected) and all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def in_pieces(make: Callable[[], Any], epoch: int, cuts: Sequence[int], look: Callable[[Any], Any] = bits) -> list[Any]:
    """An epoch and the next one by loaders that end after so many batches each, and the states they leave, as JSON."""
    found, state = [], {**make().state_dict(), "epoch": epoch}
    for count in cuts:
        loader = make()
        loader.load_state_dict(json.loads(json.dumps(state)))
        batches = iter(loader)
        found += [look(batch) for batch in islice(batches, count)]
        state = loader.state_dict()
        batches.close()
    (last := make()).load_state_dict(state)
    return [*found, *map(look, last), *map(look, last)]


def held() -> Counter[str]:
    """Names of the operating system's threads, but for the pool that all readers of the process share and the kernel's
    own of io_uring, and what descriptors lead to.
    """
    files, threads = [], []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # a thread that has just ended
            threads.append((task / "comm").read_text().strip())
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            files.append(str(entry.readlink()))
    threads = [name for name in threads if not name.startswith(("tiering-pool", "iou-"))]
    return Counter([*threads, *(name for name in files if "/proc/" not in name)])


@contextmanager
def nothing_left(loader: Any) -> Iterator[None]:
    """After the block there are no more threads and descriptors than after a whole epoch before it."""
    list(loader.epoch(9))
    gc.collect()
    before = held()
    yield
    gc.collect()
    end = time.monotonic() + 60
    while held() - before and time.monotonic() < end:  # the kernel takes a moment to forget a thread that was joined
        time.sleep(0.01)
    assert held() - before == Counter()  # those of earlier tests may end meanwhile
    assert [t.name for t in threading.enumerate() if t.name.startswith("tiering-")] == []
