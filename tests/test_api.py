"""The public Python API: its names, its keywords, what a chain returns."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tiering


def test_a_chain_gives_its_layout(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    tiering.generate_dataset(tmp_path / "data", nodes=300, edges=2000, dim=8)
    (tmp_path / "chain.toml").write_text(
        '[dataset]\npath = "data"\n[layout]\ncpu = "20%"\nssd = ["ssd"]\n[output]\ndir = "out"\n'
    )
    with tiering.run_chain(tmp_path / "chain.toml") as layout:
        assert layout.path == tmp_path / "out" / "layout"
    assert all(name in dir(tiering) or getattr(tiering, name) for name in tiering.__all__)


def test_the_import_is_light() -> None:
    code = "import sys, tiering; assert not {'numpy', 'torch', 'tiering.pipeline'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'score'"):
        tiering.score  # noqa: B018


def test_errors_spell_every_option_as_its_keyword() -> None:
    """From Python; commands in backquotes stay as they are typed."""
    from tiering.datasets.options import ImportOptions
    from tiering.errors import BudgetError, StorageError
    from tiering.evaluation.options import EvaluationOptions, PlanOptions
    from tiering.layout.options import LayoutOptions
    from tiering.loader.options import MemoryOptions, PipelineOptions, ReadOptions, SeedOptions
    from tiering.run.options import ClusterOptions
    from tiering.sampling.options import SamplingOptions
    from tiering.scores.options import ScoreOptions
    from tiering.text.options import options_of, spell_flag

    tables = (ImportOptions, ScoreOptions, EvaluationOptions, PlanOptions, LayoutOptions, SamplingOptions)
    loader = (SeedOptions, MemoryOptions, ReadOptions, PipelineOptions)
    known = {name: entry for table in (*tables, *loader) for name, entry in options_of(table).items()}
    known |= {name: entry for name, entry in options_of(ClusterOptions).items() if name != "executor"}
    assert len(known) > 60
    for name, entry in known.items():
        for flag in entry.flags or (spell_flag(name),):
            flag = flag.partition("/")[0]
            assert str(BudgetError(f"x: give {flag} 8GiB or more")) == f'x: give {name}="8GiB" or more'
            assert str(StorageError(5, f"x: leave {flag} out; `y {flag}`")) == f"x: leave `{name}` out; `y {flag}`"


def test_errors_of_a_layout_and_its_loaders_name_keywords(tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    from tiering.errors import TieringError

    data = tiering.generate_dataset(tmp_path / "data", nodes=300, edges=2000, dim=8)
    graph = tiering.import_graph(data, out=tmp_path / "graph")
    scores = tiering.score_graph(graph, out=tmp_path / "scores", method="degree")
    tiering.reorder_graph(graph, scores, out=tmp_path / "reordered")
    tiering.write_layout(tmp_path / "reordered", out=tmp_path / "layout", cpu=0, ssd=[tmp_path / "ssd"]).close()
    with tiering.open(tmp_path / "layout") as layout:
        calls = {
            r"memory=\"\d+MiB\" or more": lambda: next(iter(layout.loader("train", fanouts=[2], memory="1MiB"))),
            "`edge_ids`": lambda: layout.pyg_loader(num_neighbors=[2], return_edge_id=True),
            'adjacency_cache="auto"': lambda: tiering.write_layout(
                tmp_path / "reordered", tmp_path / "new", fit="auto"
            ),
            "`force=True`": lambda: tiering.write_layout(tmp_path / "reordered", tmp_path / "layout"),
        }
        for words, call in calls.items():
            with pytest.raises(TieringError, match=words) as told:
                call()
            assert "--" not in str(told.value)


def test_keywords_that_editors_know_are_those_that_are_taken() -> None:
    """Each typed group of keywords names every option of its stage, and no other."""
    from dataclasses import fields
    from inspect import Parameter, signature

    from tiering.datasets.generated import Recipe
    from tiering.datasets.options import ImportKeywords, ImportOptions
    from tiering.evaluation.options import EvaluationKeywords, EvaluationOptions, PlanKeywords, PlanOptions
    from tiering.evaluation.predict import predict
    from tiering.evaluation.run import evaluate
    from tiering.layout.options import BATCHES, LayoutKeywords, LayoutOptions
    from tiering.loader import options
    from tiering.pipeline.chain import run_config
    from tiering.sampling import SamplingOptions
    from tiering.scores.options import OPTIONS, ScoreKeywords
    from tiering.text.options import options_of

    def of(*groups: Any) -> set[str]:
        return {field.name for group in groups for field in fields(group)}

    def named(function: Any) -> set[str]:
        kinds = Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL
        return {name for name, parameter in signature(function).parameters.items() if parameter.kind not in kinds}

    def keys(kind: Any) -> set[str]:
        return set(kind.__optional_keys__)

    sampling = of(SamplingOptions) - {"fanouts"}
    rows = of(options.ReadOptions, options.DeviceOptions)
    seeds = of(options.SeedOptions) - {"split"}
    batches = rows | sampling | seeds | of(options.PipelineOptions, options.MemoryOptions)
    nodes = {"node_type", "seeds", "seed_ids", "seed_time"}
    assert keys(ImportKeywords) == of(ImportOptions) | {"checksum_features"}
    assert keys(ScoreKeywords) == set(OPTIONS)
    given = named(evaluate) - {"graph", "scores", "sampling"}
    assert keys(EvaluationKeywords) == sampling | given | set(options_of(EvaluationOptions))
    given = named(predict) - {"graph", "scores", "sampling"}
    assert keys(PlanKeywords) == sampling | given | set(options_of(PlanOptions))
    assert keys(LayoutKeywords) == {*options_of(LayoutOptions), *BATCHES}
    assert keys(options.RowKeywords) == rows
    assert keys(options.NodeKeywords) == batches
    assert keys(options.BatchKeywords) == batches - nodes
    assert named(tiering.generate_dataset) - {"out", "force"} == of(Recipe)
    assert named(tiering.run_chain) - {"config"} == named(run_config) - {"path"}
