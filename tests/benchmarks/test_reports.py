"""Reports that write tables of docs/ run tiny, and the pages have the committed results."""

from __future__ import annotations

import json
import re
import shutil
import sys
from dataclasses import replace

import pytest

import tiering
from benchmarks import __main__ as program
from benchmarks import against, locality, plan, scale, score_tables
from benchmarks.harness import Sizes


@pytest.mark.long
def test_start_up_beside_another_checkout(tmp_path, capsys):
    out = tmp_path / "figures.json"
    asked = ["startup", "help", "info", "--against", sys.executable, "--repeats", "1", "--json", str(out)]
    assert program.main(asked) == 0
    results = json.loads(out.read_text())["results"]
    assert [each["name"] for each in results] == ["score --help", "--help", "info"]
    assert all(0.1 < each["cpu_ratio"] < 10 for each in results)
    assert (
        program.main(["startup", "--against", str(tmp_path)]) == 1 and "expected a checkout" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("parts", "cost"),
    [
        (["score vip", "kernel out_degrees"], ["--against", sys.executable]),
        pytest.param([], ["--against", sys.executable], marks=pytest.mark.long),
        *((["layout of", "degree"], cost) for cost in (["--no-verify"], ["--tasks", "3"])),
    ],
)
def test_stages_and_kernels_beside_another_way(tmp_path, capsys, parts, cost):
    """This checkout beside itself, without verification and in tasks: every row has both sides."""
    out = tmp_path / "figures.json"
    options = [*cost, "--dir", str(tmp_path), "--scale", "10", "--edges", "8000", "--repeats", "1"]
    assert program.main(["stages", *parts, *options, "--json", str(out)]) == 0
    results = json.loads(out.read_text())["results"]
    names = [n for n in against.rows("320MiB") if not parts or any(part in n for part in parts)]
    assert {each["name"] for each in results} <= set(names)
    assert len(results) == (len(names) if "--against" in cost else 2)
    for result in results:
        (peer,) = result["peers"]
        assert peer["note"] == "" and peer["cpu_ratio"] > 0 and peer["ratio"] > 0
    assert capsys.readouterr().out.count("\n| ") == len(results)
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]


def test_epochs_begun_in_their_middle(tmp_path, capsys):
    """Five ways to a first batch, in two epochs each; a layout that is not there is an error."""
    tiering.generate_dataset(tmp_path / "data", nodes=400, edges=3000, dim=8, classes=2)
    graph = tiering.import_graph(tmp_path / "data", out=tmp_path / "graph")
    tiering.score_graph(graph, out=tmp_path / "scores", method="degree")
    tiering.reorder_graph(graph, tmp_path / "scores", out=tmp_path / "ordered")
    tiering.write_layout(tmp_path / "ordered", out=tmp_path / "layout", cpu="30%", ssd=[tmp_path / "ssd"]).close()
    out = tmp_path / "figures.json"
    asked = ["--turns", "1", "--batch-size", "8", "--fanouts", "3,2", "--json", str(out)]
    assert program.main(["resume", str(tmp_path / "layout"), *asked]) == 0
    (turn,) = json.loads(out.read_text())["turns"]
    count = turn[0]["batches"]
    assert count > 4 and [way["skip"] for way in turn] == [False, False, False, True, True]
    assert [way["start"] for way in turn] == [int(part * count) for part in (0, 0.5, 0.9, 0.5, 0.9)]
    assert all(len(way["seconds"]) == 2 and min(way["seconds"]) > 0 for way in turn)
    assert capsys.readouterr().out.count("\n| ") == 6
    assert program.main(["resume", str(tmp_path / "none"), *asked]) == 1


@pytest.mark.long
def test_scale_is_measured_and_the_page_is_written(repository, tmp_path):
    pytest.importorskip("matplotlib")
    sizes = Sizes(threads=2, memory="1GiB", folder=tmp_path, repeats=1, stage_nodes=300, edges=5000)
    rows = replace(sizes, row_bytes=600, feature_bytes=60_000)
    results = {"edges": scale.run("edges", sizes), "rows": scale.run("rows", rows)}
    assert [each["name"] for each in results["edges"]] == ["import", "score", "reorder"]
    for each in (*results["edges"], *results["rows"]):
        assert each["median_seconds"] > 0 and each["peers"][0]["ratio"] > 0
    (tmp_path / "internals").mkdir()
    shutil.copy(repository / "docs" / "internals" / "scale.md", tmp_path / "internals")
    scale.write_docs(tmp_path, results)
    page = (tmp_path / "internals" / "scale.md").read_text()
    assert "| 300 | 5,000 | 2 | 1GiB |" in page and "| 600 | 100 | 1GiB |" in page
    assert page.count(scale.END) == 5 and (tmp_path / "images" / "scale.png").stat().st_size > 5000


