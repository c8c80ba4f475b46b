"""However few files a process may open, a command either makes its output and ends well, or leaves none and says so."""

from __future__ import annotations

import gc
import io
import itertools
import resource
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from child_process import in_child

import tiering
from tiering import pipeline
from tiering.cli.main import main

COMMANDS = {
    "import": "import data",
    "score": "score graph --method degree",
    "reorder": "reorder graph --scores scores --features",
    "layout": "layout reordered --cpu 10% --ssd ssd",
    "export": "export layout --original-order",
}


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chain")
    tiering.generate_dataset(folder / "data", nodes=300, edges=900, dim=8)
    main(["import", str(folder / "data"), "--out", str(folder / "graph")])  # in this process: children have it loaded
    pipeline.score_graph(folder / "graph", folder / "scores", "degree")
    pipeline.reorder_graph(folder / "graph", folder / "scores", folder / "reordered")
    pipeline.layout(folder / "reordered", folder / "layout", cpu="10%", ssd=[folder / "images"])
    return folder


def run(folder: Path, out: Path, line: str, more: int) -> tuple[int, str]:
    """Exit code and standard error of a command that may open so many more files than are open now."""
    gc.collect()  # files that earlier tests left open would give room as they go
    command, *words = line.split()
    paths = [str(folder / word) if (folder / word).exists() else word for word in words]
    paths = [str(out.parent / word) if word == "ssd" else word for word in paths]
    free = (number for number in itertools.count() if not Path(f"/proc/self/fd/{number}").exists())
    limit, errors = next(itertools.islice(free, more, None)), io.StringIO()
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    with redirect_stdout(io.StringIO()), redirect_stderr(errors):
        code = main([command, *paths, "--out", str(out)])
    return code, errors.getvalue().strip()


@pytest.mark.parametrize("name", COMMANDS)
def test_few_open_files(chain: Path, tmp_path: Path, name: str) -> None:
    codes, said = [], ""
    for more in (2, 16, 44, 160):
        out = tmp_path / str(more) / "out"
        code, errors = in_child(lambda out=out, more=more: run(chain, out, COMMANDS[name], more))  # type: ignore[misc]
        assert code in (0, 1), errors
        assert out.exists() == (code == 0), f"{more} files: {errors}"
        if code:
            assert errors.count("\n") == 0, errors
            assert "Too many open files; raise the limit (`ulimit -Hn`) and run the command again" in errors
            said += errors
        codes.append(code)
    assert {0, 1} == set(codes)
    assert codes == sorted(codes, reverse=True)
    if name != "export":
        assert "raise the limit (`ulimit -Hn`) and run the command again" in said
