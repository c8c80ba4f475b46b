"""Files written front to back in blocks: pieces of any size, stopped anywhere and continued."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiering.artifacts import appended, blocks, checksum
from tiering.artifacts.appended import AppendedFile
from tiering.artifacts.checksum import file_digests
from tiering.artifacts.journal import JOURNAL, Journal
from tiering.errors import InternalError, StorageError

BLOCK, PIECE = 16384, 4096


@pytest.fixture
def small_blocks(monkeypatch):
    for module in (checksum, blocks):
        monkeypatch.setattr(module, "BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(appended, "PIECE_BYTES", PIECE)


def content(size, seed=0):
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    size=st.integers(0, 4 * BLOCK + 100),
    cuts=st.lists(st.integers(0, 4 * BLOCK + 100), max_size=6),
    stop=st.integers(0, 6),
    direct=st.booleans(),
)
def test_stopped_and_continued(small_blocks, tmp_path_factory, monkeypatch, size, cuts, stop, direct):
    folder = tmp_path_factory.mktemp("appended")
    data, ends = content(size), sorted({min(cut, size) for cut in cuts} | {size})
    with monkeypatch.context() as patch:
        if not direct:
            patch.setattr(blocks, "open_direct", lambda path: None)
        journal = Journal.begin(folder, {})
        with AppendedFile(folder / "file", size, journal, "f") as file:
            assert file.done == 0 or size == 0
            begin = 0
            for end in ends[:stop]:
                file.append(begin, data[begin:end])
                begin = end
        journal.close()
        again = Journal.reopen(folder / JOURNAL)
        assert again is not None
        with AppendedFile(folder / "file", size, again, "f") as file:
            assert file.done <= begin
            assert file.done == size if begin == size else file.done % BLOCK == 0
            assert begin - file.done < BLOCK
            # What comes again may begin anywhere before what is missing.
            at = file.done - file.done // 2
            while at < size:
                file.append(at, data[at : at + 5000])
                at += 5000
            assert file.missing() == []
            assert file.digests() == file_digests(folder / "file")
        again.close()
    np.testing.assert_array_equal(np.fromfile(folder / "file", np.uint8), data)


def test_rows_of_any_type_and_strides(small_blocks, tmp_path):
    rows = content(60_000).view(np.float32).reshape(-1, 5)[::3]
    with AppendedFile(tmp_path / "file", rows.nbytes) as file:
        for first in range(0, rows.shape[0], 7):
            file.append(first * 20, rows[first : first + 7])
    np.testing.assert_array_equal(np.fromfile(tmp_path / "file", np.float32).reshape(-1, 5), rows)


def test_a_gap_and_too_much_are_bugs(small_blocks, tmp_path):
    with AppendedFile(tmp_path / "file", 100) as file:
        file.append(0, content(10))
        with pytest.raises(InternalError, match="10 bytes at 11 do not follow 10"):
            file.append(11, content(10))
        with pytest.raises(InternalError, match="do not follow"):
            file.append(10, content(91))


def test_errors_of_the_disk_come_out(small_blocks, tmp_path, monkeypatch):
    def fail(fd, data, offset):
        if len(data) and offset >= BLOCK:
            raise OSError(5, "Input/output error")
        plain(fd, data, offset)

    plain, data = blocks.write_all, content(3 * BLOCK)
    monkeypatch.setattr(blocks, "write_all", fail)
    journal = Journal.begin(tmp_path, {})
    with (
        pytest.raises(StorageError, match="file: Input/output error"),
        AppendedFile(tmp_path / "file", data.size, journal, "f") as file,
    ):
        file.append(0, data)
    assert journal.keys("blocks f ") == ["blocks f 0"], "the first block is recorded, nothing after it"
    journal.close()
