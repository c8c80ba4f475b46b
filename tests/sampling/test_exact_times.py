"""Times of seeds, links and windows: exactly what the user gave, in the unit of the graph's times, or refused."""

from __future__ import annotations

import datetime as dt
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from temporal_oracle import TimedGraph

from tiering.errors import InputError
from tiering.formats.times import convert_exact
from tiering.sampling import NeighborSampler, SamplingOptions, Subgraphs, make_sampler

TO = ("n", "to", "n")
SECONDS = {"W": 604_800, "D": 86_400, "h": 3600, "m": 60, "s": 1} | {
    unit: Fraction(1, 1000**k) for k, unit in enumerate(["ms", "us", "ns", "ps", "fs", "as"], 1)
}
INTS = {"int8": (-(2**7), 2**7), "int64": (-(2**63), 2**63), "uint16": (0, 2**16), "uint64": (0, 2**64)}
near = st.one_of(*(st.integers(n - 4, n + 4) for n in (0, 2**53, -(2**53), 2**54, 2**62, 2**63, -(2**63), 2**64)))


def graph_of(times, unit=None):
    return TimedGraph({"n": 4}, {TO: [[1, 2, 3], [0, 0, 0]]}, {TO: np.asarray(times)}, unit=unit)


def seen(times, unit, seed_time, window=None, count=1):
    """Return the sources that node 0 sees: sampled, so that a wrong time would show."""
    how = Subgraphs(time="when", time_window=window)
    batch = NeighborSampler(graph_of(times, unit), [-1], subgraphs=how).sample([0] * count, seed_time=seed_time)
    return batch.nodes["n"][count:].tolist()


@given(near | st.integers(-(2**63), 2**64 - 1), st.sampled_from(list(INTS)), st.sampled_from(["int64", "float64"]))
@example(2**63 - 1, "int64", "float64")
@example(2**64 - 1, "uint64", "float64")
@example(2**63, "uint64", "int64")
def test_whole_numbers_are_exact_or_refused(value, dtype, target):
    low, end = INTS[dtype]
    if not low <= value < end:
        return
    made, wrong = convert_exact(np.array([value, 0], dtype), np.dtype(target))
    assert wrong.tolist() in ([], [0])
    if not wrong.size:
        assert int(made[0]) == value
    elif abs(value) < 2**63:
        assert target == "float64" and int(float(value)) != value, "refused though it is exact"


@given(st.floats() | near.map(float) | near.map(lambda n: n / 2), st.sampled_from(["float16", "float32", "float64"]))
@example(2.0**63, "float64")
@example(-(2.0**63), "float64")
def test_fractions_are_exact_or_refused(value, dtype):
    with np.errstate(over="ignore"):
        values = np.array([value], dtype)
    value = float(values[0])
    made, wrong = convert_exact(values, np.dtype(np.int64))
    whole = np.isfinite(value) and value == int(value) and -(2**63) <= value < 2**63
    assert wrong.size == 1 - whole
    assert not whole or int(made[0]) == value
    made, wrong = convert_exact(values, np.dtype(np.float64))
    assert wrong.size == np.isnan(value) and (np.isnan(value) or made[0] == value)


@given(near | st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(-(10**12), 10**12),
       *[st.sampled_from(list(SECONDS))] * 2, st.sampled_from("Mm"))  # fmt: skip
@example(-11676096000, "s", "ns", "M")  # 1600-01-01
@example(10413792000, "s", "ns", "M")  # 2300-01-01
def test_dates_and_durations_are_exact_or_refused(value, unit, target, kind):
    if not -(2**63) + 7 < value < 2**63:  # the least is NaT, and numpy's way to weeks wraps around before it
        return
    made, wrong = convert_exact(np.array([value], f"{kind}8[{unit}]"), np.dtype(f"{kind}8[{target}]"))
    exact = value * Fraction(SECONDS[unit]) / Fraction(SECONDS[target])
    try:
        np.zeros(1, f"{kind}8[{unit}]").astype(f"{kind}8[{target}]")
    except OverflowError:  # numpy does not convert weeks to picoseconds
        assert wrong.size
    else:
        assert wrong.size == (exact.denominator != 1 or not -(2**63) < exact < 2**63)
    assert wrong.size or int(made.view(np.int64)[0]) == exact


@given(st.integers(1, 9999), st.integers(1, 12), st.sampled_from(["D", "s", "us", "ns"]), st.sampled_from("YM"))
def test_years_and_months_are_the_calendars(year, month, target, unit):
    month = 1 if unit == "Y" else month
    value = (year - 1970) * (1 if unit == "Y" else 12) + month - 1
    made, wrong = convert_exact(np.array([value], f"M8[{unit}]"), np.dtype(f"M8[{target}]"))
    exact = ((dt.date(year, month, 1) - dt.date(1970, 1, 1)).days * 86_400) / Fraction(SECONDS[target])
    assert wrong.size == (abs(exact) >= 2**63)
    assert wrong.size or int(made.view(np.int64)[0]) == exact
    # A duration of years has no length in days, though numpy gives it a mean one.
    lengths = np.array([400, 1600, 12], f"m8[{unit}]")
    assert convert_exact(lengths, np.dtype(f"m8[{target}]"))[1].size == 3
    assert convert_exact(lengths, np.dtype("m8[M]"))[1].size == 0


