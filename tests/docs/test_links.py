"""No link of a document is dead, and the README and the list of decisions lead to every page."""

from __future__ import annotations

from pathlib import Path

import pytest

from .documents import DOCS, ROOT, links

PAGES = sorted(DOCS.glob("*.md"))
DECISIONS = sorted((DOCS / "decisions").glob("*.md"))
ALL = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *PAGES, *DECISIONS]


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    assert [link for link in links(page) if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_readme_leads_to_it(page: Path) -> None:
    assert page.relative_to(ROOT).as_posix() in links(ROOT / "README.md")


def test_the_list_of_decisions_leads_to_each() -> None:
    listed = links(DOCS / "decisions" / "README.md")
    pages = [page.name for page in DECISIONS if page.name != "README.md"]
    assert sorted(link for link in listed if "/" not in link) == pages
