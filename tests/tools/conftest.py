"""What the tests of tools share: every revision, and an answer to every question."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

import sansmcp
from sansmcp.revisions import REVISIONS
from sansmcp_pytest import Client, Connect
from sansmcp_tools import Tools

in_revisions = pytest.mark.parametrize("revision", REVISIONS)

CAPABILITIES: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}

Answer = Callable[[sansmcp.ServerRequest], Any]


def connect(
    mcp_client: Connect,
    tools: Tools,
    revision: str = "2026-07-28",
    answers: Mapping[str, Answer] | None = None,
    **settings: Any,
) -> Client:
    """A client of the tools that speaks one revision."""
    return mcp_client(
        tools.app,
        versions=(revision,),
        capabilities=CAPABILITIES if answers else {},
        request_handlers=answers,
        **settings,
    )


def accept(**content: Any) -> Answer:
    """A user who fills in every form in the same way."""
    return lambda request: {"action": "accept", "content": content}


def text_of(result: Any) -> str:
    """The text of a tool's result."""
    (block,) = result["content"]
    text: str = block["text"]
    return text


@pytest.fixture
def tools() -> Tools:
    """Tools without any."""
    return Tools("under test", "1.0")
