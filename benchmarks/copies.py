"""A layout copied to another directory, against `cp` and the disk, and to a simulated S3, against `copy_files`."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import tiering
from benchmarks.harness import Comparison, Sizes, Spent, Work, compare, cpu_seconds

REMOTE_BYTES = 128 << 20  # of the layout that goes to the simulated S3, which is far slower than a disk
CHUNK = 64 << 20  # bytes that `copy_files` reads at once: the simulated S3 takes minutes with its 1 MiB


def copy(sizes: Sizes) -> list[Comparison]:
    """Time copies of a layout, its stripe files in it, whose files are not in the page cache."""
    with TemporaryDirectory(dir=sizes.folder) as name:
        folder = Path(name)
        return [_to_disk(sizes, folder), *_to_store(sizes, folder)]


def _make_layout(folder: Path, nbytes: int, row_bytes: int) -> Path:
    rows, random = nbytes // row_bytes, np.random.default_rng(0)
    data = folder / "data"
    data.mkdir(parents=True)
    np.save(data / "edge_index.npy", random.integers(0, rows, (2, 4 * rows)))
    np.save(data / "node_feat.npy", random.standard_normal((rows, row_bytes // 4), dtype=np.float32))
    np.save(data / "train_idx.npy", np.arange(10))
    graph = tiering.import_graph(data, folder / "graph")
    scores = tiering.score_graph(graph, folder / "scores", "degree")
    reordered = tiering.reorder_graph(graph, scores, folder / "ordered")
    tiering.write_layout(reordered, folder / "layout", gpu="0", cpu="25%", ssd=folder / "layout/ssd")
    return folder / "layout"


def _files(layout: Path) -> list[Path]:
    return [path for path in layout.rglob("*") if path.is_file()]


def _timed(layout: Path, target: Path, work: Work) -> Work:
    """Return a turn that begins without the source in the page cache, and whose target is removed in the end."""

    def turn() -> Spent:
        for path in _files(layout):
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        begin, cpu = time.perf_counter(), cpu_seconds()
        work()
        spent = Spent(time.perf_counter() - begin, cpu_seconds() - cpu)
        shutil.rmtree(target, ignore_errors=True)
        return spent

    return turn


def _to_disk(sizes: Sizes, folder: Path) -> Comparison:
    layout = _make_layout(folder / "disk", sizes.feature_bytes, sizes.row_bytes)
    nbytes, target = sum(path.stat().st_size for path in _files(layout)), folder / "copy"

    def cp() -> None:
        subprocess.run(["cp", "-r", layout, target], check=True)
        for path in (*_files(target), target):
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)

    def dd() -> None:
        target.mkdir()
        for number, path in enumerate(_files(layout)):
            direct = ["iflag=direct", "oflag=direct"] if path.stat().st_size % 4096 == 0 else []
            command = ["dd", f"if={path}", f"of={target / str(number)}", "bs=16M", "conv=fsync", *direct]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)

    peers = {"cp -r, synced": _timed(layout, target, cp), "dd, direct": _timed(layout, target, dd)}
    ours = _timed(layout, target, lambda: tiering.copy(layout, target))
    about = {"bytes": nbytes, "layout": "a quarter of the rows in the cpu tier, one stripe file"}
    return compare(
        "copy to a directory", ours, peers, amount=nbytes / 1e9, unit="GB", repeats=sizes.repeats, parameters=about,
        targets=dict.fromkeys(peers, 0.9),
    )  # fmt: skip


def _to_store(sizes: Sizes, folder: Path) -> list[Comparison]:
    sys.path.append(str(Path(__file__).parents[1] / "tests/support"))
    from pyarrow.fs import FileSystem, LocalFileSystem, copy_files

    layout = _make_layout(folder / "store", min(REMOTE_BYTES, sizes.feature_bytes), sizes.row_bytes)
    nbytes, target = sum(path.stat().st_size for path in _files(layout)), folder / "back"
    store, known, local = import_module("object_store").ObjectStore(), dict(os.environ), LocalFileSystem()
    try:
        os.environ |= store.environment()
        bucket = store.make_bucket()
        system, root = FileSystem.from_uri(bucket)
        number = itertools.count()
        sides = {
            "upload": (lambda: tiering.copy(layout, f"{bucket}/{next(number)}"),
                       lambda: copy_files(str(layout), f"{root}/theirs", local, system, chunk_size=CHUNK)),
            "download": (lambda: tiering.copy(f"{bucket}/0", target),
                         lambda: copy_files(f"{root}/theirs", str(target), system, local, chunk_size=CHUNK)),
        }  # fmt: skip
        return [
            compare(
                f"{name}, simulated S3", _timed(layout, target, ours),
                {"pyarrow.fs.copy_files": _timed(layout, target, theirs)}, amount=nbytes / 1e9, unit="GB",
                repeats=sizes.repeats, parameters={"bytes": nbytes}, targets={"pyarrow.fs.copy_files": 1.0},
            )
            for name, (ours, theirs) in sides.items()
        ]  # fmt: skip
    finally:
        os.environ.clear()
        os.environ |= known
        store.stop()
