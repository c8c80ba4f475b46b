"""`memory=` is obeyed: by a process in a control group of so much and a tenth more, and by its own count."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from memory_group import memory_group

MIB = 1 << 20
SCRIPT = """
    import json, pathlib, sys
    import peaks
    import tiering
    disk = pathlib.Path(sys.argv[1] + ".json")
    disk.write_text(json.dumps({"reads_per_second": 1e5, "bytes_per_second": 1e9}))
    layout = tiering.open(sys.argv[1])
    loader = layout.loader(batch_size=100, fanouts=[5, 3], memory=sys.argv[2], ssd_model=disk, direct="off")
    batches = 0
    with peaks.peak_memory() as peak:
        for epoch in range(2):
            batches += sum(1 for batch in loader)
    ahead = loader.lookahead
    print(json.dumps({
        "peak": peak.bytes, "batches": batches, "ahead": ahead is not None,
        "buffer": ahead.buffer.arena.size if ahead else 0,
    }))
"""


@pytest.fixture
def large(kit: Any, tmp_path: Path) -> Path:
    """200 000 nodes with rows of 2 KiB, all but a tenth on ssd."""
    random, count = np.random.default_rng(0), 200_000
    table = random.integers(0, 256, (count, 2048), dtype=np.uint8)
    edges = (random.integers(0, count, 2_000_000), random.integers(0, count, 2_000_000))
    nodes = kit.Nodes(count, table, "uint8", None, {"train": random.permutation(count)[:8_000]}, (0, 0, 20_000))
    layout = kit.write_layout(tmp_path / "large", kit.Dataset({"node": nodes}, {("node", "to", "node"): edges}))
    layout.close()
    return Path(layout.path)


@pytest.mark.slow
@pytest.mark.parametrize("room", [400, *(pytest.param(room, marks=pytest.mark.long) for room in (520, 900))])
def test_inside_a_memory_group(large, room):
    """The interpreter, torch, tiers, batches and the buffer; with much room all rows are read once."""
    memory = room * MIB
    with memory_group(memory + memory // 10) as group:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(SCRIPT), large, str(memory)],
            capture_output=True, text=True, timeout=300, check=False, preexec_fn=group.group.enter,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["batches"] == 160
    assert found["peak"] <= memory
    assert found["ahead"] == (room < 900)
    if found["ahead"]:  # most of it is put to use
        assert found["peak"] >= 0.7 * memory
