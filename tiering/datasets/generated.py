"""`tiering generate`: a dataset of any size from a seed, in IGB or IGBH format; communities carry the labels.

Blocks of numbers come from Philox generators keyed by (seed, stream, block), and only integers and correctly rounded
operations (+, -, *, /, sqrt) are used: the same bytes on every machine.
"""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.atomic import OutputDirectory
from tiering.artifacts.manifest import Relation
from tiering.artifacts.storage import disk_free, storage_errors, write_durably
from tiering.datasets.arrays import narrow_rows
from tiering.datasets.import_context import chunks
from tiering.datasets.options import split_fractions
from tiering.errors import InputError, StorageError
from tiering.text.arguments import naming_files
from tiering.text.options import option
from tiering.text.progress import progress
from tiering.text.units import format_bytes

Ids = npt.NDArray[np.int64]

EDGE_BLOCK = 1 << 18  # edges made at a time. Part of the definition: other blocks give other edges
FEATURE_BLOCK = 1 << 21  # feature values made at a time, in whole rows. Part of the definition like EDGE_BLOCK
SHUFFLE_ROUNDS = 3


class KeyedPermutation:
    """A permutation of 0..size-1 (size up to 2^62) by a key of numbers below 2^64; needs no table."""

    def __init__(self, size: int, key: tuple[int, ...]) -> None:
        self.size = size
        bits = max(2, (size - 1).bit_length())
        self._mask = np.uint64(2**bits - 1)
        self._shift = np.uint64((bits + 1) // 2)
        raw = np.random.Philox(np.random.SeedSequence(list(key))).random_raw(2 * SHUFFLE_ROUNDS)
        self._odd = [np.uint64(int(x) | 1) & self._mask for x in raw[:SHUFFLE_ROUNDS]]
        self._add = [np.uint64(int(x)) & self._mask for x in raw[SHUFFLE_ROUNDS:]]
        self._odd_inverse = [np.uint64(pow(int(x), -1, 2**bits)) for x in self._odd]

    def _pass(self, x: npt.NDArray[np.uint64], inverse: bool) -> npt.NDArray[np.uint64]:
        x = x.copy()
        for i in reversed(range(SHUFFLE_ROUNDS)) if inverse else range(SHUFFLE_ROUNDS):
            if inverse:
                x ^= x >> self._shift
                x -= self._add[i]
                x *= self._odd_inverse[i]
                x &= self._mask
            else:
                x *= self._odd[i]
                x += self._add[i]
                x &= self._mask
                x ^= x >> self._shift
        return x

    def forward(self, values: npt.NDArray[Any], *, inverse: bool = False) -> Ids:
        """Return the images of values in 0..size-1; with `inverse` the values whose images are given."""
        x = self._pass(np.asarray(values).astype(np.uint64), inverse)
        outside = np.flatnonzero(x >= np.uint64(self.size))
        while outside.size:
            again = self._pass(x[outside], inverse)
            x[outside] = again
            outside = outside[again >= np.uint64(self.size)]
        return x.view(np.int64)


def raw_numbers(seed: int, stream: int, block: int, size: int) -> npt.NDArray[np.uint64]:
    """Return `size` uniform 64-bit numbers of one block of one stream."""
    raw: npt.NDArray[np.uint64] = np.random.Philox(key=[seed, (stream << 44) + block]).random_raw(size)
    return raw


class Population:
    """The nodes of one type; `stream`, the number of the type, keeps its random numbers apart from others'.

    Community k of C has the slots n*k//C .. n*(k+1)//C - 1; a node's id is its slot under a keyed permutation.
    """

    def __init__(self, size: int, communities: int, seed: int, stream: int) -> None:
        self.size, self.communities, self.seed, self.stream = size, communities, seed, stream
        self.shuffle = KeyedPermutation(size, (seed, 1, stream))
        # First slot of each community, and the end.
        self.starts = np.array([size * k // communities for k in range(communities + 1)], np.int64)
        # Multipliers near the golden section of a community, without common factor: they spread neighboring ranks.
        sizes = ((n, range(max(1, int(n * 0.6180339887)), n + 2)) for n in np.diff(self.starts).tolist())
        self._factors = np.array([next(f for f in near if math.gcd(f, n) == 1) for n, near in sizes], np.int64)

    def community_of_ids(self, ids: npt.NDArray[Any]) -> Ids:
        """Return the community of each node id: its label."""
        return self.community_of_slots(self.shuffle.forward(ids, inverse=True))

    def community_of_slots(self, slots: Ids) -> Ids:
        """Return the community of each slot."""
        return np.searchsorted(self.starts, slots, side="right").astype(np.int64) - 1

    def ids_by_rank(self, community: Ids, share: npt.NDArray[np.float64], *, turned: bool) -> Ids:
        """Return node ids at fraction `share` of the ranks of their community; `turned`: in the order of sources."""
        start = self.starts[community]
        count = self.starts[community + 1] - start
        rank = (share * count).astype(np.int64)
        if turned:
            rank = rank * self._factors[community] % count
        return self.shuffle.forward(start + rank)

    def features(self, block: int, rows: slice, dim: int, signal: float) -> npt.NDArray[np.float32]:
        """Return rows of signal / sqrt(dim) * (+-1 by community) + noise of variance 1, of the ids in `rows`."""
        number = rows.stop - rows.start
        noise = raw_numbers(self.seed, 16 + self.stream, block, -(-number * dim // 2)).view(np.uint32)
        noise = noise[: number * dim]
        # The sum of the 4 bytes of each number, scaled to mean 0 and variance 1, is bell-shaped.
        pairs = (noise & np.uint32(0x00FF00FF)) + ((noise >> np.uint32(8)) & np.uint32(0x00FF00FF))
        total = (pairs & np.uint32(0xFFFF)) + (pairs >> np.uint32(16))
        values: npt.NDArray[np.float32] = total.astype(np.float32).reshape(number, dim)
        values -= np.float32(510)
        values *= np.float32(1 / math.sqrt(4 * (256**2 - 1) / 12))
        # The mean of each community is the same for all types of a dataset up to `dim`.
        signs = (raw_numbers(self.seed, 2, 0, self.communities * dim) >> np.uint64(63)).astype(np.float32) * 2 - 1
        means = signs.reshape(self.communities, dim) * np.float32(signal / math.sqrt(dim))
        values += means[self.community_of_ids(np.arange(rows.start, rows.stop))]
        return values

    def feature_blocks(
        self, dim: int, signal: float, first: int = 0, _: Any = None
    ) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """Yield the first id and the features of each block, from row `first` on."""
        step = max(1, FEATURE_BLOCK // dim)
        for rows in islice(chunks(self.size, step), first // step, None):
            yield rows.start, self.features(rows.start // step, rows, dim, signal)


def draw_edges(source: Population, target: Population, stream: int, block: int, count: int, homophily: float) -> Ids:
    """Return `count` <= `EDGE_BLOCK` edges of one block, shape (count, 2): source id, destination id; no self loops.

    In a community of m slots, the destination has rank floor(m * v^2), the source floor(m * u^3), u and v uniform:
    in-degrees and out-degrees follow power laws with density exponents 3 and 2.5.
    """
    raw = raw_numbers(target.seed, 64 + stream, block, 5 * count).reshape(5, count)
    units = (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53  # uniform in [0, 1), 53 bits
    # Communities are drawn in proportion to their sizes.
    target_community = target.community_of_slots((units[0] * target.size).astype(np.int64))
    any_community = source.community_of_slots((units[1] * source.size).astype(np.int64))
    source_community = np.where(units[2] < homophily, target_community, any_community)
    u, v = units[3], units[4]
    edges = np.empty((count, 2), np.int64)
    edges[:, 0] = source.ids_by_rank(source_community, u * u * u, turned=True)
    edges[:, 1] = target.ids_by_rank(target_community, v * v, turned=False)
    if source is target:
        loop = np.flatnonzero(edges[:, 0] == edges[:, 1])
        slots = source.shuffle.forward(edges[loop, 0], inverse=True)
        edges[loop, 0] = source.shuffle.forward((slots + 1) % source.size)
    return edges


DTYPES = {"float32": "<f4", "float16": "<f2", "bfloat16": "<u2"}  # of features -> dtype in the file
HOMOPHILY = 0.7
SIGNAL = 1.5
CITES = ("paper", "cites", "paper")

TYPE_SHARES = {"author": 0.40, "fos": 0.08, "institute": 0.02}  # fraction of the nodes; papers are the rest
RELATION_SHARES = {  # fraction of the edges of each relation; its reverse has as many, citations the rest
    ("paper", "written_by", "author"): 0.15,
    ("paper", "topic", "fos"): 0.15,
    ("author", "affiliated_to", "institute"): 0.05,
}
RANGES = {"nodes": (2, 2**40), "edges": (0, 2**44), "dim": (1, 2**20), "classes": (1, 2**20), "seed": (0, 2**64 - 1)}


@dataclass(frozen=True)
class Recipe:
    """The parameters of `generate_dataset`, checked, and the sizes that follow from them."""

    nodes: int = option(MISSING, "Number of nodes, over all types.", "N", cli=int, cli_default=100_000)
    edges: int = option(MISSING, "Number of edges, over all relations.", "E", cli=int, cli_default=1_000_000)
    dim: int = option(128, "Values per feature row.", "D")
    classes: int = option(8, "Number of labels, and of communities.", "C")
    seed: int = option(0, "Random seed.", "N")
    hetero: bool = option(False, "Generate four node types and seven relations.", flags=("--hetero",))
    dtype: str = option("float32", "Dtype of the features.", "float32|float16|bfloat16")
    split: Sequence[float] = (0.1, 0.05, 0.1)
    featureless: Sequence[str] = option(
        (), "Node type without features (with --hetero); repeatable.", "TYPE", cli=list[str] | None
    )

    def __post_init__(self) -> None:
        for name, (low, high) in RANGES.items():
            if not low <= getattr(self, name) <= high:
                raise InputError(f"{name}: expected {low} to {high}, found {getattr(self, name)}")
        if self.dtype not in DTYPES:
            raise InputError(f"dtype: expected {', '.join(DTYPES)}, found {self.dtype!r}")
        smallest, size = min(self.counts.items(), key=lambda item: item[1])
        if size < 2 * self.classes:
            raise InputError(
                f"nodes: {size} {smallest} nodes are too few for {self.classes} classes, expected at least "
                "2 per class; raise nodes or lower classes"
            )
        others = [name for name in self.counts if name != "paper"]
        for name in self.featureless:
            if name not in others:
                known = ", ".join(others) or "no type (give hetero)"
                raise InputError(f"featureless: expected some of {known}, found {name!r}")
        split_fractions(self.split, "split")
        if self.splits["train"] == 0:
            papers = self.counts["paper"]
            raise InputError(f"split: {self.split[0]} of {papers} papers leaves the train set empty; increase it")

    @cached_property
    def counts(self) -> dict[str, int]:
        """Nodes by type."""
        others = {name: int(self.nodes * share) for name, share in TYPE_SHARES.items()} if self.hetero else {}
        return {"paper": self.nodes - sum(others.values()), **others}

    @cached_property
    def relations(self) -> dict[Relation, int]:
        """Edges by generated relation; all but citations are written reversed too, as ``rev_NAME``."""
        others = {r: int(self.edges * share) for r, share in RELATION_SHARES.items()} if self.hetero else {}
        return {CITES: self.edges - 2 * sum(others.values()), **others}

    @cached_property
    def splits(self) -> dict[str, int]:
        """Papers in ``train``, ``val``, ``test``."""
        papers = self.counts["paper"]
        return {name: int(papers * share) for name, share in zip(("train", "val", "test"), self.split, strict=True)}

    @property
    def bytes(self) -> int:
        """Bytes all files will take."""
        item = np.dtype(DTYPES[self.dtype]).itemsize
        rows = sum(n for name, n in self.counts.items() if name not in self.featureless)
        return rows * self.dim * item + 4 * self.counts["paper"] + 8 * sum(self.splits.values()) + 16 * self.edges


@naming_files
@storage_errors()
def generate_dataset(
    out: str | os.PathLike[str],
    *,
    nodes: int,
    edges: int,
    dim: int = 128,
    classes: int = 8,
    seed: int = 0,
    hetero: bool = False,
    dtype: str = "float32",
    split: tuple[float, float, float] = (0.1, 0.05, 0.1),
    featureless: Sequence[str] = (),
    force: bool = False,
) -> Path:
    """Generate a dataset whose labels a GNN finds and a network without neighbors does not.

    Parameters
    ----------
    out
        Directory to create; the dataset is in ``OUT/processed``, for ``tiering import OUT``.
    nodes, edges
        Exact numbers; with `hetero`, over all types and relations, reverse ones included.
    dim, dtype
        Values per feature row; ``float32``, ``float16`` or ``bfloat16``.
    classes
        Number of labels, and of communities.
    seed
        Same seed and sizes, same bytes.
    hetero
        Four types and seven relations instead of papers and citations.
    split
        Fractions of the papers in train, val and test.
    featureless
        Types without features (with `hetero`): their number of nodes is in ``meta.json``.
    force
        Replace an earlier dataset of this function at `out`.

    Returns
    -------
    pathlib.Path
        `out`, for `import_graph`. All files appear at once; memory: about 100 MiB.
    """
    recipe = Recipe(nodes, edges, dim, classes, seed, hetero, dtype, split, featureless)
    target = Path(out).absolute()
    with OutputDirectory(target, force=force) as output:
        free = disk_free(output.path)
        if recipe.bytes > free:
            raise StorageError(
                errno.ENOSPC,
                f"{target}: not enough disk space: {format_bytes(recipe.bytes)} needed, {format_bytes(free)} free; "
                "make room, choose another disk, or generate less",
            )
        with progress(recipe.bytes, "generating", "B", scale=True) as bar:
            _write(recipe, output.path / "processed", bar)
        output.commit()
    return Path(out)


def _write(recipe: Recipe, tree: Path, bar: Any) -> None:
    populations = {
        name: Population(size, recipe.classes, recipe.seed, stream)
        for stream, (name, size) in enumerate(recipe.counts.items())
    }
    for name, population in populations.items():
        if name not in recipe.featureless:
            shape = (population.size, recipe.dim)
            rows = (narrow_rows(values, recipe.dtype) for _, values in population.feature_blocks(recipe.dim, SIGNAL))
            _save(tree / name / "node_feat.npy", DTYPES[recipe.dtype], shape, rows, bar)
    papers = populations["paper"]
    ranges = (np.arange(part.start, part.stop) for part in chunks(papers.size, EDGE_BLOCK))
    labels = (papers.community_of_ids(ids).astype("<f4") for ids in ranges)
    _save(tree / "paper" / "node_label_19.npy", "<f4", (papers.size,), labels, bar)
    order, start = KeyedPermutation(papers.size, (recipe.seed, 3)), 0
    for split, size in recipe.splits.items():
        ids = (order.forward(np.arange(start + p.start, start + p.stop)) for p in chunks(size, EDGE_BLOCK))
        _save(tree / "paper" / f"{split}_idx.npy", "<i8", (size,), ids, bar)
        start += size
    edges: dict[str, int] = {}
    for stream, (relation, count) in enumerate(recipe.relations.items()):
        source, name, target = relation
        for reverse in (False,) if relation == CITES else (False, True):
            folder = f"{target}__rev_{name}__{source}" if reverse else f"{source}__{name}__{target}"
            blocks = (
                draw_edges(populations[source], populations[target], stream, block, part.stop - part.start, HOMOPHILY)
                for block, part in enumerate(chunks(count, EDGE_BLOCK))
            )
            ends = (block[:, ::-1] if reverse else block for block in blocks)
            _save(tree / folder / "edge_index.npy", "<i8", (count, 2), ends, bar)
            edges[folder] = count
    parameters = {"dim": recipe.dim, "dtype": recipe.dtype, "classes": recipe.classes, "seed": recipe.seed}
    sizes = {"num_nodes": recipe.counts, "num_edges": edges, **parameters}
    meta = {"generator": "tiering generate", **sizes, "homophily": HOMOPHILY, "signal": SIGNAL}
    write_durably(tree / "meta.json", (json.dumps(meta, indent=2) + "\n").encode())


def _save(path: Path, dtype: str, shape: tuple[int, ...], blocks: Iterator[npt.NDArray[Any]], bar: Any) -> None:
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
            for block in blocks:
                data = np.ascontiguousarray(block)
                file.write(data.reshape(-1).view(np.uint8).data)
                bar.update(data.nbytes)
            file.flush()
            os.fsync(file.fileno())
