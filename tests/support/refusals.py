"""What a dataset is refused with."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tiering.datasets.open import open_dataset
from tiering.errors import InputError, TieringError


def refused(message: str, *source: Any, error: type[TieringError] = InputError, **options: Any) -> None:
    """Opening the source, a path and perhaps a format, raises an error whose message, with flags, has a pattern."""
    with pytest.raises(error) as told:
        open_dataset(*source, **options)
    assert re.search(message, told.value.args[0])
