"""Fixtures of the GPU's side of the runtime, on a simulated device, or for tests that need a real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from simulated_gpu import Simulator, lend

from tiering import cuda


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulator]:
    """A simulated GPU; what a test leaves on it is a failure."""
    yield from lend(monkeypatch)


@pytest.fixture
def real_gpu() -> None:
    """Skips where there is no GPU, or torch or this build cannot use it."""
    import torch

    if reason := cuda.unavailable():
        pytest.skip(reason)
    if not torch.cuda.is_available():
        pytest.skip("torch was built without CUDA")
