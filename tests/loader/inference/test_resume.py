"""Runs that are killed, interrupted, or that fail go on where they stopped, to the same bytes; others are refused."""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch
from inferred import Sage, odd_graph
from loop_disk import loop_disk
from toy_datasets import tree_bytes

import tiering
from tiering.artifacts import checksum, storage
from tiering.errors import InputError, ModelError, StorageError
from tiering.loader.inference import Layer
from tiering.loader.inference.identity import identify_layers


class Counted:
    """The layers of a model, whose calls are counted; `strike` runs at one call."""

    def __init__(self, model, at=0, strike=None):
        self.calls, self.layers = Counter(), [self._layer(model, number, at, strike) for number in range(2)]

    def _layer(self, model, number, at, strike):
        def layer(block, x):
            self.calls[number] += 1
            if self.calls.total() == at:
                strike()
            return model.step(number, x, block.edge_index, block.num_dst)

        return layer


@pytest.fixture
def whole(kit, build, tmp_path, monkeypatch):
    """A layout, a model, what an undisturbed run makes of them, and its calls after `planned`; blocks have 4 KiB."""
    monkeypatch.setattr(checksum, "BLOCK_BYTES", 4096)
    layout, model = build(odd_graph(kit)), Sage(12, 20, 40)
    counted = Counted(model)
    layout.inference(counted.layers, tmp_path / "whole", edges=300)
    return layout, model, tree_bytes(tmp_path / "whole"), counted.calls - planned(layout, model)


def planned(layout, model):
    """Calls of a plan by layer."""
    counted = Counted(model)
    layout.inference(counted.layers, layout.path.parent / "planned", edges=300, dry_run=True)
    return counted.calls


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def fail():
    raise ValueError("no more")


def killed(layout, model, out, at):
    """Run in a child that is killed at a call."""
    pid = os.fork()
    if pid == 0:
        try:
            torch.set_num_threads(1)  # those of the parent are not here
            with tiering.open(layout.path) as own:
                own.inference(Counted(model, at, die).layers, out, edges=300, resume="trust")
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert not out.exists()


def finish(whole, out, **options):
    """Run to the end; return the calls by layer without those of the plan, and compare the bytes."""
    layout, model, expected, _ = whole
    counted = Counted(model)
    layout.inference(counted.layers, out, edges=300, **{"resume": "trust", **options})  # calls that are counted differ
    found = tree_bytes(out)
    assert [name for name in found if found[name] != expected.get(name)] == [] and found.keys() == expected.keys()
    assert not out.with_name(f".{out.name}.partial").exists()
    calls = counted.calls - planned(layout, model)
    return calls[0], calls[1]


