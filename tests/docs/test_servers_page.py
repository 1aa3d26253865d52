"""The page about files of servers lists each member that is known, and its example can be read."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from sansmcp_local import read_servers
from sansmcp_local._server_files import HARMLESS, READ, TRANSPORTS

from .documents import DOCS, blocks, tables

PAGE = DOCS / "servers.md"


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_each_member_is_on_the_page() -> None:
    members, *_ = tables(PAGE)
    listed = {word: here for member, _, here in members[1:] for word in words(member)}
    assert {*listed} >= READ | HARMLESS
    silent = {word for word, here in listed.items() if here.startswith("ignored")}
    silent -= {word for word, here in listed.items() if "warning" in here}
    assert silent == HARMLESS


def test_each_word_for_a_transport_is_on_the_page() -> None:
    text = PAGE.read_text("utf-8")
    spelled = {name for name in TRANSPORTS if f"`{name}`" in text}
    assert {*TRANSPORTS} - spelled == {"streamable_http", "streamablehttp", "http+sse"}


def test_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("SHOP_TOKEN", "t")
    monkeypatch.delenv("LEVEL", raising=False)
    example: Any = json.loads(blocks(PAGE, "json")[0])
    found = read_servers(example)
    assert found.failures == {}
    assert found.servers["files"].target[-1] == "/home/ann/notes"
    assert found.servers["files"].env == {"LOG_LEVEL": "warn"}
    assert found.servers["shop"].headers == [("Authorization", "Bearer t")]
