"""The journal of a run watched, and stopped where a test says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tiering.artifacts.journal import Journal
from tiering.errors import StorageError


@contextmanager
def recording(fail_at: int | None = None) -> Iterator[list[str]]:
    """The keys recorded in a journal meanwhile; recording number `fail_at` fails as a dying disk does."""
    recorded: list[str] = []
    plain = Journal.record

    def record(self: Journal, key: str, **facts: Any) -> None:
        if fail_at is not None and len(recorded) >= fail_at:
            raise StorageError(5, "stopped here")
        recorded.append(key)
        plain(self, key, **facts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "record", record)
        yield recorded
