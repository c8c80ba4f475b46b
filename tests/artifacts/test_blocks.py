"""Files made in blocks: any order, killed and continued, with the checksum of the same bytes written front to back."""

from __future__ import annotations

import numpy as np
import pytest

from tiering.artifacts import blocks
from tiering.artifacts.blocks import BlockFile, aligned_bytes
from tiering.artifacts.checksum import BLOCK_BYTES, checksum_file, file_digests
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


@pytest.mark.parametrize("direct", [True, False])
def test_any_order(tmp_path, content, direct, monkeypatch):
    if not direct:
        monkeypatch.setattr(blocks, "open_direct", lambda path: None)
    with BlockFile(tmp_path / "file", SIZE) as file:
        assert file.missing() == [0, 1, 2, 3]
        file.write(3, piece(content, 3))
        file.write(1, piece(content, 1, 2))
        assert file.missing() == [0]
        with pytest.raises(InternalError, match="1 of 4 blocks were not written"):
            file.digests()
        file.write(0, piece(content, 0))
        checksum = file.digests()
    np.testing.assert_array_equal(np.fromfile(tmp_path / "file", np.uint8), content)
    assert checksum == file_digests(tmp_path / "file")


def test_blocks_of_a_file_that_went_are_not_believed_of_the_next(tmp_path, content):
    """A power cut may take a file that the journal knows; a kill may follow while it is made again."""
    journal = Journal.begin(tmp_path, {"stage": "import"})
    with BlockFile(tmp_path / "file", SIZE, journal, "file") as file:
        file.write(0, piece(content, 0, 2))
    (tmp_path / "file").unlink()
    with BlockFile(tmp_path / "file", SIZE, journal, "file") as file:
        file.write(1, piece(content, 1))
    journal.close()
    again = Journal.reopen(tmp_path / JOURNAL)
    with BlockFile(tmp_path / "file", SIZE, again, "file") as file:
        assert file.missing() == [0, 2, 3]
    again.close()


def test_data_that_is_not_aligned(tmp_path, content):
    with BlockFile(tmp_path / "file", 1000) as file:
        file.write(0, content[1:1001])
        assert file.digests() == file_digests(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == content[1:1001].tobytes()


def test_an_empty_file(tmp_path):
    with BlockFile(tmp_path / "file", 0) as file:
        assert file.missing() == []
        assert file.digests() == file_digests(tmp_path / "file")


@pytest.mark.parametrize(("first", "begin", "end"), [(0, 0, 100), (3, 0, BLOCK_BYTES), (4, 0, 1)])
def test_only_whole_blocks(tmp_path, content, first, begin, end):
    with BlockFile(tmp_path / "file", SIZE) as file, pytest.raises(InternalError, match="no whole blocks"):
        file.write(first, content[begin:end])


def test_blocks_of_an_earlier_run_are_there(tmp_path, content):
    folder = tmp_path / "run"
    folder.mkdir()
    journal = Journal.begin(folder, {})
    with BlockFile(folder / "file", SIZE, journal, "indices") as file:
        file.write(2, piece(content, 2))
        file.write(0, piece(content, 0))
    journal.close()
    again = Journal.reopen(folder / JOURNAL)
    assert again is not None
    with BlockFile(folder / "file", SIZE, again, "indices") as file:
        assert file.missing() == [1, 3]
        file.write(1, piece(content, 1))
        file.write(3, piece(content, 3))
        assert file.digests() == file_digests(folder / "file")
    np.testing.assert_array_equal(np.fromfile(folder / "file", np.uint8), content)
    with BlockFile(folder / "other", SIZE, again, "data") as file:
        assert file.missing() == [0, 1, 2, 3]
    (folder / "file").unlink()
    with BlockFile(folder / "file", SIZE, again, "indices") as file:
        assert file.missing() == [0, 1, 2, 3], "the file is gone: nothing of it is there"
    again.close()


def test_in_an_artifact(tmp_path, content):
    values = content[: SIZE // 8 * 8].view(np.float64)
    body = {"method": "m", "graph_digest": "xxh3-128:" + "0" * 32, "node_types": ["node"], "columns": ["feature"]}

    def write(out, stop):
        with ArtifactWriter(out, "scores", identity={"stage": "score"}) as writer:
            with writer.blocks("nodes/node/feature", "float64", values.shape) as file:
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
    np.testing.assert_array_equal(scores.values().view(np.uint8), values.view(np.uint8))
    assert [path.name for path in tmp_path.iterdir()] == ["S"]
