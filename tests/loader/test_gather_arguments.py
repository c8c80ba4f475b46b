"""What `gather` is given by mistake, and more rows than memory: errors of the package, whose text says what to do."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest
import torch
from child_process import in_child

from tiering.errors import BudgetError, InputError
from tiering.memory import release_unused

pytestmark = pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")


@pytest.fixture
def table(kit, build):
    return build(kit.small_graph()).features(engine="threads")


@pytest.mark.parametrize("ids", [
    torch.tensor([1, 2], dtype=torch.bfloat16), torch.tensor([1.0, 2.0]), torch.tensor([True, False]),
    torch.tensor([1, 2]).to_sparse(), torch.tensor([1, 2], device="meta"), torch.tensor(1),
    torch.tensor([1, 2], dtype=torch.uint8), np.array([True, False]), np.array([1, 2], np.uint64), np.array([1.0]),
    np.array(["1"]), [1, [2, 3]], [1 << 70], ["node"], None, "12", {1: 2}, object(),
], ids=lambda ids: f"{type(ids).__name__}-{getattr(ids, 'dtype', '')}")  # fmt: skip
def test_ids(table, ids):
    for gather in (table.gather, table.gather_numpy):
        with pytest.raises(InputError, match=r"^ids: expected "):
            gather(ids)


@pytest.mark.parametrize("out", [
    [1], (), "out", 1.5, np.zeros((2, 8), np.float32), torch.zeros(2, 8, dtype=torch.bfloat16), torch.zeros(8, 2).T,
    torch.zeros(2, 8).to_sparse(), torch.zeros(1, 8).expand(2, 8),
], ids=lambda out: type(out).__name__)  # fmt: skip
def test_out(table, out):
    with pytest.raises(InputError, match=r"^out: expected a .*tensor"):
        table.gather([0, 1], out=out)


@pytest.mark.parametrize("out", [
    [1], 1.5, torch.zeros(2, 8), np.zeros((2, 8)), np.zeros((8, 2), np.float32).T, np.zeros((2, 9), np.float32),
], ids=lambda out: type(out).__name__)  # fmt: skip
def test_out_of_numpy(table, out):
    with pytest.raises(InputError, match=r"^out: expected a .*array"):
        table.gather_numpy([0, 1], out=out)


@pytest.mark.parametrize("call", ["gather", "gather_numpy"])
@pytest.mark.parametrize("room", [0.1, 0.6, 1.5, pytest.param(2.5, marks=pytest.mark.slow), 4.0])
def test_more_rows_than_memory(kit, build, call, room):
    """In an address space with room for a part of what the gather needs: refused, or done."""
    table = build(kit.small_graph()).features(engine="threads", threads=2)
    ids = np.full(1 << 23, 299, np.int64)
    ids[0] = 0
    rows_bytes = ids.size * table.row_bytes

    def gather() -> str:
        release_unused()  # what earlier tests left would make room
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limit = used + int(rows_bytes * room)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        try:
            getattr(table, call)(ids)
        except BudgetError as error:
            return str(error)
        return "gathered"

    said = in_child(gather)
    assert said == "gathered" or said.endswith(
        "node type 'node': no memory to gather 8,388,608 rows (256 MiB); gather fewer ids at a time"
    ), said
    assert room > 1 or said != "gathered"


def test_absurd_counts(table):
    """Ids that take no memory themselves: every one the same element."""
    for ids in (np.broadcast_to(np.int64(5), 1 << 45), torch.zeros(1, dtype=torch.int64).expand(1 << 45)):
        for gather in (table.gather, table.gather_numpy):
            with pytest.raises(BudgetError, match=r"ids: no memory for .*; gather fewer at a time"):
                gather(ids)
