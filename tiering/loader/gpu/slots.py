"""The buffer in front of the ssd tier as the gathers of a GPU read it: page-locked, by slot, while the host goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tiering import cuda
from tiering.loader.gpu.device import Device, pinned_address
from tiering.loader.gpu.gather import GpuFeatures, SlotRows
from tiering.loader.ssd_buffer import SsdBuffer

Ids = npt.NDArray[np.int64]


class GpuSlots:
    """Slots of a buffer that a GPU reads, for the batches of one epoch, in order.

    A batch's slots are given back when the kernels that read them have ended. The host looks whether they have when the
    next batch comes, and waits for them only where that batch's rows are not there: reading may want these very slots.
    """

    def __init__(self, buffer: SsdBuffer, features: Mapping[str, GpuFeatures], device: Device) -> None:
        self._buffer, self._device = buffer, device
        start = pinned_address(buffer.memory, str(buffer.memory.path))
        self._tables = {t: features[t].table_over(start + at) for t, at in buffer.origins.items()}
        self._reading: deque[tuple[int, cuda.Event]] = deque()

    def wait(self, batch: int, ids: Mapping[str, Ids]) -> dict[str, SlotRows]:
        """Rows of a batch, once they are in the buffer. `ids`: as they were sampled ahead, in host memory."""
        buffer, reading = self._buffer, self._reading
        with cuda.device_errors(str(buffer.memory.path)):
            while reading and (reading[0][1].done() or not buffer.ready(batch)):
                self._release_first()
        slots = buffer.slots(batch, ids)
        return {t: SlotRows(table, self._device.upload(slots[t].view(np.int32))) for t, table in self._tables.items()}

    def release_after(self, batch: int, ended: cuda.Event) -> None:
        """Give the slots of `batch` back when `ended` is over."""
        self._reading.append((batch, ended))

    def finish(self) -> None:
        """Give all slots back, once no kernel reads them."""
        while self._reading:
            self._release_first()

    def _release_first(self) -> None:
        batch, ended = self._reading.popleft()
        ended.wait()
        self._buffer.release(batch)
