"""Errors that the test of drive_rows.hpp notices: each is made in a copy of the header, and the test must fail.

``make long-test NAMES=others`` tries all of them.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")]

CPP = Path(__file__).parent
EXT = CPP.parents[1] / "ext" / "include"
HEADER = EXT / "tiering" / "nvme" / "drive_rows.hpp"
SYNC, RING = "    warp_.sync();\n", "    if (warp_.lane() == 0) Link::ring(queue_.submit_bell, entry(submitted_));"
MUTATIONS = {
    "ring before the lanes have written": (SYNC + RING, RING),
    "one command too many": ("drives_.depth - 1 - (submitted_ - reaped_)", "drives_.depth - (submitted_ - reaped_)"),
    "phase ignored": ("== phase_of(number, drives_.depth)", "== 1"),
    "phase of the round before": ("phase_of(number, drives_.depth)", "phase_of(number + drives_.depth, drives_.depth)"),
    "completion bell not rung": ("Link::ring(queue_.complete_bell, entry(reaped_))", "void()"),
    "bell beyond the queue": ("Link::ring(queue_.submit_bell, entry(submitted_))",
                              "Link::ring(queue_.submit_bell, submitted_)"),
    "landing place of another": ("queue_.places + size_t{place}", "queue_.places + size_t{place ^ 1}"),
    "status ignored": ("status != 0)", "status > 0xfff)"),
    "page asked for again in each chunk": ("(item == 0 ||", "(warp_.lane() == 0 ||"),
    "rows of a page end early": ("for (; item < total_; ++item)",
                                 "for (uint32_t n = 0; item < total_ && n < 4; ++item, ++n)"),
    "block of another drive": ("static_cast<uint64_t>(geometry.image_offset(page))",
                               "static_cast<uint64_t>(geometry.image_offset(page + 1))"),
    "second memory page": ("first + kDrivePage : 0", "first : 0"),
    "address of the first chunk": ("queue_.chunks[at >> DriveQueue::kChunkBits]", "queue_.chunks[0]"),
    "rows left out when the queue is full": ("next_ += warp_.lowest(warp_.ballot(mine && rank == fits))",
                                             "next_ += Warp::kLanes"),
    "rows taken again when the queue was full": ("next_ += warp_.lowest(warp_.ballot(mine && rank == fits))",
                                                 "next_ += 0"),
    "no patience": ("else if (Link::nanoseconds() - since > drives_.patience)", "else if (false)"),
    "patience for the whole launch": ("        since = Link::nanoseconds();\n", ""),
    "stop word not looked at": ("Link::load_acquire(drives_.stop) != 0", "false"),
    "numbers not kept": ("queue_.submitted = submitted_;", "queue_.submitted = 0;"),
    "place free before its rows are copied": ("      warp_.sync();\n      if (warp_.lane() == 0) {",
                                              "      if (warp_.lane() == 0) {"),
    "ids of all rounds alike": ("(place | number / drives_.depth * drives_.depth) & 0xffff", "place"),
    "id not compared": (" || read.id != DriveCompletion::id(came)", ""),
    "piece of a row too long": ("end < start + page_bytes ? end : start + page_bytes", "end"),
    "piece of a row from its begin": ("static_cast<uint32_t>(first - begin)", "0U"),
}  # fmt: skip


@pytest.fixture(scope="module")
def checks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the test without the header's functions, which each mutation compiles anew."""
    out = tmp_path_factory.mktemp("checks") / "checks.o"
    core = [str(EXT.parent / "src" / "nvme" / f"{name}.cpp") for name in ("drive", "drive_queues")]
    compiled("-r", str(CPP / "test_drive_rows.cpp"), *core, out=out)
    return out


@pytest.mark.parametrize(
    "name", [None, *(pytest.param(name, marks=[pytest.mark.long] * (k % 9 > 0)) for k, name in enumerate(MUTATIONS))]
)
def test_errors_are_noticed(name: str | None, checks: Path, tmp_path: Path) -> None:
    text = HEADER.read_text()
    if name is not None:
        before, after = MUTATIONS[name]
        assert before in text
        text = text.replace(before, after, 1)
    copy = tmp_path / "tiering" / "nvme" / "drive_rows.hpp"
    copy.parent.mkdir(parents=True)
    copy.write_text(text)
    compiled(str(CPP / "drive_lanes.cpp"), str(checks), out=tmp_path / "test", first=tmp_path)
    try:
        # what hangs is noticed, too
        ran = subprocess.run([tmp_path / "test", "500"], capture_output=True, timeout=60 if name is None else 6)
        failed = ran.returncode != 0
    except subprocess.TimeoutExpired:
        failed = True
    assert failed == (name is not None)


def compiled(*arguments: str, out: Path, first: Path | None = None) -> None:
    """Compile, with headers from `first` before others of their name."""
    folders = [folder for folder in (first, EXT, CPP) if folder is not None]
    includes = [f"-I{folder}" for folder in folders]
    subprocess.run(["g++", "-std=c++20", "-O0", "-pthread", *includes, *arguments, "-o", str(out)], check=True)
