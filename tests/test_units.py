"""Sizes, threads and fanouts as users write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiering.errors import InputError
from tiering.units import format_bytes, parse_bytes, parse_fanouts, parse_size, parse_threads


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("4096", 4096), ("4KiB", 4096), ("4k", 4096), ("1.5 MiB", 1572864), ("2GB", 2 * 10**9), ("1TiB", 2**40)],
)
def test_absolute_sizes(text, expected):
    assert parse_bytes(text) == expected


def test_shares_and_auto():
    assert parse_size("25%").of(1000) == 250
    assert parse_size("AUTO").of(1000) == 1000
    assert parse_size("12.5%").of(8) == 1


@pytest.mark.parametrize("text", ["", "8 gigs", "-1", "1e9", "101%", "4KiBs", "%", "nan"])
def test_nonsense_names_the_option_and_what_would_do(text):
    with pytest.raises(InputError, match=r"--gpu: expected a (size|share)"):
        parse_size(text, "--gpu")


@given(st.integers(0, 2**60))
def test_plain_bytes_round_trip(count):
    assert parse_bytes(str(count)) == count
    assert parse_bytes(count) == count


def test_format_bytes():
    assert [format_bytes(n) for n in (0, 1023, 1024, 1536, 5 * 2**40)] == ["0 B", "1023 B", "1 KiB", "1.5 KiB", "5 TiB"]


@pytest.mark.parametrize("text", ["", "a", "10,,10", "0", "10,-2", "1.5"])
def test_bad_fanouts(text):
    with pytest.raises(InputError, match="fanouts"):
        parse_fanouts(text)


def test_fanouts_and_threads():
    assert parse_fanouts("10, 5,-1") == [10, 5, -1]
    assert parse_threads("auto") >= 1
    assert parse_threads(3) == 3
    for bad in (0, "many", 5000):
        with pytest.raises(InputError, match="threads"):
            parse_threads(bad)
