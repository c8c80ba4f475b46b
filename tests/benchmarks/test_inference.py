"""The benchmark of inference: its sides agree, its blocks are right, and it says what was aimed at."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import __main__ as program
from benchmarks import inference
from benchmarks.programs.layerwise import block_of, rows_of
from tiering.errors import CapabilityError

pytest.importorskip("torch")


def test_a_block_of_a_memory_map_has_its_sources_behind_its_destinations():
    indptr, indices = np.array([0, 2, 5, 5, 7]), np.array([3, 1, 0, 3, 1, 9, 2], np.int32)
    block, ids = block_of(indptr, indices, 1, 4, ("node", "to", "node"))
    assert block.num_dst == 3 and ids.tolist() == [1, 2, 3, 0, 9]
    src, dst = block.edge_index
    assert ids[src.numpy()].tolist() == [0, 3, 1, 9, 2] and dst.tolist() == [0, 0, 0, 2, 2]


def test_threads_gather_the_rows_of_a_memory_map():
    from concurrent.futures import ThreadPoolExecutor

    table, ids = np.arange(600, dtype=np.float32).reshape(200, 3), np.random.default_rng(0).integers(0, 200, 77)
    with ThreadPoolExecutor(4) as pool:
        assert np.array_equal(rows_of(table, ids, 4, pool).numpy(), table[ids])


def test_it_says_what_was_aimed_at():
    layer = {"seconds": 10.0, "model": 8.0, "waited": 0.4, "read": 300, "table": 100, "digest": "d" * 32}
    runs = [{"side": side, "fraction": 0.5, "rows": "same", "layers": [layer]} for side in inference.SIDES[:3]]
    runs[1] = {**runs[1], "rows": "another"}
    runs.append({"side": "memory map", "fraction": 0.5, "layers": [{**layer, "seconds": 70.0}]})
    runs.append({"side": inference.SIDES[3], "fraction": 0.5, "layers": [], "note": "ended by the kernel"})
    document = {"widths": [8, 8], "disk": {"read": 50.0, "written": 320.0}, "runs": runs}
    assert inference.verdicts(document) == [
        "waiting / model at 0.50: 0.05, aim 0.1",
        "tables without a model at 0.50: 3.0, aim 4.0",
        "memory map / ours, first layer, at 0.50: 7.0",
        "digests of the results: 2 different ones",
    ]
    lines = inference.layers_table(document, 10).splitlines()
    assert (
        "| 3.0 |" in lines[2] and "| 3.0 | dddddddddddd |" in lines[2]
    )  # tables read; the floor: 100 / 50 + 320 / 320
    assert "ended by the kernel" in lines[-1]


@pytest.mark.long
def test_all_sides_run_tiny(tmp_path, capsys):
    try:
        with inference.memory_group(1 << 30):
            pass
    except CapabilityError as error:
        pytest.skip(str(error))
    out = tmp_path / "figures.json"
    sizes = ["--nodes", "3000", "--edges", "30000", "--dim", "16", "--block-edges", "3000", "--seconds", "0.05"]
    sizes += ["--fractions", "400", "--dir", tmp_path, "--json", out]
    assert program.main(["inference", *map(str, sizes)]) == 0
    assert not list(tmp_path.glob("tiering-bench-*"))
    runs = {run["side"]: run for run in json.loads(out.read_text())["runs"]}
    assert list(runs) == list(inference.SIDES)
    ours, one, bare = (runs[side]["layers"] for side in inference.SIDES[:3])
    assert [layer["digest"] for layer in ours] == [layer["digest"] for layer in one]
    assert [layer["digest"] for layer in ours] != [layer["digest"] for layer in bare]
    assert all(layer["edges"] == 30000 and layer["table"] == 3000 * 64 for layer in [*ours, *bare])
    assert runs["ours"]["rows"] == runs["ours, 1 thread"]["rows"] != runs["ours, no model"]["rows"]
    assert "digests of the results: all equal" in capsys.readouterr().out
