"""What describes a thing is data; as HTML it is escaped, and draws where there is matplotlib."""

from __future__ import annotations

import sys
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import tiering
from tiering.evaluation.figures import plain_label
from tiering.formats.registry import TYPES
from tiering.text.description import Fields, Plot, Table, to_html

EVIL = "<script>alert(1)</script>&\"'\x1b[2J\u202e"


class Page(HTMLParser):
    """What a browser would make of HTML: elements, texts of cells and paragraphs, images' SVG."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.rows: list[list[str]] = []
        self.images: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert {name for name, _ in attrs} <= {"style", "alt", "src"}
        if tag == "img":
            source = dict(attrs)["src"] or ""
            self.images.append(b64decode(source.removeprefix("data:image/svg+xml;base64,"), validate=True).decode())
            return
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1].append(data)
        elif data.strip():
            self.texts.append(data)


def page_of(thing: Any) -> Page:
    return Page(thing._repr_html_())


def test_what_was_said_is_what_is_shown() -> None:
    table = Table("A title", ("name", "count"), [("a", 1), ("b", 2)])
    page = Page(to_html([Fields({"size": "3 B"}), table, "the end"]))
    assert page.rows == [["size", "3 B"], ["name", "count"], ["a", "1"], ["b", "2"]]
    assert page.texts == ["A title", "the end"]


def test_names_from_files_are_text() -> None:
    pytest.importorskip("matplotlib")

    def draw(figure: Any) -> None:
        figure.subplots().plot([1, 2], label=plain_label(EVIL + "$\\nothing$"))
        figure.legend()

    table = Table(EVIL, (EVIL,), [(EVIL,)])
    page = Page(to_html([Fields({EVIL: EVIL}), table, EVIL, Plot(EVIL, draw)]))
    spelled = "<script>alert(1)</script>&\"'\\x1b[2J\\u202e"
    assert page.rows == [[spelled, spelled], [spelled], [spelled]]
    assert page.texts == [spelled] * 3
    assert set(page.tags) == {"div", "table", "caption", "b", "thead", "tr", "th", "td", "p", "img"}
    assert page.images[0].count("<svg") == 1 and "<script" not in page.images[0]


def test_without_matplotlib_the_tables_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page = Page(to_html(["numbers", Plot("curves", lambda _: pytest.fail("drawn without matplotlib"))]))
    assert page.texts == ["numbers"] and not page.images


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the functions of a chain return, by stage."""
    pytest.importorskip("torch")
    place = tmp_path_factory.mktemp("chain")
    data = tiering.generate_dataset(place / "data", nodes=600, edges=5000, dim=8, classes=4, hetero=True)
    graph = tiering.import_graph(data, out=place / "graph")
    how: dict[str, Any] = {"fanouts": [4, 4], "batch_size": 16}
    scores = tiering.score_graph(graph, out=place / "scores", **how)
    judged = tiering.evaluate_scores(graph, [scores], epochs=1, **how)
    reordered = tiering.reorder_graph(graph, scores, out=place / "reordered", features=True)
    layout = tiering.write_layout(reordered, out=place / "layout", gpu="10%", cpu="30%", ssd=[place / "ssd"])
    return {
        "graph": graph, "scores": scores, "judged": judged, "reordered": reordered, "order": reordered.order,
        "features": reordered.features, "layout": layout,
    }  # fmt: skip


@pytest.mark.parametrize("what", ["graph", "scores", "reordered", "order", "features", "layout"])
def test_an_artifact_shows_what_info_prints(made: dict[str, Any], tiering_cli: Any, what: str) -> None:
    """Every cell and every line of the notebook's display stands in the output of the command."""
    page, printed = page_of(made[what]), tiering_cli("info", made[what].path).ok().out
    squeezed = " ".join(printed.split())
    assert len(page.rows) > 4
    for text in [cell for row in page.rows for cell in row]:
        assert " ".join(text.split()) in squeezed


def test_every_kind_of_artifact_is_described() -> None:
    base = TYPES["graph"].__mro__[1]
    assert all(kind._describe_content is not base._describe_content for kind in TYPES.values())


def test_an_evaluation_shows_hit_rates_and_curves(made: dict[str, Any]) -> None:
    pytest.importorskip("matplotlib")
    page = page_of(made["judged"])
    shown = next(row for row in page.rows if row[0] == "oracle")
    assert shown == ["oracle", *(f"{100 * rate:.1f}" for rate in made["judged"].hit_rates["oracle"])]
    assert "<!-- Cumulative reads -->" in page.images[0] and "<!-- oracle -->" in page.images[0]


def test_a_loader_shows_what_it_did_so_far(made: dict[str, Any]) -> None:
    loader = made["layout"].loader(fanouts=[4, 4], batch_size=16, seed=0)
    before = page_of(loader)
    assert any("0 batches" in text for text in before.texts) and "bound by: nothing" in before.texts
    rows = sum(len(x) for batch in loader for x in batch.features.values())
    page, stats = page_of(loader), loader.stats()
    names = {"ssd, buffered": "ssd", "ssd, read": "read"}
    shown = {names.get(row[0], row[0]): row[1] for row in page.rows if len(row) == 3}
    shown = {name: count for name, count in shown.items() if name in stats.rows}
    assert sum(int(count.replace(",", "")) for count in shown.values()) == rows
    assert {name: int(count.replace(",", "")) for name, count in shown.items()} == {
        k: n for k, n in stats.rows.items() if n
    }
    assert page_of(stats).texts == page.texts
    fields = {row[0]: row[1] for row in page.rows if len(row) == 2}
    assert fields["batches"] == f"{len(loader)} of 16" and "into memory first" in fields["rows"]


def test_a_forecast_shows_what_a_dry_run_prints(made: dict[str, Any], tmp_path: Path, tiering_cli: Any) -> None:
    from tiering.pipeline import estimate_score

    graph = made["graph"].path
    page = page_of(estimate_score(graph, tmp_path / "out", "degree"))
    printed = tiering_cli("score", graph, "--method", "degree", "--out", tmp_path / "out", "--dry-run").ok().out
    assert any(row[0] == "total" for row in page.rows)
    assert [text for text in page.texts if text.startswith(("time", "note", "nothing"))] == [
        line for line in printed.splitlines() if line.startswith(("time", "note", "nothing"))
    ]


def test_a_name_in_a_manifest_is_no_markup(made: dict[str, Any], tmp_path: Path) -> None:
    import shutil

    from sealed import edit_manifest

    copy = shutil.copytree(made["scores"].path, tmp_path / "scores")
    edit_manifest(copy, lambda document: document["provenance"].update(stage=EVIL, package=EVIL))
    page = page_of(tiering.open(copy))
    assert "script" not in page.tags
    assert any(r"\x1b[2J\u202e" in cell and "<script>" in cell for row in page.rows for cell in row)
