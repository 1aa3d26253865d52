"""No link of a document is dead, and the README leads to every page."""

from __future__ import annotations

from pathlib import Path

import pytest

from .documents import DOCS, ROOT, links

PAGES = sorted(DOCS.glob("*.md"))


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *PAGES], ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    assert [link for link in links(page) if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_readme_leads_to_it(page: Path) -> None:
    assert page.relative_to(ROOT).as_posix() in links(ROOT / "README.md")
