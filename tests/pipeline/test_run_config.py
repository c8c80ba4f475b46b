"""The whole chain from one file: what is done, what is skipped, what is refused."""

from __future__ import annotations

import json
import os
import re
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tiering
from tiering import pipeline
from tiering.artifacts.document import write_document
from tiering.artifacts.manifest import UNREAD
from tiering.datasets.options import ImportOptions
from tiering.errors import FormatError, InputError, MissingError
from tiering.formats import known_defects
from tiering.formats.graph import Graph
from tiering.formats.layout import Layout
from tiering.pipeline import chain, commands, run_config
from tiering.pipeline.config import known_keys, read_config
from tiering.sampling import SamplingOptions
from tiering.text.description import to_text
from tiering.text.options import options_of

CONFIG = """
[dataset]
path = "tiny"
[score]
method = "wrpr"
[layout]
gpu = "10%"
cpu = "30%"
ssd = ["ssd0", "ssd1"]
[output]
dir = "made"
"""


@pytest.fixture
def config(tiny_dataset: Path) -> Path:
    path = tiny_dataset.parent / "chain.toml"
    path.write_text(CONFIG)
    return path


def done(report: list[dict[str, Any]]) -> list[str]:
    """Stages that were not skipped."""
    return [stage["stage"] for stage in report if stage["done"]]


ALL = ["import", "score", "reorder", "layout"]


def test_stripe_files_in_the_layout_of_the_chain(config: Path) -> None:
    """A second run, as of a nightly job, finds the layout there."""
    config.write_text(re.sub(r"ssd = .*", 'ssd = ["made/layout/disk"]', CONFIG))
    assert done(run_config(config)) == ALL
    made = config.parent / "made" / "layout"
    assert all(path.is_relative_to(made) for path in Layout.open(made).images)
    assert done(run_config(config)) == []
    config.write_text(config.read_text().replace('gpu = "10%"', 'gpu = "20%"'))
    assert done(run_config(config)) == ["layout"]
    config.write_text(config.read_text().replace("made/layout/disk", "made/graph/disk"))
    with pytest.raises(InputError, match="graph"):
        run_config(config)


def test_goes_on_where_it_stopped(config: Path) -> None:
    report = run_config(config)
    assert done(report) == ALL
    made = config.parent / "made"
    assert [Path(stage["path"]) for stage in report] == [made / n for n in ("graph", "scores", "reordered", "layout")]
    for stage in report:
        assert tiering.check(stage["path"], "full") == []
    assert done(run_config(config)) == []
    assert done(run_config(config, force=True)) == ALL

    shutil.rmtree(made / "reordered")
    assert done(run_config(config)) == ["reorder"]  # the same bytes: the layout made of them still holds
    (made / "layout" / "tiers" / "node" / "gpu").unlink()
    assert done(run_config(config)) == ["layout"]
    config.write_text(CONFIG.replace('gpu = "10%"', 'gpu = "20%"'))
    assert done(run_config(config)) == ["layout"]
    config.write_text(CONFIG.replace('"wrpr"', '"wrpr"\nsweeps = 3'))
    assert done(run_config(config)) == ["score", "reorder", "layout"]
    config.write_text(CONFIG.replace('"wrpr"', '"degree"'))
    assert done(run_config(config)) == ["score", "reorder", "layout"]
    assert done(run_config(config)) == []


def test_a_chain_of_an_earlier_version_is_kept(tiny_dataset, monkeypatch, capsys):
    """Its stages are not done again for the version alone; what that may have made wrong is said."""
    (tiny_dataset.parent / "edges.txt").write_text("0 1\n1 2\n2 0\n")
    config = tiny_dataset.parent / "chain.toml"
    config.write_text('[dataset]\npath = "edges.txt"\nrandom_features = 4\n[score]\nmethod = "degree"\n')
    monkeypatch.setattr("tiering.artifacts.writer.__version__", "0.1.0")
    assert done(run_config(config)) == ALL
    monkeypatch.undo()
    known_defects._noted.clear()
    capsys.readouterr()
    assert done(run_config(config)) == []
    said = [line for line in capsys.readouterr().err.splitlines() if "may have written errors" in line]
    assert [line.split(": ")[1] for line in said] == [
        str(tiny_dataset.parent / place) for place in ("graph", "reordered", "layout/graph")
    ]


