"""Features that Python computes: the file that `import` reads, whatever the blocks; runs that stop and are resumed."""

from __future__ import annotations

import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tiering
from tiering.artifacts import checksum, file_writer
from tiering.errors import ExistsError, InputError

ROWS = np.random.default_rng(0).standard_normal((103, 7)).astype(np.float32)


def cut(rows: np.ndarray, *sizes: int) -> list[np.ndarray]:
    """The rows in blocks of these sizes, and the rest."""
    return np.split(rows, np.cumsum(sizes))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 60), max_size=5), st.sampled_from(["<f4", ">f4", "f2", "f8", "i1", "i8"]))
def test_the_rows_whatever_the_blocks(tmp_path_factory, sizes, dtype):
    rows, out = ROWS.astype(dtype), tmp_path_factory.mktemp("f") / "node_feat.npy"
    assert tiering.write_features(iter(cut(rows, *sizes)), out, rows=103) == out
    found = np.load(out)
    assert found.dtype == np.dtype(dtype).newbyteorder("=") and np.array_equal(found, rows)
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_tensors_and_streams_of_arrow(tmp_path):
    rows = ROWS.copy()
    rows[3, 2] = np.nan
    lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), 7)
    table = pa.table({"id": pa.array(range(103)), "x": lists})
    reader = pa.Table.from_batches(table.to_batches(max_chunksize=10)).to_reader()
    for number, (blocks, options) in enumerate((
        (torch.from_numpy(rows).requires_grad_().split(9), {"rows": 103}),
        (table, {}), (table, {"column": "x"}), (reader, {"rows": 103}), (lambda start: table[start:], {"rows": 103}),
    )):  # fmt: skip
        out = tmp_path / f"{number}.npy"
        np.testing.assert_array_equal(np.load(tiering.write_features(blocks, out, **options)), rows)


def test_import_reads_them(tmp_path):
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "edge_index.npy", np.stack([np.arange(103), np.arange(103)[::-1]]))
    tiering.write_features(cut(ROWS, 50), tmp_path / "data" / "node_feat.npy", rows=103)
    graph = tiering.import_graph(tmp_path / "data", tmp_path / "graph")
    np.testing.assert_array_equal(graph.feature_table(graph.node_types[0])[:], ROWS)


