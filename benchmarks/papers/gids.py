"""GIDS (Park et al., VLDB'24): reads in flight, the CPU buffer, window buffering, and layer-wise sampling."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accumulator import SubmissionModel, merged_batches
from benchmarks.cache_policies import DiskRows, Future, belady, window_buffering
from benchmarks.papers.figures import PAPER, Figure, FigureMaker, Line, Panel, percent
from benchmarks.papers.inputs import Inputs, Sample, sampled_batches
from tiering import native
from tiering.artifacts.storage import ALIGNMENT, aligned_bytes
from tiering.pipeline.doctor import fill_random
from tiering.readahead import disk_speed
from tiering.sampling import SamplingOptions

OPTANE, SAMSUNG = (1.5e6, 11e-6), (0.7e6, 324e-6)
"""Reads of 4 KiB per second, and seconds of one (section 4.2)."""
STARTUP, TERMINATION = 25e-6, 5e-6
"""Seconds before the first read of a kernel and after the last (section 4.2)."""
AT_95 = {"model": 812, "measured": 1024}
"""Reads in flight for 95 % of an Optane SSD's peak."""
MERGED = {32: (7.6, 9.8), 64: (9.4, 10.4), 128: (10.1, 10.6)}
"""Figure 9: GB/s of two Optane SSDs by batch size at fanouts 5,5, without and with the accumulator."""
SSD_BYTES, PCIE_BYTES = 5.8e9, 32e9
"""Bytes per second of an Optane SSD and of the GPU's link (sections 3.3 and 4.3)."""
BUFFERED = {"0 %": 6.6, "20 %, random": 10.4, "20 %, PageRank": 23.4}
"""Figure 10: GB/s by size and content of the CPU buffer."""
WINDOW_GAINS = {4: 1.2, 8: 2.19}
"""Figure 11: hit ratio by window over that without."""
LADIES_GAIN = 1.92
"""Figure 15: aggregation of BaM over that of GIDS, with LADIES."""
GPU_CACHE = 8 / 1084
"""8 GB of cache over the bytes of IGB-Full (tables 2 and 4)."""
WINDOWS, CACHED_BATCHES = (0, 1, 2, 4, 8, 16, 32), (2, 4, 8)
FANOUTS = [10, 5, 5]
_IMAGE, _SMALL_IMAGE = 4 << 30, 8 << 20
_BATCHES, _FEW = 120, 24


def reads_in_flight(image: Path, counts: Sequence[int], seconds: float) -> list[float]:
    """Measure reads of 4 KiB per second where `count` are submitted together and all are waited for."""
    pages, rng = image.stat().st_size // ALIGNMENT, np.random.default_rng(1)
    found = []
    for count in counts:
        reader = native.SsdReader([str(image)], ALIGNMENT, "auto", min(count, 4096), "auto")
        table = native.TieredTable(
            ALIGNMENT, [0, 0, 0, pages], None, [], None, reader, 0, ALIGNMENT, 1, ALIGNMENT, ALIGNMENT
        )
        out = aligned_bytes(count * ALIGNMENT).reshape(-1, ALIGNMENT)
        reads, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds or not reads:
            reads += table.gather(rng.integers(0, pages, count), out).reads
        found.append(reads / elapsed)
    return found


