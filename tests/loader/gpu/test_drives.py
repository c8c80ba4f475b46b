"""``engine="bam"`` on a GPU: what drives serve, kernels submit. Controllers made of software stand for the drives."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))  # under pytest's importlib mode

from tight_memory import tight_loader, wide_graph

from tiering import cuda, native

pytestmark = pytest.mark.usefixtures("watchdog")
MOST_READ = 8192


class SoftDrives:
    """Stands for the core's drives."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.infos = [SimpleNamespace(model="", serial="", bytes=1 << 40, most_read=MOST_READ) for _ in paths]
        self.server = native.softnvme_server

    def engine_maker(self) -> Any:
        return cuda.nvme_engine_maker(0, native.softnvme_server())


def test_rounds_are_submitted_by_the_gpu(gpu, kit, build, tmp_path, monkeypatch):
    monkeypatch.setattr(native, "BamDrives", SoftDrives, raising=False)
    (tmp_path / "disk").write_text(json.dumps({"reads_per_second": 100_000, "bytes_per_second": 1e9}))
    options = {"batch_size": 8, "fanouts": [3, 2], "seed": 7, "depth": 4, "ssd_model": tmp_path / "disk"}
    layout = build(wide_graph(kit, images=2))
    drives = {"engine": "bam", "drives": ["/dev/libnvm0", "/dev/libnvm1"]}
    loader = tight_loader(layout, device="cuda", window=4, **drives, **options)
    expected = layout.loader(**options, features="memory")
    for epoch in range(2):
        for batch, other in zip(loader.epoch(epoch), expected.epoch(epoch), strict=True):
            assert batch.features["node"].equal(other.features["node"])
    buffer = loader.lookahead.buffer
    assert buffer.core.engine == "softnvme-gpu"
    counted = buffer.counters()
    assert 0 < counted["read_bytes"] <= MOST_READ * counted["reads"]
    ids = np.random.default_rng(0).integers(0, 1200, 300)
    table = layout.features(device="cuda", depth=4, **drives)
    assert table.gather(ids).equal(layout.features().gather(ids))
