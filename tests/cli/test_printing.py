"""Names that come from files cannot forge lines or steer the terminal: what no eye can see is spelled out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sealed import edit_manifest

from tiering.text.progress import printable

EVIL = "x\ny: sound (manifest)\x1b[2J\x9b1m\u202e\u2028\ud800\r"
SPELLED = r"x\ny: sound (manifest)\x1b[2J\x9b1m\u202e\u2028\ud800\r"


def test_printable() -> None:
    assert printable(EVIL) == SPELLED
    assert printable("Übung, 数据, ± 5 % ─") == "Übung, 数据, ± 5 % ─"


@pytest.fixture
def scores(chain) -> Path:
    """Scores whose manifest holds evil names."""
    return chain / "degree"


def sober(text: str) -> None:
    assert not [c for c in text if not c.isprintable() and c != "\n"]
    assert not any(line.startswith("y: sound") for line in text.splitlines())


def test_check(tiering_cli, scores: Path) -> None:
    entry = {"dtype": "int8", "shape": [1], "bytes": 1, "checksum": "xxh3-64-b64m:" + "0" * 16}
    edit_manifest(scores, lambda document: document["files"].update({EVIL: entry}))
    result = tiering_cli("check", scores)
    sober(result.out + result.err)
    assert result.code == 1 and SPELLED in result.out and len(result.out.splitlines()) == 2
    sober(tiering_cli("info", scores).refused(r"\x1b[2J"))
    document = tiering_cli("check", scores, "--json")
    sober(document.out)
    assert EVIL in json.loads(document.out)["problems"][0]["where"]


def test_info_and_evaluate(tiering_cli, scores: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        document["provenance"].update(stage=EVIL, package=EVIL)
        document["body"].update(method=EVIL)

    edit_manifest(scores, change)
    for command in ("info", "info --json"):
        result = tiering_cli(*command.split(), scores).ok()
        sober(result.out)
        assert r"\x1b[2J" in result.out or r"\u001b[2J" in result.out
    result = tiering_cli(
        "evaluate", scores.parent / "graph", "--scores", scores, "--fanouts", "2", "--epochs", "1"
    ).ok()
    sober(result.out + result.err)
    assert r"\x1b[2J" in result.out


def test_errors_and_notes(tiering_cli, tmp_path) -> None:
    evil = tmp_path / "a\x1b[2J\nb"
    evil.mkdir()
    for arguments in (["info", evil], ["--debug", "info", evil], ["info", "--\x1b[2J"]):
        result = tiering_cli(*arguments)
        sober(result.err)
        assert r"\x1b[2J" in result.err
