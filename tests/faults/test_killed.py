"""SIGKILL at any moment of any stage: nothing half-made opens, and the same command goes on to the same bytes."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from mortal import Mortal, clear
from toy_datasets import tree_bytes

Tree = dict[str, bytes]


@dataclass(frozen=True)
class Stage:
    """A command under test; ``{}`` in its arguments is the directory of the inputs, ``@`` that of the outputs."""

    argv: str
    out: str
    """What it makes."""
    variant: str = "plain"
    before: list[str] = field(default_factory=list)
    """Commands that make what it finds."""


LAYOUT = "layout {}/reordered --out @/layout --gpu 15% --peer 3x9% --cpu 20% --page 512 --ssd @/disks/a --ssd @/disks/b"
STAGES = {
    "import": Stage("import {}/data --out @/graph --edge-ids", "graph"),
    "import by windows": Stage("import {}/data --out @/graph --edge-ids", "graph", "windows"),
    "score": Stage("score {}/graph --out @/scores --method presample --fanouts 3,3 --batch-size 64", "scores"),
    "reorder": Stage("reorder {}/graph --scores {}/scores --out @/graph", "graph"),
    "reorder --features": Stage("reorder {}/graph --scores {}/scores --out @/graph --features", "graph"),
    "layout": Stage(LAYOUT, "layout"),
    "layout by passes": Stage(LAYOUT, "layout", "passes"),
    "layout by a scatter": Stage(LAYOUT, "layout", "scatter"),
    "layout in place of another": Stage(f"{LAYOUT} --force", "layout", before=[LAYOUT.replace("20%", "40%")]),
    "layout in place of itself": Stage(f"{LAYOUT} --force", "layout", before=[LAYOUT]),
    "run": Stage("run @/chain.toml", "made/layout"),
}
CHAIN = """
[dataset]
path = "{}/data"
[score]
method = "wrpr"
[layout]
gpu = "10%"
cpu = "30%"
ssd = ["disks/a", "disks/b"]
[output]
dir = "made"
"""


@pytest.fixture(scope="module")
def mortal() -> Iterator[Mortal]:
    with Mortal() as server:
        yield server


@pytest.fixture(scope="module")
def inputs(mortal: Mortal, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset, and what the first three stages make of it."""
    folder = tmp_path_factory.mktemp("inputs")
    for command in (
        "generate {}/data --nodes 300 --edges 2500 --dim 24 --classes 2 --hetero",
        "import {}/data --out {}/graph --edge-ids",
        "score {}/graph --out {}/scores --method wrpr",
        "reorder {}/graph --scores {}/scores --out {}/reordered",
    ):
        done(mortal.run(*command.replace("{}", str(folder)).split()))
    return folder


def done(answer: dict[str, object]) -> None:
    assert answer["code"] == 0, answer["err"]


class Trials:
    """A stage, what it makes when nobody disturbs it, and how many calls that takes."""

    def __init__(self, mortal: Mortal, stage: Stage, inputs: Path, folder: Path) -> None:
        self.folder, self.stage, self._mortal, self._inputs = folder, stage, mortal, inputs
        self.begin()
        self.before = tree_bytes(folder)
        answer = self.run()
        done(answer)
        self.calls = int(answer["calls"])
        self.expected = tree_bytes(folder)
        assert not [name for name in self.expected if "/." in f"/{name}"]

    def begin(self) -> None:
        """The state in which the stage finds its output."""
        clear(self.folder)
        (self.folder / "chain.toml").write_text(CHAIN.replace("{}", str(self._inputs)))
        for command in self.stage.before:
            done(self._mortal.run(*self._argv(command)))

    def _argv(self, command: str) -> list[str]:
        return command.replace("{}", str(self._inputs)).replace("@", str(self.folder)).split()

    def run(self, *more: str, fault: str = "none", **options: object) -> dict[str, object]:
        command = [*self._argv(self.stage.argv), *more]
        return self._mortal.run(*command, variant=self.stage.variant, fault=fault, **options)

    def whole(self) -> None:
        """After a kill: the output is what it was, or what it should become."""
        prefix = f"{self.stage.out}/"
        found = part_of(tree_bytes(self.folder), prefix)
        assert found in (part_of(self.before, prefix), part_of(self.expected, prefix))

    def finish(self, story: str, threads: int) -> None:
        """The same command to its end."""
        answer = self.run("--threads", str(threads))
        taken = "already exists" in str(answer["err"])  # it was killed when all was done
        assert answer["code"] == 0 or taken, f"{story}: {answer}"
        found = tree_bytes(self.folder)
        different = sorted(name for name in {*found, *self.expected} if found.get(name) != self.expected.get(name))
        assert not different, f"{story}: {different}"


def part_of(tree: Tree, prefix: str) -> Tree:
    return {name: data for name, data in tree.items() if name.startswith(prefix)}


def kill(trials: Trials, luck: random.Random, rounds: int) -> None:
    """Kill some runs after each other, then let one live."""
    for number in range(rounds):
        trials.begin()
        story = f"trial {number}"
        for _ in range(luck.randint(1, 3)):
            at, where = luck.randrange(trials.calls), luck.choice(["before", "after", "half"])
            threads = luck.choice([1, 2, 7])
            answer = trials.run("--threads", str(threads), fault="kill", at=at, where=where)
            story += f", {threads} threads killed {where} call {at} {answer['last']}"
            assert answer["code"] in (0, 1, -9), f"{story}: {answer}"
            trials.whole()
            if answer["code"] >= 0:
                break
        trials.finish(story, luck.choice([1, 3]))


@pytest.fixture
def start(mortal: Mortal, inputs: Path, tmp_path: Path) -> Iterator[Callable[..., Trials]]:
    """Begin trials of a stage; in memory, where a sync costs nothing, unless `on_disk`."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path) as memory:

        def begin(stage: str, on_disk: bool = False) -> Trials:
            return Trials(mortal, STAGES[stage], inputs, (tmp_path if on_disk else Path(memory)) / "run")

        yield begin


@pytest.mark.parametrize("stage", STAGES)
def test_killed_at_some_calls(start: Callable[..., Trials], stage: str) -> None:
    kill(start(stage), random.Random(f"some calls of {stage}"), 6)


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_killed_at_every_call(start: Callable[..., Trials], stage: str) -> None:
    trials = start(stage)
    for at in range(trials.calls):
        for where in ("before", "half"):
            trials.begin()
            answer = trials.run("--threads", "1", fault="kill", at=at, where=where)
            trials.whole()
            trials.finish(f"killed {where} call {at} {answer['last']}", 2)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    kill(trials, random.Random(seed), 50)


@pytest.mark.parametrize("stage", ["import by windows", "layout", "run"])
def test_killed_from_outside(start: Callable[..., Trials], stage: str) -> None:
    trials, luck = start(stage, on_disk=True), random.Random(stage)
    for number in range(4):
        trials.begin()
        delay = luck.uniform(0.0, 0.25)
        trials.run(fault="delay", at=delay)
        trials.whole()
        trials.finish(f"trial {number}, killed after {delay:.3f} s", 2)
