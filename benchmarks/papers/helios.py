"""Helios (Sun et al.): rows left to SSDs by a GPU cache and host memory, SSD bytes by row width, numbers of SSDs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from benchmarks.papers.figures import PAPER, Figure, FigureMaker, Line, Panel, percent
from benchmarks.papers.inputs import Inputs, Sample, sampled_batches
from tiering import native
from tiering.evaluation.cache_order import LinkTraffic
from tiering.layout.tiers import parse_capacities
from tiering.sampling import SamplingOptions

Ranks = npt.NDArray[np.int64]
POLICY = {"presample": ("presample", 1)}
"""One epoch of pre-sampling (section 3.2.2)."""
FANOUTS = [25, 10]
LESS_AT_10 = 0.70
"""Fraction of the bytes from SSDs that caching 10 % of Clue-web saves (section 3.2.1)."""
GPU_ALONE = 0.036, 0.73
"""Fraction of IG that GIDS caches on a GPU of 80 GB, and fraction of the reads that then miss (section 2)."""
DIMENSION_GAIN, DRIVE_GAIN = 2.91, 1.73
"""Throughput with a CPU cache over that without, at most: by feature dimension and by SSDs (figures 9 and 8)."""
DIMENSIONS = (128, 256, 512, 1024)
GPU_FRACTIONS = (0, 1, 2, 100 * GPU_ALONE[0], 5, 10)
SSDS, ENOUGH = (1, 2, 3, 4, 6, 8, 12), 6
"""Numbers of SSDs, and the one whose random reads fill the GPU's link (figure 7a)."""
_BATCHES = 26


def traffic(inputs: Inputs, sample: Sample, gpu: float, cpu: float, dim: int) -> LinkTraffic:
    """Return the traffic of a plan with such percentages of the float32 rows on the GPU and in host memory."""
    how = SamplingOptions(FANOUTS, batch_size=sample.batch_size)
    sizes = [f"{share}%" if share else None for share in (gpu, cpu)]
    plan = parse_capacities(gpu=sizes[0], cpu=sizes[1], ssd=True)
    found = inputs.judge(sample, how, POLICY, [0.1], tiers=plan, row_bytes=4 * dim, epochs=1).tiers
    return (found or {})["presample"]


def figure_10(inputs: Inputs) -> Figure:
    """Return the fraction of the reads left to the SSDs by the GPU's cache, without and with host memory."""
    panels, claims, about = [], list[tuple[str, str, str]](), []
    for sample in inputs.samples("cnr-2000", "rmat"):
        left: dict[str, list[float]] = {}
        for name, cpu in (("GPU alone", 0), ("GPU and 10 % in host memory", 10)):
            plans = [
                traffic(inputs, sample, gpu, cpu, 1024).to_json()["links"]["ssd"]["share"] for gpu in GPU_FRACTIONS
            ]
            left[name] = [100 * share for share in plans]
        lines = [Line(name, list(GPU_FRACTIONS), shares) for name, shares in left.items()]
        lines.append(Line("Clue-web, 10 % in host memory", [0], [100 * (1 - LESS_AT_10)], PAPER))
        lines.append(Line("IG, GIDS", [100 * GPU_ALONE[0]], [100 * GPU_ALONE[1]], PAPER))
        panels.append(Panel(sample.name, "rows on the GPU, %", "reads from SSD, %", lines))
        alone, both = left.values()
        ours = percent(1 - both[0] / 100)
        claims.append(
            (f"{sample.name}: SSD reads saved by 10 % in host memory", f"{percent(LESS_AT_10)} (Clue-web)", ours)
        )
        cached, missed = GPU_ALONE
        ours = f"{alone[GPU_FRACTIONS.index(100 * cached)]:.0f} %"
        what = f"{sample.name}: reads from SSD, {percent(cached, 1)} on the GPU alone"
        claims.append((what, f"about {percent(missed)} (GIDS, IG)", ours))
        about.append(sample.title)
    setting = (
        f"`presample` of one epoch, fanouts 25,10, batches of 256, rows of 4 KiB, measured on the next epoch. "
        f"Graphs: {'; '.join(about)}."
    )
    return Figure("A GPU cache alone, and with host memory (section 3.2, figure 10)", setting, panels, claims)


