"""What dry runs predict beside what runs take: time, peak of memory, bytes read and written, per stage.

``python tests/benchmarks/predictions.py [--edges N,N,..] [--work DIR] [--cold] [--json FILE] [STAGE ...]`` generates
R-MAT graphs with 128 bytes of features per node and runs each stage in a process of its own: first the prediction, then
the stage, with all the memory there is and with about half of what it would take (``tight``). ``--cold`` drops the
inputs from the page cache before. Bytes are those of ``/proc/self/io``; memory is ``RssAnon + RssShmem``, looked at
every 2 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tiering import native, pipeline
from tiering.execution import own_memory
from tiering.execution.forecast import Forecast

STAGES = ("import", "score", "reorder", "layout")
DIM = 64


def make_dataset(folder: Path, edges: int) -> Path:
    """An R-MAT graph of about 12 edges a node, in npy format."""
    data = folder / "data"
    data.mkdir(parents=True)
    scale = max(10, int(np.log2(edges / 12)) + 1)
    src, dst = native.rmat_edges(scale, edges, 0, os.cpu_count() or 1, True)
    table = np.lib.format.open_memmap(data / "edge_index.npy", "w+", np.int64, (2, edges))
    table[0], table[1] = src, dst
    table.flush()
    nodes = 1 << scale
    np.save(data / "node_feat.npy", np.ones((nodes, DIM), np.float16))
    np.save(data / "node_label.npy", np.arange(nodes) % 8)
    np.save(data / "train_idx.npy", np.arange(0, nodes, 100))
    return data


def calls(stage: str, folder: Path, memory: str) -> tuple[Callable[[], Forecast], Callable[[], Any]]:
    """Prediction and run of a stage."""
    graph, scores, reordered = folder / "graph", folder / "scores", folder / "reordered"
    arguments: dict[str, tuple[Any, ...]] = {
        "import": (folder / "data", graph),
        "score": (graph, scores, "wrpr"),
        "reorder": (graph, scores, reordered),
        "layout": (reordered, folder / "layout"),
    }
    options: dict[str, Any] = {"memory": memory}
    if stage == "layout":
        options |= {"gpu": "10%", "cpu": "30%", "ssd": [folder / "ssd"]}
    run = {"import": pipeline.import_dataset}.get(stage) or getattr(pipeline, stage)
    predict = getattr(pipeline, f"predict_{stage}")
    return (
        lambda: predict(*arguments[stage], **options),
        lambda: run(*arguments[stage], **options, force=True),
    )


def one(stage: str, folder: Path, memory: str, cold: bool) -> dict[str, Any]:
    """Predict and run one stage in this process."""
    predict, run = calls(stage, folder, memory)
    if cold:
        drop(folder)
    forecast = predict()
    for place in forecast.plans[0].left:
        shutil.rmtree(place, ignore_errors=True)  # what is there already would be removed in the time of the run
    os.sync()
    if cold:
        drop(folder)
    before, base = _io(), own_memory()
    with watched() as peak:
        begun = time.perf_counter()
        run()
        seconds = time.perf_counter() - begun
    after = _io()
    left = sum(f.stat().st_size for place in forecast.plans[0].left for f in _written(place))
    measured = {
        "seconds": seconds,
        "memory": max(peak),
        "base": base,
        "disk_read": after["read_bytes"] - before["read_bytes"],
        "disk_written": after["write_bytes"] - before["write_bytes"],
        "disk_left": left,
    }
    return {"stage": stage, "memory": memory, "predicted": forecast.to_json()["stages"][0], "measured": measured}


def _written(place: Path) -> Iterator[Path]:
    """Data files of an artifact that are not hard links of another's."""
    for file in sorted(place.rglob("*")):
        if file.is_file() and file.name != "manifest.json" and file.stat().st_nlink == 1:
            yield file


def drop(folder: Path) -> None:
    """Let the page cache forget every file under a folder."""
    for file in folder.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


class watched:  # noqa: N801 - reads as a verb
    """Peak of this process's memory, in a list."""

    def __enter__(self) -> list[int]:
        self._peak, self._done = [own_memory()], threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self._peak

    def _look(self) -> None:
        while not self._done.wait(0.002):
            self._peak[0] = max(self._peak[0], own_memory())

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def _io() -> dict[str, int]:
    lines = Path("/proc/self/io").read_text().splitlines()
    return {name: int(value) for name, value in (line.split(": ") for line in lines)}


def separately(stage: str, folder: Path, memory: str, cold: bool) -> dict[str, Any]:
    """`one`, in a process of its own."""
    command = [sys.executable, __file__, "--one", stage, "--work", folder, "--memory", memory, *["--cold"] * cold]
    done = subprocess.run([str(each) for each in command], check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def tight(found: dict[str, Any]) -> str:
    """About half the memory that a stage took beside the process itself, but no less than external paths need."""
    plan = found["predicted"]
    return f"{(plan['memory_held'] + max(340 << 20, (plan['memory'] - plan['memory_held']) // 2)) >> 20}MiB"


def line(found: dict[str, Any], edges: int) -> str:
    """A line of the table: predicted / measured."""
    predicted, measured = found["predicted"], found["measured"]
    read = measured["disk_read"] - predicted["disk_scratch"]
    written = measured["disk_written"] - predicted["disk_scratch"]
    mib = [
        f"{p / 2**20:8.1f} / {m / 2**20:8.1f}"
        for p, m in (
            (predicted["memory"], measured["memory"]), (predicted["disk_read"], read),
            (predicted["disk_written"], written), (predicted["disk_left"], measured["disk_left"]),
        )
    ]  # fmt: skip
    seconds = f"{predicted['seconds']:7.2f} / {measured['seconds']:7.2f}"
    off = predicted["seconds"] / measured["seconds"] - 1
    return f"{edges / 1e6:5.0f} M {found['stage']:8} {found['memory']:>8} {seconds} {off:+5.0%}  " + "  ".join(mib)


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stages", nargs="*", help=f"of {', '.join(STAGES)}; all by default")
    parser.add_argument("--edges", default="1000000,4000000,16000000,50000000")
    parser.add_argument("--work", type=Path, default=None)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--memory", default="auto", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one(given.one, given.work, given.memory, given.cold)))
        return
    results = []
    print(f"{'edges':>7} {'stage':8} {'memory':>8} {'seconds':^17} {'off':>5}  {'peak MiB':^19}  {'read':^19}", end="")
    print(f"  {'written':^19}  {'left':^19}   (predicted / measured)")
    with tempfile.TemporaryDirectory(dir=given.work) as folder:
        for edges in map(int, given.edges.split(",")):
            place = Path(folder) / str(edges)
            make_dataset(place, edges)
            for stage in STAGES:
                found = [separately(stage, place, "auto", given.cold)]
                if not given.stages or stage in given.stages:
                    found.append(separately(stage, place, tight(found[0]), given.cold))
                for each in found:
                    results.append({"edges": edges, **each})
                    print(line(each, edges), flush=True)
            shutil.rmtree(place)
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
