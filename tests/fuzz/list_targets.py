"""Cursors of lists as targets: those that clients send, and those of the pages of servers."""

from __future__ import annotations

import json
from typing import Any

import attrs

from sansmcp import InvalidResponse, JsonRpcError
from sansmcp.codecs.json import as_object, is_array
from sansmcp.codecs.jsonrpc import INVALID_PARAMS
from sansmcp.typed_results import MAX_PAGES, TOOLS, Pages
from sansmcp_tools._pages import page_of

from .inputs import in_parts
from .mutations import Mutator


@attrs.frozen
class _Entry:
    number: int


def page_cursors(data: bytes) -> None:
    """Each part is a cursor that a client sends: a page follows, or it is refused.

    From each page on, the list goes on to its end, in order and without an entry twice. Where the
    parts are the pages of a server, its list ends, too.
    """
    seed, parts = in_parts(data)
    _send_cursors(Mutator(seed), 1 + seed % 7, parts)
    _read_pages(parts)


def _send_cursors(random: Mutator, size: int, parts: list[bytes]) -> None:
    entries = [_Entry(2 * number) for number in range(20)]
    known: list[str | None] = [None]
    for part in parts:
        sent: Any = _value(part.replace(b"CURSOR", (known[-1] or "").encode()))
        try:
            found, cursor = page_of(entries, sent, size)
        except JsonRpcError as error:
            assert error.code == INVALID_PARAMS
            assert sent not in known, "a cursor of the server is refused"
            continue
        if cursor is not None:
            known.append(cursor)
            if random.random() < 0.3:  # entries come and go between two pages
                entries.append(_Entry(entries[-1].number + 1))
                entries.pop(random.randrange(len(entries)))
        numbers = [entry.number for entry in found]
        while cursor is not None:
            assert len(found) == size
            found, cursor = page_of(entries, cursor, size)
            numbers += [entry.number for entry in found]
        assert numbers == sorted(set(numbers)), "an entry comes twice"
        expected = {entry.number for entry in entries if entry.number > max(numbers, default=-1)}
        assert not expected, "an entry of the end is missing"


def _read_pages(parts: list[bytes]) -> None:
    """Read the parts as pages, again and again, as a server may send them without end."""
    pages, names = Pages(TOOLS), list[str]()
    results = [_value(part) for part in parts]
    for count in range(MAX_PAGES + 1):
        assert count < MAX_PAGES, "more pages than there may be"
        try:
            items = list(pages.items(results[count % len(results)]))
        except InvalidResponse:
            break
        names += [item["name"] for item in items if isinstance(item.get("name"), str)]
        if pages.is_done:
            break
        assert pages.params is not None
        assert isinstance(pages.params["cursor"], str)
    assert len(names) == len(set(names)) or any(map(_repeats_itself, results))


def _repeats_itself(page: Any) -> bool:
    """Whether a name is twice in one page, which is passed on as the server sent it."""
    items = (as_object(page) or {}).get("tools")
    found: list[Any] = items if is_array(items) else []
    names = [(as_object(item) or {}).get("name") for item in found]
    texts = [name for name in names if isinstance(name, str)]
    return len(texts) != len(set(texts))


def _value(part: bytes) -> Any:
    """Return a part as JSON, or as text if it is none."""
    try:
        return json.loads(part)
    except (ValueError, RecursionError):
        return part.decode("utf-8", "replace")
