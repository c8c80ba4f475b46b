"""The command line itself: help, usage errors, exit codes, --debug, --json, start-up."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

import tiering
from tiering.errors import BudgetError, ExistsError, InputError, InternalError, MissingError, RefusedError

COMMANDS = ["import", "generate", "score", "evaluate", "reorder", "layout", "run", "check", "info", "doctor"]


def test_help_names_every_command(tiering_cli):
    text = tiering_cli("--help").ok().out
    for word in [*COMMANDS, "Get a graph", "Prepare tiers", "Inspect and measure"]:
        assert word in text


def test_help_lists_the_exit_codes(tiering_cli):
    codes = tiering_cli("--help").ok().out.split("Exit codes:\n")[1]
    assert re.findall(r"^  (\d+(?: \+ N)?)  ", codes, re.M) == ["0", "1", "2", "70", "128 + N"]
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM):
        assert str(128 + number) in codes


def test_help_is_a_command_too(tiering_cli):
    assert tiering_cli("help", "score").ok().out == tiering_cli("score", "--help").ok().out
    assert tiering_cli("help").ok().out == tiering_cli("--help").ok().out
    tiering_cli("help", "scor").refused("did you mean 'score'", code=2)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_speaks_of_values_not_of_types_and_common_options_come_before_special_ones(tiering_cli, command):
    result = tiering_cli(command, "--help").ok()
    text = result.out
    assert "Usage: tiering " + command in text and result.err == ""
    metavars = re.findall(r"^  (?:-\w, )?--[\w-]+ (\S+)", text, re.M)
    assert not [word for word in metavars if re.search(r"[<>]|^(list|bool|str|int|INTEGER|TEXT|FLOAT|BOOLEAN)$", word)]
    headings = [name for name in re.findall(r"^(\S.*):$", text, re.M) if name not in ("Arguments", "Options")]
    assert headings[0] == "Common options"


@pytest.mark.parametrize(
    ("shell", "profile", "read_by"),
    [("bash", ".bashrc", "completion.bash"), ("zsh", ".zshrc", "completion.zsh"), ("fish", "", "tiering.fish")],
)
def test_completion_is_installed_once(tiering_cli, monkeypatch, tmp_path, shell, profile, read_by):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    (tmp_path / ".bashrc").write_text("alias l=ls")
    tiering_cli("--install-completion").ok()
    tiering_cli("--install-completion", shell.upper()).ok()
    (file,) = tmp_path.rglob(read_by)
    assert "_TIERING_COMPLETE" in file.read_text()
    if profile:
        assert (tmp_path / profile).read_text().count(f". {file}\n") == 1
    assert (tmp_path / ".bashrc").read_text().startswith("alias l=ls\n" if shell == "bash" else "alias l=ls")
    tiering_cli("--install-completion", "tcsh").refused("bash, zsh, fish", "tcsh")


@pytest.mark.parametrize(("words", "expected"), [
    ("sc", "score"), ("score --me", "--method"), ("score g --method HY", "hybrid"),
    ("evaluate --sampler lad", "ladies"),
])  # fmt: skip
def test_completion_completes_commands_options_and_words(tiering_cli, monkeypatch, words, expected):
    monkeypatch.setenv("_TIERING_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"tiering {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
    assert f"plain,{expected}" in tiering_cli().ok().out.splitlines()


def test_version(tiering_cli):
    assert tiering_cli("--version").ok().out == f"tiering {tiering.__version__}\n"


def test_no_command_prints_help(tiering_cli):
    result = tiering_cli()
    assert result.code == 2
    assert "Usage" in result.out and result.err == ""


@pytest.mark.parametrize(("arguments", "words"), [
    (["conquer"], ["conquer", "tiering --help"]), (["import"], ["--out", "tiering import --help"]),
    (["import", "x"], ["--out"]),
    (["score", "g", "--out", "s", "--seed", "red"], ["--seed"]),
    (["score", "g", "--out", "s", "--colour", "red"], ["--colour"]),
    (["generate", "d", "--nodes", "many"], ["--nodes"]),
])  # fmt: skip
def test_wrong_usage_is_one_line(tiering_cli, arguments, words):
    tiering_cli(*arguments).refused(*words, code=2)


@pytest.mark.parametrize("arguments", [
    ["info", "nowhere"], ["check", "nowhere"], ["run", "nowhere.toml"], ["evaluate", "nowhere", "--fanouts", "0"],
    ["score", "nowhere", "--out", "s", "--threads", "0"], ["doctor", "--ssd", "nowhere"],
    ["generate", "d", "--nodes", "1"],
])  # fmt: skip
def test_errors_are_one_line(tiering_cli, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    tiering_cli(*arguments).refused()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["--debug", "info", "nowhere"], ["info", "nowhere", "--debug"]])
def test_debug_shows_the_traceback(tiering_cli, arguments):
    result = tiering_cli(*arguments)
    assert result.code == 1
    assert "Traceback" in result.err
    assert result.err.splitlines()[-1].startswith("error: nowhere")


def test_debug_by_environment(tiering_cli, monkeypatch):
    monkeypatch.setenv("TIERING_DEBUG", "1")
    assert "Traceback" in tiering_cli("info", "nowhere").err
    monkeypatch.setenv("TIERING_DEBUG", "0")
    tiering_cli("info", "nowhere").refused()


@pytest.mark.parametrize(("error", "code", "words"), [
    (InputError("two\n  lines"), 1, "error: two lines"),
    (RefusedError("broken"), 1, "error: broken; an input is damaged: run `tiering check --full` on each"),
    (InternalError("broken"), 70, "internal error"),
    (RuntimeError("broken"), 70, "internal error: RuntimeError: broken"),
    (MemoryError(), 1, "error: out of memory"),
    (PermissionError(13, "Permission denied", "/x"), 1, "error: /x: Permission denied"),
    (KeyboardInterrupt(), 130, "interrupted"),
])  # fmt: skip
def test_exit_codes(monkeypatch, tiering_cli, error, code, words):
    def fail(*_):
        raise error

    monkeypatch.setattr("tiering.formats.registry.open_artifact", fail)
    result = tiering_cli("info", "x")
    assert result.code == code
    assert result.err.startswith(words) and len(result.err.splitlines()) == 1
    assert "Traceback" not in result.err


def test_info_of_the_installation(tiering_cli):
    document = tiering_cli("info", "--build", "--json").ok().json
    assert document["tiering"] == tiering.__version__
    assert {"compiler", "build_type", "liburing", "nvcc"} <= set(document["build"])
    assert "liburing" in tiering_cli("info").ok().out


def test_a_closed_pipe_is_no_error(repository):
    command = f"{sys.executable} -m tiering.cli info --build --json | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


HEAVY = ("torch", "numpy", "pyarrow", "matplotlib", "jsonschema", "rich", "scipy", "tqdm", "tiering._native")


@pytest.mark.parametrize("command", ["", "score", "reorder", "layout", "export", "run", "evaluate", "check", "info"])
def test_help_imports_little(command):
    script = f"import sys; from tiering.cli.main import main; main('{command} --help'.split());"
    script += f"print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_offline_stages_import_no_torch(tmp_path, tiny_dataset):
    (tmp_path / "disk.json").write_text('{"reads_per_second": 100000, "bytes_per_second": 1e9}')
    script = f"""
