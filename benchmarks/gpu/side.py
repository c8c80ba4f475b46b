"""GPU 0 as the benchmarks use it: turns that end when the GPU has ended, tables on either side of the link, layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.harness import Comparison, Sides, Sizes, Spent, Work, compare, take_turn
from benchmarks.sampling import FANOUTS
from benchmarks.stages import bench_folder, run_tiering, write_edges, write_rows
from tiering import cuda
from tiering.errors import CapabilityError, InputError
from tiering.loader.gpu import device as devices
from tiering.loader.gpu.device import Device, pinned

FLOOR = "bytes copied, by the busier memory"
CLASSES = 16
_TURN_SECONDS = 0.2
"""Least length of a turn: launches and the wait at its end are some microseconds each."""
_UNREAD_ROW_BYTES = 16
"""Bytes of rows that nobody reads."""


def gpu_missing() -> str:
    """Return why GPU benchmarks cannot run here; empty if they can."""
    try:
        devices.open_device(0)
    except CapabilityError as error:
        return str(error)
    return ""


class GpuSide:
    """A GPU, and turns on it; `CapabilityError` if there is none, or build, driver or torch cannot use it."""

    def __init__(self, sizes: Sizes) -> None:
        self.device = devices.open_device(0)
        """Torch's side of it."""
        info = cuda.device_info(self.device.index)
        self.name = info.name
        self.multiprocessors = info.multiprocessors
        self.sms = _bound(sizes.gpu_sms, info.multiprocessors)
        """Multiprocessors that a gather from host memory may use; 0: all."""
        self.sizes = sizes
        self._end = cuda.Event(self.device.index)
        torch.set_num_threads(sizes.threads)

    def finish(self) -> None:
        """Wait for all that was put on the caller's stream."""
        self._end.record(self.device.current())
        self._end.wait()

    def per_pass(self, work: Work) -> Callable[[], Spent]:
        """Return the time of one pass of `work`, from turns of several, long against their start and end; warms up."""

        def turn(passes: int) -> None:
            for _ in range(passes):
                work()
            self.finish()

        turn(1)  # libraries load their kernels at first use
        seconds = take_turn(partial(turn, 1)).wall
        passes = max(1, ceil(min(_TURN_SECONDS, self.sizes.seconds) / max(seconds, 1e-6)))

        def timed() -> Spent:
            spent = take_turn(partial(turn, passes))
            return Spent(spent.wall / passes, spent.cpu / passes)

        return timed

    def compare(
        self,
        name: str,
        ours: Work,
        peers: Sides,
        *,
        amount: float,
        unit: str,
        targets: Mapping[str, float] | None = None,
        floor: Sequence[tuple[Work, float]] = (),
        floor_name: str = FLOOR,
        **about: Any,
    ) -> Comparison:
        """Time ours and the peers in turn; each side puts one pass of the same work on the caller's stream.

        `floor` has works that run side by side at best, and the share of each that falls to it: one more peer,
        `floor_name`.
        """
        sides: dict[str, Work | str] = {
            label: peer if isinstance(peer, str) else self.per_pass(peer) for label, peer in peers.items()
        }
        parts = [(self.per_pass(work), share) for work, share in floor]
        if parts:
            sides[floor_name] = lambda: Spent(max(part().wall * share for part, share in parts), 0.0)
        return compare(
            name, self.per_pass(ours), sides, amount=amount, unit=unit, targets=targets,
            repeats=self.sizes.repeats, parameters=about, warm_up=False,
        )  # fmt: skip


