"""A real file system that fills up: every stage says what it needs and what is free, and goes on when there is room."""

from __future__ import annotations

import functools
import os
import random
import re
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from campaign import Campaign
from loop_disk import loop_disk
from trials import STAGES, Trials, error_lines


@pytest.fixture
def disk(tmp_path):
    with loop_disk(tmp_path / "image", tmp_path / "disk", 24 << 20) as mounted:
        yield mounted.folder


def free(disk: Path) -> int:
    return shutil.disk_usage(disk).free


def leave(disk: Path, room: int) -> None:
    """Fill the disk but for `room` bytes."""
    with (disk / "filler").open("wb") as file:
        for spare in range(0, 1 << 20, 4096):  # the file system takes some of it for itself
            with suppress(OSError):
                os.posix_fallocate(file.fileno(), 0, max(1, free(disk) - room - spare))
                return


FILLING = [
    "import",
    "score",
    "reorder --features",
    "layout",
    "layout by a scatter",
    "layout of coded rows by a scatter",
    "layout in place of another",
    "run",
]


@pytest.mark.slow
@pytest.mark.parametrize("stage", FILLING)
def test_goes_on_when_there_is_room(crash_injection, inputs, disk, stage):
    trials = Trials(crash_injection, STAGES[stage], inputs, disk / "run")
    needed = space_of(trials.folder)
    kept = [fill(trials, disk, int(share * needed)) for share in (0.02, 0.7)]
    assert any(kept) or stage.startswith("layout"), "no work was kept"  # a layout reserves all before it begins


@pytest.mark.long
def test_full_disks(crash_injection, inputs, disk):
    @functools.cache
    def begin(stage: str) -> tuple[Trials, int]:
        trials = Trials(crash_injection, STAGES[stage], inputs, disk / "run")
        return trials, space_of(trials.folder)

    def trial(luck: random.Random) -> str:
        trials, needed = begin(luck.choice(FILLING))
        return "refused, work kept" if fill(trials, disk, luck.randrange(int(0.9 * needed))) else "refused"

    Campaign("full-disks").run(trial)


def space_of(folder: Path) -> int:
    """Bytes of disk that the files below a folder take."""
    return sum({found.st_ino: found.st_blocks * 512 for found in map(Path.stat, folder.rglob("*"))}.values())


def fill(trials: Trials, disk: Path, room: int) -> bool:
    """Run a stage on a disk with so much room, then with room for all; return whether the first run left work."""
    trials.begin()
    leave(disk, room)
    answer = trials.run()
    story = f"room for {room} bytes: {answer}"
    assert answer["code"] == 1, story
    lines = error_lines(answer)
    assert len(lines) == 1, story
    words = r"error: .*: no space left: \S+ \w+ needed, \S+ \w+ free; make room or choose another"
    assert re.match(words, lines[0]), story
    kept = any((trials.folder / place).exists() for place in (f".{trials.stage.out}.partial", "made"))
    trials.whole(story)
    (disk / "filler").unlink()
    trials.finish(story, 2)
    return kept
