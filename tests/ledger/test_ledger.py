"""The ledger: every artifact file of some runs, by digest, those of one content in a line. However the work is cut, the
bytes are those recorded.

Rows change where bytes on disk are meant to: ``TIERING_LEDGER=record pytest tests/ledger -k one`` records
them anew, and the commit says why.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # under pytest's importlib mode

from ledger_runs import CUTS, DATASETS, commands_of, digests, run_all

from tiering.artifacts import checksum
from tiering.exports import arrays as export_arrays
from tiering.graph import plan as graph_plan
from tiering.memory import Budget
from tiering.reorder import arrays as reorder_arrays
from tiering.reorder.tasks import relabel

LEDGER = Path(__file__).parent / "ledger.json"
FAST = {("odd", "3 tasks"), *((dataset, "one part") for dataset in DATASETS)}
TINY = reorder_arrays.PieceSizes(4096, 400, nodes=100, node_bytes=10, scores=50, min_ranked=60, chunk=256, free=0)
TINY_SORT = graph_plan.SortSizes(100, 100, bucket_edges=8, run_records=1, columns=64, resident=0.5, margin=0)
LEFT = 3000  # bytes, less than a block: windows have one


def recorded(dataset):
    """Digests of the files that the ledger has of a dataset."""
    lines = json.loads(LEDGER.read_text())[dataset]
    return {name: digest for names, digest in lines.items() for name in names.split()}


def record(dataset, found):
    rows = json.loads(LEDGER.read_text()) if LEDGER.exists() else {}
    names = {digest: [name for name in found if found[name] == digest] for digest in found.values()}
    rows[dataset] = {" ".join(sorted(each)): digest for digest, each in names.items()}
    LEDGER.write_text(json.dumps(rows, indent=0, sort_keys=True) + "\n")


@pytest.mark.parametrize(
    ("dataset", "cut"),
    [pytest.param(*run, marks=[] if run in FAST else pytest.mark.slow) for run in itertools.product(DATASETS, CUTS)],
)
def test_ledger(tiering_cli, tmp_path, monkeypatch, dataset, cut):
    monkeypatch.chdir(tmp_path)
    if cut == "tiny memory":
        monkeypatch.setattr("tiering.memory.own_memory", lambda: 0)  # what --memory gives is the stage's alone
    if "tasks" in cut:
        monkeypatch.setattr(relabel, "BLOCK_BYTES", TINY.block)  # new ids of sources pass in blocks
    DATASETS[dataset](tmp_path / dataset)
    found = run_all(tiering_cli, dataset, cut)
    if os.environ.get("TIERING_LEDGER") == "record" and cut == "one part":
        record(dataset, found)
        return
    expected = recorded(dataset)
    if "tasks" in cut:
        expected = {name: digest for name, digest in expected.items() if not name.startswith("exported/")}
    assert found == expected


@pytest.fixture
def tiny_pieces(monkeypatch):
    """Blocks of 1 KiB, pieces of some hundred bytes, and memory for a window of one block."""
    monkeypatch.setattr(checksum, "BLOCK_BYTES", TINY.block)
    for sizes, tiny in ((reorder_arrays.SIZES, TINY), (graph_plan.SIZES, TINY_SORT)):
        for name, value in vars(tiny).items():
            monkeypatch.setitem(vars(sizes), name, value)
    for name, value in (("PIECE_BYTES", 128), ("_COLUMNS", 64), ("_CHUNK_BYTES", 256)):
        monkeypatch.setattr(export_arrays, name, value)


@pytest.mark.usefixtures("tiny_pieces")
@pytest.mark.parametrize("dataset", ["odd", pytest.param("types", marks=pytest.mark.slow)])
def test_tiny_pieces(tiering_cli, tmp_path, monkeypatch, dataset):
    """All that passes a window passes many; checksums are of other blocks, and are not compared."""
    monkeypatch.chdir(tmp_path)
    DATASETS[dataset](tmp_path / dataset)
    for command in commands_of(dataset):
        with monkeypatch.context() as patch:
            if command[0] in ("reorder", "layout", "export"):
                patch.setattr(Budget, "left", lambda budget: LEFT)
                patch.setattr(Budget, "require", lambda *_: None)
            tiering_cli(*command).ok()
    found, rows = digests(Path(), without=dataset), recorded(dataset)
    assert found.keys() == rows.keys()
    compared = [name for name in rows if not name.endswith(("checksums", "manifest.json"))]
    assert {name: found[name] for name in compared} == {name: rows[name] for name in compared}
