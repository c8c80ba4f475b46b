"""State of one process: locks that forked children find open, warnings logged once, whether torch is installed."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from importlib.util import find_spec

from tiering.errors import CapabilityError

_log = logging.getLogger("tiering.loader")
_logged: set[str] = set()


class ForkLock:
    """A lock that a forked child finds open: the thread that holds it in the parent does not exist there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_locks: weakref.WeakSet[ForkLock] = weakref.WeakSet()


def _reopen_locks() -> None:
    for lock in _locks:
        lock._lock = threading.Lock()


os.register_at_fork(after_in_child=_reopen_locks)


def warn_once(message: str) -> None:
    """Log a warning the first time, later at level debug."""
    _log.log(logging.DEBUG if message in _logged else logging.WARNING, message)
    _logged.add(message)


def require_torch() -> None:
    """Raise a `CapabilityError` that says how to get torch, if it cannot be imported. Does not import it."""
    try:
        missing = find_spec("torch") is None
    except ValueError:  # an entry of sys.modules that is None or half imported
        missing = True
    if missing:
        raise CapabilityError(
            "tensors need torch, which is not installed: pip install 'tiering[torch]' (any torch of at least 2.1), "
            "or read rows without it through gather_numpy"
        )