import sys
from tiering.cli.main import main
folder = {str(tmp_path)!r}
for line in (
    "import tiny --out g", "score g --out s", "evaluate g --scores s --fanouts 5 --epochs 1",
    "plan g --batch-size 4 --fanouts 2 --disk disk.json",
    "reorder g --scores s --out r", "layout r --cpu 20% --ssd d --out l", "check l --full", "info l",
):
    assert main(line.split()) == 0, line
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, capture_output=True)


def test_json_is_one_document(tiering_cli, tmp_path, tiny_dataset):
    made = tiering_cli("import", tiny_dataset, "--out", tmp_path / "graph", "--json").ok()
    assert json.loads(made.out)["kind"] == "graph"
    assert json.loads(made.out) == tiering_cli("info", tmp_path / "graph", "--json").ok().json


def test_warnings_of_an_import_are_printed(tiering_cli, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    np.save(data / "edge_index.npy", np.array([[0, 1], [1, 2]]))
    np.save(data / "node_label.npy", np.array([0, 1, 0]))
    for split in ("train", "val"):
        np.save(data / f"{split}_idx.npy", np.array([0, 1]))
    made = tiering_cli("import", data, "--out", tmp_path / "graph").ok()
    assert "note: " in made.err and "2 nodes are in both train and val" in made.err


def test_errors_under_json_are_one_line_of_json_on_standard_error(tiering_cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments, kind, code in (
        (["info", "nowhere", "--json"], "MissingError", 1),
        (["score", "--json"], "MissingParameter", 2),
        (["score", "g", "--json", "--out", "s", "--colour", "red"], "NoSuchOption", 2),
    ):
        result = tiering_cli(*arguments)
        assert result.code == code and result.out == ""
        error = json.loads(result.err)["error"]
        assert (error["type"], error["exit_code"]) == (kind, code) and not error["message"].startswith("error")


def test_errors_name_options_as_the_caller_spells_them(tiering_cli, tmp_path, tiny_dataset):
    graph, out = tmp_path / "graph", tmp_path / "out"
    tiering.import_graph(tiny_dataset, graph)
    for options, flag, keyword in (
        ({"memory": "1MiB"}, r"error: --memory: .*; give --memory \d+MiB or more", r'^memory: .*give memory="\d+MiB"'),
        ({"fanouts": "5", "batch_size": 0}, "error: --batch-size: expected", "^batch size: expected"),
        ({"scores": tiny_dataset / "node_feat.npy", "method": "vip"}, r"\(--from\)|one score", "`scores`|one score"),
    ):
        words = {"scores": "from"}
        spelled = [w for n, v in options.items() for w in (f"--{words.get(n, n).replace('_', '-')}", str(v))]
        assert re.search(flag, tiering_cli("score", graph, "--out", out, *spelled).refused())
        with pytest.raises(InputError if "memory" not in options else BudgetError, match=keyword):
            tiering.score_graph(graph, out, **options)
    with pytest.raises(ExistsError, match="give `force=True` to replace it, or choose another output"):
        tiering.import_graph(tiny_dataset, graph)
    with pytest.raises(MissingError, match=r"^spec nothing: no such dataset.*`tiering datasets` lists them"):
        tiering.import_graph(tiny_dataset, out, spec="nothing")


def test_an_artifact_of_another_kind_is_called_what_it_is(tiering_cli, chain):
    for command in (
        f"reorder {chain}/graph --scores {chain}/graph",
        f"layout {chain}/reordered --scores {chain}/graph",
    ):
        words = "expected a scores artifact, found a graph artifact; give the output of `tiering score`"
        tiering_cli(*command.split(), "--out", chain / "new").refused(words)


@pytest.mark.parametrize("name", ["CSV", "csv", "Text", "EdgeList", "SNAP"])
def test_formats_go_by_the_names_that_people_have(tiering_cli, tmp_path, name):
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n1,2\n")
    tiering_cli("import", tmp_path / "edges.csv", "--format", name, "--out", tmp_path / "g").ok()
    assert tiering.open(tmp_path / "g").num_edges() == 2


def test_words_of_options_are_taken_in_any_case(tiering_cli, chain):
    plain = tiering_cli("score", chain / "graph", "--method", "rpr", "--teleport", "train", "--out", chain / "a").ok()
    asked = ["--method", "RPR", "--teleport", "Train", "--memory", "AUTO", "--threads", "Auto"]
    loud = tiering_cli("score", chain / "graph", *asked, "--out", chain / "b").ok()
    assert plain.out.split("digest")[1] == loud.out.split("digest")[1]


def test_ids_beyond_the_nodes_say_what_counted_these(tiering_cli, tiny_dataset, tmp_path):
    np.save(tiny_dataset / "train_idx.npy", [3, 250])
    tiering_cli("import", tiny_dataset, "--out", tmp_path / "g").refused(
        "found 250", "40 nodes, as", "node_feat.npy says"
    )
    np.save(tiny_dataset / "edge_index.npy", [[0, 250], [1, 2]])
    tiering_cli("import", tiny_dataset, "--out", tmp_path / "g").refused("250", "40 nodes, as", "node_feat.npy says")
