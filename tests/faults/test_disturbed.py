"""A stage that is killed, interrupted, or refused a call by the system, at any moment: nothing half-made opens.

One line says what happened, and the same command goes on to the same bytes.
"""

from __future__ import annotations

import functools
import random
import re
from pathlib import Path

import pytest
from campaign import Campaign
from trials import STAGES, Trials, error_lines

MESSAGES = {"EIO": "Input/output error", "ENOSPC": r"no space left: \S+ \w+ needed, \S+ \w+ free; make room .*"}


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


def disturb(trials: Trials, luck: random.Random, fault: str) -> bool:
    """Interrupt a run somewhere, or let its disk vanish; return whether it ended by that."""
    trials.begin()
    at = luck.randrange(trials.calls)
    answer = trials.run("--threads", str(luck.choice([1, 3])), fault=fault, at=at)
    story, lines = f"{fault} at call {at} {answer['last']}", error_lines(answer)
    assert answer["code"] in (0, 130 if fault == "interrupt" else 1), f"{story}: {answer}"
    if answer["code"] != 0:
        assert len(lines) == 1, f"{story}: {answer}"
        start = "error: " if fault == "error" else "interrupted"
        if fault == "interrupt" and (trials.unfinished() or (trials.folder / "made").exists()):
            start += "; finished steps are kept; resume with: tiering "
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


def refuse(trials: Trials, inputs: Path, luck: random.Random) -> bool:
    """Fail a call of a run, native ones too; return whether the run ended by that."""
    places, count = [str(trials.folder), str(inputs)], count_calls(trials, inputs)
    trials.begin()
    at, code, threads = luck.randrange(count), luck.choice(list(MESSAGES)), luck.choice([1, 3])
    answer = trials.run("--threads", str(threads), fault="refuse", at=at, errno=code, below=places)
    story, lines = f"call {at}: {answer}", error_lines(answer)
    assert answer["code"] in (0, 1), story
    if answer["code"] == 1:
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
def test_kills(start):
    stages = functools.cache(start)

    def trial(luck: random.Random) -> str:
        stage = stages(luck.choice(list(STAGES)))
        killed = 0
        while not killed:
            killed = kill(stage, luck)
        return f"killed {killed} times"

    Campaign("kills").run(trial)


@pytest.mark.long
def test_interrupts(start):
    stages = functools.cache(start)

    def trial(luck: random.Random) -> str:
        stage, fault = stages(luck.choice(list(STAGES))), luck.choice(["interrupt", "error"])
        return f"ended by {fault}" if disturb(stage, luck, fault) else f"finished in spite of {fault}"

    Campaign("interrupts").run(trial)


@pytest.mark.long
def test_refused_calls(start_watched, inputs):
    stages = functools.cache(start_watched)

    def trial(luck: random.Random) -> str:
        return "refused" if refuse(stages(luck.choice(list(STAGES))), inputs, luck) else "finished without the call"

    Campaign("refused-calls").run(trial)
