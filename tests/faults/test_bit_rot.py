"""One flipped bit in a file of an artifact: no stage writes results of it with fresh checksums.

A stage refuses, or makes what it makes of the undamaged artifact, or passes the damaged file on with the checksum that
it had, so that a check of the result finds it.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy_datasets import chain, toy_dataset, tree_bytes

import tiering
from tiering import pipeline
from tiering.artifacts import checksum, manifest, reader
from tiering.errors import FormatError, TieringError
from tiering.evaluation import evaluate, named_scores
from tiering.formats.graph import Graph
from tiering.formats.scores import Scores
from tiering.sampling import SamplingOptions

Stage = Callable[[Path, Path], object]


def evaluation(inputs: Path, out: Path) -> None:
    graph, scores = Graph.open(inputs / "graph"), Scores.open(inputs / "scores")
    for artifact in (graph, scores):
        artifact.verify_reads()
    found = evaluate(graph, named_scores(graph, [scores]), SamplingOptions([3, 3], 16))
    for artifact in (graph, scores):
        artifact.finish_reads()
    out.mkdir()
    (out / "result").write_text(str(found.to_json()))


SAMPLING: dict[str, Any] = {"fanouts": "3,3", "batch_size": 16}
STAGES: dict[str, tuple[Stage, tuple[str, ...]]] = {
    "score wrpr": (lambda inputs, out: pipeline.score(inputs / "graph", out, "wrpr"), ("graph",)),
    "score vip": (lambda inputs, out: pipeline.score(inputs / "graph", out, "vip", **SAMPLING), ("graph",)),
    "score degree": (lambda inputs, out: pipeline.score(inputs / "graph", out, "degree"), ("graph",)),
    "score hybrid": (lambda inputs, out: pipeline.score(inputs / "graph", out, "hybrid", **SAMPLING), ("graph",)),
    "transpose": (lambda inputs, out: pipeline.transpose(inputs / "graph", out), ("graph",)),
    "reorder": (
        lambda inputs, out: pipeline.reorder(inputs / "graph", inputs / "scores", out),
        ("graph", "scores"),
    ),
    "reorder --features": (
        lambda inputs, out: pipeline.reorder(inputs / "graph", inputs / "scores", out, features=True),
        ("graph", "scores", "data"),
    ),
    "evaluate": (evaluation, ("graph", "scores")),
    "layout": (
        lambda inputs, out: pipeline.layout(inputs / "reordered", out, gpu="20%", ssd=[out.with_name("ssd")]),
        ("reordered", "data"),
    ),
    "layout of ranked rows": (
        lambda inputs, out: pipeline.layout(inputs / "ranked", out, gpu="20%"),
        ("ranked",),
    ),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Artifacts that the stages read."""
    folder = tmp_path_factory.mktemp("rot")
    toy = toy_dataset(folder / "data", 9, min_nodes=30, featureless=0)
    graph, scores, _ = chain(toy, folder)
    pipeline.reorder(graph, scores, folder / "ranked", features=True)
    return folder


