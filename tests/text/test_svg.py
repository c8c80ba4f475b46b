"""Axes and figures: ticks lie on the axis, places ascend, bars are to scale, what names hold is text."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiering.text.svg import Axis, draw_bar, draw_lines

EVIL = "<script>\"'&\x1b[2J"


@given(st.floats(1e-6, 1e12), st.floats(1.001, 1e9), st.sampled_from([0, 2, 10]))
def test_ticks_are_few_and_on_the_axis(low: float, ratio: float, base: int) -> None:
    axis = Axis("", low, low * ratio, base=base)
    ticks = axis.ticks()
    assert 1 <= len(ticks) <= 6
    assert ticks == sorted(set(ticks))
    assert all(low * (1 - 1e-6) <= tick <= low * ratio * (1 + 1e-6) for tick in ticks)
    places = [axis.place(value) for value in (0.5 * low, low, *ticks, low * ratio, 2 * low * ratio)]
    assert places == sorted(places) and places[:2] == [0, 0] and places[-1] == 1


def test_a_percentage_and_sizes_have_the_ticks_that_people_expect() -> None:
    assert Axis("", 0, 100).ticks() == [0, 25, 50, 75, 100]
    assert Axis("", 0.01, 100, base=10).ticks() == [0.01, 0.1, 1, 10, 100]
    assert Axis("", 1, 64, base=10).ticks() == [1, 4, 16, 64]
    assert Axis("", 424, 576, base=2).ticks() == [424, 576]


def test_a_bar_is_to_scale_and_says_what_it_shows() -> None:
    svg = ElementTree.fromstring(draw_bar({"gpu": (1, "1 B"), "cpu": (2, "2 B"), EVIL: (5, EVIL)}))
    widths = [float(part.get("width", 0)) + 1 for part in svg if part.get("height") == "26"]
    assert widths == pytest.approx([45, 90, 225])
    spelled = EVIL.replace("\x1b", r"\x1b")
    assert [part.text for part in svg if part.tag == "text"] == ["gpu", "1 B", "cpu", "2 B", spelled, spelled]
    assert svg.get("role") == "img" and svg.get("aria-label", "").endswith(f"gpu 1 B, cpu 2 B, {spelled} {spelled}")


def test_lines_go_through_their_points() -> None:
    x, y = Axis("memory", 1, 16, base=2), Axis("time", 0, 10)
    svg = draw_lines(
        x, y, {"a": [(1, 10, 1), (4, 5, 0), (16, 0, 1)], EVIL: [(1, 0), (16, 10)]}, {"today": 4, "old": 99}
    )
    points = [tuple(map(float, point.split(","))) for point in re.findall(r'points="([^"]*)"', svg)[0].split()]
    (left, top), (middle, half), (right, bottom) = points
    assert middle - left == pytest.approx((right - left) / 2, abs=0.1)
    assert half - top == pytest.approx((bottom - top) / 2, abs=0.1)
    tree = ElementTree.fromstring(svg)
    assert "a: 10 at 1, 5 at 4, 0 at 16" in tree.get("aria-label", "")
    assert tree.get("aria-label", "").endswith("marked: today at 4; marked: old at 99")
