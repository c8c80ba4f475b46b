"""Layer-wise inference of a two-layer GraphSAGE by one way to get rows, in a process of its own: prints a JSON line.

``python layerwise.py SIDE JSON``; the sides are those of `benchmarks.inference`.
"""

from __future__ import annotations

import json
import mmap
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash

import tiering
from tiering.loader.inference import run
from tiering.loader.inference.blocks import InferenceBlock, NodeRuns, cut_runs
from tiering.memory import own_memory
from tiering.readahead.memory import page_cache_for


class Sage(torch.nn.Module):
    """A layer of GraphSAGE with means, by messages of edges or by a sparse matrix."""

    def __init__(self, dim: int, width: int, form: str, act: bool) -> None:
        super().__init__()
        self.neighbors, self.own = torch.nn.Linear(dim, width), torch.nn.Linear(dim, width, bias=False)
        self._form, self._act = form, act

    def forward(self, block: InferenceBlock, x: torch.Tensor) -> torch.Tensor:
        """Return the rows of the destinations."""
        if self._form == "adjacency":
            mean = torch.sparse.mm(block.adjacency(), x, "mean")
        else:
            src, dst = block.edge_index
            mean = torch.zeros(block.num_dst, x.shape[1]).index_add_(0, dst, x[src])
            mean /= torch.bincount(dst, minlength=block.num_dst).clamp_(min=1)[:, None]
        out: torch.Tensor = self.neighbors(mean) + self.own(x[: block.num_dst])
        return out.relu() if self._act else out


class Timed:
    """A layer's function, its seconds, and a digest of all that it returned since `begin`, rows of padding too."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self.measured: Any = None  # the run that the first layer is of
        self.begin()

    def begin(self) -> None:
        """Begin anew."""
        self.seconds, self._digest = 0.0, xxhash.xxh3_128()

    @property
    def digest(self) -> str:
        """Digest of the rows."""
        return str(self._digest.hexdigest())

    def __call__(self, block: InferenceBlock, x: torch.Tensor) -> torch.Tensor:
        start = time.perf_counter()
        rows: torch.Tensor = self._function(block, x)
        self.seconds += time.perf_counter() - start
        self._digest.update(np.ascontiguousarray(rows.numpy()).data)
        return rows


class MeasuredInference(run.Inference):
    """`TieredLayout.inference` that times each layer, and the waiting for rows."""

    def __init__(self, layout: Any, layers: Any, *arguments: Any, **options: Any) -> None:
        self.timed, self.layers, self.waited = layers, list[dict[str, Any]](), 0.0
        super().__init__(layout, layers, *arguments, **options)
        layers[0].measured = self

    def _blocks(self, source: Any, number: int, runs: NodeRuns, **options: Any) -> Iterator[tuple[InferenceBlock, Any]]:
        found = super()._blocks(source, number, runs, **options)

        def wait() -> tuple[InferenceBlock, Any] | None:
            start = time.perf_counter()
            try:
                return next(found, None)
            finally:
                self.waited += time.perf_counter() - start

        yield from iter(wait, None)  # nothing here holds a block that a layer is done with

    def _write_layer(self, writer: Any, number: int) -> None:
        layer = self.timed[number]
        layer.begin()
        self.waited, start, disk = 0.0, time.perf_counter(), disk_bytes()
        memory = {"own": own_memory(), "function": self._model_bytes[number]}
        super()._write_layer(writer, number)
        stats = self._kept.stats()
        artifact = self._view(number)
        (entry,) = (artifact.type_layout(t) for t in artifact.feature_types)
        ahead, table = self._kept.lookahead, entry.num_nodes * entry.row_bytes
        buffer = None if ahead is None or ahead.buffer is None else ahead.buffer
        self.layers.append({
            "seconds": time.perf_counter() - start, "model": layer.seconds, "waited": self.waited,
            "waited_by_stage": stats.waited, "busy": stats.seconds, "digest": layer.digest, "table": table,
            "read": table if ahead is None else stats.read_bytes, "in_memory": ahead is None,
            "edges": sum(int(run.edges.sum()) for run in self._runs[number].values()),
            "disk": [now - before for now, before in zip(disk_bytes(), disk, strict=True)],
            "choice": None if ahead is None else str(ahead.choice),
            "buffer": None if buffer is None else buffer.nbytes, **memory, "after": own_memory(),
            "reserved": {} if ahead is None else self._reserved(ahead._decision),
        })  # fmt: skip

    def _reserved(self, decision: Any) -> dict[str, int]:
        """Return what the loader keeps from its buffer: for batches, and files that sampling maps, in bytes."""
        room = decision.budget.left()
        mapped = page_cache_for(decision.mapped_bytes, room)
        return {"left": room, "outputs": decision.output_bytes, "mapped": decision.mapped_bytes, "page cache": mapped}


def disk_bytes() -> list[int]:
    """Return the bytes that this process has read from disks and written to them."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return [int(lines["read_bytes"]), int(lines["write_bytes"])]


