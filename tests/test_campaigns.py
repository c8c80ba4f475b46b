"""Campaigns are known by name: in the table, in pytest and in docs/internals/reliability.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from campaign import CAMPAIGNS, Campaign


def test_each_campaign_is_a_long_test(repository: Path) -> None:
    for name, plan in CAMPAIGNS.items():
        file, _, test = plan.test.partition("::")
        source = (repository / file).read_text()
        assert re.search(rf"@pytest.mark.long\ndef {test}\(", source), name
        assert f'Campaign("{name}")' in source


def test_docs_name_campaigns_that_there_are(repository: Path) -> None:
    text = (repository / "docs/internals/reliability.md").read_text()
    assert set(re.findall(r"(?m)^\| `([\w-]+)` \|.*\|$", text.partition("## Campaigns")[2])) <= set(CAMPAIGNS)


def test_each_promise_has_tests(repository: Path) -> None:
    promises = re.findall(r"(?m)^\| \*\*(.+?)\*\* \|", (repository / "docs/reliability.md").read_text())
    table = (repository / "tests/README.md").read_text().partition("## Promises")[2]
    rows = dict(re.findall(r"(?m)^\| ([^|]+?) \| (.+) \|$", table.partition("|---|---|---|\n")[2]))
    assert list(rows) == promises
    for files in rows.values():
        for file in re.findall(r"`(\S+\.py)`", files):
            assert (repository / "tests" / file).is_file(), file


def test_a_wrong_trial_is_counted_and_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIERING_CAMPAIGN_COUNT", "4")
    monkeypatch.setenv("TIERING_CAMPAIGN_SEED", "7")
    numbers = iter(range(4))

    def trial(rng: object) -> str:
        assert next(numbers) != 2, "it is two"
        return "fine"

    with pytest.raises(pytest.fail.Exception, match="trial 2 of seed 7: AssertionError: it is two"):
        Campaign("kills").run(trial)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert re.fullmatch(r"\| `kills` \| SIGKILL .* \| 4 \| 3 fine \| 1 \| 0 s \| \d{4}-\d\d-\d\d \| 7 \|", line)
