"""``python -m tiering.cli`` is ``tiering``."""

from .main import run

run()
