"""Campaigns: many random trials of one kind, counted in one line that docs/internals/reliability.md quotes.

`CAMPAIGNS` is the table of them; ``make long-test NAMES="kills flips"`` starts some of them, each in a process of its
own (`tests/campaigns.py`). Environment:

``TIERING_CAMPAIGN_COUNT``  trials of each campaign, instead of the number in the table
``TIERING_CAMPAIGN_SEED``   seed of each campaign, as its line says it; random by default
``TIERING_CAMPAIGN_TRIAL``  the number of the only trial to run, as the story of a wrong one says it
"""

from __future__ import annotations

import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pytest

LIMIT_SECONDS = 45 * 60
"""Time that a campaign may take on two processors."""
MARGIN_SECONDS = 120
"""Time kept for what a campaign does before its first trial and in its last one."""
MOST_STORIES = 20


@dataclass(frozen=True)
class Plan:
    """A campaign: its number of trials, and the test that holds it, as pytest names it."""

    count: int
    test: str


FAULTS = "tests/faults/"
CAMPAIGNS = {
    "kills": Plan(300, f"{FAULTS}test_disturbed.py::test_kills"),
    "interrupts": Plan(300, f"{FAULTS}test_disturbed.py::test_interrupts"),
    "refused-calls": Plan(300, f"{FAULTS}test_disturbed.py::test_refused_calls"),
    "power-cuts": Plan(200, f"{FAULTS}test_power_cut.py::test_power_cuts"),
    "full-disks": Plan(100, f"{FAULTS}test_full_disk.py::test_full_disks"),
    "concurrent": Plan(100, f"{FAULTS}test_two_runs.py::test_concurrent_runs"),
    "overlaps": Plan(100, f"{FAULTS}test_overlapping_paths.py::test_overlaps"),
    "flips": Plan(10_000, f"{FAULTS}test_bit_rot.py::test_flips"),
    "laundering": Plan(2_000, f"{FAULTS}test_bit_rot.py::test_laundering"),
    "images": Plan(2_000, "tests/loader/test_verify.py::test_flips_of_images"),
    "manifests": Plan(10_000, f"{FAULTS}test_damaged_manifests.py::test_manifests"),
    "graphs": Plan(1_000, f"{FAULTS}test_damaged_adjacency.py::test_damaged_graphs"),
    "fuzz": Plan(5_000, f"{FAULTS}test_fuzz.py::test_fuzz"),
    "imports": Plan(500, f"{FAULTS}test_malformed_imports.py::test_imports"),
    "texts": Plan(1_000, f"{FAULTS}test_texts.py::test_texts"),
    "eio": Plan(200, "tests/loader/test_failing_disk.py::test_eio"),
    "forks": Plan(300, "tests/loader/test_forks.py::test_forks_for_long"),
}
"""Name -> campaign, in the order of `make long-test`; docs/internals/reliability.md says what a trial does."""


class Campaign:
    """One run of a campaign.

    Parameters
    ----------
    name
        A key of `CAMPAIGNS`.
    """

    def __init__(self, name: str) -> None:
        self.name, self.plan = name, CAMPAIGNS[name]
        self.count = int(os.environ.get("TIERING_CAMPAIGN_COUNT", self.plan.count))
        self.seed = int(os.environ.get("TIERING_CAMPAIGN_SEED", random.randrange(1 << 32)))
        only = os.environ.get("TIERING_CAMPAIGN_TRIAL")
        self.trials = range(self.count) if only is None else [int(only)]
        self.outcomes, self.stories = Counter[str](), list[str]()
        self._begin = time.monotonic()

    def run(self, trial: Callable[[random.Random], str]) -> None:
        """Run all trials, print the line of counts, and fail if a trial went wrong or time ran out.

        Parameters
        ----------
        trial
            Gets random numbers of its own; returns its outcome in a word or two; raises where something is wrong.
        """
        done = 0
        for number in self.trials:
            if time.monotonic() - self._begin > LIMIT_SECONDS - MARGIN_SECONDS:
                break
            try:
                self.outcomes[trial(random.Random(f"{self.seed} {number}"))] += 1
            except (Exception, pytest.fail.Exception) as error:
                self.stories.append(f"trial {number} of seed {self.seed}: {type(error).__name__}: {error}")
                print(f"\nwrong: {self.stories[-1][:4000]}", flush=True)
            done += 1
        print(f"\n{self.line(done)}", flush=True)
        if self.stories:
            pytest.fail("\n".join(self.stories[:MOST_STORIES]), pytrace=False)
        if done < len(self.trials):
            pytest.fail(f"{done} of {len(self.trials)} trials in {LIMIT_SECONDS // 60} minutes", pytrace=False)

    def line(self, done: int) -> str:
        """The counts, as a row of the table in docs/internals/reliability.md."""
        page = (Path(__file__).parents[2] / "docs/internals/reliability.md").read_text()
        what = re.findall(rf"(?m)^\| `{self.name}` \| (.+?) \|", page)
        outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in self.outcomes.most_common())
        seconds = time.monotonic() - self._begin
        columns = (
            f"`{self.name}`", *what, f"{done:,}", outcomes, len(self.stories), f"{seconds:.0f} s",
            date.today(), self.seed,
        )  # fmt: skip
        return f"| {' | '.join(map(str, columns))} |"
