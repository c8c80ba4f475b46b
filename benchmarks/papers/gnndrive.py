"""GNNDrive (Jiang et al., ICPP'24): sampling and extraction in one memory, by dimension, memory, batch and fanout.

Each run is a process in a control group that holds what a process needs without data, and a fraction of the lists and
the rows of 128 float32, as the paper's 32 GB hold of ogbn-papers100M. No model is trained: a batch is sampled and its
rows are read.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np

from benchmarks.inference import write_features
from benchmarks.memory_group import memory_group
from benchmarks.papers.figures import Figure, FigureMaker, Line, Panel, percent
from benchmarks.papers.inputs import Inputs
from benchmarks.rmat import rmat_edges
from benchmarks.stages import forget
from tiering import generate_dataset, native, pipeline
from tiering.artifacts.storage import ALIGNMENT
from tiering.errors import InternalError
from tiering.pipeline.doctor import fill_random
from tiering.readahead.disk_speed import random_reads

MAP, GINEX, OURS = SIDES = ("memory map", "Ginex", "ours")
MEMORY = 32 / 67
"""GB of the paper's machine over those of ogbn-papers100M's lists and rows (section 5, table 1)."""
EXTRACTION = 0.973
"""Extraction's part of the time of training with ogbn-papers100M (section 3)."""
CONTENTION, BY_DIMENSION = 5.4, 3.1
"""Sampling of a memory map with extraction over sampling alone, and at dimension 512 over 64 (section 3)."""
SAMPLING_GAINS = {128: 1.9, 512: 3.0}
"""Sampling of a memory map over GNNDrive's, by dimension, both with extraction (section 5.2)."""
EPOCH_GAINS = {MAP: 16.9, GINEX: 2.6}
"""Epochs of the others over GNNDrive's on ogbn-papers100M at dimension 128 (section 5.1)."""
GROWTH = {MAP: 7.0, OURS: 1.1}
"""Epochs at dimension 512 over those at 64, of MAG240M (section 5.1)."""
LEAST_MEMORY_GAIN = 5.8
"""Epochs of a memory map over GNNDrive's with 8 GB, at dimension 512 (section 5.1)."""
BUFFERED = 0.056
"""Buffered and direct reads are apart by so much with many in flight (appendix B)."""
DIMENSIONS, FRACTIONS, BATCHES, FANOUTS = (64, 128, 256, 512), (0.2, 0.33, MEMORY, 0.96), (25, 50, 100), (5, 10, 15)
_PROGRAM = Path(__file__).parents[1] / "programs" / "contention.py"
_SCALE, _SMALL = 20, 12
_LEAST = 64 << 20
"""Bytes of data that a group holds at least, as the loader needs some for batches."""
_GIVEN = 0.95
"""Fraction of the group that the loader gets as ``memory=``."""
_SEEDS, _EPOCHS = 5, 20
_STEP, _LONG, _IDLE, _WAITS = 0.25, 40.0, 3, 4
"""Seconds between measurements of the processors, length of a run, and columns of /proc/stat."""


@dataclass(frozen=True)
class Setting:
    """Sizes of a run; the paper's batches of 1,000 of 111 M nodes become 50 of a million. A superbatch is an epoch."""

    dim: int = 128
    fraction: float = MEMORY
    batch_size: int = 50
    fanout: int = 10


