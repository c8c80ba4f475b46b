"""System calls that fail with an error of choice, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

FORBID = """
    # Seccomp filters as container runtimes install them: a system call fails with an error of choice.
    import ctypes, struct
    SETUP, ENTER, EPERM, EINVAL, ENOMEM = 425, 426, 1, 22, 12
    libc = ctypes.CDLL(None, use_errno=True)

    def forbid(call, error, waiting=False):
        # io_uring_enter that waits: its third argument, the completions to wait for, is not 0.
        steps = [(0x20, 0, 0, 0), (0x15, 0, 3 if waiting else 1, call)]
        steps += [(0x20, 0, 0, 32), (0x15, 1, 0, 0)] if waiting else []
        steps += [(0x06, 0, 0, 0x00050000 | error), (0x06, 0, 0, 0x7FFF0000)]
        code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
        program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
        libc.prctl(38, 1, 0, 0, 0)
        if libc.prctl(22, 2, program, 0, 0) != 0:
            print("no seccomp here")
            raise SystemExit(0)
"""
"""Defines ``forbid(call, error, waiting)`` and numbers of calls and errors."""


def run_script(*parts: str, argument: object = "") -> str:
    """Run pieces of Python code, one after the other, in a process of its own; return what it printed."""
    code = "\n".join(textwrap.dedent(part) for part in ("from tiering import native", *parts))
    done = subprocess.run(
        [sys.executable, "-c", code, str(argument)], capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
