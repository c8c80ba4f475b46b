"""A power cut at any moment of any stage: what was not synced is lost or torn, and the same command ends as ever."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from calls import read_log
from power import Disk
from trials import STAGES, Trials


def cut(trials: Trials, log: Path, seed: int, rounds: int) -> str:
    """Cut a recorded run short somewhere, then run the same command; returns the counts."""
    print(f"seed {seed}")
    trials.record(log)
    luck, changes, absent = random.Random(seed), list(read_log(log)), 0
    named = max(at for at, change in enumerate(changes) if change.kind in "RX")
    moments = [luck.randrange(1, len(changes) + 1) for _ in range(rounds // 2)]
    moments += [min(len(changes), max(1, named + luck.randint(-15, 25))) for _ in range(rounds - len(moments))]
    trials.begin()
    disk, at = Disk(trials.folder), 0
    for end in sorted(moments):
        for change in changes[at:end]:
            disk.apply(change)
        at = end
        disk.cut(luck)
        story = f"seed {seed}, cut after change {at} of {len(changes)}: {changes[at - 1].kind} {changes[at - 1].path}"
        absent += not (trials.folder / trials.stage.out).exists()
        for path in artifacts(trials.folder):
            trials.check(path, story)
        trials.whole(story)
        trials.finish(story, luck.choice([1, 3]))
    return f"{rounds} trials over {len(changes)} changes, {absent} without an output, 0 wrong"


def artifacts(folder: Path) -> Iterator[Path]:
    """What can be opened in a directory."""
    for path in sorted(folder.iterdir()):
        if (path / "manifest.json").is_file() and not path.name.startswith("."):
            yield path
        elif path.is_dir() and not path.name.startswith("."):
            yield from artifacts(path)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["import by buckets", "layout", "layout in place of another"])
def test_power_cut(start_watched: Callable[..., Trials], tmp_path: Path, stage: str) -> None:
    print(f"campaign power cut, {stage}: {cut(start_watched(stage), tmp_path / 'log', 1, 6)}")


@pytest.mark.long
@pytest.mark.parametrize("stage", STAGES)
def test_power_cuts(start_watched: Callable[..., Trials], tmp_path: Path, stage: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"campaign power cut, {stage}: {cut(start_watched(stage), tmp_path / 'log', seed, 60)}")
