"""Signals that ask a command to end: the first stops it in order, the second at once."""

from __future__ import annotations

import os
import signal
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_last = signal.SIGINT
_loading = True


def install() -> None:
    """Handle the signals from here on, but for those that whoever started this process wants ignored."""
    for number in STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


def loaded() -> None:
    """Note that modules are loaded: from here on there may be work to stop in order."""
    global _loading
    _loading = False


def received() -> tuple[int, str]:
    """Exit code and words for the signal that stopped the command."""
    return 128 + _last, "interrupted" if _last == signal.SIGINT else f"stopped by {_last.name}"


def _stop(number: int, frame: FrameType | None) -> None:
    global _last
    _last = signal.Signals(number)
    if _loading:
        code, words = received()
        os.write(2, f"{words}\n".encode())
        os._exit(code)
    for other in STOPPING:
        if signal.getsignal(other) is _stop:
            signal.signal(other, signal.SIG_DFL)
    raise KeyboardInterrupt
