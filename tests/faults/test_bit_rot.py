"""One flipped bit in a file of an artifact: no stage writes results of it with fresh checksums.

A stage refuses, or makes what it makes of the undamaged artifact, or passes the damaged file on with the checksum that
it had, so that a check of the result finds it.
"""

from __future__ import annotations

import functools
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from campaign import Campaign
from damage import damaged, flipped
from toy_datasets import chain, toy_dataset, tree_bytes

import tiering
from tiering import pipeline
from tiering.artifacts import atomic, checksum, manifest, reader
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
    "score wrpr": (lambda inputs, out: pipeline.score_graph(inputs / "graph", out, "wrpr"), ("graph",)),
    "score vip": (lambda inputs, out: pipeline.score_graph(inputs / "graph", out, "vip", **SAMPLING), ("graph",)),
    "score degree": (lambda inputs, out: pipeline.score_graph(inputs / "graph", out, "degree"), ("graph",)),
    "score hybrid": (lambda inputs, out: pipeline.score_graph(inputs / "graph", out, "hybrid", **SAMPLING), ("graph",)),
    "reorder": (
        lambda inputs, out: pipeline.reorder_graph(inputs / "graph", inputs / "scores", out),
        ("graph", "scores"),
    ),
    "reorder --features": (
        lambda inputs, out: pipeline.reorder_graph(inputs / "graph", inputs / "scores", out, features=True),
        ("graph", "scores", "data"),
    ),
    "evaluate": (evaluation, ("graph", "scores")),
    "layout": (
        lambda inputs, out: pipeline.layout(inputs / "reordered", out, gpu="20%", ssd=[out.with_name("ssd")]),
        ("reordered", "data"),
    ),
    "layout of coded rows": (
        lambda inputs, out: pipeline.layout(
            inputs / "reordered", out, dtype="bfloat16", cpu=0, ssd=[out.with_name("ssd")]
        ),
        ("reordered", "data"),
    ),
    "layout of ranked rows": (lambda inputs, out: pipeline.layout(inputs / "ranked", out, gpu="20%"), ("ranked",)),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Artifacts that the stages read."""
    folder = tmp_path_factory.mktemp("rot")
    toy = toy_dataset(folder / "data", 9, min_nodes=30, featureless=0)
    graph, scores, _ = chain(toy, folder)
    pipeline.reorder_graph(graph, scores, folder / "ranked", features=True)
    return folder


@pytest.fixture(params=["fits", "streamed"])
def memory(request, monkeypatch):
    """Files are compared before they are used, or as they are streamed and before anything is committed."""
    if request.param == "streamed":
        stream_everything(monkeypatch)


def stream_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file fits in memory, and none is in the page cache."""
    monkeypatch.setattr(manifest, "available_memory", lambda: 0)
    monkeypatch.setattr(reader, "_is_cached", lambda region, size: False)


def content(folder: Path) -> dict[str, bytes]:
    """What lies in an artifact; manifests name paths that differ from trial to trial."""
    return {name: data for name, data in tree_bytes(folder).items() if not name.endswith(("manifest.json", "layout"))}


def files_of(*folders: Path) -> list[Path]:
    """Files with content below some folders, but for manifests."""
    files = [path for folder in folders for path in sorted(folder.rglob("*"))]
    return [path for path in files if path.is_file() and path.name != "manifest.json" and path.stat().st_size]


class Launderer:
    """A stage, and what it makes of undamaged inputs."""

    def __init__(self, name: str, inputs: Path, folder: Path) -> None:
        (self.stage, reads), self.inputs, self.folder = STAGES[name], inputs, folder
        self.files = files_of(*(inputs / each for each in reads))
        self.stage(inputs, folder / "expected")
        self.expected = content(folder / "expected")

    def flip(self, luck: random.Random, file: Path) -> str:
        """Flip a bit of a file and run the stage; return how it ended."""
        data, out = file.read_bytes(), self.folder / "out"
        bit = luck.randrange(8 * len(data))
        with damaged(file, flipped(data, bit)):
            try:
                self.stage(self.inputs, out)
            except TieringError:
                assert not (out / "manifest.json").exists()
                return "refused"
            else:
                if content(out) == self.expected:
                    return "the same output"
                assert tiering.check(out, "full"), f"{file}, bit {bit}: laundered"
                return "passed on with its checksum"
            finally:
                for folder in (out, self.folder / "ssd"):
                    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("name", STAGES)
def test_nothing_is_laundered(inputs, tmp_path, name):
    launderer, luck = Launderer(name, inputs, tmp_path), random.Random(name)
    files = luck.sample(launderer.files, min(12, len(launderer.files)))
    outcomes = [launderer.flip(luck, file) for file in files]
    assert "refused" in outcomes, outcomes


