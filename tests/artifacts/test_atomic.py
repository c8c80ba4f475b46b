"""Output directories are whole or absent: errors, kills, other writers, replaced outputs."""

import os

import numpy as np
import pytest

from tiering.artifacts import atomic
from tiering.artifacts.atomic import OutputDirectory, exchange
from tiering.artifacts.journal import JOURNAL
from tiering.artifacts.writer import ArtifactWriter
from tiering.errors import BusyError, ExistsError, InputError, MissingError, StorageError
from tiering.formats.scores import Scores
from tiering.version import __version__

BODY = {"method": "m", "graph_digest": "xxh3-128:" + "0" * 32, "node_types": ["node"], "columns": ["feature"]}


def write_scores(out, values, **options):
    with ArtifactWriter(out, "scores", **options) as writer:
        writer.put("nodes/node/feature", np.asarray(values, np.float64))
        writer.commit(BODY, {"stage": "score"})
    return Scores.open(out)


def test_an_existing_output_is_kept_without_force_and_replaced_with_it(tmp_path):
    write_scores(tmp_path / "S", [1.0])
    with pytest.raises(ExistsError, match="give `force=True`"):
        write_scores(tmp_path / "S", [2.0])
    assert Scores.open(tmp_path / "S").values()[0] == 1.0
    with pytest.raises(RuntimeError), ArtifactWriter(tmp_path / "S", "scores", force=True):
        raise RuntimeError("boom")
    assert Scores.open(tmp_path / "S").values()[0] == 1.0
    assert write_scores(tmp_path / "S", [3.0], force=True).values()[0] == 3.0
    assert [path.name for path in tmp_path.iterdir()] == ["S"]


IDENTITY = {"stage": "score", "options": {"method": "m"}, "inputs": {"graph": "xxh3-128:1"}}


def write_two(out, error=None, identity=IDENTITY, **options):
    """Write two files, with an error between them; return which were there already."""
    names = ("nodes/node/feature", "nodes/other/feature")
    with ArtifactWriter(out, "scores", identity=identity, **options) as writer:
        had = [writer.has(name) for name in names]
        for name, there in zip(names, had, strict=True):
            if not there:
                writer.put(name, np.arange(3.0))
            if error is not None:
                raise error
        writer.commit({**BODY, "node_types": ["node", "other"]}, {"stage": "score"})
    return had


@pytest.mark.parametrize("error", [KeyboardInterrupt(), StorageError(28, "disk full"), MemoryError()])
def test_the_same_run_goes_on(tmp_path, error):
    with pytest.raises(type(error)):
        write_two(tmp_path / "S", error)
    assert [path.name for path in tmp_path.iterdir()] == [".S.partial"]
    with pytest.raises(MissingError):
        Scores.open(tmp_path / "S")
    assert write_two(tmp_path / "S") == [True, False]
    assert write_two(tmp_path / "T") == [False, False]
    assert [sorted(p.name for p in tmp_path.iterdir())] == [["S", "T"]]
    assert Scores.open(tmp_path / "S").digest == Scores.open(tmp_path / "T").digest
    assert write_scores(tmp_path / "U", [1.0]).digest != write_scores(tmp_path / "V", [2.0]).digest
    assert Scores.open(tmp_path / "S").problems("full") == []


@pytest.mark.parametrize("error", [InputError("bad"), RuntimeError("a bug"), AssertionError()])
def test_errors_of_input_and_bugs_leave_nothing(tmp_path, error):
    with pytest.raises(type(error)):
        write_two(tmp_path / "S", error)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("identity", "force", "version"), [
    ({**IDENTITY, "options": {"method": "n"}}, False, __version__),
    (IDENTITY, False, "0.0.7"), ({**IDENTITY, "inputs": {}}, True, __version__), (None, False, __version__),
])  # fmt: skip
def test_another_run_begins_anew(tmp_path, monkeypatch, capsys, identity, force, version):
    with pytest.raises(KeyboardInterrupt):
        write_two(tmp_path / "S", KeyboardInterrupt())
    monkeypatch.setattr(atomic, "__version__", version)
    assert write_two(tmp_path / "S", identity=identity, force=force) == [False, False]
    assert [path.name for path in tmp_path.iterdir()] == ["S"]
    why = "other options or inputs" if version == __version__ else f"version {__version__} of tiering"
    assert f"removed the output of an unfinished run with {why}" in capsys.readouterr().err


