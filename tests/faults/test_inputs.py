"""What a stage reads is what a resumed run compares: every file it opens is among the inputs it writes down."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from small_inputs import SMALL_INPUTS
from toy_datasets import chain, toy_dataset
from warm_processes import interpret

from tiering import pipeline
from tiering.artifacts.journal import JOURNAL, Journal
from tiering.artifacts.writer import ArtifactWriter
from tiering.errors import InputError, StorageError

# Prints what was opened for reading below a directory; libraries in C are not seen.
WATCHED = """
import json, os, sys
from tiering.cli.main import main
opened = set()
def look(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes)) and arguments[1] in ("r", "rb", None, "rt"):
        opened.add(os.path.abspath(os.fsdecode(arguments[0])))
sys.addaudithook(look)
assert main(sys.argv[2:]) == 0
print(json.dumps(sorted(path for path in opened if path.startswith(sys.argv[1] + os.sep))))
"""


def opened_by(folder: Path, *argv: object) -> set[str]:
    process = interpret(WATCHED, folder, *argv)
    assert process.returncode == 0, process.stderr
    return set(json.loads(process.stdout.splitlines()[-1]))


@pytest.mark.parametrize("kind", SMALL_INPUTS)
def test_an_import_writes_down_every_file_it_opens(tmp_path, kind):
    source = SMALL_INPUTS[kind](tmp_path / "data")
    opened = opened_by(tmp_path / "data", "import", source, "--out", tmp_path / "graph")
    manifest = json.loads((tmp_path / "graph" / "manifest.json").read_text())
    known = set(manifest["provenance"]["inputs"])
    if kind == "parquet":
        assert known == {str(file) for file in (tmp_path / "data").iterdir()}
    else:
        assert opened and opened <= known


def stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **named: object) -> None:
        raise StorageError(5, "stopped here")

    monkeypatch.setattr(ArtifactWriter, "commit", fail)


def identity(out: Path) -> dict[str, object]:
    journal = Journal.reopen(out.parent / f".{out.name}.partial" / JOURNAL)
    assert journal is not None
    journal.close()
    return dict(journal.identity)


@pytest.mark.parametrize("kind", SMALL_INPUTS)
def test_an_import_whose_input_changed_is_refused(tmp_path, kind, monkeypatch):
    source = SMALL_INPUTS[kind](tmp_path / "data")
    with monkeypatch.context() as patch, pytest.raises(StorageError):
        stopped(patch)
        pipeline.import_graph(source, tmp_path / "graph")
    inputs = identity(tmp_path / "graph")["inputs"]
    assert isinstance(inputs, dict)
    for name in inputs:
        before = Path(name).stat()
        os.utime(name, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
        with pytest.raises(
            InputError, match=f"^{name}: changed since a run that left .*graph unfinished .*`force=True`"
        ):
            pipeline.import_graph(source, tmp_path / "graph")
        os.utime(name, ns=(before.st_atime_ns, before.st_mtime_ns))
    pipeline.import_graph(source, tmp_path / "graph")


def test_later_stages_compare_artifacts_and_feature_files(tmp_path, monkeypatch):
    toy = toy_dataset(tmp_path / "data", 4, featureless=0, min_nodes=30)
    graph, scores, reordered = chain(toy, tmp_path)
    stopped(monkeypatch)
    files = {str(tmp_path / "data" / f"{name}.bin") for name in toy.tables}
    runs = {
        "score": (lambda out: pipeline.score_graph(graph, out, "wrpr"), {"graph", "train"}),
        "reorder": (lambda out: pipeline.reorder_graph(graph, scores, out), {"graph", "scores"}),
        "features": (
            lambda out: pipeline.reorder_graph(graph, scores, out, features=True),
            {"graph", "scores"} | files,
        ),
        "layout": (lambda out: pipeline.layout(reordered, out), {"graph"} | files),
    }
    for name, (run, expected) in runs.items():
        with pytest.raises(StorageError):
            run(tmp_path / name)
        inputs = identity(tmp_path / name)["inputs"]
        assert isinstance(inputs, dict) and set(inputs) == expected, name
