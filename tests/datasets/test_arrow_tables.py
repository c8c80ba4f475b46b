"""Tables that come as Arrow streams: as the same tables in files, read once, and those of libraries by their docs."""

from __future__ import annotations

import importlib
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pa_parquet
import pytest
from typed_tables import RATES, edges_of

import tiering
from tiering.datasets import arrow_tables
from tiering.datasets.open import open_dataset
from tiering.errors import InputError
from tiering.graph import build
from tiering.memory import own_memory
from tiering.pipeline.commands import estimate_import
from tiering.text.description import to_text

EDGES = pa.table({"src": [0, 1, 2, 2], "dst": [1, 2, 0, 1]})
PAIRS = [(0, 1), (1, 2), (2, 0), (2, 1)]
WHOLE = ("node", "to", "node")


def reader(table: pa.Table, rows: int = 1 << 20) -> pa.RecordBatchReader:
    """A reader that gives its rows once, in batches of `rows`."""
    return pa.RecordBatchReader.from_batches(table.schema, iter(table.to_batches(max_chunksize=rows)))


def files(graph: Any) -> dict[str, Any]:
    parts = [graph, *filter(None, (graph.part(name) for name in graph.parts()))]
    return {f"{k}/{name}": entry for k, part in enumerate(parts) for name, entry in part.manifest.files.items()}


def tables(seed: int) -> tuple[pa.Table, pa.Table]:
    """Ratings and movies: names and numbers as ids, lists as features, weights, times, classes, missing values."""
    draw = random.Random(seed)
    count, movies = draw.randrange(1, 40), draw.randrange(1, 9)
    ids = draw.sample(range(-5, 1 << 40), movies)
    ratings = pa.table({
        "userId": [draw.choice([None, "a", "b ", "\u00e9", "007"]) for _ in range(count - 1)] + ["a"],
        "movieId": [draw.choice(ids) for _ in range(count)],
        "rating": pa.array([draw.random() for _ in range(count)], pa.float32()),
        "when": pa.array([draw.randrange(1 << 40) for _ in range(count)], pa.timestamp("ms", "UTC")),
        "note": [None] * count,
    })  # fmt: skip
    nodes = pa.table({
        "movieId": ids,
        "year": pa.array([draw.randrange(2000) for _ in ids], pa.int16()),
        "vector": [[draw.random() for _ in range(3)] for _ in ids],
        "genre": pa.array(["Crime", *(draw.choice([None, "Kids"]) for _ in ids[1:])]).dictionary_encode(),
    })  # fmt: skip
    return ratings, nodes


@pytest.mark.parametrize(("seed", "rows"), [(0, 1), (1, 3), (2, 1), (3, 3), (4, 1 << 20)])
def test_streams_make_the_graph_of_the_same_tables_in_files(tmp_path, monkeypatch, seed, rows):
    """Whatever the batches and blocks, with tasks and without."""
    monkeypatch.setattr(arrow_tables, "_BLOCK_ROWS", 2 + seed)
    ratings, nodes = tables(seed)

    def take(of_edges: Any, of_nodes: Any, out: str, **more: Any) -> Any:
        return tiering.import_graph(
            relations={RATES: {"file": of_edges, "weight": "rating"}}, out=tmp_path / out,
            nodes={"movie": {"file": of_nodes, "features": ["year", "vector"], "label": "genre"}}, time="when", **more,
        )  # fmt: skip

    for name, table in (("ratings", ratings), ("nodes", nodes)):
        pa_parquet.write_table(table, tmp_path / f"{name}.parquet")
    expected = take(tmp_path / "ratings.parquet", tmp_path / "nodes.parquet", "files")
    graph = take(reader(ratings, rows), reader(nodes, rows), "streams")
    assert files(graph) == files(expected)
    cut = take(reader(ratings, rows), nodes, "tasks", cluster=tiering.ClusterOptions(executor="local", shards=3))
    assert files(cut) == files(expected)
    record = {one["table"]: one for one in graph.manifest.changes["tables"]}["user:rates:movie"]
    assert record["rows"] == ratings.num_rows and record["schema"]["when"] == "timestamp[ms, tz=UTC]"
    assert record["files"] == ["pyarrow.RecordBatchReader of user:rates:movie"]
    assert graph.problems("full") == []


