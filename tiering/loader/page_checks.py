"""Checksums of the pages of SSD images: what ``verify=True`` compares each page with before rows are taken from it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tiering import native
from tiering.errors import CapabilityError, FormatError
from tiering.formats.layout import Layout, page_sums
from tiering.loader.memory import ResidentRows, load_rows


class PageChecks:
    """The checksums of a layout's images, in memory: 4 bytes per page. Tables of one layout share them.

    Parameters
    ----------
    layout
        The layout artifact.

    Raises
    ------
    CapabilityError
        If it has none.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._loaded: list[ResidentRows] = []
        for image in range(layout.num_images):
            name = page_sums(image)
            if name not in layout.manifest.files:
                raise CapabilityError(
                    f"verify=True: {layout.path} has no checksums of pages, because it was made by an earlier version; "
                    "make the layout again, or leave verify out"
                )
            layout.manifest.verifier(name).finish()
            self._loaded.append(load_rows(Path(layout.manifest.place(name)), layout.manifest.files[name].bytes))

    @property
    def arrays(self) -> list[np.ndarray[tuple[int], np.dtype[np.uint32]]]:
        """Per image: uint32, shape (pages,)."""
        return [rows.array.view("<u4") for rows in self._loaded]

    def refuse(self, stats: native.GatherStats, node_type: str) -> None:
        """Raise `FormatError` if a gather met a damaged page."""
        if stats.bad_page < 0:
            return
        page, image = divmod(stats.bad_page, self._layout.num_images)
        path = self._layout.images[image]
        raise FormatError(
            f"{path}: page {page} (from byte {page * self._layout.page_bytes} on) of ssd image "
            f"{image} is damaged: its content is not what its checksum says; it holds rows of node type {node_type!r} "
            f"of {self._layout.path}; make the layout again"
        )
