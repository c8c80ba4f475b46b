"""Codecs, bit for bit against their rules; what they refuse; their parameters on disk; the loss they report."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reference_codecs as reference
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tiering.artifacts.manifest import storage_dtype
from tiering.codecs import AUTO, CODECS, DELIVERED, LossMeter, codec_of, fit_codec, float_rows, sum_losses
from tiering.errors import FormatError, InputError
from tiering.formats.encoded_rows import codec_name, encoded_table
from tiering.formats.features import FeatureTable

SPECIAL = [
    0.0, -0.0, 448.0, 464.0, 480.0, 500.0, 2.0**-9, 2.0**-10, 1.0001 * 2.0**-10, 3 * 2.0**-10, -3 * 2.0**-10, 2.0**-6,
    65504.0, 65519.0, 2.0**-14, 2.0**-24, 2.0**-25, 1.5 * 2.0**-25, 0.37, 1e6 + 1 / 16, 2.0**125, 2.0**-126, 1e-40, 1.0,
]  # fmt: skip
finite = st.floats(-(2.0**125), 2.0**125, width=32)
halves = st.floats(-65504, 65504, width=32)
small = st.floats(-4, 4, width=32) | st.sampled_from(SPECIAL[:12])
whole = st.integers(-300, 300).map(float)


@st.composite
def tables(draw):
    shape = draw(st.tuples(st.integers(1, 12), st.integers(1, 21)))
    elements = draw(st.sampled_from([finite, halves, small, whole, st.sampled_from(SPECIAL)]))
    table = draw(arrays(np.float32, shape, elements=elements))
    scale = draw(st.sampled_from([1.0, 1e-30, 1e-5, 0.7]))
    return np.ascontiguousarray(table * np.float32(scale))


def same_bits(found: Any, expected: Any) -> None:
    """Compare, NaN as NaN."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    bits = f"u{found.dtype.itemsize}"
    different = found.view(bits) != expected.view(bits)
    if found.dtype.kind == "f":
        different &= ~(np.isnan(found) & np.isnan(expected))
    assert not different.any(), (found[different], expected[different])


def codes_of(codec: Any, stored: Any) -> Any:
    kind = np.dtype(reference.CODES[codec.name])
    used = codec.dim * kind.itemsize
    assert not stored[:, used:].any()
    return np.ascontiguousarray(stored[:, :used]).view(kind)