def test_a_stream_is_a_source_as_one_file_is(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("node_feat.npy", np.zeros((3, 1)))  # which is next to no file
    graph = tiering.import_graph(reader(EDGES), "g")
    assert edges_of(graph, WHOLE) == PAIRS and graph.num_nodes() == 3
    said = re.sub(r"\s+", " ", to_text(graph.describe()) + capsys.readouterr().err)
    assert "table node:to:node pyarrow.RecordBatchReader of node:to:node: source src, destination dst" in said
    assert "node_feat" not in said
    assert edges_of(tiering.import_graph(EDGES.rename_columns(["a", "b"]), "h", first_id=0, self_loops="add"), WHOLE)
    with pytest.raises(InputError, match=r"expected ids from 1 .*found 0"):
        tiering.import_graph(EDGES, "i", first_id=1)


@pytest.mark.parametrize(
    ("ids", "names"),
    [([*map(str, range(70)), "x"], [*map(str, range(70)), "x"]), ([1, 5, 2**63], ["1", "5", str(2**63)])],
)
def test_ids_of_a_later_kind_are_read_from_the_stored_rows(tmp_path, monkeypatch, ids, names):
    """A stream gives its rows once; the import reads them twice."""
    monkeypatch.setattr("tiering.datasets.table_files._PIECE_ROWS", 2)
    column = pa.array(ids, pa.string() if "x" in ids else pa.uint64())
    table = pa.table({"src": column, "dst": column})
    other = pa.table({"src": pa.array([1, 2]), "dst": pa.array([1, 2])})
    graph = tiering.import_graph(
        relations={("n", "first", "n"): reader(other, 1), ("n", "second", "n"): reader(table, 1)}, out=tmp_path / "g"
    )
    assert set(names) <= set(map(str, graph.names("n").of(range(graph.num_nodes("n")))))


def test_one_frame_may_hold_nodes_and_their_foreign_keys(tmp_path):
    reviews = pa.table({"id": [5, 3, 9], "customer": [1, None, 1], "when": [30, 20, 10]})
    by = ("review", "by", "customer")
    graph = tiering.import_graph(
        relations={by: {"file": (once := reader(reviews)), "src": "id", "dst": "customer"}},
        nodes={"review": {"file": once, "id": "id"}}, time="when", out=tmp_path / "g",
    )  # fmt: skip
    assert edges_of(graph, by) == [(5, 1, 30), (9, 1, 10)]
    assert graph.node_times("review").tolist() == [30, 20, 10]


def test_parts_of_a_table_may_be_files_and_streams(tmp_path):
    pa_parquet.write_table(EDGES.slice(0, 1), tmp_path / "a.parquet")
    parts = [tmp_path / "a.parquet", reader(EDGES.slice(1, 2)), reader(EDGES.slice(3))]
    graph = tiering.import_graph(relations={WHOLE: parts}, out=tmp_path / "g")
    assert edges_of(graph, WHOLE) == PAIRS
    (record,) = graph.manifest.changes["tables"]
    assert record["rows"] == 3 and record["files"][2] == "pyarrow.RecordBatchReader of node:to:node (2)"


def failing(table: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from table.to_batches()
    raise RuntimeError("connection reset")


def of_batches(*tables: pa.Table) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(tables[0].schema, (one for t in tables for one in t.to_batches()))


def used(table: pa.Table) -> pa.RecordBatchReader:
    (once := reader(table)).read_all()
    return once


class Raising:
    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise OSError("query was canceled")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pa.RecordBatchReader.from_batches(EDGES.schema, failing(EDGES)),
         "RecordBatchReader of node:to:node: reading the Arrow table failed after 4 rows: connection reset; "),
        (lambda: of_batches(EDGES, pa.table({"src": [0.5], "dst": [1]})),
         "expected columns src: int64 dst: int64, found src: double dst: int64 from row 4 on; cast them alike"),
        (lambda: EDGES.slice(0, 0), "pyarrow.Table of node:to:node: the table has no rows; a reader or cursor"),
        (lambda: used(EDGES), "the table has no rows; a reader or cursor is read only once"),
        (Raising, "reading the Arrow table failed after 0 rows: query was canceled; correct"),
        (lambda: EDGES["src"], "pyarrow.ChunkedArray of node:to:node: reading the Arrow table failed"),
        (lambda: pa.table({"src": [0.5], "dst": [1]}), "column src: expected a whole number as id, found '0.5' at row"),
        (lambda: pa.table({"src": pa.array([None], pa.int64()), "dst": [1]}), "1 rows lack an id of an end.*no others"),
        (lambda: pa.table({"a": [1], "b": [1], "c": [1]}), "of node:to:node: expected a column of sources"),
        (lambda: pa.table([pa.ListArray.from_arrays([0, 1], pa.array(["a"]).dictionary_encode())], ["x"]),
         r"dictionaries inside nested types are not supported, found x \(list<"),
    ],
)  # fmt: skip
def test_bad_streams_are_refused(tmp_path: Path, make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        tiering.import_graph(make(), tmp_path / "g")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"relations": EDGES}, r"expected a mapping \{\(source, name, destination\): table\}, found pyarrow.Table"),
        ({"source": EDGES, "nodes": EDGES}, r"nodes`?: expected a mapping \{type: table\}, found pyarrow.Table; name"),
        ({"source": EDGES, "relations": {WHOLE: EDGES.slice(1)}}, "found a pyarrow.Table next to `relations`"),
        ({"source": EDGES, "format": "parquet"}, "expected auto or tables for a Table, found 'parquet'"),
        ({"source": EDGES, "spec": "cora"}, "does not apply to a graph in memory"),
        ({"relations": {WHOLE: {"file": EDGES, "src": EDGES}}}, "pyarrow.Table: no such column; there are: src, dst"),
        ({"nodes": {"node": EDGES}}, "give a dataset, or tables of edges"),
        ({"source": EDGES, "nodes": {"node": pa.table({"id": pa.array([0, None, 2])})}}, "an id in each row, found"),
    ],
)  # fmt: skip
def test_streams_in_wrong_places_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        tiering.import_graph(out=tmp_path / "g", **options)