def figure_9(inputs: Inputs) -> Figure:
    """Return what SSDs read by feature dimension, without and with a tenth of the rows in host memory."""
    sample = inputs.web()
    read: dict[str, list[float]] = {}
    used: dict[str, list[float]] = {}
    share = 1.0
    for name, cpu in (("SSD alone", 0), ("10 % in host memory", 10)):
        links = [traffic(inputs, sample, 0, cpu, dim).to_json()["links"]["ssd"] for dim in DIMENSIONS]
        read[name] = [link["bytes_read_per_epoch"] / 1e6 for link in links]
        used[name] = [link["bytes_per_epoch"] / 1e6 for link in links]
        share = links[0]["share"]
    panels = [
        Panel("read from SSD", "feature dimension", "MB per epoch", [Line(n, DIMENSIONS, y) for n, y in read.items()]),
        Panel(
            "read per byte used", "feature dimension", "bytes read per byte used",
            [Line(n, DIMENSIONS, [a / b for a, b in zip(read[n], used[n], strict=True)]) for n in read],
        ),
    ]  # fmt: skip
    fewer = [1 - b / a for a, b in zip(*read.values(), strict=True)]
    claims = [
        ("largest gain by a CPU cache of 10 % if SSD reads are the limit: 1 / fraction of reads left",
         f"{DIMENSION_GAIN} (dimension 128), {DRIVE_GAIN} (2 SSDs)", f"{1 / share:.2f}"),
        *((f"dimension {dim}: SSD bytes saved by the CPU cache", "-", percent(less))
          for dim, less in zip(DIMENSIONS, fewer, strict=True)),
    ]  # fmt: skip
    setting = (
        f"{sample.title}, `presample` of one epoch, fanouts 25,10, batches of {sample.batch_size}, pages of 4 KiB "
        "read by sectors of 512 B, measured on the next epoch."
    )
    return Figure("SSD bytes by feature dimension (figure 9)", setting, panels, claims)


def link_use(batches: Sequence[Ranks], ssds: int, cached: int) -> tuple[float, float]:
    """Return the fraction of the link that rows use, and reads of the busiest SSD over the mean's, over all batches.

    Rows of a page each lie on SSDs in turn, by rank, behind `cached` ranks in host memory. A batch takes as long as its
    busiest SSD or as the link, whichever is slower; `ENOUGH` SSDs with equal loads are as fast as the link.
    """
    cold = [batch[batch >= cached] - cached for batch in batches]
    busiest = np.array([np.bincount(ranks % ssds, minlength=ssds).max() for ranks in cold])
    sizes = np.array([batch.size for batch in batches])
    used = sizes.sum() / np.maximum(sizes, busiest * ENOUGH).sum()
    return float(used), float(ssds * busiest.sum() / max(1, sum(ranks.size for ranks in cold)))


def figure_8(inputs: Inputs) -> Figure:
    """Return the use of the GPU's link by the number of SSDs, without and with a tenth of the rows in host memory."""
    sample, how = inputs.web(), SamplingOptions(FANOUTS, batch_size=256)
    order = native.sort_by_score(np.ascontiguousarray(inputs.score(sample, "presample", how, 1).values()), 1)
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    unseen = SamplingOptions(FANOUTS, batch_size=256, seed=1)
    batches = [rank[nodes] for nodes in sampled_batches(sample, unseen, _BATCHES)]
    found = {
        name: [link_use(batches, ssds, cached) for ssds in SSDS]
        for name, cached in (("SSD alone", 0), ("10 % in host memory", order.size // 10))
    }
    alone, both = found.values()
    gains = [with_cache / without for (with_cache, _), (without, _) in zip(both, alone, strict=True)]
    panels = [
        Panel("rows of 4 KiB over the link", "SSDs", "% of the link",
              [Line(name, SSDS, [100 * used for used, _ in values]) for name, values in found.items()]),
        Panel("speedup by host memory", "SSDs", "times as fast",
              [Line("10 % in host memory", SSDS, gains), Line("10 % in host memory", [2], [DRIVE_GAIN], PAPER)]),
    ]  # fmt: skip
    claims = [
        ("SSDs that fill 90 % of the link, 10 % in host memory", "2",
         str(next((count for count, (used, _) in zip(SSDS, both, strict=True) if used >= 0.9), "more"))),
        ("2 SSDs: speedup by host memory", f"at most {DRIVE_GAIN}", f"{gains[SSDS.index(2)]:.2f}"),
        ("12 SSDs: reads of the busiest SSD / mean", "-", f"{alone[-1][1]:.2f}"),
    ]  # fmt: skip
    setting = (
        f"{sample.title}. Counted: {_BATCHES} batches of 256, fanouts 25,10, another seed than `presample`'s, rows of "
        "4 KiB on SSDs in turn. Modeled: six SSDs are as fast as the link, as in the paper's figure 7, and a batch "
        "takes as long as its busiest SSD or the link."
    )
    return Figure("SSDs, with and without host memory (figure 8)", setting, panels, claims)


FIGURES: dict[str, FigureMaker] = {"helios-8": figure_8, "helios-9": figure_9, "helios-10": figure_10}
