"""Graphs like web crawls, and the files that WebGraph stores them in.

Ids are in the order of addresses: pages of a *folder* stand together. A folder has a menu, a sequence of links of which
each of its pages has most of a first part; the rest of a page's links are its own.

- Out-degrees follow a power law with density exponent 3 from folder to folder and vary little within one. An eighth of
  the pages have no links; as many of the others link to themselves.
- Of eight links, seven go to the neighbourhood: to a page at a distance with a power law, then back to one whose id
  ends in some zero bits, as the first pages of parts of a site have it. One goes to any page, by rank floor(n * u^4).
  Both give in-degrees a power law. Half of a menu are runs of 8 consecutive pages instead.
- The last hundredth of the pages is isolated.

So lists are like those before them and hold runs of ids, as BVGraph expects. Every block of pages is drawn for itself:
from (seed, number of the block), by integer arithmetic and correctly rounded operations, with its share of the edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.datasets.generated.communities import Ids, Shuffle, raw_numbers
from tiering.datasets.generated.containers import written
from tiering.datasets.scratch import changes
from tiering.errors import InputError
from tiering.progress import Progress

PAGE_BLOCK = 1 << 13
"""Pages made at a time, about. Part of the definition: other blocks give other edges."""
LEAST_PAGES = 10
"""Pages per link of a page, at least: with fewer the largest lists would hold most of the pages."""
BYTES_PER_EDGE = 2
"""About what an edge takes in a file, at most."""
REACH = 1 << 12
"""Links to the neighbourhood go no farther, about."""
_STREAM = 1 << 16
_RUN = 8
_MOST_TIMES = 64
"""How many times as many links as pages with the fewest have those of the folder with most, about."""
_OWN_ROUNDS = 4
"""Pages whose links near have been drawn so often still lacking some: any page will do."""

Raw = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Crawl:
    """A crawl of `nodes` pages with `edges` links, exactly."""

    nodes: int
    edges: int
    seed: int
    living: int = field(init=False)
    """Pages before the isolated ones."""
    _popular: Shuffle = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "living", self.nodes - max(1, self.nodes // 100))
        object.__setattr__(self, "_popular", Shuffle(max(2, self.living), (self.seed, 6)))
        degree = self.edges / max(1, self.living)
        if self.living < LEAST_PAGES * max(1, degree):
            raise InputError(
                f"--scale: expected {LEAST_PAGES} nodes or more per edge of a node in a crawl, found {self.nodes} "
                f"nodes and {self.edges} edges; raise it {-(-LEAST_PAGES * max(1, degree) // self.living):.0f}-fold"
            )

    def blocks(self) -> Iterator[tuple[Ids, Ids]]:
        """Successor lists of all pages in order, some at a time: where each begins and the end, successors."""
        number = max(1, self.living // PAGE_BLOCK)
        for block in range(number):
            first, end = (self.living * k // number for k in (block, block + 1))
            before, upto = (self.edges * k // self.living for k in (first, end))
            yield _Block(self, block, first, end - first, upto - before).lists()
        yield np.zeros(self.nodes - self.living + 1, np.int64), np.empty(0, np.int64)

    def links(self, pages: Ids, raw: Raw) -> Ids:
        """Where a link from each page goes, by a random number each."""
        unit = (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53
        share = unit * unit * unit * unit
        number = raw.view(np.int64)
        anywhere = number & 7 == 0
        far = 1 + (min(self.living // 2, REACH) * share).astype(np.int64)
        places = pages + np.where(number & 8, far, -far)
        zeros = (number >> 4 & 15) * 11 >> 4  # 0 to 10
        places = places >> zeros << zeros
        places[anywhere] = self._popular.forward((self.living * share[anywhere]).astype(np.int64))
        wrapped: Ids = places % self.living
        return wrapped


@dataclass
class _Block:
    """Pages first .. first + pages - 1, which have `edges` links."""

    crawl: Crawl
    block: int
    first: int
    pages: int
    edges: int
    _round: int = 0

    def _raw(self, size: int) -> Raw:
        self._round += 1
        return raw_numbers(self.crawl.seed, _STREAM + self._round, self.block, size)

    def lists(self) -> tuple[Ids, Ids]:
        raw = self._raw(2 * self.pages).reshape(2, self.pages)
        begins = raw[0] >> np.uint64(60) == 0  # one in 16
        begins[0] = True
        folder = np.cumsum(begins) - 1
        degrees = self._degrees(folder, raw[1])
        # A link is one number, (page of this block, page it goes to), so that sorting makes distinct lists.
        keys = self._menus(folder, np.flatnonzero(begins), degrees)
        loops = np.flatnonzero((raw[0] & np.uint64(7) == 0) & (self._missing(keys, degrees) > 0))
        keys = self._fill(_distinct(keys, self._keys(loops, self.first + loops)), degrees)
        return np.concatenate(([0], np.cumsum(degrees))), keys % self.crawl.living

    def _keys(self, pages: Ids, targets: Ids) -> Ids:
        return pages * self.crawl.living + targets

    def _missing(self, keys: Ids, degrees: Ids) -> Ids:
        """How many links each page lacks."""
        found: Ids = np.bincount(keys // self.crawl.living, minlength=self.pages)
        return degrees - found

    def _degrees(self, folder: Ids, raw: Raw) -> Ids:
        """Links of each page: the block's edges in proportion to weights."""
        mean = max(1, self.edges // self.pages)
        most = min(_MOST_TIMES, max(2, self.crawl.living // (8 * mean)))
        unit = ((self._raw(self.pages) >> np.uint64(11)).astype(np.float64) + 1) * 2.0**-53
        of_folder = np.minimum(1 / np.sqrt(unit), most)[folder]
        weights = (of_folder * 64).astype(np.int64) * (48 + (raw >> np.uint64(59)).astype(np.int64))
        weights[raw & np.uint64(7) == 0] = 0
        ends = np.cumsum(weights)
        if ends[-1] == 0:  # of a few pages none has links
            weights[:] = 1
            ends = np.cumsum(weights)
        degrees: Ids = np.diff(ends * self.edges // ends[-1], prepend=0)
        return degrees

    def _menus(self, folder: Ids, fronts: Ids, degrees: Ids) -> Ids:
        """Links that pages have from the menus of their folders: of the first `degree` entries 15 in 16."""
        lengths = np.maximum.reduceat(degrees, fronts)
        starts = np.cumsum(lengths) - lengths
        front = np.repeat(self.first + fronts, lengths)
        place = np.arange(lengths.sum()) - np.repeat(starts, lengths)
        menu = self.crawl.links(front, self._raw(front.size))
        # Entries 8i to 8i + 7 of a folder share what is drawn for the first of them.
        run_begins = np.repeat(starts, lengths) + place // _RUN * _RUN
        in_run = self._raw(front.size)[run_begins] >> np.uint64(63) == 1
        menu = np.where(in_run, (menu[run_begins] + place % _RUN) % self.crawl.living, menu)
        pages = np.repeat(np.arange(self.pages), degrees)
        entry = np.arange(self.edges) - np.repeat(np.cumsum(degrees) - degrees, degrees)
        kept = self._raw(self.edges) >> np.uint64(60) > 0
        return _distinct(self._keys(pages, menu[starts[folder[pages]] + entry])[kept])

    def _fill(self, keys: Ids, degrees: Ids) -> Ids:
        """Pages' own links, until all have as many as they should; each round draws what the last has left."""
        rounds = 0
        while keys.size < self.edges:
            pages = np.repeat(np.arange(self.pages), self._missing(keys, degrees))
            raw, rounds = self._raw(pages.size), rounds + 1
            if rounds <= _OWN_ROUNDS:
                targets = self.crawl.links(self.first + pages, raw)
            else:
                targets = (raw % np.uint64(self.crawl.living)).view(np.int64)
            keys = _distinct(keys, self._keys(pages, targets))
        return keys


def _distinct(*parts: Ids) -> Ids:
    """Values of all parts, ascending, each once; ``np.unique`` hashes them, which takes ten times as long."""
    values = np.sort(np.concatenate(parts))
    return values[changes(values)]


def write_crawl(base: Path, crawl: Crawl, bar: Progress) -> None:
    """``BASE.graph``, ``BASE.offsets`` and ``BASE.properties`` as WebGraph stores them, with LAW's usual parameters."""
    encoder = native.BvEncoder(crawl.nodes)
    with ExitStack() as stack:
        files = [stack.enter_context(written(base.with_name(base.name + suffix))) for suffix in (".graph", ".offsets")]
        for indptr, indices in crawl.blocks():
            for file, data in zip(files, encoder.add(indptr, indices), strict=True):
                file.write(data.data)
            bar.update(BYTES_PER_EDGE * indices.size)
        for file, data in zip(files, encoder.finish(), strict=True):
            file.write(data.data)
    said = {
        "graphclass": "it.unimi.dsi.webgraph.BVGraph", "version": 0, "nodes": crawl.nodes, "arcs": crawl.edges,
        "windowsize": 7, "maxrefcount": 3, "minintervallength": 4, "zetak": 3, "compressionflags": "",
        "copiedarcs": encoder.copied_arcs, "intervalisedarcs": encoder.interval_arcs,
        "residualarcs": encoder.residual_arcs, "bitsperlink": round(encoder.bits / max(1, crawl.edges), 3),
        "bitspernode": round(encoder.bits / crawl.nodes, 3),
    }  # fmt: skip
    with written(base.with_name(base.name + ".properties")) as file:
        file.write("".join(["#BVGraph properties\n", *(f"{key}={value}\n" for key, value in said.items())]).encode())