def test_a_stopped_import_goes_on_with_the_same_rows_only(tmp_path, monkeypatch):
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(build, "_write_names", stop)
        tiering.import_graph(reader(EDGES), tmp_path / "g")
    written: list[Any] = []
    original = build.write_by_buckets
    monkeypatch.setattr(build, "write_by_buckets", lambda *args: written.append(args[1]) or original(*args))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(build, "_write_names", stop)
        tiering.import_graph(reader(EDGES), tmp_path / "g")
    assert not written
    other = pa.table({"src": [0, 1, 2, 2], "dst": [1, 2, 0, 2]})
    assert edges_of(tiering.import_graph(reader(other), tmp_path / "g"), WHOLE) == [*PAIRS[:3], (2, 2)]
    assert written


def test_stored_rows_are_counted_by_a_dry_run_and_gone_afterwards(tmp_path):
    table = pa.table({"src": np.arange(1000), "dst": np.arange(1000)[::-1], "unused": np.zeros(1000)})
    (plan,) = estimate_import(reader(table), tmp_path / "g").plans
    assert plan.steps[0].disk_scratch >= table.nbytes == 24000
    assert not list(tmp_path.iterdir())
    with open_dataset(reader(table), work_dir=tmp_path, memory="256MiB") as dataset:
        assert dataset.streams[0].bytes >= 24000 and not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["dictionary", "view", "dictionary of views", "large"])
def test_text_is_text_however_arrow_holds_it(tmp_path, kind):
    array = pa.array(["b", None, "a", "b"])
    if kind == "dictionary of views":
        array = array.dictionary_encode()
        array = pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.string_view()))
    else:
        array = array.dictionary_encode() if kind == "dictionary" else array
        array = array.cast({"view": pa.string_view(), "large": pa.large_string()}.get(kind, array.type))
    table = pa.table({"src": array, "dst": array.take(pa.array([2, 2, 0, 0])) if "view" not in kind else list("aabb")})
    graph = tiering.import_graph(reader(table, 3), tmp_path / "g")
    assert edges_of(graph, WHOLE) == [("a", "b"), ("b", "a"), ("b", "b")]


def test_memory_is_a_batch_and_a_block_not_the_stream(tmp_path, peak_memory, settled_memory):
    ends, text = np.arange(1 << 14), pa.array(["x" * 1000] * (1 << 14))

    def batches() -> Iterator[pa.RecordBatch]:
        for k in range(20):
            yield pa.record_batch({"src": ends + k, "dst": ends[::-1], "text": text})

    schema = pa.schema([("src", pa.int64()), ("dst", pa.int64()), ("text", pa.string())])
    held = own_memory()
    with (
        peak_memory() as peak,
        open_dataset(pa.RecordBatchReader.from_batches(schema, batches()), memory="256MiB") as d,
    ):
        assert d.streams[0].bytes > 20 * (1 << 14) * 1016
    assert peak.bytes - held < d.streams[0].bytes / 2