def figure_8(inputs: Inputs) -> Figure:
    """Return reads per second by reads in flight: this disk's, measured and modeled, and the paper's drives."""
    image, nbytes = inputs.work / "image", _SMALL_IMAGE if inputs.small else _IMAGE
    with image.open("w+b") as file:
        file.truncate(nbytes)
        fill_random(file.fileno(), nbytes)
    counts = [1 << power for power in range(13)]
    speed = disk_speed.measure([image], inputs.seconds)
    rates = reads_in_flight(image, counts, inputs.seconds / 2)
    image.unlink()
    model = SubmissionModel(speed.reads_per_second, speed.latency or 1 / speed.reads_per_second)
    modeled = [model.share(count) * speed.reads_per_second for count in counts]
    ours = Panel(
        "this disk", "reads in flight", "reads/s",
        [Line("measured", counts, rates), Line("equations 2, 3", counts, modeled)], log="xy",
    )  # fmt: skip
    drives = {
        name: SubmissionModel(*drive, startup=STARTUP, termination=TERMINATION)
        for name, drive in (("Optane", OPTANE), ("980 Pro", SAMSUNG))
    }
    lines = [Line(name, counts, [100 * drive.share(n) for n in counts]) for name, drive in drives.items()]
    lines.append(Line("Optane at 95 %", list(AT_95.values()), [95.0, 95.0], PAPER))
    theirs = Panel("the paper's drives, by the equations", "reads in flight", "% of the peak", lines, log="x")
    within = max(max(a / b, b / a) for a, b in zip(rates, modeled, strict=True))
    claims = [
        ("reads in flight for 95 % of an Optane SSD's peak, by the equations", f"{AT_95['model']:,}",
         f"{drives['Optane'].reads(0.95):,}"),
        ("reads in flight for 95 % of the peak, measured", f"{AT_95['measured']:,} (Optane)",
         _reached(counts, rates, 0.95 * max(rates))),
        ("reads in flight for 95 % of this disk's peak, by the equations", "-", f"{model.reads(0.95):,}"),
        ("largest factor between measured and modeled rates", "-", f"{within:.1f}"),
    ]  # fmt: skip
    setting = f"Random reads of a file of {nbytes >> 20:,} MiB on this machine's disk: {speed}."
    return Figure("Reads in flight (figure 8, equations 2 and 3)", setting, [ours, theirs], claims)


def _reached(counts: Sequence[int], rates: Sequence[float], wanted: float) -> str:
    return f"{next(count for count, rate in zip(counts, rates, strict=True) if rate >= wanted):,}"


def figure_9(inputs: Inputs) -> Figure:
    """Return the bandwidth of two Optane SSDs by batch size, by the equations, each batch alone and merged."""
    sample = inputs.web()
    drives = SubmissionModel(*OPTANE, startup=STARTUP, termination=TERMINATION, ssds=2)
    enough, alone, merged, claims = drives.reads(0.95), list[float](), list[float](), []
    for size, (before, after) in MERGED.items():
        batches = sampled_batches(sample, SamplingOptions([5, 5], batch_size=size), _FEW)
        rows = [batch.size for batch in batches]
        together = np.add.reduceat(rows, np.cumsum([0, *merged_batches(rows, enough)[:-1]]))
        rates = [2 * SSD_BYTES * float(np.sum(rows) / np.sum(n / np.array([drives.share(k) for k in n])))
                 for n in (np.array(rows), together)]  # fmt: skip
        alone.append(rates[0] / 1e9)
        merged.append(rates[1] / 1e9)
        claims.append((f"batch size {size}: bandwidth alone and merged, GB/s", f"{before} and {after}",
                       f"{alone[-1]:.1f} and {merged[-1]:.1f}"))  # fmt: skip
    names = [str(size) for size in MERGED]
    lines = [Line("each batch", names, alone), Line("merged", names, merged)]
    lines += [
        Line(name, names, [pair[at] for pair in MERGED.values()], PAPER)
        for at, name in enumerate(("each batch", "merged"))
    ]
    panel = Panel("two Optane SSDs", "batch size", "GB/s", lines)
    setting = (
        f"Modeled: rows of batches of {sample.title}, fanouts 5,5, by the equations with the paper's figures of the "
        f"drives. Batches are merged until 95 % of the peak, {enough:,} reads."
    )
    return Figure("Merging batches (figure 9)", setting, [panel], claims)


