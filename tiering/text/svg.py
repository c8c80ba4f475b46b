"""Figures as SVG that a phone shows with readable text: lines, and a bar to scale.

Text and grid take the color of the page's text, so that figures fit light and dark pages and paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from tiering.text.progress import printable

_WIDTH, _RIGHT, _PLOT, _LINE = 360, 22, 170, 18  # units of the drawing, about pixels of a phone; `_LINE`: of text
_LETTER = 7.7  # width of a letter
_COLORS = ("#0a78b8", "#cf5b00", "#0c9468", "#b95d92", "#7d6bc4", "#94702a", "#697586", "#b23b3b")
"""Colors with a contrast of 3 and more on white and on black."""
_DASHES = ("none", "8 3", "2 2", "10 3 2 3", "14 4", "5 5")
_TICKS, _DOTTED = 5, 20  # ticks of an axis, about; points of a line, at most, that are dots too

Points = Sequence[Sequence[float]]
"""Points (x, y), or (x, y, half of the interval that y lies in)."""
_Place = Callable[[float], float]


@dataclass(frozen=True)
class Axis:
    """An axis from `low` to `high`, linear, or logarithmic with ticks at powers of `base`."""

    label: str
    low: float
    high: float
    show: Callable[[float], str] = "{:g}".format
    base: int = 0

    def place(self, value: float) -> float:
        """Return where a value lies, from 0 to 1; beyond an end, the end."""
        if self.base:
            part = math.log(max(value, self.low) / self.low) / (math.log(self.high / self.low) or 1)
        else:
            part = (value - self.low) / ((self.high - self.low) or 1)
        return min(1.0, max(0.0, part))

    def ticks(self) -> list[float]:
        """Return some round values along the axis."""
        if self.base:
            base = self.base if self.high >= self.base**2 * self.low else 2
            first, last = (math.log(end, base) for end in (self.low, self.high))
            powers = range(math.ceil(first - 1e-9), math.floor(last + 1e-9) + 1)
            chosen = [float(base) ** power for power in powers[:: -(-len(powers) // _TICKS) or 1]]
            return chosen if len(chosen) > 1 else sorted({self.low, self.high})
        rough = (self.high - self.low) / (_TICKS - 1) or 1.0
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(size * power for size in (1, 2, 2.5, 5, 10) if size * power >= rough * (1 - 1e-9))
        return [k * step for k in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)]


def draw_lines(x: Axis, y: Axis, lines: Mapping[str, Points], flagged: Mapping[str, float] | None = None) -> str:
    """Return SVG of a line through the points of each name, and of values of x that are flagged, by name."""
    flagged = flagged or {}
    body, across, down, bottom = _frame(x, y, flagged)
    for number, (name, points) in enumerate(lines.items()):
        fill = _COLORS[number % len(_COLORS)]
        color = f'stroke="{fill}" stroke-width="2"'
        dashes = f'stroke-dasharray="{_DASHES[number % len(_DASHES)]}"'
        path = " ".join(f"{across(p[0]):.1f},{down(p[1]):.1f}" for p in points)
        body.append(f'<polyline points="{path}" fill="none" {color} {dashes}/>')
        for at, value, *_ in points if len(points) <= _DOTTED else ():
            body.append(f'<circle cx="{across(at):.1f}" cy="{down(value):.1f}" r="3" fill="{fill}"/>')
        for at, value, error in (p for p in points if len(p) == 3 and p[2]):
            body.append(f'<path d="M{across(at):.1f} {down(value - error):.1f}V{down(value + error):.1f}" {color}/>')
        body.append(f'<path d="M0 {bottom - 4}h26" {color} {dashes}/>{_text(32, bottom, _cut(name, _WIDTH - 32))}')
        bottom += _LINE
    told = []
    for name, points in lines.items():
        some = [points[k] for k in sorted({0, len(points) // 2, len(points) - 1})]
        told.append(f"{name}: {', '.join(f'{y.show(p[1])} at {x.show(p[0])}' for p in some)}")
    told += [f"marked: {name} at {x.show(at)}" for name, at in flagged.items()]
    return _svg(f"{y.label} against {x.label}. {'; '.join(told)}", bottom - _LINE + 8, body)


def draw_bar(parts: Mapping[str, tuple[float, str]]) -> str:
    """Return SVG of a bar cut to the scale of its parts: by name the size, and the size in words."""
    total, left, body = sum(size for size, _ in parts.values()) or 1, 0.0, list[str]()
    for number, (name, (size, words)) in enumerate(parts.items()):
        fill, y = f'fill="{_COLORS[number % len(_COLORS)]}"', 44 + number * _LINE
        width = _WIDTH * size / total
        body.append(f'<rect x="{left:.2f}" y="0" width="{max(0.0, width - 1):.2f}" height="26" {fill}/>')
        body.append(f'<rect x="0" y="{y - 10}" width="12" height="12" {fill}/>')
        body.append(_text(20, y, _cut(name, _WIDTH - 30 - len(words) * _LETTER)) + _text(_WIDTH, y, words, "end"))
        left += width
    told = ", ".join(f"{name} {words}" for name, (_, words) in parts.items())
    return _svg(f"A bar to scale: {told}", 44 + (len(parts) - 1) * _LINE + 8, body)


def _frame(x: Axis, y: Axis, flagged: Mapping[str, float]) -> tuple[list[str], _Place, _Place, int]:
    """Return grid and labels, where values of x and of y lie, and where a first line of text below does."""
    top = 26 + _LINE * len(flagged)
    left = 8 + _LETTER * max((len(y.show(tick)) for tick in y.ticks()), default=0)

    def across(value: float) -> float:
        return left + x.place(value) * (_WIDTH - _RIGHT - left)

    def down(value: float) -> float:
        return top + (1 - y.place(value)) * _PLOT

    faint, body, end = 'stroke="currentColor" stroke-opacity="0.2"', [_text(0, 12, y.label)], top + _PLOT
    for tick in y.ticks():
        body.append(f'<path d="M{left:.1f} {down(tick):.1f}H{_WIDTH - _RIGHT}" {faint}/>')
        body.append(_text(left - 6, down(tick) + 4, y.show(tick), "end"))
    for tick in x.ticks():
        body.append(f'<path d="M{across(tick):.1f} {end}v5" {faint}/>')
        body.append(_text(across(tick), end + 18, x.show(tick), "middle"))
    body.append(_text((left + _WIDTH - _RIGHT) / 2, end + 36, x.label, "middle"))
    # Those near an end of the axis come first: the line down from a name then crosses no other name.
    near = sorted(flagged.items(), key=lambda flag: min(x.place(flag[1]), 1 - x.place(flag[1])))
    for number, (name, at) in enumerate(near):
        line, side = 16 + _LINE * (number + 1), "start" if x.place(at) < 0.5 else "end"
        place = across(at)
        body.append(_text(place, line, _cut(name, place if side == "end" else _WIDTH - place), side))
        body.append(f'<path d="M{across(at):.1f} {line + 4}V{end}" stroke="currentColor" stroke-dasharray="3 3"/>')
    return body, across, down, end + 36 + _LINE + 6


def _cut(name: str, width: float) -> str:
    name, most = printable(name), max(4, int(width / _LETTER))
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    """Return a line of text; one about a middle stays within the drawing."""
    half = len(text) * _LETTER / 2
    x = min(max(x, half), _WIDTH - half) if anchor == "middle" else x
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(printable(text))}</text>'


def _svg(words: str, height: int, body: Sequence[str]) -> str:
    about = f'role="img" aria-label="{escape(printable(words))}" font-size="12" fill="currentColor"'
    return f'<svg viewBox="0 0 {_WIDTH} {height}" {about}>\n{chr(10).join(body)}\n</svg>'
