"""The memory of a GPU filled by kvikio, on a simulated device, by a module with the signatures of kvikio 26.10.

Those were read in its wheel (kvikio/cufile.py, defaults.py, cufile_driver.py); where kvikio is installed they are
compared. The real one cannot read without a driver of CUDA, not even into host memory.
"""

from __future__ import annotations

import ctypes
import inspect
import logging
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from tiering.errors import CapabilityError, FormatError, InputError, StorageError
from tiering.loader.gpu.fill import GDS, fill_by_us, find_fill, gds_state


class IOFuture:
    def __init__(self, count):
        self._count = count

    def get(self) -> int:
        return self._count


class CuFile:
    """Reads into what an address names: the simulated device has its memory on the host."""

    failing = ""
    reads: list[tuple[str, int, int]] = []  # noqa: RUF012 - emptied by the fixture

    def __init__(self, file, flags="r"):
        self._file = Path(file).open("rb")  # noqa: SIM115 - closed on exit

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc_val, exc_tb):
        self._file.close()

    def pread(self, buf, size=None, file_offset=0, task_size=None):
        if self.failing:
            raise RuntimeError(self.failing)
        interface = buf.__cuda_array_interface__
        assert interface["typestr"] == "|u1" and interface["version"] == 3 and interface["strides"] is None
        (length,), (address, read_only) = interface["shape"], interface["data"]
        assert length >= size and not read_only
        self._file.seek(file_offset)
        found = self._file.read(size)
        ctypes.memmove(address, found, len(found))
        self.reads.append((self._file.name, file_offset, size))
        return IOFuture(len(found))


class State:
    compat, gds = False, True


def is_compat_mode_preferred():
    return State.compat


def get(config_name):
    assert config_name == "is_gds_available"
    return State.gds


@pytest.fixture
def kvikio(monkeypatch):
    """The module, as if installed where GPUDirect Storage works."""
    for attribute, value in (("failing", ""), ("reads", [])):
        monkeypatch.setattr(CuFile, attribute, value)
    for attribute, value in (("compat", False), ("gds", True)):
        monkeypatch.setattr(State, attribute, value)
    modules = {
        name: ModuleType(name) for name in ("kvikio", "kvikio.cufile", "kvikio.defaults", "kvikio.cufile_driver")
    }
    modules["kvikio.cufile"].CuFile = CuFile
    modules["kvikio.defaults"].is_compat_mode_preferred = is_compat_mode_preferred
    modules["kvikio.cufile_driver"].get = get
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return CuFile


@pytest.fixture
def no_kvikio(monkeypatch):
    for name in ("kvikio", "kvikio.cufile", "kvikio.defaults", "kvikio.cufile_driver"):
        monkeypatch.setitem(sys.modules, name, None)


def random_layout(kit, build, rows=700, row_bytes=602, tiers=(300, 200, 100)):
    """A layout of random bytes with two peers, and its rows by rank."""
    table = np.random.default_rng(1).integers(0, 256, (rows, row_bytes), dtype=np.uint8)
    data = kit.Dataset({"paper": kit.Nodes(rows, table, "uint8", tiers=tiers)}, peers=2)
    return build(data), table[data.order("paper")]


@pytest.mark.parametrize("choice", ["auto", "on"])
def test_rows_are_those_of_the_files(gpu, kit, build, kvikio, choice):
    layout, rows = random_layout(kit, build)
    with layout.features(device="cuda", kvikio=choice) as features:
        np.testing.assert_array_equal(features.gather(np.arange(700)).numpy(), rows)
    path = layout.artifact.tier_path("paper", "gpu")
    assert (str(path), 0, 300 * 602) in kvikio.reads
    assert path.stat().st_size == 300 * 602


def test_off_never_looks_at_kvikio(gpu, kit, build, kvikio):
    layout, rows = random_layout(kit, build)
    with layout.features(device="cuda", kvikio="off") as features:
        np.testing.assert_array_equal(features.gather(np.arange(700)).numpy(), rows)
    assert kvikio.reads == []


@pytest.mark.parametrize(
    ("state", "said"), [({"compat": True}, "compatibility mode"), ({"gds": False}, "cuFile without GPUDirect Storage")]
)
def test_auto_needs_direct_storage(monkeypatch, kvikio, state, said):
    assert gds_state() == GDS and find_fill("auto") is not fill_by_us
    for attribute, value in state.items():
        monkeypatch.setattr(State, attribute, value)
    assert gds_state() == said and find_fill("auto") is fill_by_us and find_fill("on") is not fill_by_us