@pytest.mark.parametrize("name", CODECS)
@settings(max_examples=80, deadline=None)
@given(table=tables())
@example(table=np.array([SPECIAL], np.float32))
@example(table=np.array([SPECIAL], np.float32).T.copy())
def test_bits_are_those_of_the_rules(name, table):
    if name == "float16":
        table = np.clip(table, -65519, 65519).astype(np.float32)
    codec = fit_codec(name, np.array_split(table, 3), table.shape[1], "float32", "here")
    stored = codec.encode(table)
    assert codec.row_bytes == stored.shape[1] == -(-table.shape[1] * np.dtype(reference.CODES[name]).itemsize // 4) * 4
    codes = reference.ENCODE[name](table, codec.scale, codec.offset)
    same_bits(codes_of(codec, stored), codes)
    decoded = reference.DECODE[name](codes, codec.scale, codec.offset)
    same_bits(codec.decode(stored), decoded)
    same_bits(codec.decode(stored, "bfloat16"), reference.bfloat16_encode(decoded))
    if (codec.largest or 0) <= 65504:
        same_bits(codec.decode(stored, "float16").view(np.uint16), reference.float16_encode(decoded))


@settings(max_examples=150, deadline=None)
@given(table=tables(), blocks=st.integers(1, 4), threads=st.integers(1, 3))
@example(table=np.array([[0, -0.3, 5, 1e-40], [0.37, 0.3, 5, -1e-41]], np.float32), blocks=1, threads=1)
def test_int8_parameters_are_those_of_the_rules(table, blocks, threads):
    codec = fit_codec("int8", np.array_split(table, blocks), table.shape[1], "float32", "here", threads)
    scale, offset = reference.int8_fit(table)
    same_bits(codec.scale, scale)
    np.testing.assert_array_equal(codec.offset, offset)
    codes = np.arange(256, dtype=np.uint8)[:, None].repeat(table.shape[1], 1)
    with np.errstate(over="ignore"):  # codes that no value of the table has
        values = reference.int8_decode(codes, scale, offset)
    back = codes_of(codec, codec.encode(values))
    np.testing.assert_array_equal(back[np.isfinite(values)], codes[np.isfinite(values)])


@settings(max_examples=80, deadline=None)
@given(table=tables())
def test_one_power_of_two_for_a_table_of_float8(table):
    codec = fit_codec("float8_e4m3", [table], table.shape[1], "float32", "here")
    most = np.abs(table).max(0).astype(np.float64)
    own = (most > 0) & (most < most.max() / 256)
    expected = [reference.e4m3_fit(float(m if alone else most.max())) for m, alone in zip(most, own, strict=True)]
    np.testing.assert_array_equal(codec.scale, np.array(expected, np.float32))
    assert codec.to_bytes() == codec.scale.tobytes() + bytes(4 * table.shape[1])


@pytest.mark.parametrize(
    "column",
    [range(256), np.arange(256) / 2 - 30, [0, 1, 0], [0, 0.37, 0], [-0.1] * 4, 1e6 + np.arange(9) / 16, [2020, 2026],
     np.arange(200) + 2**23, [0, -7.25, 0], [0] * 3, [5]],
)  # fmt: skip
def test_grids_and_two_values_are_exact(column):
    table = np.array(column, np.float32)[:, None]
    codec = fit_codec("int8", [table], 1, "float32", "here")
    np.testing.assert_array_equal(codec.decode(codec.encode(table)), table)


@pytest.mark.parametrize("name", ["int8", "float8_e4m3", "float16", "bfloat16"])
def test_every_code(name):
    kind = np.dtype(reference.CODES[name])
    codes = np.arange(256**kind.itemsize).astype(kind).reshape(-1, 64)
    scale, offset = np.ldexp(1.0, np.arange(64) - 32).astype(np.float32), np.zeros(64, np.int32)
    if name == "int8":
        scale, offset = (scale * 1.37).astype(np.float32), (np.arange(64, dtype=np.int32) - 32) * 500
    codec = CODECS[name](64, *((scale, offset) if CODECS[name].scaled else ()))
    same_bits(codec.decode(codes.view(np.uint8)), reference.DECODE[name](codes, scale, offset))
    values = codec.decode(codes.view(np.uint8))
    known = np.isfinite(values) & ((codes & 127) < 127 if name == "float8_e4m3" else True)
    np.testing.assert_array_equal(codes_of(codec, codec.encode(values))[known], codes[known])


def test_none_and_one_row():
    for name in CODECS:
        codec = fit_codec(name, [], 5, "float32", "here")
        assert codec.decode(codec.encode(np.empty((0, 5), np.float32))).shape == (0, 5)
        one = np.array([[0.1, -2, 3e-7, 0, 9]], np.float32)
        codec = fit_codec(name, [one], 5, "float32", "here")
        np.testing.assert_allclose(codec.decode(codec.encode(one)), one, rtol=0.07, atol=1e-3)
        assert codec.encode(one, threads=5).tobytes() == codec.encode(one).tobytes()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [("int8", np.nan, "nan, which int8 cannot store; store the table as float32, float16 or bfloat16"),
     ("float8_e4m3", -np.inf, "-inf, which float8_e4m3 cannot store"),
     ("int8", 2.0**126, "8.50706e.37, which int8 cannot store; store the table as float32 or bfloat16"),
     ("float8_e4m3", -(2.0**127), "-1.70141e.38, which float8_e4m3 cannot store"),
     ("float16", 65520, "65520, which float16 cannot store; store the table as float32 or bfloat16")],
)  # fmt: skip
def test_what_is_refused(name, value, message):
    table = np.ones((50, 33), np.float32)
    table[37, 20] = table[40, 0] = value
    with pytest.raises(InputError, match=f"here: row 37, column 20 is {message}"):
        fit_codec(name, np.array_split(table, 7), 33, "float32", "here", 2)
    table[37, 20] = table[40, 0] = {65520: 65519, 2.0**126: 2.0**125, -(2.0**127): -(2.0**125)}.get(value, 1)
    fit_codec(name, np.array_split(table, 7), 33, "float32", "here", 2)


def test_infinity_and_nan_are_kept_where_there_is_room():
    table = np.array([[np.inf, -np.inf, np.nan, 1]], np.float32)
    for name in DELIVERED:
        codec = fit_codec(name, [table], 4, "float32", "here")
        np.testing.assert_array_equal(codec.decode(codec.encode(table)), table)
        assert str(loss_of(codec, table)) == "exact"


def test_what_python_refuses():
    fit_codec("int8", [np.array([[0], [300]], np.float32)], 1, "float32", "here").rows("float16")
    codec = fit_codec("int8", [np.array([[0], [1e5]], np.float32)], 1, "float32", "here")
    with pytest.raises(InputError, match="rows of this table reach 100000, but float16 ends at 65504"):
        codec.rows("float16")
    with pytest.raises(InputError, match="delivered as float32, float16, bfloat16, found 'int8'"):
        codec.rows("int8")
    wide = np.array([[1, 2], [3, 2**24 + 1]])
    with pytest.raises(InputError, match=r"row 8, column 1 is 16777217, .*store the table as int64"):
        float_rows(wide, "int64", "here", 7)


