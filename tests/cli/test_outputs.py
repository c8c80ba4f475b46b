"""Where commands may write: never onto, into or above what they read, and never over a user's files."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import tiering
from tiering.artifacts.journal import JOURNAL
from tiering.errors import ExistsError, InputError, StorageError


@pytest.fixture
def chain(chain, monkeypatch):
    """The working directory, with a directory of a user's."""
    monkeypatch.chdir(chain)
    (chain / "home").mkdir()
    (chain / "home/thesis.txt").write_text("years of work")
    return chain


def content(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


TASKS = "--executor local --shards 2 --store"


@pytest.mark.parametrize(("command", "words"), [
    ("import data --out data --force", "data, which the command reads"),
    ("import data --out data/graph", "data, which the command reads"),
    ("import data --out . --force", "working directory"), ("import data --out .. --force", "working directory"),
    (f"import data --out x {TASKS} x", "writes to"),
    (f"import data --out x {TASKS} data/tasks", "lies in data"),
    ("score graph --out graph --force", "graph, which the command reads"),
    ("score graph --out graph/scores", "graph, which the command reads"),
    ("score graph --out graph/scores --dry-run", "graph, which the command reads"),
    ("score layout/graph --out layout --force", "layout/graph, which the command reads"),
    ("score graph --out layout/graph --force", "layout, which would change"),
    ("export graph --out layout/graph/x", "layout/graph, which would change"),
    ("generate scores/x --nodes 100 --edges 100", "scores, which would change"),
    (f"score graph --out x {TASKS} x/tasks", "writes to"), (f"score graph --out tasks/x {TASKS} tasks", "writes to"),
    ("reorder graph --scores scores --out scores --force", "scores, which the command reads"),
    (
        "reorder graph --scores scores --first exported/nodes/node/train_idx.npy --out exported --force",
        "train_idx.npy, which the command reads",
    ),
    ("score graph --train node=graph/nodes/node/split-val --out graph/x", "graph, which the command reads"),
    ("reorder graph --scores scores --out graph --force", "graph, which the command reads"),
    ("export layout --out layout --force", "layout, which the command reads"),
    ("export layout --out layout/raw --dry-run", "layout, which the command reads"),
    ("layout reordered --cpu 10% --ssd x --out x", "directory of the layout's own files"),
    ("layout reordered --cpu 10% --ssd x/graph/ssd --out x --dry-run", "directory of the layout's own files"),
    ("layout reordered --cpu 10% --ssd .x.partial --out x", "writes to"),
    ("layout reordered --cpu 10% --ssd ssd --out ssd/x", "writes to"),
    ("layout reordered --cpu 10% --ssd reordered/ssd --out x", "lies in"),
    ("layout reordered --cpu 10% --ssd scores/ssd --out x", "scores, which would change"),
    ("evaluate graph --fanouts 5 --plot graph/curves.png", "graph, which the command reads"),
    ("score graph --out home --force", "home/thesis.txt, which tiering did not write"),
    ("score graph --out home/thesis.txt --force", "found a file"),
    ("export layout --out home --force", "home/thesis.txt, which tiering did not write"),
    ("generate home --nodes 100 --edges 100 --force", "home/thesis.txt, which tiering did not write"),
    ("generate . --nodes 100 --edges 100 --force", "working directory"),
])  # fmt: skip
def test_what_would_destroy_files_is_refused(tiering_cli, chain, command, words):
    before = content(chain)
    tiering_cli(*command.split()).refused(words, "choose another")
    assert content(chain) == before


@pytest.fixture
def made(tiering_cli, tmp_path, monkeypatch):
    """The working directory, with a generated dataset, to which a graph and all that is made of it refer."""
    monkeypatch.chdir(tmp_path)
    for command in (
        "generate d --nodes 100 --edges 300",
        "import d --out g",
        "score g --out s",
        "reorder g --scores s --out r",
        "layout r --cpu 50% --ssd ssd --out l",
    ):
        tiering_cli(*command.split()).ok()
    (tmp_path / "to-d").symlink_to("d")
    return tmp_path


@pytest.mark.parametrize(("command", "words"), [
    ("layout r --cpu 100% --out d --force", "node_feat.npy, which the input r refers to"),
    ("layout r --cpu 100% --out d --force --dry-run", "node_feat.npy, which the input r refers to"),
    ("layout r --cpu 50% --ssd d/x --out x", "d, which the input r refers to"),
    ("layout r --cpu 50% --ssd to-d/x --out x", "d, which the input r refers to"),
    ("layout l/graph --cpu 100% --out d --force", "node_feat.npy, which the input l/graph refers to"),
    ("score g --out d --force", "node_feat.npy, which the input g refers to"),
    ("score g --out to-d --force", "node_feat.npy, which the input g refers to"),
    ("score g --out d/processed --force", "node_feat.npy, which the input g refers to"),
    ("score g --out d/x", "d, which the input g refers to"),
    ("score g --out to-d/processed/x", "d, which the input g refers to"),
    (f"score g --out x {TASKS} d/tasks", "d, which the input g refers to"),
    ("reorder g --scores s --out d --force", "node_feat.npy, which the input g refers to"),
    ("export l --out ssd --force", "ssd-0-of-1, which the input l refers to"),
])  # fmt: skip
def test_what_an_input_refers_to_is_not_replaced(tiering_cli, made, command, words):
    before = content(made)
    tiering_cli(*command.split()).refused(words, "choose another")
    assert content(made) == before


def test_what_links_in_a_dataset_lead_to_is_not_replaced(tiering_cli, made):
    (made / "linked").symlink_to("d/processed/paper/node_feat.npy")
    (made / "data").mkdir()
    (made / "data/node_feat.npy").symlink_to("../linked")
    (made / "data/edge_index.npy").symlink_to("../d/processed/paper__cites__paper/edge_index.npy")
    before = content(made)
    tiering_cli("import", "data", "--out", "d", "--force").refused("npy, which the command reads", "choose another")
    assert content(made) == before


def test_python_refuses_what_its_inputs_refer_to(made):
    """Also where the writer alone is asked, past the checks of the command."""
    from tiering.formats.graph import Graph
    from tiering.scores.plan import score_graph

    with pytest.raises(InputError, match=r"node_feat\.npy, which the command reads"):
        score_graph(Graph.open("g"), "degree", "d", force=True)
    tiering.check("g")


@pytest.mark.parametrize(
    ("output", "ssd", "refusal"),
    [
        (".", "layout", "is a directory of the layout's own files"),
        (".", "layout/tiers", "is a directory of the layout's own files"),
        (".", "graph", "writes to"),
        (".", "scores/stripes", "writes to"),
        ("out", "out/.layout.partial", "writes to"),
        ("../data/out", "", "which the command reads"),
    ],
)
def test_a_chain_is_refused_before_its_first_stage(tiering_cli, chain, output, ssd, refusal):
    folder = chain / "chain"
    folder.mkdir()
    sections = '[dataset]\npath = "../data"\n[layout]\ncpu = "auto"\n'
    (folder / "chain.toml").write_text(f'{sections}ssd = [{ssd and repr(ssd)}]\n[output]\ndir = "{output}"\n')
    before = content(chain)
    for more in ((), ("--dry-run",), ("--force",)):
        tiering_cli("run", folder / "chain.toml", *more).refused("chain", refusal)
    assert content(chain) == before


@pytest.fixture(params=["data"])
def bound(chain: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A second name of the directory ``data``, or of another one, by a bind mount."""
    folder = chain / "a mount"
    folder.mkdir()
    if subprocess.run(["mount", "--bind", chain / request.param, folder], capture_output=True).returncode:
        pytest.skip("bind mounts are not permitted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_symbolic_links_are_followed(tiering_cli, chain):
    for link, target in (("to-data", "data"), ("to-all", "."), ("data/back", "../home")):
        (chain / link).symlink_to(target)
    before = content(chain / "data")
    for source, out in (
        ("data", "to-data"),
        ("to-data", "data/x"),
        ("to-all/data", "to-data/x"),
        ("data", "to-all/data"),
    ):
        tiering_cli("import", source, "--out", out, "--force").refused("which the command reads")
    assert content(chain / "data") == before
    tiering_cli("import", "data", "--out", "to-all/x").ok()
    tiering_cli("score", "graph", "--out", "data/back/scores").ok()  # not in data, as the system sees it


def test_bind_mounts_are_followed(tiering_cli, chain, bound):
    (bound / "inner").mkdir()
    before = content(chain / "data")
    for source, out in (
        ("data", bound),
        (bound, "data"),
        ("data", bound / "x"),
        (bound / "inner", "data"),
        (bound, "data/inner"),
    ):
        tiering_cli("import", source, "--out", out, "--force").refused("which the command reads")
    assert content(chain / "data") == before


@pytest.mark.parametrize("bound", ["home"], indirect=True)
def test_what_does_not_exist_yet_has_two_names_under_a_bind_mount(tiering_cli, chain, bound):
    """No inode tells that both are one: only what the system says of its mounts."""
    for out, ssd in (("new", "new/x"), ("new/x", "new"), ("new", "new")):
        for here, there in ((bound / out, chain / "home" / ssd), (chain / "home" / out, bound / ssd)):
            tiering_cli("layout", "reordered", "--out", here, "--ssd", there, "--cpu", "20%").refused(
                "which the command writes to"
            )
    assert not (bound / "new").exists()
    tiering_cli("layout", "reordered", "--out", "other", "--ssd", bound / "new", "--cpu", "20%").ok()
    assert (chain / "home" / "new").is_dir()


def test_files_of_a_users_in_an_artifact_stay(tiering_cli, chain):
    for out, command in (
        ("graph", "import data"),
        ("layout", "layout reordered --cpu auto"),
        ("exported", "export layout"),
        ("made", "generate made --nodes 100 --edges 300"),
    ):
        arguments = [*command.split(), *(() if "generate" in command else ("--out", out))]
        if not (chain / out).exists():
            tiering_cli(*arguments).ok()
        tiering_cli(*arguments, "--force").ok()
        inner = next(path for path in sorted((chain / out).rglob("*")) if path.is_dir()) / "thesis.txt"
        for file in (chain / out / "notes.md", inner):
            file.write_text("years of work")
            tiering_cli(*arguments, "--force").refused(str(file), "did not write")
            assert file.read_text() == "years of work"
            file.unlink()
        (chain / out / "link").symlink_to(chain / "home")
        tiering_cli(*arguments, "--force").refused("link", "did not write")
        (chain / out / "link").unlink()


def test_what_is_recognizably_an_artifact_is_replaced(tiering_cli, chain):
    manifest = chain / "graph/manifest.json"
    whole = manifest.read_bytes()
    flipped = bytearray(whole)
    flipped[whole.index(b'"files"')] ^= 1
    for damaged in (b"", whole[:100], whole[: len(whole) // 2], bytes(flipped), b"\0" * len(whole)):
        manifest.write_bytes(damaged)
        (chain / "graph/thesis.txt").write_text("years of work")
        tiering_cli("import", "data", "--out", "graph", "--force").refused("thesis.txt")
        (chain / "graph/thesis.txt").unlink()
        tiering_cli("import", "data", "--out", "graph", "--force").ok()
        assert manifest.read_bytes() == whole
    (chain / "empty").mkdir()
    tiering_cli("import", "data", "--out", "empty", "--force").ok()


def test_a_manifest_of_another_program_is_no_artifact(tiering_cli, chain):
    (chain / "app").mkdir()
    (chain / "app/manifest.json").write_text(
        '{"name": "app", "format": "webapp", "files": {}, "external": {}, "parts": {}}'
    )
    tiering_cli("score", "graph", "--out", "app", "--force").refused("app/manifest.json", "did not write")
    assert (chain / "app/manifest.json").exists()


@pytest.mark.parametrize("manifest", [
    '{"name": "app", "made with": "tiering.graph"}',
    '{"format": "tiering.app", "files": {}, "external": {}, "parts": {}}',
    '{"format": ["tiering.graph"], "files": {}}', "a list of names", "",
])  # fmt: skip
@pytest.mark.parametrize("checksums", ["3c1f  features/rows\n", "0123456789abcdef", ""])
def test_a_directory_of_another_program_is_no_artifact(tiering_cli, chain, manifest, checksums):
    """Whatever its files are called, and if a manifest in it names our format."""
    for name, text in (("manifest.json", manifest), ("checksums", checksums), ("features/rows", "years of work")):
        (chain / "app" / name).parent.mkdir(parents=True, exist_ok=True)
        (chain / "app" / name).write_text(text)
    before = content(chain)
    tiering_cli("score", "graph", "--out", "app", "--force").refused("app/", "did not write")
    tiering_cli("score", "graph", "--out", "app/x").ok()  # it is no artifact, which would change
    tiering_cli("score", "graph", "--out", "app", "--force").refused("app/", "did not write")
    assert {name: data for name, data in content(chain).items() if not name.startswith("app/x")} == before


@pytest.mark.parametrize(
    "journal", ["", "years of work", '{"identity": {}}\n', '{"key": "a", "facts": {}}\t0123456789abcdef\n', "\0" * 9]
)
def test_a_partial_directory_of_another_program_stays(tiering_cli, chain, journal):
    for name, text in ((JOURNAL, journal), ("thesis.txt", "years of work")):
        (chain / ".x.partial").mkdir(exist_ok=True)
        (chain / ".x.partial" / name).write_text(text)
    (chain / "y").mkdir()
    (chain / "y" / JOURNAL).write_text('{"identity": "of another program"}\n')
    before = content(chain)
    for out in ("x", "y"):
        for more in ((), ("--force",)):
            tiering_cli("score", "graph", "--out", out, *more).refused(out)
    assert content(chain) == before


@pytest.mark.parametrize("torn", [b"", b'{"iden', b'{"identity":{"stage":"sc', b"\0" * 90])
def test_a_journal_that_a_power_cut_has_torn_is_taken(tiering_cli, chain, torn):
    (chain / ".x.partial").mkdir()
    (chain / ".x.partial" / JOURNAL).write_bytes(torn)
    tiering_cli("score", "graph", "--out", "x").ok()
    assert not (chain / ".x.partial").exists()


def test_an_output_that_comes_while_a_run_works_is_not_replaced(chain, monkeypatch):
    from tiering.artifacts.writer import DirectoryWriter

    def finish_reads(writer: DirectoryWriter) -> None:
        (chain / "x").mkdir(exist_ok=True)
        (chain / "x/thesis.txt").write_text("years of work")

    monkeypatch.setattr(DirectoryWriter, "finish_reads", finish_reads)
    with pytest.raises(ExistsError, match="already exists"):
        tiering.score_graph("graph", "x")
    with pytest.raises(ExistsError, match=r"thesis\.txt, which tiering did not write"):
        tiering.score_graph("graph", "x", force=True)
    assert (chain / "x/thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("name", [".x.partial", ".x.old", ".x.lock", "x"])
def test_a_users_files_under_names_that_runs_use(tiering_cli, chain, name):
    """Also a file of a user's that is called as the journal is."""
    if name.endswith("lock"):
        kept = chain / name
    else:
        kept = chain / name / ("thesis.txt" if name.startswith(".") else JOURNAL)
        kept.parent.mkdir()
    kept.write_text("years\nof\nwork")
    for more in ((), ("--force",)):
        tiering_cli("score", "graph", "--out", "x", *more).refused("x")
        assert kept.read_text() == "years\nof\nwork"


def test_stripe_files_go_with_a_layout_that_another_artifact_replaces(tiering_cli, chain):
    folder = next((chain / "ssd").iterdir())
    (folder / "thesis.txt").write_text("years of work")
    tiering_cli("score", "graph", "--out", "layout", "--force").ok()
    assert [file.name for file in folder.iterdir()] == ["thesis.txt"]


def test_temporary_files(chain):
    for out, folder in (("x", "x/tmp"), ("x", ".x.partial/tmp"), ("x", "x")):
        with pytest.raises(InputError, match="holds temporary files"):
            tiering.import_graph("data", out, work_dir=folder)
    tiering.import_graph("data", "tmp/x", work_dir="tmp")


@pytest.mark.parametrize("left", [b"", b"\0" * 26, b"12345 2026-\0\0\0\0\0\0\0\0"])
def test_a_lock_that_a_power_cut_has_torn_is_taken(tiering_cli, chain, left):
    (chain / ".x.lock").write_bytes(left)
    tiering_cli("score", "graph", "--out", "x").ok()
    assert not (chain / ".x.lock").exists()


def test_a_manifest_that_the_disk_does_not_give_is_no_reason_to_call_files_foreign(chain, monkeypatch):
    plain = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path.name == "manifest.json" and "scores" in path.parts:
            raise OSError(5, "Input/output error", str(path))
        return plain(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(StorageError, match=r"scores/manifest\.json: Input/output error"):
        tiering.score_graph("graph", "scores", force=True)
