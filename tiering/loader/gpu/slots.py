"""The buffer in front of the ssd tier as the gathers of a GPU read it: page-locked, by slot, while the host goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from tiering import cuda
from tiering.loader.gpu.device import Device, pinned_address
from tiering.loader.gpu.gather import GpuFeatures, SlotRows
from tiering.loader.ssd_buffer import NO_SLOT, SsdBuffer

Ids = npt.NDArray[np.int64]


class GpuSlots:
    """Slots of a buffer that a GPU reads, for the batches of one epoch, in order.

    Slots are given back when the kernels that read them have ended. The host looks whether they have when the next
    batch, or part of one, comes, and waits for them only where its rows are not there: reading may want these slots.
    """

    def __init__(self, buffer: SsdBuffer, features: Mapping[str, GpuFeatures], device: Device) -> None:
        self._buffer, self._device = buffer, device
        start = pinned_address(buffer.memory, str(buffer.memory.path))
        self._tables = {t: features[t].table_over(start + at) for t, at in buffer.origins.items()}
        self._reading: deque[tuple[int, int, cuda.Event]] = deque()

    def parts(self, batch: int, ids: Mapping[str, Ids], stream: cuda.Stream) -> Iterator[dict[str, SlotRows]]:
        """The parts of a batch, each once its rows are in the buffer: where they lie, by node type.

        `ids`: as they were sampled ahead, in host memory. What is put on `stream` between two parts reads the first of
        them. The first part stands for all ids of the batch, the others for ids of their own.
        """
        buffer, part, last = self._buffer, 0, False
        while not last:
            self._make_room(batch, part)
            slots, last = buffer.slots(batch, part, ids)
            yield {t: self._rows(t, ids[t], slots[t], part) for t in self._tables}
            ended = cuda.Event(self._device.index)
            ended.record(stream.handle)
            self.release_after(batch, part, ended)
            part += 1

    def release_after(self, batch: int, part: int, ended: cuda.Event) -> None:
        """Give the slots of a part back when `ended` is over."""
        self._reading.append((batch, part, ended))

    def _rows(self, node_type: str, ids: Ids, slots: npt.NDArray[np.uint32], part: int) -> SlotRows:
        upload, table = self._device.upload, self._tables[node_type]
        if part == 0:
            return SlotRows(table, upload(slots.view(np.int32)))
        places = np.flatnonzero(slots != NO_SLOT)
        return SlotRows(table, upload(slots[places].view(np.int32)), upload(ids[places]), upload(places))

    def _make_room(self, batch: int, part: int) -> None:
        """Give slots back that no kernel reads any more, and where the part is not there, the others as well."""
        with cuda.device_errors(str(self._buffer.memory.path)):
            while self._reading and (self._reading[0][2].done() or not self._buffer.ready(batch, part)):
                self._release_first()

    def finish(self) -> None:
        """Give all slots back, once no kernel reads them."""
        while self._reading:
            self._release_first()

    def _release_first(self) -> None:
        batch, part, ended = self._reading.popleft()
        ended.wait()
        self._buffer.release(batch, part)
