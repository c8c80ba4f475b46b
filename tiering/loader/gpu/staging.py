"""Rows of the ssd tier on their way to a GPU: read by the host into pinned memory, copied by the GPU from there.

Two buffers in turn: while the GPU copies one, the host reads into the other, so the slower of the two sets the pace.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tiering import cuda, native
from tiering.formats.layout import Layout, TypeLayout
from tiering.loader.engines import note_fallback
from tiering.loader.gpu.device import Device
from tiering.loader.gpu.locked import pinned
from tiering.loader.page_checks import PageChecks

DEFAULT_BYTES = 32 * 1024 * 1024
"""Of one of the two buffers: large enough that reads of a turn fill the queue of the SSDs many times over."""


class StagedRows:
    """Copies rows of the ssd tier to their places in a result on the GPU.

    Parameters
    ----------
    reader
        Open images.
    nbytes
        Of one buffer; at least one row is held.
    verify
        Whether pages are compared with their checksums.

    Notes
    -----
    Not thread-safe: one gather at a time.
    """

    def __init__(
        self,
        layout: Layout,
        entry: TypeLayout,
        reader: native.SsdReader,
        device: Device,
        threads: int,
        nbytes: int,
        verify: bool = False,
    ) -> None:
        self._checks, self._node_type = PageChecks(layout) if verify else None, entry.node_type
        ssd = entry.ssd_rows
        self._rows = max(1, nbytes // entry.row_bytes)
        self._row_bytes, self._threads = entry.row_bytes, threads
        rows = entry.rows("ssd")
        self._table = native.TieredTable(
            entry.row_bytes, [0, 0, 0, rows], None, [], None, reader,
            ssd.first_page, ssd.stride, ssd.rows_per_page, layout.page_bytes,
            self._checks.arrays if self._checks else [],
        )  # fmt: skip
        what = f"{layout.path}: node type {entry.node_type!r}: buffers for rows of the ssd tier"
        self._buffers = [pinned(self._rows * entry.row_bytes, np.uint8, what) for _ in range(2)]
        self._copied = [cuda.Event(device.index) for _ in range(2)]
        self._sources = [
            cuda.RowTable(device.index, entry.row_bytes, [0, 0, self._rows, self._rows], 0, [], address)
            for _, address in self._buffers
        ]
        self._turn = 0

    def copy(
        self, wanted: npt.NDArray[np.int64], places: int, out: int, stream: int, most_sms: int
    ) -> list[native.GatherStats]:
        """Read rows and put their copies on `stream`.

        Parameters
        ----------
        wanted
            Numbers of rows within the ssd tier, shape (n,).
        places
            Where the GPU finds, for each of them, its row of the result; int64.
        out
            The result.
        stream
            Handle.

        Returns
        -------
        list of GatherStats
            What was read, turn by turn.
        """
        stats = []
        for start in range(0, len(wanted), self._rows):
            ids = np.ascontiguousarray(wanted[start : start + self._rows])
            turn, self._turn = self._turn, 1 - self._turn
            self._copied[turn].wait()  # an event that was never recorded holds nobody up
            rows = self._buffers[turn][0][: ids.size * self._row_bytes].reshape(ids.size, self._row_bytes)
            stats.append(self._table.gather(ids, rows, self._threads))
            note_fallback(stats[-1])
            if self._checks is not None:
                self._checks.refuse(stats[-1], self._node_type)
            self._sources[turn].gather(0, ids.size, out, stream, places=places + 8 * start, most_sms=most_sms)
            self._copied[turn].record(stream)
        return stats

    def wait(self) -> None:
        """Until the GPU has read both buffers."""
        for event in self._copied:
            event.wait()
