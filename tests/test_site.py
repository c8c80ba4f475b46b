"""The docs site, built and read in a real browser: no other host is asked, search and links work."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.client import HTTPConnection
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pytest

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parent.parent
FETCHED = {"img": "src", "script": "src", "iframe": "src", "source": "src"}
FETCHED_LINKS = {"stylesheet", "icon", "preload", "preconnect", "manifest", "modulepreload", "dns-prefetch"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with warnings as errors."""
    for module in ("mkdocs", "material", "mkdocstrings_handlers"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed: `make docs` installs it")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)],
        cwd=REPOSITORY, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Quiet(SimpleHTTPRequestHandler):
    """Files of a folder; keeps connections open, and no log."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served, on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        server.daemon_threads = True
        server.block_on_close = False
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """A window on the site's front page; at the end no other host was asked and nothing complained."""
    foreign: list[str] = []
    complaints: list[str] = []

    def ask(route: Any) -> None:
        if route.request.url.startswith((address, "data:", "blob:")):
            route.continue_()
        else:
            foreign.append(route.request.url)
            route.abort()

    with browser.new_context(viewport={"width": 1400, "height": 900}) as context:
        context.set_default_timeout(20_000)
        context.route("**/*", ask)
        page = context.new_page()
        page.on("console", lambda line: complaints.append(line.text) if line.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("response", lambda answer: complaints.append(answer.url) if answer.status >= 400 else None)
        page.goto(address)
        yield page
    assert not foreign, "the site asks other hosts"
    assert not complaints


@pytest.fixture
def expect(browser: Any) -> Any:
    """Waits until what is said of a page holds."""
    from playwright.sync_api import expect

    return expect


@pytest.mark.parametrize(
    ("words", "path", "heading"),
    [("hybrid", "scores.html", "hybrid"), ("look-ahead", "internals/lookahead.html", "Reading ahead, measured"),
     ("pyg_loader", "api/layout.html", "pyg_loader")],
)  # fmt: skip
def test_a_word_typed_into_the_search_leads_to_its_page(page, expect, words, path, heading):
    page.locator("input.md-search__input").click()
    # Not letter by letter: lunr may fail at "look-", where the "-" stands for all words.
    page.keyboard.insert_text(words[:-1])
    page.keyboard.type(words[-1])
    # A page some section of which has the words comes first without them (h is empty); the sections follow.
    result = page.locator(f'a.md-search-result__link[href*="{path}?h="]:not([href$="?h="])').first
    result.click()
    page.wait_for_url(re.compile(re.escape(path)))
    expect(page.locator("article").get_by_role("heading", name=heading).first).to_be_visible()
    expect(page.locator("article mark").first).to_be_attached()  # the words, where they stand


def test_the_navigation_leads_to_pyg_and_to_the_reference_of_its_loader(page, expect):
    expect(page.locator("article h1")).to_contain_text("tiering")
    page.locator("nav.md-nav--primary").get_by_role("link", name="PyG", exact=True).click()
    expect(page.locator("article h1")).to_contain_text("PyG")
    blocks, buttons = page.locator("article pre > code"), page.locator("article pre button.md-code__button")
    expect(blocks.first).to_be_visible()
    assert blocks.count() > 3
    expect(buttons).to_have_count(blocks.count())

    page.locator("nav.md-nav--primary label:visible", has_text="Python API").click()
    page.locator("nav.md-nav--primary").get_by_role("link", name="Layouts", exact=True).click()
    expect(page.locator("article h1")).to_contain_text("Layouts")
    page.locator("nav.md-nav--secondary").get_by_role("link", name="pyg_loader").first.click()
    page.wait_for_url(re.compile(r"#tiering\.loader\.TieredLayout\.pyg_loader$"))
    method = page.locator(".doc-function", has=page.locator('[id="tiering.loader.TieredLayout.pyg_loader"]'))
    expect(method.get_by_role("heading", name="pyg_loader")).to_be_in_viewport()
    expect(method).to_contain_text("num_neighbors")
    expect(method).to_contain_text("As in PyG: per hop, the seeds' own first")


PAGES = ["index", "command-line", "importing", "datasets", "evaluate", "gpu", "api/options", "data_specs/layout"]
PAGES += ["CHANGELOG"]


def test_pages_are_no_wider_than_the_window_and_turn_dark(page, expect):
    for name in PAGES:
        page.goto(urljoin(page.url, f"/{name}.html"))
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 1400, f"{name} is {wide} wide"
    color = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(color)
    page.locator("label.md-header__button[title=Dark]").click()
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    assert page.evaluate(color) != light


# Faults of a page as a browser shows it: buttons over the code that they copy, words of tables on two lines.
FAULTS = """() => {
  const rects = (node, begin, end) => {
    const range = document.createRange();
    range.setStart(node, begin);
    range.setEnd(node, end);
    return [...range.getClientRects()];
  };
  const words = function* (root) {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    for (let node; (node = walker.nextNode()); )
      for (const word of node.textContent.matchAll(/\\S+/g))
        yield [word[0], rects(node, word.index, word.index + word[0].length)];
  };
  const faults = [];
  for (const button of document.querySelectorAll(".md-code__button")) {
    const box = button.getBoundingClientRect(), code = button.closest("pre").querySelector("code");
    const edge = code.getBoundingClientRect().right;  // what lies beyond is hidden until code is scrolled
    const right = (r) => Math.min(r.right, edge);
    for (const [word, places] of words(code))
      if (places.some((r) => r.left < box.right && right(r) > box.left && r.top < box.bottom && r.bottom > box.top))
        faults.push(`a button lies over ${word}`);
  }
  for (const cell of document.querySelectorAll("article table :is(td, th)"))
    for (const [word, places] of words(cell))
      if (new Set(places.map((r) => Math.round(r.top))).size > 1) faults.push(`${word} is broken`);
  for (const code of document.querySelectorAll("article :not(pre) > code"))
    if (/^--[\\w-]+$/.test(code.textContent) && code.getClientRects().length > 1)
      faults.push(`${code.textContent} is broken`);
  return faults;
}"""


@pytest.mark.parametrize("width", [390, 1000, 1400])
def test_code_and_tables_are_whole(page, width):
    """No page is wider, no button lies over the code that it copies, and no name in a table is broken."""
    page.set_viewport_size({"width": width, "height": 844})
    blocks = "document.querySelectorAll('pre > code').length"
    shown = 0
    for name in PAGES:
        page.goto(urljoin(page.url, f"/{name}.html"))
        page.wait_for_function(f"{blocks} == document.querySelectorAll('.md-code__button').length")
        faults = page.evaluate(FAULTS)
        assert not faults, f"{name}: {faults[:5]}"
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        shown += page.evaluate(blocks)
    assert shown > 30


class Page(HTMLParser):
    """What a page links to, what a browser fetches to show it, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.fetched: set[str] = set()
        self.anchors: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag in ("a", "link") and "href" in given:
            self.links.add(given["href"])
        if tag in FETCHED and FETCHED[tag] in given:
            self.fetched.add(given[FETCHED[tag]])
        if tag == "link" and FETCHED_LINKS & set(given.get("rel", "").split()):
            self.fetched.add(given["href"])


def test_every_link_within_the_site_answers_and_no_page_needs_another_host(site, address):
    pages = {f"{address}{path.relative_to(site).as_posix()}": Page(path.read_text()) for path in site.rglob("*.html")}
    assert len(pages) > 40
    connection = HTTPConnection(urlsplit(address).netloc)
    status: dict[str, int] = {}
    wrong = []
    for url, page in pages.items():
        wrong += [f"{url} fetches {name}" for name in page.fetched if not urljoin(url, name).startswith(address)]
        for link in page.links | page.fetched:
            target, anchor = urldefrag(urljoin(url, link))
            if not target.startswith(address):
                continue
            if target not in status:
                connection.request("HEAD", urlsplit(target).path)
                answer = connection.getresponse()
                answer.read()
                status[target] = answer.status
            if status[target] != 200:
                wrong.append(f"{url}: {link} answers {status[target]}")
            elif target in pages and unquote(anchor) not in pages[target].anchors:
                wrong.append(f"{url}: {link} has no such anchor")
    connection.close()
    assert not wrong, "\n".join(wrong)
    assert len(status) > 60
    styles = [
        path for path in site.rglob("*.css") if re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", path.read_text())
    ]
    assert not styles
