"""The GraphSAGE example: the same numbers from tiers and memory."""

from __future__ import annotations

import json

import pytest

from tiering.errors import InputError, MissingError

OPTIONS = {"epochs": 2, "hidden": 16, "fanouts": [5, 5], "batch_size": 64, "seed": 3}


@pytest.mark.parametrize(
    ("sampler", "fanouts"), [("replacement", [5, 5]), ("weighted", [5, 5]), ("pinsage", [5, 5]), ("ladies", [400, 400])]
)
def test_every_sampler_trains(kit, build, example, sampler, fanouts):
    path = build(kit.small_graph()).path
    options = {**OPTIONS, "epochs": 6, "sampler": sampler, "fanouts": fanouts}
    tiers, memory = (example.train(path, source=source, **options) for source in ("tiers", "memory"))
    assert tiers["batch_digest"] == memory["batch_digest"]
    assert tiers["test"] == memory["test"] > 0.6


def test_command_line(kit, build, example, capsys):
    path = build(kit.small_graph()).path
    example.main([str(path), "--epochs", "1", "--fanouts", "4,4", "--batch-size", "50", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert len(result["val"]) == 1
    example.main([str(path), "--epochs", "1", "--model", "mlp"])
    assert "test accuracy" in capsys.readouterr().out
    with pytest.raises(SystemExit) as caught:
        example.main([str(path / "nowhere")])
    assert caught.value.code == 1
    assert "nowhere" in capsys.readouterr().err


def test_a_graph_without_features_or_labels(kit, build, example):
    data = kit.small_graph()
    data.nodes["node"].table = None
    layout = build(data)
    assert layout.feature_types == []
    assert next(iter(layout.loader(batch_size=20))).features == {}
    assert len(example.train(layout.path, **OPTIONS)["losses"]) == 2
    with pytest.raises(MissingError, match="no tiered features"):
        example.train(layout.path, model="mlp", **OPTIONS)
    data.nodes["node"].labels = None
    with pytest.raises(InputError, match="no labels to train on"):
        example.train(build(data).path)
