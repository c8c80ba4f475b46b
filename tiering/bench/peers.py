"""What the benchmarks share about peers: whether they are there, and whether they compute the same."""

from __future__ import annotations

from typing import Any

from tiering.errors import InternalError


def scipy_sparse() -> Any:
    """``scipy.sparse``, or ``None`` where it is not installed."""
    try:
        from scipy import sparse
    except ImportError:
        return None
    return sparse


def expect(benchmark: str, same: bool, what: str) -> None:
    """Refuse to time what does not compute the same.

    Raises
    ------
    InternalError
        If `same` is false; `what` says what differs.
    """
    if not same:
        raise InternalError(f"benchmark {benchmark}: our result and the peer's differ in their {what}")