def test_killed_runs_go_on(whole, tmp_path):
    layout, model, _, calls = whole
    blocks, first, out = calls[0], planned(layout, model).total(), tmp_path / "e"
    assert blocks == calls[1] > 12
    killed(layout, model, out, first + 3 * blocks // 4)
    again = finish(whole, tmp_path / "e")
    assert 0 < again[0] < blocks and again[1] == blocks
    out = tmp_path / "later"
    killed(layout, model, out, first + blocks + 1)
    killed(layout, model, out, first + 3 * blocks // 4)  # of layer 1: layer 0 is not run again
    again = finish(whole, out)
    assert again[0] == 0 and 0 < again[1] < blocks


@pytest.mark.parametrize("strike", [signal.SIGINT, fail])
def test_interrupts_and_functions_that_fail(whole, tmp_path, strike):
    """A mended function with the same parameters goes on if it is trusted; finished layers are not run again."""
    layout, model, _, calls = whole
    out, at = tmp_path / "e", planned(layout, model).total() + calls[0] + 4
    hit = fail if strike is fail else lambda: signal.raise_signal(signal.SIGINT)
    error = ModelError if strike is fail else KeyboardInterrupt
    with pytest.raises(error, match="layer 1, block of 'node'.*ValueError: no more" if strike is fail else None):
        layout.inference(Counted(model, at, hit).layers, out, edges=300)
    with pytest.raises(
        InputError, match=r"^functions: .*e unfinished used other functions: layer 0 has changed; .*trust"
    ):
        layout.inference(Counted(model).layers, out, edges=300)
    assert finish(whole, out)[0] == 0


def test_a_full_disk(whole, tmp_path, monkeypatch):
    """Before it begins nothing is left; while it runs finished layers are kept."""
    layout, model, _, calls = whole
    with monkeypatch.context() as patch:
        patch.setattr(storage, "disk_free", lambda folder: 1000)
        with pytest.raises(StorageError, match=r"no space left: 216 KiB needed"):
            layout.inference(model.layers, tmp_path / "e")
        assert not list(tmp_path.glob(".e*"))
    with loop_disk(tmp_path / "image", tmp_path / "disk", 8 << 20) as disk:

        def fill():
            with (disk.folder / "filler").open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(disk.folder).free - (64 << 10))

        with pytest.raises(StorageError, match=r"no space left: .* needed, .* free; make room or choose another"):
            layout.inference(
                Counted(model, planned(layout, model).total() + 3, fill).layers, disk.folder / "e", edges=300
            )
        (disk.folder / "filler").unlink()
        assert finish(whole, disk.folder / "e") == (0, calls[1])


def test_another_run_is_refused_and_force_begins_anew(whole, kit, build, tmp_path, monkeypatch):
    layout, model, _, calls = whole
    out, other = tmp_path / "e", build(odd_graph(kit, seed=1))
    with pytest.raises(ModelError):
        layout.inference(Counted(model, planned(layout, model).total() + calls[0] + 4, fail).layers, out, edges=300)
    changed = Sage(12, 20, 40)
    with torch.no_grad():
        changed.weights[1][0, 0, 0] += 1
    for name, run in {
        "parameters": lambda: layout.inference(Counted(changed).layers, out, edges=300),
        "edges": lambda: layout.inference(Counted(model).layers, out, edges=301),
        "dtype": lambda: layout.inference(Counted(model).layers, out, edges=300, dtype="float16"),
        "nodes": lambda: layout.inference(Counted(model).layers, out, edges=300, nodes=np.arange(900)),
        "layout": lambda: other.inference(Counted(model).layers, out, edges=300),
        "layers": lambda: layout.inference([Layer(f, fanouts=2) for f in Counted(model).layers], out, edges=300),
    }.items():
        with pytest.raises(InputError, match=rf"^{name}: changed since a run that left .*e unfinished.*force=True"):
            run()
    with monkeypatch.context() as patch, pytest.raises(InputError, match=r"^torch: changed since .*found 9\.9"):
        patch.setattr(torch, "__version__", "9.9")
        layout.inference(Counted(model).layers, out, edges=300)
    assert finish(whole, out, force=True) == (calls[0], calls[1])
    layout.inference(changed.layers, out, edges=300, force=True)
    assert not np.array_equal(tiering.open(out).numpy(), tiering.open(tmp_path / "whole").numpy())


class Trained:
    """An object of the caller's whose method is a layer: it has a module and a tensor."""

    def __init__(self):
        self.linear, self.shift = torch.nn.Linear(12, 3).eval(), torch.zeros(3)

    def layer(self, block, x):
        return self.linear(x[: block.num_dst]) + self.shift


def test_parameters_are_found_wherever_a_function_has_them():
    """In closures, collections, globals, partial functions, objects of methods; as modules and as tensors."""
    trained, weights = Trained(), {"w": [torch.zeros(12, 3)]}
    functions = [
        trained.layer, partial(Trained.layer, trained), lambda block, x: trained.layer(block, x),
        lambda block, x: x @ weights["w"][0], lambda block, x, shift=trained.shift: x + shift,
        Layer(lambda block, x: x, before=trained.layer),
    ]  # fmt: skip
    before = identify_layers(functions)
    assert before == identify_layers(functions)
    weights["w"][0][1, 1] = trained.shift[2] = 1
    after = identify_layers(functions)
    assert [old != new for old, new in zip(before, after, strict=True)] == [True] * len(functions)
    trained.linear.train()
    for function in (functions[0], functions[1], functions[5]):
        with pytest.raises(InputError, match=r"^layer 0: .*linear \(Linear\) is in training mode"):
            identify_layers([function])
