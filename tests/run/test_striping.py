"""Rows are dealt out over files as one who goes through them unit by unit would deal them."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.reorder.rows.tasks import Striping


def dealt_by_hand(striping: Striping, total: int) -> list[list[int]]:
    """Things of each file, one after the other."""
    files: list[list[int]] = [[] for _ in range(striping.files)]
    for number in range(total):
        files[(striping.first_unit + number // striping.per_unit) % striping.files].append(number)
    return files


@settings(max_examples=150, deadline=None)
@given(
    rows=st.integers(1, 60),
    parts=st.integers(1, 9),
    files=st.integers(1, 5),
    per_unit=st.integers(1, 7),
    first_unit=st.integers(0, 7),
    seed=st.integers(0, 99),
    of_block=st.sampled_from([0, 1, 2, 3]),
)
def test_every_file_has_what_is_its(rows, parts, files, per_unit, first_unit, seed, of_block):
    unit_bytes = BLOCK_BYTES // of_block if of_block else 100
    striping = Striping.plan(100, 100 + rows, parts, unit_bytes, files, per_unit, first_unit)
    units = -(-rows // per_unit)
    if of_block in (1, 2) and of_block * files <= units // parts:  # ranges begin with a block of each file
        assert all((first_unit + bound // per_unit) % (of_block * files) == 0 for bound in striping.bounds[1:-1])
    assert Striping(**json.loads(json.dumps(vars(striping)))) == striping, "as tasks get it"
    assert striping.num_ranges <= parts and striping.bounds[-1] == rows
    assert all(bound % per_unit == 0 for bound in striping.bounds[:-1])

    numbers = np.random.default_rng(seed).permutation(rows)
    order, counts, places = striping.order_items(numbers, 1)
    assert counts.tolist() == striping.counts and sum(striping.counts) == rows
    found: list[list[int]] = [[] for _ in range(files)]
    ends = np.cumsum([0, *counts])
    for part in range(striping.num_partitions):
        own = slice(ends[part], ends[part + 1])
        placed = np.full(counts[part], -1)
        placed[places[own]] = numbers[order[own]]
        found[part % files].extend(placed.tolist())
    assert found == dealt_by_hand(striping, rows)
    assert striping.most == max(striping.counts, default=0)
