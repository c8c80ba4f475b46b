"""Reading ahead and writing behind: order, buffers used in turn, errors."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tiering.artifacts.file_writer import WriteBehind
from tiering.artifacts.reader import prefetch


def test_one_result_is_loaded_while_another_is_used() -> None:
    loaded, main = [], threading.get_ident()
    next_is_there = [threading.Event() for _ in range(6)]

    def load(item: int) -> int:
        assert threading.get_ident() != main
        loaded.append(item)
        next_is_there[item].set()
        return item

    for result in prefetch(load, range(6)):
        assert next_is_there[min(result + 1, 5)].wait(10)
        assert loaded[: result + 1] == list(range(result + 1)) and len(loaded) <= result + 2
    assert list(prefetch(load, [])) == []


def test_an_error_comes_where_its_result_would() -> None:
    results = prefetch(lambda item: 1 // item, [1, 0, 1])
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_a_buffer_is_filled_again_once_it_is_written() -> None:
    written: list[int] = []
    go = threading.Event()

    def write(buffer: np.ndarray) -> None:
        assert go.wait(10)
        written.append(int(buffer[0]))

    behind = WriteBehind([np.zeros(1, np.uint8) for _ in range(2)])
    for value in range(2):  # both buffers are filled before anything is written
        behind.next_buffer()[:] = value
        behind.submit(write, behind._buffers[value])
    go.set()
    for value in range(2, 7):
        buffer = behind.next_buffer()
        buffer[:] = value
        behind.submit(write, buffer)
    behind.finish()
    assert written == list(range(7))


def test_an_error_of_a_write_comes_out() -> None:
    behind = WriteBehind([np.zeros(1, np.uint8)])
    behind.next_buffer()
    behind.submit(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        behind.finish()
