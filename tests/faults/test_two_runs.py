"""Two runs on one output at once, in two processes: the second is refused and told who is at work."""

from __future__ import annotations

import functools
import random
import re
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from campaign import Campaign
from crash_injection import CrashInjection
from trials import STAGES, Trials, error_lines
from warm_processes import interpret, stopped

import tiering
from tiering.errors import BusyError, MissingError

REFUSED = r"error: .*(: process \d+ is writing it, since .*; wait |already exists)"


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["import", "score", "layout"])
def test_the_second_is_refused(inputs, tmp_path, stage):
    argv = STAGES[stage].argv.replace("{}", str(inputs)).replace("@", str(tmp_path)).split()
    argv += [] if stage == "import" else ["--no-verify"]  # the inputs' checksums are of other blocks
    out = tmp_path / STAGES[stage].out
    first = stopped(*argv)
    try:
        for more in ((), ("--force",)):
            second = run(*argv, *more)
            assert second.returncode == 1
            wanted = rf"error: {out}: process {first.pid} is writing it, since \d{{4}}-\d\d-\d\d [\d:]{{8}}; wait .*\n"
            assert re.fullmatch(wanted, second.stderr), second.stderr
    finally:
        first.kill()
        first.wait()
    assert (tmp_path / f".{out.name}.lock").read_text().startswith(f"{first.pid} "), "a dead process's lock is there"
    assert run(*argv).returncode == 0
    assert tiering.check(out) == []
    assert not [name for name in (path.name for path in tmp_path.iterdir()) if name.startswith(".")]


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return interpret("import sys; from tiering.cli.main import main; sys.exit(main(sys.argv[1:]))", *argv)


@pytest.fixture
def servers():
    """Several servers of processes, which run commands at once."""
    with ExitStack() as stack:
        yield [stack.enter_context(CrashInjection()) for _ in range(3)]


def read_until(stop: threading.Event, trials: Trials) -> int:
    """Open the output again and again; return how often it was whole. Anything between old and new is an error."""
    out, whole = trials.folder / trials.stage.out, 0
    while not stop.is_set():
        with suppress(MissingError, BusyError):
            if "layout" in trials.stage.out:
                rows = trials.rows()
                assert rows in (None, trials.rows_before, trials.rows_expected), f"rows of neither version of {out}"
                whole += rows is not None
            elif trials.stage.out != "export":
                tiering.open(out)
                whole += 1
    return whole


def run_together(trials: Trials, servers: list[CrashInjection], luck: random.Random) -> str:
    """Run one command several times at once, under a reader, then once more; return how the first runs ended."""
    servers = servers[: luck.choice([2, 3, 3])]
    trials.begin()
    runs = []
    for _ in servers:
        more = ["--threads", luck.choice("12"), *(["--force"] if luck.random() < 0.5 else [])]
        killed = {"fault": "delay", "at": luck.uniform(0.0, 0.3)} if luck.random() < 0.25 else {}
        runs.append((luck.choice([0.0, luck.uniform(0.0, 0.2)]), more, killed))

    def run(server: CrashInjection, wait: float, more: list[str], killed: dict[str, Any]) -> dict[str, Any]:
        time.sleep(wait)
        return trials.run(*more, server=server, **killed)

    stop = threading.Event()
    with ThreadPoolExecutor(len(servers) + 1) as pool:
        reader = pool.submit(read_until, stop, trials)
        try:
            answers = list(pool.map(run, servers, *zip(*runs, strict=True)))
        finally:
            stop.set()
        reader.result()
    ends = [(*each, answer["code"], answer["err"]) for each, answer in zip(runs, answers, strict=True)]
    story = f"{trials.stage.argv}: {ends}"
    for answer in answers:
        lines = error_lines(answer)
        assert answer["code"] in (0, 1, -9), story
        assert answer["code"] != 1 or (len(lines) == 1 and re.match(REFUSED, lines[0])), story
    codes = [answer["code"] for answer in answers]
    assert 0 in codes or -9 in codes, f"nobody wrote: {story}"
    trials.whole(story)
    trials.finish(story, 2)
    return f"with {codes.count(-9) or 'none'} killed"


@pytest.mark.long
def test_concurrent_runs(start, servers):
    stages = functools.cache(start)
    names = [name for name, stage in STAGES.items() if stage.out != "made/layout"]
    Campaign("concurrent").run(lambda luck: run_together(stages(luck.choice(names)), servers, luck))
