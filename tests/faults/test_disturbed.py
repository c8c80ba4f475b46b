"""Ctrl-C and a disk that vanishes, at any moment of any stage: one line, an exit code, and the same command goes on."""

from __future__ import annotations

import functools
import random

import pytest
from campaign import Campaign
from trials import STAGES, Trials


def disturb(trials: Trials, luck: random.Random, fault: str) -> bool:
    """Disturb a run somewhere; return whether it ended by that.

    It must say so in one line and leave a state from which the next run ends well.
    """
    trials.begin()
    at = luck.randrange(trials.calls)
    answer = trials.run("--threads", str(luck.choice([1, 3])), fault=fault, at=at)
    story = f"{fault} at call {at} {answer['last']}"
    lines = [line for line in str(answer["err"]).splitlines() if not line.startswith(("note: ", "["))]
    assert answer["code"] in (0, 130 if fault == "interrupt" else 1), f"{story}: {answer}"
    if answer["code"] != 0:
        assert len(lines) == 1, f"{story}: {answer}"
        start = "error: " if fault == "error" else "interrupted"
        if fault == "interrupt" and (trials.unfinished() or (trials.folder / "made").exists()):
            start += "; what is finished is kept, go on with: tiering "
        assert lines[0].startswith(start), f"{story}: {answer}"
        assert fault == "error" or (lines[0] == "interrupted") == (start == "interrupted"), f"{story}: {answer}"
    if fault == "error" and answer["code"] != 0:
        assert lines[0].endswith("Input/output error"), f"{story}: {answer}"
    trials.whole(story)
    trials.finish(story, 2)
    return bool(answer["code"])


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["interrupt", "error"])
@pytest.mark.parametrize("stage", STAGES)
def test_disturbed(start, stage, fault):
    assert disturb(start(stage), random.Random(f"{fault} {stage}"), fault)


@pytest.mark.long
def test_interrupts(start):
    stages = functools.cache(start)

    def trial(luck: random.Random) -> str:
        stage, fault = stages(luck.choice(list(STAGES))), luck.choice(["interrupt", "error"])
        return f"ended by {fault}" if disturb(stage, luck, fault) else f"finished in spite of {fault}"

    Campaign("interrupts").run(trial)
