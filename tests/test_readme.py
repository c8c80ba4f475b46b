"""Every command and code block of the README runs, in order, in one directory."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str, page: Path = README) -> list[str]:
    return [body for found, body in BLOCK.findall(page.read_text()) if found == language]


def commands(page: Path = README) -> list[list[str]]:
    lines = [line for body in blocks("bash", page) for line in body.splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_commands_and_code_run(workplace, tiering_cli, capfd):
    (configuration,) = blocks("toml")
    Path("chain.toml").write_text(configuration)
    ran = 0
    for program, *arguments in commands():
        if program == "tiering":
            tiering_cli(*arguments).ok()
            ran += 1
        else:
            assert program == "make", f"the README runs {program}, which this test does not know"
    assert ran >= 8
    assert sorted(path.name for path in Path("out").iterdir()) == ["graph", "layout", "reordered", "scores"]

    code, api = blocks("python")
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)  # noqa: S102 - our own README
    exec(compile(api, "README.md", "exec"), names)  # noqa: S102
    assert names["layout"].path.name == "layout"
    assert tuple(names["x"].shape) == (3, 128)
    assert names["h"].shape[1] == 128
    assert "ssd" in capfd.readouterr().out


@pytest.mark.slow
def test_getting_started_runs(workplace, tiering_cli, capfd):
    page = README.parent / "docs" / "getting-started.md"
    for _, *arguments in commands(page):
        tiering_cli(*arguments).ok()
    for code in blocks("python", page):
        exec(compile(code, str(page), "exec"), {})  # noqa: S102 - our own page
    printed = capfd.readouterr().out
    assert "loss" in printed and "What lies where" in printed


def test_make_targets_exist():
    makefile = (README.parent / "Makefile").read_text()
    targets = {arguments[0] for program, *arguments in commands() if program == "make"}
    assert targets == {"demo", "test"}
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


PAGES = sorted(
    str(page.relative_to(README.parent))
    for pattern in ("*.md", "docs/*.md", "docs/internals/*.md", "data_specs/*.md")
    for page in README.parent.glob(pattern)
)


@pytest.mark.parametrize("document", PAGES)
def test_links_and_paths_exist(document):
    page = README.parent / document
    text = page.read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text) if "://" not in link]
    paths = re.findall(r"`((?:tiering|ext|cli|tests|data_specs|docs|examples|notebooks)/[\w./-]*)`", text)
    missing = [name for name in links if not (page.parent / name).exists()]
    missing += [name for name in paths if not (README.parent / name).exists()]
    assert not missing


@pytest.mark.parametrize("document", ["CONTRIBUTING.md", "AGENTS.md"])
def test_layers_are_those_of_the_import_contract(document):
    contract = re.search(r"^layers = \[\n(.*?)^\]", (README.parent / "pyproject.toml").read_text(), re.M | re.S)
    chain = re.search(r"^    cli -> .*?(?=\n\n)", (README.parent / document).read_text(), re.M | re.S)
    assert contract is not None
    assert chain is not None
    layers = [sorted(re.findall(r"[a-z_]+", line.replace("tiering.", ""))) for line in contract[1].splitlines()]
    assert [sorted(re.findall(r"[a-z_]+", level)) for level in chain[0].split("->")] == layers
