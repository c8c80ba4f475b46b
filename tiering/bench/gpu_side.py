"""GPU 0 as the benchmarks use it: turns that end when the GPU has ended, and host memory that it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import cuda
from tiering.bench.harness import Comparison, compare, time_once
from tiering.bench.sizes import Sizes, Work
from tiering.errors import CapabilityError, InputError
from tiering.loader.gpu import device as devices
from tiering.loader.gpu.locked import locked_address
from tiering.loader.memory import ResidentRows, anonymous

_TURN_SECONDS = 0.2
"""Least length of a turn: launches and the wait at its end are some microseconds each."""
_CHUNK = 1 << 26


def gpu_missing() -> str:
    """Why GPU benchmarks cannot run here; empty if they can."""
    try:
        devices.open_device(0)
    except CapabilityError as error:
        return str(error)
    return ""


@dataclass(frozen=True)
class LockedRows:
    """Random bytes in page-locked host memory."""

    array: npt.NDArray[np.uint8]
    """The memory, on huge pages where there are some."""
    address: int
    """Where the GPU finds it."""
    owner: ResidentRows
    """Unlocks it with the last holder."""


class GpuSide:
    """A GPU, and turns on it.

    Raises
    ------
    CapabilityError
        If there is none, or build, driver or torch cannot use it.
    """

    def __init__(self, sizes: Sizes) -> None:
        self.device = devices.open_device(0)
        """Torch's side of it."""
        info = cuda.device_info(self.device.index)
        self.name = info.name
        self.multiprocessors = info.multiprocessors
        """How many it has."""
        self.sms = _bound(sizes.gpu_sms, info.multiprocessors)
        """How many a gather from host memory may use; 0: all."""
        self._sizes = sizes
        self._end = cuda.Event(self.device.index)

    def finish(self) -> None:
        """Wait for all that was put on the caller's stream."""
        self._end.record(self.device.current())
        self._end.wait()

    def seconds(self, work: Callable[[], object], passes: int = 1) -> float:
        """Wall seconds of a turn: `passes` of `work` put on the stream, and the wait for the last."""
        return time_once(partial(self._turn, work, passes))

    def passes(self, work: Callable[[], object]) -> int:
        """How many passes make a turn that is long beside what starts and ends it; warms up."""
        self._turn(work, 1)
        seconds = self.seconds(work)
        return max(1, ceil(min(_TURN_SECONDS, self._sizes.seconds) / max(seconds, 1e-6)))

    def compare(
        self,
        name: str,
        ours: Work,
        peers: Mapping[str, Work | str],
        *,
        amount: float,
        unit: str,
        targets: Mapping[str, float] | None = None,
        **about: Any,
    ) -> Comparison:
        """Time ours and the peers in turn; each side puts one pass of the same work on the caller's stream.

        Parameters
        ----------
        amount, unit
            Work of a pass.
        targets
            By peer: least ratio that is aimed at.
        about
            Parameters to report.
        """
        passes = self.passes(ours)
        for peer in peers.values():
            if not isinstance(peer, str):
                self._turn(peer, 1)  # libraries load their kernels at first use
        sides = {
            label: peer if isinstance(peer, str) else partial(self._turn, peer, passes) for label, peer in peers.items()
        }
        result = compare(
            name, partial(self._turn, ours, passes), sides,
            amount=passes * amount, unit=unit, repeats=self._sizes.repeats, parameters={**about, "passes": passes},
        )  # fmt: skip
        for side in result.peers:
            side.target = (targets or {}).get(side.name)
        return result

    def _turn(self, work: Callable[[], object], passes: int) -> None:
        for _ in range(passes):
            work()
        self.finish()


def locked_rows(nbytes: int, seed: int) -> LockedRows:
    """Random bytes in locked memory.

    Raises
    ------
    BudgetError
        If the system does not lock so much.
    """
    array = anonymous(nbytes)
    rng = np.random.default_rng(seed)
    for start in range(0, nbytes, _CHUNK):
        part = array[start : start + _CHUNK]
        part[:] = np.frombuffer(rng.bytes(part.size), np.uint8)
    owner = ResidentRows("rows of a benchmark", array)
    return LockedRows(array, locked_address(owner, "rows of a benchmark in host memory"), owner)


def _bound(asked: int | str, multiprocessors: int) -> int:
    """``auto``: what `tiering.loader.gpu.features.GpuFeatures` takes by itself."""
    if asked == "auto":
        return max(1, multiprocessors // 10)
    if isinstance(asked, str) or not 0 <= asked <= multiprocessors:
        raise InputError(f"--sms: expected auto or 0 .. {multiprocessors} (0: all) on this GPU, found {asked}")
    return asked