def prepare(library: str) -> dict[str, Any]:
    """Write `EDGES` in the working directory where the page's line for a library expects them."""
    names: dict[str, Any] = {}
    if library == "polars":
        importlib.import_module("polars").DataFrame(EDGES.to_pydict()).write_ndjson("edges.jsonl")
    elif library == "pandas":
        importlib.import_module("pandas").DataFrame(EDGES.to_pydict()).to_json("edges.json")
    elif library == "pyarrow":
        pa.feather.write_feather(EDGES, "edges.feather")
    elif library == "DuckDB":
        edges = EDGES  # noqa: F841 - which DuckDB finds by this name
        with importlib.import_module("duckdb").connect("edges.duckdb") as connection:
            connection.execute("create table edges as select * from edges")
    elif library == "Delta Lake":
        importlib.import_module("deltalake").write_deltalake("delta", EDGES)
    elif library == "Iceberg":
        names["catalog"] = iceberg_catalog()
    elif library.startswith("SQLite"):
        sqlite = importlib.import_module("adbc_driver_sqlite.dbapi")
        names["connection"] = sqlite.connect("edges.sqlite")
        names["cursor"] = names["connection"].cursor()
        names["cursor"].adbc_ingest("edges", EDGES)
    return names


def iceberg_catalog() -> Any:
    catalog = importlib.import_module("pyiceberg.catalog.sql").SqlCatalog(
        "local", uri=f"sqlite:///{Path.cwd()}/catalog.db", warehouse=f"file://{Path.cwd()}/warehouse"
    )
    catalog.create_namespace("graph")
    catalog.create_table("graph.edges", schema=EDGES.schema).append(EDGES)
    return catalog


LIBRARIES = {
    "polars": "polars", "pandas": "pandas", "pyarrow": "pyarrow", "DuckDB": "duckdb", "Delta Lake": "deltalake",
    "Iceberg": "pyiceberg", "SQLite, PostgreSQL and others with an ADBC driver": "adbc_driver_sqlite", "Lance": "lance",
}  # fmt: skip


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.filterwarnings("ignore")
def test_the_lines_of_the_page_run(tmp_path, monkeypatch, repository, library):
    pytest.importorskip(LIBRARIES[library], exc_type=ImportError)
    monkeypatch.chdir(tmp_path)
    page = (repository / "docs/importing.md").read_text()
    (code,) = re.findall(rf"^\| {library} \| `([^`]*)`", page, re.MULTILINE)
    names = {"pyarrow": pa, **prepare(library)}
    *first, last = code.split("; ")
    if first:
        exec("; ".join(first), names)  # noqa: S102 - our own page
    elif (name := code.partition(".")[0]) not in names:
        names[name] = importlib.import_module(name)
    graph = tiering.import_graph(eval(last, names), "g")
    assert edges_of(graph, WHOLE) == PAIRS
    for name in ("cursor", "connection"):
        if name in names:
            names[name].close()


def test_the_code_of_the_page_runs(tmp_path, monkeypatch, repository):
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    page = (repository / "docs/importing.md").read_text()
    section = re.search(r"^## Arrow: .*?(?=^## )", page, re.MULTILINE | re.DOTALL)[0]
    (code,) = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    exec(compile(code, "importing.md", "exec"), {})  # noqa: S102 - our own page
    assert edges_of(tiering.open("from-frames"), RATES) == [(3, 2, 3.5), (3, 7, 4.0), (9, 2, 5.0)]


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("edges.feather", "pyarrow"), ("edges.orc", "pyarrow"), ("edges.arrow", "pyarrow"), ("edges.jsonl", "pandas"),
        ("edges.json", "pandas"), ("edges.sqlite", "pandas"), ("edges.duckdb", "duckdb"), ("delta", "deltalake"),
        ("warehouse/graph/edges", "pyiceberg"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_the_lines_of_refused_files_run(tmp_path, monkeypatch, name, library):
    pytest.importorskip(library, exc_type=ImportError)
    monkeypatch.chdir(tmp_path)
    if name == "edges.orc":
        pa.orc.write_table(EDGES, name)
    elif name == "edges.arrow":
        with pa.ipc.new_file(name, EDGES.schema) as file:
            file.write_table(EDGES)
    elif name == "edges.jsonl":
        importlib.import_module("pandas").DataFrame(EDGES.to_pydict()).to_json(name, orient="records", lines=True)
    elif name == "edges.sqlite":
        sqlite = importlib.import_module("sqlite3").connect(name)
        importlib.import_module("pandas").DataFrame(EDGES.to_pydict()).to_sql("edges", sqlite, index=False)
        sqlite.close()
    else:
        prepare({"pyarrow": "pyarrow", "pandas": "pandas", "duckdb": "DuckDB", "deltalake": "Delta Lake"}.get(
            library, "Iceberg"
        ))  # fmt: skip
    with pytest.raises(InputError, match="convert it: ") as error:
        open_dataset(name)
    exec(str(error.value).split("convert it: ")[1], {})  # noqa: S102 - our own message
    assert edges_of(tiering.open("G"), WHOLE) == PAIRS