def test_a_changed_input_is_refused(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        write_two(tmp_path / "S", KeyboardInterrupt())
    changed = {**IDENTITY, "inputs": {"graph": "xxh3-128:2"}}
    with pytest.raises(InputError, match=r"graph: changed since .*expected xxh3-128:1, found xxh3-128:2.*`force=True`"):
        write_two(tmp_path / "S", identity=changed)
    with pytest.raises(InputError, match="expected no such input, found xxh3-128:3"):
        write_two(tmp_path / "S", identity={**IDENTITY, "inputs": {**IDENTITY["inputs"], "also": "xxh3-128:3"}})
    assert write_two(tmp_path / "S") == [True, False], "a refusal loses nothing"


def test_a_file_that_was_cut_since_is_made_again(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        write_two(tmp_path / "S", KeyboardInterrupt())
    os.truncate(tmp_path / ".S.partial/nodes/node/feature", 8)
    assert write_two(tmp_path / "S") == [False, False]


def test_a_file_half_made_again_is_not_believed(tmp_path):
    """Two files that belong together: one went, so both are made again, and that is stopped."""
    names = ("nodes/node/feature", "nodes/other/feature")
    with pytest.raises(KeyboardInterrupt), ArtifactWriter(tmp_path / "S", "scores", identity=IDENTITY) as writer:
        for name in names:
            writer.put(name, np.arange(3.0))
        raise KeyboardInterrupt
    (tmp_path / ".S.partial" / names[1]).unlink()
    with pytest.raises(KeyboardInterrupt), ArtifactWriter(tmp_path / "S", "scores", identity=IDENTITY) as writer:
        assert not writer.has(*names)
        writer.put(names[1], np.arange(3.0))
        with writer.file(names[0], "float64", (3,)):
            raise KeyboardInterrupt
    with ArtifactWriter(tmp_path / "S", "scores", identity=IDENTITY) as writer:
        assert not writer.has(*names)


def test_a_swap(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    if not exchange(tmp_path / "a", tmp_path / "b"):
        pytest.skip("this file system swaps no names")
    assert (tmp_path / "a" / "b").exists() and (tmp_path / "b" / "a").exists()
    with pytest.raises(OSError, match="No such file"):
        exchange(tmp_path / "a", tmp_path / "c")


@pytest.mark.parametrize("swaps", [True, False])
def test_stopped_when_it_had_its_name(tmp_path, monkeypatch, swaps):
    if not swaps:
        monkeypatch.setattr(atomic, "exchange", lambda first, second: False)
    write_scores(tmp_path / "S", [1.0])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(OutputDirectory, "_end", raise_interrupt)
        write_scores(tmp_path / "S", [2.0], force=True, identity=IDENTITY)
    assert Scores.open(tmp_path / "S").values()[0] == 2.0
    assert len(list(tmp_path.iterdir())) == 2, "what was replaced is still there, hidden"
    with pytest.raises(ExistsError):
        write_scores(tmp_path / "S", [3.0], identity=IDENTITY)
    assert [path.name for path in tmp_path.iterdir()] == ["S"]
    assert sorted(path.name for path in (tmp_path / "S").iterdir()) == ["checksums", "manifest.json", "nodes"]
    assert write_scores(tmp_path / "S", [4.0], force=True, identity=IDENTITY).values()[0] == 4.0
    assert [path.name for path in tmp_path.iterdir()] == ["S"]


def raise_interrupt(*arguments):
    raise KeyboardInterrupt


def test_settling(tmp_path, monkeypatch):
    OutputDirectory.recover(tmp_path / "S")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(OutputDirectory, "_end", raise_interrupt)
        write_scores(tmp_path / "S", [2.0], identity=IDENTITY)
    assert (tmp_path / "S" / JOURNAL).exists()
    OutputDirectory.recover(tmp_path / "S")
    assert not (tmp_path / "S" / JOURNAL).exists()
    (tmp_path / "S").rename(tmp_path / ".S.old")  # a kill between two renames
    OutputDirectory.recover(tmp_path / "S")
    assert Scores.open(tmp_path / "S").values()[0] == 2.0
    for begin in (OutputDirectory, OutputDirectory.recover):
        with OutputDirectory(tmp_path / "T"), pytest.raises(BusyError, match=str(os.getpid())):
            begin(tmp_path / "T")
