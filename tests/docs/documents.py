"""What is said in the documents, for tests that hold them to it."""

from __future__ import annotations

import itertools
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


def tables(document: Path) -> list[list[list[str]]]:
    """The rows of each of its tables, the heading first."""
    lines = document.read_text(encoding="utf-8").splitlines()
    found: list[list[list[str]]] = []
    for number, line in enumerate(lines):
        if re.fullmatch(r"[| -]+", line) and line:
            below = itertools.takewhile(lambda line: line.startswith("|"), lines[number + 1 :])
            found.append([_cells(row) for row in (lines[number - 1], *below)])
    return found


def rows(document: Path) -> list[list[str]]:
    """The rows of its tables, without their headings."""
    return [row for table in tables(document) for row in table[1:]]


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]
