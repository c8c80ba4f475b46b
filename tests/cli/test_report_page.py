"""The page of `tiering report` as browsers show it: on a phone and on a desk, light, dark and on paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .test_report import documents as documents

FAULTS = """() => {
  const faults = [], wide = document.documentElement.clientWidth;
  const boxes = (root, tag) => [...root.querySelectorAll(tag)].map((node) => [node, node.getBoundingClientRect()]);
  const names = (node) => node.textContent.slice(0, 30);
  if (document.documentElement.scrollWidth > wide) faults.push("the page is wider than the window");
  for (const [svg, box] of boxes(document, "svg")) {
    if (box.width < 250 || box.height < 60) faults.push(`a figure of ${box.width} x ${box.height}`);
    if (box.left < 0 || box.right > wide) faults.push("a figure beyond the window");
    const texts = boxes(svg, "text");
    for (const [text, place] of texts) {
      if (place.left < box.left - 1 || place.right > box.right + 1 || place.top < box.top || place.bottom > box.bottom)
        faults.push(`beyond its figure: ${names(text)}`);
      if (place.height < 9) faults.push(`too small to read: ${names(text)}`);
    }
    texts.forEach(([a, one], k) => texts.slice(k + 1).forEach(([b, other]) => {
      if (one.left < other.right && other.left < one.right && one.top + 2 < other.bottom && other.top + 2 < one.bottom)
        faults.push(`${names(a)} lies over ${names(b)}`);
    }));
  }
  for (const [table, box] of boxes(document, "table"))
    if (box.right > wide) faults.push(`a table beyond the window: ${names(table)}`);
  return faults;
}"""
COLORS = "[getComputedStyle(document.documentElement).color, getComputedStyle(document.querySelector('svg')).fill]"


@pytest.fixture
def address(chain: Path, documents: dict[str, Path], tmp_path: Path, tiering_cli: Any) -> str:
    names = (chain / name for name in ("graph", "scores", "reordered", "layout"))
    tiering_cli("report", *names, *documents.values(), "--out", tmp_path / "report.html").ok()
    return (tmp_path / "report.html").as_uri()


@pytest.mark.parametrize("width", [360, 1280])
def test_figures_are_whole_and_nothing_complains(browser: Any, address: str, width: int) -> None:
    asked: list[str] = []
    complaints: list[str] = []
    shown = {}
    for scheme in ("light", "dark"):
        with browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme) as context:
            page = context.new_page()
            page.on("request", lambda request: asked.append(request.url))
            page.on("console", lambda line: complaints.append(line.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.goto(address)
            assert page.evaluate(FAULTS) == []
            assert page.get_by_role("img").count() == page.locator("svg").count() == 7
            shown[scheme] = page.evaluate(COLORS)
            assert shown[scheme][0] == shown[scheme][1]  # text of figures has the page's color
            page.emulate_media(media="print")
            assert page.evaluate(FAULTS) == []
    assert shown["light"] != shown["dark"]
    assert set(asked) == {address} and not complaints
