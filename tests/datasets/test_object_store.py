"""Datasets in an object store: the graphs of the same files on disk, by ranges, in three tasks, and interrupted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
import scipy.sparse
import torch
from object_store import ObjectStore, upload
from small_inputs import EDGES, SMALL_INPUTS, SRC, write_nodes
from toy_datasets import tree_bytes

import tiering
from tiering.artifacts import remote_path
from tiering.artifacts.remote import RemoteFolder
from tiering.artifacts.remote_path import RemotePath
from tiering.datasets import arrays
from tiering.errors import InputError, StorageError
from tiering.graph import build

TASKS = ("--executor", "local", "--shards", "3")
Fetched = list[tuple[str, int]]


def write_npz(folder: Path) -> Path:
    folder.mkdir()
    matrix = scipy.sparse.coo_array((np.ones(EDGES), (SRC, np.arange(EDGES) % 8)), shape=(8, 8))
    scipy.sparse.save_npz(folder / "matrix.npz", matrix.tocsr())
    return folder / "matrix.npz"


def write_mtx(folder: Path) -> Path:
    folder.mkdir()
    lines = [f"{u + 1} {k % 8 + 1}" for k, u in enumerate(SRC)]
    (folder / "g.mtx").write_text(
        "\n".join(["%%MatrixMarket matrix coordinate pattern general", f"8 8 {EDGES}", *lines])
    )
    return folder


def write_pt(folder: Path) -> Path:
    folder.mkdir()
    graph = {"edge_index": torch.tensor(np.array([SRC, SRC[::-1]])), "x": torch.arange(24.0).reshape(8, 3)}
    torch.save(graph, folder / "data.pt")
    return folder / "data.pt"


def write_mixed(folder: Path) -> Path:
    """Edges of parquet, in place, and arrays of nodes, copied."""
    SMALL_INPUTS["parquet"](folder)
    write_nodes(folder, "node_label.npy")
    return folder


INPUTS = {**SMALL_INPUTS, "npz": write_npz, "mtx": write_mtx, "pt": write_pt, "mixed": write_mixed}


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Fetched:
    """Reads of ranges, which are short: the URL and the bytes of each."""
    ranges, read = Fetched(), remote_path.read_range

    def counted(file: Any, name: str, begin: int, end: int) -> Any:
        ranges.append((name, end - begin))
        return read(file, name, begin, end)

    monkeypatch.setattr(remote_path, "read_range", counted)
    monkeypatch.setattr(remote_path, "_FIRST_BYTES", 16)
    for module in (remote_path, arrays):
        monkeypatch.setattr(module, "RANGE_BYTES", 40)
    return ranges


def content(graph: Path) -> dict[str, bytes]:
    """The bytes of a graph, and its feature rows wherever they are; not where they come from."""
    files = {
        name: data for name, data in tree_bytes(graph).items() if "manifest" not in name and "features/" not in name
    }
    opened = tiering.open(graph)
    tables = {name: opened.features.table(name) for name in (opened.features.node_types if opened.features else [])}
    rows = {name: repr((table.dtype, table.ndim)).encode() + table.open().tobytes() for name, table in tables.items()}
    return {**files, **rows}


@pytest.mark.parametrize(
    ("name", "tasks"), [(name, tasks) for name in INPUTS for tasks in ((), TASKS) if name != "npz" or not tasks]
)
def test_the_graph_of_the_files_on_disk(
    tiering_cli: Callable[..., Any], tmp_path: Path, s3: str, fetched: Fetched, name: str, tasks: tuple[str, ...]
) -> None:
    source = INPUTS[name](tmp_path / "data")
    url = upload(source, s3)
    tiering_cli("import", source, "--out", tmp_path / "local", *tasks).ok()
    made = tiering_cli("import", url, "--out", tmp_path / "graph", "--cache", tmp_path / "cache", *tasks).ok()
    assert content(tmp_path / "graph") == content(tmp_path / "local")
    assert len(fetched) >= 3
    assert url in made.out
    assert all(entry.startswith(url) for entry in tiering.open(tmp_path / "graph").manifest.provenance["inputs"])
    copied = {path.suffix for path in (tmp_path / "cache").glob("*")}
    assert copied == {
        "csv": set(),
        "csv.gz": set(),
        "parquet": set(),
        "mtx": set(),
        "npz": {".npz"},
        "pt": {".pt"},
    }.get(name, {".npy"})
    assert not [*(tmp_path / "cache").glob("*node_feat.npy")]  # its rows go from the store to the graph


@pytest.mark.parametrize("all_remote", [True, False])
def test_tables(tiering_cli: Callable[..., Any], tmp_path: Path, s3: str, all_remote: bool) -> None:
    for folder in (parts := tmp_path / "tables" / "parts", users := tmp_path / "tables" / "users"):
        folder.mkdir(parents=True)
    for k in range(3):
        ids = np.arange(40) * (k + 1)
        table = pa.table({"user": ids % 7, "item": ids % 5, "stars": ids / 2})
        pa_parquet.write_table(table, parts / f"part-{k}.parquet", row_group_size=10)
    (users / "users.csv").write_text("id,age\n" + "".join(f"{k},{k + 20}\n" for k in range(7)))
    url = upload(tmp_path / "tables", s3)

    def run(out: str, edges: str, nodes: object) -> None:
        options = ["--nodes", f"user={nodes}/users.csv", "--features", "user=age", "--edge-data", "stars"]
        tiering_cli("import", "--relation", f"user:buys:item={edges}:user,item", *options, "--out", tmp_path / out).ok()
        assert out == "local" or content(tmp_path / out) == content(tmp_path / "local")

    run("local", str(parts), users)
    run("folder", f"{url}/parts", f"{url}/users" if all_remote else users)
    run("files", ",".join(f"{url}/parts/part-{k}.parquet" for k in range(3)), f"{url}/users" if all_remote else users)


def test_columns_that_are_not_read_are_not_fetched(tmp_path: Path, s3: str, fetched: Fetched) -> None:
    (folder := tmp_path / "data").mkdir()
    columns = {name: np.random.default_rng(1).integers(0, 90, 100_000) for name in ("src", "dst")}
    columns["text"] = np.random.default_rng(2).integers(0, 2**62, 100_000)
    pa_parquet.write_table(pa.table(columns), folder / "edges.parquet", row_group_size=20_000)
    url, size = upload(folder / "edges.parquet", s3), (folder / "edges.parquet").stat().st_size
    tiering.import_graph(url, tmp_path / "graph")
    read = pa_parquet.ParquetFile(folder / "edges.parquet").metadata
    needed = sum(read.row_group(g).column(c).total_compressed_size for g in range(5) for c in range(2))
    assert needed <= sum(count for _, count in fetched) < needed + 4 * 65536 < size


def test_features_of_a_store_that_fails_are_resumed(
    tmp_path: Path, s3: str, fetched: Fetched, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    source = SMALL_INPUTS["npy"](tmp_path / "data")
    np.save(source / "node_feat.npy", np.arange(8 * 1000, dtype=np.float32).reshape(8, 1000))
    url, cache, read = upload(source, s3), tmp_path / "cache", remote_path.read_range

    def fail(file: Any, name: str, begin: int, end: int) -> Any:
        if name.endswith("node_feat.npy") and begin > 20_000:
            raise StorageError(5, f"{name}: the store has gone")
        return read(file, name, begin, end)

    with monkeypatch.context() as patch:
        patch.setattr(remote_path, "read_range", fail)
        with pytest.raises(StorageError, match="the store has gone"):
            tiering.import_graph(url, tmp_path / "graph", cache=cache)
    assert not (tmp_path / "graph").exists()
    copied = sorted(cache.glob("*"))
    assert fetched
    tiering.import_graph(url, tmp_path / "graph", cache=cache)
    assert sorted(cache.glob("*")) == copied
    assert "resuming an earlier run" in capfd.readouterr().err
    tiering.import_graph(source, tmp_path / "local")
    assert content(tmp_path / "graph") == content(tmp_path / "local")


@pytest.mark.parametrize("name", ["parquet", "csv", "npy"])
def test_a_file_that_changes_meanwhile(tmp_path: Path, s3: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = SMALL_INPUTS[name](tmp_path / "data")
    url, changed = (
        upload(source, s3),
        {"csv": source, "npy": source / "node_feat.npy"}.get(name, source / "part-1.parquet"),
    )
    target = RemoteFolder(url if changed != source else url.rpartition("/")[0])
    with monkeypatch.context() as patch:
        patch.setattr(build, "_write_names", lambda *_: target.write(changed.name, [changed.read_bytes() + b"0,0,0\n"]))
        with pytest.raises(
            InputError, match=f"{changed.name}: changed while it was read \\(from .* to .*; run the same"
        ):
            tiering.import_graph(url, tmp_path / "graph", cache=tmp_path / "cache")
    assert not (tmp_path / "graph").exists()
    target.write(changed.name, [changed.read_bytes()])
    tiering.import_graph(url, tmp_path / "graph", cache=tmp_path / "cache")
    tiering.import_graph(source, tmp_path / "local")
    assert content(tmp_path / "graph") == content(tmp_path / "local")


@pytest.mark.parametrize("name", ["parquet", "csv", "csv.gz"])
def test_a_store_that_fails_is_no_damaged_file(
    tmp_path: Path, s3: str, fetched: Fetched, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, read, limit = upload(SMALL_INPUTS[name](tmp_path / "data"), s3), remote_path.read_range, 0

    def fail(file: Any, name: str, begin: int, end: int) -> Any:
        if len(fetched) >= limit:
            raise StorageError(5, f"{name}: the store has gone")
        return read(file, name, begin, end)

    monkeypatch.setattr(remote_path, "read_range", fail)
    while not (tmp_path / "graph").exists():  # whichever read fails first
        fetched.clear()
        with (
            suppress(StorageError) if limit > 5 else pytest.raises(StorageError, match=r"^s3://.*: the store has gone$")
        ):
            tiering.import_graph(url, tmp_path / "graph")
        limit = 3 * limit // 2 + 2
    assert limit > 8


def test_an_unfinished_import_of_other_content_is_not_resumed(
    tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = SMALL_INPUTS["parquet"](tmp_path / "data")
    url = upload(source, s3)
    with monkeypatch.context() as patch:
        patch.setattr(
            RemotePath, "refuse_change", lambda _: (_ for _ in ()).throw(StorageError(5, "the store has gone"))
        )
        with pytest.raises(StorageError, match="the store has gone"):
            tiering.import_graph(url, tmp_path / "graph")
    RemoteFolder(url).write("part-0.parquet", [(source / "part-1.parquet").read_bytes()])
    with pytest.raises(InputError, match=rf"^{url}/part-0\.parquet: changed since a run that left .* unfinished"):
        tiering.import_graph(url, tmp_path / "graph")
    (source / "part-0.parquet").write_bytes((source / "part-1.parquet").read_bytes())
    tiering.import_graph(source, tmp_path / "local")
    tiering.import_graph(url, tmp_path / "graph", force=True)
    assert content(tmp_path / "graph") == content(tmp_path / "local")


def test_a_chain_notices_what_has_changed(tiering_cli: Callable[..., Any], tmp_path: Path, s3: str) -> None:
    source = SMALL_INPUTS["parquet"](tmp_path / "data")
    write_nodes(source, "node_label.npy")
    (folder := tmp_path / "chain").mkdir()
    dataset = f'[dataset]\npath = "{upload(source, s3)}"\ncache = "copies"\n'
    (folder / "c.toml").write_text(f'{dataset}[score]\nmethod = "degree"\n[layout]\ncpu = "100%"\n')

    def run() -> list[bool]:
        return [stage["done"] for stage in tiering_cli("run", folder / "c.toml", "--json").ok().json["stages"]]

    assert run() == [True] * 4
    assert [*(folder / "copies").glob("*-node_label.npy")]
    assert run() == [False] * 4
    RemoteFolder(f"{s3}/data").write("part-2.parquet", [(source / "part-1.parquet").read_bytes()])
    assert run()[0]
    assert run() == [False] * 4
    RemoteFolder(f"{s3}/data").write("part-0.parquet", [(source / "part-1.parquet").read_bytes()])
    assert run()[0]
    assert tiering.open(folder / "graph").num_edges(("node", "to", "node")) == 18


def test_bad_addresses(tiering_cli: Callable[..., Any], tmp_path: Path, s3: str) -> None:
    out, source = tmp_path / "graph", SMALL_INPUTS["npy"](tmp_path / "data")
    url = upload(source, s3)
    for address, words in (
        (f"{url}x", "no such file or directory; check the bucket and the path"),
        (f"{s3}x/data", "no such file or directory; check the bucket and the path"),
        (url, "edge_index.npy: needs a local copy of 320 B (all files of"),
        (f"{url}/edge_index.npy", "give the directory that holds it"),
        (f"{s3}//data", "is not the address of a file"),
        ("other://data", "the scheme is unknown"),
    ):
        tiering_cli("import", address, "--out", out).refused(words)
    tiering_cli("import", url, "--out", out, "--cache", out).refused(f"{out}: expected a path apart from")
    tiering_cli("import", url, "--out", out, "--cache", tmp_path / "c", "--cache-size", "100").refused(
        "--cache-size 320 or"
    )
    tiering_cli("import", url, "--out", out, "--cache", tmp_path / "c", "--cache-size", "5%").refused("absolute size")
    tiering_cli("import", url, "--out", out, "--cache-size", "1GiB").refused(
        "--cache-size: has no effect without --cache"
    )
    assert not out.exists()


def test_a_store_that_refuses_and_one_that_dies(
    tiering_cli: Callable[..., Any], tmp_path: Path, monkeypatch: Any
) -> None:
    store = ObjectStore(INITIAL_NO_AUTH_ACTION_COUNT="2")
    try:
        for name, value in store.environment().items():
            monkeypatch.setenv(name, value)
        bucket = store.make_bucket()
        for _ in range(4):
            result = tiering_cli("import", f"{bucket}/data", "--out", tmp_path / "graph")
        result.refused("the store refuses access", "credentials")
    finally:
        store.stop()
    tiering_cli("import", f"{bucket}/data", "--out", tmp_path / "graph").refused("run the same command again")
