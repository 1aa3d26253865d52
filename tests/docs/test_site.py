"""The documentation site: no warning, nothing from outside, every public name."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from .documents import ROOT

if sys.version_info < (3, 11):
    pytest.skip(
        "the last mkdocstrings for Python 3.10 does not work with its pymdown-extensions",
        allow_module_level=True,
    )

from .site import public_names

_LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src"}
"""What a browser loads by itself, and the attribute that says from where."""


class _Page(HTMLParser):
    """The anchors of a page, and where what it loads comes from."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.loaded: list[str] = []
        self.diagrams = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors.add(values.get("id", ""))
        self.diagrams += "mermaid" in values.get("class", "")  # its script comes from outside
        if tag in _LOADING:
            self.loaded.append(values.get(_LOADING[tag], ""))
        elif tag == "link" and values.get("rel") != "canonical":
            self.loaded.append(values["href"])


def read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The site, built as ``make docs`` builds it, but elsewhere, and once for all workers."""
    folder = tmp_path_factory.getbasetemp()
    if worker_id != "master":
        folder = folder.parent
    with (folder / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "site").exists():
            _build(folder / "unfinished")
            (folder / "unfinished").rename(folder / "site")
    return folder / "site"


def _build(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout


def test_pages_load_nothing_from_outside(site: Path) -> None:
    pages = {path: read(path) for path in site.rglob("*.html")}
    assert len(pages) > 40
    assert {
        path.name: found
        for path, page in pages.items()
        if (found := [each for each in page.loaded if "//" in each]) or page.diagrams
    } == {}


def test_styles_load_nothing_from_outside(site: Path) -> None:
    styles = {path.name: path.read_text(encoding="utf-8") for path in site.rglob("*.css")}
    assert styles
    outside = re.compile(r"@import[^;]*//|url\(['\"]?(?:https?:)?//")
    assert [name for name, text in styles.items() if outside.search(text)] == []


def test_every_public_name_is_on_the_page_of_its_package(site: Path) -> None:
    names = public_names()
    assert {"sansmcp", "sansmcp_tools", "sansmcp.events"} <= names.keys()
    assert {
        package: missing
        for package, each in names.items()
        if (
            missing := {f"{package}.{name}" for name in each}
            - read(site / "api" / f"{package}.html").anchors
        )
    } == {}


def test_pages_can_be_searched(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {each["location"] for each in index["docs"]}
    assert {"tutorial.html", "api/sansmcp.html#sansmcp.SseDecoder"} <= found
