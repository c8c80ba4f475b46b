"""Files being written: blocks in any order, or pieces front to back; killed anywhere and continued; checksums equal."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiering.artifacts import checksum, file_writer
from tiering.artifacts.checksum import BLOCK_BYTES, checksum_file, file_digests
from tiering.artifacts.direct_io import aligned_bytes
from tiering.artifacts.file_writer import FileWriter
from tiering.artifacts.journal import JOURNAL, Journal
from tiering.artifacts.writer import ArtifactWriter
from tiering.errors import InternalError, StorageError
from tiering.formats.scores import Scores

SIZE = 3 * BLOCK_BYTES + 4096 * 3 + 17


@pytest.fixture(scope="module")
def content():
    data = aligned_bytes(SIZE)
    data[:] = np.random.default_rng(0).integers(0, 256, SIZE, np.uint8)
    return data


def piece(content, first, count=1):
    return content[first * BLOCK_BYTES : (first + count) * BLOCK_BYTES]


@pytest.mark.slow
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
        checksum = file.digests()
    assert np.array_equal(np.fromfile(tmp_path / "file", np.uint8), content)
    assert checksum == file_digests(tmp_path / "file")


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
    again.close()


def test_data_that_is_not_aligned(tmp_path, content):
    with FileWriter(tmp_path / "file", 1000) as file:
        file.write(0, content[1:1001])
        assert file.digests() == file_digests(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == content[1:1001].tobytes()


def test_an_empty_file(tmp_path):
    with FileWriter(tmp_path / "file", 0) as file:
        assert file.missing() == []
        assert file.digests() == file_digests(tmp_path / "file")


@pytest.mark.parametrize(("first", "begin", "end"), [(0, 0, 100), (3, 0, BLOCK_BYTES), (4, 0, 1)])
def test_only_whole_blocks(tmp_path, content, first, begin, end):
    with FileWriter(tmp_path / "file", SIZE) as file, pytest.raises(InternalError, match="no whole blocks"):
        file.write(first, content[begin:end])


@pytest.mark.slow
def test_blocks_of_an_earlier_run_are_there(tmp_path, content):
    folder = tmp_path / "run"
    folder.mkdir()
    journal = Journal.begin(folder, {})
    with FileWriter(folder / "file", SIZE, journal, "indices") as file:
        file.write(2, piece(content, 2))
        file.write(0, piece(content, 0))
    journal.close()
    again = Journal.reopen(folder / JOURNAL)
    assert again is not None
    with FileWriter(folder / "file", SIZE, again, "indices") as file:
        assert file.missing() == [1, 3]
        file.write(1, piece(content, 1))
        file.write(3, piece(content, 3))
        assert file.digests() == file_digests(folder / "file")
    assert np.array_equal(np.fromfile(folder / "file", np.uint8), content)
    with FileWriter(folder / "other", SIZE, again, "data") as file:
        assert file.missing() == [0, 1, 2, 3]
    (folder / "file").unlink()
    with FileWriter(folder / "file", SIZE, again, "indices") as file:
        assert file.missing() == [0, 1, 2, 3], "the file is gone: nothing of it is there"
    again.close()


@pytest.mark.slow
def test_in_an_artifact(tmp_path, content):
    values = content[: SIZE // 8 * 8].view(np.float64)
    body = {"method": "m", "graph_digest": "xxh3-128:" + "0" * 32, "node_types": ["node"], "columns": ["feature"]}

    def write(out, stop):
        with ArtifactWriter(out, "scores", identity={"stage": "score"}) as writer:
            with writer.file("nodes/node/feature", "float64", values.shape) as file:
                begun = file.missing()
                for block in begun:
                    if stop is not None and block == stop:
                        raise StorageError(28, "no space left")
                    file.write(block, piece(values.view(np.uint8), block))
            writer.commit(body, {"stage": "score"})
        return begun

    with pytest.raises(StorageError):
        write(tmp_path / "S", 2)
    assert write(tmp_path / "S", None) == [2, 3]
    scores = Scores.open(tmp_path / "S")
    assert scores.manifest.files["nodes/node/feature"].checksum == checksum_file(tmp_path / "S/nodes/node/feature")
    assert np.array_equal(scores.values().view(np.uint8), values.view(np.uint8))
    assert [path.name for path in tmp_path.iterdir()] == ["S"]


# --- front to back

BLOCK, PIECE = 16384, 4096


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(checksum, "BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(file_writer, "PIECE_BYTES", PIECE)


def random_bytes(size, seed=0):
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
        assert again is not None
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


def test_rows_of_any_type_and_strides(small_blocks, tmp_path):
    rows = random_bytes(60_000).view(np.float32).reshape(-1, 5)[::3]
    with FileWriter(tmp_path / "file", rows.nbytes) as file:
        for first in range(0, rows.shape[0], 7):
            file.append(rows[first : first + 7], first * 20)
    np.testing.assert_array_equal(np.fromfile(tmp_path / "file", np.float32).reshape(-1, 5), rows)


def test_a_gap_and_too_much_are_bugs(small_blocks, tmp_path):
    with FileWriter(tmp_path / "file", 100) as file:
        file.append(random_bytes(10))
        with pytest.raises(InternalError, match="10 bytes at 11 do not follow 10"):
            file.append(random_bytes(10), 11)
        with pytest.raises(InternalError, match="do not follow"):
            file.append(random_bytes(91))


def test_a_file_that_got_too_little_is_not_recorded(small_blocks, tmp_path):
    recorded = []
    with (
        pytest.raises(InternalError, match="2 of 2 blocks were not written"),
        FileWriter(tmp_path / "file", BLOCK + 100, finished=recorded.append) as file,
    ):
        file.append(random_bytes(PIECE))
    assert recorded == []


def test_errors_of_the_disk_come_out(small_blocks, tmp_path, monkeypatch):
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
