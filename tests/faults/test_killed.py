"""SIGKILL at any moment of any stage: nothing half-made opens, and the same command goes on to the same bytes."""

from __future__ import annotations

import functools
import random

import pytest
from campaign import Campaign
from trials import STAGES, Trials


def kill(trials: Trials, luck: random.Random) -> int:
    """Kill some runs after each other, then let one live; return how many were killed."""
    killed = 0
    trials.begin()
    story = ""
    for _ in range(luck.randint(1, 3)):
        at, where = luck.randrange(trials.calls), luck.choice(["before", "after", "half"])
        threads = luck.choice([1, 2, 7])
        answer = trials.run("--threads", str(threads), fault="kill", at=at, where=where)
        story += f"{threads} threads killed {where} call {at} {answer['last']}, "
        assert answer["code"] in (0, 1, -9), f"{story}: {answer}"
        trials.whole(story)
        if answer["code"] >= 0:
            break
        killed += 1
    trials.finish(story, luck.choice([1, 3]))
    return killed


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_killed_at_some_calls(start, stage):
    trials, luck = start(stage), random.Random(f"some calls of {stage}")
    for _ in range(2):
        kill(trials, luck)


@pytest.mark.slow
def test_killed_while_it_replaces_itself(start):
    """While the images get their names, then the layout, until the old one is being removed."""
    trials, struck = start("layout in place of itself"), 0
    images = next(at for at, name in enumerate(trials.names) if name in ("rename", "replace"))
    layout = trials.names.index("exchange")
    for number, at in enumerate((*range(images - 4, images + 16, 3), *range(layout - 4, layout + 8, 3))):
        trials.begin()
        answer = trials.run("--threads", "1", fault="kill", at=at)
        struck += answer["code"] == -9
        trials.whole()
        if number % 4 == 0:
            trials.finish(f"killed before call {at} {answer['last']}", 2)
    assert struck == 11


@pytest.mark.long
def test_kills(start):
    stages = functools.cache(start)

    def trial(luck: random.Random) -> str:
        stage = stages(luck.choice(list(STAGES)))
        killed = 0
        while not killed:
            killed = kill(stage, luck)
        return f"killed {killed} times"

    Campaign("kills").run(trial)
