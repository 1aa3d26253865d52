"""The page of questions has what people look for, in a few lines with a link."""

from __future__ import annotations

import re
from typing import Any

import pytest

import sansmcp
import sansmcp_local
import sansmcp_tools
from sansmcp_tools import Context

from .documents import DOCS

PAGE = DOCS / "questions.md"
ENTRIES = re.findall(r"^### (.+)\n\n((?:.+\n)+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
QUESTIONS = [question for question, _ in ENTRIES]


@pytest.mark.parametrize(("question", "answer"), ENTRIES, ids=QUESTIONS)
def test_an_answer_is_short_and_leads_on(question: str, answer: str) -> None:
    assert answer.count("\n") <= 4
    assert re.search(r"\[[^]]+\]\([a-z-]+\.md(#[a-z0-9-]+)?\)", answer.replace("\n", " "))


@pytest.mark.parametrize(
    "words",
    [
        "return an image",
        "one timeout",
        "lives as long as the server",
        "Claude, Claude Code, Cursor",
        "client send an API key",
        "check an API key",
        "unit test",
        "calls at once",
        "calls run at once",
        "rate of a client",
        "nginx",
        "`Host`",
        "CORS",
        "FastMCP",
        "error to the model",
        "add and remove tools",
        "see the messages",
        "type is a client",
        "server restarts",
        "sampling, with its own model",
        "(sampling)",
        "Windows",
    ],
)
def test_it_is_asked(words: str) -> None:
    assert sum(words in question for question in QUESTIONS) == 1


def test_sampling(mcp_client: Any) -> None:
    """Both answers about it, together."""
    tools = sansmcp_tools.Tools("poet")

    @tools.tool
    async def poem(context: Context) -> Any:
        """A poem."""
        return await context.sample("A poem, please")

    def answer(request: Any) -> dict[str, Any]:
        return {"role": "assistant", "content": {"type": "text", "text": "Oh"}, "model": "any"}

    client = mcp_client(
        tools,
        capabilities={"sampling": {}},
        request_handlers={"sampling/createMessage": answer},
    )
    assert "Oh" in client.call_tool("poem")["content"][0]["text"]


def test_defaults() -> None:
    """The numbers of calls that run at once."""
    text = PAGE.read_text(encoding="utf-8")
    assert f"up to {sansmcp.Limits().max_calls_per_session} of one session" in text
    assert f"plain functions {sansmcp_local.DriverOptions().threads}" in text
