"""Predicted epochs: against the loader that reads them, and against figures by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from judged_graphs import import_graph

import tiering
from tiering import generate_dataset, pipeline
from tiering.errors import BudgetError, FormatError, InputError, MissingError
from tiering.evaluation.locality import Locality
from tiering.evaluation.options import PlanOptions, Prices
from tiering.evaluation.predict import RESIDENT, RUNS, predict
from tiering.evaluation.predictions import EpochPredictions, PredictedEpoch
from tiering.memory import Budget
from tiering.readahead import memory
from tiering.readahead.config import ReadaheadConfig
from tiering.readahead.disk_speed import DiskSpeed
from tiering.readahead.disks import Disk, check_units, find_disk, known_disks
from tiering.readahead.memory import WindowMemory
from tiering.sampling import SamplingOptions, lists
from tiering.text.description import to_text

SPEED = DiskSpeed(100_000, 1e9)
DISK = Disk("test", SPEED)
LOCALITY = Locality(100, 300, 900)
RUN = {"fanouts": [3, 3], "batch_size": 16}
MIB = 1 << 20


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    """Reordered graphs of one and of several types, with rows of 16 KiB."""
    folder, found = tmp_path_factory.mktemp("graphs"), {}
    for hetero in (False, True):
        data, size = folder / f"data{hetero}", {"nodes": 6000, "edges": 60_000, "dim": 4096, "classes": 3}
        generate_dataset(data, **size, seed=1, hetero=hetero)
        graph = import_graph(data, folder / f"graph{hetero}")
        scores = pipeline.score_graph(graph, folder / f"scores{hetero}", "degree")
        found[hetero] = graph, scores, pipeline.reorder_graph(graph, scores, folder / f"reordered{hetero}")
    return found


@pytest.mark.parametrize(("hetero", "batch_size"), [(False, 16), (True, 16), (False, 2)])
def test_the_loader_reads_as_predicted(graphs, hetero, batch_size, tmp_path, monkeypatch):
    """Requests and bytes of later epochs, within 5 %, with the window that the loader chooses, of many batches too."""
    pytest.importorskip("torch")
    for chooser in ("tiering.evaluation.predict", "tiering.loader.batches.lookahead"):
        monkeypatch.setattr(f"{chooser}.TRIAL_SECONDS", math.inf)  # both by all batches, however long these take
    *_, reordered = graphs[hetero]
    run = {**RUN, "batch_size": batch_size}
    (tmp_path / "disk.json").write_text(json.dumps(SPEED.as_dict()))
    pipeline.layout(reordered, tmp_path / "layout", cpu=0, ssd=tmp_path / "ssd", dtype="float32")
    plan = predict(reordered, SamplingOptions(**run), disk=DISK, dtype="float32")
    predicted = plan.epochs[3]
    assert not predicted.all_fit and plan.epochs[-1].all_fit
    with tiering.open(tmp_path / "layout") as layout:
        budgets = [Budget(epoch.memory, "the plan's", RESIDENT) for epoch in (predicted, plan.epochs[-1])]
        loader, counts = layout.loader(**run, memory=budgets[0], ssd_model=tmp_path / "disk.json"), []
        for epoch in range(3):
            for _ in loader.epoch(epoch):
                pass
            counts.append(loader.lookahead.buffer.counters())
        assert loader.lookahead.choice.window == predicted.choice.window
        assert len(loader) == plan.batches
        assert layout.loader(**run, memory=budgets[1], ssd_model=tmp_path / "disk.json").lookahead is None
    read = {name: (counts[-1][name] - counts[0][name]) / 2 for name in ("reads", "read_bytes", "rows_read", "rows")}
    assert predicted.requests == pytest.approx(read["reads"], rel=0.05)
    assert predicted.bytes == pytest.approx(read["read_bytes"], rel=0.05)
    assert predicted.hit_rate == pytest.approx(1 - read["rows_read"] / read["rows"], abs=0.03)
    assert 0 < predicted.error < 0.1 * predicted.seconds
    assert predicted.seconds >= SPEED.seconds(0, predicted.bytes)


@pytest.mark.parametrize("hetero", [False, True])
def test_lists_that_exceed_memory_are_read_as_predicted(graphs, hetero, tmp_path, monkeypatch):
    """Reads of lists within a tenth, and the same rows, whether the prediction maps the lists or not."""
    pytest.importorskip("torch")
    *_, reordered = graphs[hetero]
    run = {**RUN, "batch_size": 8}
    mapped = predict(reordered, SamplingOptions(**run), disk=DISK, dtype="float32")
    find = WindowMemory.find
    monkeypatch.setattr(memory, "LEAST_LISTS", 0)
    monkeypatch.setattr(WindowMemory, "find", lambda lists, around, left, page_cache=None: find(lists, around, left, 0))
    sizes = [str(epoch.memory) for epoch in mapped.epochs[3:]]
    plan = predict(reordered, SamplingOptions(**run), disk=DISK, dtype="float32", rows_in_memory=sizes)
    monkeypatch.setattr(lists, "uncached_bytes", lambda array: array.nbytes)
    monkeypatch.setattr(lists, "available_memory", lambda: 1 << 20)
    again = predict(reordered, SamplingOptions(**run), disk=DISK, dtype="float32", rows_in_memory=sizes)
    assert [e.requests for e in again.epochs] == pytest.approx([e.requests for e in plan.epochs], rel=0.02)
    epoch, last = plan.epochs[0], plan.epochs[-1]
    assert epoch.lists_window > 1
    assert last.lists_window == 0  # what holds all rows holds these lists, too
    assert epoch.io_seconds == epoch.seconds + SPEED.seconds(epoch.lists_requests, epoch.lists_bytes) > epoch.seconds
    text = to_text(plan.describe())
    assert "batches sampled together" in text
    assert "in memory" in text
    (tmp_path / "disk.json").write_text(json.dumps(SPEED.as_dict()))
    pipeline.layout(reordered, tmp_path / "layout", cpu=0, ssd=tmp_path / "ssd", dtype="float32")
    with tiering.open(tmp_path / "layout") as layout:
        loader = layout.loader(
            **run, memory=Budget(epoch.memory, "the plan's", RESIDENT), ssd_model=tmp_path / "disk.json"
        )
        for _ in loader.epoch(0):
            pass
        loader.reset_counters()
        for _ in loader.epoch(1):
            pass
        found = loader.stats().lists
    assert found["largest_window"] == epoch.lists_window
    assert epoch.lists_requests == pytest.approx(found["reads"], rel=0.1)
    assert epoch.lists_bytes == pytest.approx(found["read_bytes"], rel=0.1)
    two = predict(
        reordered, SamplingOptions(**run), disk=DISK, lists_disk="nvme-gen5", dtype="float32", rows_in_memory=sizes[:1]
    )
    assert two.epochs[0].lists_seconds < epoch.lists_seconds
    assert two.epochs[0].io_seconds == two.epochs[0].seconds


def test_the_order_is_that_of_the_scores(graphs):
    """A graph with its scores reads as the graph that was reordered by them, for any threads."""
    graph, scores, reordered = graphs[True]
    asked = {"disk": DISK, "rows_in_memory": ["300MiB"]}
    found = predict(graph, SamplingOptions(**RUN), scores=scores, threads=2, **asked)
    again = predict(reordered, SamplingOptions(**RUN), threads=1, **asked)
    assert found.epochs[0].hit_rate == pytest.approx(again.epochs[0].hit_rate, abs=0.02)
    assert predict(graph, SamplingOptions(**RUN), scores=scores, threads=1, **asked).to_json() == found.to_json()


def test_smaller_rows_read_less(graphs):
    *_, reordered = graphs[False]
    plan = predict(reordered, SamplingOptions(**RUN), disk=DISK, dtype=["float32", "int8"], rows_in_memory=["290MiB"])
    wide, narrow = plan.epochs
    assert (wide.dtype, narrow.dtype) == ("float32", "int8")
    assert narrow.bytes < wide.bytes and narrow.seconds < wide.seconds
    assert plan.sampled == RUNS * 64 if plan.batches >= 128 else RUNS * plan.batches


def test_refusals(graphs, tmp_path):
    graph, _, reordered = graphs[False]
    how = SamplingOptions(**RUN)
    for asked, error, message in (
        ({"rows_in_memory": ["64MiB"]}, InputError, r"rows in memory: 64MiB .* a loader needs at least [\d.]+ MiB"),
        ({"rows_in_memory": [0]}, InputError, "rows in memory: expected a size such as 8GiB, found 0"),
        ({"disk": "nvme-gen9"}, InputError, "disk: expected measured, a file of figures, or one of nvme-gen3, .*gen9"),
        ({"disk": "0xhdd"}, InputError, "disk: expected 1 to 64 drives"),
        ({"dtype": "int9"}, InputError, "dtype: expected auto, float32, .*'int9'"),
        ({"dtype": []}, InputError, "disk, dtype: expected at least one of each"),
        ({"step_seconds": -1}, InputError, "step seconds: expected seconds above 0, found -1"),
        ({"target": "20"}, InputError, "target: expected a time, such as 'epoch 20s'"),
        ({"price": tmp_path / "none.toml"}, OSError, r"none\.toml"),
        ({"memory": 1 << 20}, BudgetError, "plan: the order of .* rows and a batch"),
        ({"train": "none"}, (InputError, MissingError), "none"),
    ):
        with pytest.raises(error, match=message):
            predict(reordered, how, **asked)
    with pytest.raises(InputError, match=r"expected a reordered graph, or scores"):
        predict(graph, how)


UNITS = {
    "GB": (DiskSpeed(600_000, 3.5), "bytes_per_second: expected at least the 2.46e"),
    "MB": (DiskSpeed(600_000, 3500), r"3.5 GB/s is 3.5e9"),
    "microseconds": (DiskSpeed(600_000, 3.5e9, 80), "latency: expected the seconds of one read"),
    "thousands of reads": (DiskSpeed(600, 3.5e9, 80e-6), "correct the unit of one of the two"),
}


@pytest.mark.parametrize("case", UNITS)
def test_wrong_units(case):
    speed, message = UNITS[case]
    with pytest.raises(InputError, match=f"disk.json: .*{message}"):
        check_units(speed, "disk.json")


def test_known_disks_agree_with_themselves_and_add_up(tmp_path):
    for name, disk in known_disks().items():
        assert check_units(disk.speed, name) == disk.speed and disk.device
        two = find_disk(f"2x{name}")
        assert (two.drives, two.name) == (2, f"2x{name}") and two.speed.latency == disk.speed.latency
        assert two.speed.reads_per_second == 2 * disk.speed.reads_per_second
    (tmp_path / "disk.json").write_text('{"reads_per_second": 1000, "bytes_per_second": 1e8}')
    assert find_disk(tmp_path / "disk.json").speed == DiskSpeed(1000, 1e8)


def line(*seconds, disk="test"):
    choice = ReadaheadConfig(1, 0, 0)
    return [
        PredictedEpoch((4 + 4 * at) * 1024 * MIB, disk, "float32", value, choice=choice if value else None)
        for at, value in enumerate(seconds)
    ]


def test_the_knee(tmp_path):
    """Of 100, 30, 20, 10, 0 s at 4 to 20 GiB the second is farthest below the chord; steps of 15 s take the fourth."""
    plan = EpochPredictions(line(100, 30, 20, 10, 0), 1000, 5, {"test": DISK}, LOCALITY)
    assert plan.knee(plan.epochs) is plan.epochs[1]
    assert "the knee is at 8 GiB: 30 s of I/O per epoch, compared with 1 min 40 s with 4 GiB" in str(plan.describe())
    steps = replace(plan, step_seconds=0.015)
    assert steps.knee(plan.epochs) is plan.epochs[3]
    assert (
        "with 16 GiB an epoch takes 15 s, the time of the training steps; below 16 GiB the disk is the bottleneck"
        in str(steps.describe())
    )
    slow = replace(steps, epochs=line(100, 30))
    assert "with 8 GiB an epoch takes 30 s, training steps alone 15 s; the disk is always the bottleneck" in str(
        slow.describe()
    )
    assert plan.plot(tmp_path / "plan.png").stat().st_size > 5000
    assert replace(plan, epochs=line(0, 0)).plot(tmp_path / "none.png") is None and not (tmp_path / "none.png").exists()
    rows = replace(plan, epochs=[*line(9, 0, 0, 0), *line(9, 4, disk="b")]).describe()[0].rows
    assert [row[:2] for row in rows] == [["4 GiB", "test"], ["8 GiB", "test"], ["4 GiB", "b"], ["8 GiB", "b"]]


def test_curves_that_coincide_are_told_apart_and_knees_are_marked():
    """Of three equal lines each is broader than the one above it; a fourth, other line is not."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import to_rgb
    from matplotlib.figure import Figure

    same = [epoch for disk in "abc" for epoch in line(100, 30, 20, 10, disk=disk)]
    plan = EpochPredictions([*same, *line(50, 45, 10, 9, disk="d")], 1000, 5, {}, LOCALITY)
    figure = Figure(layout="constrained")
    plan.draw(figure)
    (axes,) = figure.axes
    curves = [line for line in axes.get_lines() if len(line.get_xdata()) >= 3 and line.get_linestyle() != "None"]
    assert [curve.get_linewidth() for curve in curves] == pytest.approx([6.4, 4.0, 1.6, 1.6])
    rings = [(x[0], y[0]) for x, y in (mark.get_data() for mark in axes.get_lines()) if len(x) == 1]
    assert rings == [(8 << 30, 30)] * 3 + [(12 << 30, 10)]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels[0] == "a, float32, knee at 8 GiB" and labels[3] == "d, float32, knee at 12 GiB"
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    picture = np.asarray(canvas.buffer_rgba())[:, :, :3] / 255
    for curve in curves:
        assert (np.abs(picture - to_rgb(curve.get_color())).max(axis=2) < 0.02).sum() > 50
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["4 GiB", "8 GiB", "12 GiB", "16 GiB"]


