"""Stages that are disturbed: what they are run on, and what must come out in the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from crash_injection import CrashInjection, clear
from toy_datasets import tree_bytes

import tiering

Tree = dict[str, bytes]
Rows = dict[str, bytes]

REPORT = (*(f"{word}: " for word in ("read", "edges", "attributes", "not read", "guessed", "changed")), "table ")
"""Beginnings of the lines of what was imported."""


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
TABLES = (
    "import --relation user:rates:movie={}/ratings.csv:u,m --edge-data t --relation user:how:user={}/links.csv "
    "--type-column how --nodes movie={}/movies.csv:m --features x --label y --out @/graph --edge-ids"
)
STAGES = {
    "import": Stage("import {}/data --out @/graph --edge-ids", "graph"),
    "import by buckets": Stage("import {}/data --out @/graph --edge-ids", "graph", "buckets"),
    "import of tables": Stage(TABLES, "graph", "buckets"),
    "score": Stage("score {}/graph --out @/scores --method presample --fanouts 3,3 --batch-size 64", "scores"),
    "reorder": Stage("reorder {}/graph --scores {}/scores --out @/graph", "graph"),
    "reorder --features": Stage("reorder {}/graph --scores {}/scores --out @/graph --features", "graph"),
    "layout": Stage(LAYOUT, "layout"),
    "layout of coded rows": Stage(f"{LAYOUT} --dtype int8", "layout"),
    "layout of coded rows by passes": Stage(f"{LAYOUT} --dtype int8", "layout", "passes"),
    "layout of coded rows by a scatter": Stage(f"{LAYOUT} --dtype int8", "layout", "scatter"),
    "layout by passes": Stage(LAYOUT, "layout", "passes"),
    "layout by a scatter": Stage(LAYOUT, "layout", "scatter"),
    "layout in place of another": Stage(f"{LAYOUT} --force", "layout", before=[LAYOUT.replace("20%", "40%")]),
    "layout in place of itself": Stage(f"{LAYOUT} --force", "layout", before=[LAYOUT]),
    "export": Stage("export {}/reordered --out @/export --original-order", "export"),
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


def done(answer: dict[str, object]) -> None:
    assert answer["code"] == 0, answer["err"]


class Trials:
    """A stage, what it makes when nobody disturbs it, and how many calls that takes."""

    def __init__(self, crash_injection: CrashInjection, stage: Stage, inputs: Path, folder: Path) -> None:
        self.folder, self.stage, self._crashes, self._inputs = folder, stage, crash_injection, inputs
        self.begin()
        self.before, self.rows_before = tree_bytes(folder), self.rows()
        answer = self.run()
        done(answer)
        self.names: list[str] = answer["calls"]
        self.calls = len(self.names)
        self.expected, self.rows_expected = tree_bytes(folder), self.rows()
        assert not [name for name in self.expected if "/." in f"/{name}"]

    def record(self, log: Path) -> None:
        """Write down every change that the stage makes."""
        self.begin()
        done(self.run("--threads", "2", fault="record", log=str(log), below=[str(self.folder)]))

    def begin(self) -> None:
        """The state in which the stage finds its output."""
        clear(self.folder)
        (self.folder / "chain.toml").write_text(CHAIN.replace("{}", str(self._inputs)))
        for command in self.stage.before:
            done(self._crashes.run(*self._argv(command)))

    def _argv(self, command: str) -> list[str]:
        return command.replace("{}", str(self._inputs)).replace("@", str(self.folder)).split()

    def run(
        self, *more: str, fault: str = "none", server: CrashInjection | None = None, **options: object
    ) -> dict[str, Any]:
        command = [*self._argv(self.stage.argv), *more]
        return (server or self._crashes).run(*command, variant=self.stage.variant, fault=fault, **options)

    def rows(self) -> Rows | None:
        """All rows of the layout that is made, by type, as training gathers them; ``None`` where there is none."""
        out = self.folder / self.stage.out
        if not out.exists() or "layout" not in self.stage.out:
            return None
        found = {}
        with tiering.open(out) as layout:
            for name in layout.feature_types:
                table = layout.features(name, threads=1)
                found[name] = table.gather_numpy(np.arange(table.shape[0])).tobytes()
        return found

    def whole(self, story: str = "") -> None:
        """After a kill: the output is what it was, or what it should become, at most with the journal beside.

        It opens as it lies there, before anything is run.
        """
        prefix = f"{self.stage.out}/"
        found = part_of(tree_bytes(self.folder), prefix)
        found.pop(f"{prefix}journal.jsonl", None)
        rows = {"before": self.rows_before, "after": self.rows_expected}
        trees = {"before": part_of(self.before, prefix), "after": part_of(self.expected, prefix)}
        state = next((name for name, tree in trees.items() if tree == found), None)
        assert state, f"{story}: {sorted(found)}"
        assert self.rows() == rows[state], f"{story}: {state}"

    def unfinished(self) -> bool:
        """Whether a run has left something to be gone on with."""
        out = self.folder / self.stage.out
        return (out.parent / f".{out.name}.partial" / "journal.jsonl").exists()

    def check(self, path: Path, story: str) -> None:
        """Every byte of an artifact is what its manifest says."""
        answer = self._crashes.run("check", path, "--full")
        assert answer["code"] == 0, f"{story}: {answer}"

    def finish(self, story: str, threads: int) -> None:
        """The same command to its end."""
        answer = self.run("--threads", str(threads))
        taken = "already exists" in str(answer["err"])  # it was killed when all was done
        assert answer["code"] == 0 or taken, f"{story}: {answer}"
        found = tree_bytes(self.folder)
        different = sorted(name for name in {*found, *self.expected} if found.get(name) != self.expected.get(name))
        assert not different, f"{story}: {different}"


def error_lines(answer: dict[str, Any]) -> list[str]:
    """What a command printed on standard error, without notes and progress."""
    lines = str(answer["err"]).splitlines()
    return [line for line in lines if not line.startswith(("note: ", "[", *REPORT)) and ": rows of " not in line]


def part_of(tree: Tree, prefix: str) -> Tree:
    return {name: data for name, data in tree.items() if name.startswith(prefix)}
