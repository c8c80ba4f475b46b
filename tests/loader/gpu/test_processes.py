"""GPU tables in other processes: refused by name, in a forked child and when pickled."""

from __future__ import annotations

import pickle

import pytest
from child_process import in_child

from tiering.errors import CapabilityError

pytestmark = pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
FORKED = "a GPU cannot be used in a forked child of the process that opened it; start the process by spawn"


def test_a_forked_child(gpu, kit, build):
    layout = build(kit.small_graph())
    loader = layout.loader(fanouts=(2,), device="cuda")
    with layout.features(device="cuda") as features:

        def use() -> int:
            uses = [lambda: features.gather([1]), lambda: features.counters, features.close, lambda: next(iter(loader))]
            for each in uses:
                with pytest.raises(CapabilityError, match=FORKED):
                    each()
            return layout.features(device="cpu").gather([1]).numel()

        assert in_child(use) == 8
        assert features.gather([1]).shape == (1, 8)


def test_pickled(gpu, kit, build):
    layout = build(kit.small_graph())
    with layout.features(device="cuda") as features, pytest.raises(CapabilityError, match="GpuFeatures lie in the"):
        pickle.dumps(features)
    with pytest.raises(CapabilityError, match="a loader whose batches arrive on a GPU cannot be pickled"):
        pickle.dumps(layout.loader(fanouts=(2,), device="cuda"))
