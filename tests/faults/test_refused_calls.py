"""One call of the operating system fails, in native code too: a line says so, and the same command then ends well."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from trials import STAGES, Trials

MESSAGES = {"EIO": "Input/output error", "ENOSPC": r"no space left: \S+ \w+ needed, \S+ \w+ free; make room .*"}


def refuse(trials: Trials, inputs: Path, seed: int, rounds: int) -> str:
    """Fail some calls, each in a run of its own; returns the counts."""
    print(f"seed {seed}")
    luck, refused = random.Random(seed), 0
    places = [str(trials.folder), str(inputs)]
    trials.begin()
    count = trials.run("--threads", "1", fault="refuse", below=places)["count"]
    for _ in range(rounds):
        trials.begin()
        at, code, threads = luck.randrange(count), luck.choice(list(MESSAGES)), luck.choice([1, 3])
        answer = trials.run("--threads", str(threads), fault="refuse", at=at, errno=code, below=places)
        story = f"seed {seed}, call {at}: {answer}"
        assert answer["code"] in (0, 1), story
        if answer["code"] == 1:
            refused += 1
            lines = [line for line in str(answer["err"]).splitlines() if not line.startswith(("note: ", "["))]
            assert len(lines) == 1, story
            assert re.fullmatch(f"error: .*: {MESSAGES[answer['errno']]}", lines[0]), story
        trials.whole(story)
        trials.finish(story, 2)
    return f"{rounds} trials over {count} calls, {refused} refused, {rounds - refused} did without the call, 0 wrong"


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["import", "layout by a scatter"])
def test_a_call_fails(start_watched: Callable[..., Trials], inputs: Path, stage: str) -> None:
    print(f"campaign refused calls, {stage}: {refuse(start_watched(stage), inputs, 1, 4)}")


@pytest.mark.long
@pytest.mark.parametrize("stage", STAGES)
def test_calls_fail(start_watched: Callable[..., Trials], inputs: Path, stage: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"campaign refused calls, {stage}: {refuse(start_watched(stage), inputs, seed, 60)}")