def test_rows_stored_by_a_codec(config: Path) -> None:
    """A dry run counts stored bytes and the pass that fits; another dtype makes the layout again, nothing else."""

    def stored(dtype: str) -> tuple[Any, Any]:
        config.write_text(CONFIG.replace("[layout]", f"[layout]\ndtype = {dtype}"))
        return pipeline.estimate_run(config).plans[-1], done(run_config(config))

    plain = pipeline.estimate_run(config).plans[-1]
    assert any("dtype auto: counted as float32" in note for note in plain.notes)
    plan, made = stored('"int8"')
    assert made == ALL and not any("auto" in note for note in plan.notes)
    rows = next(step for step in plan.steps if step.name == "rows of node")
    assert next(step for step in plan.steps if step.name == "fit of node").how == "int8"
    entry = Layout.open(config.parent / "made" / "layout").type_layout("node")
    assert (entry.codec, entry.row_bytes) == ("int8", 8)  # six columns, a multiple of 4
    # Rows in memory, a unit with the sum of its page, and a scale and an offset for each column.
    assert plan.disk_left == 8 * (entry.num_nodes - entry.rows("ssd")) + 4096 + 4 + 6 * 8
    assert rows.disk_written < sum(step.disk_written for step in plain.steps)
    assert stored('"int8"')[1] == []
    assert stored('["node=float16"]')[1] == ["layout"]
    with pytest.raises(InputError, match=r"chain.toml: \[layout\] dtype: expected auto, .*found 8"):
        stored("8")


def test_notices_a_changed_dataset(config: Path, tiny_dataset: Path) -> None:
    run_config(config)
    features = np.load(tiny_dataset / "node_feat.npy")
    np.save(tiny_dataset / "node_feat.npy", features + 1)
    assert done(run_config(config)) == ALL
    (tiny_dataset / "val_idx.npy").unlink()
    assert done(run_config(config)) == ALL
    assert done(run_config(config)) == []


def test_artifacts_beside_the_dataset_do_not_count_as_its_files(tiny_dataset: Path) -> None:
    config = tiny_dataset / "chain.toml"
    config.write_text('[dataset]\npath = "."\n[layout]\nssd = ["ssd"]\n')
    assert done(run_config(config)) == ALL
    assert done(run_config(config)) == []


