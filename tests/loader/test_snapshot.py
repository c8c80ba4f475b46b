"""An open layout is a snapshot: whatever replaces it, its readers see the version that they opened, to the end."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from toy_datasets import toy_dataset

import tiering
from tiering import pipeline
from tiering.graph.build import build_graph

ENGINES = ("io_uring", "threads")


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same graph in two orders."""
    folder = tmp_path_factory.mktemp("versions")
    toy = toy_dataset(folder / "data", 9, min_nodes=300, max_nodes=500, max_edges=3000, featureless=0)
    graph = build_graph(toy.dataset, folder / "graph")
    for method in ("wrpr", "degree"):
        pipeline.score_graph(graph, folder / method, method)
        pipeline.reorder_graph(graph, folder / method, folder / f"by-{method}")
    return [folder / "by-wrpr", folder / "by-degree"]


@pytest.fixture
def write(versions: list[Path], tmp_path: Path) -> Callable[[int], None]:
    """Replaces the layout by version 0 or 1."""

    def replace(version: int) -> None:
        pipeline.layout(
            versions[version], tmp_path / "layout", gpu="10%", peer="2x10%", cpu="20%", page=512,
            ssd=[tmp_path / "ssd-0", tmp_path / "ssd-1"], force=True,
        )  # fmt: skip

    return replace


def content(layout: tiering.loader.layout.TieredLayout, engine: str) -> dict[str, bytes]:
    """All that a reader may ask for, each part opened when it is asked for."""
    found = {}
    for node_type in layout.node_types:
        found[f"{node_type} new_to_old"] = layout.new_to_old(node_type).tobytes()
        if node_type in layout.feature_types:
            table = layout.features(node_type, engine=engine, depth=4)
            found[f"{node_type} rows"] = table.gather_numpy(np.arange(table.shape[0])).tobytes()
        labels = layout.labels(node_type)
        found[f"{node_type} labels"] = b"" if labels is None else labels.tobytes()
    for relation in layout.relations:
        indptr, indices = layout.csc(relation)
        found[str(relation)] = indptr.tobytes() + indices.tobytes()
    return found


@pytest.fixture
def expected(write: Callable[[int], None], tmp_path: Path) -> list[dict[str, bytes]]:
    """What is in each version."""
    found = []
    for version in (0, 1):
        write(version)
        with tiering.open(tmp_path / "layout") as layout:
            found.append(content(layout, "threads"))
    assert found[0] != found[1]
    return found


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("how", ["replaced", "removed"])
def test_a_reader_keeps_what_it_opened(
    write: Callable[[int], None], expected: list[dict[str, bytes]], tmp_path: Path, engine: str, how: str
) -> None:
    write(0)
    with tiering.open(tmp_path / "layout") as layout:
        if how == "removed":
            shutil.rmtree(tmp_path)
        else:
            write(1)
        assert content(layout, engine) == expected[0]
        assert layout.artifact.problems("full") == []
    if how == "replaced":
        with tiering.open(tmp_path / "layout") as layout:
            assert content(layout, engine) == expected[1]


def test_an_artifact_of_more_files_than_descriptors_at_first(tmp_path: Path) -> None:
    """The soft limit of descriptors is raised when it is met."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 400:
        pytest.skip("the hard limit of descriptors is low")
    toy = toy_dataset(tmp_path / "data", 1, featureless=0)
    build_graph(toy.dataset, tmp_path / "graph")
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    try:
        kept = [tiering.open(tmp_path / "graph") for _ in range(30)]
        assert all(graph.num_nodes() == kept[0].num_nodes() for graph in kept)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
