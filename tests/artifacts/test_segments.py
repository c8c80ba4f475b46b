"""Scratch files of segments: what was appended is read again, in order, whatever is read ahead."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiering.artifacts import reader
from tiering.artifacts.direct_io import aligned_bytes, padded
from tiering.artifacts.reader import SegmentFile
from tiering.errors import StorageError


def fill(path, sizes, seed=0):
    random = np.random.default_rng(seed)
    file, contents = SegmentFile(path, sum(map(padded, sizes))), []
    for size in sizes:
        data = aligned_bytes(padded(size))
        data[:] = random.integers(0, 256, data.size, np.uint8)
        file.write(data, file.add(size))
        contents.append(data[:size].copy())
    return file, contents


def buffers_of(sizes, memory=0):
    return [aligned_bytes(max([padded(size) for size in sizes] + [memory // 4096 * 4096])) for _ in range(2)]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(0, 20_000), max_size=20), memory=st.integers(0, 200_000), direct=st.booleans())
def test_read_again_in_order(tmp_path, sizes, memory, direct):
    with pytest.MonkeyPatch.context() as patch:
        if not direct:
            patch.setattr(reader, "open_direct", lambda path: None)
        file, contents = fill(tmp_path / "file", sizes)
        found = [segment.copy() for segment in file.read(buffers_of(sizes, memory))]
    assert [each.size for each in found] == sizes
    for one, other in zip(found, contents, strict=True):
        np.testing.assert_array_equal(one, other)
    file.remove()
    file.remove()
    assert not (tmp_path / "file").exists()


def test_a_file_that_was_cut(tmp_path):
    file, _ = fill(tmp_path / "file", [9000, 9000])
    os.truncate(tmp_path / "file", 10_000)
    with pytest.raises(StorageError, match="ends at byte 10000"):
        list(file.read(buffers_of([9000])))
    file.remove()
