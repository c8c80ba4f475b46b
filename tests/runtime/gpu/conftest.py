"""Fixtures of the GPU's side of the runtime, on a simulated device."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))  # under pytest's importlib mode

from simulated_gpu import Simulator, install

KINDS = ("allocations", "host", "registered", "ipc", "streams")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulator]:
    """A simulated GPU of 1 GiB; what a test leaves on it is a failure."""
    simulator = install(monkeypatch)
    simulator.set_memory(1 << 30)
    simulator.set_registrable(1 << 40)
    gc.collect()
    before = {kind: simulator.live(kind) for kind in KINDS}
    yield simulator
    gc.collect()
    simulator.set_registrable(1 << 40)
    assert {kind: simulator.live(kind) for kind in KINDS} == before
