"""Tasks read edges from parquet files where they lie: the same artifact, and the same words where they are wrong."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toy_datasets import tree_bytes

from tiering.datasets.open import open_dataset
from tiering.datasets.readers.parquet import ParquetColumn

TASKS = ["--executor", "local", "--shards", "4", "--workers", "2"]


def write(folder: Path, columns: dict[str, pa.Array], files: int = 3, group: int = 70, **options) -> Path:
    """Parquet files with the rows in their order."""
    folder.mkdir(exist_ok=True)
    table = pa.table(columns)
    step = -(-table.num_rows // files)
    for k in range(files):
        pa_parquet.write_table(
            table.slice(k * step, step), folder / f"part-{k}.parquet", row_group_size=group, **options
        )
    return folder


def edges(count: int = 1000, **dtypes) -> dict[str, pa.Array]:
    random = np.random.default_rng(5)
    columns = {"src": random.integers(0, 90, count), "dst": (random.random(count) ** 2 * 80).astype(np.int64)}
    columns["weight"] = random.integers(0, 9, count)
    return {name: pa.array(values, dtypes.get(name)) for name, values in columns.items()}


def compared(cli, source: Path, work: Path, *more: str) -> str:
    """Import by one process and by tasks: the same files; what the tasks' command printed."""
    out = work / "graph"
    cli("import", source, "--out", out, *more).ok()
    expected = tree_bytes(out)
    result = cli("import", source, "--out", out, "--force", *more, *TASKS).ok()
    assert tree_bytes(out) == expected
    return result.out + result.err


@pytest.fixture
def reads(monkeypatch):
    """Ranges that tasks read."""
    read, seen = ParquetColumn.read, []

    def counted(column, begin, end):
        seen.append((column.held, begin, end))
        return read(column, begin, end)

    monkeypatch.setattr(ParquetColumn, "read", counted)
    return seen


@pytest.mark.parametrize("types", [{}, {"src": pa.uint16(), "dst": pa.int32(), "weight": pa.float32()}])
def test_the_same_bytes(tiering_cli, tmp_path, reads, types):
    printed = compared(tiering_cli, write(tmp_path / "edges", edges(**types)), tmp_path, "--edge-ids")
    assert "reading edges" not in printed
    assert sorted(reads) == sorted(
        [(end, k * 250, k * 250 + 250) for end in ("dst", "dst", "src", "weight") for k in range(4)]
    )


@pytest.mark.parametrize(
    ("options", "ids", "more"),
    [
        ({"write_statistics": False}, pa.int64(), []),
        ({}, pa.int64(), ["--compact-ids"]),
        ({}, pa.int64(), ["--self-loops", "remove"]),
        ({}, pa.int64(), ["--executor", "local", "--shards", "1"]),
        ({}, pa.string(), []),
    ],
)
def test_the_driver_decodes(tiering_cli, tmp_path, reads, options, ids, more):
    columns = edges()
    columns |= {end: columns[end].cast(ids) for end in ("src", "dst")}
    source = write(tmp_path / "edges", columns, **options)
    if "--shards" in more:
        tiering_cli("import", source, "--out", tmp_path / "one", *more).ok()
    else:
        compared(tiering_cli, source, tmp_path, *more)
    assert not reads


def wrong(column: str, place: int, value: object) -> dict[str, pa.Array]:
    columns = edges()
    values = columns[column].to_pylist()
    values[place] = value
    return {**columns, column: pa.array(values, pa.float64() if column == "weight" else pa.int64())}


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (wrong("src", 333, -4), "edge 333: source id -4 is negative"),
        (wrong("dst", 700, None), "found null at edge 700"),
        (wrong("weight", 401, float("nan")), "found nan at edge 401"),
        (wrong("weight", 999, -1.0), "found -1.0 at edge 999"),
        (wrong("weight", 5, None), "found null at edge 5"),
    ],
)
def test_what_is_wrong_is_said_as_by_one_process(tiering_cli, tmp_path, columns, words):
    source = write(tmp_path / "edges", columns)
    asked = ["import", source, "--out", tmp_path / "graph"]
    one, tasks = (tiering_cli(*asked, *more).refused(words) for more in ([], TASKS))
    assert one.strip().splitlines()[-1] == tasks.strip().splitlines()[-1]


def test_an_id_that_is_too_large(tiering_cli, tmp_path):
    """The footers say in which row group it is, not at which edge."""
    source = write(tmp_path / "edges", wrong("dst", 420, 10**9))
    asked = ["import", source, "--out", tmp_path / "graph"]
    tiering_cli(*asked).refused("edge 420: destination id 1000000000 is the largest id")
    tiering_cli(*asked, *TASKS).refused("part-1.parquet: row group 1: destination id 1000000000 is the largest id")
    tiering_cli(*asked, *TASKS, "--num-nodes", "100").refused("--num-nodes says 100", "id 1000000000 occurs")


def test_files_that_change_while_tasks_read_them(tmp_path):
    source = write(tmp_path / "edges", edges())
    with open_dataset(source, in_place=True) as data:
        column = data.edges[0].src
        assert isinstance(column, ParquetColumn)
        write(source, edges(400))
        with pytest.raises(
            Exception, match=r"part-0\.parquet: expected 334 rows, as when the file was opened, found 134"
        ):
            column.read(0, 10)


def test_a_damaged_row_group(tmp_path):
    source = write(tmp_path / "edges", edges(), write_page_checksum=True)
    with open_dataset(source, in_place=True) as data:
        column = data.edges[0].dst
        file = source / "part-1.parquet"
        held = bytearray(file.read_bytes())
        described = pa_parquet.read_metadata(file).row_group(1).column(1)
        held[described.dictionary_page_offset + described.total_compressed_size - 4] ^= 1
        file.write_bytes(held)
        with pytest.raises(Exception, match=r"part-1\.parquet: row group 1 is damaged .*get the file again"):
            column.read(0, 1000)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=4),
    st.integers(1, 17),
    st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_ranges(tmp_path_factory, sizes, group, share):
    folder = tmp_path_factory.mktemp("ranges")
    values = np.arange(sum(sizes), dtype=np.int64) ** 2
    ends = np.cumsum([0, *sizes])
    for k, (low, high) in enumerate(pairwise(ends)):
        pa_parquet.write_table(pa.table({"x": values[low:high]}), folder / f"{k}.parquet", row_group_size=group)
    names = tuple(str(folder / f"{k}.parquet") for k in range(len(sizes)))
    column = ParquetColumn(names, tuple(sizes), "x", "src")
    begin, end = sorted(int(part * values.size) for part in share)
    np.testing.assert_array_equal(column.read(begin, end), values[begin:end])
