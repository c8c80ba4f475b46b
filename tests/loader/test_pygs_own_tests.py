"""PyG's own tests of its loaders, over layouts: TIERING_PYG_TESTS names the folder `test` of a checkout of PyG."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("torch_geometric")
LOADERS = """
import tempfile
from pathlib import Path

import torch_geometric.testing as testing
from torch_geometric.data import HeteroData

import tiering

with_package = testing.withPackage  # pyg-lib and torch-sparse are not needed
testing.withPackage = lambda *names: with_package(*{*names} - {"pyg_lib", "torch_sparse"})
testing.onlyNeighborSampler = lambda function: function


def loader(method, name, *split):
    def make(data, num_neighbors, batch_size=1, shuffle=False, **options):
        folder = Path(tempfile.mkdtemp(dir="."))
        graph = tiering.import_graph(data, folder / "graph", edge_ids=True, time=options.get("time_attr"))
        tiering.score_graph(graph, folder / "scores", "degree")
        ordered = tiering.reorder_graph(graph, folder / "scores", folder / "reordered")
        layout = tiering.open(tiering.write_layout(ordered, folder / "layout").path)
        options |= {"batch_size": batch_size, "shuffle": shuffle, "hetero": isinstance(data, HeteroData)}
        made = getattr(layout, method)(*split, num_neighbors, **options)
        made.__class__ = type(name, (type(made),), {"__repr__": lambda self: f"{name}()"})
        return made

    return make


NeighborLoader = loader("pyg_loader", "NeighborLoader", None)
LinkNeighborLoader = loader("pyg_link_loader", "LinkNeighborLoader")
"""
REASONS = {
    "stores as the source of a graph": r"expected a path, a graph of PyG .*found builtins\.tuple",
    "PyG's own text of an error": r"Expected regex: \"'edge_label_time' is not set\"",
    "operators of pyg-lib": r"'_OpNamespace' 'pyg' object has no attribute",
    "no edge_index": r"expected edge_index, found num_nodes",
    "no hops": r"expected one entry per hop .*found \[\]",
}
"""Why a test of PyG's may fail, as docs/pyg.md says, and the messages."""


def test_pygs_own_tests_pass_or_fail_for_reasons_that_the_page_gives(tmp_path):
    if not (folder := os.environ.get("TIERING_PYG_TESTS")):
        pytest.skip("TIERING_PYG_TESTS: the folder `test` of a checkout of PyG")
    (tmp_path / "loaders.py").write_text(LOADERS)
    (tmp_path / "conftest.py").write_text("import loaders\n" + Path(folder, "conftest.py").read_text())
    for name in ("test_neighbor_loader.py", "test_link_neighbor_loader.py"):
        text = Path(folder, "loader", name).read_text()
        text, changed = re.subn(r"from torch_geometric\.loader import (\w+)\n", r"from loaders import \1\n", text)
        assert changed == 1
        flags = "".join(f"{flag} = True\n" for flag in sorted({*re.findall(r"\bWITH_\w+", text)}))
        (tmp_path / name).write_text(text.replace("\n\n\ndef ", f"\n{flags}\n\ndef ", 1))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=found.xml", "."]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, check=False)
    cases = ElementTree.parse(tmp_path / "found.xml").getroot().findall(".//testcase")
    failures = {case.get("name"): failure.get("message", "") for case in cases for failure in case.findall("failure")}
    unknown = {
        name: message for name, message in failures.items()
        if not any(re.search(reason, message, re.DOTALL) for reason in REASONS.values())
    }  # fmt: skip
    assert not unknown and len(cases) - len(failures) >= 40
