"""The code of docs/gpu.md runs."""

from __future__ import annotations

import re


def test_code_of_the_page(gpu, kit, build, repository, tmp_path, monkeypatch, capsys):
    build(kit.small_graph()).close()
    (tmp_path / "layout-0").rename(tmp_path / "layout")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```$", (repository / "docs" / "gpu.md").read_text(), re.M | re.S)
    names: dict[str, object] = {}
    exec(compile(code, "gpu.md", "exec"), names)  # noqa: S102 - our own page
    assert tuple(names["rows"].shape) == (3, 8)
    assert names["x"].shape[0] == len(names["batch"].nodes["node"])
    assert "gpu 30 rows in cuda:0" in capsys.readouterr().out
