"""The memory of a GPU filled from files, on a simulated device."""

from __future__ import annotations

import numpy as np
import pytest

from tiering.errors import FormatError, StorageError


def random_layout(kit, build, rows=700, row_bytes=602, tiers=(300, 200, 100)):
    """A layout of random bytes with two peers, and its rows by rank."""
    table = np.random.default_rng(1).integers(0, 256, (rows, row_bytes), dtype=np.uint8)
    data = kit.Dataset({"paper": kit.Nodes(rows, table, "uint8", tiers=tiers)}, peers=2)
    return build(data), table[data.order("paper")]


def test_rows_are_those_of_the_files(gpu, kit, build):
    layout, rows = random_layout(kit, build)
    with layout.features(device="cuda") as features:
        np.testing.assert_array_equal(features.gather(np.arange(700)).numpy(), rows)


def test_checksums_are_compared_before(gpu, kit, build):
    layout, rows = random_layout(kit, build)
    with layout.artifact.tier_path("paper", "gpu").open("r+b") as file:
        file.write(bytes(rows[0, :1] ^ 1))
    with pytest.raises(FormatError, match="paper/gpu"):
        layout.features(device="cuda", verify=True)


def test_a_file_that_was_cut(gpu, kit, build):
    layout, _ = random_layout(kit, build)
    path = layout.artifact.tier_path("paper", "gpu")
    path.write_bytes(path.read_bytes()[:-5])
    ends = rf"^[^ ]*tiers/paper/gpu: ends at byte {300 * 602 - 5}, .*: the file was truncated"
    with pytest.raises(StorageError, match=ends):
        layout.features(device="cuda")
