"""`python -m benchmarks imports`: datasets are made, imported and timed beside the disk, and the page is written."""

from __future__ import annotations

import json

import pytest

from benchmarks import imports
from tiering.datasets.open import READERS


def test_every_reader_has_a_dataset():
    assert {name.partition(",")[0].partition(":")[0] for name in imports.CASES} >= set(READERS) - {"csr"}


@pytest.mark.long
def test_formats_are_measured_and_the_page_is_written(tmp_path, capsys):
    page = tmp_path / "internals" / "imports.md"
    page.parent.mkdir()
    page.write_text(f"before\n{imports.BEGIN}\nold\n{imports.END}\nafter\n")
    argv = ["--share", "0.0005", "--dir", str(tmp_path), "--docs", str(tmp_path), "--only", "npy,csc"]
    assert imports.main(argv) == 0
    results = json.loads((tmp_path / "benchmarks" / "imports.json").read_text())["results"]
    assert list(results) == ["npy", "csc"]
    assert results["npy"]["parameters"]["edges"] == 32_500
    table = page.read_text()
    assert "| csc | " in table
    assert "old" not in table
    assert capsys.readouterr().out.strip() in table
