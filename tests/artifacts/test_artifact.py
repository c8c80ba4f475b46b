"""Artifacts: levels of checking find what each promises to find."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from damage import flip
from sealed import rewrite

import tiering
from tiering.artifacts import checksum, storage
from tiering.artifacts.document import open_manifest
from tiering.artifacts.storage import OpenDirectory
from tiering.artifacts.writer import ArtifactWriter
from tiering.errors import FormatError, MissingError
from tiering.formats.graph import Graph
from tiering.formats.layout import image_bytes, peer_rows
from tiering.formats.scores import Scores
from tiering.formats.ssd_rows import SsdRows, choose_unit, ssd_stride

EXAMPLES = Path(__file__).resolve().parents[2] / "data_specs" / "examples"


@pytest.fixture
def example(tmp_path):
    def copy(name):
        shutil.copytree(EXAMPLES / name, tmp_path / name)
        return tmp_path / name

    return copy


@pytest.mark.parametrize(("kind", "name", "change", "level", "words"), [
    ("scores", "nodes/paper/feature", lambda v: v.__setitem__(1, np.nan), "structure", "node 1"),
    ("scores", "nodes/paper/feature", lambda v: v.__setitem__(2, -1), "structure", "negative"),
    ("scores", "relations/paper__cites__paper/adjacency", lambda v: v.__setitem__(1, -1), "structure", "at node 1"),
    ("order", "nodes/paper/new_to_old", lambda v: v.__setitem__(0, 0), "structure", "not the inverse"),
    ("order", "nodes/paper/new_to_old", lambda v: v.__setitem__(0, 9), "structure", "outside 0..3"),
    ("order", "nodes/paper/score", lambda v: v.__setitem__(3, 9.0), "structure", "increase"),
    ("graph", "nodes/paper/label", lambda v: v.__setitem__(0, 2), "structure", "label"),
    ("graph", "nodes/paper/split-train", lambda v: v.__setitem__(0, 4), "structure", "split-train"),
    ("graph", "relations/paper__cites__paper/indptr", lambda v: v.__setitem__(1, 5), "structure", "decreases"),
    ("graph", "relations/paper__cites__paper/indptr", lambda v: v.__setitem__(4, 5), "structure", "0 .. 4"),
    ("graph", "relations/paper__cites__paper/indices", lambda v: v.__setitem__(1, 4), "full", "cites"),
])  # fmt: skip
def test_wrong_content_is_found_at_its_level(example, kind, name, change, level, words):
    folder = example(kind)
    rewrite(folder, name, change)
    before = {"structure": "header", "full": "structure"}[level]
    assert tiering.check(folder, before) == []
    problems = tiering.check(folder, level)
    assert any(words in str(problem) for problem in problems), problems


def test_all_problems_are_returned_not_the_first(example):
    folder = example("graph")
    (folder / "nodes/paper/label").unlink()
    (folder / "nodes/paper/split-train").write_bytes(b"")
    assert len(tiering.check(folder)) == 2
    with pytest.raises(FormatError, match=r"label.*split-train.*tiering check"):
        Graph.open(folder)


def test_another_kind_a_foreign_directory_and_nothing(example, tmp_path):
    folder = example("scores")
    with pytest.raises(FormatError, match="expected a graph artifact, found a scores artifact"):
        Graph.open(folder)
    with pytest.raises(MissingError, match=r"manifest\.json"):
        tiering.open(tmp_path)
    with pytest.raises(MissingError, match="no such file"):
        tiering.open(tmp_path / "nowhere")
    (folder / "manifest.json").write_text("not json")
    with pytest.raises(FormatError, match="not valid JSON"):
        Scores.open(folder)


def test_ranges_of_a_file_are_read_and_verified(tmp_path, monkeypatch):
    monkeypatch.setattr(checksum, "BLOCK_BYTES", 16)
    name, file, values = "nodes/node/feature", tmp_path / "S/nodes/node/feature", np.arange(9.0)
    body = {"method": "m", "graph_digest": "xxh3-128:" + "0" * 32, "node_types": ["node"], "columns": ["feature"]}
    with ArtifactWriter(tmp_path / "S", "scores") as writer:
        writer.put(name, values)
        writer.commit(body, {"stage": "score"})
    manifest = open_manifest(tmp_path / "S", "scores")
    for begin, end in ((0, 9), (3, 4), (8, 9), (5, 5)):
        assert manifest.read(name, begin, end).tolist() == values[begin:end].tolist()
    assert open_manifest(tmp_path / "S").read_bytes(name, 4, 12).tobytes() == values.tobytes()[4:12]
    with pytest.raises(FormatError, match="names no file nodes/other"):
        manifest.read("nodes/other")
    with pytest.raises(FormatError, match="expected a graph artifact"):
        open_manifest(tmp_path / "S", "graph")
    flip(file, 8 * 40)
    assert manifest.read(name, 3, 6).tolist() != values[3:6].tolist()  # a block is verified once by an open manifest
    manifest = open_manifest(tmp_path / "S", "scores")
    assert manifest.read(name, 0, 4).tolist() == values[:4].tolist()
    with pytest.raises(FormatError, match="bytes 32 to 48 differ from what was written"):
        manifest.read(name, 4, 5)
    os.truncate(file, 50)
    with pytest.raises(FormatError, match="expected 72 bytes, found 50"):
        manifest.read(name, 7, 8)


def test_a_file_is_opened_once_by_threads_that_ask_at_a_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"12345")
    directory, opened, barrier, plain = OpenDirectory(tmp_path), [], Barrier(2), storage._open

    def together(*arguments: Any) -> int:
        descriptor: int = plain(*arguments)
        opened.append(descriptor)
        barrier.wait(60)
        return descriptor

    monkeypatch.setattr(storage, "_open", together)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(directory.open, ["file", "file"])) == [5, 5]
    assert len(opened) == 2 and sum(Path(f"/proc/self/fd/{fd}").exists() for fd in opened) == 1


def test_graph_accessors(example):
    graph = Graph.open(example("graph"))
    assert graph.node_types == ["author", "paper"] and graph.num_nodes() == 6 and graph.num_edges() == 6
    indptr, indices = graph.csc("cites")
    assert indptr.tolist() == [0, 3, 4, 4, 4] and indices.tolist() == [2, 2, 1, 1]
    assert graph.split("train").tolist() == [0, 1]
    assert graph.labels("paper").tolist() == [0, 1, -1, 1] and graph.labels("author") is None
    assert graph.feature_table("author") is None and graph.feature_table("paper").open().shape == (4, 3)
    for call in (lambda: graph.csc(), lambda: graph.csc("x"), lambda: graph.labels("x"), lambda: graph.split("val")):
        with pytest.raises(MissingError):
            call()
    with pytest.raises(MissingError, match="tiering reorder"):
        graph.new_to_old("paper")


def test_a_subclass_of_a_kind_opens_itself_and_nothing_else_opens_it(example):
    class Annotated(Graph):
        """A graph that a program adds to."""

    assert type(Annotated.open(example("graph"))) is Annotated
    assert type(tiering.open(EXAMPLES / "graph")) is Graph


@pytest.mark.parametrize(
    ("row_bytes", "stride", "unit", "per_unit"),
    [(1, 4, 65536, 16384), (40, 40, 65536, 1638), (480, 512, 65536, 128), (513, 516, 65536, 127),
     (768, 768, 65536, 85), (1536, 1536, 131072, 85), (2408, 2560, 131072, 51), (3080, 3080, 262144, 85),
     (4096, 4096, 65536, 16), (5732, 6144, 524288, 85), (3 << 20, 3 << 20, 3 << 20, 1)],
)  # fmt: skip
def test_stride_rule(row_bytes, stride, unit, per_unit):
    assert ssd_stride(row_bytes) == stride
    assert choose_unit([(10**7, row_bytes)], 4096, 2) == unit
    place = SsdRows.plan(3, 10**7, stride, unit)
    assert (place.rows_per_unit, place.num_units) == (per_unit, -(-(10**7) // per_unit))


def test_stripes_and_interleaving_count_every_page_and_row_once():
    for pages in range(20):
        for images in range(1, 5):
            assert sum(image_bytes(pages, k, images, 1) for k in range(images)) == pages
    for rows in range(20):
        for peers in range(1, 5):
            assert sum(peer_rows(rows, k, peers) for k in range(peers)) == rows
