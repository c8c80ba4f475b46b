"""Dry runs: what is predicted is what happens, in bytes left, read and written, and in memory."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import numpy as np
import peaks
import pytest
from fresh_process import in_warm_process
from warm_processes import interpret

from benchmarks.rmat import rmat_edges
from tiering import generate_dataset, pipeline
from tiering.artifacts.atomic import OWNER
from tiering.memory import own_memory
from tiering.reorder import table_reader
from tiering.reorder.arrays import PieceSizes

MIB = 1 << 20
BYTES_OFF = 2 * MIB
"""Journals, manifests and digests of samples, which predictions leave out."""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """An R-MAT graph of 6 M edges and 512 K nodes, 96 MiB of features."""
    folder = tmp_path_factory.mktemp("large")
    src, dst = rmat_edges(19, 6_000_000, 0, scramble=True)
    data = folder / "data"
    data.mkdir()
    np.save(data / "edge_index.npy", np.stack([src, dst]).astype(np.int64))
    np.save(data / "edge_weight.npy", np.ones(src.size, np.float32))
    np.save(data / "node_feat.npy", np.ones((1 << 19, 96), np.float16))
    np.save(data / "node_label.npy", np.zeros(1 << 19, np.int64))
    np.save(data / "train_idx.npy", np.arange(0, 1 << 19, 50))
    graph = pipeline.import_graph(data, folder / "graph")
    scores = pipeline.score_graph(graph, folder / "scores", "wrpr")
    pipeline.reorder_graph(graph, scores, folder / "reordered")
    del graph, scores
    gc.collect()  # the page cache keeps what is mapped
    return folder


def data_bytes(folder: Path, *, linked: bool = False) -> int:
    """Bytes of an artifact's files, without manifests and owners; with `linked` those shared with another, too."""
    files = [f for f in folder.rglob("*") if f.is_file() and f.name not in ("manifest.json", "checksums", OWNER)]
    return sum(file.stat().st_size for file in files if linked or file.stat().st_nlink == 1)


STAGES: dict[str, dict[str, Any]] = {
    "import": {},
    "import with edge ids": {"edge_ids": True},
    "score": {"method": "wrpr"},
    "score by counts": {"method": "hybrid", "fanouts": [5, 5]},
    "reorder": {},
    "reorder with features": {"features": True},
    "layout": {"gpu": "10%", "peer": "3x5%", "cpu": "20%", "ssd": ["ssd0", "ssd1"], "page": 4096},
    "layout in memory": {"cpu": "100%"},
    "layout of coded rows": {"gpu": "10%", "cpu": "20%", "ssd": ["ssd0"], "dtype": "int8"},
}


def stage(name: str, folder: Path, out: Path) -> tuple[Any, Any]:
    """Prediction and run of a stage, each of which takes the memory."""
    options = dict(STAGES[name])
    if "ssd" in options:
        options["ssd"] = [out.parent / each for each in options["ssd"]]
    kind = name.split()[0]
    inputs = {
        "import": (folder / "data", out),
        "score": (folder / "graph", out),
        "reorder": (folder / "graph", folder / "scores", out),
        "layout": (folder / "reordered", out),
    }[kind]
    run = pipeline.layout if kind == "layout" else getattr(pipeline, f"{kind}_graph")
    return (
        lambda memory: getattr(pipeline, f"estimate_{kind}")(*inputs, memory=memory, **options).plans[0],
        lambda memory: run(*inputs, memory=memory, **options),
    )


@pytest.mark.parametrize("budget", [None, 420 * MIB])
@pytest.mark.parametrize("name", STAGES)
def test_memory_and_what_is_left(large, tmp_path, name, budget):
    """Memory is a bound: at most 200 MiB, or 2.5 times, above what was taken beside the process itself.

    Formulas count what could be needed for any graph of these sizes: every column has edges, every chunk is whole.
    """
    taken, bound, over, left = in_warm_process(memory_of_a_stage, name, large, tmp_path / "out", budget)
    assert taken <= bound, f"{taken / MIB:.0f} MiB taken, {bound / MIB:.0f} predicted"
    assert bound <= max(2.5 * taken, taken + 200 * MIB), f"{taken / MIB:.0f} MiB taken, {bound / MIB:.0f} predicted"
    assert over <= 16 * MIB
    assert {place: data_bytes(Path(place)) for place in left} == left


def memory_of_a_stage(name: str, large: str, out: str, budget: int | None) -> tuple[int, int, int, dict[str, int]]:
    """Bytes taken and predicted beside the process, those predicted over the budget, and those left by directory."""
    if budget is not None:
        table_reader.SIZES = PieceSizes(free=0)
    predict, run = stage(name, Path(large), Path(out))
    with peaks.peak_memory() as peak:
        before = own_memory()
        limit = None if budget is None else budget + before
        plan = predict(limit)
        assert not Path(out).exists()
        run(limit)
    over = 0 if limit is None else plan.memory - limit
    left = {str(place): nbytes for place, nbytes in plan.left.items()}
    return peak.bytes - before, plan.memory - before, over, left


