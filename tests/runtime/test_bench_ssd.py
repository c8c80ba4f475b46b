"""The ssd benchmark runs, small, and reports what it says."""

from __future__ import annotations

import shutil

import pytest

from tiering.bench.ssd import ssd_bench
from tiering.errors import InputError


@pytest.mark.parametrize("row_bytes", [512])
def test_small_run(tmp_path, row_bytes):
    fio = shutil.which("fio") is not None
    result = ssd_bench(
        tmp_path, size="2MiB", row_bytes=row_bytes, engine="threads", depth=4, batch_rows=100, seconds=0.05, repeats=1
    )
    assert result["ours"][0] > 0
    assert result["rows"][0] >= result["ours"][0]
    assert result["memmap"][0] > 0
    assert (result["ratio"] is not None) == fio == bool(result["fio"])
    assert list(tmp_path.iterdir()) == []


def test_bad_row_size(tmp_path):
    with pytest.raises(InputError, match="row_bytes: expected"):
        ssd_bench(tmp_path, row_bytes=1000)