@pytest.mark.long
def test_planned_epochs_are_measured(tmp_path):
    out = tmp_path / "figures.json"
    assert program.main(["plan", "--small", "--dir", str(tmp_path), "--json", str(out)]) == 0
    found = json.loads(out.read_text())["cells"]
    assert len(found) == len(plan.SHARES) and all(0.5 < plan.ratio(cell, "bytes") < 2 for cell in found[:2])


def test_planned_and_measured_epochs_by_hand():
    measured = {"seconds": [2.0, 1.0, 4.0], "requests": [10, 10, 10], "bytes": [100, 80, 90]}
    planned = {"seconds": 1.5, "requests": 11, "bytes": 90, "error": 0.1}
    cell = {"nodes": 1000, "row_bytes": 8, "memory": 1 << 20, "planned": planned, "measured": measured}
    assert plan.verdicts([cell, {**cell, "planned": {**planned, "seconds": 2.2}}]) == [
        "bytes: off by 0.0 %, aim 5 %", "requests: off by 10.0 %, aim 5 %", "seconds, median: off by 17.5 %, aim 15 %",
        "seconds, worst: off by 25.0 %, aim 30 %",
    ]  # fmt: skip
    row = plan.table([cell]).splitlines()[-1]
    assert row == "| 1,000 | 8 B | 1 MiB | 1.500 ± 0.100 | 2.000 (1.000 to 4.000) | 0.750 | 1.100 | 1.000 |"


def test_the_page_has_the_committed_results(repository):
    document = json.loads((repository / "docs" / "benchmarks" / "scale.json").read_text())
    page = (repository / "docs" / "internals" / "scale.md").read_text()
    for table in scale.tables(document["results"]).values():
        assert table in page


@pytest.mark.slow
def test_score_tables_of_generated_graphs(repository, tmp_path):
    (tmp_path / "internals").mkdir()
    shutil.copy(repository / "docs" / score_tables.PAGE, tmp_path / "internals")
    assert program.main(["scores", "--small", "--docs", str(tmp_path), "--data", str(tmp_path)]) == 0
    done = json.loads((tmp_path / "benchmarks" / "scores.json").read_text())
    assert list(done["tables"]) == ["rmat", "samplers", "hetero"]
    page = (tmp_path / score_tables.PAGE).read_text()
    assert "*oracle*" in page and "`hybrid` K=2" in page and "ssd" in page


def test_local_training_nodes_are_told_from_spread_ones(repository, tmp_path):
    """Without data two generated graphs are left: communities, whose classes are local, and R-MAT, which has none."""
    (tmp_path / "internals").mkdir()
    shutil.copy(repository / "docs" / score_tables.PAGE, tmp_path / "internals")
    assert program.main(["locality", "--small", "--docs", str(tmp_path), "--data", str(tmp_path)]) == 0
    runs = json.loads((tmp_path / "benchmarks" / "locality.json").read_text())["runs"]
    assert [run["graph"] for run in runs] == ["generated", "generated", "rmat", "rmat"]
    spread, local, *others = (run["locality"]["ratio"] for run in runs)
    assert local > 1.1 > spread > 0.9 and others == pytest.approx([1, 1], abs=0.1)
    assert runs[1]["hits"]["hybrid"] > runs[1]["hits"]["other"]
    row = (tmp_path / score_tables.PAGE).read_text().split("| generated: ")[2].splitlines()[0].split(" | ")
    assert row[1] == "one class" and row[3] == f"{local:.1f}"


def test_the_page_has_the_committed_localities(repository):
    runs = json.loads((repository / "docs" / "benchmarks" / "locality.json").read_text())["runs"]
    assert locality.render(runs) in (repository / "docs" / score_tables.PAGE).read_text()
    assert {run["graph"] for run in runs} == set(locality.GRAPHS)


def test_commands_of_the_documentation_name_benchmarks(repository):
    """What docs/ say made a figure is there to make it again."""
    known = {*program.BENCHMARKS, *program.REPORTS}
    named = set()
    for page in [repository / "README.md", repository / "CONTRIBUTING.md", *(repository / "docs").rglob("*.md")]:
        for command in page.read_text().split("python -m benchmarks ")[1:]:
            name = re.match(r"[\w-]*", command)[0]
            assert name.startswith("-") or name in known | {"NAME"}, command[:60]
            named |= {name} & known
    assert {"scale", "scores", "stages", "sampling", "gpu-times"} <= named