@pytest.mark.parametrize("name", ["import", "score", "reorder", "layout", "layout of coded rows"])
def test_bytes_read_and_written(large, tmp_path, name):
    """The system counts them, of a process of its own, with an empty page cache. Libraries are read when the stage runs
    for the first time. The kernel may drop pages before they are used and read them again, or keep pages that it was
    asked to drop: the best of three runs counts, each against its own plan.
    """
    folder = "data" if name == "import" else "reordered" if name.startswith("layout") else "graph"
    code = f"""
import gc, json, os, sys
from pathlib import Path
sys.path[:0] = {json.dumps([str(Path(__file__).parent), str(Path(peaks.__file__).parent)])}
from test_estimate import stage
folder = Path({str(large)!r})
stage({name!r}, folder, Path({str(tmp_path / "first")!r}))[1](None)
def drop():
    gc.collect()  # the page cache keeps what is mapped
    for file in folder.rglob("*"):
        if file.is_file():
            fd = os.open(file, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
def counted():
    return {{k: int(v) for k, v in (l.split(": ") for l in open("/proc/self/io").read().splitlines())}}
runs = []
for number in range(3):
    drop()
    predict, run = stage({name!r}, folder, Path({str(tmp_path)!r}) / f"out{{number}}" / "out")
    plan = predict(None)
    before = counted()
    run(None)
    after = counted()
    planned = {{"read": plan.disk_read, "written": plan.disk_written, "scratch": plan.disk_scratch}}
    runs.append({{k: after[k] - before[k] for k in ("read_bytes", "write_bytes")}} | planned)
print(json.dumps(min(runs, key=lambda run: (not run["read"], abs(run["read_bytes"] - run["read"])))))
"""
    done = interpret(code)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["scratch"] == 0 and found["written"] >= 4 * MIB
    if found["write_bytes"] == 0:
        pytest.skip("the system does not count bytes written on this file system")
    assert abs(found["write_bytes"] - found["written"]) < BYTES_OFF
    if found["read_bytes"] == 0:
        pytest.skip("the page cache cannot be dropped here")
    assert found["read"] > 0 and abs(found["read_bytes"] - found["read"]) < 0.1 * found["read"] + 2 * BYTES_OFF
    assert folder


CHAIN = """
[dataset]
path = "data"
edge_ids = true
[score]
fanouts = [4, 4]
method = "{method}"
[reorder]
features = {features}
[layout]
gpu = "10%"
cpu = "30%"
ssd = ["disk0", "disk1"]
[output]
dir = "out"
"""


@pytest.mark.parametrize("method", ["hybrid", "wrpr"])
@pytest.mark.parametrize("features", ["true", "false"])
def test_chains_before_anything_exists(tmp_path, method, features):
    """Every stage from the sizes that the one before will leave; then what is there already."""
    generate_dataset(tmp_path / "data", nodes=3000, edges=20_000, dim=32, hetero=True, seed=3)
    config = tmp_path / "chain.toml"
    config.write_text(CHAIN.format(method=method, features=features))
    made = pipeline.estimate_run(config)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chain.toml", "data"]
    pipeline.run_config(config)
    assert [plan.stage for plan in made.plans] == ["import", "score", "reorder", "layout"]
    for plan in made.plans[:3]:
        assert {place: data_bytes(place, linked=True) for place in plan.left} == dict(plan.left)
    layout = made.plans[3]
    expected = sum(map(data_bytes, layout.left)) if features == "false" else layout.disk_left
    assert layout.disk_left == pytest.approx(expected, rel=0.05)  # padding depends on which types go to disk
    assert all(not plan.steps for plan in pipeline.estimate_run(config).plans)
    assert all(plan.steps for plan in pipeline.estimate_run(config, force=True).plans)


def test_from_what_is_there_as_from_its_sizes(tmp_path):
    """A chain's later stages are planned from sizes as they would be from the artifacts."""
    generate_dataset(tmp_path / "data", nodes=2000, edges=9_000, dim=8, seed=1)
    config = tmp_path / "chain.toml"
    config.write_text('[dataset]\npath = "data"\n[output]\ndir = "out"\n[layout]\ngpu = "20%"\n')
    before = pipeline.estimate_run(config)
    pipeline.run_config(config)
    out = tmp_path / "out"
    again = (
        pipeline.estimate_score(out / "graph", out / "x").plans[0],
        pipeline.estimate_reorder(out / "graph", out / "scores", out / "x").plans[0],
        pipeline.estimate_layout(out / "reordered", out / "x", gpu="20%").plans[0],
    )
    for one, other in zip(before.plans[1:], again, strict=True):
        assert [(s.name, s.how, s.disk_written) for s in one.steps] == [
            (s.name, s.how, s.disk_written) for s in other.steps
        ]
        assert one.memory - one.held == other.memory - other.held
        assert one.disk_left == other.disk_left


def test_time_grows_with_edges_and_falls_with_threads(tmp_path):
    """The only thing promised of it: more work takes longer."""
    seconds = {}
    for edges in (10_000, 100_000):
        generate_dataset(tmp_path / str(edges), nodes=1000, edges=edges, dim=8, seed=1)
        graph = pipeline.import_graph(tmp_path / str(edges), tmp_path / f"graph-{edges}")
        scores = pipeline.score_graph(graph, tmp_path / f"scores-{edges}", "wrpr")
        reordered = pipeline.reorder_graph(graph, scores, tmp_path / f"reordered-{edges}")
        out = tmp_path / "out"
        for threads in (1, 4):
            stages = {
                "import": pipeline.estimate_import(tmp_path / str(edges), out, threads=threads),
                "score": pipeline.estimate_score(graph, out, "wrpr", threads=threads),
                "score by counts": pipeline.estimate_score(graph, out, "presample", fanouts=[5], threads=threads),
                "reorder": pipeline.estimate_reorder(graph, scores, out, threads=threads),
            }
            seconds[edges, threads] = {name: made.seconds for name, made in stages.items()}
        assert pipeline.estimate_layout(reordered, out, threads=2).seconds > 0
    for name, least in seconds[10_000, 4].items():
        assert 0 < least < seconds[10_000, 1][name] < seconds[100_000, 1][name]
        assert seconds[100_000, 4][name] < seconds[100_000, 1][name]
