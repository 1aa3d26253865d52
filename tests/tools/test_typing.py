"""Decorators keep the types of functions; type checkers read this file."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from typing_extensions import assert_type

from sansmcp_tools import Accepted, Cancelled, Context, Declined, ThreadContext, Tools

tools = Tools("typed")


@tools.tool
def add(a: int, b: int = 1) -> int:
    return a + b


@tools.tool(title="Twice", read_only=True)
async def twice(text: str) -> str:
    return text * 2


@tools.resource("note://{id}")
def note(id: int) -> bytes:
    return bytes(id)


@tools.prompt
def greet(name: str) -> str:
    return name


@tools.prompt(title="Greet")
def greet_again(name: str) -> str:
    return name


async def ask(context: Context) -> int | str:
    answer = await context.elicit(int, "How many?")
    assert_type(answer, Accepted[int] | Declined | Cancelled)
    return answer.value if isinstance(answer, Accepted) else ""


def ask_in_thread(context: ThreadContext) -> None:
    assert_type(context.elicit(str), Accepted[str] | Declined | Cancelled)


def test_functions_are_what_they_were() -> None:
    assert_type(add(1), int)
    assert_type(note(3), bytes)
    greetings: list[Callable[[str], str]] = [greet, greet_again]
    later: Callable[[str], Coroutine[Any, Any, str]] = twice
    assert (add(1), note(1), [each("a") for each in greetings]) == (2, b"\0", ["a", "a"])
    assert later is twice
