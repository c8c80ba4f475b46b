"""What a layer's function is: equal for equal functions in every process, another for all that changes its results."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import warnings
from functools import partial
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from inferred import Sage, odd_graph
from toy_datasets import tree_bytes

from tiering.errors import InputError, ModelError
from tiering.loader.inference import Layer, run
from tiering.loader.inference.frameworks import pyg_layers
from tiering.loader.inference.identity import identify_layers

SCALE, HELPER = 1, ModuleType("helper_of_a_user")
HELPER.__file__, HELPER.factor = "/home/user/helper.py", 1


def scaled(x, by=2):
    return x * by * SCALE


class Net(torch.nn.Module):
    """A module of a user: an attribute, a buffer that is not saved, and a method that another calls."""

    def __init__(self, aggr="mean"):
        super().__init__()
        self.aggr = aggr
        self.register_buffer("shift", torch.zeros(2), persistent=False)
        self.eval()

    def forward(self, block, x):
        return self.combine(x)

    def combine(self, x):
        return x.mean() if self.aggr == "mean" else x.sum()

    def fit(self):
        return threading.Lock()


def csr(matrix):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return matrix.to_sparse_csr()


def closure(value):
    return lambda block, x: (x, value)


def changed_global(name, value, function):
    def run(monkeypatch):
        before = identify_layers([function])
        monkeypatch.setitem(globals(), name, value)
        return before, identify_layers([function])

    return run


def compared(first, second):
    return lambda _: (identify_layers([first]), identify_layers([second]))


def changed_method(name, function):
    def run(monkeypatch):
        net = Net()
        before = identify_layers([net])
        monkeypatch.setattr(Net, name, function)
        return before, identify_layers([net])

    return run


def changed_module(monkeypatch):
    monkeypatch.setitem(sys.modules, HELPER.__name__, HELPER)
    function = lambda block, x: x * HELPER.factor  # noqa: E731
    before = identify_layers([function])
    monkeypatch.setattr(HELPER, "factor", 2)
    return before, identify_layers([function])


DIFFERENT = {
    "a constant": compared(lambda block, x: x + 1, lambda block, x: x + 2),
    "an operator": compared(lambda block, x: x + 1, lambda block, x: x - 1),
    "code of an inner function": compared(lambda block, x: [i + 1 for i in x], lambda block, x: [i + 2 for i in x]),
    "a name": compared(lambda block, x: torch.relu(x), lambda block, x: torch.tanh(x)),
    "a number in a closure": compared(closure(1), closure(2)),
    "a dtype": compared(closure(torch.float32), closure(torch.float16)),
    "true and 1": compared(closure(True), closure(1)),
    "a set": compared(closure({"a", "b"}), closure({"a", "c"})),
    "a nested collection": compared(closure({"a": [(1, {2.5})]}), closure({"a": [(1, {2.25})]})),
    "an array": compared(closure(np.arange(3)), closure(np.arange(3) + 1)),
    "an array's dtype": compared(closure(np.zeros(2, np.int32)), closure(np.zeros(1, np.int64))),
    "a sparse tensor": compared(closure(torch.eye(2).to_sparse()), closure((2 * torch.eye(2)).to_sparse())),
    "a CSR tensor": compared(closure(csr(torch.eye(2))), closure(csr(torch.eye(2).flip(0)))),
    "a default": compared(lambda block, x, by=2: x * by, lambda block, x, by=3: x * by),
    "a keyword": compared(partial(scaled, by=2), partial(scaled, by=3)),
    "an object of a bound method": compared(SimpleNamespace(f=Net("max")).f.combine, Net("sum").combine),
    "an attribute": compared(Net("mean"), Net("max")),
    "another builtin": compared(closure(max), closure(min)),
    "another class": compared(torch.nn.ReLU().eval(), torch.nn.Tanh().eval()),
    "a wrapped function": compared(torch.no_grad()(closure(1)), torch.no_grad()(closure(2))),
    "what precedes a layer": compared(Layer(scaled, before=closure(1)), Layer(scaled, before=closure(2))),
    "a global": changed_global("SCALE", 2, lambda block, x: scaled(x)),
    "a called function": changed_global("scaled", lambda x: x, lambda block, x: scaled(x)),
    "a module's constant": changed_module,
    "forward": changed_method("forward", lambda self, block, x: x),
    "a method": changed_method("combine", lambda self, x: x),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_makes_another_function(case, monkeypatch):
    before, after = DIFFERENT[case](monkeypatch)
    assert before != after and before[0].unknown == after[0].unknown == []


def test_equal_functions_are_equal(monkeypatch):
    """Made again, with objects of equal content; methods that no layer calls do not count."""
    again = [closure({"a": np.arange(3), "b": [torch.eye(2)]}) for _ in range(2)]
    assert identify_layers(again[:1]) == identify_layers(again[1:]) and identify_layers([Net()]) == identify_layers(
        [Net()]
    )
    before, after = changed_method("fit", lambda self: 1)(monkeypatch)
    assert before == after
    loop = SimpleNamespace(name="a")
    loop.own = [loop]
    assert identify_layers([closure(loop)])[0].unknown == []


def test_tensors_are_parameters():
    """Buffers that a state_dict lacks too; the rest of the function is unchanged."""
    net, other = Net(), Net()
    other.shift += 1
    (first,), (second,) = identify_layers([net]), identify_layers([other])
    assert first.code == second.code and first.parameters != second.parameters


PROGRAM = """
import torch
from tiering.loader.inference.identity import identify_layers

