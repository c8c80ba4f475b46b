"""Makes the helpers here importable under pytest's importlib mode; DGL to compare with."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def dgl():
    """DGL with a fixed seed, on one thread: its draws depend on how many there are. Skips where it is not installed."""
    module = pytest.importorskip("dgl")
    threads = module.utils.get_num_threads()
    module.utils.set_num_threads(1)
    module.seed(0)
    yield module
    module.utils.set_num_threads(threads)
