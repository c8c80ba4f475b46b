"""Rows are dealt out over files as one who goes through them page by page would deal them."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tiering.reorder.rows.tasks import Striping


def dealt_by_hand(striping: Striping, total: int) -> list[list[int]]:
    """Things of each file, one after the other."""
    files: list[list[int]] = [[] for _ in range(striping.files)]
    for number in range(total):
        files[(striping.first_page + number // striping.per_page) % striping.files].append(number)
    return files


@settings(max_examples=150, deadline=None)
@given(
    rows=st.integers(1, 60),
    parts=st.integers(1, 9),
    files=st.integers(1, 5),
    pages=st.sampled_from([(1, 1), (3, 1), (7, 1), (2, 3), (4, 6), (5, 4)]),
    first_page=st.integers(0, 7),
    seed=st.integers(0, 99),
)
def test_every_file_has_what_is_its(rows, parts, files, pages, first_page, seed):
    per_page, per_row = pages
    striping = Striping.plan(100, 100 + rows, parts, files, per_page, per_row, first_page)
    assert Striping(**json.loads(json.dumps(vars(striping)))) == striping, "as tasks get it"
    total = rows * per_row
    assert striping.num_ranges <= parts and striping.bounds[-1] == total
    assert all(bound % per_page == 0 and bound % per_row == 0 for bound in striping.bounds[:-1])

    numbers = np.random.default_rng(seed).permutation(total)
    order, counts, places = striping.order_items(numbers, 1)
    assert counts.tolist() == striping.counts and sum(striping.counts) == total
    found: list[list[int]] = [[] for _ in range(files)]
    ends = np.cumsum([0, *counts])
    for part in range(striping.num_partitions):
        own = slice(ends[part], ends[part + 1])
        placed = np.full(counts[part], -1)
        placed[places[own]] = numbers[order[own]]
        found[part % files].extend(placed.tolist())
    assert found == dealt_by_hand(striping, total)
    assert striping.most == max(striping.counts, default=0)
