"""The transition tables as text: ``python -m tests.house.tables`` prints them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias, cast

from sansmcp.states import TABLES

Table: TypeAlias = Mapping[enum.Enum, Mapping[enum.Enum, enum.Enum]]

NAMED = cast("Mapping[str, Table]", TABLES)

GOLDEN = Path(__file__).with_suffix(".txt")


def states(table: Table) -> list[enum.Enum]:
    """Every state of a table's enum, in order; the first is where things begin."""
    return list(type(next(iter(table))))


def events(table: Table) -> list[enum.Enum]:
    """Every event of a table's enum, in order."""
    (kind,) = {type(event) for row in table.values() for event in row}
    return list(kind)


def render() -> str:
    """One grid for each table: a line for each state, a column for each event."""
    return "\n".join(_grid(name, table) for name, table in NAMED.items())


def _grid(name: str, table: Table) -> str:
    rows = [[name, *(event.name.lower() for event in events(table))]]
    for state in states(table):
        targets = (table[state].get(event) for event in events(table))
        rows.append([state.name.lower(), *(_cell(target) for target in targets)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(lines) + "\n"


def _cell(target: enum.Enum | None) -> str:
    return "-" if target is None else target.name.lower()


if __name__ == "__main__":
    print(render(), end="")