names, made = {"mean", "max", "sum", "add"}, {name: 1 for name in ("x", "y")}
class Net(torch.nn.Module):
    kinds = {"a", "b", "c"}
    def forward(self, block, x):
        return x if made["x"] in names and block in {"p", "q", "r"} else self.kinds
net = Net().eval()
net.linear = torch.nn.LSTM(2, 2).eval()
torch.nn.init.ones_(net.linear.weight_ih_l0); torch.nn.init.ones_(net.linear.weight_hh_l0)
torch.nn.init.ones_(net.linear.bias_ih_l0); torch.nn.init.ones_(net.linear.bias_hh_l0)
print(identify_layers([net, lambda block, x: (net, names, torch.float32), max]))
"""


def test_all_processes_agree():
    """With other hashes of strings, and other addresses."""
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, env={**os.environ, "PYTHONHASHSEED": seed}
        )
        for seed in ("1", "2")
    ]
    texts = [run.communicate(timeout=600)[0] for run in runs]
    assert texts[0] == texts[1] and texts[0].count(b"unknown=[]") == 3


@pytest.mark.parametrize("model", ["GCN", "GraphSAGE", "GIN", "GAT", "PNA", "EdgeCNN"])
def test_models_of_pyg_can_be_compared(kit, build, model):
    """Their attributes count; they are the same after a forward."""
    graph = build(odd_graph(kit)).artifact.graph
    nn = pytest.importorskip("torch_geometric.nn")
    options = (
        {"aggregators": ["mean", "std"], "scalers": ["linear"], "deg": torch.ones(4).long()} if model == "PNA" else {}
    )
    nets = [getattr(nn, model)(4, 6, 2, norm=norm, act="elu", **options).eval() for norm in ("batch", None)]
    first, second = (identify_layers(pyg_layers(net, graph)) for net in nets)
    assert [one.unknown for one in first] == [[], []] and first[1].code != first[0].code != second[0].code
    nets[0](torch.ones(3, 4), torch.tensor([[0, 1, 2], [1, 2, 2]]))
    assert identify_layers(pyg_layers(nets[0], graph)) == first


@pytest.fixture
def stopped(monkeypatch):
    """Stop a run in its second layer, then run again with other layers."""

    def stop(layout, layers, out):
        inner = run.run_function

        def until(layer, number, block, x):
            if number and (out.parent / f".{out.name}.partial" / "rows").is_file():
                raise KeyboardInterrupt
            return inner(layer, number, block, x)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(run, "run_function", until)
            layout.inference(layers, out, edges=600)

    return stop


def test_a_run_goes_on_with_the_same_functions_only(kit, build, tmp_path, stopped):
    layout, model = build(odd_graph(kit)), Sage(12, 20, 5)

    def layers(factor, held=None):
        last = lambda block, x: (held, factor * model.step(1, x, block.edge_index, block.num_dst))[1]  # noqa: E731
        return [model.layer(0), last]

    layout.inference(layers(2), tmp_path / "whole", edges=600)
    out = tmp_path / "e"
    stopped(layout, layers(2), out)
    message = (
        f"functions: the run that left {out} unfinished used other functions: layer 1 has changed; use the same "
        'functions, give resume="trust" if both compute the same, or `force=True` to start over'
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        layout.inference(layers(3), out, edges=600)
    layout.inference(layers(2), out, edges=600)
    assert tree_bytes(out) == tree_bytes(tmp_path / "whole")
    opaque = tmp_path / "opaque"
    stopped(layout, layers(2, threading.Lock()), opaque)
    with pytest.raises(
        InputError, match=r"other functions: layer 1 refers to held \(_thread.lock\), which cannot be compared"
    ):
        layout.inference(layers(2, threading.Lock()), opaque, edges=600)
    with pytest.raises(InputError, match=r"resume: expected None or 'trust', found True"):
        layout.inference(layers(2, threading.Lock()), opaque, edges=600, resume=True)
    layout.inference(layers(2, threading.Lock()), opaque, edges=600, resume="trust")
    assert tree_bytes(opaque) == tree_bytes(tmp_path / "whole")


def test_parameters_without_values(kit, build, tmp_path):
    layout = build(odd_graph(kit))
    lazy, meta = torch.nn.LazyLinear(3).eval(), torch.nn.Linear(12, 3, device="meta").eval()
    for function, words in (
        (lambda block, x: lazy(x), r"layer 0: weight has no values: it belongs to a lazy module"),
        (lambda block, x: meta(x), r"layer 0: weight has no values: it is on device 'meta'"),
        (lambda block, x: x + later, r"layer 0: .*<lambda> refers to later, which has no value yet"),
    ):
        with pytest.raises(ModelError, match=words):
            layout.inference([function], tmp_path / "e")
    if layout is None:
        later = 1
