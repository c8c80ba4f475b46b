"""Layouts for GPU benchmarks, made by the commands from an R-MAT graph: same graph, order and rows, other tiers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tiering.artifacts.manifest import Relation
from tiering.bench.sampling_task import FANOUTS
from tiering.bench.sizes import Sizes
from tiering.bench.stages import bench_folder, graph_nodes, run_tiering, write_edges, write_rows
from tiering.formats.adjacency_prefix import AdjacencyPrefix, ListBytes
from tiering.formats.layout import Layout

CLASSES = 16
_TRAIN_SHARE = 0.01
_NAMES_ONLY = 16
"""Bytes of a row where nobody reads rows."""


@dataclass(frozen=True)
class Layouts:
    """A graph in the order of its scores, and the layouts made of it."""

    sizes: Sizes
    folder: Path
    batch_size: int
    """Seeds of a batch: a thousand, or fewer on graphs that have not enough."""

    def make(self, name: str, *tiers: str | Path) -> Path:
        """A layout; `tiers` are options of ``tiering layout``."""
        out = self.folder / name
        run_tiering(self.sizes, ["layout", self.folder / "reordered", *tiers, "--out", out])
        return out

    def about(self) -> dict[str, Any]:
        """What a report says about the graph."""
        sizes = self.sizes
        return {
            "nodes": graph_nodes(sizes), "edges": sizes.edges, "fanouts": list(FANOUTS), "batch_size": self.batch_size
        }  # fmt: skip


@contextmanager
def layouts(sizes: Sizes, *, with_rows: bool = True) -> Iterator[Layouts]:
    """Import, score and reorder the graph in a directory of `sizes.folder`, removed afterwards.

    One node in a hundred trains; labels are random. Rows have `sizes.row_bytes` bytes; a few if nobody reads them.
    """
    if not with_rows:
        sizes = replace(sizes, row_bytes=_NAMES_ONLY)
    nodes = graph_nodes(sizes)
    train = max(2, int(_TRAIN_SHARE * nodes))
    batch_size = min(1000, max(1, train // 2))
    with bench_folder(sizes) as folder:
        data, rng = folder / "data", np.random.default_rng(sizes.seed)
        edges = write_edges(sizes, data)
        write_rows(data / "node_feat.npy", nodes, sizes.row_bytes)
        np.save(data / "node_label.npy", rng.integers(0, CLASSES, nodes))
        np.save(data / "train_idx.npy", np.sort(rng.permutation(nodes)[:train]))
        fanouts = ",".join(map(str, FANOUTS))
        run_tiering(sizes, ["import", data, "--num-nodes", nodes, "--out", folder / "graph"])
        edges.unlink()
        run_tiering(
            sizes,
            ["score", folder / "graph", "--fanouts", fanouts, "--batch-size", batch_size, "--out", folder / "scores"],
        )
        run_tiering(sizes, ["reorder", folder / "graph", "--scores", folder / "scores", "--out", folder / "reordered"])
        yield Layouts(sizes, folder, batch_size)


class HeldLists(Layout):
    """A layout whose hottest adjacency lists lie in the memory of the GPU, up to a share of all their bytes."""

    share = 0.0

    @classmethod
    def holding(cls, path: Path, share: float) -> HeldLists:
        """Open a layout; whatever it says about lists itself does not count."""
        layout = cls.open(path)
        layout.share = share
        return layout

    @property
    def digest(self) -> str:
        """Another for each share: lists of one digest are loaded once."""
        return f"{super().digest}, {self.share} of the lists"

    def adjacency_prefix(self, relation: Relation | str | None = None) -> AdjacencyPrefix:
        """As many columns from rank 0 on as fit into the share."""
        indptr, _ = self.graph.csc(relation)
        size = ListBytes.of_graph(self.graph, self.graph.relation(relation), weights=False)
        nbytes = size.taken(np.arange(indptr.size), indptr)
        columns = max(0, int(np.searchsorted(nbytes, self.share * nbytes[-1], side="right")) - 1)
        return AdjacencyPrefix.of(columns, int(indptr[columns]), size)
