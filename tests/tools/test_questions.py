"""A function asks the user, the model and the client, at every revision."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import enum
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict

import attrs
import msgspec
import pydantic
import pytest

import sansmcp
from sansmcp.revisions import REVISIONS
from sansmcp_pytest import Connect
from sansmcp_tools import (
    Accepted,
    Cancelled,
    Context,
    Declined,
    Elicited,
    Message,
    ThreadContext,
    Tools,
)

from .conftest import Answer, accept, connect, in_revisions, text_of

RUNS = {name: 1 if row.server_requests else 2 for name, row in REVISIONS.items()}
"""How often a function runs that asks once: at 2026-07-28 again, with the answer."""


@dataclasses.dataclass
class Copies:
    copies: int
    paper: Literal["white", "grey"] | None = None


@pytest.fixture
def runs(tools: Tools) -> list[str]:
    """What the tools of this page have done: they ask in a thread and in the loop."""
    done: list[str] = []

    @tools.tool
    async def print_file(name: str, context: Context) -> str:
        done.append("begun")
        answer = await context.elicit(Copies, f"How often {name}?")
        done.append("answered")
        return _said(answer)

    @tools.tool
    def print_in_thread(name: str, context: ThreadContext) -> str:
        done.append("begun")
        answer = context.elicit(Copies, f"How often {name}?")
        done.append("answered")
        return _said(answer)

    return done


def _said(answer: Elicited[Copies]) -> str:
    match answer:
        case Accepted(Copies(copies, paper)):
            return f"{copies} on {paper}"
        case Declined():
            return "declined"
        case Cancelled():
            return "cancelled"


both = pytest.mark.parametrize("name", ["print_file", "print_in_thread"])


@both
@in_revisions
def test_the_code_before_a_question_runs_again(
    mcp_client: Connect, tools: Tools, runs: list[str], revision: str, name: str
) -> None:
    """At 2026-07-28 only; the code after the last question always runs once."""
    asked: list[Any] = []

    def answer(request: sansmcp.ServerRequest) -> Any:
        asked.append(request.params)
        return {"action": "accept", "content": {"copies": 3, "paper": "grey"}}

    client = connect(mcp_client, tools, revision, {"elicitation/create": answer})
    assert text_of(client.call_tool(name, {"name": "a.txt"})) == "3 on grey"
    assert runs == ["begun"] * RUNS[revision] + ["answered"]
    (params,) = asked
    assert params["message"] == "How often a.txt?"
    assert params["requestedSchema"] == {
        "type": "object",
        "properties": {
            "copies": {"type": "integer"},
            "paper": {"type": "string", "enum": ["grey", "white"]},
        },
        "required": ["copies"],
    }


@both
@in_revisions
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"action": "accept", "content": {"copies": 1}}, "1 on None"),
        ({"action": "decline"}, "declined"),
        ({"action": "cancel"}, "cancelled"),
        (
            {"action": "accept", "content": {"copies": "many"}},
            "The user's answer does not fit the form: Expected `int`, got `str` - at `copies`",
        ),
        (
            {"action": "accept"},
            "The user's answer does not fit the form: Object missing required field `copies`",
        ),
    ],
)
def test_every_outcome(
    mcp_client: Connect,
    tools: Tools,
    runs: list[str],
    revision: str,
    name: str,
    answer: dict[str, Any],
    said: str,
) -> None:
    client = connect(mcp_client, tools, revision, {"elicitation/create": lambda request: answer})
    result = client.call_tool(name, {"name": "a.txt"})
    assert text_of(result) == said
    assert result.get("isError", False) is ("form" in said)


@both
@in_revisions
def test_a_client_that_cannot_be_asked_is_told_so(
    mcp_client: Connect, tools: Tools, runs: list[str], revision: str, name: str
) -> None:
    client = connect(mcp_client, tools, revision)
    with pytest.raises(sansmcp.JsonRpcError, match="needs a client with the capability elicit"):
        client.call_tool(name, {"name": "a.txt"})


@in_revisions
def test_several_questions(mcp_client: Connect, tools: Tools, revision: str) -> None:
    """Each is asked once, and each answer reaches its question."""
    asked: list[Any] = []
    lines: list[str] = []

    @tools.tool
    async def interview(context: Context) -> dict[str, Any]:
        lines.append("name")
        name = await context.elicit(str, "Your name?")
        assert isinstance(name, Accepted)
        lines.append("age")
        age = await context.elicit(int, f"How old are you, {name.value}?")
        assert isinstance(age, Accepted)
        lines.append("poem")
        poem = await context.sample(f"A poem for {name.value}", max_tokens=9, system_prompt="Rhyme")
        lines.append("roots")
        roots = await context.roots()
        return {
            "name": name.value,
            "age": age.value,
            "poem": poem["content"]["text"],
            "roots": roots,
        }

    def elicit(request: sansmcp.ServerRequest) -> Any:
        asked.append(request.params["message"])
        return {"action": "accept", "content": {"value": "Ada" if len(asked) == 1 else 36}}

    def sample(request: sansmcp.ServerRequest) -> Any:
        asked.append(request.params)
        return {"role": "assistant", "content": {"type": "text", "text": "Ah"}, "model": "none"}

    answers: dict[str, Answer] = {
        "elicitation/create": elicit,
        "sampling/createMessage": sample,
        "roots/list": lambda request: {"roots": [{"uri": "file:///a"}]},
    }
    client = connect(mcp_client, tools, revision, answers)
    result = client.call_tool("interview")
    assert msgspec.json.decode(text_of(result)) == {
        "name": "Ada",
        "age": 36,
        "poem": "Ah",
        "roots": [{"uri": "file:///a"}],
    }
    text = {"type": "text", "text": "A poem for Ada"}
    assert asked == [
        "Your name?",
        "How old are you, Ada?",
        {
            "messages": [{"role": "user", "content": text}],
            "maxTokens": 9,
            "systemPrompt": "Rhyme",
        },
    ]
    steps = ["name", "age", "poem", "roots"]
    again = (
        steps
        if REVISIONS[revision].server_requests
        else [step for end in range(1, 5) for step in steps[:end]] + steps
    )
    assert lines == again


def test_sampling_takes_messages(mcp_client: Connect, tools: Tools) -> None:
    asked: list[Any] = []

    @tools.tool
    def talk(context: ThreadContext) -> str:
        answer = context.sample(["Hi", Message("Hello", role="assistant")])
        return f"{answer['content']['text']}, {len(context.roots())} roots"

    def sample(request: sansmcp.ServerRequest) -> Any:
        asked.extend(each["role"] for each in request.params["messages"])
        return {"role": "assistant", "content": {"type": "text", "text": "Ah"}, "model": "none"}

    answers: dict[str, Answer] = {
        "sampling/createMessage": sample,
        "roots/list": lambda request: {"roots": []},
    }
    client = connect(mcp_client, tools, answers=answers)
    assert text_of(client.call_tool("talk")) == "Ah, 0 roots"
    assert asked == ["user", "assistant"]


def test_a_function_that_asks_something_else_fails(
    mcp_client: Connect, tools: Tools, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[int] = []

    @tools.tool
    async def moody(context: Context) -> None:
        runs.append(1)
        await context.elicit(int, f"Question {len(runs)}?")

    client = connect(mcp_client, tools, answers={"elicitation/create": accept(value=1)})
    assert text_of(client.call_tool("moody")).startswith("The tool has failed.")
    assert "Question 1 of this call is not the one that was asked before" in caplog.text
    assert len(runs) == 2


@in_revisions
def test_questions_in_tasks_of_their_own(mcp_client: Connect, tools: Tools, revision: str) -> None:
    """What leaves the function passes through groups of tasks, and ``except Exception``."""
    cleaned: list[str] = []

    async def ask(context: Context, question: str) -> str:
        try:
            return repr(await context.elicit(int, question))
        except Exception as error:
            return repr(error)
        finally:
            cleaned.append(question)

    @tools.tool
    async def ask_both(context: Context) -> str:
        if sys.version_info < (3, 11):
            return ", ".join(await asyncio.gather(ask(context, "One?"), ask(context, "Two?")))
        async with asyncio.TaskGroup() as group:
            both = [group.create_task(ask(context, question)) for question in ("One?", "Two?")]
        return ", ".join([each.result() for each in both])

    client = connect(mcp_client, tools, revision, {"elicitation/create": accept(value=1)})
    expected = "Accepted(value=1), Accepted(value=1)"
    assert text_of(client.call_tool("ask_both")) == expected
    assert sorted(cleaned) == sorted(["One?", "Two?"] * RUNS[revision])


def test_questions_of_several_tasks_are_asked_at_once(mcp_client: Connect, tools: Tools) -> None:
    runs: list[int] = []

    @tools.tool
    async def ask_both(context: Context) -> list[str]:
        runs.append(1)
        questions = (context.elicit(int, f"{number}?") for number in range(3))
        answers = await asyncio.gather(*questions)
        return list(map(repr, answers))

    asked: list[str] = []

    def answer(request: sansmcp.ServerRequest) -> Any:
        asked.append(request.params["message"])
        return {"action": "accept", "content": {"value": int(asked[-1][0])}}

    client = connect(mcp_client, tools, answers={"elicitation/create": answer})
    result = client.call_tool("ask_both")["structuredContent"]["result"]
    assert result == [f"Accepted(value={number})" for number in range(3)]
    assert sorted(asked) == ["0?", "1?", "2?"]
    assert len(runs) == 2


def test_a_function_in_a_task_is_called_again_too(mcp_client: Connect, tools: Tools) -> None:
    runs: list[str] = []

    @tools.tool(task=0)
    async def ask(context: Context) -> str:
        runs.append("begun")
        answer = await context.elicit(int, "How many?")
        runs.append("answered")
        return repr(answer)

    client = connect(mcp_client, tools, answers={"elicitation/create": accept(value=4)})
    task = client.start_task("ask")
    assert task.id is not None
    assert text_of(task.result()) == "Accepted(value=4)"
    assert runs == ["begun", "begun", "answered"]


@in_revisions
def test_prompts_and_resources_ask_too(mcp_client: Connect, tools: Tools, revision: str) -> None:
    @tools.prompt
    async def greet(context: Context) -> str:
        return f"Greet {await context.elicit(str, 'Whom?')}"

    @tools.resource("note://one")
    def note(context: ThreadContext) -> str:
        return f"Note {context.elicit(str, 'Which?')}"

    client = connect(mcp_client, tools, revision, {"elicitation/create": accept(value="Ada")})
    message: Any
    contents: Any
    (message,) = client.get_prompt("greet")["messages"]
    assert message["content"]["text"] == "Greet Accepted(value='Ada')"
    (contents,) = client.read_resource("note://one")["contents"]
    assert contents["text"] == "Note Accepted(value='Ada')"


class Shade(enum.Enum):
    LIGHT = "light"
    DARK = "dark"


class Booking(msgspec.Struct):
    """When do you arrive?

    More about it.
    """

    day: datetime.date
    nights: Annotated[int, msgspec.Meta(ge=1, description="how long")]
    shade: Shade = Shade.DARK
    extras: list[Literal["sauna", "lunch"]] = []
    at: datetime.time | None = None


BOOKING: dict[str, Any] = {
    "type": "object",
    "properties": {
        "day": {"type": "string", "format": "date"},
        "nights": {"type": "integer", "minimum": 1, "description": "how long"},
        "shade": {
            "type": "string",
            "enum": ["dark", "light"],
            "title": "Shade",
            "default": "dark",
        },
        "extras": {
            "type": "array",
            "items": {"type": "string", "enum": ["lunch", "sauna"]},
            "default": [],
        },
        "at": {"type": "string"},
    },
    "required": ["day", "nights"],
}


class Answers(TypedDict):
    yes: bool


@attrs.frozen
class GoodBook:
    title: str


class Model(pydantic.BaseModel):
    price: float = pydantic.Field(ge=0, description="in euros")


def _value(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"value": schema}, "required": ["value"]}


@pytest.mark.parametrize(
    ("type", "message", "schema", "content", "value"),
    [
        (
            Booking,
            "When do you arrive?",
            BOOKING,
            {"day": "2026-07-28", "nights": 2},
            Booking(datetime.date(2026, 7, 28), 2),
        ),
        (
            Answers,
            "Answers",
            {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]},
            {"yes": True},
            {"yes": True},
        ),
        (
            GoodBook,
            "Good Book",
            {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]},
            {"title": "Emma"},
            GoodBook("Emma"),
        ),
        (
            Model,
            "Model",
            {
                "type": "object",
                "properties": {
                    "price": {
                        "type": "number",
                        "minimum": 0,
                        "description": "in euros",
                        "title": "Price",
                    }
                },
                "required": ["price"],
            },
            {"price": 1},
            Model(price=1),
        ),
        (bool, "Your answer?", _value({"type": "boolean"}), {"value": True}, True),
        (
            Literal["a", "b"],
            "Your answer?",
            _value({"type": "string", "enum": ["a", "b"]}),
            {"value": "a"},
            "a",
        ),
        (
            Shade,
            "Your answer?",
            _value({"type": "string", "enum": ["dark", "light"], "title": "Shade"}),
            {"value": "light"},
            Shade.LIGHT,
        ),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_types_make_forms(
    mcp_client: Connect,
    tools: Tools,
    type: Any,
    message: str,
    schema: Mapping[str, Any],
    content: Any,
    value: Any,
) -> None:
    asked: list[Any] = []
    answers: list[Any] = []

    @tools.tool
    async def ask(context: Context) -> None:
        answers.append(await context.elicit(type))

    def answer(request: sansmcp.ServerRequest) -> Any:
        asked.append(request.params)
        return {"action": "accept", "content": content}

    connect(mcp_client, tools, answers={"elicitation/create": answer}).call_tool("ask")
    assert answers == [Accepted(value)]
    assert asked == [{"message": message, "requestedSchema": schema}]


class Nested(msgspec.Struct):
    inner: Booking


def test_a_question_in_place_of_its_type_is_named(
    mcp_client: Connect, tools: Tools, caplog: pytest.LogCaptureFixture
) -> None:
    @tools.tool
    async def ask(context: Context) -> None:
        await context.elicit("How many?", "integer")

    client = connect(mcp_client, tools, answers={"elicitation/create": accept(value=1)})
    assert client.call_tool("ask")["isError"]
    assert "comes first, and then the question: elicit(type, 'How many?')" in caplog.text


@pytest.mark.parametrize("type", [Nested, list[int], dict[str, int], Literal[1, 2]])
def test_what_is_not_flat_is_refused(
    mcp_client: Connect, tools: Tools, type: Any, caplog: pytest.LogCaptureFixture
) -> None:
    @tools.tool
    async def ask(context: Context) -> None:
        await context.elicit(type, "What?")

    client = connect(mcp_client, tools, answers={"elicitation/create": accept(value=1)})
    assert client.call_tool("ask")["isError"]
    assert "cannot be a field of a form" in caplog.text
