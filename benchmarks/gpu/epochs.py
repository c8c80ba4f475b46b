"""Whole epochs of GraphSAGE on the GPU: the same batches, trained on the same way; only where rows lie differs.

The aims are what Data Tiering (Min et al., KDD'22) measured: zero-copy 2.5 to 4.6 times as fast as gathering on the
CPU (figure 8), and tiers 1.6 to 2.1 times as fast as zero-copy with a tenth of the rows on the GPU (figure 10).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.gpu.side import CLASSES, CopiedRows, GpuSide, Layouts, layouts, same_bytes
from benchmarks.harness import Comparison, Sizes, expect
from benchmarks.sampling import FANOUTS
from examples.train_graphsage import GraphSage
from tiering.artifacts.manifest import storage_dtype
from tiering.formats.layout import TIERS
from tiering.loader import TieredLayout, open_layout
from tiering.loader.batches.batch import Batch

ON_GPU, IN_HOST = "10%", "40%"
"""Rows in the memory of the GPU; in addition, where there is an ssd tier, those in host memory."""
HOT = (0, 5, 10, 25)
"""Percent of the rows in the memory of the GPU, one comparison each."""
ZERO_COPY = "zero-copy alone: all rows in host memory, read by the GPU"
COPIED = "rows gathered by torch on the CPU, copied"
OUR_COPIED = "rows gathered by our own kernel on the CPU, copied"
NO_SSD = "the same GPU tier, all other rows in host memory"
HIDDEN = 256


class Epochs:
    """Epochs over one layout; ``tiers`` (the GPU), ``torch`` or ``memory`` (the CPU, our kernel) gathers its rows."""

    def __init__(self, gpu: GpuSide, made: Layouts, path: Path, rows: str = "tiers") -> None:
        self._gpu = gpu
        self.layout: TieredLayout = open_layout(path)
        features: Any = CopiedRows(gpu.device, _table(self.layout)) if rows == "torch" else rows
        self.loader = self.layout.loader(
            "train", fanouts=FANOUTS, batch_size=made.batch_size, device=gpu.device.name, features=features,
            max_sms=gpu.sms, peers="off",
        )  # fmt: skip
        torch.manual_seed(0)
        self._model = GraphSage(self.loader, len(FANOUTS), HIDDEN, CLASSES, dropout=0.0).to(gpu.device.torch_device)
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=0.003)

    def run(self) -> None:
        """Train on the batches of epoch 0, without waiting for the GPU."""
        batches: Iterable[Batch] = self.loader.epoch(0)
        for batch in batches:
            self._optimizer.zero_grad()
            assert batch.y is not None
            functional.cross_entropy(self._model(batch), batch.y, ignore_index=-1).backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()

    def first_rows(self) -> Any:
        """Return the rows of the first batch."""
        batches = self.loader.epoch(0)
        rows = next(batches).features["node"]
        self._gpu.finish()
        batches.close()  # type: ignore[attr-defined]
        return rows

    def shares(self) -> dict[str, float]:
        """Return the fraction of rows that each tier served since the counters were reset."""
        tiers = self.loader.counters()["node"]["tiers"]
        total = sum(tiers[tier]["rows"] for tier in TIERS)
        return {f"from_{tier}": round(tiers[tier]["rows"] / total, 4) for tier in TIERS if tiers[tier]["rows"]}

    def close(self) -> None:
        """Close the layout's tables."""
        self._gpu.finish()
        self.layout.close()


def epoch(sizes: Sizes) -> list[Comparison]:
    """Measure 0 (zero-copy), 5, 10 and 25 % of the rows on the GPU, the hottest; the others in host memory."""
    gpu = GpuSide(sizes)
    with layouts(sizes) as made:
        host = made.make("host", "--cpu", "100%")
        return [_hot(gpu, made, host, percent) for percent in HOT]


def _hot(gpu: GpuSide, made: Layouts, host: Path, percent: int) -> Comparison:
    sides = {COPIED: (host, "torch"), OUR_COPIED: (host, "memory")}
    path = host
    if percent:
        sides = {ZERO_COPY: (host, "tiers"), **sides}
        path = made.make(f"hot-{percent}", "--gpu", f"{percent}%", "--cpu", "100%")
    aims = {0: {COPIED: 2.5}, 10: {ZERO_COPY: 1.6, COPIED: 2.5 * 1.6}}.get(percent, {})
    try:
        return _compare("gpu-epoch", gpu, made, path, sides, aims, hot=f"{percent}%")
    finally:
        if path != host:
            shutil.rmtree(path)  # room on the disk for the next


def ssd(sizes: Sizes) -> Comparison:
    """Compare with a tenth of the rows on the GPU, four tenths in host memory, half on SSD."""
    gpu = GpuSide(sizes)
    with layouts(sizes) as made:
        host = made.make("host", "--cpu", "100%")
        memory = made.make("memory", "--gpu", ON_GPU, "--cpu", "100%")
        tiers = made.make("tiers", "--gpu", ON_GPU, "--cpu", IN_HOST, "--ssd", made.folder / "ssd")
        return _compare("gpu-ssd", gpu, made, tiers, {ZERO_COPY: (host, "tiers"), NO_SSD: (memory, "tiers")})


def _compare(
    name: str,
    gpu: GpuSide,
    made: Layouts,
    path: Path,
    sides: Mapping[str, tuple[Path, str]],
    targets: Mapping[str, float] | None = None,
    **more: Any,
) -> Comparison:
    """Compare epochs of our layout with those of `sides`, after a look at whether all get the same rows."""
    ours = Epochs(gpu, made, path)
    peers = {label: Epochs(gpu, made, place, rows) for label, (place, rows) in sides.items()}
    rows = ours.first_rows()
    for label, peer in peers.items():
        expect(name, same_bytes(rows, peer.first_rows()), f"rows ({label})")
    ours.loader.reset_counters()
    ours.run()
    about = {
        **made.about(), "row_bytes": made.sizes.row_bytes, "batches": len(ours.loader), **ours.shares(),
        "sms": gpu.sms, "of_sms": gpu.multiprocessors, "threads": made.sizes.threads, **more,
    }  # fmt: skip
    try:
        return gpu.compare(
            name, ours.run, {label: peer.run for label, peer in peers.items()},
            amount=len(ours.loader.targets), unit="seeds", targets=targets, **about,
        )  # fmt: skip
    finally:
        for side in (ours, *peers.values()):
            side.close()


def _table(layout: TieredLayout) -> Tensor:
    """Return all rows of a layout that has them all in its cpu tier, as a tensor in pageable host memory."""
    entry = layout.artifact.type_layout("node")
    rows = np.fromfile(layout.artifact.tier_path("node", "cpu"), storage_dtype(entry.dtype))
    return torch.from_numpy(rows.reshape(entry.num_nodes, entry.dim))
