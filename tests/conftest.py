"""Fixtures shared by all tests: real data, tiny datasets, the command line in process."""

from __future__ import annotations

import gc
import importlib
import json
import os
import re
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# How long an example takes is the machine's affair.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "tests" / "support"))  # under pytest's importlib mode
sys.path.append(str(REPOSITORY))  # benchmarks/, which is not installed


# Tests send signals to their own process; what is started in the background of a script may ignore some of them.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Several processes of tests share the cores: torch's threads must not spin while they wait for each other.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# What tests write need not outlive the machine, and waiting for the disk would be half of their time. Processes of
# their own wait as ever: power cuts and full disks are simulated there. A test that empties the page cache calls this.
really_sync = os.fsync
os.fsync = os.fdatasync = lambda file: None


LOADED_LATER = ("torch.distributed", "tqdm")
EXTRA = re.compile(
    r"(ptx|loader/gpu|benchmarks)/|.*/test_(ray|cut_off|pygs_own|report_page)\w*\.py|test_(cuda|examples|notebooks|site)\.py"
)
"""Test files that need what `make test` leaves out: the simulated GPU, compiled kernels, Ray, a browser."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the `EXTRA` files out, with what they import, where their marker is deselected."""
    left_out = "not extra" in (config.option.markexpr or "") and is_extra(collection_path)
    return True if left_out else None


def is_extra(path: Path) -> bool:
    """Return whether a test file belongs to the suite `extra`."""
    return bool(EXTRA.match(path.relative_to(REPOSITORY / "tests").as_posix())) if path.suffix == ".py" else False


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the `EXTRA` files, and those that ask for a simulated GPU."""
    for item in items:
        if is_extra(item.path) or "gpu" in getattr(item, "fixturenames", ()):
            item.add_marker("extra")


def pytest_collection_finish(session: pytest.Session) -> None:
    """What imports made stays: collections need not look at it again. Many tests load the same in the end."""
    if len(session.items) > 1000:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in LOADED_LATER:
                with suppress(ImportError):
                    importlib.import_module(name)
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser without a window."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not here: `make browser` installs it")
    program = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser"))), None)
    if program is None:
        pytest.skip("no chromium-headless-shell and no chromium here: `make browser` installs one on Debian")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the checkout."""
    return REPOSITORY


@pytest.fixture
def example() -> Any:
    """The GraphSAGE example as a module."""
    return importlib.import_module("examples.train_graphsage")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Directory of real datasets beside the checkout; tests that need it skip where it is absent."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"real datasets are not here ({folder})")
    return folder


STEP_LINE = re.compile(r"\S+: step \d+ of \d+, \d+ of \d+ tasks")
"""What a stage of tasks says in a log once it has ended."""


@dataclass
class CommandResult:
    """What one command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as one JSON document."""
        return json.loads(self.out)

    def ok(self) -> CommandResult:
        """This result, if the command succeeded."""
        assert self.code == 0, f"exit code {self.code}\n{self.out}\n{self.err}"
        return self

    def refused(self, *words: str, code: int = 1) -> str:
        """The error line, after checking that it is one line, without traceback, and has `words` in it."""
        assert self.code == code, f"exit code {self.code}\n{self.out}\n{self.err}"
        lines = [line for line in self.err.splitlines() if line.strip() and not STEP_LINE.fullmatch(line)]
        assert len(lines) == 1, self.err
        assert lines[0].startswith("error: "), self.err
        assert "Traceback" not in self.out + self.err
        for word in words:
            assert word in lines[0], f"{word!r} is not in: {lines[0]}"
        return lines[0]


@pytest.fixture
def tiering_cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., CommandResult]:
    """``tiering_cli("info", path, "--json")`` runs a command in process."""
    from tiering.cli.main import main

    monkeypatch.delenv("TIERING_DEBUG", raising=False)

    def run(*arguments: object) -> CommandResult:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return CommandResult(code, captured.out, captured.err)

    return run


@pytest.fixture
def tiny_dataset(tmp_path: Path) -> Path:
    """A directory in npy format: 40 nodes, 200 edges, 6 float32 values a row, 3 classes, splits."""
    return write_tiny_dataset(tmp_path / "tiny")


def write_tiny_dataset(folder: Path, nodes: int = 40, edges: int = 200, dim: int = 6) -> Path:
    """Write a small random dataset in npy format and return its directory."""
    random = np.random.default_rng(7)
    folder.mkdir(parents=True)
    np.save(folder / "edge_index.npy", random.integers(0, nodes, (2, edges)))
    np.save(folder / "node_feat.npy", random.standard_normal((nodes, dim), dtype=np.float32))
    np.save(folder / "node_label.npy", random.integers(0, 3, nodes))
    order = random.permutation(nodes)
    for name, ids in zip(("train", "val", "test"), np.split(order, [nodes // 2, 3 * nodes // 4]), strict=True):
        np.save(folder / f"{name}_idx.npy", ids)
    return folder


@pytest.fixture
def settled_memory() -> None:
    """What earlier tests left behind is given back first: it would go while a test compares what is held."""
    import peaks

    peaks.settle()


@pytest.fixture
def peak_memory() -> Callable[[], Any]:
    """A context manager that watches this process's anonymous and shared memory, every 2 ms."""
    import peaks

    return peaks.peak_memory


@pytest.fixture(scope="session")
def object_store() -> Iterator[Any]:
    """A simulated S3 (`object_store.ObjectStore`), for all tests of a process."""
    from object_store import ObjectStore

    store = ObjectStore()
    yield store
    store.stop()


@pytest.fixture
def s3(object_store: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of an empty bucket, which clients in this process, and in those that it starts, find by their environment."""
    for name, value in object_store.environment().items():
        monkeypatch.setenv(name, value)
    bucket: str = object_store.make_bucket()
    return bucket