def missing_rows(batches: Sequence[DiskRows], rows: int, slots: int, window: int | None) -> list[int]:
    """Return the rows each batch misses in GIDS's cache of `slots` rows; window 0 is BaM's, ``None`` Belady's."""
    future = Future(batches, rows)
    policy: Iterator[Any] = belady(future, slots) if window is None else window_buffering(future, slots, window, 0)
    return [missing.size for missing in policy]


def hit_ratio(batches: Sequence[DiskRows], rows: int, slots: int, window: int | None) -> float:
    """Return the fraction of the reads served by the cache, without the first third of the batches, which fill it."""
    first = len(batches) // 3
    missed = missing_rows(batches, rows, slots, window)[first:]
    return 1 - sum(missed) / sum(batch.size for batch in batches[first:])


def bandwidth(ssd: float, cpu: float) -> float:
    """Return the bytes per second of aggregation where such fractions come from one SSD and from host memory."""
    return 1 / max(ssd / SSD_BYTES, (ssd + cpu) / PCIE_BYTES, 1e-15)


def link_shares(
    batches: Sequence[DiskRows], rows: int, slots: int, window: int, buffered: DiskRows
) -> tuple[float, float]:
    """Return the fractions of the reads that an SSD and the CPU buffer serve, the GPU's cache in front of the SSD."""
    held = np.zeros(rows, bool)
    held[buffered] = True
    cold = [batch[~held[batch]] for batch in batches]
    first, total = len(batches) // 3, sum(batch.size for batch in batches[len(batches) // 3 :])
    served = sum(batch.size - rest.size for batch, rest in zip(batches[first:], cold[first:], strict=True))
    return sum(missing_rows(cold, rows, slots, window)[first:]) / total, served / total


def hottest(inputs: Inputs, sample: Sample, how: SamplingOptions, fraction: float) -> DiskRows:
    """Return the first rows by `wrpr`, which GIDS puts into its CPU buffer."""
    order = native.sort_by_score(np.ascontiguousarray(inputs.score(sample, "wrpr", how).values()), 1)
    return order[: int(fraction * order.size)].astype(np.uint32)


def figure_10(inputs: Inputs) -> Figure:
    """Return what a CPU buffer of 0, 10 and 20 % serves, and the bandwidth by the paper's link speeds."""
    redirected, speeds, claims, about = [], [], list[tuple[str, str, str]](), []
    for sample in inputs.samples("cnr-2000", "rmat"):
        how = SamplingOptions(FANOUTS, batch_size=64)
        batches, rows = sampled_batches(sample, how, _BATCHES), sample.graph.num_nodes()
        shuffled = np.random.default_rng(0).permutation(rows).astype(np.uint32)
        found = {"0 %": link_shares(batches, rows, int(GPU_CACHE * rows), 0, shuffled[:0])}
        for fraction in (0.1, 0.2):
            for name, held in (
                ("random", shuffled[: int(fraction * rows)]),
                ("PageRank", hottest(inputs, sample, how, fraction)),
            ):
                shares = link_shares(batches, rows, int(GPU_CACHE * rows), 0, held)
                found[f"{percent(fraction)}, {name}"] = shares
        redirected.append(Line(sample.name, list(found), [100 * cpu for _, cpu in found.values()]))
        speeds.append(Line(sample.name, list(found), [bandwidth(*shares) / 1e9 for shares in found.values()]))
        about.append(sample.title)
        claims += [
            (
                f"{sample.name}: bandwidth with a buffer of {name}, GB/s",
                f"{paper}",
                f"{bandwidth(*found[name]) / 1e9:.1f}",
            )
            for name, paper in BUFFERED.items()
        ]
    speeds.append(Line("IGB-Full", list(BUFFERED), list(BUFFERED.values()), PAPER))
    panels = [
        Panel("reads redirected to the CPU buffer", "buffer, % of the rows", "% of the reads", redirected),
        Panel("aggregation, modeled", "buffer, % of the rows", "GB/s", speeds),
    ]
    setting = (
        f"Fanouts 10,5,5, {_BATCHES} batches of 64, a third of which fills the GPU's cache of {percent(GPU_CACHE, 1)} "
        f"of the rows (random eviction); one SSD of 5.8 GB/s, a link of 32 GB/s. Graphs: {'; '.join(about)}."
    )
    return Figure("The constant CPU buffer (figure 10)", setting, panels, claims)


