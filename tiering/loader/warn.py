"""Warnings that are said once per process: a loader opened for the hundredth time has nothing new to tell."""

from __future__ import annotations

import logging

log = logging.getLogger("tiering.loader")
_told: set[str] = set()


def warn_once(message: str) -> None:
    """Log a warning the first time; later only for debugging."""
    log.log(logging.DEBUG if message in _told else logging.WARNING, message)
    _told.add(message)
