"""Text that can name no file, and a working directory that is gone: an error of this package that names the thing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tiering
from tiering import pipeline
from tiering.cli.main import main
from tiering.errors import InputError, MissingError
from tiering.formats.graph import Graph

BAD = ["a\0b", "\ud800x"]
CALLS: dict[str, Callable[[Path, str], Any]] = {
    "open": lambda _, bad: tiering.open(bad),
    "check": lambda _, bad: tiering.check(bad),
    "Graph.open": lambda _, bad: Graph.open(bad),
    "source": lambda f, bad: tiering.import_graph(bad, f / "x"),
    "out": lambda f, bad: tiering.import_graph(f / "data", f / bad),
    "work_dir": lambda f, bad: tiering.import_graph(f / "data", f / "x", work_dir=bad),
    "graph": lambda f, bad: tiering.score_graph(bad, f / "x"),
    "scores": lambda f, bad: tiering.score_graph(f / "graph", f / "x", scores={"paper": bad}),
    "train": lambda f, bad: tiering.score_graph(f / "graph", f / "x", "vip", train={"paper": bad}),
    "first": lambda f, bad: tiering.reorder_graph(f / "graph", f / "graph", f / "x", first=bad),
    "ssd": lambda f, bad: tiering.write_layout(f / "graph", f / "x", ssd=[f / "y", f / bad]),
    "access_costs": lambda f, bad: tiering.write_layout(f / "graph", f / "x", access_costs=bad),
    "layout": lambda f, bad: tiering.export_layout(bad, f / "x"),
    "generate": lambda f, bad: tiering.generate_dataset(f / bad, nodes=100, edges=100),
    "config": lambda _, bad: tiering.run_chain(bad),
    "evaluate": lambda f, bad: tiering.evaluate_scores(f / "graph", [bad]),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names")
    tiering.generate_dataset(folder / "data", nodes=100, edges=300, dim=4)
    pipeline.import_graph(folder / "data", folder / "graph")
    return folder


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", CALLS)
def test_in_python(folder: Path, name: str, bad: str) -> None:
    before = sorted(folder.iterdir())
    with pytest.raises(InputError, match=r"expected .*found .*(a\\x00b|\\ud800x|null|surrogates)"):
        CALLS[name](folder, bad)
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(
    "line",
    [
        "import BAD --out x", "import data --out BAD", "score graph --out x --from BAD",
        "score graph --out x --train BAD",
        "score graph --out x --executor local --shards 2 --store BAD", "reorder graph --scores BAD --out x",
        "layout graph --ssd BAD --out x", "export graph --out BAD", "check BAD", "info BAD", "trace BAD",
        "run BAD", "doctor BAD", "plan graph --price BAD", "generate BAD",
    ],
)  # fmt: skip
def test_on_the_command_line(line: str, bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([bad if word == "BAD" else word for word in line.split()]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: expected text that can be part of a file name, found ")
    assert error.count("\n") == 1


def test_in_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, text in enumerate(
        ('[dataset]\npath = "a\\u0000b"', '[dataset]\npath = "d"\n[layout]\nssd = ["ok", "a\\u0000b"]')
    ):
        file = tmp_path / f"{number}.toml"
        file.write_text(text)
        assert main(["run", str(file)]) == 1
        where = "[dataset]" if number == 0 else "[layout]"
        assert f"error: {file}: {where} expected text that can be part of a file name" in capsys.readouterr().err


def test_names_that_are_no_text_are_names(folder: Path) -> None:
    """Bytes that are not UTF-8 are a sound name of a file on Linux."""
    name = os.fsdecode(b"disk-\xff")
    scores = pipeline.score_graph(folder / "graph", folder / f"scores-{name}", "degree")
    reordered = pipeline.reorder_graph(folder / "graph", scores, folder / f"reordered-{name}")
    layout = pipeline.write_layout(reordered, folder / f"layout-{name}", cpu="10%", ssd=[folder / name])
    assert tiering.check(layout.path, "full") == []


@pytest.fixture
def removed(tmp_path: Path) -> Iterator[None]:
    before = Path.cwd()
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    yield
    os.chdir(before)


@pytest.mark.usefixtures("removed")
def test_the_working_directory_is_removed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["import", "data", "--out", "x"], ["info", "graph"], ["run", "chain.toml"], ["generate", "x"]):
        assert main(argv) == 1
        assert capsys.readouterr().err == "error: working directory: it was removed; change to one that exists\n"
    with pytest.raises(MissingError, match="working directory"):
        tiering.score_graph("graph", "scores")
    with pytest.raises(MissingError, match="graph: no such file"):
        tiering.open("graph")
    assert tiering.open(folder / "graph").num_nodes() == 100
