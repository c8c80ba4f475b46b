"""Commands on random paths: a user's files are never changed or removed, and nothing half-made is published.

Outputs, SSD directories and stores are drawn from everything there is, what lies in it and above it, under names by
symbolic links, bind mounts and ``..`` too.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from campaign import Campaign
from crash_injection import CrashInjection
from small_inputs import write_npy

COMMANDS = (
    "import {source} --out {out} {tasks}",
    "score {graph} --out {out} --method wrpr {tasks}",
    "reorder {graph} --scores {scores} --out {out} {tasks}",
    "reorder {graph} --scores {scores} --out {out} --features",
    "layout {reordered} --out {out} --cpu 20% --ssd {ssd}",
    "layout {reordered} --out {out} --cpu 20% --ssd {ssd} --ssd {more}",
    "export {layout} --out {out}",
    "generate {out} --nodes 60 --edges 100",
    "run {chain}",
)
INPUTS = {
    "source": ["data"], "graph": ["graph", "layout/graph"], "scores": ["scores"], "reordered": ["reordered"],
    "layout": ["layout", "graph"],
}  # fmt: skip
ARTIFACTS = ("graph", "scores", "reordered", "layout")
KNOWN = (
    "data", "data/edge_index.npy", "graph", "graph/nodes", "scores", "reordered", "layout", "layout/graph", "ssd",
    "exported", "home", "home/thesis.txt", "empty", "new", "new/deep", ".", "..", "a link", "a mount",
)  # fmt: skip
CHAIN = '[dataset]\npath = "{source}"\n[layout]\ncpu = "20%"\nssd = ["{ssd}"]\n[output]\ndir = "{out}"\n'
Tree = dict[str, bytes | None]


class User:
    """A user's directory ``work`` with a dataset, all that can be made of it, and files of other programs."""

    def __init__(self, server: CrashInjection, folder: Path) -> None:
        self.server, self.home, self.work = server, folder / "user", folder / "user" / "work"
        self.mount, self._pristine = self.work / "a mount", folder / "pristine"
        self.work.mkdir(parents=True)
        write_npy(self.work / "data")
        for command in (
            "import data --out graph",
            "score graph --out scores --method wrpr",
            "reorder graph --scores scores --out reordered",
            "layout reordered --out layout --cpu 20% --ssd ssd",
            "export layout --out exported",
        ):
            answer = self.run(*command.split())
            assert answer["code"] == 0, answer
        for name in ("home/thesis.txt", "ssd/thesis.txt", "../thesis.txt"):
            (self.work / name).parent.mkdir(exist_ok=True)
            (self.work / name).write_text("years of work")
        (self.work / "empty").mkdir()
        self.mount.mkdir()
        shutil.copytree(self.home, self._pristine, symlinks=True)

    def run(self, *argv: str) -> dict[str, Any]:
        """Run a command in the directory."""
        return self.server.run(*argv, cwd=str(self.work))

    def restore(self) -> None:
        """Put everything back to where it was."""
        self.unmount()
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.copytree(self._pristine, self.home, symlinks=True)

    def unmount(self) -> None:
        """End the bind mount, if there is one."""
        while subprocess.run(["umount", str(self.mount)], capture_output=True, check=False).returncode == 0:
            pass

    def give_names(self, rng: random.Random) -> None:
        """Give two directories a second name, by a link and by a bind mount where that is permitted."""
        (self.work / "a link").symlink_to(
            self.work / rng.choice(["data", "graph", "layout", "home", ".", "ssd", "new"])
        )
        target = self.work / rng.choice(["data", "graph", "graph/nodes", "layout", "home", "ssd", "."])
        subprocess.run(["mount", "--bind", str(target), str(self.mount)], capture_output=True, check=False)

    def tree(self) -> Tree:
        """All files and directories but those under second names, with their content."""
        found: Tree = {}
        for folder, folders, files in os.walk(self.home):
            folders[:] = [name for name in folders if Path(folder, name) != self.mount]
            for path in (Path(folder, name) for name in (*folders, *files)):
                found[str(path.relative_to(self.home))] = path.read_bytes() if path.is_file() else None
        return found

    def problems(self, name: str) -> str:
        """What ``tiering check --full`` says about an artifact; nothing if it is whole."""
        answer = self.run("check", name, "--full")
        return "" if answer["code"] == 0 else f"{name}: {answer['out']}{answer['err']}"