def test_a_seed_time_outside_the_unit_is_no_leak():
    """1600 saw the edges of 2020, 2300 none: both wrapped around."""
    times = np.array(["2020-01-01", "2021-01-01", "2022-01-01"], "M8[ns]").view(np.int64)
    for date in ("1600-01-01", "2300-01-01", "NaT"):
        with pytest.raises(InputError, match=f"entry 1 is {date}; the graph's times are datetime64"):
            seen(times, "ns", np.array(["2021-01-01", date], "M8[D]"), count=2)
    assert seen(times, "ns", np.array(["1700-01-01"], "M8[D]")) == []
    assert seen(times, "ns", np.array(["2262-04-11"], "M8[D]")) == [1, 2, 3]


def test_numbers_beyond_2_53():
    real = np.array([0.5, 2.0**53 + 2, 2.0**53 + 4])
    for wrong in ([2**53 + 3], np.array([2**53 + 3]), torch.tensor([2**53 + 3])):
        with pytest.raises(InputError, match="entry 0 is 9007199254740995; the graph's times are float64 and cannot"):
            seen(real, None, wrong)
    assert seen(real, None, [2**53 + 2]) == [1, 2]
    whole = np.array([1, 2**53, 2**53 + 1])
    assert seen(whole, None, [2**53 + 1, 2], count=2) == [1, 2, 3, 1]
    for mixed in ([2**53 + 1, 0.0], (0.5, np.int64(2**53 + 1)), [2**63 + 1, -1]):
        with pytest.raises(InputError, match=r"is rounded to .* next to a fraction; give an array of one dtype"):
            seen(whole, None, mixed, count=2)
    with pytest.raises(InputError, match="expected numbers of 64 bits, found 1180591620717411303424"):
        seen(whole, None, [2**70])


def test_times_with_a_zone_are_refused():
    day, zone = dt.datetime(2021, 1, 1), dt.timezone.utc
    times, columns = np.array([0, 1, 365]), pa.array([day], pa.timestamp("us"))
    for values in (columns.cast(pa.timestamp("us", "Europe/Berlin")), SimpleNamespace(
        dtype=SimpleNamespace(time_zone="Europe/Berlin"))):  # fmt: skip
        with pytest.raises(InputError, match="expected no time zone, found Europe/Berlin"):
            seen(times, "D", values)
    assert seen(times, "D", columns) == [1, 2, 3]
    for objects in ([day.replace(tzinfo=zone)], [day]):
        with pytest.raises(InputError, match=r"or numpy.datetime64 without a zone: .*found datetime\.datetime\(2021"):
            seen(times, "D", objects)


@pytest.mark.parametrize(("unit", "window", "message"), [
    ("ns", np.timedelta64(1, "Y"), "entry 0 is 1 years; the graph's times are timedelta64"),
    ("s", np.timedelta64(12, "M"), "entry 0 is 12 months; the graph's"),
    ("Y", np.timedelta64(400, "D"), "entry 0 is 400 days"),
    ("ns", np.timedelta64(2**40, "W"), "weeks; the graph's times are timedelta64"),
    ("s", np.timedelta64(1, "ms"), "entry 0 is 1 milliseconds"),
    ("s", dt.timedelta(days=1), "or numpy.timedelta64: the times are in s, found datetime.timedelta"),
    (None, np.timedelta64(1, "s"), "expected numbers of 64 bits, found timedelta64"),
    (None, [1, 2], r"expected one number, 0 or more, found \[1, 2\]"),
    (None, np.array([1, 2]), r"expected one number, 0 or more, found \[1 2\]"),
    (None, 2**63, "entry 0 is 9223372036854775808"),
    (None, 2**70, "found 1180591620717411303424"),
    (None, True, "found bool"),
])  # fmt: skip
def test_windows_that_are_refused(unit, window, message):
    with pytest.raises(InputError, match=message):
        seen([0, 1, 2], unit, [2], window)


def test_windows():
    for unit, window in (("s", np.timedelta64(1, "m")), ("s", 60), (None, 60.0), ("M", np.timedelta64(5, "Y"))):
        assert seen([0, 40, 100], unit, [100], window) == [2, 3]
    assert seen([0, 40, 100], None, [100], np.float32("inf")) == [1, 2, 3]
    with pytest.raises(InputError, match="entry 0 is 9007199254740993; the graph's times are float64"):
        seen([0.5, 1, 2], None, [2], 2**53 + 1)


def test_the_record_of_a_window_gives_it_back():
    """`score` wrote a duration as a Python object, which JSON cannot hold."""
    for window, record in ((np.timedelta64(3, "h"), [3, "h"]), (np.timedelta64(7, "10s"), [7, "10s"])):
        options = SamplingOptions(fanouts=(2,), time="when", time_window=window)
        assert options.record()["time_window"] == record
        again = make_sampler(graph_of([0, 1, 2], "s"), SamplingOptions(**options.record()))
        assert again.times.window(again.subgraphs.time_window) == window / np.timedelta64(1, "s")
