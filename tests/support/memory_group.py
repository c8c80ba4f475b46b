"""Run `tiering` within a memory limit that the kernel enforces, or skip the test where none can be made."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from benchmarks import memory_group as control
from tiering.errors import CapabilityError


@dataclass(frozen=True)
class LimitedRuns:
    """Runs inside a group."""

    group: control.MemoryGroup

    def run(self, *argv: Any) -> subprocess.CompletedProcess[str]:
        """Run `tiering` with these arguments inside the group."""
        command = [sys.executable, "-m", "tiering.cli", *map(str, argv)]
        return subprocess.run(command, capture_output=True, text=True, preexec_fn=self.group.enter, timeout=300)


@contextmanager
def memory_group(limit: int) -> Iterator[LimitedRuns]:
    """A group of at most `limit` bytes; skips the test where none can be made."""
    with ExitStack() as stack:
        try:
            group = stack.enter_context(control.memory_group(limit))
        except CapabilityError as error:
            pytest.skip(str(error))
        yield LimitedRuns(group)
