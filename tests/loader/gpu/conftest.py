"""The fixture of tests that need a real GPU."""

from __future__ import annotations

import pytest

from tiering import cuda


@pytest.fixture
def real_gpu() -> None:
    """Skips where there is no GPU, or torch or this build cannot use it."""
    import torch

    if reason := cuda.unavailable():
        pytest.skip(reason)
    if not torch.cuda.is_available():
        pytest.skip("torch was built without CUDA")
