"""``raw``: every array a ``.npy`` file, and ``export.json`` says what each is."""

from __future__ import annotations

from pathlib import Path

from tiering.exports.contents import Contents


def lines(out: Path, contents: Contents) -> list[str]:
    """Python that maps the adjacency and the features."""
    given = ["import numpy as np"]
    edges = contents.edges[:1]
    for part in ("indptr", "indices") if edges else ():
        given.append(f'{part} = np.load({str(out / edges[0].structure[part].path)!r}, mmap_mode="r")')
    feat = next((nodes.feat for nodes in contents.nodes.values() if nodes.feat is not None), None)
    if feat is not None:
        bits = "  # bits of bfloat16" if feat.dtype == "bfloat16" else ""
        given.append(f'features = np.load({str(out / feat.path)!r}, mmap_mode="r"){bits}')
    return given