def draw_path(rng: random.Random) -> str:
    """A path that there is, one in it, above it or beside it, by one of its names."""
    path = rng.choice(KNOWN)
    form = rng.choice(["{}", "{}", "{}", "{}/x", "{}/x", "{}/..", ".{}.partial", "./{}/", "data/../{}", "{}/nodes"])
    return form.format(path)


def draw_command(user: User, rng: random.Random) -> tuple[list[str], str, list[str]]:
    """Draw a command; return its arguments, its output and its inputs."""
    inputs = {name: rng.choice([*paths, *(["a link", "a mount"] if rng.random() < 0.1 else [])])
              for name, paths in INPUTS.items()}  # fmt: skip
    out, ssd, more, store = (draw_path(rng) for _ in range(4))
    if rng.random() < 0.5:
        out, ssd = (out, rng.choice(["ssd", "fresh"])) if rng.random() < 0.5 else (rng.choice(["new", "layout"]), ssd)
    places = {**inputs, "out": out, "ssd": ssd, "more": more, "chain": "chain.toml"}
    command = rng.choice(COMMANDS)
    tasks = ["--executor", "local", "--shards", "2", "--store", store] if rng.random() < 0.3 else []
    (user.work / "chain.toml").write_text(CHAIN.format(**places))
    argv = [word for part in command.split() for word in (tasks if part == "{tasks}" else [part.format(**places)])]
    if rng.random() < 0.6:
        argv.append("--force")
    used = [inputs[name] for name in inputs if f"{{{name}}}" in command]
    return argv, f"{out}/layout" if argv[0] == "run" else out, used or ["data"]


def trial(user: User, rng: random.Random) -> str:
    """Run one command on random paths; return how it ended."""
    user.restore()
    user.give_names(rng)
    argv, out, inputs = draw_command(user, rng)
    before, place = user.tree(), Path(os.path.realpath(user.work / out))
    answer = user.run(*argv)
    after = user.tree()
    mounted = subprocess.run(["findmnt", "-no", "SOURCE", str(user.mount)], capture_output=True, text=True, check=False)
    story = f"tiering {' '.join(argv)} (a link: {(user.work / 'a link').readlink()}, a mount: {mounted.stdout.strip()})"
    story = f"{story}: {answer['code']}: {answer['err'][-600:]}"
    lost = sorted(name for name, data in before.items() if data is not None and after.get(name) != data)
    assert "Traceback" not in answer["err"] and "internal error" not in answer["err"], story
    assert not [name for name in lost if "thesis" in name or name.startswith("work/data")], f"lost {lost}: {story}"
    if answer["code"] != 0:
        assert answer["code"] == 1 and answer["err"].count("error: ") == 1, story
        assert not lost, f"lost {lost[:9]}: {story}"
        new = [name for name in after if name not in before and not any(part[0] == "." for part in Path(name).parts)]
        half = [name for name in new if argv[0] != "run" and (after[name] is not None)]
        assert not half, f"left {half[:9]}: {story}"
        return "refused"
    allowed = replaced(user, before, place, argv[0] == "run")
    assert not [name for name in lost if name not in allowed], f"lost {sorted(set(lost) - allowed)[:9]}: {story}"
    whole = [name for name in ARTIFACTS if f"work/{name}" not in allowed]
    if argv[0] not in ("export", "generate"):
        whole.append(str(place))
    assert not (wrong := [text for name in whole if (text := user.problems(name))]), f"{wrong}: {story}"
    assert all((user.work / name).exists() for name in inputs), story
    return "finished"


def replaced(user: User, before: Tree, place: Path, run: bool) -> set[str]:
    """What a finished command may have removed or changed: its old output, of a chain (`run`) those of all steps, and
    the stripe files of an old layout.
    """
    steps = [place.with_name(name) for name in ARTIFACTS] if run else [place]
    outputs = [os.path.relpath(step, user.home) for step in steps]
    allowed = {name for name in before for output in outputs if name == output or name.startswith(f"{output}/")}
    if "work/layout" in outputs:
        allowed |= {name for name in before if name.startswith("work/ssd/layout.")}
    return allowed


@pytest.fixture
def user(crash_injection, tmp_path):
    found = User(crash_injection, tmp_path)
    yield found
    found.unmount()


@pytest.mark.slow
def test_some_overlaps(user):
    for number in range(8):
        trial(user, random.Random(number))


@pytest.mark.long
def test_overlaps(user):
    Campaign("overlaps").run(lambda rng: trial(user, rng))
