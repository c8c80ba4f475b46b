"""Graphs that several files evaluate."""

import pytest
from judged_graphs import import_graph

from tiering import generate_dataset


@pytest.fixture(scope="session")
def generated(tmp_path_factory):
    """Return a heterogeneous graph of 3000 nodes."""
    folder = tmp_path_factory.mktemp("generated")
    generate_dataset(folder / "data", nodes=3000, edges=30_000, dim=4, classes=3, seed=1, hetero=True)
    return import_graph(folder / "data", folder / "graph")


@pytest.fixture(scope="session")
def cnr_graph(shared_data, tmp_path_factory):
    """Return cnr-2000."""
    return import_graph(shared_data / "cnr-2000", tmp_path_factory.mktemp("cnr") / "graph")
