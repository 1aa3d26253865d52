"""The table of guarantees in docs/streams.md is what happens, on each adapter."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from ..docs.documents import DOCS, ROOT, tables
from .cells import ADAPTERS, COLUMNS, CUTS, Column, World

HEADING = "What cuts a call"
BY_DEFAULT = (
    "2024-11-05 (HTTP+SSE)",
    "the same, kept in memory (default)",
    "2026-07-28, no task (default)",
)
"""The columns that the README has."""


def table(document: Path) -> list[list[str]]:
    """The rows of the table of guarantees, without its heading."""
    (found,) = [table for table in tables(document) if table[0][0] == HEADING]
    return found


def test_the_table_has_all_rows_and_columns() -> None:
    heading, *rows = table(DOCS / "streams.md")
    assert heading[1:] == [column.title for column in COLUMNS]
    assert [row[0] for row in rows] == list(CUTS)


def test_the_readme_has_a_part_of_it_by_default() -> None:
    heading, *rows = table(ROOT / "README.md")
    titles = [column.title for column in COLUMNS]
    defaults = [titles.index(each) + 1 for each in BY_DEFAULT]
    whole = {row[0]: [row[number] for number in defaults] for row in table(DOCS / "streams.md")}
    assert len(heading) == len(defaults) + 1
    assert len(rows) == 4
    for what, *cells in rows:
        # On a page without the row before it, "it" has no meaning.
        assert whole[what.replace("after the server's first message", "after it")] == cells


@pytest.mark.parametrize(
    ("number", "column", "revision", "adapter"),
    [
        pytest.param(
            *(number, column, revision, adapter),
            id=f"{revision}, {column.kept}, {number}-{adapter}",
            # Each revision of each column always runs on one adapter; they take turns.
            marks=() if (number + place) % len(ADAPTERS) == turn else pytest.mark.thorough,
        )
        for number, column in enumerate(COLUMNS, 1)
        for place, revision in enumerate(column.revisions)
        for turn, adapter in enumerate(ADAPTERS)
    ],
)
def test_each_cell_is_what_happens(
    number: int, column: Column, revision: str, adapter: str, tmp_path: Path
) -> None:
    _, *rows = table(DOCS / "streams.md")
    with ExitStack() as stack:
        world = World(adapter, column, revision, tmp_path, stack)
        expected = {row[0]: row[number] for row in rows}
        assert world.run_all(expected) == expected
