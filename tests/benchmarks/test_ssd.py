"""The ssd benchmark runs, small, and reports what it says."""

from __future__ import annotations

import shutil

import pytest

from tiering.bench.ssd import random_rows
from tiering.errors import InputError


def test_small_run(tmp_path):
    fio = shutil.which("fio") is not None
    result = random_rows(
        tmp_path, size="2MiB", row_bytes=512, engine="threads", depth=4, batch_rows=100, seconds=0.05, repeats=2
    ).to_json()
    assert len(result["seconds"]) == 2
    peers = {peer["name"]: peer for peer in result["peers"]}
    assert peers["numpy memmap, cold"]["ratio"] > 0
    assert ("ratio" in peers["fio"]) == fio
    assert list(tmp_path.iterdir()) == []


def test_bad_row_size(tmp_path):
    with pytest.raises(InputError, match="row_bytes: expected"):
        random_rows(tmp_path, row_bytes=1000)
