"""Files being written: blocks in any order, or pieces front to back; killed anywhere and continued; checksums equal."""

import os

import numpy as np
import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiering.artifacts import checksum, file_writer
from tiering.artifacts.checksum import file_digests
from tiering.artifacts.file_writer import FileWriter
from tiering.artifacts.journal import JOURNAL, Journal
from tiering.artifacts.storage import aligned_bytes
from tiering.errors import InternalError, StorageError

BLOCK, PIECE = 16384, 4096
SIZE = 3 * BLOCK + 4096 + 16


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(checksum, "BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(file_writer, "PIECE_BYTES", PIECE)


@pytest.fixture(scope="module")
def content():
    data = aligned_bytes(SIZE)
    data[:] = np.random.default_rng(0).integers(0, 256, SIZE, np.uint8)
    return data


def piece(content, first, count=1):
    return content[first * BLOCK : (first + count) * BLOCK]


@pytest.mark.parametrize("direct", [True, False])
def test_any_order(tmp_path, content, direct, monkeypatch):
    if not direct:
        monkeypatch.setattr(file_writer, "open_direct", lambda path: None)
    with FileWriter(tmp_path / "file", SIZE) as file:
        assert file.missing() == [0, 1, 2, 3]
        file.write(3, piece(content, 3))
        file.write(1, piece(content, 1, 2))
        assert file.missing() == [0]
        with pytest.raises(InternalError, match="1 of 4 blocks were not written"):
            file.digests()
        file.write(0, piece(content, 0))
        digests = file.digests()
    assert np.array_equal(np.fromfile(tmp_path / "file", np.uint8), content)
    assert digests == file_digests(tmp_path / "file")


def test_blocks_of_a_file_that_went_are_not_believed_of_the_next(tmp_path, content):
    """A power cut may take a file that the journal knows; a kill may follow while it is made again."""
    journal = Journal.begin(tmp_path, {"stage": "import"})
    with FileWriter(tmp_path / "file", SIZE, journal, "file") as file:
        file.write(0, piece(content, 0, 2))
    (tmp_path / "file").unlink()
    with FileWriter(tmp_path / "file", SIZE, journal, "file") as file:
        file.write(1, piece(content, 1))
    journal.close()
    again = Journal.reopen(tmp_path / JOURNAL)
    with FileWriter(tmp_path / "file", SIZE, again, "file") as file:
        assert file.missing() == [0, 2, 3]
    with FileWriter(tmp_path / "other", SIZE, again, "other") as file:
        assert file.missing() == [0, 1, 2, 3]
    again.close()


@pytest.mark.parametrize("size", [0, 1000])
def test_a_small_file_from_memory_that_is_not_aligned(tmp_path, content, size):
    with FileWriter(tmp_path / "file", size) as file:
        if size:
            file.write(0, content[1 : 1 + size])
        assert file.missing() == [] and file.digests() == file_digests(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == content[1 : 1 + size].tobytes()


@pytest.mark.parametrize(("first", "begin", "end"), [(0, 0, 100), (3, 0, BLOCK), (4, 0, 1)])
def test_only_whole_blocks(tmp_path, content, first, begin, end):
    with FileWriter(tmp_path / "file", SIZE) as file, pytest.raises(InternalError, match="not whole blocks"):
        file.write(first, content[begin:end])


def random_bytes(size, seed=0):
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    size=st.integers(0, 4 * BLOCK + 100), cuts=st.lists(st.integers(0, 4 * BLOCK + 100), max_size=6),
    stop=st.integers(0, 6), direct=st.booleans(),
)  # fmt: skip
def test_stopped_and_continued(tmp_path_factory, monkeypatch, size, cuts, stop, direct):
    folder = tmp_path_factory.mktemp("appended")
    data, ends = random_bytes(size), sorted({min(cut, size) for cut in cuts} | {size})
    with monkeypatch.context() as patch:
        if not direct:
            patch.setattr(file_writer, "open_direct", lambda path: None)
        journal = Journal.begin(folder, {})
        with FileWriter(folder / "file", size, journal, "f") as file:
            assert file.done == 0 or size == 0
            begin = 0
            for end in ends[:stop]:
                file.append(data[begin:end], begin)
                begin = end
        journal.close()
        again = Journal.reopen(folder / JOURNAL)
        with FileWriter(folder / "file", size, again, "f") as file:
            assert file.done <= begin
            assert file.done == size if begin == size else file.done % BLOCK == 0
            assert begin - file.done < BLOCK
            # What comes again may begin anywhere before what is missing.
            at = file.done - file.done // 2
            while at < size:
                file.append(data[at : at + 5000], at)
                at += 5000
            assert file.missing() == []
            assert file.digests() == file_digests(folder / "file")
        again.close()
    np.testing.assert_array_equal(np.fromfile(folder / "file", np.uint8), data)


def test_a_file_that_got_too_little_is_not_recorded(tmp_path):
    recorded = []
    with (
        pytest.raises(InternalError, match="2 of 2 blocks were not written"),
        FileWriter(tmp_path / "file", BLOCK + 100, finished=recorded.append) as file,
    ):
        file.append(random_bytes(PIECE))
    assert recorded == []


def test_errors_of_the_disk_come_out(tmp_path, monkeypatch):
    def fail(fd, data, offset):
        if len(data) and offset >= BLOCK:
            raise OSError(5, "Input/output error")
        return plain(fd, data, offset)

    plain, data = os.pwrite, random_bytes(3 * BLOCK)
    monkeypatch.setattr(os, "pwrite", fail)
    journal = Journal.begin(tmp_path, {})
    with (
        pytest.raises(StorageError, match="file: Input/output error"),
        FileWriter(tmp_path / "file", data.size, journal, "f") as file,
    ):
        file.append(data)
    assert journal.keys("blocks f ") == ["blocks f 0"], "the first block is recorded, nothing after it"
    journal.close()


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 7 * BLOCK - 5])
@pytest.mark.parametrize("threads", [1, 2, 7])
def test_file_and_definition_agree(tmp_path, size, threads):
    data = np.random.default_rng(size).bytes(size)
    (tmp_path / "x").write_bytes(data)
    digests = b"".join(xxhash.xxh3_64(data[i : i + BLOCK]).digest() for i in range(0, size, BLOCK))
    expected = "xxh3-64-b64m:" + xxhash.xxh3_64(digests).hexdigest()
    assert checksum.checksum_file(tmp_path / "x", threads) == expected


def test_sampled_digest_sees_size_and_ends(tmp_path):
    file = tmp_path / "x"
    file.write_bytes(bytes(100_000))
    first = checksum.sampled_digest(file)
    for change in (bytes(100_001), b"\1" + bytes(99_999), bytes(99_999) + b"\1"):
        file.write_bytes(change)
        assert checksum.sampled_digest(file) != first