def test_prices(tmp_path):
    file = tmp_path / "prices.toml"
    file.write_text('currency = "EUR"\nmachine = 1\nmemory_gib = 0.5\n[disk]\ntest = 3\n')
    plan = EpochPredictions(line(1800), 10, 5, {"test": replace(DISK, drives=2)}, LOCALITY, prices=Prices.read(file))
    assert plan.epoch_cost(plan.epochs[0]) == pytest.approx((1 + 4 * 0.5 + 2 * 3) / 2)  # half an hour
    assert plan.to_json()["epochs"][0]["cost"] == plan.epoch_cost(plan.epochs[0])
    with pytest.raises(InputError, match=r"prices\.toml: \[disk\] has no price for 2xhdd, only for test"):
        PlanOptions(disk=["test", "2xtest", "2xhdd"], price=file)
    file.write_text("machine = 1")
    assert PlanOptions(disk="2xhdd", price=file).prices is not None
    for text in ("currency = 3", "machine = -1", "disk = 3", "other = 1", '[disk]\na = "x"'):
        file.write_text(text)
        with pytest.raises(InputError, match=r"prices\.toml: expected currency, prices per hour"):
            Prices.read(file)
    file.write_text("x")
    with pytest.raises(FormatError, match=r"prices\.toml: expected TOML"):
        Prices.read(file)


