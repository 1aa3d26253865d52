"""What is said in the documents, for tests that hold them to it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def blocks(document: Path, language: str) -> list[str]:
    """The blocks of code in a language, in order."""
    text = document.read_text(encoding="utf-8")
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return found


def links(document: Path) -> list[str]:
    """Where its links lead, without those that lead out of the project."""
    text = re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.M | re.S)
    return [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]


def rows(document: Path) -> list[list[str]]:
    """The rows of its tables, without their headings."""
    lines = document.read_text(encoding="utf-8").splitlines()
    marks = [number for number, line in enumerate(lines) if re.fullmatch(r"[| -]+", line) and line]
    found: list[list[str]] = []
    for mark in marks:
        for line in lines[mark + 1 :]:
            if not line.startswith("|"):
                break
            found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found