def _bound(asked: str, multiprocessors: int) -> int:
    """Return the value of ``auto``: what `tiering.loader.gpu.rows.GpuFeatures` takes by itself."""
    if asked == "auto":
        return max(1, multiprocessors // 10)
    if not asked.isdigit() or int(asked) > multiprocessors:
        raise InputError(f"--sms: expected auto or 0 .. {multiprocessors} (0: all) on this GPU, found {asked}")
    return int(asked)


def gigabytes(nbytes: float, seconds: float) -> float:
    """Return a rate in GB/s, powers of ten."""
    return nbytes / seconds / 1e9


def empty_rows(device: Device, rows: int, row_bytes: int) -> Tensor:
    """Return the rows of float32 in the memory of the GPU, uninitialized."""
    return device.empty((rows, row_bytes // 4), torch.float32)


def same_bytes(left: Tensor, right: Tensor) -> bool:
    """Return whether two tensors hold the same bytes, wherever they lie; NaN equals itself."""
    both = [side.detach().cpu().contiguous().view(torch.uint8) for side in (left, right)]
    return bool(torch.equal(*both))


class CopiedRows:
    """Rows gathered by torch on the CPU into pinned memory and copied to the GPU from there.

    Two buffers in turn, so that the CPU gathers into one while the other is copied. A loader takes it for features.
    """

    def __init__(self, device: Device, table: Tensor) -> None:
        self._device, self._table = device, table
        self._buffers = [table[:0], table[:0]]
        self._copied = [cuda.Event(device.index) for _ in range(2)]
        self._next = 0

    def put(self, batches: Iterable[Tensor], out: Tensor) -> None:
        """Gather batch after batch and put the copies on the caller's stream, all into `out`."""
        for ids in batches:
            turn, self._next = self._next, 1 - self._next
            self._copied[turn].wait()
            rows = self._room(turn, len(ids))
            torch.index_select(self._table, 0, ids, out=rows)
            out.copy_(rows, non_blocking=True)
            self._copied[turn].record(self._device.current())

    def gather(self, ids: Any, out: Tensor | None = None) -> Tensor:
        """Return the rows of `ids`, in host memory, as a tensor on the GPU."""
        if out is None:
            out = self._device.empty((len(ids), self._table.shape[1]), self._table.dtype)
        self.put([torch.as_tensor(ids)], out)
        return out

    def _room(self, turn: int, rows: int) -> Tensor:
        if len(self._buffers[turn]) < rows:
            width, itemsize = self._table.shape[1], self._table.element_size()
            room = rows * 5 // 4 + 1
            array, _ = pinned(self._device.index, room * width * itemsize, np.uint8, "rows gathered by the CPU")
            self._buffers[turn] = torch.from_numpy(array).view(self._table.dtype).view(room, width)
        return self._buffers[turn][:rows]


@dataclass(frozen=True)
class Layouts:
    """A graph in the order of its scores, and the layouts made of it."""

    sizes: Sizes
    folder: Path
    batch_size: int
    """Seeds of a batch: a thousand, or fewer on graphs that have not enough."""

    def make(self, name: str, *tiers: str | Path) -> Path:
        """Write a layout; `tiers` are options of ``tiering layout``."""
        out = self.folder / name
        run_tiering(self.sizes, ["layout", self.folder / "reordered", *tiers, "--out", out])
        return out

    def about(self) -> dict[str, Any]:
        """Return the graph's facts for a report."""
        return {
            "nodes": self.sizes.graph_nodes, "edges": self.sizes.edges, "fanouts": list(FANOUTS),
            "batch_size": self.batch_size,
        }  # fmt: skip


@contextmanager
def layouts(sizes: Sizes, *, with_rows: bool = True) -> Iterator[Layouts]:
    """Import, score and reorder the graph in a directory of `sizes.folder`, removed afterwards.

    One node in a hundred trains; labels are random. Rows have `sizes.row_bytes` bytes; a few if nobody reads them.
    """
    nodes = sizes.graph_nodes
    train = max(2, nodes // 100)
    batch_size = min(1000, max(1, train // 2))
    with bench_folder(sizes) as folder:
        data, rng = folder / "data", np.random.default_rng(sizes.seed)
        edges = write_edges(sizes, data)
        write_rows(data / "node_feat.npy", nodes, sizes.row_bytes if with_rows else _UNREAD_ROW_BYTES)
        np.save(data / "node_label.npy", rng.integers(0, CLASSES, nodes))
        np.save(data / "train_idx.npy", np.sort(rng.permutation(nodes)[:train]))
        graph, scores, fanouts = folder / "graph", folder / "scores", ",".join(map(str, FANOUTS))
        run_tiering(sizes, ["import", data, "--num-nodes", nodes, "--out", graph])
        edges.unlink()
        run_tiering(sizes, ["score", graph, "--fanouts", fanouts, "--batch-size", batch_size, "--out", scores])
        run_tiering(sizes, ["reorder", graph, "--scores", scores, "--out", folder / "reordered"])
        yield Layouts(sizes, folder, batch_size)
