"""Loaders whose disk returns EIO or a part of what was asked for: an error or none, no hang, and what follows works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import calls
import pytest

pytestmark = pytest.mark.usefixtures("watchdog")
BEGIN = """
    import json, mmap, sys, pathlib
    import calls, tiering
    from epochs import rows, same, small_batches, truth
    from tight_memory import tight_loader
    layout = tiering.open(sys.argv[1])
    options = {**small_batches(pathlib.Path(sys.argv[1]).parent), "direct": "off"}  # auto would look at the page cache
    expected = [truth(layout, options, epoch) for epoch in range(3)]
    images = sorted({str(image.parent) for image in layout.artifact.images})
    shared = mmap.mmap(-1, 4096)
    def arm(**order):
        calls.arm({"below": images, **order}, shared)
    def read(loader, epoch):
        try:
            return same(rows(loader.epoch(epoch)), expected[epoch])
        except tiering.errors.TieringError as error:
            return str(error)
    def tight(engine="threads"):
        return tight_loader(layout, 30, engine=engine, **options)
"""
"""What `in_process` begins with. `arm`: reads of the images fail; `read`: whether an epoch's rows are right."""


def in_process(layout: Any, script: str, library: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A script in a process of its own, which a minute ends; `library`: of `calls.build`."""
    environment = os.environ if library is None else {**os.environ, "LD_PRELOAD": str(library)}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(BEGIN) + textwrap.dedent(script), layout.path],
        capture_output=True, text=True, timeout=300, check=False, env=environment,
    )  # fmt: skip


def test_a_disk_that_answers_in_part_or_fails_once(layout, tmp_path):
    """Reads that end early or are interrupted are gone on with. EIO is an error: while the disk's speed is measured,
    while batches are read, and while all rows are taken into memory.
    """
    script = """
        def fail_at(reads):
            arm(at=int.from_bytes(shared[:8], "little") + reads, errno="EIO")
        loader = tight()
        arm(longest=5000)  # not a whole number of blocks
        before = shared[:8]
        print(read(loader, 0), shared[:8] != before)
        arm(at=int.from_bytes(shared[:8], "little") + 3, errno="EINTR")
        print(read(loader, 1), calls.counted(shared)["errno"])
        memory = loader.options.memory.memory
        unmeasured = layout.loader(**{**options, "ssd_model": "measured"}, engine="threads", memory=memory)
        for reads in (1, 3, 40):  # when images are opened to be measured, are measured, are read
            fail_at(reads)
            print(read(unmeasured, 0))
        print(read(unmeasured, 0))
        fail_at(20)
        print(read(loader, 1))
        print(read(loader, 1))
        for reads in (1, 8):
            fail_at(reads)
            try:
                layout.loader(**options, engine="threads", memory="1GiB")
            except tiering.errors.StorageError as error:
                print(error)
        whole = layout.loader(**options, engine="threads", memory="1GiB")
        print(whole.lookahead, read(whole, 2))
    """
    done = in_process(layout, script, calls.build(tmp_path))
    assert done.returncode == 0, done.stderr
    short, interrupted, *lines = done.stdout.splitlines()
    assert (short, interrupted) == ("True True", "True EINTR")
    opening, measuring, reading_first, good, reading, again, *preloading, whole = lines
    assert (good, again, whole) == ("True", "True", "None True")
    for line in (opening, measuring, reading_first, reading, *preloading):
        assert re.search(r"ssd-[01]-of-2: (reading \d+ bytes at byte \d+: )?Input/output error$", line), line
    assert len(preloading) == 2


def test_an_interpreter_that_ends_by_an_error_of_the_disk(layout, engine):
    """It says so and is gone; the next one reads what the disk has again."""
    fail = """
        import os
        loader = tight()
        epoch = iter(loader)
        next(epoch)
        lost = os.open("/proc/self/mem", os.O_RDONLY)
        for fd in os.listdir("/proc/self/fd"):
            try:
                name = os.path.basename(os.readlink("/proc/self/fd/" + fd))
            except FileNotFoundError:  # another thread has closed it meanwhile
                continue
            if "ssd-" in name:
                os.dup2(lost, int(fd))
        list(epoch)
    """
    done = in_process(layout, fail.replace("tight()", f"tight({engine!r})"))
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1, done.stderr
    assert "extraction failed: StorageError: " in last and last.endswith("Input/output error")
    assert "terminate" not in done.stderr
    after = in_process(layout, "print(read(tight(), 1))")
    assert (after.returncode, after.stdout) == (0, "True\n"), after.stderr
