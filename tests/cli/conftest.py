"""Artifacts of the tiny dataset: made once, and put back where they were made for each test that asks for them."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from ..conftest import CommandResult, write_tiny_dataset


@pytest.fixture(scope="session")
def make() -> Callable[..., CommandResult]:
    """Run a command in process, as `tiering_cli` does, for fixtures of several tests."""
    from tiering.cli.main import main

    def run(*arguments: object) -> CommandResult:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main([str(argument) for argument in arguments])
        return CommandResult(code, out.getvalue(), err.getvalue())

    return run


@pytest.fixture(scope="session")
def prepared(make, tmp_path_factory) -> Path:
    """The directory that `chain` puts back; a copy of all that it holds lies beside it."""
    folder = tmp_path_factory.mktemp("chain") / "work"
    write_tiny_dataset(folder / "data")
    for line in (
        "import @/data --out @/graph",
        "score @/graph --method wrpr --out @/scores",
        "score @/graph --method degree --out @/degree",
        "reorder @/graph --scores @/scores --out @/reordered",
        "layout @/reordered --cpu 20% --ssd @/ssd --out @/layout",
        "export @/layout --out @/exported",
    ):
        make(*line.replace("@", str(folder)).split()).ok()
    shutil.copytree(folder, folder.with_name("copy"))
    return folder


@pytest.fixture
def chain(prepared: Path) -> Path:
    """A directory with ``data``, ``graph``, ``scores`` (wrpr), ``degree``, ``reordered``, ``layout``, ``exported``."""
    shutil.rmtree(prepared)
    shutil.copytree(prepared.with_name("copy"), prepared)
    return prepared
