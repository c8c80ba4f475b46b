"""What every machine of a cluster must have before tasks run there: this version, quick notice of machines that are cut
off, and the store. A probe looks on each machine; what it found is judged here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiering.errors import CapabilityError
from tiering.version import __version__

KEEPALIVE = ("RAY_grpc_client_keepalive_time_ms", "RAY_grpc_client_keepalive_timeout_ms")
"""How Ray is told when to ask a silent connection whether somebody is there, and how long to wait for the answer.

Its defaults are 300000 and 120000: who waits for a machine whose cable was cut goes on waiting for 7 minutes.
"""
LONGEST_MS = 10_000


@dataclass(frozen=True)
class Question:
    """What a probe is asked, picklable without this package."""

    settings: tuple[str, ...]
    version: str
    store: str | None = None
    folder: str = ""
    """In the store, of objects that serve nothing else."""
    content: bytes = b""
    """Of the object that who asks has put there."""

    def plain(self) -> dict[str, Any]:
        return vars(self)


@dataclass(frozen=True)
class Answer:
    """What a probe found on a machine."""

    host: str
    version: str | None
    """Of this package; ``None`` if it cannot be imported."""
    why: str = ""
    """Why it cannot."""
    settings: Mapping[str, str | None] | None = None
    store: str = ""
    """What is wrong with the store, as seen from there."""


def probe() -> Callable[[Mapping[str, Any], str], dict[str, Any]]:
    """A function that answers a question where it runs, as plain values: it travels by its code, so that it also runs
    where this package is missing or of another version.
    """

    def look(question: Mapping[str, Any], name: str) -> dict[str, Any]:
        import os
        import socket

        found: dict[str, Any] = {"host": socket.gethostname(), "version": None}
        found["settings"] = {key: os.environ.get(key) for key in question["settings"]}
        try:
            from tiering.version import __version__ as version

            found["version"] = version
        except Exception as error:
            return {**found, "why": f"{type(error).__name__}: {error}"}
        if version != question["version"] or question["store"] is None:
            return found
        try:
            from tiering.cluster.store import open_store

            store = open_store(question["store"])
            if store.read(f"{question['folder']}/driver").tobytes() != question["content"]:
                return {**found, "store": "another object is there than was put"}
            store.claim(f"{question['folder']}/{name}", question["content"])
        except Exception as error:
            return {**found, "store": str(error) or type(error).__name__}
        return found

    return look


def check_driver() -> None:
    """Refuse settings of this process by which it would not notice that a machine is cut off."""
    slow = _slow(os.environ)
    if slow:
        raise CapabilityError(f"this process: {slow}; {_export('before it starts')}")


def check_answers(answers: Sequence[Answer], store: str | None) -> None:
    """Refuse a cluster of which a machine cannot take part; all such machines are named, for one reason at a time."""
    other = [f"{a.host} ({a.version or 'none: ' + a.why})" for a in answers if a.version != __version__]
    if other:
        raise CapabilityError(
            f"every machine needs tiering {__version__}, as here; found on {_named(other)}; install that version where "
            "the workers' Python finds it, and start Ray there again"
        )
    slow = [f"{a.host} ({_slow(a.settings or {})})" for a in answers if _slow(a.settings or {})]
    if slow:
        raise CapabilityError(f"Ray on {_named(slow)}; {_export('on every machine before `ray start`')}")
    blind = [f"{a.host} ({a.store})" for a in answers if a.store]
    if blind:
        raise CapabilityError(
            f"store {store}: every machine has to read and write there what the others do; this fails on "
            f"{_named(blind)}; choose a directory that all machines mount under the same path"
        )


def _slow(environment: Mapping[str, str | None]) -> str:
    """Settings that are missing or too long, in words; empty if there are none."""
    found = {name: environment.get(name) for name in KEEPALIVE}
    wrong = {name: value for name, value in found.items() if not _quick(value)}
    if not wrong:
        return ""
    words = ", ".join(f"{name} is {value or 'not set'}" for name, value in wrong.items())
    return f"would notice only after minutes that a machine is cut off: {words}"


def _quick(value: str | None) -> bool:
    return value is not None and value.isdecimal() and 0 < int(value) <= LONGEST_MS


def _export(when: str) -> str:
    return "export " + " ".join(f"{name}={LONGEST_MS}" for name in KEEPALIVE) + f" {when}"


def _named(machines: Sequence[str]) -> str:
    """The first machines, and how many there are beside them."""
    shown = sorted(set(machines))[:5]
    more = len(set(machines)) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")