def figure_11(inputs: Inputs) -> Figure:
    """Return hit ratios of the GPU's cache by window depth and cache size, up to the best that any policy reaches."""
    panels, claims, about = [], list[tuple[str, str, str]](), []
    for sample in inputs.samples("cnr-2000", "rmat"):
        batches = sampled_batches(sample, SamplingOptions(FANOUTS, batch_size=64), _BATCHES)
        rows, size = sample.graph.num_nodes(), float(np.mean([batch.size for batch in batches]))
        lines, names = [], [*map(str, WINDOWS), "any"]
        for count in CACHED_BATCHES:
            found = [hit_ratio(batches, rows, int(count * size), window) for window in (*WINDOWS, None)]
            lines.append(Line(f"{count} batches", names, [100 * ratio for ratio in found]))
            for window, gain in WINDOW_GAINS.items():
                ours = found[WINDOWS.index(window)] / max(found[0], 1e-9)
                claims.append((f"{sample.name}, cache of {count} batches: hits at W = {window} / hits at W = 0",
                               f"{gain}", f"{ours:.2f}"))  # fmt: skip
        panels.append(Panel(sample.name, "window, batches", "hits, %", lines))
        about.append(f"{sample.title} ({size:,.0f} rows per batch)")
    setting = (
        f"Fanouts 10,5,5, {_BATCHES} batches of 64, a third of which fills the cache; caches for the rows of 2, 4 and "
        f"8 batches. W = 0 is BaM's random eviction, *any* is Belady's policy. Graphs: {'; '.join(about)}."
    )
    return Figure("Window buffering (figures 11 and 12)", setting, panels, claims)


def figure_15(inputs: Inputs) -> Figure:
    """Return the reads of an SSD by BaM's cache and by GIDS, for neighbor sampling and LADIES."""
    sample, names = inputs.sample("rmat"), ("BaM", "GIDS")
    samplers = {
        "neighbor": SamplingOptions(FANOUTS, batch_size=64),
        "LADIES": SamplingOptions([512, 512, 512], batch_size=64, sampler="ladies"),
    }
    left: dict[str, list[float]] = {name: [] for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    rows, claims = sample.graph.num_nodes(), []
    for how in samplers.values():
        batches = sampled_batches(sample, how, _BATCHES)
        held = hottest(inputs, sample, how, 0.1)
        for name, window, buffer in zip(names, (0, 8), (held[:0], held), strict=True):
            shares = link_shares(batches, rows, int(GPU_CACHE * rows), window, buffer)
            left[name].append(100 * shares[0])
            seconds[name].append(1 / bandwidth(*shares))
    for at, name in enumerate(samplers):
        paper = f"{LADIES_GAIN}" if name == "LADIES" else "-"
        claims.append(
            (f"{name}: aggregation time, BaM / GIDS", paper, f"{seconds['BaM'][at] / seconds['GIDS'][at]:.2f}")
        )
    panel = Panel("rows from SSD", "sampler", "% of the reads", [Line(n, list(samplers), left[n]) for n in names])
    setting = (
        f"{sample.title}, batches of 64, fanouts 10,5,5, LADIES with 512 nodes per layer. BaM: random eviction. GIDS: "
        f"windows of 8 and a CPU buffer of 10 %. The GPU caches {percent(GPU_CACHE, 1)} of the rows."
    )
    return Figure("Layer-wise sampling (figure 15)", setting, [panel], claims)


FIGURES: dict[str, FigureMaker] = {
    "gids-8": figure_8, "gids-9": figure_9, "gids-10": figure_10, "gids-11": figure_11, "gids-15": figure_15,
}  # fmt: skip
