"""Cursors of lists as targets: those that clients send, and those of the pages of servers."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any
from unittest import mock

import attrs

from sansmcp import InvalidResponse, JsonRpcError, Limits
from sansmcp.codecs.json import as_object, is_array
from sansmcp.codecs.jsonrpc import INVALID_PARAMS
from sansmcp.relay import ToolFilter
from sansmcp.typed_results import MAX_PAGES, TOOLS, Pages
from sansmcp_bridge import _lists
from sansmcp_bridge._lists import KINDS, KeptLists, MergedList, shared_names
from sansmcp_bridge._patience import Patience
from sansmcp_bridge._uris import UriOwners
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
        if numbers or sent is None:  # a cursor that names none of ours may be after all entries
            last = max(numbers, default=-1)
            rest = [entry.number for entry in entries if entry.number > last]
            assert not rest, "an entry of the end is missing"


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


def merged_lists(data: bytes) -> None:
    """The parts are pages of two servers behind a bridge, then cursors that its client sends.

    Each page of a server is read; what clients get of it is one list, whose pages have each name
    once, in order, and nothing that the filter denies. A cursor of the client is refused, or a part
    of the same list follows.
    """
    seed, parts = in_parts(data)
    count = seed % (len(parts) + 1)
    pages = [[_value(part) for part in parts[start:count:2]] for start in (0, 1)]
    asyncio.run(_read_merged(pages, [_value(part) for part in parts[count:]]))


async def _read_merged(pages: list[list[Any]], cursors: list[Any]) -> None:
    names = ("a", "b")
    links: list[Any] = [
        _Link(each, SimpleNamespace(name=name)) for name, each in zip(names, pages, strict=True)
    ]
    lines: list[str] = []
    owner: Any = SimpleNamespace(
        names=shared_names(names),
        kept=KeptLists(),
        patience=Patience(),
        uris=UriOwners(),
        core=SimpleNamespace(limits=Limits()),
        now=lambda: 0.0,
        start=asyncio.ensure_future,
        log=lines.append,
    )
    merged = MergedList(owner, links, KINDS["tools/list"], ToolFilter(deny=("x*",)))
    whole = await merged.page({})
    with mock.patch.object(_lists, "_PAGE_BYTES", 100):
        await _send_to_merged(merged, [tool["name"] for tool in whole["tools"]], cursors)


async def _send_to_merged(merged: MergedList, whole: list[str], cursors: list[Any]) -> None:
    page = await merged.page({})
    listed = [tool["name"] for tool in page["tools"]]
    while "nextCursor" in page:
        page = await merged.page({"cursor": page["nextCursor"]})
        assert page["tools"], "a page of nothing"
        listed += [tool["name"] for tool in page["tools"]]
    assert listed == whole, "pages are not the list"
    assert len(listed) == len(set(listed)), "a name comes twice"
    assert not any(name.startswith("x") for name in listed), "a tool that is denied is listed"
    for cursor in cursors:
        try:
            page = await merged.page({"cursor": cursor})
        except JsonRpcError as error:
            assert error.code == INVALID_PARAMS
            continue
        found = [tool["name"] for tool in page["tools"]]
        start = listed.index(found[0]) if found else 0
        assert found == listed[start : start + len(found)]


@attrs.define(eq=False)
class _Link:
    """What a list needs of the way to a server, which sends these pages again and again."""

    pages: list[Any]
    upstream: Any
    client: Any = attrs.field(init=False)
    bridge: Any = attrs.field(init=False)
    changed: set[str] = attrs.field(factory=set[str])
    asked: int = 0

    def __attrs_post_init__(self) -> None:
        capabilities = SimpleNamespace(capabilities={"tools": {}})
        self.client = SimpleNamespace(call=self._call, connected=capabilities)
        self.bridge = SimpleNamespace(core=SimpleNamespace(limits=Limits()))

    async def connected(self, timeout: float | None) -> None:
        """The server is connected."""

    async def _call(self, _: str, params: dict[str, Any], *_settings: Any) -> Any:
        self.asked = self.asked + 1 if "cursor" in params else 1
        return self.pages[(self.asked - 1) % len(self.pages)] if self.pages else {}


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
