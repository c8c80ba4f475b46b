"""Fixtures of ranks that train together."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from epochs import known_disk
from rank_processes import ROWS, batches_alone, started
from tight_memory import ROW_BYTES

OPTIONS = {"batch_size": 4, "fanouts": [3, 2], "seed": 7, "depth": 4, "prefetch": 2}


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    """Of small batches, and a disk that is known."""
    return {**OPTIONS, "ssd_model": str(known_disk(tmp_path))}


@pytest.fixture
def tiers() -> tuple[int, int, int]:
    """Rows in the gpu, peer and cpu tiers of `layout`; the rest is on ssd."""
    return 20, 30, 50


@pytest.fixture
def num_seeds() -> int:
    """Nodes that epochs of `layout` begin from."""
    return 120


@pytest.fixture
def layout(kit: Any, build: Callable[..., Any], tiers: tuple[int, int, int], num_seeds: int) -> Any:
    """3000 rows of 4 KiB, of which those of 700 nodes with edges are ever used."""
    rng = np.random.default_rng(0)
    table = rng.integers(0, 1 << 16, (ROWS, ROW_BYTES // 4)).astype(np.float32)
    nodes = kit.Nodes(ROWS, table, "float32", tiers=tiers, splits={"train": rng.permutation(700)[:num_seeds]})
    edges = (rng.integers(0, 700, 4000), rng.integers(0, 700, 4000))
    return build(kit.Dataset({"node": nodes}, {("node", "to", "node"): edges}, images=2))


@pytest.fixture
def start(layout: Any, options: dict[str, Any], tmp_path: Path) -> Callable[..., Any]:
    """Processes that make a loader of `layout` each, in a folder of their own."""
    numbers = itertools.count()

    def begin(size: int = 2, **more: Any) -> Any:
        (folder := tmp_path / f"ranks-{next(numbers)}").mkdir()
        return started(size, layout.path, folder, {**options, **more})

    return begin


@pytest.fixture
def alone(layout: Any, options: dict[str, Any]) -> Callable[..., Any]:
    """The batches of an epoch of two ranks, or so many, in one process that has all rows in memory."""
    return partial(batches_alone, layout, options)
