"""Generated graphs with communities, as a crawl and as citations have them.

``web``: sites of 1,000 pages with ids that follow each other. Nine of ten links go to a page of the same site, at a
distance of 20 on average; the others to one of the site's first 20 pages, of which these link to first pages of other
sites, of early ones most of all. ``citation``: communities of 500 papers in a chain. Nine of ten references stay within
a community, the others go to the one before; ids are shuffled, so that they say nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Edges = npt.NDArray[np.int64]
_SITE, _HEADS, _DISTANCE, _COMMUNITY = 1000, 20, 20, 500


def web_edges(nodes: int, count: int, seed: int) -> Edges:
    """Return links (2, count) from page to page."""
    rng = np.random.default_rng(seed)
    src = rng.integers(0, nodes, count)
    site, near = src - src % _SITE, rng.random(count) < 0.9
    far = rng.geometric(1 / _DISTANCE, count) * rng.choice((-1, 1), count)
    heads = rng.integers(0, _HEADS, count)
    others = (rng.random(count) ** 3 * (-(-nodes // _SITE))).astype(np.int64) * _SITE
    dst = np.where(near, site + (src + far) % _SITE, np.where(src % _SITE < _HEADS, others, site) + heads)
    return np.stack([src, np.minimum(dst, nodes - 1)])


def citation_edges(nodes: int, count: int, seed: int) -> Edges:
    """Return references (2, count) from paper to paper."""
    rng = np.random.default_rng(seed)
    src = rng.integers(0, nodes, count)
    community = src // _COMMUNITY - (rng.random(count) < 0.1)
    dst = np.clip(community * _COMMUNITY + rng.integers(0, _COMMUNITY, count), 0, nodes - 1)
    ids: Edges = rng.permutation(nodes)[np.stack([src, dst])]
    return ids


COMMUNITY_GRAPHS: dict[str, Callable[[int, int, int], Edges]] = {"web": web_edges, "citation": citation_edges}
"""Functions of nodes, edges and a seed."""
