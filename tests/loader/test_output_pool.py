"""Memory for outputs: used again when nobody sees it any more, and by one at a time."""

from __future__ import annotations

import gc
import itertools

import numpy as np
import pytest
import torch
from child_process import Child
from hypothesis import given, settings
from hypothesis import strategies as st

from tiering.loader.tables import resident
from tiering.loader.tables.resident import OutputPool

MIB = 1 << 20


VIEWS = {
    "numpy slice": lambda a: a[5:9],
    "numpy dtype": lambda a: a.view(np.float32).reshape(-1, 8)[3],
    "row of a tensor": lambda a: torch.from_numpy(a).view(torch.float32).view(-1, 16)[1],
    "numpy of a tensor": lambda a: torch.from_numpy(a)[4:].numpy(),
    "memory view": lambda a: memoryview(a)[7:],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_view_keeps_the_memory(view):
    pool = OutputPool()
    array = pool.take(MIB)
    array[:] = 7
    seen = view(array)
    del array
    gc.collect()
    other = pool.take(MIB)
    other[:] = 9
    raw = seen.view(torch.uint8).numpy() if isinstance(seen, torch.Tensor) else np.asarray(seen).view(np.uint8)
    assert (raw == 7).all()
    del raw
    del seen
    gc.collect()
    assert pool.free_bytes == MIB


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(st.integers(resident._POOLED, 9 * MIB), st.integers(0, 30).map(lambda k: -1 - k)),
        min_size=1,
        max_size=40,
    )
)
def test_blocks_have_one_user_and_are_no_more_than_the_peak(actions: list[int]) -> None:
    """Positive: take so many bytes. Negative: forget one of those taken. Against a plain account of them."""
    pool = OutputPool()
    taken: list[np.ndarray] = []
    asked = peak = 0
    for action in actions:
        if action > 0:
            taken.append(pool.take(action))
            asked += action
            peak = max(peak, asked)
        elif taken:
            asked -= taken.pop(-1 - action if -1 - action < len(taken) else -1).size
        spans = sorted((a.ctypes.data, a.ctypes.data + a.size) for a in taken)
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))
        # A block is at most twice what it is lent for.
        assert pool.free_bytes + asked <= 2 * peak
        assert pool.free_bytes + pool._lent <= pool._most <= 2 * peak
    taken.clear()
    assert pool._lent == 0 and pool.free_bytes <= pool._most


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_processes_do_not_write_into_each_others_outputs():
    """What is free when a child is made, and what it still has in its hands, is its own from then on."""
    pool = OutputPool()
    kept, gone = pool.take(MIB), pool.take(MIB)
    kept[:], gone[:] = 1, 2
    del gone

    def work(mark: int) -> bool:
        good = bool((kept == 1).all())
        for k in range(30):
            array = pool.take(MIB)
            array[:] = (mark + k) % 256
            good = good and bool((array == (mark + k) % 256).all())
        kept[:] = mark
        return good and bool((kept == mark).all())

    children = [Child(lambda mark=mark: work(mark)) for mark in (50, 90)]
    assert [child.result() for child in children] == [True, True]
    assert (kept == 1).all()
