"""The examples, as users run them: from tiers they learn what they learn from memory, to the last digit."""

from __future__ import annotations

import importlib.util
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import warm_processes
from named_layouts import named_layout
from torch.distributed import TCPStore

import tiering

EXAMPLES = Path(__file__).parents[1] / "examples"
pytest.importorskip("torch_geometric")


@pytest.fixture(scope="module")
def layouts(tmp_path_factory) -> dict[str, Path]:
    """A layout of one node type and one of four, with rows in every tier."""
    made = {}
    for name, hetero in (("one", False), ("four", True)):
        folder = tmp_path_factory.mktemp(name)
        sizes = {"nodes": 6_000, "edges": 60_000, "dim": 32, "classes": 4}
        tiering.generate_dataset(folder / "data", **sizes, hetero=hetero)
        graph = tiering.import_graph(folder / "data", out=folder / "graph")
        scores = tiering.score_graph(graph, out=folder / "scores", fanouts=[10, 10], batch_size=512)
        ordered = tiering.reorder_graph(graph, scores, out=folder / "reordered")
        tiers = {"gpu": "10%", "peer": "2x10%", "cpu": "20%", "ssd": [folder / "ssd"]}
        made[name] = tiering.write_layout(ordered, out=folder / "layout", **tiers).path
    return made


def printed(capsys, monkeypatch, example: str, *arguments: object, begin: str = "epoch|test acc|area") -> list[str]:
    """What an example prints, run in this process: the lines that begin so."""
    monkeypatch.setattr(sys, "argv", [example, *map(str, arguments)])
    runpy.run_path(str(EXAMPLES / example), run_name="__main__")
    return [line for line in capsys.readouterr().out.splitlines() if re.match(begin, line)]


def last_figure(lines: list[str]) -> float:
    return float(re.fullmatch(r".* ([\d.e+-]+)", lines[-1]).group(1))


@pytest.mark.parametrize(
    ("example", "graph", "epochs", "least"),
    [
        ("pyg_graphsage.py", "one", 4, 0.6),
        ("pyg_hgt.py", "four", 4, 0.3),
        ("dgl_graphsage.py", "one", 4, 0.5),
        ("dgl_rgcn.py", "four", 4, 0.5),
        ("link_prediction.py", "one", 2, 0.55),
        ("lightning_graphsage.py", "one", 4, 0.6),
    ],
)
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # Lightning's
def test_same_accuracy_as_in_memory(layouts, capsys, monkeypatch, example, graph, epochs, least):
    if example.startswith("dgl"):
        pytest.importorskip("dgl")
    if example.startswith("lightning"):
        pytest.importorskip("lightning")
    assert len((EXAMPLES / example).read_text().splitlines()) < 80
    common = (layouts[graph], "--epochs", epochs, *(("--links", 3000) if example.startswith("link") else ()))
    tiers = printed(capsys, monkeypatch, example, *common)
    assert tiers == printed(capsys, monkeypatch, example, *common, "--features", "memory")
    assert least < last_figure(tiers) <= 1


@pytest.mark.parametrize(
    ("example", "graph", "options"),
    [
        ("pyg_inference.py", "one", ()),
        ("pyg_inference.py", "one", ("--model", "GAT")),
        ("pyg_rgcn_inference.py", "four", ()),
        ("dgl_inference.py", "one", ()),
    ],
)
def test_embeddings_have_the_accuracy_of_a_forward_in_memory(
    layouts, capsys, monkeypatch, tmp_path, example, graph, options
):
    if example.startswith("dgl"):
        pytest.importorskip("dgl")
    assert len((EXAMPLES / example).read_text().splitlines()) <= 80
    out = tmp_path / "embeddings"
    lines = printed(capsys, monkeypatch, example, layouts[graph], "--out", out, *options, begin="largest|test acc")
    assert last_figure(lines[:1]) < 1e-5 and lines[1].split()[-1] == lines[2].split()[-1]
    assert 0.45 < last_figure(lines) <= 1
    assert not tiering.open(out).problems("full")


@pytest.mark.filterwarnings("ignore")  # Lightning's
def test_lightning_continues_after_the_last_batch(layouts, tmp_path):
    """From checkpoints within an epoch, at its last batch, at its end and after validation, in a new `DataModule`."""
    lightning = pytest.importorskip("lightning")
    example = runpy.run_path(str(EXAMPLES / "lightning_graphsage.py"))

    class Module(example["Layout"]):
        def val_dataloader(self):
            return self.layout.pyg_loader("val", batch_size=1024, shuffle=False, **self.options)

    class Model(example["Classifier"]):
        def training_step(self, batch):
            loss = super().training_step(batch)
            steps.append((self.trainer.current_epoch, batch.input_id[0].item(), loss.item()))
            return loss

        def validation_step(self, batch):
            pass

    def fit(checkpoint: Path | None = None, **saving: object) -> lightning.Trainer:
        lightning.seed_everything(0)
        steps.clear()
        data = Module(layouts["one"], num_neighbors=[5, 5])
        callbacks = [lightning.pytorch.callbacks.ModelCheckpoint(tmp_path, save_top_k=-1, **saving)] if saving else []
        shown = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
        trainer = lightning.Trainer(
            max_epochs=3, accelerator="cpu", callbacks=callbacks, enable_checkpointing=bool(saving), **shown
        )
        trainer.fit(Model(32, 4), data, ckpt_path=checkpoint)
        return trainer

    steps: list[tuple[int, int, float]] = []
    for name, saving in {
        "step": {"every_n_train_steps": 1}, "end": {"every_n_epochs": 1, "save_on_train_epoch_end": True},
        "validated": {"every_n_epochs": 1, "save_on_train_epoch_end": False},
    }.items():  # fmt: skip
        fit(filename=f"{name}-{{step}}", **saving)
        unbroken = [*steps]
        assert len(unbroken) == 9 and len({first for _, first, _ in unbroken}) > 6
        for done in range(1, 9) if name == "step" else (3, 6):
            trainer = fit(tmp_path / f"{name}-step={done}.ckpt")
            assert steps == unbroken[done:], (name, done)
    data = Module(layouts["one"], num_neighbors=[5, 5])  # which never trains
    trainer.test(trainer.lightning_module, data, ckpt_path=tmp_path / "step-step=4.ckpt", verbose=False)


