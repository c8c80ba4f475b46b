"""What is asked of machines before tasks run there, and that nobody needs Ray who does not ask for it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from fresh_process import in_fresh_process

from tiering.cluster.executors import nodes
from tiering.cluster.executors.nodes import KEEPALIVE, Answer, Question, check_answers, check_driver, probe
from tiering.cluster.session import Cluster, ClusterOptions
from tiering.cluster.store import open_store
from tiering.errors import CapabilityError, InputError
from tiering.version import __version__

QUICK = dict.fromkeys(KEEPALIVE, "10000")


def good(host: str, **other: Any) -> Answer:
    return Answer(**{"host": host, "version": __version__, "settings": QUICK, **other})


def test_machines_that_have_everything() -> None:
    check_answers([good("a"), good("b")], "/store")


@pytest.mark.parametrize("value", [None, "10001", "300000", "0", "soon"])
@pytest.mark.parametrize("name", KEEPALIVE)
def test_settings_of_machines(name: str, value: str | None) -> None:
    words = rf"Ray on b \(.*{name} is {value or 'not set'}\); export {KEEPALIVE[0]}=10000 .*before `ray start`"
    with pytest.raises(CapabilityError, match=words):
        check_answers([good("a"), good("b", settings={**QUICK, name: value})], "/store")


@pytest.mark.parametrize("name", KEEPALIVE)
def test_settings_of_the_driver(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in KEEPALIVE:
        monkeypatch.setenv(each, "9000")
    check_driver()
    monkeypatch.setenv(name, "120000")
    with pytest.raises(CapabilityError, match=f"this process: .*{name} is 120000; export"):
        check_driver()


def test_versions_of_machines() -> None:
    answers = [good("a"), good("b", version="0.0.7"), good("c", version=None, why="ModuleNotFoundError: tiering")]
    with pytest.raises(CapabilityError, match=rf"{__version__}, as here; found on b \(0\.0\.7\); c \(none: Module"):
        check_answers(answers, "/store")


def test_many_machines_are_counted() -> None:
    with pytest.raises(CapabilityError, match=r"found on m00 .*; m04 \(0\.1\); and 15 more; install"):
        check_answers([good(f"m{number:02}", version="0.1") for number in range(20)], "/store")


def question(store: Path) -> Question:
    return Question(KEEPALIVE, __version__, str(store), "check-1", b"content")


def test_a_probe_sees_and_writes_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEEPALIVE[0], "77")
    monkeypatch.delenv(KEEPALIVE[1], raising=False)
    store = open_store(str(tmp_path / "store"))
    store.claim("check-1/driver", b"content")
    answer = Answer(**probe()(question(tmp_path / "store").plain(), "node"))
    assert (answer.version, answer.store) == (__version__, "")
    assert answer.settings == {KEEPALIVE[0]: "77", KEEPALIVE[1]: None}
    assert store.read("check-1/node").tobytes() == b"content"


@pytest.mark.parametrize("case", ["not there", "another", "not writable"])
def test_a_store_that_a_machine_does_not_share(tmp_path: Path, case: str) -> None:
    store = open_store(str(tmp_path / "store"))
    if case != "not there":
        store.claim("check-1/driver", b"content" if case == "not writable" else b"another")
    asked = question(tmp_path / "store").plain()
    answer = Answer(**probe()(asked, "driver/node" if case == "not writable" else "node"))
    words = {"not there": "no such object", "another": "another object", "not writable": "driver/node"}[case]
    assert words in answer.store
    with pytest.raises(
        CapabilityError, match=rf"store /store: every machine .*this fails on {answer.host} \(.*{words}"
    ):
        check_answers([Answer(**{**vars(answer), "settings": QUICK})], "/store")


def test_a_probe_travels_by_its_code() -> None:
    """Machines without this package run it: it uses nothing of its module."""
    names = set(probe().__code__.co_names)
    assert not names & {name for name in vars(nodes) if name not in ("os", "__name__")} - {"__version__"}
    assert probe().__closure__ is None


@pytest.mark.parametrize("text", ["", "tiering", "=1", "tiering=", "tiering=0", "tiering=1.5", "CPU=1", "a=1,,b=2"])
def test_resources_that_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"resources: expected NAME=AMOUNT, .* or LABEL=TEXT.*, found"):
        ClusterOptions("ray", resources=text)


def test_resources_as_text_and_by_name() -> None:
    wanted = {"tiering": 0.5, "slots": 2.0, "pool": "graphs"}
    assert ClusterOptions("ray", resources="tiering=.5, slots=2,pool=graphs").wanted == wanted
    assert ClusterOptions("ray", resources=wanted).wanted == wanted
    assert ClusterOptions("ray").wanted == {}
    with pytest.raises(InputError, match="resources: only with executor ray; leave it out"):
        ClusterOptions(resources="tiering=1")


def test_without_ray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tiering.cluster.executors.ray import RayExecutor

    for name in KEEPALIVE:
        monkeypatch.setenv(name, "10000")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(CapabilityError, match=r"executor ray: .*pip install 'tiering\[ray\]'"):
        RayExecutor()


def test_workers_of_a_cluster_that_is_joined() -> None:
    with pytest.raises(InputError, match="workers: of an executor on this machine"):
        ClusterOptions("ray", address="auto", workers=3)


def modules_of_everything() -> list[str]:
    """What of Ray is loaded once everything is that runs without it."""
    import tiering.pipeline
    from tiering.cli.commands import commands
    from tiering.cluster.executors.ray import RayExecutor
    from tiering.cluster.session import Cluster, ClusterOptions

    commands()
    with Cluster(ClusterOptions()) as cluster:
        cluster._begun()
    assert tiering.pipeline and RayExecutor
    return [name for name in sys.modules if name.partition(".")[0] == "ray"]


def test_nothing_loads_ray_unasked() -> None:
    assert in_fresh_process(modules_of_everything) == []


def test_a_session_begins_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("tiering.cluster.session.RayExecutor", lambda *each, **more: asked.append((each, more)))
    Cluster(ClusterOptions("ray", workers=3, threads=2))._begun()
    Cluster(ClusterOptions("ray", address="auto"))._begun()
    assert asked[0] == ((None,), {"workers": 3, "threads": 2})
    assert asked[1][0] == ("auto",)
