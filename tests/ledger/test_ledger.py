"""The ledger: every artifact file of some runs, by digest. However the work is cut, the bytes are those recorded.

Rows change where bytes on disk are meant to: ``TIERING_LEDGER=record pytest tests/ledger -k one`` records
them anew, and the commit says why.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # under pytest's importlib mode

from ledger_runs import CUTS, DATASETS, run_all

LEDGER = Path(__file__).parent / "ledger.json"


@pytest.mark.parametrize(
    "cut", [pytest.param(cut, marks=[] if cut == "one part" else pytest.mark.slow) for cut in CUTS]
)
@pytest.mark.parametrize("dataset", DATASETS)
def test_ledger(tiering_cli, tmp_path, monkeypatch, dataset, cut):
    monkeypatch.chdir(tmp_path)
    if cut == "tiny memory":
        monkeypatch.setattr("tiering.memory.own_memory", lambda: 0)  # what --memory gives is the stage's alone
    DATASETS[dataset](tmp_path / dataset)
    found = run_all(tiering_cli, dataset, cut)
    rows = json.loads(LEDGER.read_text()) if LEDGER.exists() else {}
    if os.environ.get("TIERING_LEDGER") == "record" and cut == "one part":
        LEDGER.write_text(json.dumps({**rows, dataset: found}, indent=0, sort_keys=True) + "\n")
        return
    expected = rows[dataset]
    if "tasks" in cut:
        expected = {name: digest for name, digest in expected.items() if not name.startswith("exported/")}
    assert found == expected