RANK = """
import os, pathlib, runpy, sys
os.environ.update(pair.split("=") for pair in sys.argv.pop().split())
saves, plain = int(os.environ["SAVES"]), pathlib.Path.replace
def replace(*arguments):  # killed after so many checkpoints
    global saves
    plain(*arguments)
    if (saves := saves - 1) == 0:
        os.kill(os.getpid(), 9)
pathlib.Path.replace = replace
import torch
torch.set_num_threads(1)  # as torchrun has it
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def ranks_by_hand(*arguments: str, saves: int = -1) -> list[str]:
    """What the first of two ranks prints that need no launcher: they meet in a store of this process.

    It is killed after so many checkpoints, and the other one with it.
    """
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    meeting = f"MASTER_ADDR=127.0.0.1 MASTER_PORT={store.port} WORLD_SIZE=2 LOCAL_WORLD_SIZE=2"
    meeting += f" TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RESTART_COUNT=0 SAVES={saves}"
    ranks = [
        warm_processes.Interpreter(RANK, *arguments, f"{meeting} RANK={rank} LOCAL_RANK={rank}") for rank in range(2)
    ]
    if saves > 0:
        first = ranks[0].wait(120)
        ranks[1].kill()
        ranks[1].wait(120)
        assert first.returncode == -9, first.stderr
        return first.stdout.splitlines()
    ended = [rank.wait(120) for rank in ranks]
    assert [rank.returncode for rank in ended] == [0, 0], ended[0].stderr + ended[1].stderr
    return ended[0].stdout.splitlines()


def test_a_model_that_sees_what_came_later(tmp_path, capsys, monkeypatch):
    """It is better in validation, on the table of the last day, and worse in service, where nothing came later yet."""
    lines = printed(capsys, monkeypatch, "temporal_graphsage.py", tmp_path, begin="with")
    seen = {line.split(":")[0]: float(line.split()[-1]) for line in lines}
    assert seen["without time, validation"] > seen["with time, validation"] + 0.05
    assert seen["with time, in service"] > seen["without time, in service"] + 0.02


@pytest.mark.slow
def test_several_processes(layouts):
    """The tiers as users run it, by torchrun; what it is compared with in processes that have torch loaded."""
    example = EXAMPLES / "ddp_graphsage.py"
    assert len(example.read_text().splitlines()) < 80
    arguments = [str(example), str(layouts["one"]), "--epochs", "2", "--features"]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*launch, *arguments, "tiers"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    tiers = done.stdout.splitlines()
    assert len(tiers) == 3 and tiers == ranks_by_hand(*arguments, "memory")
    assert 0.5 < last_figure(tiers) <= 1


@pytest.mark.slow
def test_several_processes_that_are_killed(layouts, tmp_path):
    """In the middle of an epoch, and at its end before its loss is printed: losses and accuracy of the unbroken run."""
    arguments = [str(EXAMPLES / "ddp_graphsage.py"), str(layouts["one"]), "--epochs", "2"]
    unbroken = ranks_by_hand(*arguments)
    for saves in (1, 2):
        saving = [*arguments, "--checkpoint", str(tmp_path / f"after-{saves}"), "--every", "1"]
        assert ranks_by_hand(*saving, saves=saves) == []
        assert ranks_by_hand(*saving) == unbroken[saves - 1 :]


def test_demo_runs_through(tmp_path, capsys, monkeypatch):
    """From generated data to a trained model, at a hundredth of its size."""
    monkeypatch.chdir(tmp_path)
    arguments = ("demo.py", "--nodes", "2000", "--edges", "20000", "--out", "demo")
    assert any("train again" in line for line in printed(capsys, monkeypatch, *arguments, begin=""))
    assert (tmp_path / "demo" / "layout" / "manifest.json").is_file()


@pytest.mark.parametrize("installed", [True, False])
def test_neighbors_by_the_users_ids(tmp_path, capsys, monkeypatch, installed):
    """Both libraries find what a comparison with all vectors finds; each is skipped where it is not installed."""
    layout = named_layout(tmp_path, "names", 400)
    embeddings = layout.inference([lambda block, x: x[: block.num_dst]], tmp_path / "e")
    monkeypatch.chdir(tmp_path)
    known, find_spec = {"faiss", "duckdb"}, importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *more: None if name in known and not installed else find_spec(name, *more),
    )
    lines = printed(
        capsys, monkeypatch, "vector_search.py", "e", "Q42é", "Q77é", "--neighbors", 3, begin="faiss|duckdb"
    )
    expected = []
    names = layout.graph.names()
    for row in names.find(["Q42é", "Q77é"]):
        near = (embeddings[:] - embeddings[int(row)]).square().sum(1).argsort()
        expected.append(f"nearest to {names.of([row])[0]}: {', '.join(names.of(near[1:4]))}")
    for library in known:
        own = [line.removeprefix(f"{library}: ") for line in lines if line.startswith(library)]
        if installed and find_spec(library) is not None:
            assert own[:2] == expected and "peak memory" in own[2]
        else:
            assert len(own) == 1 and own[0].startswith("skipped, not installed; pip install ")