NULLS = pa.array([None, [1.0, 2.0]], pa.list_(pa.float32(), 2))
BAD = {
    "no rows": ([], {"rows": 0}, "rows: expected the number of rows of all blocks, at least 1, found 0"),
    "rows unknown": ([ROWS], {"rows": None}, "found None; give rows=N"),
    "not a file of numpy": ([ROWS], {"out": "x.parquet"}, "expected a file NAME.npy"),
    "nothing": ([], {}, "expected 103 rows, found 0"),
    "too few": ([ROWS[:50]], {}, "expected 103 rows, found 50"),
    "another width": ([ROWS[:9], ROWS[:, :6]], {}, "row 9: expected rows of 7 x float32 as the first ones, found 6 x"),
    "another dtype": ([ROWS[:9], ROWS.astype("f8")], {}, "found 7 x float64"),
    "one dimension": (ROWS, {}, r"expected arrays of shape \(n, dim\) of .*, found float32 of shape \(7,\)"),
    "no columns": ([ROWS[:, :0]], {}, r"found float32 of shape \(103, 0\)"),
    "text": ([["a", "b"]], {}, "convert them"),
    "lists of unequal lengths": ([[[1.0], [1.0, 2.0]]], {}, "found list"),
    "bfloat16": ([torch.ones(103, 7).bfloat16()], {}, "found torch.bfloat16"),
    "uint16": ([ROWS.astype("u2")], {}, "found uint16"),
    "no lists": (pa.table({"x": [1.0]}), {}, "column: expected a column of fixed-size lists, found none among x"),
    "two lists": (pa.table({"x": NULLS, "y": NULLS}), {}, "found x, y among x, y; name one"),
    "another column": (pa.table({"x": NULLS}), {"column": "z"}, "expected 'z' of fixed-size lists, found x"),
    "nulls": (pa.table({"x": NULLS}), {}, "found nulls"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_refused(tmp_path, case):
    blocks, options, words = BAD[case]
    with pytest.raises(InputError, match=words):
        tiering.write_features(blocks, **{"rows": 103, "out": tmp_path / "x.npy", **options})
    assert not list(tmp_path.iterdir())


def test_what_is_there_is_kept_without_force(tmp_path):
    out = tmp_path / "x.npy"
    out.write_text("mine")
    with pytest.raises(ExistsError, match="already exists"):
        tiering.write_features([ROWS], out, rows=103)
    assert out.read_text() == "mine"
    (tmp_path / "d.npy").mkdir()
    for name in ("x.npy", "d.npy"):
        with pytest.raises(ExistsError, match="expected a numpy file to replace, found another kind of file"):
            tiering.write_features([ROWS], tmp_path / name, rows=103, force=True)
    assert out.read_text() == "mine"
    np.save(out, ROWS[:2])
    np.testing.assert_array_equal(np.load(tiering.write_features([ROWS], out, rows=103, force=True)), ROWS)


def test_more_rows_than_promised(tmp_path):
    """They are refused again by a second run, which finds the file complete; another number of rows starts over."""
    out = tmp_path / "x.npy"
    for blocks in ([ROWS, ROWS], [ROWS, ROWS], lambda start: [ROWS[start:], ROWS]):
        with pytest.raises(InputError, match="expected 103 rows, found 206 or more; correct rows="):
            tiering.write_features(blocks, out, rows=103)
        assert not out.exists()
    np.testing.assert_array_equal(np.load(tiering.write_features([ROWS, ROWS], out, rows=206)), np.tile(ROWS, (2, 1)))
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


@pytest.fixture
def small_blocks(monkeypatch):
    """Pieces of 1 KiB, some 36 rows, are finished at a time."""
    monkeypatch.setattr(checksum, "BLOCK_BYTES", 1024)
    monkeypatch.setattr(file_writer, "PIECE_BYTES", 1024)


@pytest.mark.parametrize("form", ["function", "iterator"])
def test_an_encoder_that_fails_is_resumed(tmp_path, small_blocks, form):
    out, asked = tmp_path / "x.npy", []

    def blocks(start, broken=103):
        asked.append(start)
        for at in range(start, 103, 10):
            if at >= broken:
                raise RuntimeError("out of memory")
            yield ROWS[at : at + 10]

    def write(broken=103, **options):
        source = (lambda start: blocks(start, broken)) if form == "function" else blocks(0, broken)
        return tiering.write_features(source, out, rows=103, **options)

    with pytest.raises(RuntimeError, match="out of memory"):
        write(20)
    assert not list(tmp_path.iterdir())  # nothing was finished
    for broken in (60, 90):
        with pytest.raises(RuntimeError, match="out of memory"):
            write(broken)
        assert not out.exists() and (tmp_path / ".x.npy.partial").exists()
    with pytest.raises(InputError, match=r"as the first ones, found 7 x float64; .*force=True to start over"):
        tiering.write_features(lambda start: [ROWS[start:].astype("f8")], out, rows=103)
    np.testing.assert_array_equal(np.load(write()), ROWS)
    assert asked == ([0, 0, 36, 73] if form == "function" else [0] * 4)
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


def test_force_starts_over_where_a_run_was_stopped(tmp_path, small_blocks):
    with pytest.raises(InputError, match="found 80"):
        tiering.write_features([ROWS[:80]], tmp_path / "x.npy", rows=103)
    other = ROWS.astype("f8") + 1
    found = np.load(tiering.write_features(lambda start: [other[start:]], tmp_path / "x.npy", rows=103, force=True))
    np.testing.assert_array_equal(found, other)


KILLED = """
import os, pathlib, signal, sys, time
import numpy as np
import tiering
journal = pathlib.Path(sys.argv[1]).parent / ".x.npy.partial" / "journal.jsonl"
def finished():
    return journal.read_bytes().count(b"blocks") if journal.exists() else 0
def blocks(start):
    before = finished()
    for at in range(start, 600_000, 50_000):
        while at - start >= 300_000 and finished() == before:
            time.sleep(0.01)
        if at - start >= 300_000:
            os.kill(os.getpid(), signal.SIGKILL)
        yield np.arange(at, min(at + 50_000, 600_000), dtype=np.float32)[:, None].repeat(64, 1)
tiering.write_features(blocks, sys.argv[1], rows=600_000)
"""


def test_a_killed_run_is_resumed(tmp_path):
    """Of 153.6 MB two pieces of 64 MiB; every run but the last is killed when it has finished a piece."""
    out, codes = tmp_path / "x.npy", list[int]()
    while not out.exists():
        codes.append(subprocess.run([sys.executable, "-c", KILLED, out], timeout=100).returncode)
    assert codes == [-signal.SIGKILL, -signal.SIGKILL, 0] or codes == [-signal.SIGKILL, 0]
    found = np.load(out, mmap_mode="r")
    assert found.shape == (600_000, 64) and [path.name for path in tmp_path.iterdir()] == ["x.npy"]
    np.testing.assert_array_equal(found[:, [0, 63]], np.arange(600_000, dtype=np.float32)[:, None].repeat(2, 1))
