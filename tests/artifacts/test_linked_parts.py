"""Parts that a stage takes over as they are, and arrays that it does not read: damage in them is refused."""

from pathlib import Path

import numpy as np
import pytest
from damage import damaged, flipped
from toy_datasets import toy_dataset

from tiering import pipeline
from tiering.artifacts import manifest, storage
from tiering.artifacts.checksum import Verifier
from tiering.errors import FormatError
from tiering.formats.names import NameTable
from tiering.graph.build import build_graph

STAGES = {
    "score": lambda folder, out, **options: pipeline.score_graph(folder / "graph", out, "degree", **options),
    "reorder": lambda folder, out, **options: pipeline.reorder_graph(
        folder / "graph", folder / "scores", out, **options
    ),
    "layout": lambda folder, out, **options: pipeline.layout(
        folder / "reordered", out, cpu="10%", ssd=[out.with_name("ssd")], **options
    ),
}
LINKED = {
    "score": ["names/nodes/paper/bytes", "nodes/paper/split-train", "nodes/author/label"],
    "reorder": ["names/nodes/paper/bytes", "names/nodes/paper/offsets", "names/checksums"],
    "layout": [
        "names/nodes/paper/bytes", "order/nodes/paper/old_to_new", "order/nodes/paper/new_to_old",
        "nodes/paper/split-train", "nodes/venue/original_id", "order/checksums", "indptr", "indices",
    ],
}  # fmt: skip
CASES = [(stage, name) for stage, names in LINKED.items() for name in names]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A graph whose papers have names, its scores, and the graph in order."""
    folder = tmp_path_factory.mktemp("linked")
    toy = toy_dataset(folder / "data", 9, min_nodes=30, featureless=0)
    papers = toy.dataset.nodes["paper"]
    names = [f"paper {number:03}".encode() for number in range(papers.num_nodes)]
    offsets = np.concatenate(([0], np.cumsum([len(name) for name in names]))).astype(np.int64)
    papers.names = NameTable(offsets, np.frombuffer(b"".join(names), np.uint8))
    graph = build_graph(toy.dataset, folder / "graph")
    pipeline.reorder_graph(graph, pipeline.score_graph(graph, folder / "scores", "degree"), folder / "reordered")
    return folder


def one_flipped(file):
    """A file with one other bit, for a while."""
    return damaged(file, flipped(file.read_bytes(), 4 * file.stat().st_size))


def input_of(folder, stage, name):
    """A file of the graph that a stage reads, by its name or the end of it."""
    graph = folder / ("reordered" if stage == "layout" else "graph")
    return next(
        path for path in sorted(graph.rglob(Path(name).name)) if str(path).endswith(name) and path.stat().st_size
    )


@pytest.mark.parametrize("memory", ["fits", "streamed"])
@pytest.mark.parametrize(("stage", "name"), CASES)
def test_a_flipped_bit_is_refused(folder, tmp_path, stage, name, memory, monkeypatch):
    if memory == "streamed":
        monkeypatch.setattr(manifest, "available_memory", lambda: 0)
    with one_flipped(input_of(folder, stage, name)), pytest.raises(FormatError, match="damaged"):
        STAGES[stage](folder, tmp_path / "out")
    assert list(tmp_path.iterdir()) == [], "something was left"


@pytest.mark.parametrize(("stage", "name"), [("reorder", "names/nodes/paper/bytes"), ("layout", "nodes/paper/bytes")])
def test_copies_are_compared_as_links_are(folder, tmp_path, stage, name, monkeypatch):
    def refuse(*_, **__):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(storage.os, "link", refuse)
    with one_flipped(input_of(folder, stage, name)), pytest.raises(FormatError, match="damaged"):
        STAGES[stage](folder, tmp_path / "out")


def test_without_verification_nothing_is_compared(folder, tmp_path):
    for stage, run in STAGES.items():
        with one_flipped(input_of(folder, stage, "names/nodes/paper/bytes")):
            run(folder, tmp_path / stage, verify=False)


def test_each_block_is_read_once(folder, tmp_path, monkeypatch):
    """What was compared when it was used is not read again when the part that it lies in is published."""
    compared = []
    plain = Verifier.damaged

    def damaged(self, blocks, *rest):
        wanted = list(blocks)
        compared.extend(f"{self.path} {block}" for block in wanted)
        return plain(self, wanted, *rest)

    monkeypatch.setattr(Verifier, "damaged", damaged)
    STAGES["layout"](folder, tmp_path / "out")
    files = [path for path in (folder / "reordered").rglob("*") if path.name != "manifest.json"]
    assert len(compared) == len(set(compared)) >= sum(path.stat().st_size > 0 for path in files) / 2
