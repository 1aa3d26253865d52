"""No link of a document is dead, and the site and the list of decisions lead to every page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .documents import DOCS, ROOT, links

PAGES = sorted(DOCS.glob("*.md"))
DECISIONS = DOCS / "decisions"
ALL = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *PAGES, *sorted(DECISIONS.glob("*.md"))]


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    assert [link for link in links(page) if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_site_leads_to_it(page: Path) -> None:
    assert f": {page.name}\n" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_the_list_of_decisions_has_each_by_its_title() -> None:
    listed = re.findall(r"^\* \[(.+)\]\((.+)\)$", (DECISIONS / "README.md").read_text(), re.M)
    pages = {page for page in ALL if page.parent == DECISIONS and page.name != "README.md"}
    titles = {page.name: page.read_text().partition("\n")[0].removeprefix("# ") for page in pages}
    assert len(listed) == len(titles)
    assert {name: title for title, name in listed} == titles


def test_the_readme_stays_short() -> None:
    """It had 3,887 words; that of httpx has 548."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