@pytest.mark.parametrize("old", [False, True])
def test_files_that_an_import_does_not_read_do_not_count(
    config: Path, tiny_dataset: Path, old: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for a chain of the old form, whose import recorded a digest of the directory's listing."""
    plain = commands.import_options
    with monkeypatch.context() as patch:
        if old:
            listed = {"source_files": "xxh3-128:6d15dfefb4c45918d1cb1e1c34dced2f"}
            patch.setattr(commands, "import_options", lambda *args, **options: plain(*args, **options) | listed)
        run_config(config)
    for name in ("notes.txt", "2026-11-28.log", "other.npy", "sub/node_feat.npy", "e.csv", "a.parquet"):
        (tiny_dataset / name).parent.mkdir(exist_ok=True)
        (tiny_dataset / name).touch()
        assert done(run_config(config)) == [], name
    (tiny_dataset / "val_idx.npy").unlink()
    assert done(run_config(config)) == ALL


def test_no_digest_depends_on_files_that_an_import_does_not_read(
    config: Path, tiny_dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are named all the same: by the import and the graph, and in the documents of what is made of it."""
    made = config.parent / "made"

    def digests() -> list[str]:
        assert done(run_config(config, force=True)) == ALL
        return [tiering.open(made / place).digest for place in ("graph", "scores", "reordered", "layout")]

    plain = digests()
    assert not list(made.rglob(UNREAD))
    for name in ("notes.txt", "a b\n\u2028ü.npy", os.fsdecode(b"\xff")):
        (tiny_dataset / name).touch()
    capsys.readouterr()
    assert digests() == plain  # and what is there counts as the commands' own, to be replaced
    assert "not read: files" in capsys.readouterr().err
    for place in ("graph", "reordered", "layout/graph"):
        graph = Graph.open(made / place)
        unread = {str(path) for path in tiny_dataset.iterdir() if str(path) not in _read(Graph.open(made / "graph"))}
        assert set(graph.manifest.changes["ignored_files"]) == unread and len(unread) == 3
        assert "notes.txt" in json.dumps(graph.summary())
        assert ("notes.txt" in to_text(graph.describe())) == (place == "graph")  # facts of the import, once
        assert graph.problems("full") == []
    (made / "graph/manifest.json").write_text("{")
    assert done(run_config(config, force=True)) == ALL  # a damaged graph is one to be replaced, too


def _read(graph: Graph) -> set[str]:
    return set(graph.manifest.provenance["inputs"])


def test_an_earlier_graph_names_the_files_that_were_not_read(tiny_dataset: Path, tmp_path: Path) -> None:
    """Version 0.1 recorded them in the manifest's body."""
    graph = tiering.import_graph(tiny_dataset, tmp_path / "g")
    manifest = json.loads((tmp_path / "g/manifest.json").read_text())
    manifest["body"]["changes"]["ignored_files"] = ["/data/notes.txt"]
    (tmp_path / "g/manifest.json").write_bytes(write_document(manifest))
    graph = Graph.open(tmp_path / "g")
    assert graph.summary()["changes"]["ignored_files"] == ["/data/notes.txt"]
    assert "notes.txt" in to_text(graph.describe())
    score = tiering.score_graph(graph, tmp_path / "s", "degree")
    reordered = tiering.reorder_graph(graph, score, tmp_path / "r")
    assert reordered.manifest.changes == graph.manifest.changes and reordered.problems("full") == []


def test_a_new_file_that_an_import_reads_is_named(
    config: Path, tiny_dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = np.zeros(tiering.import_graph(tiny_dataset, config.parent / "g").num_nodes(), np.int64)
    (tiny_dataset / "node_label.npy").unlink(missing_ok=True)
    run_config(config)
    np.save(tiny_dataset / "node_label.npy", labels)
    capsys.readouterr()
    assert done(run_config(config)) == ALL
    assert f"note: {tiny_dataset}/node_label.npy is new and belongs to the dataset: importing the graph again" in (
        capsys.readouterr().err
    )
    assert done(run_config(config)) == []


def test_parts_of_a_directory_of_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Parts that are read by glob count, in partitions, too; a file that makes the import fail leaves the chain."""
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"src": [0, 1], "dst": [1, 0], "w": [1, 2]}), tmp_path / "data/1.parquet")
    np.save(tmp_path / "data/train_idx.npy", [0, 1])
    np.save(tmp_path / "data/node_feat.npy", np.ones((3, 2), np.float32))
    config = tmp_path / "chain.toml"
    config.write_text('[dataset]\npath = "data"\n[layout]\ncpu = "auto"\n[output]\ndir = "made"\n')
    run_config(config)
    for name in ("notes.txt", "_SUCCESS", "_metadata.parquet"):
        (tmp_path / "data" / name).touch()
    assert done(run_config(config)) == []
    (tmp_path / "data/2.parquet").write_text("not parquet")
    capsys.readouterr()
    assert done(run_config(config)) == []
    assert "new files make the dataset unreadable; the imported graph is kept: " in capsys.readouterr().err
    pq.write_table(pa.table({"src": [2], "dst": [1], "w": [1]}), tmp_path / "data/2.parquet")
    assert done(run_config(config)) == ALL
    assert f"note: {tmp_path}/data/2.parquet is new and belongs to the dataset" in capsys.readouterr().err
    assert tiering.open(tmp_path / "made/graph").relations and done(run_config(config)) == []


def test_a_training_set_of_its_own(config: Path, tiny_dataset: Path) -> None:
    shutil.copy(tiny_dataset / "test_idx.npy", config.parent / "mine.npy")
    config.write_text(CONFIG.replace('"wrpr"', '"wrpr"\ntrain = "mine.npy"'))
    assert done(run_config(config)) == ALL
    assert done(run_config(config)) == []
    np.save(config.parent / "mine.npy", np.array([3, 4]))
    assert done(run_config(config)) == ["score", "reorder", "layout"]
    config.write_text(CONFIG.replace('"wrpr"', '"wrpr"\ntrain = "node=10%"\nseed = 4'))
    assert done(run_config(config)) == ["score", "reorder", "layout"]
    assert done(run_config(config)) == []


@pytest.mark.parametrize("cut", [None, tiering.ClusterOptions(shards=3)])
def test_drawn_training_nodes_are_the_split_of_the_layout(
    config: Path, tiny_dataset: Path, cut: tiering.ClusterOptions | None
) -> None:
    """Where the dataset has none of its own: the ids that the score drew, also where tasks do the work."""
    (tiny_dataset / "train_idx.npy").unlink()
    config.write_text(CONFIG.replace('"wrpr"', '"wrpr"\ntrain = "node=30%"\nseed = 4'))
    run_config(config, cluster=cut)
    graph, scores, reordered, placed = (tiering.open(config.parent / "made" / name) for name in chain.FOLDERS.values())
    count = graph.num_nodes()
    expected = np.sort(np.random.default_rng(4).choice(count, int(0.3 * count), replace=False))
    assert scores.train_nodes()["node"].tolist() == expected.tolist()
    assert reordered.new_to_old()[reordered.split("train")].tolist() == expected.tolist()
    assert placed.split("train").tolist() == reordered.split("train").tolist()
    assert {"train", *graph.splits()} == {*reordered.splits()}
    for name in chain.FOLDERS.values():
        assert tiering.check(config.parent / "made" / name, "full") == []
    assert done(run_config(config)) == []
    config.write_text(CONFIG.replace('"wrpr"', '"wrpr"\ntrain = "val"'))  # a split of the graph's own stays alone
    run_config(config)
    assert tiering.open(config.parent / "made/reordered").splits() == graph.splits()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[dataset", r"expected TOML \("),
        ("[layouts]\n", "unknown section layouts; known: dataset, score, reorder, layout, output, run"),
        ("dataset = 3\n", r"expected a section \[dataset\], found 3"),
        ("[dataset]\npath = 'tiny'\n[layout]\ngpus = 1\n", r"unknown \[layout\] key gpus; known: gpu, peer, cpu"),
        ("[dataset]\npath = 'tiny'\n[run]\nmemory = '8GiBs'\n", r"chain.toml: \[run\] memory: .*8GiBs"),
        ("[dataset]\nformat = 'npy'\n", r"\[dataset\] path"),
        ("[score]\ndepth = 3\n", r"unknown \[score\] key depth; known: method, from, train, seed, epochs"),
        ("[score]\nepochs = 0\n", r"\[score\] epochs: expected a whole number from 1"),
        ("[dataset]\npath = 'tiny'\nnodez = 4\n", r"unknown \[dataset\] key nodez; known: path, format"),
    ],
)
def test_bad_configurations(config: Path, text: str, message: str) -> None:
    config.write_text(text)
    with pytest.raises((InputError, FormatError), match=message):
        run_config(config)
    assert not (config.parent / "made").exists()


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"chain\.toml: expected a TOML file that describes a chain, found nothing"):
        run_config(tmp_path / "chain.toml")
    with pytest.raises(InputError, match=r"expected a TOML file that describes a chain, .* found a directory"):
        run_config(tmp_path)


def test_scores_that_know_the_sampler(config: Path) -> None:
    score = 'method = "hybrid"\nfanouts = [3, 2]\nbatch_size = 4\nseed = 2'
    config.write_text(CONFIG.replace('method = "wrpr"', score))
    assert done(run_config(config)) == ALL
    assert done(run_config(config)) == []
    opened = tiering.open(config.parent / "made" / "scores")
    assert opened.method == "hybrid" and opened.columns == ["feature", "adjacency"]
    same = ('"3,2"', "[{to = 3}, {to = 2}]", '{"node:to:node" = [3, 2]}')
    for fanouts in same:
        config.write_text(CONFIG.replace('method = "wrpr"', score.replace("[3, 2]", fanouts)))
        assert done(run_config(config)) == [], fanouts
    for change in (("seed = 2", "seed = 3"), ("[3, 2]", "[3, 3]"), ('"hybrid"', '"presample"'), ("= 4", "= 5")):
        config.write_text(CONFIG.replace('method = "wrpr"', score.replace(*change)))
        assert "score" in done(run_config(config)), change


def test_memory_reaches_the_stages_that_take_it(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, str] = {}

    def watch(name: str) -> None:
        stage = getattr(chain, name)

        def watched(*arguments: Any, **options: Any) -> Any:
            seen[name] = options["memory"]
            return stage(*arguments, **options)

        monkeypatch.setattr(chain, name, watched)

    for name in ("import_graph", "reorder_graph", "layout"):
        watch(name)
    config.write_text(CONFIG + '[run]\nmemory = "3GiB"\n')
    run_config(config)
    assert seen == dict.fromkeys(("import_graph", "reorder_graph", "layout"), "3GiB")
    run_config(config, memory="2GiB", force=True)
    assert set(seen.values()) == {"2GiB"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ('"wrpr"', '"wrpr"\ntrain = "trian"'),
            r"trian: no file and no split has this name.*give one with \[score\] train",
        ),
        (('"30%"', '"30%"\ndtype = "paper=int8"'), r"\[layout\] dtype: .* has no features of 'paper'"),
        (('"30%"\nssd = ["ssd0", "ssd1"]', '"30%"'), r"have no tier; give \[layout\] ssd = \"DIR\", or \[layout\] cpu"),
        (('"tiny"', '"tiny"\nsplit = [0.9, 0.9]'), r"\[dataset\] split: expected three fractions"),
        (('"tiny"', '"tiny"\nnum_nodes = ["a=1", "b"]'), r"\[dataset\] num.nodes: expected TYPE=VALUE"),
    ],
)
def test_what_a_later_stage_refuses_is_refused_before_the_import(config: Path, change: Any, message: str) -> None:
    config.write_text(CONFIG.replace(*change))
    with pytest.raises((InputError, MissingError), match=message) as refused:
        run_config(config)
    assert str(refused.value).count(str(config)) == 1
    assert not (config.parent / "made").exists()


@pytest.mark.parametrize(
    ("section", "forms"),
    [
        ("dataset", ('label = "node=19"', 'label = ["node=19"]', 'label = {node = "19"}')),
        ("dataset", ("split = [0.5, 0.2, 0.3]", 'split = "0.5,0.2,0.3"')),
        ("dataset", ('no_label = "-1,-2"', 'no_label = ["-1", "-2"]', "no_label = [-1, -2]")),
        ("dataset", ('features = "user=a,b,item=c"', 'features = ["user=a", "b", "item=c"]')),
        ("dataset", ('relation = "a:b:c=x.csv,d:e:f=y.csv"', 'relation = ["a:b:c=x.csv", "d:e:f=y.csv"]')),
        ("dataset", ('nodes = "a=x.csv,b=y.csv"', 'nodes = ["a=x.csv", "b=y.csv"]')),
        ("score", ('fanouts = "10,5"', "fanouts = [10, 5]", 'fanouts = ["10", "5"]')),
        (
            "score",
            ('train = "node=a.npy,x=b.npy"', 'train = ["node=a.npy", "x=b.npy"]', 'train = {node="a.npy",x="b.npy"}'),
        ),
        (
            "layout",
            ('dtype = "node=int8,x=float16"', 'dtype = ["node=int8", "x=float16"]', 'dtype={node="int8",x="float16"}'),
        ),
    ],
)
def test_a_list_is_a_text_with_commas(tmp_path: Path, section: str, forms: tuple[str, ...]) -> None:
    found = []
    for form in forms:
        text = f"[{section}]\n{form}\n"
        text += '[dataset]\npath = "x"\n' if section != "dataset" else 'path = "x"\n'
        (tmp_path / "c.toml").write_text(text)
        made = read_config(tmp_path / "c.toml")
        own = {"dataset": ImportOptions.parse({k: v for k, v in made.dataset.items() if k != "path"})}
        sampled = {k: v for k, v in made.score.items() if k not in ("train", "method")}
        own |= {
            "score": (made.score.get("train"), SamplingOptions(**{"fanouts": (-1,), **sampled})),
            "layout": made.layout.dtypes,
        }
        found.append(own[section])
    assert all(one == found[0] for one in found)


def test_the_page_of_keys_has_each_of_them(repository: Path) -> None:
    """By name, or in one of the tables of options that the site puts in."""
    page = (repository / "docs" / "chain.md").read_text()
    tables = [getattr(import_module(m), name) for m, name in re.findall(r"^%options ([\w.]+)\.(\w+)%$", page, re.M)]
    listed = {key for table in tables for key in options_of(table)}
    for section, keys in known_keys().items():
        assert f"[{section}]" in page
        assert [key for key in keys if key not in listed and f"`{key}`" not in page and f"] {key}`" not in page] == []