@pytest.mark.long
def test_laundering(inputs, tmp_path, monkeypatch):
    @functools.cache
    def begin(name: str) -> Launderer:
        (tmp_path / name).mkdir()
        return Launderer(name, inputs, tmp_path / name)

    def trial(luck: random.Random) -> str:
        launderer = begin(luck.choice(list(STAGES)))
        with monkeypatch.context() as patch:
            if luck.random() < 0.5:
                stream_everything(patch)
            return launderer.flip(luck, luck.choice(launderer.files))

    Campaign("laundering").run(trial)


@pytest.mark.long
def test_flips(inputs, tmp_path):
    """Any byte of any artifact, stripe files and feature files with recorded checksums included."""
    folder = tmp_path / "artifacts"
    for artifact in ("graph", "scores", "reordered", "ranked"):
        shutil.copytree(inputs / artifact, folder / artifact)
    pipeline.layout(inputs / "reordered", folder / "layout", gpu="20%", cpu="20%", ssd=[folder / "disk"])
    exported = {folder / "disk": folder / "layout"}
    pairs = [
        (path, exported.get(owner, owner))
        for owner in sorted(folder.iterdir())
        for path in sorted(owner.rglob("*"))
        if path.is_file() and not path.is_symlink() and path.stat().st_size and path.name != atomic.OWNER
    ]

    def trial(luck: random.Random) -> str:
        file, artifact = luck.choice(pairs)
        data, kind = file.read_bytes(), luck.choice(["flipped"] * 8 + ["cut", "longer"])
        at = luck.randrange(8 * len(data))
        changed = {"flipped": flipped(data, at), "cut": data[: at // 8], "longer": data + luck.randbytes(1 + at % 9)}
        with damaged(file, changed[kind]):
            problems = tiering.check(artifact, "full")
            assert problems, f"{file} {kind} at bit {at} of {8 * len(data)} passes"
            assert any(file.name in str(problem) for problem in problems), f"{file} {kind} at bit {at}: {problems}"
        return kind

    Campaign("flips").run(trial)


def test_every_block_is_told_apart(tmp_path, monkeypatch):
    """Blocks are compared as they pass by; those that did not are read before the end."""
    from tiering.artifacts.checksum import Verifier

    monkeypatch.setattr(checksum, "BLOCK_BYTES", 16)
    data = random.Random(0).randbytes(100)
    file = tmp_path / "file"
    file.write_bytes(data)
    blocks = checksum.file_digests(file)

    def verifier() -> Verifier:
        return Verifier(file, str(file), 100, checksum.combine_digests(blocks), blocks)

    wrong = flipped(data, 8 * 37 + 2)
    for cut in range(1, 60):
        whole = verifier()
        for begin in range(0, 100, cut):
            whole.update(begin, memoryview(data)[begin : begin + cut])
        assert whole.done
        with pytest.raises(FormatError, match=r"file: bytes 32 to 48 differ from what was written"):
            whole = verifier()
            for begin in range(0, 100, cut):
                whole.update(begin, memoryview(wrong)[begin : begin + cut])
    partly = verifier()
    partly.update(5, memoryview(data)[5:60])
    partly.update(48, memoryview(data)[48:])
    file.write_bytes(wrong)
    partly.finalize()  # the damaged block has passed by as it was
    assert partly.done
    partly = verifier()
    partly.update(48, memoryview(data)[48:])
    with pytest.raises(FormatError, match="bytes 32 to 48"):
        partly.finalize()
    with pytest.raises(FormatError, match="bytes 0 to 16"):
        Verifier(file, str(file), 100, checksum.combine_digests(blocks), None).finalize()


@pytest.mark.parametrize("method", ["wrpr", "vip"])
def test_what_the_core_reads_past_the_cache_is_compared(inputs, tmp_path, method, monkeypatch):
    """Indices larger than memory are compared as the core streams them: they are not read once more at the end."""
    from tiering.artifacts.checksum import Verifier
    from tiering.scores import sweeps

    monkeypatch.setattr(manifest, "available_memory", lambda: 0)
    monkeypatch.setattr(sweeps, "past_the_cache", lambda *sizes: True)
    options = {**(SAMPLING if method == "vip" else {}), "threads": 1, "memory": "8GiB"}
    file = next(path for path in sorted((inputs / "graph").rglob("indices")) if path.stat().st_size)
    seen: list[str] = []
    plain = Verifier.damaged
    monkeypatch.setattr(
        Verifier,
        "damaged",
        lambda self, *given: (seen.append(self.path.name) if given[0] else None, plain(self, *given))[1],
    )
    pipeline.score_graph(inputs / "graph", tmp_path / "sound", method, **options)
    assert "indptr" in seen and "indices" not in seen
    with (
        damaged(file, flipped(file.read_bytes(), 40)),
        pytest.raises(FormatError, match=r"indices: bytes 0 to .* differ from what was written"),
    ):
        pipeline.score_graph(inputs / "graph", tmp_path / "damaged", method, **options)
