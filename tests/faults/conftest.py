"""Fixtures: a server of processes that crash, artifacts to work on, and trials of a stage."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

import calls
import pytest
from crash_injection import CrashInjection
from trials import STAGES, Trials, done


@pytest.fixture(scope="session")
def crash_injection():
    with CrashInjection() as server:
        yield server


@pytest.fixture(scope="session")
def watched(tmp_path_factory):
    """A server whose processes' native calls can be refused and recorded."""
    with CrashInjection(calls.build(tmp_path_factory.mktemp("calls"))) as server:
        yield server


def write_tables(folder: Path) -> None:
    """Ratings of movies by users, links of several types between users, and a table of the movies."""
    luck = random.Random(1)
    ratings = (f"{luck.randrange(0, 9000, 7)},m{luck.randrange(200)},{luck.random()}" for _ in range(3000))
    links = (f"{luck.randrange(90)},{luck.choice('abc')},{luck.randrange(90)}" for _ in range(900))
    movies = (f"m{movie},{luck.random()},{luck.choice('pq')}" for movie in range(200))
    tables = {"ratings": ("u,m,t", ratings), "links": ("src,how,dst", links), "movies": ("m,x,y", movies)}
    for name, (header, rows) in tables.items():
        (folder / f"{name}.csv").write_text("\n".join([header, *rows, ""]))


@pytest.fixture(scope="session")
def inputs(crash_injection, tmp_path_factory):
    """A dataset, and what the first three stages make of it."""
    folder = tmp_path_factory.mktemp("inputs")
    for command in (
        "generate {}/data --nodes 400 --edges 3000 --dim 100 --classes 2 --hetero",
        "import {}/data --out {}/graph --edge-ids",
        "score {}/graph --out {}/scores --method wrpr",
        "reorder {}/graph --scores {}/scores --out {}/reordered",
    ):
        done(crash_injection.run(*command.replace("{}", str(folder)).split()))
    write_tables(folder)
    return folder


@pytest.fixture
def folder(tmp_path):
    """A directory in memory, where a file and a sync cost nothing."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path) as name:
        yield Path(name)


@pytest.fixture
def start(crash_injection, inputs, folder):
    """Begin trials of a stage, by name."""
    return lambda stage: Trials(crash_injection, STAGES[stage], inputs, folder / "run")


@pytest.fixture
def start_watched(watched, inputs, folder):
    """The same where native calls are seen."""
    return lambda stage: Trials(watched, STAGES[stage], inputs, folder / "run")
