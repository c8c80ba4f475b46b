"""Pages of the docs site: they keep their paths in the repository, so that a link works on the site as it does there.

Beside docs/ the site has the README, which is its front page, the file formats, the examples as pages of code,
and a page for each family of published datasets.
"""

from __future__ import annotations

import re
import sys
from dataclasses import MISSING, fields
from importlib import import_module
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).resolve().parent))

import click
from dataset_pages import dataset_page

from cli.commands import commands
from tiering.datasets.specs import families
from tiering.text.options import options_of, spell_flag

ROOT = Path(__file__).resolve().parent.parent
TAKEN = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "data_specs/*.md", "data_specs/schemas/*.json"]
FORMATS = "data_specs/examples"


class CodePage(File):
    """A page made of a file, or a directory, that is not Markdown; links name the file."""

    def is_documentation_page(self) -> bool:
        return True


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """All files of the site, by their paths in the repository."""
    own = [file for file in files if file.src_dir == config.docs_dir and not file.src_uri.endswith((".py", ".pyc"))]
    site = Files([file for file in files if file.src_dir != config.docs_dir])  # the theme's
    names = [f"docs/{file.src_uri}" for file in own]
    names += [path.relative_to(ROOT).as_posix() for pattern in TAKEN for path in sorted(ROOT.glob(pattern))]
    for name in names:
        file = File(name, str(ROOT), config.site_dir, config.use_directory_urls)
        file.dest_uri = file.dest_uri.removeprefix("docs/") if file.is_documentation_page() else file.dest_uri
        site.append(file)
    for path in sorted((ROOT / "examples").glob("*.py")):
        site.append(CodePage.generated(config, f"examples/{path.name}", content=script_page(path)))
    for name, family in families().items():
        page = dataset_page(family, ROOT / "examples" / "datasets")
        file = File.generated(config, f"docs/datasets/{name}.md", content=page)
        file.dest_uri = file.dest_uri.removeprefix("docs/")
        site.append(file)
    site.append(CodePage.generated(config, FORMATS, content=formats_page(ROOT / FORMATS)))
    return site


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace lines such as ``%options tiering.sampling.SamplingOptions%`` by tables and ``%commands%`` by help."""
    markdown = re.sub(r"^%commands%$", lambda _: commands_help(), markdown, flags=re.M)
    return re.sub(r"^%options ([\w.]+)\.(\w+)%$", lambda found: options_table(*found.groups()), markdown, flags=re.M)


def on_page_content(html: str, **_: Any) -> str:
    """Keep names in one piece in the cells of tables, and flags in text; ``|`` needs no backslash in a cell of HTML."""
    html = re.sub(r"<code>--[^<]*", keep_names, html)
    cells = re.compile(r"<td.*?</td>", re.S)
    return cells.sub(lambda cell: re.sub(r">[^<]+", keep_names, cell[0].replace("\\|", "|")), html)


def keep_names(text: re.Match[str]) -> str:
    """Mark names such as ``--no-header`` and ``ogbn-products``, which site.css keeps on one line."""
    return re.sub(r"--[\w-]+|[\w.]+(?:[-/][\w.]+)+", r'<span class="name">\g<0></span>', text[0])


def options_table(module: str, name: str) -> str:
    """The options of a dataclass as a table: keyword, flag, default, what it does."""
    table = getattr(import_module(module), name)
    defaults = {entry.name: entry.default for entry in fields(table)}
    rows = ["| Keyword | Flag | Default | Meaning |", "|---|---|---|---|"]
    for key, option in options_of(table).items():
        default = defaults[key] if isinstance(defaults[key], (str, int, float)) and defaults[key] is not MISSING else ""
        flag = " ".join(option.flags or (spell_flag(key),))
        text = option.help.replace("|", "\\|")
        rows.append(f"| `{key}` | `{flag}` | {f'`{default!r}`' if default != '' else ''} | {text} |")
    return "\n".join(rows)


def commands_help() -> str:
    """Return the help of the program and of each command, under their names."""
    settings: dict[str, Any] = {"resilient_parsing": True, "terminal_width": 88}
    pages = {"tiering": commands.make_context("tiering", [], **settings)}
    for name in commands.list_commands(top := pages["tiering"]):
        if (command := commands.get_command(top, name)) is not None:
            pages[f"tiering {name}"] = command.make_context(name, [], parent=top, **settings)
    text = [f"## {name}\n\n```text\n{click.unstyle(page.get_help())}\n```" for name, page in pages.items()]
    return "\n\n".join(text)


def script_page(path: Path) -> str:
    """A script of examples/ under its name."""
    return f"# {path.name}\n\n```python\n{path.read_text()}```\n"


def formats_page(folder: Path) -> str:
    """The files of each artifact in `folder` with their sizes, and its manifest."""
    text = ["# Artifacts, complete and tiny", "Their files with the bytes of each, and their manifests."]
    for artifact in sorted(path for path in folder.iterdir() if path.is_dir()):
        files = sorted(path for path in artifact.rglob("*") if path.is_file())
        rows = [f"{path.stat().st_size:>8}  {path.relative_to(artifact)}" for path in files]
        text += [f"## {artifact.name}", "```text\n" + "\n".join(rows) + "\n```"]
        text += ["```json\n" + (artifact / "manifest.json").read_text().rstrip() + "\n```"]
    return "\n\n".join(text) + "\n"
