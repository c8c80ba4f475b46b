"""Loaders whose memory is a little more than they need, so that rows of the ssd tier go through a small buffer."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tiering.errors import BudgetError
from tiering.loader.loader import Loader
from tiering.memory import Budget, own_memory

_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}
ROW_BYTES = 4096
"""Of the graphs of `wide_graph`."""


def spare(nbytes: int) -> Budget:
    """So many bytes more than this process holds now."""
    held = own_memory()
    return Budget(held + nbytes, "what the test allows", held)


def wide_graph(kit: Any, seed: int = 0, num_edges: int = 6000, **options: Any) -> Any:
    """1200 nodes with rows of 4 KiB, 1100 of them on ssd: more than a loader of small batches needs beside them."""
    rng = np.random.default_rng(seed)
    count = 1200
    table = rng.integers(0, 1 << 16, (count, ROW_BYTES // 4)).astype(np.float32)
    ids = rng.permutation(count)
    nodes = kit.Nodes(
        count, table, "float32", rng.integers(0, 3, count), {"train": ids[:120], "val": ids[120:180]}, (20, 30, 50)
    )
    edges = (rng.integers(0, count, num_edges), rng.integers(0, count, num_edges))
    relation = ("node", "to", "node")
    return kit.Dataset({"node": nodes}, {relation: edges}, {relation: rng.random(num_edges, np.float32)}, **options)


def wide_hetero_graph(kit: Any, seed: int = 0, **options: Any) -> Any:
    """Papers of 4 KiB and authors of 2 KiB in bfloat16, both on ssd; topics in memory alone; venues without rows."""
    rng = np.random.default_rng(seed)
    sizes = {"paper": 900, "author": 700, "topic": 60, "venue": 10}

    def table(count: int, dim: int, dtype: Any) -> np.ndarray:
        return rng.integers(0, 1 << 14, (count, dim)).astype(dtype)

    ids = rng.permutation(sizes["paper"])
    nodes = {
        "paper": kit.Nodes(
            sizes["paper"], table(sizes["paper"], 1024, np.float32), "float32", rng.integers(0, 4, sizes["paper"]),
            {"train": ids[:120], "val": ids[120:180]}, (10, 20, 30),
        ),
        "author": kit.Nodes(sizes["author"], table(sizes["author"], 1024, np.uint16), "bfloat16", tiers=(0, 0, 40)),
        "topic": kit.Nodes(sizes["topic"], table(sizes["topic"], 16, np.float32), tiers=(20, 20, 20)),
        "venue": kit.Nodes(sizes["venue"]),
    }  # fmt: skip

    def edges(src: str, dst: str, count: int) -> tuple[np.ndarray, np.ndarray]:
        return rng.integers(0, sizes[src], count), rng.integers(0, sizes[dst], count)

    relations = {
        ("paper", "cites", "paper"): edges("paper", "paper", 3000),
        ("author", "writes", "paper"): edges("author", "paper", 2500),
        ("paper", "written_by", "author"): edges("paper", "author", 2000),
        ("topic", "of", "paper"): edges("topic", "paper", 900),
        ("venue", "publishes", "paper"): edges("venue", "paper", 500),
    }
    weights = {r: rng.random(len(ends[0]), np.float32) for r, ends in relations.items()}
    return kit.Dataset(nodes, relations, weights, **options)


GRAPHS = {"one type": wide_graph, "four types": wide_hetero_graph}
"""The graphs by name."""


def least_memory(layout: Any, **options: Any) -> int:
    """Bytes that the smallest buffer and all beside it need, by the message that refuses less."""
    try:
        for _ in layout.loader(**options, memory=spare(1)):
            break
    except BudgetError as error:
        return needed_bytes(str(error))
    raise AssertionError("a budget of one byte was enough")


def needed_bytes(message: str) -> int:
    """Bytes that a `BudgetError` says are needed, or a little more: its figures are rounded."""
    needed = re.search(r"need ([\d.]+) (\w+) in addition to", message)
    assert needed is not None, message
    return int(float(needed[1]) * _UNITS[needed[2]] * 1.002)


def tight_loader(layout: Any, extra_rows: int = 60, **options: Any) -> Loader:
    """A loader with room for `extra_rows` rows more than it needs; it has to look ahead.

    The more memory, the more batches are tried, of which one may need more: what suffices is found by trying.
    """
    # A part of the memory is for batches to come: what is asked for has room for it, what is given beside has not.
    memory = least_memory(layout, **options) + extra_rows * (ROW_BYTES + 8) / 0.85
    for _ in range(20):
        tried = layout.loader(**options, memory=spare(int(memory)))
        assert tried.lookahead is not None
        epoch = tried.epoch(0)
        try:
            next(epoch)
        except BudgetError:
            memory *= 1.05
            continue
        epoch.close()
        return layout.loader(**options, memory=tried.options.memory.memory)
    raise AssertionError("no memory is enough")
