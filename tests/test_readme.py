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
def test_commands_and_code_run(workplace, tiering_cli):
    ran = 0
    for program, *arguments in commands():
        if program == "tiering":
            tiering_cli(*arguments).ok()
            ran += 1
        else:
            assert program == "make", f"the README runs {program}, which this test does not know"
    assert ran >= 8
    pytest.importorskip("torch_geometric")
    (code,) = blocks("python")
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)  # noqa: S102 - our own README
    assert names["layout"].path.name == "layout"
    assert names["x"].shape[1] == 128 and names["edges"].shape[0] == 2


def test_the_readme_is_one_screen():
    assert len(README.read_text().split()) <= 700


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("getting-started.md", r"loss.*Rows by tier|Rows by tier.*loss"),
        ("cluster.md", ""),
        ("chain.md", ""),
        ("batch-jobs.md", ""),
        ("several-machines.md", ""),
        ("plan.md", r"\d+ nvme-gen3 [\d.]+ [\d.]+ [\d.]+\n"),
        ("quantised-rows.md", r"torch.bfloat16\ntorch.float16\ntorch.Size\(\[3, 128\]\)\n<int8 rows of 128 numbers"),
        ("dgl.md", r"loss \d\.\d\d; "),  # on a layout as the page on PyG makes it
        ("inference.md", r"layer 0 +in memory(.|\n)*layer 1 +in memory"),  # the same
        ("memory-and-disks.md", ""),
        ("adjacency-cache.md", ""),
    ],
)
def test_a_page_runs(workplace, tiering_cli, capfd, page, words):
    """Its commands with the files that it shows, then its code."""
    docs = README.parent / "docs"
    for language, name in (("toml", "chain.toml"), ("json", "costs.json")):
        for text in blocks(language, docs / page):
            Path(name).write_text(text)
    if page in ("dgl.md", "inference.md"):
        pytest.importorskip("dgl" if page == "dgl.md" else "torch_geometric")
    printed = []
    for _, *arguments in commands(docs / ("pyg.md" if page in ("dgl.md", "inference.md") else page)):
        printed += [line.split() for line in tiering_cli(*arguments).ok().out.splitlines()]
    if page == "adjacency-cache.md":  # whose figures are the same anywhere
        assert all(line.split() in printed for table in blocks("text", docs / page) for line in table.splitlines())
    names: dict[str, object] = {}
    for code in blocks("python", docs / page):
        exec(compile(code, page, "exec"), names)  # noqa: S102 - our own page
    assert re.search(words, capfd.readouterr().out, re.DOTALL)


@pytest.mark.slow
def test_the_page_of_exports_runs(workplace, tiering_cli):
    """Its commands; tests/exports runs its code on other exports."""
    page = README.parent / "docs" / "exports.md"
    for _, *arguments in commands(page):
        tiering_cli(*arguments).ok()
    reading, decoding, csc, *_ = blocks("python", page)
    names: dict[str, object] = {}
    exec(compile(reading + decoding + csc, str(page), "exec"), names)  # noqa: S102 - our own page
    assert next(iter(names["indptr"].values()))[-1] == 20000


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_the_page_on_pyg_runs(workplace, tiering_cli, capfd):
    """Its code in order, and the script that its diff ends with; of the script before, that it is one."""
    pytest.importorskip("torch_geometric")
    page = README.parent / "docs" / "pyg.md"
    for _, *arguments in commands(page):
        tiering_cli(*arguments).ok()
    names: dict[str, object] = {}
    for code in blocks("python", page):
        exec(compile(code, str(page), "exec"), names)  # noqa: S102 - our own page
    (diff,) = blocks("diff", page)
    before, after = ("".join(line[1:] or "\n" for line in diff.splitlines(True) if line[0] != sign) for sign in "+-")
    compile(before, "before", "exec")
    exec(compile(after, "after", "exec"), {})  # noqa: S102
    assert re.search(r"epoch 2: [01]\.\d{3}", capfd.readouterr().out)
    names["layout"].close()


@pytest.mark.slow
def test_the_page_on_datasets_runs(workplace, tiering_cli):
    for _, *arguments in commands(README.parent / "docs" / "datasets.md"):
        done = tiering_cli(*arguments)
        if arguments[:2] == ["import", "igbh"] and "--dry-run" not in arguments:
            done.refused("igbh: no such file or directory")  # no download here
        else:
            done.ok()


def test_make_targets_exist():
    makefile = (README.parent / "Makefile").read_text()
    targets = {arguments[0] for program, *arguments in commands() if program == "make"}
    assert targets == {"demo", "test"}
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


PAGES = sorted(
    str(page.relative_to(README.parent))
    for pattern in ("*.md", "docs/*.md", "docs/internals/*.md", "docs/api/*.md", "data_specs/*.md")
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


def test_layers_are_those_of_the_import_contract():
    contract = re.search(r"^layers = \[\n(.*?)^\]", (README.parent / "pyproject.toml").read_text(), re.M | re.S)
    chain = re.search(r"^    cli -> .*?(?=\n\n)", (README.parent / "CONTRIBUTING.md").read_text(), re.M | re.S)
    assert contract is not None
    assert chain is not None
    layers = [sorted(re.findall(r"[a-z_]+", line.replace("tiering.", ""))) for line in contract[1].splitlines()]
    assert [sorted(re.findall(r"[a-z_]+", level)) for level in chain[0].split("->")] == layers
