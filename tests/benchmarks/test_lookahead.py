"""What the benchmark of reading ahead makes of its measurements; and that it runs, tiny."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from benchmarks import __main__ as program
from benchmarks import lookahead
from benchmarks.lookahead import HITS_SHARE, PARTS, SHARES, Setting, figures, settings


def cell(reading: float = 0.02, loader: float = 0.05, sampling: float = 0.01, **more: Any) -> dict[str, Any]:
    """Made up: a loader that took 40 rows from disk of 100."""
    return {
        "measured": {
            "loader": loader, "sampling": sampling, "slots": 30, "rows": 90,
            "buffer": {"rows": 100, "rows_read": 40}, "choice": {"seconds": 9.0},
        },
        "read": {"seconds": reading, "choice": {"seconds": 0.025}},
        "simulated": {"policies": {"static": 0.09, "belady": 0.04, "belady-merged": 0.03, "look-ahead": 0.016}},
        **more,
    }  # fmt: skip


def test_ratios_are_to_the_best_policy_and_to_the_slower_of_it_and_sampling():
    found = figures(cell())
    assert (found["best"], found["best_seconds"]) == ("look-ahead", 0.016)
    assert found["reading_ratio"] == pytest.approx(0.02 / 0.016)
    assert found["loader_ratio"] == pytest.approx(0.05 / 0.016)
    assert figures(cell(sampling=0.04))["loader_ratio"] == pytest.approx(0.05 / 0.04)
    assert found["hits"] == pytest.approx(0.6)
    assert found["share"] == pytest.approx(1 / 3)


def test_the_page_has_a_place_for_every_table(repository):
    page = (repository / "docs" / "internals" / "lookahead.md").read_text()
    assert all(page.count(lookahead.BEGIN.format(part)) == 1 for part in PARTS)


@pytest.mark.long
def test_reading_ahead_is_measured_and_the_page_is_written(repository, tmp_path, monkeypatch):
    """Four cells: one of each kind."""
    cells = {
        "policies": [Setting("generated", 500, (10, 10), SHARES[1])],
        "planner": [Setting("uniform", 500, (10, 10), SHARES[1])],
        "buffer": [*settings("buffer")[:1], Setting("generated", 500, (10, 10), HITS_SHARE, 4)],
    }
    monkeypatch.setattr(lookahead, "few", lambda part: cells[part])
    (tmp_path / "internals").mkdir()
    shutil.copy(repository / "docs" / "internals" / "lookahead.md", tmp_path / "internals")
    (tmp_path / "benchmarks").mkdir()
    options = ["--sizes", "small", "--seconds", "0.1", "--dir", str(tmp_path), "--docs", str(tmp_path)]
    assert program.main(["lookahead", *options]) == 0
    assert not list(tmp_path.glob("tiering-bench-*"))
    document = json.loads((tmp_path / "benchmarks" / "lookahead.json").read_text())
    assert list(document["cells"]) == [setting.name for part in PARTS for setting in cells[part]]
    found = {name: figures(one) for name, one in document["cells"].items()}
    assert all(one["reading"] > 0 and one["loader"] > 0 and one["sampling"] > 0 for one in found.values())
    assert found[cells["policies"][0].name]["share"] == pytest.approx(1 / 3, rel=0.1)
    page = (tmp_path / "internals" / "lookahead.md").read_text()
    assert (
        "| 500; 10,10 | 33% |" in page and "| uniform | 33% |" in page and "| hits with windows of 4 batches:" in page
    )
