"""The documentation site: no warning, nothing from outside, every public name."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

if sys.version_info < (3, 11):
    pytest.skip(
        "the last mkdocstrings for Python 3.10 does not work with its pymdown-extensions",
        allow_module_level=True,
    )

from tests.house import public_api

from .site import page_of, public_names

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


def page_of_api(site: Path, title: str) -> _Page:
    """The page of a group of the API."""
    (group,) = (each for each in GROUPS if each.title == title)
    return read(site / page_of(group).replace(".md", ".html"))


GROUPS = (*public_api.USERS, *public_api.AUTHORS)


@pytest.mark.parametrize("title", [group.title for group in GROUPS])
def test_every_public_name_is_on_the_page_of_its_group(site: Path, title: str) -> None:
    (group,) = (each for each in GROUPS if each.title == title)
    names = {f"{group.module}.{name}" for name in public_api.names_of(group)}
    assert names
    assert names - page_of_api(site, title).anchors == set()


def test_groups_have_the_names_of_all_packages() -> None:
    assert {"sansmcp", "sansmcp_tools", "sansmcp.events"} <= public_names().keys()
    assert "SseDecoder" in public_names()["sansmcp"]


def test_a_client_is_shown_as_a_program_uses_it(site: Path) -> None:
    anchors = page_of_api(site, "asyncio").anchors
    for kind in ("Client", "RunningServer", "Call", "ClientGroup"):
        assert f"sansmcp_asyncio.{kind}" in anchors
    assert {
        "sansmcp_asyncio.Client.call_tool",
        "sansmcp_asyncio.Client.tools",
        "sansmcp_asyncio.Client.aclose",
        "sansmcp_asyncio.Call.progress",
        "sansmcp_asyncio.RunningServer.publish",
        "settings-of-connect",
        "settings-of-serve",
    } <= anchors
    driver = {"handle_timeout", "pump", "perform_effect", "begin_call", "core"}
    assert {f"sansmcp_asyncio.Client.{name}" for name in driver} & anchors == set()


def test_methods_without_a_docstring_have_that_of_the_method_they_replace(site: Path) -> None:
    page = (site / "api" / "sansmcp_blocking.html").read_text(encoding="utf-8")
    _, _, after = page.partition('id="sansmcp_blocking.Client.call_tool"')
    assert "Parameters:" in after.partition("<h3")[0]


def test_attributes_are_shown_with_their_defaults(site: Path) -> None:
    pages = {path.name: path.read_text(encoding="utf-8") for path in (site / "api").glob("*.html")}
    shown = {name: re.sub("<[^>]+>", "", page) for name, page in pages.items()}
    assert "expires_in: float | None = None" in shown["sansmcp-applications-and-servers.html"]
    assert [name for name, text in shown.items() if "attrs.field(" in text] == []


def test_what_is_copied_has_no_prompts(site: Path) -> None:
    """The script marks a block while it copies it, and the style hides prompts and output then."""
    scripts = (site / "assets" / "javascripts").glob("bundle*.js")
    assert any("data-md-copying" in path.read_text(encoding="utf-8") for path in scripts)
    style = (site / "site.css").read_text(encoding="utf-8")
    assert "[data-md-copying] .gp,\n[data-md-copying] .go {\n  display: none;" in style
    tutorial = (site / "tutorial.html").read_text(encoding="utf-8")
    assert 'class="gp"' in tutorial
    assert 'class="go"' in tutorial


def documents(site: Path) -> list[dict[str, Any]]:
    """What the search knows."""
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = index["docs"]
    return found


def test_pages_can_be_searched(site: Path) -> None:
    found = {each["location"] for each in documents(site)}
    assert {"tutorial.html", "api/sansmcp-codecs.html#sansmcp.SseDecoder"} <= found
    places = {each.partition("/")[0].partition(".")[0] for each in found}
    assert places & {"decisions", "source", "requirements", "history"} == set()


@pytest.fixture(scope="module")
def search(site: Path) -> Callable[[str], str]:
    """A search as the site does it: where the first of the results is."""
    lunr = pytest.importorskip("lunr")
    found = documents(site)
    separator = json.loads((site / "search" / "search_index.json").read_text())["config"][
        "separator"
    ]

    def words_of(text: str) -> str:
        return " ".join(re.split(separator, re.sub("<[^>]+>", "", text)))

    texts = [{key: words_of(each[key]) for key in ("title", "text")} for each in found]
    rows = [
        ({"id": str(number), **text}, {"boost": each.get("boost", 1)})
        for number, (text, each) in enumerate(zip(texts, found, strict=True))
    ]
    fields = ({"field_name": "title", "boost": 1000}, "text")
    index = lunr.lunr(ref="id", fields=fields, documents=rows)

    def first(words: str) -> str:
        results = index.search(" ".join(f"+{word}" for word in words.split()))
        return str(found[int(results[0]["ref"])]["location"]) if results else ""

    return first


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("timeout", "production.html"),
        ("unit test", "questions.html"),
        ("api key", "questions.html"),
        ("claude", "hosts.html"),
        ("cursor", "hosts.html"),
        ("vs code", "hosts.html"),
        ("sampling", "questions.html"),
        ("image", "questions.html"),
        ("max_message_bytes", "api/sansmcp-applications-and-servers.html"),
        ("concurrency", "questions.html"),
        ("rate", "questions.html"),
        ("nginx", "questions.html"),
        ("host 403", "questions.html"),
        ("cors", "questions.html"),
        ("fastmcp", "migrating.html"),
        ("error model", "questions.html"),
        ("remove tools", "tools.html"),
        ("see messages", "questions.html"),
        ("type client", "questions.html"),
        ("server restarts", "questions.html"),
        ("windows", "questions.html"),
        ("lifespan", "questions.html"),
        ("docker", "containers.html"),
        ("stability", "stability.html"),
        ("migrate", "questions.html"),
        ("throttle", "questions.html"),
        ("parallel", "questions.html"),
        ("elicitation", "questions.html"),
        ("headers", "questions.html"),
        ("add tool", "tools.html"),
    ],
)
def test_a_page_for_users_is_found_first(
    search: Callable[[str], str], words: str, page: str
) -> None:
    assert search(words).partition("#")[0] == page
