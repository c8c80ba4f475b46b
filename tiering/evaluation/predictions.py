"""Predicted epochs: their table, the knee in words, their plot, what they cost."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, TypeVar

from tiering.evaluation.figures import COLORS, line_style, open_figure, plain_label
from tiering.evaluation.locality import Locality
from tiering.evaluation.options import Prices
from tiering.readahead.config import ReadaheadConfig
from tiering.readahead.disks import Disk
from tiering.text.description import Described, Part, Plot, Table
from tiering.text.units import format_bytes, format_count, format_fanouts, format_small_seconds

_SIZE = (7.2, 4.6)  # inches
_TITLE = "Predicted epoch by memory"
E = TypeVar("E")


@dataclass(frozen=True)
class PredictedEpoch:
    """Reading of an epoch with one memory, disk and stored dtype: medians of those after the first."""

    memory: int  # bytes that the process of the loader may hold
    disk: str
    dtype: str
    seconds: float = 0.0  # of I/O for rows
    error: float = 0.0  # half of the 95 % interval of `seconds`, from repeated samples of batches
    requests: float = 0.0
    bytes: float = 0.0  # read from the disk
    hit_rate: float = 1.0  # fraction of the rows of batches that are not read for them
    load_bytes: int = 0  # of all rows, where all fit into memory: they are read once, before the first epoch
    choice: ReadaheadConfig | None = None  # window, horizon and gap of the loader; ``None`` where all rows fit
    lists_window: int = 0  # batches that are sampled together, where lists exceed memory; 0: lists are mapped
    lists_seconds: float = 0.0  # of I/O for lists
    lists_requests: float = 0.0
    lists_bytes: float = 0.0
    lists_disk: str = ""  # disk that lists are read from, where they are

    @property
    def all_fit(self) -> bool:
        """Whether all rows lie in memory."""
        return self.choice is None

    @property
    def io_seconds(self) -> float:
        """Seconds of I/O for rows and lists: one disk does both in turn, two disks at the same time."""
        both = self.seconds, self.lists_seconds
        return sum(both) if self.lists_disk == self.disk else max(both)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        choice = self.choice and {name: getattr(self.choice, name) for name in ("window", "horizon", "gap")}
        return {**asdict(self), "all_fit": self.all_fit, "choice": choice}


@dataclass(frozen=True)
class EpochPredictions(Described):
    """Predicted epochs, by dtype, disk and ascending memory; shows itself."""

    epochs: list[PredictedEpoch]
    batches: int  # of an epoch
    sampled: int  # batches that were sampled
    disks: Mapping[str, Disk]
    locality: Locality
    step_seconds: float | None = None  # of training's own work for a batch
    prices: Prices | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    target: float | None = None  # seconds of an epoch that were asked for
    least: Sequence[PredictedEpoch | None] = ()  # by dtype and disk: that with least memory which meets the target

    @property
    def step_total(self) -> float:
        """Seconds of training's own work in an epoch; 0 where it is not known."""
        return self.batches * (self.step_seconds or 0.0)

    def epoch_seconds(self, epoch: PredictedEpoch) -> float:
        """Return the time of an epoch: reading or training, whichever takes longer, because they overlap."""
        return max(epoch.io_seconds, self.step_total)

    def epoch_cost(self, epoch: PredictedEpoch) -> float:
        """Return the cost of the machine during an epoch."""
        hour = 0.0 if self.prices is None else self.prices.hour(epoch.memory, self.disks[epoch.disk])
        return hour * self.epoch_seconds(epoch) / 3600

    @property
    def reads_disk(self) -> bool:
        """Whether some epoch reads from a disk: else there is nothing to plot."""
        return any(epoch.io_seconds for epoch in self.epochs)

    def lines(self) -> Iterator[tuple[str, list[PredictedEpoch]]]:
        """Yield the epochs of each disk and dtype, memory ascending, up to the one that more memory does not change."""
        for (disk, dtype), line in groupby(self.epochs, key=lambda epoch: (epoch.disk, epoch.dtype)):
            yield f"{disk}, {dtype}", drop_repeats(line, lambda epoch: (epoch.all_fit, epoch.io_seconds))

    def knee(self, epochs: Sequence[PredictedEpoch]) -> PredictedEpoch:
        """Return the knee of a line: the least memory with which steps take as long as reading.

        Without `step_seconds` it is the point farthest below the chord of the curve (Satopaa et al., ICDCSW'11).
        """
        if self.step_seconds:
            return next((epoch for epoch in epochs if epoch.io_seconds <= self.step_total), epochs[-1])
        first, last = epochs[0], epochs[-1]

        def below(epoch: PredictedEpoch) -> float:
            right = (epoch.memory - first.memory) / max(1, last.memory - first.memory)
            down = first.io_seconds - last.io_seconds
            return (first.io_seconds - epoch.io_seconds) / max(1e-12, down) - right

        return max(epochs, key=below)

    def _gains(self, knee: PredictedEpoch, first: PredictedEpoch) -> bool:
        """Return whether the knee of a line, which begins with `first`, is worth naming."""
        return knee.io_seconds <= self.step_total if self.step_seconds else knee is not first and not knee.all_fit

    def describe(self) -> list[Part]:
        """Return the table, the knee of each line in words, and the curves if there is anything to plot."""
        columns = ["memory", "disk", "dtype", "bytes read", "reads", "hit rate", "I/O time per epoch", "± (95 %)"]
        columns += ["I/O time for lists per epoch", "batches sampled together"] if self._reads_lists else []
        columns += ["epoch time"] if self.step_seconds else []
        columns += [] if self.prices is None else ["cost per epoch"]
        rows = [self._row(epoch) for _, epochs in self.lines() for epoch in epochs]
        table = Table("Predicted reads per epoch", columns, rows)
        words = [f"{label}: {'; '.join(self._words(epochs))}" for label, epochs in self.lines()]
        figures = [f"{name}: {disk.speed} ({disk.device})" for name, disk in self.disks.items()]
        share = f"sampled batches: {format_count(self.sampled)}; batches per epoch: {format_count(self.batches)}"
        plot = [Plot(_TITLE, self.draw)] if self.reads_disk else []
        return [table, *words, *self._target_lines(), *figures, share, str(self.locality), *plot]

    @property
    def _reads_lists(self) -> bool:
        """Whether memory does not hold the neighbor lists in some epoch."""
        return any(epoch.lists_window for epoch in self.epochs)

    def _row(self, epoch: PredictedEpoch) -> list[str]:
        time, size = format_small_seconds(epoch.seconds), format_bytes(epoch.bytes)
        row = [format_bytes(epoch.memory), epoch.disk, epoch.dtype, size, format_count(round(epoch.requests))]
        row += [f"{100 * epoch.hit_rate:.1f} %", time, format_small_seconds(epoch.error)]
        if epoch.all_fit:
            row[3:] = ["all rows fit", "-", "100 %", "none", "-"]
        if self._reads_lists:
            mapped = not epoch.lists_window
            row += ["in memory", "-"] if mapped else [
                format_small_seconds(epoch.lists_seconds), format_count(epoch.lists_window)
            ]  # fmt: skip
        row += [format_small_seconds(self.epoch_seconds(epoch))] if self.step_seconds else []
        return row + ([f"{self.epoch_cost(epoch):.3g} {self.prices.currency}"] if self.prices is not None else [])

    def _words(self, epochs: Sequence[PredictedEpoch]) -> Iterator[str]:
        """Yield sentences on the gain of more memory, and on the size from which the gain is small."""
        knee, full = self.knee(epochs), next((epoch for epoch in epochs if epoch.all_fit), None)
        at, time = format_bytes(knee.memory), format_small_seconds(self.epoch_seconds(knee))
        gains = self._gains(knee, epochs[0])
        if self.step_seconds and not gains:
            steps = format_small_seconds(self.step_total)
            yield f"with {at} an epoch takes {time}, training steps alone {steps}; the disk is always the bottleneck"
        elif self.step_seconds:
            bound = "the smallest size compared" if knee is epochs[0] else f"below {at} the disk is the bottleneck"
            yield f"with {at} an epoch takes {time}, the time of the training steps; {bound}"
        elif gains:
            least = f"{format_small_seconds(epochs[0].io_seconds)} with {format_bytes(epochs[0].memory)}"
            yield f"the knee is at {at}: {time} of I/O per epoch, compared with {least}"
        if full is not None:
            load = format_small_seconds(full.load_bytes / self.disks[full.disk].speed.bytes_per_second)
            yield f"with {format_bytes(full.memory)} all rows fit in memory, read at the start in about {load}"

    def _target_lines(self) -> Iterator[str]:
        names = [label for label, _ in self.lines()]
        for label, epoch in zip(names, self.least, strict=False):
            asked = f"{label}: an epoch of {format_small_seconds(self.target or 0)}"
            if epoch is None:
                yield f"{asked} needs faster training steps: {format_small_seconds(self.step_total)} without reading"
            else:
                read = "all rows fit in memory" if epoch.all_fit else f"{format_small_seconds(epoch.io_seconds)} of I/O"
                yield f"{asked} takes {format_bytes(epoch.memory)}: {read}"

    def draw(self, figure: Any) -> None:
        """Plot time of an epoch by memory on a ``matplotlib.figure.Figure``: a line for each disk and dtype, its knee.

        Of lines that coincide each is narrower than the one below it, so that all stay visible.
        """
        figure.set_size_inches(*_SIZE)
        axes, lines = figure.subplots(), list(self.lines())
        points = [{epoch.memory: self.epoch_seconds(epoch) for epoch in epochs} for _, epochs in lines]
        for number, (label, epochs) in enumerate(lines):
            twins, knee = sum(_coincide(points[number], other) for other in points[number + 1 :]), self.knee(epochs)
            look = line_style(number, len(lines), COLORS[number % len(COLORS)]) | {"markevery": None, "capsize": 3}
            look |= {"linewidth": 1.6 + 2.4 * twins, "markersize": 6 + 4 * twins, "clip_on": False}
            if self._gains(knee, epochs[0]):
                label += f", knee at {format_bytes(knee.memory)}"
                axes.plot(knee.memory, self.epoch_seconds(knee), "o", fillstyle="none", ms=18, color=look["color"])
            errors = [epoch.error for epoch in epochs]
            axes.errorbar(*zip(*points[number].items(), strict=True), errors, label=plain_label(label), **look)
        if self.step_seconds:
            axes.axhline(self.step_total, color="0.6", linestyle="--", label="training steps alone")
        axes.set_xscale("log", base=2)
        sizes = sorted({memory for line in points for memory in line})
        axes.set_xticks(sizes, labels=map(format_bytes, sizes), rotation=30, ha="right")
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(lambda value, _: format_small_seconds(value) if value else "0")
        what = "time" if self.step_seconds else "time of I/O"
        axes.set(xlabel="memory of the training process", ylabel=f"predicted {what} per epoch", ylim=(0, None))
        axes.grid(True, color="0.88", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9)

    def plot(self, path: str | os.PathLike[str]) -> Path | None:
        """Plot the curves into a file, whose ending chooses the format; ``None`` if no epoch `reads_disk`: no file."""
        figure, how = open_figure(Path(path)), self.parameters
        if not self.reads_disk:
            return None
        self.draw(figure)
        batches = f"\nfanouts {format_fanouts(how['fanouts'])}, batch size {how['batch_size']:,}" if how else ""
        figure.suptitle(_TITLE + batches, fontsize=11)
        figure.savefig(path, dpi=150)
        return Path(path)

    def to_json(self) -> dict[str, Any]:
        """Return the document of ``--json``, which docs/plan.md describes."""
        epochs = [
            {**epoch.to_json(), "epoch_seconds": self.epoch_seconds(epoch)}
            | ({} if self.prices is None else {"cost": self.epoch_cost(epoch)})
            for epoch in self.epochs
        ]
        disks = {name: {**disk.speed.as_dict(), "device": disk.device} for name, disk in self.disks.items()}
        document = {
            name: getattr(self, name) for name in ("batches", "sampled", "step_seconds", "parameters", "target")
        }
        knees = [self.knee(line).to_json() for _, line in self.lines()]
        least = [None if epoch is None else epoch.to_json() for epoch in self.least]
        document |= {"disks": disks, "epochs": epochs, "knees": knees, "least": least}
        return {**document, "locality": self.locality.to_json()}


def drop_repeats(line: Iterable[E], read: Callable[[E], tuple[bool, float]]) -> list[E]:
    """Return the epochs of a line up to the first that more memory does not change; `read`: all rows fit, seconds."""
    first, *others = line
    return [first, *(b for a, b in pairwise([first, *others]) if not read(a)[0] or read(a) != read(b))]


def _coincide(line: Mapping[int, float], other: Mapping[int, float]) -> bool:
    """Return whether two lines of seconds by memory cannot be told apart where both are drawn."""
    common, highest = line.keys() & other.keys(), max(line.values())
    return all(abs(line[memory] - other[memory]) <= 0.02 * highest for memory in common)
