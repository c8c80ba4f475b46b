"""The recipes of docs/cluster-recipes.md: their options exist, their settings are those that tasks ask for."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tiering
from tiering.run.ray import KEEPALIVE

PAGE = Path(__file__).parents[2] / "docs" / "cluster-recipes.md"
FILES = dict(re.findall(r'```(?:yaml|bash) title="([\w.-]+)"\n(.*?)```', PAGE.read_text(), re.DOTALL))
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


@pytest.mark.parametrize("name", FILES)
def test_settings(name):
    text = FILES[name]
    assert all(re.search(rf"{setting}\W+(value: )?\"?{value}\b", text) for setting, value in KEEPALIVE.items())


def test_options_exist(tiering_cli):
    known = tiering_cli("run", "--help").ok().out
    commands = re.findall(r"tiering run (.*?)(?:['\n]|$)", PAGE.read_text())
    asked = {option for command in commands for option in re.findall(r"--[\w-]+", command)}
    assert asked == {"--executor", "--address", "--store"}
    assert all(option in known for option in asked)


def test_the_script_is_one(tmp_path):
    (tmp_path / "script").write_text(FILES["tiering.sbatch"])
    subprocess.run(["bash", "-n", str(tmp_path / "script")], check=True)


def test_the_job_of_kubernetes():
    job = pytest.importorskip("yaml").safe_load(FILES["rayjob.yaml"])
    cluster = job["spec"]["rayClusterSpec"]
    pods = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for pod in pods:
        (container,) = pod["template"]["spec"]["containers"]
        assert {one["name"]: one["value"] for one in container["env"]} == KEEPALIVE
        (mount,) = container["volumeMounts"]
        assert mount["mountPath"] == "/shared"
        assert [volume["name"] for volume in pod["template"]["spec"]["volumes"]] == [mount["name"]]


@needs_ray
@pytest.mark.slow
def test_machines_that_ray_starts():
    config = pytest.importorskip("yaml").safe_load(FILES["ray-up.yaml"])
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(config))
    with pytest.raises(Exception, match="cluster_nam"):
        validate_config(prepare_config({**config, "cluster_nam": "x"}))


@needs_ray
@pytest.mark.long
def test_symmetric_run(tiny_dataset, tmp_path):
    """The command of the script, on this machine alone: the artifact is that of one process."""
    expected = tiering.import_graph(tiny_dataset, tmp_path / "alone")
    chain = '[dataset]\npath = "{}"\n[score]\nmethod = "degree"\n[layout]\ncpu = "20%"\nssd = ["ssd"]\n'
    (tmp_path / "chain.toml").write_text(chain.format(tiny_dataset))
    script = FILES["tiering.sbatch"].replace("/shared/", f"{tmp_path}/").replace("--store", "--shards 3 --store")
    script = script.replace("srun ", "").replace('"$head:6379"', "127.0.0.1:6379").replace("ray symm", "$RAY symm")
    (tmp_path / "script").write_text(re.sub(r"^head=.*\n", "", script, flags=re.MULTILINE))
    ray = f"{sys.executable} -c 'from ray.scripts.scripts import main; main()'"
    (tmp_path / "ray").write_text(f'#!/bin/sh\nexec {ray} "$@"\n')
    (tmp_path / "ray").chmod(0o755)
    folder = Path("/tmp") / f"ray-{os.getpid()}"  # a short name, for sockets
    here = {"RAY": str(tmp_path / "ray"), "SLURM_NNODES": "1", "RAY_TMPDIR": str(folder)}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", str(tmp_path / "script")],
        env={**os.environ, **here, "PATH": path},
        capture_output=True,
        text=True,
        timeout=240,
    )
    shutil.rmtree(folder, ignore_errors=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert tiering.open(tmp_path / "graph").digest == expected.digest
