"""Writes the example artifacts of ``data_specs/examples``: ``python tests/make_examples.py DIR``.

They are built with the formats alone, by hand, so that they pin the bytes on disk independently of the stages.
The graph: 4 papers, 2 authors; paper cites paper (with a duplicate edge, a self loop, an isolated paper), author
writes paper.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from tiering.artifacts.checksum import file_digests
from tiering.artifacts.manifest import External
from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.features import Features
from tiering.formats.graph import Graph
from tiering.formats.ssd_rows import SsdRows

PAPER = np.arange(4 * 3, dtype=np.float32).reshape(4, 3)
RANK = {"author": [1, 0], "paper": [2, 0, 1, 3]}
SCORE = {"author": [0.5, 0.75], "paper": [0.5, 0.25, 2.0, 0.0]}
READS = {"author__writes__paper": [1.0, 0.5, 0.25, 0.0], "paper__cites__paper": [1.0, 1.5, 0.0, 0.0]}


def _stage(name: str, **inputs: str) -> dict[str, object]:
    return {"package": "tiering 0.1.0", "stage": name, "options": {}, "inputs": inputs, "seed": None}


def _adjacency(writer: ArtifactWriter, relation: str, indptr: list[int], indices: list[int]) -> None:
    writer.put(f"relations/{relation}/indptr", np.array(indptr, np.int64))
    writer.put(f"relations/{relation}/indices", np.array(indices, np.int32))


def _body() -> dict[str, Any]:
    return {
        "node_types": {
            "author": {"num_nodes": 2, "num_classes": None, "splits": []},
            "paper": {"num_nodes": 4, "num_classes": 2, "splits": ["train"]},
        },
        "relations": [
            {"src": "author", "name": "writes", "dst": "paper", "num_edges": 2, "edge_data": []},
            {"src": "paper", "name": "cites", "dst": "paper", "num_edges": 4, "edge_data": []},
        ],
        "changes": {},
    }


def make_graph(out: Path) -> Graph:
    """A graph in original ids, its features inside."""
    with ArtifactWriter(out, "graph") as writer:
        _adjacency(writer, "author__writes__paper", [0, 1, 2, 2, 2], [0, 1])
        _adjacency(writer, "paper__cites__paper", [0, 3, 4, 4, 4], [2, 2, 1, 1])
        writer.put("nodes/paper/label", np.array([0, 1, -1, 1], np.int64))
        writer.put("nodes/paper/split-train", np.array([0, 1], np.int64))
        features = writer.part("features", "features")
        features.put("tables/paper", PAPER)
        table = {"rows": 4, "dim": 3, "dtype": "float32", "offset": 0, "row_order": "original"}
        features.commit({"tables": {"paper": {**table, "file": "tables/paper"}}}, _stage("import"))
        writer.commit(_body(), _stage("import"))
    return Graph.open(out)


def make_timed(out: Path) -> None:
    """Papers cite at times of their own, dates in seconds; of two equal ones the first in the source stays first."""
    with ArtifactWriter(out, "graph") as writer:
        _adjacency(writer, "paper__cites__paper", [0, 3, 4, 4, 4], [1, 2, 2, 1])
        writer.put("relations/paper__cites__paper/edge_ids", np.array([3, 0, 2, 1], np.int64))
        writer.put("relations/paper__cites__paper/when", np.array([-5, 40, 40, 7], np.int64))
        papers = {"num_nodes": 4, "num_classes": None, "splits": []}
        cites = {"src": "paper", "name": "cites", "dst": "paper", "num_edges": 4, "edge_data": ["edge_ids", "when"]}
        time = {"name": "when", "along": "edges", "dtype": "int64", "unit": "s"}
        body = {"node_types": {"paper": papers}, "relations": [cites], "changes": {}, "time": time}
        writer.commit(body, _stage("import"), ("time",))


def make_features(out: Path) -> Features:
    """The features of the graph as an artifact of their own."""
    with ArtifactWriter(out, "features") as writer:
        writer.put("tables/paper", PAPER)
        table = {"rows": 4, "dim": 3, "dtype": "float32", "offset": 0, "row_order": "original"}
        writer.commit({"tables": {"paper": {**table, "file": "tables/paper"}}}, _stage("import"))
    return Features.open(out)


def make_scores(out: Path, graph: Graph) -> None:
    """Scores of the graph."""
    with ArtifactWriter(out, "scores") as writer:
        for node_type, values in SCORE.items():
            writer.put(f"nodes/{node_type}/feature", np.array(values))
        for relation, reads in READS.items():
            writer.put(f"relations/{relation}/adjacency", np.array(reads))
        body = {"method": "presample", "graph_digest": graph.digest, "node_types": list(SCORE), "columns": ["feature"]}
        writer.commit(body, _stage("score", graph=graph.digest))


def _put_order(writer: ArtifactWriter, graph_digest: str) -> None:
    for node_type, new_to_old in RANK.items():
        order = np.array(new_to_old, np.int32)
        inverse = np.empty_like(order)
        inverse[order] = np.arange(order.size, dtype=np.int32)
        writer.put(f"nodes/{node_type}/new_to_old", order)
        writer.put(f"nodes/{node_type}/old_to_new", inverse)
        writer.put(f"nodes/{node_type}/score", np.array(SCORE[node_type])[order])
    writer.commit({"graph_digest": graph_digest, "node_types": list(RANK)}, _stage("reorder", graph=graph_digest))


def make_names(out: Path) -> None:
    """Names of the authors, of one byte and of several."""
    names = ["Ada", "\u00c9mile"]
    with ArtifactWriter(out, "names") as writer:
        encoded = [name.encode() for name in names]
        writer.put("nodes/author/offsets", np.cumsum([0, *map(len, encoded)], dtype=np.int64))
        writer.put("nodes/author/bytes", np.frombuffer(b"".join(encoded), np.uint8))
        writer.commit({"node_types": ["author"]}, _stage("import"))


def make_order(out: Path, graph: Graph) -> None:
    """Order by the scores."""
    with ArtifactWriter(out, "order") as writer:
        _put_order(writer, graph.digest)


def make_reordered(out: Path, graph: Graph, cites: np.ndarray | None = None) -> Graph:
    """The graph in ranks: paper 2 0 1 3 -> 0 1 2 3, author 1 0 -> 0 1; `cites` are features of edges between papers."""
    body = _body()
    with ArtifactWriter(out, "graph") as writer:
        _adjacency(writer, "author__writes__paper", [0, 0, 1, 2, 2], [1, 0])
        _adjacency(writer, "paper__cites__paper", [0, 0, 3, 4, 4], [0, 0, 2, 2])
        writer.put("nodes/paper/label", np.array([-1, 0, 1, 1], np.int64))
        writer.put("nodes/paper/split-train", np.array([1, 2], np.int64))
        features = writer.part("features", "features")
        features.put("tables/paper", PAPER[RANK["paper"]])
        table = {"rows": 4, "dim": 3, "dtype": "float32", "offset": 0, "row_order": "rank"}
        features.commit({"tables": {"paper": {**table, "file": "tables/paper"}}}, _stage("reorder"))
        _put_order(writer.part("order", "order"), graph.digest)
        if cites is not None:
            writer.put("relations/paper__cites__paper/feat", cites)
            body["relations"][1]["edge_data"] = ["feat"]
        writer.commit(body, _stage("reorder", graph=graph.digest))
    return Graph.open(out)


def make_layout(out: Path, reordered: Graph, **more: object) -> None:
    """One row on gpu, one on a peer, one in cpu memory, one on SSD (two images of 512-byte pages, inside).

    `more` are further fields of the body.
    """
    rows = PAPER[RANK["paper"]]
    with ArtifactWriter(out, "layout") as writer:
        writer.adopt(reordered, "graph")
        for name, row in (("gpu", 0), ("peer-0-of-2", 1), ("cpu", 2)):
            writer.put(f"tiers/paper/{name}", rows[row : row + 1])
        writer.put("tiers/paper/peer-1-of-2", rows[:0])
        ssd = SsdRows.plan(0, 1, 12, 512)
        for image, content in enumerate((rows[3].tobytes().ljust(512, b"\0"), b"")):
            file = writer.path / f"ssd-{image}-of-2"
            file.write_bytes(content)
            sums = [xxhash.xxh3_64_intdigest(content) & 0xFFFFFFFF] if content else []
            writer.put(f"pages/ssd-{image}", np.array(sums, np.uint32))
            writer.external[f"ssd-{image}"] = External.of(Path(file.name), len(content), file_digests(file))
        types = {"num_nodes": 4, "dim": 3, "dtype": "float32", "row_bytes": 12, "ssd_rows": vars(ssd)}
        ranges = {"gpu": [0, 1], "peer": [1, 2], "cpu": [2, 3], "ssd": [3, 4]}
        body = {
            "page_bytes": 512,
            "unit_bytes": 512,
            "num_images": 2,
            "num_peers": 2,
            "node_types": {"paper": {**types, **ranges}},
        }
        writer.commit({**body, **more}, _stage("layout", graph=reordered.digest), ("units",))


def make_edge_layout(out: Path, graph: Graph, folder: Path) -> None:
    """A layout whose tiers hold features of edges, too: 2 x bfloat16 for each of the four edges of paper cites paper.

    Of papers one row on gpu and the rest in cpu memory; of edges one row in each tier, peers apart.
    """
    rows, cites = PAPER[RANK["paper"]], (np.arange(8, dtype=np.uint16) + 0x3F80).reshape(4, 2)
    reordered = make_reordered(folder, graph, cites)
    with ArtifactWriter(out, "layout") as writer:
        writer.adopt(reordered, "graph")
        writer.put("tiers/paper/gpu", rows[:1])
        writer.put("tiers/paper/cpu", rows[1:])
        writer.put("tiers/paper__cites__paper/gpu", cites[:1], "bfloat16")
        writer.put("tiers/paper__cites__paper/cpu", cites[1:2], "bfloat16")
        ssd, content = SsdRows.plan(0, 2, 4, 512), cites[2:].tobytes().ljust(512, b"\0")
        (writer.path / "ssd-0-of-1").write_bytes(content)
        writer.put("pages/ssd-0", np.array([xxhash.xxh3_64_intdigest(content) & 0xFFFFFFFF], np.uint32))
        digests = file_digests(writer.path / "ssd-0-of-1")
        writer.external["ssd-0"] = External.of(Path("ssd-0-of-1"), len(content), digests)
        none = SsdRows.plan(0, 0, 12, 512)
        paper = {"num_nodes": 4, "dim": 3, "dtype": "float32", "row_bytes": 12, "ssd_rows": vars(none)}
        edges = {"num_edges": 4, "dim": 2, "dtype": "bfloat16", "row_bytes": 4, "ssd_rows": vars(ssd)}
        paper |= {"gpu": [0, 1], "peer": [1, 1], "cpu": [1, 4], "ssd": [4, 4]}
        edges |= {"gpu": [0, 1], "peer": [1, 1], "cpu": [1, 2], "ssd": [2, 4]}
        tables = {"node_types": {"paper": paper}, "edge_tables": {"paper:cites:paper": edges}}
        body = {"page_bytes": 512, "unit_bytes": 512, "num_images": 1, "num_peers": 0, **tables}
        writer.commit(body, _stage("layout", graph=reordered.digest), ("units", "edge_tables"))


def make_split_layout(out: Path, reordered: Graph) -> None:
    """The same with 120 bytes of the gpu tier split: three lists of author writes paper, two of paper cites paper."""
    adjacency = {
        "author:writes:paper": {"columns": 3, "edges": 2, "bytes": 8 * 4 + 4 * 2 + 4 * 3, "weights": False},
        "paper:cites:paper": {"columns": 2, "edges": 3, "bytes": 8 * 3 + 4 * 3 + 4 * 2, "weights": False},
    }
    predicted = {
        "adjacency": {"reads": 4.25, "served": 2.75, "seconds": 2.125e-8, "saved": 1.375e-8},
        "features": {"reads": 2.75, "served": 2.0, "seconds": 8.25e-9, "saved": 6e-9},
    }
    split = {"mode": "auto", "budget_bytes": 120, "adjacency_bytes": 96, "feature_bytes": 12, "predicted": predicted}
    make_layout(out, reordered, adjacency=adjacency, split=split)


def make_coded_layout(out: Path, reordered: Graph) -> None:
    """Rows stored as int8, two on gpu and two on SSD: codes 0, 3, 6, 9 from 0, 1, 2 on, and a byte of padding."""
    codes = np.zeros((4, 4), np.uint8)
    codes[:, :3] = (np.array(RANK["paper"]) * 3)[:, None]
    with ArtifactWriter(out, "layout") as writer:
        writer.adopt(reordered, "graph")
        writer.put("tiers/paper/gpu", codes[:2])
        parameters = np.ones(3, np.float32).tobytes() + np.arange(3, dtype=np.int32).tobytes()
        writer.put("codecs/paper", np.frombuffer(parameters, np.uint8))
        content = codes[2:].tobytes().ljust(512, b"\0")
        (writer.path / "ssd-0-of-1").write_bytes(content)
        writer.put("pages/ssd-0", np.array([xxhash.xxh3_64_intdigest(content) & 0xFFFFFFFF], np.uint32))
        digests = file_digests(writer.path / "ssd-0-of-1")
        writer.external["ssd-0"] = External.of(Path("ssd-0-of-1"), len(content), digests)
        loss = {"largest": 0.0, "rms": 0.0, "worst_column": -1, "worst_rms": 0.0, "exact_columns": 3, "columns": 3}
        codec = {"name": "int8", "exact_columns": [], "largest": 11.0, "loss": loss}
        types = {"num_nodes": 4, "dim": 3, "dtype": "float32", "row_bytes": 4, "codec": codec}
        ranges = {"gpu": [0, 2], "peer": [2, 2], "cpu": [2, 2], "ssd": [2, 4]}
        paper = {**types, **ranges, "ssd_rows": vars(SsdRows.plan(0, 2, 4, 512))}
        body = {"page_bytes": 512, "unit_bytes": 512, "num_images": 1, "num_peers": 0, "node_types": {"paper": paper}}
        writer.commit(body, _stage("layout", graph=reordered.digest), ("units", "codec"))


def make_embeddings(out: Path, reordered: Graph) -> None:
    """Both authors, 3 x bfloat16 of float32, padded; of papers those of rank 1 and 3, 2 x float64."""
    authors = np.array([[1, -2, 0.5, 0], [3, 0, 0.25, 0]], np.float32).view(np.uint32) >> 16
    papers = np.array([[0.1, 2], [-3, 4e100]])
    parts = [part.tobytes().ljust(4096, b"\0") for part in (authors.astype(np.uint16), papers)]
    with ArtifactWriter(out, "embeddings") as writer:
        writer.put("rows", np.frombuffer(b"".join(parts), np.uint8))
        writer.put("nodes/paper", np.array([1, 3]))
        writer.put("ids/paper", np.array([1001, 7]))
        writer.adopt(reordered.order, "order")
        types = {
            "author": {"rows": 2, "dim": 3, "dtype": "float32", "codec": "bfloat16", "offset": 0},
            "paper": {"rows": 2, "dim": 2, "dtype": "float64", "codec": "", "offset": 4096},
        }
        writer.commit({"node_types": types}, _stage("inference"))


def make_examples(folder: Path) -> None:
    """Write all examples into `folder`."""
    graph = make_graph(folder / "graph")
    make_timed(folder / "graph-times")
    make_features(folder / "features")
    make_scores(folder / "scores", graph)
    make_order(folder / "order", graph)
    make_names(folder / "names")
    reordered = make_reordered(folder / "graph-reordered", graph)
    make_embeddings(folder / "embeddings", reordered)
    make_layout(folder / "layout", reordered)
    make_split_layout(folder / "layout-split", reordered)
    make_coded_layout(folder / "layout-codec", reordered)
    with tempfile.TemporaryDirectory() as scratch:
        make_edge_layout(folder / "layout-edges", graph, Path(scratch) / "reordered")


if __name__ == "__main__":
    make_examples(Path(sys.argv[1]))
