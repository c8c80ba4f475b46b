"""The script that says how time grows still runs, and writes its page."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import scale

from tiering.bench.machine import describe_machine
from tiering.bench.sizes import Sizes


@pytest.mark.slow
def test_stages_are_timed_and_the_page_is_written(repository, tmp_path):
    pytest.importorskip("matplotlib")
    sizes = Sizes(threads=2, memory="1GiB", folder=tmp_path, repeats=1, stage_nodes=300, edges=5000)
    rows = replace(sizes, row_bytes=600, feature_bytes=60_000)
    results = {"edges": scale.run("edges", sizes), "rows": scale.run("rows", rows)}
    assert [each["name"] for each in results["edges"]] == ["import", "score", "reorder"]
    for each in (*results["edges"], *results["rows"]):
        assert each["median_seconds"] > 0 and each["peers"][0]["ratio"] > 0
    (tmp_path / "scale.md").write_text((repository / "docs" / "scale.md").read_text())
    scale.write_docs(tmp_path, {"machine": describe_machine(), "results": results})
    page = (tmp_path / "scale.md").read_text()
    assert "| 300 | 5,000 | 2 | 1GiB |" in page and "| 600 | 100 | 1GiB |" in page
    assert page.count(scale.END) == 5 and (tmp_path / "images" / "scale.png").stat().st_size > 5000


def test_every_size_is_run_once():
    found = [scale.key(*each) for each in scale.settings(Sizes(memory="8GiB"), scale.PAPERS[1])]
    assert len(found) == len(set(found)) == 14
    assert {series for series, _ in scale.settings(Sizes(), 10)} == {"nodes", "threads", "memory", "rows"}


def test_the_page_has_the_committed_results(repository):
    document = json.loads((repository / "docs" / "benchmarks" / "scale.json").read_text())
    page = (repository / "docs" / "scale.md").read_text()
    for table in scale.tables(document["results"]).values():
        assert table in page
