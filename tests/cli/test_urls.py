"""URLs where paths are expected: one error, which names the option, before anything is created."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiering
from tiering.errors import InputError
from tiering.layout.options import LayoutOptions
from tiering.text.arguments import require_local


@pytest.fixture
def made(chain: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(chain)
    return chain


@pytest.mark.parametrize(("command", "option"), [
    ("import data --out s3://bucket/x", "--out"), ("import data --out x --cache s3://bucket/x", "--cache"),
    ("generate s3://bucket/x --nodes 10 --edges 10", "out"), ("score s3://bucket/g --out x", "graph"),
    ("score graph --out file:///tmp/x", "--out"),
    ("score graph --out x --train hdfs://host/ids.npy", "--train"),
    ("score graph --out x --train node=hdfs://host/ids.npy", "--train"),
    ("score graph --out x --from s3://bucket/x.npy", "--from"),
    ("score graph --out x --executor local --store s3://bucket/x", "--store"),
    ("reorder graph --scores s3://bucket/s --out x", "--scores"),
    ("layout reordered --cpu 10% --ssd ssd --ssd s3://bucket/x --out x", "--ssd"),
    ("export layout --out s3://bucket/x --dry-run", "--out"), ("evaluate graph --plot s3://bucket/x.png", "--plot"),
    ("plan graph --scores s3://bucket/x", "--scores"), ("trace s3://bucket/x", "layout"),
    ("run s3://bucket/x.toml", "config"),
    ("report s3://bucket/x --out x.html", "sources"), ("report graph --out s3://bucket/x.html", "--out"),
    ("doctor --ssd s3://bucket/x", "--ssd"),
])  # fmt: skip
def test_the_command_line(tiering_cli: Callable[..., Any], made: Path, command: str, option: str) -> None:
    before = sorted(made.rglob("*"))
    message = tiering_cli(*command.split()).refused("found scheme", "only local paths are supported")
    assert f"{option}: expected a local path" in message
    assert sorted(made.rglob("*")) == before


@pytest.mark.parametrize(("section", "line"), [
    ("dataset", 'path = "data"\ncache = "s3://bucket/x"'),
    ("score", 'from = "s3://bucket/x.npy"'), ("score", 'train = "s3://bucket/x.npy"'),
    ("reorder", 'first = "s3://bucket/x.npy"'), ("layout", 'ssd = ["s3://bucket/x"]'),
    ("output", 'dir = "s3://bucket/x"'),
])  # fmt: skip
def test_a_configuration(tiering_cli: Callable[..., Any], made: Path, section: str, line: str) -> None:
    Path("chain.toml").write_text(f"[{section}]\n{line}\n" + '[dataset]\npath = "data"\n' * (section != "dataset"))
    before = sorted(made.rglob("*"))
    key = line.split("\n")[-1].partition(" ")[0]
    tiering_cli("run", "chain.toml").refused(f"chain.toml: [{section}] {key}: expected a local path, found scheme 's3'")
    assert sorted(made.rglob("*")) == before


@pytest.mark.parametrize("kind", [str, Path], ids=["text", "pathlib"])
def test_python(made: Path, kind: Callable[[str], Any]) -> None:
    url, before = kind("s3://user:secret@bucket/x"), sorted(made.rglob("*"))
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("out", lambda: tiering.import_graph("data", url)),
        ("work_dir", lambda: tiering.import_graph("data", "x", work_dir=url)),
        ("scores", lambda: tiering.score_graph("graph", "x", scores={"node": url})),
        ("graph", lambda: tiering.score_graph(url, "x")),
        ("ssd", lambda: tiering.write_layout("reordered", "x", ssd=[url])),
        ("ssd", lambda: LayoutOptions(ssd=url)),
        ("store", lambda: tiering.ClusterOptions(store=url)),
        ("out", lambda: tiering.open("layout").inference(lambda *_: None, url)),
        ("out", lambda: tiering.generate_dataset(url, nodes=10, edges=10)),
        ("path", lambda: tiering.open(url)),
    ]
    for name, call in calls:
        with pytest.raises(InputError, match=rf"^{name}: expected .*, found scheme 's3'; only local paths") as caught:
            call()
        assert "secret" not in str(caught.value), name
    assert sorted(made.rglob("*")) == before


def test_an_input_that_may_be_remote(made: Path) -> None:
    with pytest.raises(InputError, match=r"^source: expected a local path, found scheme 's3'"):
        tiering.import_graph(Path("s3://bucket/x"), "x")  # whose slashes are gone
    with pytest.raises(InputError, match=r"^s3://: the address has credentials") as caught:
        tiering.import_graph("s3://user:secret@bucket/x", "x")
    assert "secret" not in str(caught.value)
    assert not Path("x").exists()


def test_what_is_no_url() -> None:
    paths = ["a:b", "u:a:i=x/y", "a/b://c", "-", "node=1%", Path("a:b/c"), Path("/s3:/x"), np.zeros(2), None, 7]
    require_local(values=paths, address="ray://host:10001", mapping={"a": "b"})
