"""Sizes, threads and fanouts as users write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiering.errors import InputError
from tiering.text.units import (
    ask_percent,
    format_bytes,
    format_fanouts,
    format_seconds,
    format_small_seconds,
    parse_bytes,
    parse_fanouts,
    parse_size,
    parse_threads,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (725, "12 min 05 s"),
        (3599.4, "59 min 59 s"), (3599.6, "1 h 00 min"), (11250, "3 h 08 min"),
    ],
)  # fmt: skip
def test_format_seconds(seconds, text):
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (3.1e-7, "310 ns"), (2.234e-5, "22.3 us"), (0.00103, "1.03 ms"), (0.9999, "1.0 s"),
        (90, "1 min 30 s"),
    ],
)  # fmt: skip
def test_format_small_seconds(seconds, text):
    assert format_small_seconds(seconds) == text


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
    with pytest.raises(InputError, match=r"^gpu: expected a (size|fraction)"):
        parse_size(text, "--gpu")


@pytest.mark.parametrize(("size", "asked"), [("20", "20%"), ("1", "1%"), ("100", "100%")])
def test_small_sizes_without_a_unit_may_mean_percent(size, asked):
    assert f"did you mean {asked}?" in ask_percent(size)


@pytest.mark.parametrize("size", ["0", "101", "20B", "20%", "1.5GiB", "auto", "4096"])
def test_other_sizes_do_not(size):
    assert ask_percent(size) == ""


@given(st.integers(0, 2**60))
def test_plain_bytes_round_trip(count):
    assert parse_bytes(str(count)) == count
    assert parse_bytes(count) == count


def test_format_bytes():
    assert [format_bytes(n) for n in (0, 1023, 1024, 1536, 5 * 2**40)] == ["0 B", "1023 B", "1 KiB", "1.5 KiB", "5 TiB"]


def test_fanouts_of_all_relations():
    assert parse_fanouts("10, 5,-1") == [10, 5, -1]
    assert parse_fanouts([10, 5]) == parse_fanouts((10, 5)) == parse_fanouts("10;5") == [10, 5]
    assert parse_fanouts("3") == [3]
    assert format_fanouts(parse_fanouts("10, 5,-1")) == "10,5,-1"
    text = "cites=10,writes=5;cites=5,writes=0"
    assert format_fanouts(parse_fanouts(text)) == text and format_fanouts([3, {"a": 1}]) == "3;a=1"


def test_fanouts_per_relation():
    expected = [{"cites": 10, "writes": 5}, {"cites": -1, "writes": 0}]
    assert parse_fanouts("cites=10,writes=5;cites=-1,writes=0") == expected
    assert parse_fanouts(" cites = 10, writes=5 ; cites=-1,writes=0") == expected
    assert parse_fanouts(expected) == expected
    assert parse_fanouts({"cites": [10, -1], "writes": [5, 0]}) == expected
    assert parse_fanouts([{("a", "b", "c"): 2}, 3]) == parse_fanouts("a:b:c=2;3") == [{"a:b:c": 2}, 3]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        *((text, "fanouts") for text in ("", "a", "10,,10", "0", "10,-2", "1.5")),
        ("cites=1,cites=2", "each relation once"),
        ("=3", "each relation once"),
        ("3,x", "fanouts: expected whole numbers.*'x'"),
        ("cites=x", "fanouts of cites: expected whole numbers"),
        ("cites=3,4", "expected whole numbers"),
        ("10,10;5", "expected whole numbers"),
        ("cites=-2", "at least 0 and below .*, or -1"),
        ("10;0", "at least 1 and below .*, or -1"),
        ([], "one entry per hop"),
        (7, "one entry per hop"),
        ([1.5], "whole numbers"),
        ([True], "whole numbers"),
        ([{}], "no relations"),
        ({}, "no relation"),
        ({"cites": [1, 2], "writes": [1]}, "all relations need the same number of hops, found cites 2, writes 1"),
        ({"cites": 3}, "one number per hop"),
        ({"cites": []}, "all relations need the same number of hops"),
        (str(2**31), r"at least 1 and below 2\^31, or -1 for all neighbors; found 2147483648"),
        ([2**31], r"below 2\^31, .*; found 2147483648"),
        ([10, 2**200], "found a number of 201 bits"),
        ({"cites": [2**31]}, r"fanouts of cites: entries must be at least 0 and below 2\^31"),
    ],
)
def test_bad_fanouts(given, message):
    with pytest.raises(InputError, match=message):
        parse_fanouts(given)


def test_threads():
    assert parse_threads("auto") >= 1
    assert parse_threads(3) == 3
    for bad in (0, "many", 5000):
        with pytest.raises(InputError, match="threads"):
            parse_threads(bad)
