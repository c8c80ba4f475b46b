"""Options of a cluster, and that nobody needs Ray who does not ask for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tiering.errors import CapabilityError, InputError
from tiering.run.job import Carrier, ClusterOptions


@pytest.mark.parametrize("text", ["", "tiering", "=1", "tiering=", "tiering=0", "tiering=1.5", "CPU=1", "a=1,,b=2"])
def test_resources_that_are_refused(text):
    with pytest.raises(InputError, match=r"resources: expected NAME=AMOUNT, .* or LABEL=TEXT.*, found"):
        ClusterOptions("ray", resources=text)


def test_resources_as_text_and_by_name():
    wanted = {"tiering": 0.5, "slots": 2.0, "pool": "graphs"}
    assert ClusterOptions("ray", resources="tiering=.5, slots=2,pool=graphs").wanted == wanted
    assert ClusterOptions("ray", resources=wanted).wanted == wanted
    assert ClusterOptions("ray").wanted == {}
    with pytest.raises(InputError, match="resources: needs executor ray; add it"):
        ClusterOptions(resources="tiering=1")


def test_without_ray(monkeypatch, tmp_path):
    from tiering.run.ray import RayExecutor

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(CapabilityError, match=r"executor ray: .*pip install 'tiering\[ray\]'"):
        RayExecutor()


def test_workers_of_a_cluster_that_is_joined():
    with pytest.raises(InputError, match="workers: does not apply to a cluster that is joined"):
        ClusterOptions("ray", address="auto", workers=3)


def test_nothing_loads_ray_unasked():
    script = """
import subprocess
import sys
import tiering.pipeline
import tiering.run.ray
import tiering.cli.stages
from tiering.run.job import Carrier, ClusterOptions

with Carrier(ClusterOptions()) as cluster:
    cluster._started()
assert "ray" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_session_begins_what_is_asked_for(monkeypatch):
    asked = []
    monkeypatch.setattr("tiering.run.ray.RayExecutor", lambda *each, **more: asked.append((each, more)))
    Carrier(ClusterOptions("ray", workers=3, threads=2))._started()
    Carrier(ClusterOptions("ray", address="auto"))._started()
    assert asked[0] == ((None,), {"workers": 3, "threads": 2, "resources": {}})
    assert asked[1][0] == ("auto",)


@pytest.mark.parametrize(
    ("options", "uncut"),
    [({}, True), ({"shards": 2}, False), ({"task_memory": "1GiB"}, False), ({"executor": "ray"}, False)],
)
def test_this_machine_alone_cuts_nothing_unasked(options, uncut):
    assert ClusterOptions(**options).cuts != uncut


@pytest.mark.parametrize("workers", ["many", "0", "8x64GiB"])
def test_workers_that_are_refused(tiering_cli, tmp_path, workers):
    asked = ["import", "data", "--out", tmp_path / "graph", "--executor", "local", "--workers", workers]
    assert tiering_cli(*asked).code != 0


def test_a_dry_run_says_what_is_cut(tiering_cli, tiny_dataset, tmp_path):
    """Each step that is cut has its number of tasks; the others are as without tasks."""
    chain = f'[dataset]\npath = "{tiny_dataset}"\n[score]\nmethod = "rpr"\n[layout]\ncpu = "20%"\nssd = ["ssd"]\n'
    (tmp_path / "chain.toml").write_text(chain)
    asked = ["run", tmp_path / "chain.toml", "--dry-run", "--json", "--executor", "local"]
    stages = tiering_cli(*asked, "--shards", "3").ok().json["stages"]
    found = {one["stage"]: [step["name"] for step in one["steps"] if "3 tasks" in step["how"]] for one in stages}
    lists = "node:to:node"
    assert found == {"import": [lists], "score": ["rpr"], "reorder": ["order of node", lists], "layout": ["rows"]}
    assert "tasks" not in tiering_cli(*asked).ok().out
