"""One call of the operating system fails, in native code too: a line says so, and the same command then ends well."""

from __future__ import annotations

import functools
import random
import re
from pathlib import Path

import pytest
from campaign import Campaign
from trials import STAGES, Trials

MESSAGES = {"EIO": "Input/output error", "ENOSPC": r"no space left: \S+ \w+ needed, \S+ \w+ free; make room .*"}


def refuse(trials: Trials, inputs: Path, luck: random.Random) -> bool:
    """Fail a call of a run; return whether the run ended by that."""
    places, count = [str(trials.folder), str(inputs)], count_calls(trials, inputs)
    trials.begin()
    at, code, threads = luck.randrange(count), luck.choice(list(MESSAGES)), luck.choice([1, 3])
    answer = trials.run("--threads", str(threads), fault="refuse", at=at, errno=code, below=places)
    story = f"call {at}: {answer}"
    assert answer["code"] in (0, 1), story
    if answer["code"] == 1:
        lines = [line for line in str(answer["err"]).splitlines() if not line.startswith(("note: ", "["))]
        assert len(lines) == 1, story
        assert re.fullmatch(f"error: .*: {MESSAGES[answer['errno']]}", lines[0]), story
    trials.whole(story)
    trials.finish(story, 2)
    return bool(answer["code"])


@functools.cache
def count_calls(trials: Trials, inputs: Path) -> int:
    """Number of calls of an undisturbed run."""
    trials.begin()
    return int(trials.run("--threads", "1", fault="refuse", below=[str(trials.folder), str(inputs)])["count"])


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["import", "layout by a scatter"])
def test_a_call_fails(start_watched, inputs, stage):
    trials, luck = start_watched(stage), random.Random(1)
    for _ in range(4):
        refuse(trials, inputs, luck)


@pytest.mark.long
def test_refused_calls(start_watched, inputs):
    stages = functools.cache(start_watched)

    def trial(luck: random.Random) -> str:
        return "refused" if refuse(stages(luck.choice(list(STAGES))), inputs, luck) else "finished without the call"

    Campaign("refused-calls").run(trial)
