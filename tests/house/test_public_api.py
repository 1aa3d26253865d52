"""The public API is what its file and the page on stability say."""

from __future__ import annotations

import difflib

import pytest

pytest.importorskip("griffe", reason="comes with mkdocstrings, which this Python may not have")

from .public_api import (
    AUTHORS,
    GOLDEN,
    NOT_PUBLIC,
    OF_DRIVERS,
    PAGE,
    USED,
    USERS,
    exports,
    is_used,
    members_of,
    names_of,
    packages,
    page,
    render,
)

GROUPS = (*USERS, *AUTHORS)

HOW = """The public API has changed. If that is meant: python -m tests.house.public_api
writes the file anew, and a line of docs/history.md or CHANGELOG.md tells users what changed.
docs/stability.md says what may change in which release.
"""


def test_the_public_api_is_that_of_the_file() -> None:
    was, now = GOLDEN.read_text(encoding="utf-8"), render()
    changes = difflib.unified_diff(
        was.splitlines(), now.splitlines(), "was", "is", n=0, lineterm=""
    )
    assert was == now, HOW + "\n".join(changes)


def test_the_page_lists_the_groups() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(text), "python -m tests.house.public_api writes its tables anew"


def test_every_exported_name_is_in_one_group() -> None:
    modules = {group.module for group in GROUPS} | {*packages()} - {*NOT_PUBLIC}
    exported = sorted((module, name) for module in modules for name in exports(module))
    assert sorted((group.module, name) for group in GROUPS for name in names_of(group)) == exported


def test_every_member_that_is_named_exists() -> None:
    found: dict[str, set[str]] = {}
    for group in USERS:
        for name in {*names_of(group)} & {*USED, *OF_DRIVERS}:
            found.setdefault(name, set()).update(members_of(group.module, name))
    used = {member for name in USED for member in USED[name]}
    assert used - {member for name in USED for member in found[name]} == set()
    assert {
        name: missing for name in OF_DRIVERS if (missing := OF_DRIVERS[name] - found[name])
    } == {}


def test_what_only_drivers_call_is_not_for_users() -> None:
    text = render()
    assert is_used("RunningServer", "publish")
    assert not is_used("RunningServer", "handle_timeout")
    assert "\nsansmcp_asyncio.Client.call_tool(" in text
    assert "\nsansmcp_asyncio.Client.handle_timeout(" not in text
