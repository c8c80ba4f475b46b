"""`tiering plan` through the command line: its table, its document, its words for wrong input."""

from __future__ import annotations

import pytest

SIZE = ("--nodes", 6000, "--edges", 60_000, "--dim", 4096, "--classes", 3)
BATCHES = ("--batch-size", 16, "--fanouts", "3,3")


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    from tiering.cli.main import main

    folder = tmp_path_factory.mktemp("plan")
    assert main(["generate", str(folder / "data"), *map(str, SIZE)]) == 0
    assert main(["import", str(folder / "data"), "--out", str(folder / "graph")]) == 0
    return folder / "graph"


def test_table_and_document(tiering_cli, graph, tmp_path):
    asked = ("plan", graph, *BATCHES, "--disk", "nvme-gen3,2xsata-ssd", "--rows-in-memory", "290MiB,1GiB")
    shown = tiering_cli(*asked, "--step-seconds", "0.001", "--plot", tmp_path / "plan.svg").ok()
    assert "assuming out-degree order" in shown.err and "plot: " in shown.err
    assert (tmp_path / "plan.svg").read_text().startswith("<?xml")
    lines = shown.out.splitlines()
    assert sum(line.startswith(" 290 MiB") for line in lines) == 2 == shown.out.count("all rows fit  ")
    for text in (
        "with 1 GiB all rows fit in memory, read at the start",
        "2xsata-ssd: 196,000 random reads/s", "Samsung 870 EVO 1 TB, data sheet", "the time of the training steps",
    ):  # fmt: skip
        assert text in shown.out, shown.out
    found = tiering_cli(*asked, "--json", "--no-verify").ok().json
    assert found["sampled"] == 6 * min(found["batches"], 64) and found["target"] is None
    assert [(epoch["disk"], epoch["memory"] >> 20) for epoch in found["epochs"]] == [
        ("nvme-gen3", 290), ("nvme-gen3", 1024), ("2xsata-ssd", 290), ("2xsata-ssd", 1024),
    ]  # fmt: skip
    first, second = found["epochs"][:2]
    assert set(first["choice"]) == {"window", "horizon", "gap"} and second["choice"] is None
    assert first["bytes"] > 0 and 0 < first["hit_rate"] < 1 and second["seconds"] == 0 and second["load_bytes"] > 0
    assert found["disks"]["2xsata-ssd"]["bytes_per_second"] == 1.12e9


def test_nothing_is_drawn_where_all_rows_fit(tiering_cli, graph, tmp_path):
    """Memory that holds all rows is one line of the table for each disk and dtype; a note says why there is no plot."""
    asked = ("plan", graph, *BATCHES, "--disk", "nvme-gen3,nvme-gen4", "--rows-in-memory", "1GiB,2GiB,3GiB")
    shown = tiering_cli(*asked, "--plot", tmp_path / "plan.svg").ok()
    assert f"note: no plot written to {tmp_path / 'plan.svg'}: all rows fit in memory" in shown.err
    assert not (tmp_path / "plan.svg").exists() and shown.out.count("all rows fit  ") == 2 == shown.out.count(
        " 1 GiB  "
    )
    document = tiering_cli(*asked, "--plot", tmp_path / "plan.svg", "--json").ok().json
    assert document["plot"] is None and len(document["epochs"]) == 6


def test_the_disk_is_measured(tiering_cli, graph, tmp_path, monkeypatch):
    """The directory's disk, as `tiering doctor --ssd` measures it; nothing stays there."""
    from tiering.pipeline import doctor

    asked = []

    def measured(folder, size, seconds):
        asked.append(folder)
        return {"reads_per_second": 5000.0, "bytes_per_second": 1e8, "latency": 2e-4}

    monkeypatch.setattr(doctor, "measure_disk", measured)
    disks = ("--disk", f"measured,measured:{tmp_path}", "--rows-in-memory", "1GiB")
    found = tiering_cli("plan", graph, *BATCHES, *disks, "--json").ok().json
    assert asked == [graph.parent, tmp_path]
    assert found["disks"]["measured"]["reads_per_second"] == 5000


REFUSALS = {
    "disk": (["--disk", "floppy"], ["--disk: expected measured", "nvme-gen4", "'floppy'"]),
    "measured where": (["--disk", "measured:/nowhere"], ["--disk: expected measured, or measured:", "/nowhere"]),
    "memory": (["--rows-in-memory", "8"], ["--rows-in-memory: 8 ", "a loader needs at least"]),
    "no size": (["--rows-in-memory", "lots"], ["--rows-in-memory", "'lots'"]),
    "steps": (["--step-seconds", "0"], ["--step-seconds: expected seconds above 0"]),
    "plot": (["--plot", "plan.doc"], ["plan.doc", ".png"]),
    "scores": (["--scores", "nowhere"], ["nowhere"]),
    "training nodes": (["--train", "nowhere.npy"], ["nowhere.npy"]),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(tiering_cli, graph, tmp_path, monkeypatch, case):
    options, words = REFUSALS[case]
    monkeypatch.chdir(tmp_path)
    said = tiering_cli("plan", graph, *BATCHES, *options)
    assert said.code == 1
    error = said.err.splitlines()[-1]
    assert error.startswith("error: ") and all(word in error for word in words), said.err


def test_a_graph_without_training_nodes_or_features(tiering_cli, tmp_path):
    (tmp_path / "edges.txt").write_text("0 1\n1 2\n2 0\n")
    tiering_cli("import", tmp_path / "edges.txt", "--out", tmp_path / "graph").ok()
    tiering_cli("plan", tmp_path / "graph", "--row-bytes", "400")
    assert "give one with --train" in tiering_cli("plan", tmp_path / "graph", "--row-bytes", "400").err
    assert "--row-bytes" in tiering_cli("plan", tmp_path / "graph", "--train", "100%").err
    tiering_cli("plan", tmp_path / "graph", "--row-bytes", "400", "--train", "100%").ok()