@pytest.fixture(params=["fits", "streamed"])
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether files are compared before they are used, or as they are streamed and before anything is committed."""
    if request.param == "streamed":
        monkeypatch.setattr(manifest, "available_memory", lambda: 0)
        monkeypatch.setattr(reader, "_cached", lambda region, size: False)
    return str(request.param)


def content(folder: Path) -> dict[str, bytes]:
    """What lies in an artifact; manifests name paths that differ from trial to trial."""
    return {name: data for name, data in tree_bytes(folder).items() if not name.endswith(("manifest.json", "layout"))}


def rot(name: str, inputs: Path, folder: Path, luck: random.Random, most: int) -> Counter[str]:
    """Flip a bit of one file after the other, `most` at most, and run a stage each time."""
    stage, reads = STAGES[name]
    stage(inputs, folder / "expected")
    expected, outcomes = content(folder / "expected"), Counter[str]()
    files = [path for folder in reads for path in sorted((inputs / folder).rglob("*"))]
    files = [path for path in files if path.is_file() and path.name != "manifest.json" and path.stat().st_size]
    for number, file in enumerate(luck.sample(files, min(most, len(files)))):
        data, out = bytearray(file.read_bytes()), folder / f"out-{number}"
        bit = luck.randrange(8 * len(data))
        before = file.stat()
        try:
            data[bit // 8] ^= 1 << bit % 8
            file.write_bytes(data)
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
            stage(inputs, out)
        except TieringError:
            outcomes["refused"] += 1
            assert not out.is_dir() or not (out / "manifest.json").exists()
        else:
            same = content(out) == expected
            assert same or tiering.check(out, "full"), f"{file}, bit {bit}: laundered"
            outcomes["same" if same else "passed on with its checksum"] += 1
        finally:
            data[bit // 8] ^= 1 << bit % 8
            file.write_bytes(data)
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
            shutil.rmtree(out, ignore_errors=True)
    return outcomes


@pytest.mark.slow
@pytest.mark.parametrize("name", STAGES)
def test_nothing_is_laundered(inputs: Path, tmp_path: Path, name: str, memory: str) -> None:
    outcomes = rot(name, inputs, tmp_path, random.Random(name), 12)
    assert outcomes["refused"], outcomes


@pytest.mark.long
@pytest.mark.parametrize("name", STAGES)
def test_nothing_is_laundered_often(inputs: Path, tmp_path: Path, name: str, memory: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    sums = Counter[str]()
    for number in range(5):
        (tmp_path / str(number)).mkdir()
        sums += rot(name, inputs, tmp_path / str(number), random.Random(seed + number), 1000)
    print(f"campaign bit rot, {name}, {memory}: {sum(sums.values())} flipped, {dict(sums)}, 0 laundered")


def test_every_block_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are compared as they pass by; those that did not are read before the end."""
    from tiering.artifacts.verify import Verifier

    monkeypatch.setattr(checksum, "BLOCK_BYTES", 16)
    data = random.Random(0).randbytes(100)
    file = tmp_path / "file"
    file.write_bytes(data)
    blocks = checksum.file_digests(file)

    def verifier() -> Verifier:
        return Verifier(file, str(file), 100, checksum.combine_digests(blocks), blocks)

    wrong = bytearray(data)
    wrong[37] ^= 4
    for cut in range(1, 60):
        whole = verifier()
        for begin in range(0, 100, cut):
            whole.passed(begin, memoryview(data)[begin : begin + cut])
        assert whole.done
        with pytest.raises(FormatError, match=r"file: bytes 32 to 48 are not what was written"):
            damaged = verifier()
            for begin in range(0, 100, cut):
                damaged.passed(begin, memoryview(bytes(wrong))[begin : begin + cut])
    partly = verifier()
    partly.passed(5, memoryview(data)[5:60])
    partly.passed(48, memoryview(data)[48:])
    file.write_bytes(wrong)
    partly.finish()  # the damaged block has passed by as it was
    assert partly.done
    partly = verifier()
    partly.passed(48, memoryview(data)[48:])
    with pytest.raises(FormatError, match="bytes 32 to 48"):
        partly.finish()
    with pytest.raises(FormatError, match="bytes 0 to 16"):
        Verifier(file, str(file), 100, checksum.combine_digests(blocks), None).finish()


@pytest.mark.parametrize("method", ["wrpr", "vip"])
def test_what_the_core_reads_past_the_cache_is_compared(
    inputs: Path, tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Indices larger than memory are compared as the core streams them: they are not read once more at the end."""
    from tiering.artifacts.verify import Verifier
    from tiering.scores import sweeps

    monkeypatch.setattr(manifest, "available_memory", lambda: 0)
    monkeypatch.setattr(sweeps, "past_the_cache", lambda *sizes: True)
    options = {**(SAMPLING if method == "vip" else {}), "threads": 1, "memory": "8GiB"}
    file = next(path for path in sorted((inputs / "graph").rglob("indices")) if path.stat().st_size)
    data = bytearray(file.read_bytes())
    seen: list[str] = []
    plain = Verifier.damaged
    monkeypatch.setattr(
        Verifier,
        "damaged",
        lambda self, *given: (seen.append(self.path.name) if given[0] else None, plain(self, *given))[1],
    )
    pipeline.score(inputs / "graph", tmp_path / "sound", method, **options)
    assert "indptr" in seen and "indices" not in seen
    data[5] ^= 1
    file.write_bytes(data)
    try:
        with pytest.raises(FormatError, match=r"indices: bytes 0 to .* are not what was written"):
            pipeline.score(inputs / "graph", tmp_path / "damaged", method, **options)
    finally:
        data[5] ^= 1
        file.write_bytes(data)
