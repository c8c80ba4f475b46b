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
    """Feature rows of a node type by rank, compared with checksums where `Artifact.verify_reads` asks for it.

    They are read front to back only, all of them with `disk_bytes`; `row_bytes` and `bytes` are without padding.
    """

    row_order = "rank"

    def __init__(self, layout: Layout, node_type: str) -> None:
        self._layout, self._entry = layout, (entry := layout.type_layout(node_type))
        self.path, self.rows, self.dim, self.dtype = layout.path, entry.num_nodes, entry.dim, entry.dtype
        self.row_bytes, self.bytes = entry.row_bytes, entry.num_nodes * entry.row_bytes
        memory = sum(entry.rows(tier) for tier in MEMORY_TIERS) * entry.row_bytes
        self.disk_bytes = memory + entry.ssd_rows.num_pages * layout.page_bytes

    def pieces_memory(self, step: int) -> int:
        """Return the memory of `pieces` in bytes."""
        entry, page = self._entry, self._layout.page_bytes
        padded = max(entry.row_bytes, entry.ssd_rows.stride, page // max(1, entry.ssd_rows.rows_per_page))
        return _HELD * min(max(1, step) * padded + 2 * page * max(1, self._layout.num_images), 2 * self.bytes + page)

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
        """Return the stripe files as pages: page p is page p div n of file p mod n."""
        layout, images = self._layout, []
        manifest, page = layout.manifest, layout.page_bytes
        total = sum(layout.type_layout(name).ssd_rows.num_pages for name in layout.tables)
        for image, place in enumerate(layout.image_places):
            pages = image_bytes(total, image, layout.num_images, page) // page
            array = open_raw(place, np.dtype(np.uint8), (pages, page))
            if manifest.verify and isinstance(array, np.memmap):
                verifier = manifest.verifier(image_name(image))
                verifier.read = True
                array.verifier = verifier  # type: ignore[attr-defined] # who streams them tells it
            images.append(array)
        return images

    def _ssd_runs(self, begin: int, end: int, step: int) -> Iterator[Bytes]:
        """Yield rows `begin`..`end` of the ssd tier, without the padding of pages and rows."""
        place, page, row_bytes = self._entry.ssd_rows, self._layout.page_bytes, self._entry.row_bytes
        per_page, stride = place.rows_per_page, place.stride
        # First page, and bytes of it that belong to rows before.
        first, skipped = (begin // per_page, begin % per_page * stride) if per_page else divmod(begin * stride, page)
        used = per_page * stride if per_page else page
        missing, rest = end - begin, np.empty(0, np.uint8)
        first, last = place.first_page + first, place.first_page + place.num_pages
        for run in _interleaved(self._images(), first, last, -(-step * stride // used)):
            data = np.ascontiguousarray(run[:, :used]).reshape(-1)[skipped:]
            skipped = 0
            if rest.size:  # the begin of a row that continues in the next page
                data = np.concatenate([rest, data])
            whole = min(missing, data.size // stride)
            yield data[: whole * stride].reshape(whole, stride)[:, :row_bytes]
            missing, rest = missing - whole, data[whole * stride :].copy()


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
