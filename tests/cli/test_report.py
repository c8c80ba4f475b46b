"""`tiering report`: one page of artifacts and documents; numbers in figures are those of what it was given."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import tiering
from tiering.errors import InputError
from tiering.pipeline.html_report import _FOLDERS, _skew

SAMPLING = "--fanouts 3,2 --batch-size 8"


@pytest.fixture(scope="module")
def documents(make: Any, prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What each command prints with --json, in a file."""
    pytest.importorskip("torch")
    folder, printed = tmp_path_factory.mktemp("documents"), {}
    shutil.rmtree(prepared)  # tests before this module may have changed it
    shutil.copytree(prepared.with_name("copy"), prepared)
    for name, line in {
        "evaluate": f"evaluate @/graph -s @/scores -s @/degree {SAMPLING} --epochs 2",
        "plan": f"plan @/reordered {SAMPLING} --disk nvme-gen3,nvme-gen4",
        "trace": f"trace @/layout {SAMPLING} --epochs 2",
        "doctor": "doctor",
    }.items():
        printed[name] = folder / f"{name}.json"
        printed[name].write_text(make(*line.replace("@", str(prepared)).split(), "--json").ok().out)
    plan = json.loads(printed["plan"].read_text())  # so small a graph fits any memory: half as much does not, say
    first = plan["epochs"][0]
    half = {"memory": first["memory"] // 2, "seconds": 1.0, "epoch_seconds": 1.0, "all_fit": False, "hit_rate": 0.5}
    plan["epochs"].insert(0, first | half)
    printed["plan"].write_text(json.dumps(plan))
    return printed


class Page(HTMLParser):
    """Headings of a page, its figures by title, its paragraphs, and addresses it would load from."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.html, self.loaded, self.open, self.texts = path.read_text(), [], [""], [("", "")]
        self.feed(self.html)
        figures = re.findall(r"<figcaption>(.*?)</figcaption>\n(<svg.*?</svg>)", self.html, re.DOTALL)
        self.figures = [(title, ElementTree.fromstring(svg)) for title, svg in figures]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.loaded += [value for name, value in attrs if name in ("src", "href", "data", "srcset")]

    def handle_endtag(self, tag: str) -> None:
        self.open.append("")

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1], data))

    def all(self, tag: str) -> list[str]:
        """Return the texts in elements of a tag."""
        return [text for open_tag, text in self.texts if open_tag == tag]


@pytest.fixture
def page(chain: Path, documents: dict[str, Path], tmp_path: Path, tiering_cli: Any) -> Page:
    names = (chain / name for name in ("graph", "scores", "reordered", "layout"))
    tiering_cli("report", *names, *documents.values(), "--out", tmp_path / "report.html").ok()
    return Page(tmp_path / "report.html")


def test_a_page_has_all_parts_and_loads_nothing(page: Page, chain: Path) -> None:
    titles = ["Tiers", "Hit rates", "Predicted epochs", "Measured epochs", "Graph", "Scores", "Artifacts", "Machine"]
    assert page.all("h2") == titles
    assert not page.loaded and "url(" not in page.html and "@import" not in page.html and "<script" not in page.html
    assert "No data." not in page.html
    assert len(page.html) < 2e6
    assert [title for title, _ in page.figures] == [
        "layout: bytes of feature rows by tier", "Reads served, fanouts 3,2", "Predicted epoch by memory",
        *(title for title, _ in page.figures if title.startswith(("Epoch 0: ", "Epoch 1: "))),
        "In-degree: edges of the nodes with the highest in-degree", "Scores: expected reads of the hottest nodes",
    ]  # fmt: skip
    assert all(figure.get("role") == "img" and figure.get("aria-label") for _, figure in page.figures)
    for name in ("graph", "scores", "reordered", "layout"):
        assert tiering.open(chain / name).digest in page.html
    assert "graph: graph, scores: scores" in page.all("td") and str(chain) not in page.html


def test_a_page_begins_with_a_summary(page: Page, chain: Path, documents: dict[str, Path]) -> None:
    """Its figures are those of the documents; each table and each list of fields has a name."""
    cells = page.all("td")
    summary = dict(zip(cells[:10:2], cells[1:10:2], strict=True))
    assert list(summary) == ["Dataset", "Hit rate", "Predicted epoch", "Measured epoch", "What to change"]
    graph = tiering.open(chain / "graph")
    assert f"{graph.num_nodes():,} nodes, {graph.num_edges():,} edges" in summary["Dataset"]
    rates = json.loads(documents["evaluate"].read_text())
    best = max(rate[len(rates["shares"]) // 2] for name, rate in rates["hit_rates"].items() if name != "oracle")
    assert f"serves {100 * best:.1f} % of reads" in summary["Hit rate"]
    assert summary["Predicted epoch"].startswith("layout (float32, nvme-gen3): ")
    last = json.loads(documents["trace"].read_text())["epochs"][1]
    assert f"bound by {last['bound_by']}" in summary["Measured epoch"]
    tables = re.findall(r"<table>(.*?)</table>", page.html, re.DOTALL)
    unnamed = [table for table in tables if "<caption" not in table]
    assert len(tables) > 12 and len(unnamed) == 2  # the summary, and the machine, which its heading names


def test_the_summary_names_what_a_layout_gains(chain: Path, documents: dict[str, Path], tmp_path: Path) -> None:
    """More memory where the knee lies beyond the layout's, nothing where all rows fit, a plan of its own dtype."""
    plan = json.loads(documents["plan"].read_text())
    knee = plan["epochs"][0] | {"memory": 2**60, "epoch_seconds": 0.25}
    plan["epochs"].insert(1, knee)
    plan["knees"] = [knee]
    # Of a curve that falls only where all rows fit.
    first = plan | {"knees": plan["epochs"][:1], "epochs": plan["epochs"][:2]}
    for document in (plan, first):
        words = Page(tiering.report([chain / "layout", document], tmp_path / "a.html")).all("td")
        assert any("Give training 1.049e+06 TiB: an epoch then takes 250 ms" in cell for cell in words)
    words = Page(tiering.report([chain / "layout", plan], tmp_path / "a.html")).all("td")
    assert any("Give training 1.049e+06 TiB: an epoch then takes 250 ms instead of 1.0 s." in cell for cell in words)
    for one in plan["epochs"]:
        one["dtype"] = "int8"
    page = Page(tiering.report([chain / "layout", plan], tmp_path / "b.html"))
    assert "layout stores float32, missing in the plan: run `tiering plan --dtype float32`." in page.all("p")
    assert "none for layout, which stores float32" in page.all("td")
    assert any("Run `tiering plan` with --dtype float32." in cell for cell in page.all("td"))
    knees = [{**epoch, "dtype": "int8"} for epoch in plan["knees"]]
    cells = Page(tiering.report([plan | {"knees": knees}], tmp_path / "c.html")).all("td")
    assert any(cell.startswith("plan (int8, nvme-gen3): 250 ms with ") for cell in cells)


def test_paths_are_whole_where_asked(chain: Path, tmp_path: Path, tiering_cli: Any) -> None:
    for flags, shown in (([], False), (["--paths"], True)):
        out = tmp_path / f"{shown}.html"
        tiering_cli("report", chain / "graph", *flags, "--out", out).ok()
        assert (str(chain / "graph") in Page(out).all("td")) is shown
    text = '<td>/a/b c/d</td> s3://x/y 4 GB/s x=/q/r &lt;/b> <path d="M0"/> measured:/n1 (/e/f), /proc/sys/k'
    short = '<td>b c/d</td> s3://x/y 4 GB/s x=r &lt;/b> <path d="M0"/> measured:n1 (f), /proc/sys/k'
    assert _FOLDERS.sub("", text) == short


def test_figures_show_the_numbers_of_their_sources(page: Page, chain: Path, documents: dict[str, Path]) -> None:
    figures = dict(page.figures)
    rates = json.loads(documents["evaluate"].read_text())["hit_rates"]
    for name, own in rates.items():
        assert f"{name}: {100 * own[0]:.3g} % at 1 %, " in figures["Reads served, fanouts 3,2"].get("aria-label", "")
        assert all(f"{100 * rate:.1f}" in page.all("td") for rate in own)
    tiers = tiering.open(chain / "layout").artifact.summary()["node_types"]["node"]["tiers"]
    bytes_of = [tier["bytes"] for tier in tiers.values() if tier["rows"]]
    bar = [part for part in figures["layout: bytes of feature rows by tier"] if part.get("height") == "26"]
    assert [float(part.get("width", 0)) + 1 for part in bar] == pytest.approx(
        [360 * size / sum(bytes_of) for size in bytes_of], abs=0.02
    )
    words = figures["Predicted epoch by memory"].get("aria-label", "")
    marked = re.search(r"marked: layout today: ([\d.]+) MiB at \1 MiB", words)
    planned = json.loads(documents["plan"].read_text())["epochs"][-1]
    assert planned["all_fit"] and marked is not None  # the least memory that holds all rows, less those on SSD
    assert planned["memory"] - tiers["ssd"]["bytes"] == pytest.approx(float(marked[1]) * 2**20, rel=1 / 64)
    last = json.loads(documents["trace"].read_text())["epochs"][1]
    assert any(title.endswith(f"bound by {last['bound_by']}") for title in figures if title.startswith("Epoch 1"))


@pytest.mark.parametrize("differences", [False, True])
def test_skew_is_that_of_sorted_values(differences: bool) -> None:
    """Bins of a 64th of an octave move no point by more than their width."""
    values = np.round(np.random.default_rng(0).pareto(1, 1000) * 3)
    points = _skew(np.cumsum([0, *values]).astype(np.int64) if differences else values, differences=differences)
    falling = np.cumsum([0, *np.sort(values)[::-1]]) / values.sum()
    expected = [100 * np.interp(10 * x, np.arange(1001), falling) for x, _ in points]
    assert np.array([y for _, y in points]) == pytest.approx(expected, rel=2**-6)
    assert points[0][0] == pytest.approx(0.1) and points[-1] == pytest.approx((100, 100))
    assert _skew(np.zeros(5)) == _skew(np.zeros(0)) == []


def test_a_part_without_data_says_what_fills_it(chain: Path, tmp_path: Path, tiering_cli: Any) -> None:
    out = tmp_path / "report.html"
    tiering_cli("report", chain / "graph", "--out", out).ok()
    absent = [text for text in Page(out).all("p") if text.startswith("No data.")]
    assert len(absent) == 5
    for command in ("evaluate G -s S", "plan G", "trace L"):
        assert f"No data. Give the report the output of `tiering {command} --json`." in absent
    assert json.loads(tiering_cli("report", chain / "graph", "--out", out, "--json").ok().out)["path"] == str(out)


def test_a_layout_that_a_plan_is_not_of(chain: Path, documents: dict[str, Path], tmp_path: Path) -> None:
    """One without features says so; neither it nor one of other relations is marked among predicted epochs."""
    (tmp_path / "edges.txt").write_text("0 1\n1 2\n2 0\n")
    graph = tiering.import_graph(tmp_path / "edges.txt", tmp_path / "g")
    ranked = tiering.reorder_graph(graph, tiering.score_graph(graph, tmp_path / "s", "degree"), tmp_path / "r")
    layout, plan = tiering.write_layout(ranked, tmp_path / "l"), json.loads(documents["plan"].read_text())
    page = Page(tiering.report([layout, plan], tmp_path / "page.html"))
    assert "l contains only adjacency lists: its graph has no features." in page.all("p") and "today" not in page.html
    assert not any("by tier" in title for title, _ in page.figures)
    plan["parameters"]["fanouts"] = [{"a:to:b": 3}]
    assert "today" not in Page(tiering.report([chain / "layout", plan], tmp_path / "page.html")).html


def test_opened_things_are_taken_too(chain: Path, documents: dict[str, Path], tmp_path: Path) -> None:
    evaluation = tiering.evaluate_scores(chain / "graph", [chain / "scores"], fanouts=[3], batch_size=8, epochs=1)
    things = [tiering.open(chain / "layout"), evaluation.to_json(), {"evaluations": [evaluation.to_json()] * 2}]
    assert tiering.report(things, tmp_path / "page.html") == tmp_path / "page.html"
    assert [title for title, _ in Page(tmp_path / "page.html").figures].count("Reads served, fanouts 3") == 1


def test_names_are_text(documents: dict[str, Path], tmp_path: Path) -> None:
    document = json.loads(documents["evaluate"].read_text())
    for name in ("hit_rates", "intervals"):
        document[name] = {"<script>alert(1)</script>\x1b": document[name]["oracle" if name == "hit_rates" else "wrpr"]}
    page = Page(tiering.report([document], tmp_path / "page.html"))
    assert "<script" not in page.html and r"<script>alert(1)</script>\x1b" in page.all("td")


@pytest.mark.parametrize(("text", "words"), [
    ('{"hit_rates": 3}', "expected the output of `tiering evaluate G -s S --json`, found other content (KeyError"),
    ('{"knees": [], "epochs": []}', "expected the output of `tiering plan G --json`"),
    ('{"epochs": [{"wall": 1}]}', "expected the output of `tiering trace L --json`"),
    ('{"findings": 1e999}', "expected the output of `tiering doctor --json`"),
    ('{"findings": [NaN]}', "NaN is not a number in JSON"),
    ("[1, 2", "expected an artifact, or JSON printed by a command, found: Expecting"),
    ('{"a": 1}', "expected an artifact, or the --json output of `tiering evaluate`, `plan`, `trace` or `doctor`"),
])  # fmt: skip
def test_a_document_of_another_kind(text: str, words: str, tmp_path: Path, tiering_cli: Any) -> None:
    (tmp_path / "a.json").write_text(text)
    failed = tiering_cli("report", tmp_path / "a.json", "--out", tmp_path / "report.html")
    assert failed.code == 1 and f"{tmp_path / 'a.json'}: " in failed.err and words in failed.err
    assert not (tmp_path / "report.html").exists()


def test_what_is_not_there_or_must_stay(chain: Path, tmp_path: Path, tiering_cli: Any) -> None:
    (tmp_path / "mine.html").write_text("<p>mine</p>")
    for source, out, words in (
        (tmp_path / "none", tmp_path / "a.html", "none: expected an artifact"),
        (tmp_path, tmp_path / "a.html", "expected an artifact directory"),
        (chain / "graph", tmp_path / "mine.html", "mine.html: is a file that tiering did not write"),
        (chain / "graph", tmp_path / "no" / "a.html", "does not exist; create it first"),
        (chain / "graph", chain / "graph" / "a.html", "which the command reads"),
    ):
        failed = tiering_cli("report", source, "--out", out)
        assert failed.code == 1 and words in failed.err
    assert (tmp_path / "mine.html").read_text() == "<p>mine</p>"
    with pytest.raises(InputError, match="sources: expected artifacts, or JSON"):
        tiering.report([], tmp_path / "a.html")
