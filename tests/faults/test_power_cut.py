"""A power cut at any moment of any stage: what was not synced is lost or torn, and the same command ends as ever."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from calls import Change, read_log
from campaign import Campaign
from power import Disk
from trials import STAGES, Trials


class Recorded:
    """A stage and the log of all changes that it makes."""

    def __init__(self, trials: Trials, log: Path) -> None:
        self.trials = trials
        trials.record(log)
        self.changes: list[Change] = list(read_log(log))
        self.named = max(at for at, change in enumerate(self.changes) if change.kind in "RX")

    def cut(self, luck: random.Random) -> bool:
        """Cut the run short somewhere, then run the same command; return whether there was an output before."""
        trials, changes = self.trials, self.changes
        near = self.named + luck.randint(-15, 25) if luck.random() < 0.5 else luck.randint(1, len(changes))
        end = min(len(changes), max(1, near))
        trials.begin()
        disk = Disk(trials.folder)
        for change in changes[:end]:
            disk.apply(change)
        disk.cut(luck)
        story = f"cut after change {end} of {len(changes)}: {changes[end - 1].kind} {changes[end - 1].path}"
        output = (trials.folder / trials.stage.out).exists()
        for path in artifacts(trials.folder):
            trials.check(path, story)
        trials.whole(story)
        trials.finish(story, luck.choice([1, 3]))
        return output


def artifacts(folder: Path) -> Iterator[Path]:
    """What can be opened in a directory."""
    for path in sorted(folder.iterdir()):
        if (path / "manifest.json").is_file() and not path.name.startswith("."):
            yield path
        elif path.is_dir() and not path.name.startswith("."):
            yield from artifacts(path)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["import by buckets", "layout", "layout in place of another"])
def test_power_cut(start_watched, tmp_path, stage):
    recorded, luck = Recorded(start_watched(stage), tmp_path / "log"), random.Random(1)
    for _ in range(6):
        recorded.cut(luck)


@pytest.mark.long
def test_power_cuts(start_watched, tmp_path):
    stages = functools.cache(lambda stage: Recorded(start_watched(stage), tmp_path / "log"))

    def trial(luck: random.Random) -> str:
        return "with an output" if stages(luck.choice(list(STAGES))).cut(luck) else "without an output"

    Campaign("power-cuts").run(trial)
