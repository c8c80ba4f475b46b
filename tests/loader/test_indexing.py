"""Rows of tables and tiered tensors by index: what torch returns for the same index of the whole tensor."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tiering
from tiering.errors import InputError
from tiering.formats.features import FeatureTable

ROWS = 300
MASK = torch.arange(ROWS) % 7 == 2
INDICES = [
    3, -1, np.int64(5), torch.tensor(7), np.array(-2), slice(0, 5), slice(None), slice(-9, None, 4), slice(9, 2),
    slice(290, 400), [4, -2, 4], [], (), ..., None, [[0, 1], [2, -3]], torch.tensor([[5]]), np.array([1, 2], np.int32),
    torch.tensor([0, -1], dtype=torch.int32), MASK, MASK.numpy(), MASK.tolist(), torch.zeros(ROWS, dtype=torch.bool),
    (3, 2), (slice(0, 5), 1), ([1, 2], slice(None, 3)), ([1, -2], [0, -1]), (MASK, 2), (MASK, ...), (..., -1),
    (None, slice(0, 3)), ([[0], [1]], torch.tensor([1, 2])), ([1, 2], None), (4, slice(None, None, 2)),
]  # fmt: skip


@pytest.fixture(params=["layout", "tiered", "tiered by order"])
def rows(request, kit, build):
    """Return rows, and all of them as a torch tensor."""
    if request.param == "layout":
        features = build(kit.small_graph()).features()
        return features, features.gather(torch.arange(len(features)))
    whole = torch.arange(ROWS * 6.0).view(ROWS, 6)
    return tiering.tiered(whole, device="cpu", order=np.arange(ROWS) if request.param != "tiered" else None), whole


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("index", INDICES, ids=range(len(INDICES)))
def test_an_index_returns_what_torch_returns(rows, index):
    table, whole = rows
    nested = isinstance(index, list) and index and isinstance(index[0], list)  # torch will take it so
    expected = whole[torch.tensor(index) if nested else index]
    found = table[index]
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype) and torch.equal(found, expected)


def test_masks_over_elements_and_rows_of_more_dimensions():
    whole = torch.arange(60).view(5, 3, 4)
    table = tiering.tiered(whole, device="cpu")
    for index in (whole % 7 == 3, whole[:, :, 0] % 2 == 1, (2, 1, 3), (slice(1, 4), ..., 0), ([0, 4], slice(1, 3), 2)):
        assert torch.equal(table[index], whole[index])


def test_the_rows_that_an_index_names_are_read(rows):
    table, _ = rows
    for index, count in ((3, 1), (slice(0, 10, 2), 5), (MASK, int(MASK.sum())), ([1, 1, -1], 3), ((4, 2), 1)):
        table.counters.reset()
        table[index]
        assert table.counters.rows == count


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (ROWS, r"ids\[0\] is 300, outside -300\.\.299"), (-ROWS - 1, r"ids\[0\] is -301, outside"),
        ([0, 5, 2**40], r"ids\[2\] is 1099511627776, outside"), (MASK[:-1], r"a mask of shape \(300,\).*\(299,\)"),
        ([True, False], r"a mask of shape \(300,\).*\(2,\)"), (slice(9, 0, -1), "a step of more than 0"),
        (slice(0.5, 3), "expected whole numbers"), (slice(0, 5, 0), "expected whole numbers"),
        (1.5, "found torch.float64"),
        (True, "found torch.bool"), ("node", "found str"), ([1, [2, 3]], "found list"), ({1: 2}, "found dict"),
        (torch.tensor([1, 2]).to_sparse(), "expected int32 or int64, a mask or a slice"),
        (torch.tensor([1, 2], dtype=torch.uint8), "found torch.uint8"),
    ],
)  # fmt: skip
def test_one_clear_error(rows, index, message):
    with pytest.raises(InputError, match=message):
        rows[0][index]


def test_a_table_on_disk(tmp_path):
    whole = np.random.default_rng(0).random((ROWS, 4), np.float32)
    whole.tofile(tmp_path / "rows")
    table = FeatureTable(tmp_path / "rows", ROWS, 4, "float32")
    for index in (3, -1, slice(2, 8, 3), [-1, 0], MASK.numpy(), (..., 2)):
        np.testing.assert_array_equal(table[index], whole[index])