def ours(options: dict[str, Any], layers: list[Any]) -> dict[str, Any]:
    """Run all layers by the product."""
    timed = [Timed(layer) for layer in layers]
    run.Inference = MeasuredInference  # type: ignore[misc]
    settings = {name: options[name] for name in ("memory", "edges", "order")}
    if str(settings["order"]).endswith(".npy"):
        settings["order"] = np.load(settings["order"])
    with tiering.open(options["layout"]) as layout:
        estimate = layout.inference(timed, options["out"], dry_run=True, **settings).plans[0].steps
        start = time.perf_counter()
        made = layout.inference(timed, options["out"], **settings)
        seconds = time.perf_counter() - start
        rows = xxhash.xxh3_128_hexdigest(np.ascontiguousarray(made.numpy()).data)
    reads = [step.disk_read for step in estimate]
    measured = timed[0].measured
    about = {"order": measured._order.name, "block_edges": measured._edges, "moved": measured._moved}
    return {"seconds": seconds, "rows": rows, "layers": measured.layers, "estimate": reads, **about}


def mapped(options: dict[str, Any], layers: list[Any], threads: int) -> dict[str, Any]:
    """Run the first layer over the dataset's own file, in its order; for so many seconds behind a third of them."""
    layer, limit = Timed(layers[0]), options["seconds"]
    graph = tiering.open(options["graph"])
    (relation,) = graph.relations
    indptr, indices = graph.csc(relation)
    table = np.load(options["table"], mmap_mode="r")
    if threads > 1:
        table._mmap.madvise(mmap.MADV_RANDOM)
    runs = cut_runs(graph, relation[2], None, 50_000 if options["edges"] == "auto" else options["edges"])
    warm = begin = time.perf_counter()
    edges = at = waited = 0
    warmed, skipped, disk = False, 0.0, disk_bytes()
    with ThreadPoolExecutor(threads) as pool, Path(options["out"]).open("wb") as out:
        for b in range(len(runs.edges)):
            first, last = map(int, runs.bounds[b : b + 2])
            start = time.perf_counter()
            block, ids = block_of(indptr, indices, first, last, relation)
            x = rows_of(table, ids, threads, pool)
            waited += time.perf_counter() - start
            out.write(layer(block, x).numpy().data)
            edges, at, now = edges + int(runs.edges[b]), last, time.perf_counter()
            if now - begin > limit and warmed:
                break
            if not warmed and now - warm > limit / 3:
                warmed, begin, edges, waited, skipped, disk = True, now, 0, 0.0, now - warm, disk_bytes()
                layer.begin()
    seconds, whole = time.perf_counter() - begin, int(runs.edges.sum())
    scale = 1.0 if at == len(runs) and not warmed else whole / max(1, edges)
    read = scale * (disk_bytes()[0] - disk[0])
    done = {
        "seconds": scale * seconds, "model": scale * layer.seconds, "waited": scale * waited, "digest": "",
        "read": read, "table": table.nbytes, "edges": whole, "measured": seconds, "measured_edges": edges,
        "warm": skipped, "scale": scale,
    }  # fmt: skip
    return {"seconds": done["seconds"], "layers": [done]}


def block_of(indptr: Any, indices: Any, first: int, last: int, relation: Any) -> tuple[InferenceBlock, Any]:
    """Return the block of destinations [first, last) and the ids of its rows: destinations, then other sources."""
    ends = np.asarray(indptr[first : last + 1], np.int64)
    src = np.asarray(indices[ends[0] : ends[-1]], np.int64)
    others = np.unique(src)
    others = others[(others < first) | (others >= last)]
    own = (src >= first) & (src < last)
    local = np.where(own, src - first, np.searchsorted(others, src) + last - first)
    dst = np.repeat(np.arange(last - first), np.diff(ends))
    ids = np.concatenate([np.arange(first, last), others])
    edges = torch.from_numpy(np.stack([local, dst]))
    return InferenceBlock(relation[2], {relation[2]: torch.from_numpy(ids)}, {relation: edges}, last - first), ids


def rows_of(table: Any, ids: Any, threads: int, pool: ThreadPoolExecutor) -> torch.Tensor:
    """Return rows of a memory map: as people write it, or by threads."""
    if threads == 1:
        return torch.from_numpy(table[ids])
    rows = np.empty((ids.size, table.shape[1]), table.dtype)
    cuts = np.linspace(0, ids.size, 8 * threads + 1).astype(int)

    def part(k: int) -> None:
        np.take(table, ids[cuts[k] : cuts[k + 1]], axis=0, out=rows[cuts[k] : cuts[k + 1]], mode="clip")

    list(pool.map(part, range(len(cuts) - 1)))
    return torch.from_numpy(rows)


def main() -> None:
    """Run the side that the arguments name."""
    side, options = sys.argv[1], json.loads(sys.argv[2])
    if side == "empty":
        with tiering.open(options["layout"]) as layout:
            torch.zeros(1)
            assert layout.feature_types
            lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
            sizes = {
                name: int(lines[key].split()[0]) * 1024 for name, key in (("resident", "VmRSS"), ("files", "RssFile"))
            }
            print(json.dumps(sizes))
        return
    torch.set_num_threads(options["threads"])
    torch.manual_seed(0)
    widths = options["widths"]
    layers: list[Any] = [
        Sage(dim, width, options["form"], k < len(widths) - 2).eval() for k, (dim, width) in enumerate(pairwise(widths))
    ]
    if side.startswith("ours, no model"):
        layers = [lambda block, x, w=width: x[: block.num_dst, :w].contiguous() for width in widths[1:]]
    if side.startswith("ours"):
        done = ours(options, layers)
    else:
        with torch.inference_mode():
            done = mapped(options, layers, 16 if "16" in side else 1)
    print(json.dumps({**done, "peak": peak()}))


def peak() -> int:
    """Return the peak of resident memory, files included."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024


if __name__ == "__main__":
    main()