def test_the_least_memory_for_a_target(graphs):
    *_, reordered = graphs[False]
    ask = {"disk": DISK, "rows_in_memory": ["290MiB"]}
    (epoch,) = predict(reordered, SamplingOptions(**RUN), **ask).epochs
    (found,) = predict(reordered, SamplingOptions(**RUN), **ask, target=f"epoch {epoch.seconds:.6f}s").least
    assert found.seconds <= epoch.seconds + 1e-6 and found.memory <= 1.03 * epoch.memory
    plan = predict(reordered, SamplingOptions(**RUN), **ask, target="epoch 0.001s", step_seconds=1e-6)
    assert "an epoch of 1 ms " in to_text(plan.describe()) and plan._row(plan.epochs[0])[-1].endswith(" ms")
    plan = predict(reordered, SamplingOptions(**RUN), **ask, target="epoch 1s", step_seconds=10)
    assert plan.least == [None] and "needs faster training steps" in str(plan.describe())
    assert PlanOptions(target="epoch 2 min").target_seconds == 120


def test_rows_without_features_count_as_float32(graphs):
    graph, scores, _ = graphs[True]
    empty = next((t for t in graph.node_types if graph.feature_table(t) is None), graph.node_types[0])
    sizes = {empty: 400}
    plan = predict(graph, SamplingOptions(**RUN), scores=scores, row_bytes=sizes, dtype=["auto", "int8"], disk=DISK)
    assert np.isfinite([epoch.seconds for epoch in plan.epochs]).all()