def prepare(inputs: Inputs, dim: int) -> dict[str, Any]:
    """Make a graph with rows of `dim` float32 and a layout with all of them on SSD, unless they are there."""
    folder, scale = inputs.work / f"contention-{dim}", _SMALL if inputs.small else _SCALE
    parts = {name: folder / name for name in ("data", "graph", "scores", "reordered", "layout")}
    nodes = 1 << scale
    if not folder.exists():
        parts["data"].mkdir(parents=True)
        np.save(parts["data"] / "edge_index.npy", np.stack(rmat_edges(scale, 16 << scale, scramble=True)))
        np.save(parts["data"] / "train_idx.npy", np.sort(np.random.default_rng(0).choice(nodes, nodes // 200, False)))
        write_features(parts["data"] / "node_feat.npy", nodes, dim)
        (folder / "table").write_bytes(b"")
        with (folder / "table").open("wb") as file:
            np.load(parts["data"] / "node_feat.npy", mmap_mode="r").tofile(file)
        graph = pipeline.import_graph(parts["data"], parts["graph"], num_nodes=nodes)
        scores = pipeline.score_graph(graph, parts["scores"], "wrpr")
        pipeline.reorder_graph(graph, scores, parts["reordered"])
        pipeline.write_layout(parts["reordered"], parts["layout"], ssd=[folder / "ssd"])
    places = {name: str(parts[name]) for name in ("graph", "reordered", "layout")}
    return {**places, "table": str(folder / "table"), "folder": str(folder), "nodes": nodes, "dim": dim}


def run(inputs: Inputs, side: str, setting: Setting, stages: Sequence[str], lasting: float = 3) -> dict[str, Any]:
    """Run a side in its group: figures of ``only`` (sampling) and ``all`` by stage; none where memory is too little."""
    options = prepare(inputs, setting.dim)
    nodes = options["nodes"]
    data = max(int(setting.fraction * (4 * 16 + 8 + 4 * 128) * nodes), _LEAST)
    known = Path(options["folder"]) / "empty.json"
    if not known.exists():
        known.write_text(json.dumps(_process("empty", options, None)))
    base = json.loads(known.read_text())
    limit = base["resident"] + data
    forget([path for path in Path(options["folder"]).rglob("*") if path.is_file() and path.stat().st_size])
    options |= {
        "memory": data, "loader_memory": int(_GIVEN * limit) - base["files"], "threads": 16,
        "seconds": lasting * inputs.seconds, "superbatch": max(1, nodes // 200 // setting.batch_size),
        "stages": list(stages),
        "fanouts": [setting.fanout] * 3, "batch_size": setting.batch_size,
    }  # fmt: skip
    return _process(side, options, None if inputs.small else limit)


def _process(side: str, options: Mapping[str, Any], limit: int | None) -> dict[str, Any]:
    with memory_group(limit) if limit else nullcontext() as group:
        command = [sys.executable, str(_PROGRAM), side, json.dumps(options)]
        done = subprocess.run(command, capture_output=True, text=True, preexec_fn=group.enter if group else None)
    if done.returncode == -9 or "BudgetError" in done.stderr:
        return {}
    if done.returncode:
        raise InternalError(f"{side}: exit {done.returncode}: {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def lines_of(
    found: Mapping[str, Mapping[Any, dict[str, Any]]], stage: str, figure: str, name: str = "{}"
) -> list[Line]:
    """Return a line for each side: milliseconds per batch over what was varied, without runs of too little memory."""
    lines = []
    for side, runs in found.items():
        points = [(x, 1e3 * run[stage][figure]) for x, run in runs.items() if stage in run]
        lines.append(Line(name.format(side), [x for x, _ in points], [y for _, y in points]))
    return lines


def figure_2(inputs: Inputs) -> Figure:
    """Return sampling alone and with extraction, batches, and the process's work and waits, by dimension."""
    found = {
        side: {dim: run(inputs, side, Setting(dim), ("only", "all")) for dim in DIMENSIONS} for side in SIDES
    }  # fmt: skip
    sampling = [*lines_of(found, "only", "sampling", "{}, sampling alone"), *lines_of(found, "all", "sampling")]
    names = ["computing", "waiting"]
    at = {side: runs[128]["all"] for side, runs in found.items()}
    shares = [Line(side, names, [100 * here["computing"], 100 * here["waiting"]]) for side, here in at.items()]
    panels = [
        Panel("sampling", "feature dimension", "ms per batch", sampling, log="xy"),
        Panel(
            "sampling and extraction", "feature dimension", "ms per batch", lines_of(found, "all", "batch"), log="xy"
        ),
        Panel("the process, dimension 128", "", "% of the time", shares),
    ]
    mapped = found[MAP]
    claims = [
        ("memory map: extraction's fraction of a batch's time, dimension 128",
         f"{percent(EXTRACTION, 1)}, training counted", percent(at[MAP]["extraction"] / at[MAP]["batch"], 1)),
        ("memory map: sampling time with extraction / alone, dimension 128", f"{CONTENTION}",
         f"{mapped[128]['all']['sampling'] / mapped[128]['only']['sampling']:.1f}"),
        ("memory map: sampling time at dimension 512 / 64", f"{BY_DIMENSION}",
         f"{mapped[512]['all']['sampling'] / mapped[64]['all']['sampling']:.1f}"),
        *((f"sampling time, memory map / ours, dimension {dim}", f"{gain}",
           f"{mapped[dim]['all']['sampling'] / found[OURS][dim]['all']['sampling']:.1f}")
          for dim, gain in SAMPLING_GAINS.items()),
        *((f"time of a batch, {side} / ours, dimension 128", f"{gain}", f"{at[side]['batch'] / at[OURS]['batch']:.1f}")
          for side, gain in EPOCH_GAINS.items()),
        *((f"{side}: time of a batch at dimension 512 / 64", f"{gain}",
           f"{found[side][512]['all']['batch'] / found[side][64]['all']['batch']:.1f}")
          for side, gain in GROWTH.items()),
    ]  # fmt: skip
    return Figure("Memory contention by dimension (figures 2, 3, 8 and 11)", _setting(inputs), panels, claims)


class ProcessorUse(Thread):
    """A thread that measures the machine's processors from time to time: work, and waiting for a disk, in percent."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seconds, self.busy, self.waiting = list[float](), list[float](), list[float]()
        self._over = Event()
        self.start()

    def run(self) -> None:
        """Measure until the run is over."""
        start, last = time.perf_counter(), self._ticks()
        while not self._over.wait(_STEP):
            now = self._ticks()
            spent = now - last
            self.seconds.append(time.perf_counter() - start)
            self.busy.append(100 * float(spent.sum() - spent[_IDLE] - spent[_WAITS]) / max(1, spent.sum()))
            self.waiting.append(100 * float(spent[_WAITS]) / max(1, spent.sum()))
            last = now

    def stop(self) -> None:
        """End the measurement."""
        self._over.set()
        self.join()

    @staticmethod
    def _ticks() -> Any:
        return np.array(Path("/proc/stat").read_text().split("\n")[0].split()[1:9], np.int64)


def figure_3(inputs: Inputs) -> Figure:
    """Return the processors' work and waiting over the time of a run of each side; a process starts for two seconds."""
    found = dict[str, ProcessorUse]()
    for side in SIDES:
        prepare(inputs, 128)
        found[side] = ProcessorUse()
        run(inputs, side, Setting(), ("all",), lasting=_LONG)
        found[side].stop()
    panels, claims = [], []
    names = {"busy": "processors at work, %", "waiting": "processors waiting for reads, %"}
    for name, axis in names.items():
        values = {side: (use.seconds, getattr(use, name)) for side, use in found.items()}
        panels.append(Panel(axis.partition(",")[0], "s", axis, [Line(side, *own) for side, own in values.items()]))
        for side, (_, own) in values.items():
            paper = "little" if (side == OURS) == (name == "waiting") else "much"
            claims.append((f"{side}: {axis}, mean of the second half", paper, f"{np.mean(own[len(own) // 2 :]):.0f}"))
    where = f"{_setting(inputs).rpartition(' Each run')[0]} Measured every {_STEP} s on the whole machine; processors"
    setting = f"{where} wait that are idle while a read is under way."
    return Figure("Processors over time (CPU half of figures 3 and 11)", setting, panels, claims)


def _setting(inputs: Inputs) -> str:
    nodes = 1 << (_SMALL if inputs.small else _SCALE)
    return (
        f"R-MAT, {nodes:,} nodes, {16 * nodes:,} edges, 0.5 % train, batches of 50, fanouts 10,10,10. Each memory "
        f"group has room for the process and {percent(MEMORY)} of the lists and rows of 128 float32. Each run is "
        f"measured for {3 * inputs.seconds:g} s after the memory is full."
    )


def figure_9(inputs: Inputs) -> Figure:
    """Return milliseconds of a batch by memory, batch size and fanout, for each side."""
    plain = Setting()
    ways: dict[str, dict[float, Setting]] = {
        "memory, % of lists and rows": {100 * share: replace(plain, fraction=share) for share in FRACTIONS},
        "batch size": {size: replace(plain, batch_size=size) for size in BATCHES},
        "fanout, three hops": {fanout: replace(plain, fanout=fanout) for fanout in FANOUTS},
    }

    @cache
    def once(side: str, setting: Setting) -> dict[str, Any]:
        return run(inputs, side, setting, ("all",))

    panels, first, failed = [], dict[str, dict[float, dict[str, Any]]](), list[str]()
    for axis, settings in ways.items():
        found = {side: {x: once(side, setting) for x, setting in settings.items()} for side in SIDES}
        first = first or found
        failed += [f"{side}, {axis} {x:g}" for side, runs in found.items() for x, each in runs.items() if not each]
        panels.append(Panel(axis.split(",")[0], axis, "ms per batch", lines_of(found, "all", "batch"), log="y"))
    claims = []
    for share in FRACTIONS:
        batch = {side: runs[100 * share].get("all", {}).get("batch") for side, runs in first.items()}
        if batch[OURS] and batch[MAP]:
            paper = f"{LEAST_MEMORY_GAIN} (8 GB, dimension 512)" if share == min(FRACTIONS) else "-"
            what = f"memory for {percent(share)} of the data: time of a batch, memory map / ours"
            claims.append((what, paper, f"{batch[MAP] / batch[OURS]:.1f}"))
    claims.append(("runs with too little memory", "Ginex with 8 GB (Twitter)", "; ".join(failed) or "none"))
    return Figure("Memory, batch size and fanout (figures 9, 10 and 12)", _setting(inputs), panels, claims)


def in_flight(image: Path, engine: str, direct: str, depths: Sequence[int], seconds: float) -> list[float]:
    """Measure random reads of 4 KiB per second by an engine, buffered or direct, by reads in flight."""
    rates, size = [], image.stat().st_size
    for depth in depths:
        forget([image])
        reader = native.SsdReader([str(image)], ALIGNMENT, engine, depth, direct)
        rates.append(random_reads(reader, size, seconds, 4096))
    return rates


def figure_b1(inputs: Inputs) -> Figure:
    """Return reads per second by threads and by the depth of one ring, buffered and direct."""
    image, nbytes = inputs.work / "image", (8 << 20) if inputs.small else (4 << 30)
    with image.open("w+b") as file:
        file.truncate(nbytes)
        fill_random(file.fileno(), nbytes)
    depths = [1 << power for power in range(8)]
    ring = "threads" if native.uring_unavailable() else "io_uring"
    found = {
        (name, mode): in_flight(image, engine, direct, depths, inputs.seconds / 2)
        for name, engine in (("threads", "threads"), ("one ring", ring))
        for mode, direct in (("direct", "on"), ("buffered", "off"))
    }
    image.unlink()
    lines = [Line(", ".join(key), depths, rates) for key, rates in found.items()]
    top = {key: max(rates) for key, rates in found.items()}
    claims = [
        ("highest rate of one ring / of threads, direct reads", "similar",
         f"{top['one ring', 'direct'] / top['threads', 'direct']:.2f}"),
        ("rate of buffered / of direct reads, one ring, most in flight", f"differ by {percent(BUFFERED, 1)}",
         f"{found['one ring', 'buffered'][-1] / found['one ring', 'direct'][-1]:.2f}"),
    ]  # fmt: skip
    setting = (
        f"Random reads of 4 KiB (512 B in the paper) of a file of {nbytes >> 20:,} MiB that is not in the page cache."
    )
    panel = Panel("random reads", "threads, or reads in flight", "reads/s", lines, log="xy")
    return Figure("Threads and asynchronous reads (figure B.1)", setting, [panel], claims)


def accuracies(layout: Any, in_order: bool, seed: int, epochs: int) -> tuple[list[float], int]:
    """Train GraphSAGE of the examples; return validation accuracy by epoch, and batches that came out of order."""
    import torch

    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    example = import_module("train_graphsage")
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    options = {"fanouts": (10, 10), "seed": seed}
    loader = layout.loader("train", batch_size=4, workers=4, in_order=in_order, **options)
    valid = layout.loader("val", batch_size=1024, **options)
    net = example.GraphSage(loader, 2, 64, layout.num_classes(loader.node_type), 0.3)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    found, late, order = list[float](), 0, list[int]()

    def batches(epoch: int) -> Any:
        for batch in loader.epoch(epoch):
            order.append(batch.index)
            yield batch

    for epoch in range(epochs):
        order.clear()
        example.train_epoch(net, optimizer, batches(epoch), None)
        late += sum(after < before for before, after in pairwise(order))
        found.append(float(example.accuracy(net, valid)))
    return found, late


def figure_14(inputs: Inputs) -> Figure:
    """Return validation accuracy by epoch with batches in order and as they are ready."""
    name = "cora"
    place, folder = inputs.data / name, inputs.work / "accuracy"
    folder.mkdir()
    if not place.is_dir():
        name, place = "generated", folder / "data"
        generate_dataset(place, nodes=150, edges=900, dim=16, classes=4, seed=0)
    graph = pipeline.import_graph(place, folder / "graph", reverse_edges=True)
    scores = pipeline.score_graph(graph, folder / "scores", "degree")
    reordered = pipeline.reorder_graph(graph, scores, folder / "reordered")
    seeds, epochs = (1, 2) if inputs.small else (_SEEDS, _EPOCHS)
    with pipeline.write_layout(reordered, folder / "layout") as layout:
        runs = {way: [accuracies(layout, way, seed, epochs) for seed in range(seeds)] for way in (True, False)}
    means = {way: 100 * np.mean([found for found, _ in each], axis=0) for way, each in runs.items()}
    last = {way: np.array([100 * found[-1] for found, _ in each]) for way, each in runs.items()}
    names = {True: "in order", False: "as they are ready"}
    at = [float(epoch) for epoch in range(1, epochs + 1)]
    lines = [Line(names[way], at, mean.tolist()) for way, mean in means.items()]
    claims = [
        (f"accuracy after {epochs} epochs, in order and as they are ready", "the same, about 56 % (ogbn-papers100M)",
         " and ".join(f"{values.mean():.1f} % (sd {values.std():.1f})" for values in last.values())),
        ("batches that arrived before an earlier one", "-", f"{sum(late for _, late in runs[False]):,}"),
    ]  # fmt: skip
    panel = Panel(name, "epoch", "validation accuracy, %", lines)
    setting = (
        f"{name}, {graph.num_nodes():,} nodes, GraphSAGE with two layers, fanouts 10,10, batches of 4, four workers, "
        f"mean of {seeds} seeds."
    )
    return Figure("Accuracy in order and reordered (figure 14)", setting, [panel], claims)


FIGURES: dict[str, FigureMaker] = {
    "gnndrive-2": figure_2, "gnndrive-3": figure_3, "gnndrive-9": figure_9, "gnndrive-14": figure_14,
    "gnndrive-b1": figure_b1,
}  # fmt: skip
