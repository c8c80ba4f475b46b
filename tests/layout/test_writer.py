"""Layouts on disk: every row of every type comes back, whatever the sizes; nothing half-made is left."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_reader import read_rows
from toy_datasets import chain, toy_dataset, tree_bytes

import tiering
from tiering.errors import ExistsError, InputError, StorageError
from tiering.pipeline import layout as write_layout


def check_rows(layout, toy):
    """Compare every tiered row with its source, through a reader of its own."""
    assert tiering.check(layout.path, "full") == []
    assert set(layout.feature_types) == set(toy.tables)
    for node_type, table in toy.tables.items():
        expected = table.view(np.uint8).reshape(table.shape[0], -1)[layout.graph.new_to_old(node_type)]
        np.testing.assert_array_equal(read_rows(layout.path, node_type), expected)


@pytest.mark.slow
@settings(max_examples=16)
@given(
    seed=st.integers(0, 2**32),
    shares=st.tuples(st.integers(0, 40), st.integers(0, 20), st.integers(1, 3), st.integers(0, 40)),
    num_ssd=st.integers(0, 3),
    page=st.sampled_from([512, 1024, 4096, 16384]),
    features=st.booleans(),
)
def test_every_row_comes_back(seed, shares, num_ssd, page, features):
    gpu, peer, peers, cpu = shares
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        toy = toy_dataset(where / "data", seed)
        graph, scores, reordered = chain(toy, where)
        if features:
            reordered = tiering.pipeline.reorder_graph(graph, scores, where / "permuted", features=True)
        disks = [where / f"ssd{k}" for k in range(num_ssd)]
        options = {"gpu": f"{gpu}%", "peer": f"{peers}x{peer}%", "page": page, "ssd": disks, "threads": 2}
        if num_ssd:
            options["cpu"] = f"{cpu}%"
        try:
            layout = write_layout(reordered, where / "layout", **options)
        except InputError:  # tiny data: a share is less than a row, or nothing is left for a tier
            assert not (where / "layout").exists()
            assert not any(disk.exists() for disk in disks)
            return
        check_rows(layout, toy)


@pytest.mark.parametrize(("dim", "dtype"), [(1024, "float32"), (128, "float32"), (768, "float16"), (602, "float32")])
@pytest.mark.parametrize("page", [512, 4096])
def test_row_sizes_of_real_datasets(tmp_path, dim, dtype, page):
    """IGB 4096 B, papers100M 512 B, MAG240M 1536 B, Reddit 2408 B."""
    toy = toy_dataset(tmp_path / "data", 1, types=1, dims=(dim,), dtypes=(dtype,), featureless=0, min_nodes=30)
    *_, reordered = chain(toy, tmp_path)
    layout = write_layout(reordered, tmp_path / "layout", gpu="20%", ssd=[tmp_path / "a", tmp_path / "b"], page=page)
    check_rows(layout, toy)
    stride = layout.type_layout("author").ssd_rows.stride
    assert stride == {4096: 4096, 512: 512, 1536: 1536, 2408: 2560}[layout.type_layout("author").row_bytes]


@pytest.fixture
def reordered(tmp_path):
    toy = toy_dataset(tmp_path / "data", 21, max_nodes=400, min_nodes=300, max_edges=3000, featureless=0)
    return chain(toy, tmp_path)[2]


def test_same_bytes_for_any_number_of_threads(reordered, tmp_path):
    trees = []
    for threads in (1, 2, 7):
        disks = [tmp_path / "a", tmp_path / "b"]
        write_layout(
            reordered, tmp_path / "layout", gpu="10%", peer="2x10%", cpu="10%", ssd=disks, threads=threads, force=True
        )
        trees.append({d.name: tree_bytes(d) for d in [tmp_path / "layout", *disks]})
    assert trees[0] == trees[1] == trees[2]


def test_no_features_no_tiers(tmp_path):
    toy = toy_dataset(tmp_path / "data", 2, featureless=1)
    *_, reordered = chain(toy, tmp_path)
    with pytest.raises(InputError, match=r"sizes of tiers need features.*random_features=DIM"):
        write_layout(reordered, tmp_path / "layout", gpu="1GiB", ssd=[tmp_path / "ssd"])
    layout = write_layout(reordered, tmp_path / "layout")
    assert layout.num_images == 0
    assert not (tmp_path / "ssd").exists()
    assert layout.feature_types == []
    check_rows(layout, toy)


def test_two_ssds_on_one_path(reordered, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").touch()
    for other in ("real", "link", "real/../real"):
        with pytest.raises(InputError, match=f"real and .*{other} are the same directory"):
            write_layout(reordered, tmp_path / "layout", ssd=[tmp_path / "real", tmp_path / other])
    with pytest.raises(InputError, match="are the same directory"):
        write_layout(reordered, tmp_path / "layout", ssd=[tmp_path / "new", f"{tmp_path}/./new/"])
    with pytest.raises(InputError, match="expected a directory, found a file"):
        write_layout(reordered, tmp_path / "layout", ssd=[tmp_path / "file"])


def test_a_changed_feature_file_is_refused_before_anything_is_written(reordered, tmp_path):
    path = tmp_path / "data" / "paper.bin"
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(InputError, match=r"paper.bin: the feature file changed .* import the graph again"):
        write_layout(reordered, tmp_path / "layout", ssd=[tmp_path / "ssd"])
    path.unlink()
    with pytest.raises(InputError, match=r"paper.bin: the feature file changed .*does not exist"):
        write_layout(reordered, tmp_path / "layout", ssd=[tmp_path / "ssd"])
    assert not (tmp_path / "ssd").exists()
    assert not (tmp_path / "layout").exists()


def test_force_replaces_the_images_too(reordered, tmp_path):
    disk, other = tmp_path / "ssd", tmp_path / "other"
    first = write_layout(reordered, tmp_path / "layout", cpu=0, ssd=[disk])
    old = first.images[0]
    with pytest.raises(ExistsError, match="force=True"):
        write_layout(reordered, tmp_path / "layout", gpu="10%", ssd=[disk])
    assert old.exists()
    same = write_layout(reordered, tmp_path / "layout", cpu=0, ssd=[disk], force=True)
    assert same.digest == first.digest
    second = write_layout(reordered, tmp_path / "layout", gpu="10%", ssd=[disk], force=True)
    assert not old.exists()
    third = write_layout(reordered, tmp_path / "layout", gpu="10%", ssd=[other], force=True)
    assert not second.images[0].exists()
    assert list(disk.iterdir()) == []
    assert [path.name for path in other.iterdir()] == [third.images[0].parent.name]
    assert tiering.check(third.path, "full") == []


def test_layouts_of_one_name_do_not_share_images(reordered, tmp_path):
    one = write_layout(reordered, tmp_path / "one" / "layout", cpu=0, ssd=[tmp_path / "ssd"])
    two = write_layout(reordered, tmp_path / "two" / "layout", cpu=0, ssd=[tmp_path / "ssd"])
    assert one.images != two.images
    write_layout(reordered, tmp_path / "one" / "layout", cpu=0, ssd=[tmp_path / "elsewhere"], force=True)
    assert tiering.check(two.path, "full") == []


def test_a_full_disk(reordered, tmp_path, monkeypatch):
    monkeypatch.setattr("tiering.artifacts.storage.disk_free", lambda path: 100)
    with pytest.raises(StorageError, match=r"no space left: .* needed, .* free; make room"):
        write_layout(reordered, tmp_path / "layout", gpu="80%", ssd=[tmp_path / "ssd"])
    assert not (tmp_path / "layout").exists() and not (tmp_path / "ssd").exists()


@pytest.mark.parametrize("where", ["writer.move_items", "writer.ArtifactWriter.adopt", "writer.ArtifactWriter.commit"])
def test_a_bug_in_the_middle_leaves_nothing(reordered, tmp_path, monkeypatch, where):
    disks = [tmp_path / "deep" / "a", tmp_path / "deep" / "b"]
    before = sorted(path.name for path in tmp_path.iterdir())

    def fail(*arguments):
        raise RuntimeError("boom")

    monkeypatch.setattr(f"tiering.layout.{where}", fail)
    with pytest.raises(RuntimeError, match="boom"):
        write_layout(reordered, tmp_path / "layout", gpu="10%", ssd=disks)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    monkeypatch.undo()
    layout = write_layout(reordered, tmp_path / "layout", gpu="10%", ssd=disks)
    monkeypatch.setattr(f"tiering.layout.{where}", fail)
    with pytest.raises(RuntimeError, match="boom"):
        write_layout(reordered, tmp_path / "layout", gpu="10%", ssd=disks, force=True)
    assert tiering.check(layout.path, "full") == []
    assert [[path.name for path in disk.iterdir()] for disk in disks] == [[layout.images[0].parent.name]] * 2
