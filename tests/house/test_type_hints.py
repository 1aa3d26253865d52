"""``typing.get_type_hints`` works on public names: frameworks and documentation tools call it."""

from __future__ import annotations

import importlib
import inspect
import re
import typing
from collections.abc import Iterator
from typing import Any

import pytest

PACKAGES = [
    "sansmcp",
    "sansmcp.testing",
    "sansmcp_asgi",
    "sansmcp_asyncio",
    "sansmcp_blocking",
    "sansmcp_httpx",
    "sansmcp_local",
    "sansmcp_loop",
    "sansmcp_pytest",
    "sansmcp_stores",
    "sansmcp_threads",
    "sansmcp_trio",
    "sansmcp_wsgi",
]

NOT_YET = {
    "Legacy": "who serves 2026-07-28 alone imports nothing of what was before",
    "Session": "who serves 2026-07-28 alone imports nothing of what was before",
    "ServerCore": "two modules name each other",
}
"""Names that are imported for type checkers only, and why; to be cured with the modules."""


def functions_in(package: str) -> Iterator[tuple[str, Any]]:
    """The public classes and functions of a package, and their public methods."""
    module = importlib.import_module(package)
    for name in module.__all__:
        value = getattr(module, name)
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        yield name, value
        for key, member in inspect.getmembers(value) if inspect.isclass(value) else ():
            function = member.fget if isinstance(member, property) else member
            if inspect.isfunction(function) and (key[0] != "_" or key in ("__init__", "__call__")):
                yield f"{name}.{key}", function


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_have_hints_that_can_be_read(package: str) -> None:
    """Row C8 of the review."""
    unreadable: list[str] = []
    for name, value in functions_in(package):
        try:
            typing.get_type_hints(value)
        except NameError as error:
            missing = re.findall(r"name '(\w+)'", str(error))
            if not missing or missing[0] not in NOT_YET:
                unreadable.append(f"{name}: {error}")
    assert unreadable == []
