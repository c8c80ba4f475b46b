"""The kernel that gives tasks their keys, against numpy's sorting."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiering import native
from tiering.errors import RefusedError
from tiering.run.grid import equal_bounds

AnyArray = npt.NDArray[Any]


def sorted_keys(keys: AnyArray, bounds: AnyArray) -> tuple[AnyArray, AnyArray]:
    """What `native.partition` is to return, by a stable sort of the parts."""
    part = np.searchsorted(bounds, keys, "right") - 1
    return np.argsort(part, kind="stable"), np.bincount(part, minlength=bounds.size - 1)


def check_partition(keys: AnyArray, bounds: AnyArray) -> None:
    expected_order, expected_counts = sorted_keys(keys, bounds)
    for threads in (1, 2, 5):
        order, counts = native.partition(keys, bounds, threads)
        assert (order.dtype, counts.dtype) == (np.uint32, np.int64)
        assert np.array_equal(order, expected_order) and np.array_equal(counts, expected_counts)


@settings(max_examples=60)
@given(
    cuts=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=2, max_size=40).filter(lambda cuts: len(set(cuts)) > 1),
    dtype=st.sampled_from([np.int32, np.int64]), size=st.sampled_from([0, 1, 7, 200]), seed=st.integers(0, 99),
)  # fmt: skip
def test_partition_equals_a_stable_sort(cuts, dtype, size, seed):
    bounds = np.sort(np.array(cuts, np.int64))
    random = np.random.default_rng(seed)
    near = np.clip(random.choice(bounds, size) + random.integers(-1, 2, size), bounds[0], bounds[-1] - 1)
    far = random.integers(bounds[0], bounds[-1], size)
    check_partition(np.where(random.random(size) < 0.5, near, far).astype(dtype), bounds)


@pytest.mark.parametrize("parts", [1, 64, 65536])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_partition_of_many_keys(parts, dtype):
    """Keys for several threads; ranges are even, or most of them are close together."""
    random = np.random.default_rng(parts)
    keys = random.integers(0, 10**6, 100_000).astype(dtype)
    check_partition(keys, np.array(equal_bounds(10**6, parts), np.int64))
    check_partition(keys, np.concatenate([[0], np.sort(random.random(parts - 1) ** 5 * 10**6), [10**6]]).astype(int))
    check_partition(np.sort(keys), np.array(equal_bounds(10**6, parts), np.int64))


def test_partition_names_the_first_key_outside():
    keys, bounds = np.full(100_000, 7, np.int32), np.array([5, 6, 8], np.int64)
    keys[[70_000, 99_999]] = 8, 4
    for threads in (1, 2, 5):
        with pytest.raises(RefusedError, match=r"keys\[70000\] is 8, outside the ranges of bounds, 5\.\.7"):
            native.partition(keys, bounds, threads)
    with pytest.raises(RefusedError, match=r"bounds\[1\]: expected 5 or more, as before it, found 4"):
        native.partition(keys, np.array([5, 4, 8], np.int64), 1)
    with pytest.raises(RefusedError, match="keys: expected contiguous 1-D int32 or int64 array"):
        native.partition(keys.astype(np.uint32), bounds, 1)
    with pytest.raises(RefusedError, match="keys: expected contiguous"):
        native.partition(keys[::2], bounds, 1)
    with pytest.raises(RefusedError, match="threads: expected at least 1"):
        native.partition(keys, bounds, 0)
