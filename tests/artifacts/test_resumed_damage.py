"""What a stopped run has left is damaged before the next one goes on: what is damaged is made again, with a note."""

import random
import shutil

import numpy as np
import pytest
from damage import flip
from recorded_keys import recording
from toy_datasets import chain, toy_dataset, tree_bytes

from tiering import pipeline
from tiering.artifacts import checksum, file_writer
from tiering.artifacts.file_writer import FileWriter
from tiering.artifacts.journal import JOURNAL, Journal
from tiering.artifacts.writer import ArtifactWriter
from tiering.errors import FormatError, StorageError
from tiering.formats.scores import Scores
from tiering.graph.build import build_graph

BLOCK = 4096
NOTE = "blocks of an earlier run are damaged and are written again"
STAGES = {
    "import": lambda folder, out: build_graph(
        toy_dataset(folder / "data", 9, min_nodes=100, max_nodes=120, featureless=0).dataset, out
    ),
    "score": lambda folder, out, **options: pipeline.score_graph(folder / "graph", out, "wrpr", **options),
    "reorder": lambda folder, out, **options: pipeline.reorder_graph(
        folder / "graph", folder / "scores", out, features=True, **options
    ),
    "layout": lambda folder, out, **options: pipeline.layout(
        folder / "reordered", out, gpu="15%", peer="3x9%", cpu="20%", ssd=[out.with_name("a"), out.with_name("b")],
        **options,
    ),
    "export": lambda folder, out, **options: pipeline.commands.export_layout(
        folder / "reordered", out, original_order=True, **options
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resumed")
    chain(toy_dataset(folder / "data", 9, min_nodes=100, max_nodes=120, featureless=0), folder)
    return folder


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch, inputs):
    monkeypatch.setattr(file_writer.checksum, "BLOCK_BYTES", BLOCK)


def left_in(folder):
    """Files that a stopped run has left, but for its journal and links to its inputs."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and "partial" in str(path)]
    files = [path for path in files if path.name not in (JOURNAL, "layout") and path.stat().st_size]
    return [path for path in files if path.stat().st_nlink == 1]


@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize("name", STAGES)
def test_a_flipped_bit_in_every_file(inputs, tmp_path, name, share, capsys):
    stage, luck, folder = STAGES[name], random.Random(f"{name} {share}"), tmp_path / "run"
    folder.mkdir()
    with recording() as keys:
        stage(inputs, folder / "out")
    expected = tree_bytes(folder)
    shutil.rmtree(folder)
    folder.mkdir()
    with recording(int(share * (len(keys) - 1))), pytest.raises(StorageError, match="stopped here"):
        stage(inputs, folder / "out")
    files = left_in(folder)
    assert files
    for path in files:
        flip(path, luck.randrange(8 * path.stat().st_size))
    capsys.readouterr()
    stage(inputs, folder / "out")
    assert NOTE in capsys.readouterr().err or (name, share) == ("score", 0.5), "which begins again"
    assert tree_bytes(folder) == expected


def test_a_damaged_journal(inputs, tmp_path):
    stage, luck, folder = STAGES["layout"], random.Random(0), tmp_path / "run"
    folder.mkdir()
    with recording() as keys:
        stage(inputs, folder / "out")
    expected = tree_bytes(folder)
    for _ in range(4):
        shutil.rmtree(folder)
        folder.mkdir()
        with recording(len(keys) - 1), pytest.raises(StorageError):
            stage(inputs, folder / "out")
        journal = folder / ".out.partial" / JOURNAL
        flip(journal, luck.randrange(8 * journal.stat().st_size))
        stage(inputs, folder / "out")
        assert tree_bytes(folder) == expected


def test_without_verification_it_is_taken_as_it_is(inputs, tmp_path):
    """`--no-verify` reads what is on disk, of the inputs and of an earlier run alike; a check finds the damage."""
    with recording() as keys:
        STAGES["score"](inputs, tmp_path / "counted")
    with recording(len(keys) - 1), pytest.raises(StorageError):
        STAGES["score"](inputs, tmp_path / "out", verify=False)
    flip(next(path for path in left_in(tmp_path) if path.name == "feature"), 0)
    STAGES["score"](inputs, tmp_path / "out", verify=False)
    assert Scores.open(tmp_path / "out").problems("full")
    with pytest.raises(FormatError, match="differ from what was written"):
        pipeline.reorder_graph(inputs / "graph", tmp_path / "out", tmp_path / "reordered")


def test_what_is_there_is_read_once(tmp_path, monkeypatch):
    """A file that was compared, or written by this run, is not read when it is asked for again."""
    values = np.random.default_rng(0).random(3 * BLOCK // 8)
    body = {"method": "m", "graph_digest": "xxh3-128:" + "0" * 32, "node_types": ["node"], "columns": ["feature"]}
    with pytest.raises(StorageError), ArtifactWriter(tmp_path / "S", "scores", identity={"stage": "score"}) as writer:
        writer.put("nodes/node/feature", values)
        raise StorageError(28, "no space left")
    read = []
    plain = checksum.block_digests
    monkeypatch.setattr(
        checksum, "block_digests", lambda path, blocks, *rest: [read.extend(blocks), plain(path, blocks, *rest)][1]
    )
    with ArtifactWriter(tmp_path / "S", "scores", identity={"stage": "score"}) as writer:
        assert writer.has("nodes/node/feature") and writer.has("nodes/node/feature")
        assert read == [0, 1, 2]
        writer.put("nodes/node/other", values)
        assert writer.has("nodes/node/other")
        assert read == [0, 1, 2]
        (writer.path / "nodes/node/other").unlink()
        del writer._files["nodes/node/other"]
        writer.commit(body, {"stage": "score"})


def test_only_damaged_blocks_are_made_again(tmp_path, capsys):
    data = np.random.default_rng(0).integers(0, 256, 5 * BLOCK + 17, np.uint8)
    journal = Journal.begin(tmp_path, {})
    with FileWriter(tmp_path / "file", data.size, journal, "f", header=b"h" * 4096) as file:
        file.write(0, data[: 4 * BLOCK])
    journal.close()
    for place in (5, 4096 + 2 * BLOCK + 9):  # in the header, and in block 2
        flip(tmp_path / "file", 8 * place)
    again = Journal.reopen(tmp_path / JOURNAL)
    with FileWriter(tmp_path / "file", data.size, again, "f", header=b"h" * 4096) as file:
        assert file.missing() == [2, 4, 5]
        file.append(data)
    again.close()
    assert f"file: 1 of 4 {NOTE}" in capsys.readouterr().err
    assert (tmp_path / "file").read_bytes() == b"h" * 4096 + data.tobytes()