def test_a_kvikio_that_does_not_know_is_not_used(monkeypatch, kvikio):
    monkeypatch.delattr(sys.modules["kvikio.defaults"], "is_compat_mode_preferred")
    assert gds_state().startswith("not known: ") and find_fill("auto") is fill_by_us


def test_where_it_is_not_installed(gpu, kit, build, no_kvikio):
    assert find_fill("auto") is find_fill("off") is fill_by_us
    layout, _ = random_layout(kit, build)
    with pytest.raises(CapabilityError, match=r"kvikio='on': kvikio cannot be imported .*pip install kvikio-cu1\d"):
        layout.features(device="cuda", kvikio="on")
    with pytest.raises(CapabilityError, match="kvikio='on'"):
        layout.loader(seeds=[1], device="cuda", kvikio="on", features=None, sample_on="gpu")


def test_a_kvikio_that_lacks_a_library(kvikio, monkeypatch, tmp_path):
    """kvikio's wheel looks for libcufile as it is imported, and raises a RuntimeError where there is none."""
    (tmp_path / "kvikio").mkdir()
    (tmp_path / "kvikio" / "__init__.py").write_text("raise RuntimeError('no libcufile.so.0')")
    for name in ("kvikio", "kvikio.cufile", "kvikio.defaults", "kvikio.cufile_driver"):
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    assert find_fill("auto") is fill_by_us and gds_state() == "not known: no libcufile.so.0"
    with pytest.raises(CapabilityError, match=r"cannot be imported \(no libcufile.so.0\)"):
        find_fill("on")


def test_bad_choice(kit, build):
    layout, _ = random_layout(kit, build)
    with pytest.raises(InputError, match="kvikio: expected auto, on or off, found 'AUTO'"):
        layout.features(kvikio="AUTO")


def test_lists_on_the_gpu(gpu, kit, build, kvikio):
    """Batches are those of the host, and files of the graph are read by kvikio."""
    layout = build(kit.small_graph())
    options = {"fanouts": [3, 3], "batch_size": 4, "shuffle": False}
    for ours, theirs in zip(
        layout.loader(device="cuda", kvikio="on", **options), layout.loader(**options), strict=True
    ):
        assert torch.equal(ours.x, theirs.x)
        for node_type, nodes in theirs.nodes.items():
            np.testing.assert_array_equal(np.asarray(ours.nodes[node_type]), np.asarray(nodes))
    tiers = {str(layout.artifact.tier_path(t, "gpu")) for t in layout.feature_types}
    assert {name for name, *_ in kvikio.reads} - tiers


def test_what_it_cannot_read(gpu, kit, build, kvikio, monkeypatch, caplog):
    layout, rows = random_layout(kit, build)
    monkeypatch.setattr(CuFile, "failing", "cuFile error: 5027")
    with pytest.raises(StorageError, match=r"kvikio could not read it: cuFile error: 5027; kvikio='off' reads"):
        layout.features(device="cuda", kvikio="on")
    with caplog.at_level(logging.WARNING), layout.features(device="cuda", kvikio="auto") as features:
        np.testing.assert_array_equal(features.gather(np.arange(700)).numpy(), rows)
    assert "it is read without kvikio" in caplog.text


def test_checksums_are_compared_before(gpu, kit, build, kvikio):
    layout, rows = random_layout(kit, build)
    path = layout.artifact.tier_path("paper", "gpu")
    with path.open("r+b") as file:
        file.write(bytes(rows[0, :1] ^ 1))
    with pytest.raises(FormatError, match="paper/gpu"):
        layout.features(device="cuda", kvikio="on", verify=True)
    assert kvikio.reads == []


def test_a_file_that_was_cut(gpu, kit, build, kvikio):
    layout, _ = random_layout(kit, build)
    path = layout.artifact.tier_path("paper", "gpu")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(FormatError, match=rf"tiers/paper/gpu: ends at byte {300 * 602 - 5}, expected {300 * 602}"):
        layout.features(device="cuda", kvikio="on")


def test_signatures_are_kvikios():
    real = pytest.importorskip("kvikio.cufile")
    for ours, theirs in (
        (CuFile.__init__, real.CuFile.__init__),
        (CuFile.pread, real.CuFile.pread),
        (CuFile.__exit__, real.CuFile.__exit__),
        (is_compat_mode_preferred, import_module("kvikio.defaults").is_compat_mode_preferred),
        (get, import_module("kvikio.cufile_driver").get),
    ):
        expected = {name: part.default for name, part in inspect.signature(theirs).parameters.items()}
        assert {name: part.default for name, part in inspect.signature(ours).parameters.items()} == expected
    assert gds_state() and callable(find_fill("auto"))
