"""Layouts in other processes: pickled as path and digest, opened again there."""

from __future__ import annotations

from tiering.errors import FormatError
from tiering.formats.layout import Layout


def same_layout(path: str, digest: str) -> Layout:
    """The layout at `path`, if it is still the one whose manifest has `digest`.

    Raises
    ------
    FormatError
        If another one lies there now.
    """
    layout = Layout.open(path)
    if layout.digest != digest:
        raise FormatError(
            f"{path}: the layout was replaced after it was pickled: expected digest {digest}, found {layout.digest}; "
            "open it anew"
        )
    return layout
