"""The rows of a layout in rank order, read tier after tier: large sequential reads of all files of a tier at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tiering.artifacts.reader import chunks
from tiering.artifacts.storage import open_raw
from tiering.formats.layout import MEMORY_TIERS, Layout, image_bytes, image_name, tier_file

Bytes = npt.NDArray[np.uint8]

_HELD = 5  # pieces in memory: one that the caller has, two being read, two between pages and rows


class TierRows:
    """Feature rows of a node type by rank, compared with checksums where `Artifact.verify_reads` is set.

    They are read front to back only, all of them with `disk_bytes`; `row_bytes` and `bytes` are without padding.
    """

    row_order = "rank"

    def __init__(self, layout: Layout, node_type: str) -> None:
        self._layout, self._entry = layout, (entry := layout.type_layout(node_type))
        self.path, self.rows, self.dim, self.dtype = layout.path, entry.num_nodes, entry.dim, entry.dtype
        self.row_bytes, self.bytes = entry.row_bytes, entry.num_nodes * entry.row_bytes
        memory = sum(entry.rows(tier) for tier in MEMORY_TIERS) * entry.row_bytes
        self.disk_bytes = memory + entry.ssd_rows.num_units * layout.unit_bytes

    def pieces_memory(self, step: int) -> int:
        """Return the memory of `pieces` in bytes."""
        entry, unit = self._entry, self._layout.unit_bytes
        padded = max(entry.row_bytes, entry.ssd_rows.stride, unit // max(1, entry.ssd_rows.rows_per_unit))
        return _HELD * min(max(1, step) * padded + 2 * unit * max(1, self._layout.num_images), 2 * self.bytes + unit)

    def pieces(self, step: int, begin: int = 0) -> Iterator[tuple[int, Bytes]]:
        """Yield first rank and rows, uint8 (step, row_bytes), from rank `begin` on; the last piece may be shorter."""
        out, first, filled = np.empty((min(step, self.rows - begin), self.row_bytes), np.uint8), begin, 0
        for rows in self._runs(step, begin):
            taken = 0
            while taken < rows.shape[0]:
                part = rows[taken : taken + out.shape[0] - filled]
                out[filled : filled + part.shape[0]] = part
                taken, filled = taken + part.shape[0], filled + part.shape[0]
                if filled == out.shape[0] or first + filled == self.rows:
                    yield first, out[:filled]
                    first, filled = first + filled, 0

    def _runs(self, step: int, begin: int) -> Iterator[Bytes]:
        """Yield rows from rank `begin` on, tier after tier, about `step` at a time."""
        entry, manifest, peers = self._entry, self._layout.manifest, self._layout.num_peers
        for tier, (first, end) in entry.ranges.items():
            if max(first, begin) >= end:
                continue
            if tier == "ssd":
                yield from self._ssd_runs(max(0, begin - first), end - first, step)
                continue
            # Row i of the tier is row i div n of file i mod n.
            counts = ((peer, rows) for peer, rows in enumerate(entry.file_rows(tier, peers)) if rows)
            arrays = ((manifest.array(tier_file(entry.node_type, tier, peer, peers)), rows) for peer, rows in counts)
            files = [array.view(np.uint8).reshape(rows, entry.row_bytes) for array, rows in arrays]
            yield from _interleaved(files, max(0, begin - first), end - first, step)

    def _images(self) -> list[Bytes]:
        """Return the stripe files as units: unit u is unit u div n of file u mod n."""
        layout, images = self._layout, []
        manifest, unit = layout.manifest, layout.unit_bytes
        total = sum(layout.type_layout(name).ssd_rows.num_units for name in layout.tables)
        for image, place in enumerate(layout.image_places):
            units = image_bytes(total, image, layout.num_images, unit) // unit
            array = open_raw(place, np.dtype(np.uint8), (units, unit))
            if manifest.verify and isinstance(array, np.memmap):
                verifier = manifest.verifier(image_name(image))
                verifier.read = True
                array.verifier = verifier  # type: ignore[attr-defined] # who streams them tells it
            images.append(array)
        return images

    def _ssd_runs(self, begin: int, end: int, step: int) -> Iterator[Bytes]:
        """Yield rows `begin`..`end` of the ssd tier, without the padding of units and rows."""
        place, unit, row_bytes = self._entry.ssd_rows, self._layout.unit_bytes, self._entry.row_bytes
        if not place.rows_per_unit:  # in the one file of an older layout, one after the other
            at = place.first_unit * unit
            rows = self._images()[0].reshape(-1)[at : at + end * place.stride].reshape(end, place.stride)
            for _, _, (part,) in chunks([rows[begin:]], step):
                yield part[:, :row_bytes]
            return
        per_unit, missing = place.rows_per_unit, end - begin
        (first, skipped), last = divmod(begin, per_unit), place.first_unit + place.num_units
        for run in _interleaved(self._images(), place.first_unit + first, last, -(-step // per_unit)):
            rows = run[:, : per_unit * place.stride].reshape(-1, place.stride)[skipped : skipped + missing]
            yield rows[:, :row_bytes]
            missing, skipped = missing - rows.shape[0], 0


def _interleaved(files: Sequence[Bytes], begin: int, end: int, step: int) -> Iterator[Bytes]:
    """Yield items `begin`..`end`, about `step` at a time; item i is item i div n of file i mod n."""
    count = len(files)
    # Each file from its first item on, in the order in which they take turns.
    lanes = [files[i % count][i // count :] for i in range(begin, min(end, begin + count))]
    turns = (end - begin) // count
    for first, last, parts in chunks([lane[:turns] for lane in lanes] if turns else [], max(1, step // count)):
        if count == 1:
            yield parts[0]
            continue
        run = np.empty(((last - first) * count, parts[0].shape[1]), np.uint8)
        for turn, part in enumerate(parts):
            run[turn::count] = part
        yield run
    for lane in lanes[: (end - begin) % count]:
        yield lane[turns : turns + 1]