def test_auto_is_half_where_nothing_is_lost(tmp_path):
    def stored_as(dtype, *rows, look=True):
        np.asarray(rows, storage_dtype(dtype)).tofile(tmp_path / "rows")
        table = FeatureTable(tmp_path / "rows", len(rows), 1, dtype)
        return codec_name(encoded_table(table, AUTO, "here", look=look))

    assert stored_as("float32", [0.5], [65504], [2.0**-24], [np.inf], [np.nan], [-0.0]) == "float16"
    assert stored_as("float32", [0.5], look=False) == ""
    for odd in (0.1, 65520, 2.0**-25, 1e-40):
        assert stored_as("float32", [1], [odd]) == ""
    other_nan = np.array([[0x7FC00001]], np.uint32).view(np.float32)
    assert stored_as("float32", *other_nan) == ""
    assert [stored_as(dtype, [1]) for dtype in ("bfloat16", "float16", "float64", "int8")] == ["", "", "", ""]


@pytest.mark.parametrize("name", CODECS)
def test_parameters_come_back(name):
    table = np.random.default_rng(0).standard_normal((100, 9)).astype(np.float32)
    codec = fit_codec(name, [table], 9, "float32", "here")
    same = codec_of(codec.entry(), 9, codec.to_bytes(), "file")
    assert same.largest == codec.largest
    assert same.encode(table).tobytes() == codec.encode(table).tobytes()
    if not codec.scaled:
        return
    with pytest.raises(FormatError, match="file: expected 72 bytes"):
        codec_of(codec.entry(), 9, codec.to_bytes()[:-1], "file")
    for place, value in ((4, np.float32(np.nan)), (4, np.float32(0)), (4, np.float32(-1)), (40, np.int32(1 << 30))):
        damaged = bytearray(codec.to_bytes())
        damaged[place : place + 4] = value.tobytes()
        with pytest.raises(FormatError, match=f"column 1 are no valid {name} parameters"):
            codec_of(codec.entry(), 9, bytes(damaged), "file")


def loss_of(codec, table, blocks=3):
    meter = LossMeter(codec)
    for block in np.array_split(table, blocks):
        meter.encode(block, 2)
    return meter.loss()


def test_loss_is_relative_to_the_deviation_of_a_column():
    rng = np.random.default_rng(0)
    table = (rng.standard_normal((5000, 40)) * 2.0 ** np.arange(-3, 37) + 1000).astype(np.float32)
    table[:, 7], table[:, 8] = rng.integers(0, 2, 5000), 0.1
    codec = fit_codec("int8", [table], 40, "float32", "here")
    loss, back = loss_of(codec, table, 7), codec.decode(codec.encode(table)).astype(np.float64)
    deviation = table.astype(np.float64).std(0)
    deviation[8] = 0.1
    error = (back - table) / deviation
    np.testing.assert_allclose(loss.largest, np.abs(error).max(), rtol=1e-3)
    np.testing.assert_allclose(loss.rms, np.sqrt((error**2).mean()), rtol=1e-3)
    assert loss.worst_column == np.sqrt((error**2).mean(0)).argmax()
    assert (loss.exact_columns, loss.columns) == (int((back == table).all(0).sum()), 40)
    assert loss == loss_of(codec, table, 1)
    parts = []
    for part in np.array_split(table, 5):
        meter = LossMeter(codec)
        meter.encode(part)
        parts.append(meter.sums())
    assert loss == sum_losses([LossMeter(codec).sums(), *parts])
    assert f"worst column {loss.worst_column} " in str(loss)


def test_sources_of_other_dtypes():
    table = np.array([[1, 200], [3, 4]])
    for dtype in ("uint8", "int16", "int32", "int64", "float64", "float16"):
        rows = float_rows(table.astype(dtype), dtype, "here")
        codec = fit_codec("int8", [table.astype(dtype)], 2, dtype, "here")
        np.testing.assert_array_equal(codec.decode(codec.encode(rows)), table)
    brain = reference.bfloat16_encode(table.astype(np.float32))
    np.testing.assert_array_equal(float_rows(brain, "bfloat16", "here"), table)
    with pytest.raises(InputError, match=r"row 0, column 0 is 1e\+300, but codecs store numbers up to 3.4e38"):
        fit_codec("int8", [np.array([[1e300]])], 1, "float64", "here")
