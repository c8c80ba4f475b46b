"""Work in a forked child, which may crash or hang: what is hunted."""

from __future__ import annotations

import os
import pickle
import select
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any


class Child:
    """A fork that does `work`; `result` gives what that returned."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._pipe, there = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _do(work, there)
        os.close(there)

    def result(self, seconds: float = 300.0) -> Any:
        """What `work` returned. A signal, an exception or silence is a failure."""
        text, end = b"", time.monotonic() + seconds
        while select.select([self._pipe], [], [], max(0.0, end - time.monotonic()))[0]:
            part = os.read(self._pipe, 1 << 20)
            if not part:
                break
            text += part
        else:
            os.kill(self.pid, signal.SIGKILL)
        os.close(self._pipe)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        assert code == 0, f"the child ended with {code} after {text!r}"
        return pickle.loads(text)


def _do(work: Callable[[], Any], pipe: int) -> None:
    code = 1
    try:
        data = memoryview(pickle.dumps(work()))
        while data:
            data = data[os.write(pipe, data) :]
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def in_child(work: Callable[[], Any], seconds: float = 300.0) -> Any:
    """What `work` returns in a forked child."""
    return Child(work).result(seconds)
