"""Ctrl-C and a disk that vanishes, at any moment of any stage: one line, an exit code, and the same command goes on."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from trials import STAGES, Trials


def disturb(trials: Trials, luck: random.Random, fault: str, rounds: int) -> None:
    """Disturb runs somewhere; each must say so in one line and leave a state from which the next ends well."""
    struck = 0
    for number in range(rounds):
        trials.begin()
        at = luck.randrange(trials.calls)
        answer = trials.run("--threads", str(luck.choice([1, 3])), fault=fault, at=at)
        story = f"trial {number}, {fault} at call {at} {answer['last']}"
        lines = [line for line in str(answer["err"]).splitlines() if not line.startswith(("note: ", "["))]
        assert answer["code"] in (0, 130 if fault == "interrupt" else 1), f"{story}: {answer}"
        if answer["code"] != 0:
            struck += 1
            assert len(lines) == 1, f"{story}: {answer}"
            start = "error: " if fault == "error" else "interrupted"
            if fault == "interrupt" and (trials.unfinished() or (trials.folder / "made").exists()):
                start += "; what is finished is kept, go on with: tiering "
            assert lines[0].startswith(start), f"{story}: {answer}"
            assert fault == "error" or (lines[0] == "interrupted") == (start == "interrupted"), f"{story}: {answer}"
        if fault == "error" and answer["code"] != 0:
            assert lines[0].endswith("Input/output error"), f"{story}: {answer}"
        trials.whole()
        trials.finish(story, 2)
    assert struck >= rounds // 2
    print(f"campaign {fault}: {rounds} trials, {struck} struck, 0 lost, 0 wrong")


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["interrupt", "error"])
@pytest.mark.parametrize("stage", STAGES)
def test_disturbed(start: Callable[..., Trials], stage: str, fault: str) -> None:
    disturb(start(stage), random.Random(f"{fault} {stage}"), fault, 1)


@pytest.mark.long
@pytest.mark.parametrize("fault", ["interrupt", "error"])
@pytest.mark.parametrize("stage", STAGES)
def test_disturbed_often(start: Callable[..., Trials], stage: str, fault: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    disturb(start(stage), random.Random(seed), fault, 100)
