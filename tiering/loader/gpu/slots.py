"""Buffer slots of the ssd tier as the gathers of a GPU read them, in pinned memory, while the host goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from queue import SimpleQueue

import numpy as np
import numpy.typing as npt

from tiering import cuda
from tiering.errors import InputError, RefusedError
from tiering.loader.batches.lookahead import RowsAhead
from tiering.loader.gpu.device import Device, Stream, pinned_address
from tiering.loader.gpu.gather import GpuFeatures
from tiering.loader.gpu.rows import SlotRows
from tiering.loader.tables.ssd_buffer import NO_SLOT

Ids = npt.NDArray[np.int64]


class GpuSlots:
    """Buffer slots that a GPU reads, for the batches of one epoch, in order.

    A thread releases slots when the kernels that read them have ended, whatever the others do: reading may need them,
    for this process or for another one that this one waits for.
    """

    def __init__(self, buffer: RowsAhead, features: Mapping[str, GpuFeatures], device: Device) -> None:
        self._buffer, self._device, self._what = buffer, device, str(buffer.memory.path)
        start = pinned_address(buffer.memory, device.index, self._what)
        self._tables = {t: features[t].table_over(start + at) for t, at in buffer.origins.items()}
        self._reading: SimpleQueue[tuple[int, int, cuda.Event] | None] = SimpleQueue()  # none: the epoch is over
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._release_all, name="tiering-slots", daemon=True)
        self._thread.start()

    def parts(self, batch: int, ids: Mapping[str, Ids], stream: Stream) -> Iterator[dict[str, SlotRows]]:
        """Yield the parts of a batch, each once its rows are in the buffer, by node type.

        `ids`: as they were sampled ahead, in host memory. Work put on `stream` before the next part reads this one. The
        first part covers all ids of the batch, the others ids of their own.
        """
        part, last = 0, False
        while not last:
            slots, last = self._buffer.slots(batch, part, ids)
            if self._error is not None:
                raise self._error
            yield {t: self._rows(t, ids[t], slots[t], part) for t in self._tables}
            ended = cuda.Event(self._device.index)
            ended.record(stream.handle)
            self.release_after(batch, part, ended)
            part += 1

    def release_after(self, batch: int, part: int, ended: cuda.Event) -> None:
        """Release the slots of a part after the event `ended`."""
        self._reading.put((batch, part, ended))

    def finish(self) -> None:
        """Release all slots, once no kernel reads them."""
        self._reading.put(None)
        self._thread.join()

    def _rows(self, node_type: str, ids: Ids, slots: npt.NDArray[np.uint32], part: int) -> SlotRows:
        upload, table = self._device.upload, self._tables[node_type]
        if part == 0:
            return SlotRows(table, upload(slots.view(np.int32)))
        at = np.flatnonzero(slots != NO_SLOT)
        return SlotRows(table, upload(slots[at].view(np.int32)), upload(ids[at]), upload(at.astype(np.int32)))

    def _release_all(self) -> None:
        self._device.begin_thread()
        while (reading := self._reading.get()) is not None:
            batch, part, ended = reading
            try:
                with cuda.device_errors(self._what):
                    ended.wait()
            except Exception as error:  # the GPU has failed: nobody reads any more, and `parts` raises
                self._error = self._error or error
            with suppress(InputError, RefusedError):  # the process ends, and with it the epoch
                self._buffer.release(batch, part)
