"""The table of refusals: what every row must be, whoever writes the next one."""

from __future__ import annotations

import string

import pytest

from sansmcp.server import refusals
from sansmcp.server.refusals import Row

ROWS = {name: row for name, row in vars(refusals).items() if isinstance(row, Row)}


def named(row: Row) -> list[str]:
    """The values that a text names."""
    return [name for _, name, _, _ in string.Formatter().parse(row.text) if name is not None]


@pytest.mark.parametrize("name", ROWS)
def test_a_row_makes_an_error(name: str) -> None:
    row = ROWS[name]
    values = dict.fromkeys(named(row), "x{y}")
    error = row(7, data={"more": 1}, headers=((b"allow", b"GET"),), **values)
    assert (error.http_status, error.jsonrpc_code) == (row.status, row.code)
    assert (error.request_id, error.headers) == (7, ((b"allow", b"GET"),))
    assert error.reply.data == {"reason": row.reason, **dict.fromkeys(row.told, "x{y}"), "more": 1}
    assert not row.text.endswith(".")
    assert row.reason.replace("_", "").isalpha()


def test_what_error_data_tells_is_named_in_the_text() -> None:
    assert [name for name, row in ROWS.items() if not {*row.told} <= {*named(row)}] == []


def test_a_reason_means_one_thing() -> None:
    """Rows of one reason differ by their text, or by what revisions prescribe."""
    assert len({(row.status, row.code, row.reason, row.text) for row in ROWS.values()}) == len(ROWS)
