"""What functions return, as results of each revision."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import numbers
import os
from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict

import pydantic
import pytest

import sansmcp
from sansmcp.events import ServerNotified
from sansmcp.revisions import REVISIONS
from sansmcp_pytest import Connect
from sansmcp_tools import (
    Audio,
    Context,
    EmbeddedResource,
    Image,
    ResourceLink,
    ThreadContext,
    ToolError,
    ToolResult,
    Tools,
)
from sansmcp_tools._revisions import FEATURES

from .conftest import connect, in_revisions, text_of


@dataclasses.dataclass
class Point:
    x: int
    on: datetime.date | None = None


class Place(TypedDict):
    street: str


class Item(pydantic.BaseModel):
    full_name: str = pydantic.Field(serialization_alias="fullName")


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"result": schema}, "required": ["result"]}


OBJECT = {"type": "object"}
POINT = {
    "title": "Point",
    "type": "object",
    "properties": {
        "x": {"type": "integer"},
        "on": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}], "default": None},
    },
    "required": ["x"],
}

# An annotation, what is returned, the text, the structured content and the output schema.
STRUCTURED: list[tuple[Any, Any, str, Any, Any]] = [
    (int, 3, "3", {"result": 3}, _wrapped({"type": "integer"})),
    (bool, True, "true", {"result": True}, _wrapped({"type": "boolean"})),
    (
        str | None,
        None,
        "null",
        {"result": None},
        _wrapped({"anyOf": [{"type": "string"}, {"type": "null"}]}),
    ),
    (
        str | None,
        "x",
        "x",
        {"result": "x"},
        _wrapped({"anyOf": [{"type": "string"}, {"type": "null"}]}),
    ),
    (
        list[int],
        [1, 2],
        "[1,2]",
        {"result": [1, 2]},
        _wrapped({"type": "array", "items": {"type": "integer"}}),
    ),
    (dict[str, Any], {"a": None}, '{"a":null}', {"a": None}, OBJECT),
    (Point, Point(1), '{"x":1,"on":null}', {"x": 1, "on": None}, POINT),
    (
        Point,
        Point(1, datetime.date(2026, 7, 28)),
        '{"x":1,"on":"2026-07-28"}',
        {"x": 1, "on": "2026-07-28"},
        POINT,
    ),
    (
        Place,
        {"street": "é"},
        '{"street":"é"}',
        {"street": "é"},
        {
            "title": "Place",
            "type": "object",
            "properties": {"street": {"type": "string"}},
            "required": ["street"],
        },
    ),
    (Any, {"a": 1}, '{"a":1}', {"a": 1}, None),
    (Any, [1], "[1]", {"result": [1]}, None),
    (
        bytes,
        b"hi",
        "aGk=",
        {"result": "aGk="},
        _wrapped({"type": "string", "contentEncoding": "base64"}),
    ),
]


@in_revisions
@pytest.mark.parametrize(("annotation", "value", "text", "structured", "schema"), STRUCTURED)
def test_values_are_text_and_structured(
    mcp_client: Connect,
    tools: Tools,
    revision: str,
    annotation: Any,
    value: Any,
    text: str,
    structured: Any,
    schema: Any,
) -> None:
    result, tool = _result_of(mcp_client, tools, revision, annotation, value)
    if revision < "2025-06-18":
        structured = schema = None
    assert text_of(result) == text
    assert result.get("structuredContent") == structured
    assert tool.get("outputSchema") == schema
    assert ("structuredContent" in result) is ("outputSchema" in tool or structured is not None)


def _result_of(
    mcp_client: Connect, tools: Tools, revision: str, annotation: Any, value: Any
) -> tuple[Any, Any]:
    """The result of a tool that returns a value, and the definition of the tool."""

    def give() -> Any:
        return value

    give.__annotations__ = {"return": annotation}
    tools.tool(give)
    client = connect(mcp_client, tools, revision)
    (tool,) = client.list_tools()["tools"]
    return client.call_tool("give"), tool


def test_pydantic_models_are_results(mcp_client: Connect, tools: Tools) -> None:
    result, tool = _result_of(mcp_client, tools, "2025-11-25", list[Item], [Item(full_name="A")])
    assert result["structuredContent"] == {"result": [{"fullName": "A"}]}
    assert tool["outputSchema"]["$defs"]["Item"]["properties"].keys() == {"fullName"}


IMAGE = {"type": "image", "data": "aW1n", "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": "d2F2", "mimeType": "audio/wav"}
RESOURCE = {"uri": "note://1", "mimeType": "text/markdown", "text": "# One"}
LINK = {"type": "resource_link", "uri": "note://2", "name": "two", "title": "Two", "size": 3}
OLD_AUDIO = {
    "type": "resource",
    "resource": {"uri": "sansmcp:audio/wav", "mimeType": "audio/wav", "blob": "d2F2"},
}
OLD_LINK = {"type": "text", "text": "Two: note://2"}

CONTENT: list[tuple[Any, Any, list[Any]]] = [
    (None, None, []),
    (str, "text", [{"type": "text", "text": "text"}]),
    (Image, Image(b"img"), [IMAGE]),
    (Audio, Audio(b"wav"), [AUDIO]),
    (
        EmbeddedResource,
        EmbeddedResource("note://1", "# One", "text/markdown"),
        [{"type": "resource", "resource": RESOURCE}],
    ),
    (
        Any,
        EmbeddedResource("note://1", b"hi"),
        [{"type": "resource", "resource": {"uri": "note://1", "blob": "aGk="}}],
    ),
    (ResourceLink, ResourceLink("note://2", "two", title="Two", size=3), [LINK]),
    (
        list[str | Image],
        ["see", Image(b"img"), {"a": 1}],
        [{"type": "text", "text": "see"}, IMAGE, {"type": "text", "text": '{"a":1}'}],
    ),
    (tuple[str, Image], ("see", Image(b"img")), [{"type": "text", "text": "see"}, IMAGE]),
]


@in_revisions
@pytest.mark.parametrize(("annotation", "value", "content"), CONTENT)
def test_content(
    mcp_client: Connect,
    tools: Tools,
    revision: str,
    annotation: Any,
    value: Any,
    content: list[Any],
) -> None:
    result, tool = _result_of(mcp_client, tools, revision, annotation, value)
    if revision < "2025-03-26":
        content = [OLD_AUDIO if each == AUDIO else each for each in content]
    if revision < "2025-06-18":
        content = [OLD_LINK if each == LINK else each for each in content]
    assert result["content"] == content
    assert "structuredContent" not in result
    assert "outputSchema" not in tool


@in_revisions
def test_a_full_result(mcp_client: Connect, tools: Tools, revision: str) -> None:
    full = ToolResult(["seen", Image(b"img")], Point(1), is_error=True, meta={"com.example/a": 1})
    result, _ = _result_of(mcp_client, tools, revision, ToolResult, full)
    assert result["content"] == [{"type": "text", "text": "seen"}, IMAGE]
    assert result["isError"] is True
    assert result["_meta"]["com.example/a"] == 1
    structured = {"x": 1, "on": None} if revision >= "2025-06-18" else None
    assert result.get("structuredContent") == structured


PAGE = "text/html;profile=mcp-app"
UI = {"ui": {"csp": {"connectDomains": ["https://api.example"]}}, "com.example/a": [1, None]}


@in_revisions
def test_members_of_meta(mcp_client: Connect, tools: Tools, revision: str) -> None:
    """A tool is shown by a page (SEP-1865), which has its own members."""
    shown = {"ui": {"resourceUri": "ui://weather/view", "visibility": ["model", "app"]}}

    @tools.tool(meta=shown)
    def weather() -> str:
        return "warm"

    @tools.resource("ui://weather/view", mime_type=PAGE, meta=UI)
    def view() -> str:
        return "<!DOCTYPE html>"

    @tools.resource("parts://{name}", meta=UI)
    def parts(name: str) -> list[EmbeddedResource]:
        return [
            EmbeddedResource(name, "a"),
            EmbeddedResource(name, b"b", meta={"com.example/b": 2}),
        ]

    @tools.prompt(meta={"com.example/c": 3})
    def prompt() -> str:
        return "x"

    client = connect(mcp_client, tools, revision)
    listed = [
        client.list_tools()["tools"][0],
        client.list_resources()["resources"][0],
        client.list_resource_templates()["resourceTemplates"][0],
        client.list_prompts()["prompts"][0],
    ]
    metas = [shown, UI, UI, {"com.example/c": 3}] if revision >= "2025-06-18" else [None] * 4
    assert [each.get("_meta") for each in listed] == metas
    (page,) = client.read_resource("ui://weather/view")["contents"]
    assert page == {
        "uri": "ui://weather/view",
        "mimeType": PAGE,
        "text": "<!DOCTYPE html>",
        "_meta": UI,
    }
    contents = client.read_resource("parts://a")["contents"]
    assert [each.get("_meta") for each in contents] == [UI, {"com.example/b": 2}]


def test_meta_that_is_not_json(mcp_client: Connect, tools: Tools) -> None:
    bad: Any = {"com.example/a": object()}
    with pytest.raises(sansmcp.LocalProtocolError, match="cannot be listed"):
        tools.tool(name="bad", meta=bad)(lambda: "x")

    @tools.resource("a:b")
    def read() -> EmbeddedResource:
        return EmbeddedResource("a:b", "x", meta=bad)

    client = connect(mcp_client, tools)
    with pytest.raises(sansmcp.JsonRpcError):
        client.read_resource("a:b")


def test_an_empty_full_result(mcp_client: Connect, tools: Tools) -> None:
    result, _ = _result_of(mcp_client, tools, "2025-11-25", ToolResult, ToolResult())
    assert result == {"content": [], "isError": False}


def test_the_features_are_those_of_all_revisions() -> None:
    assert FEATURES.keys() == REVISIONS.keys()


@in_revisions
def test_a_definition_has_what_its_revision_knows(
    mcp_client: Connect, tools: Tools, revision: str
) -> None:
    @tools.tool(title="T", icons=[{"src": "data:,"}], read_only=True)
    def give() -> int:
        return 1

    (tool,) = connect(mcp_client, tools, revision).list_tools()["tools"]
    since = {
        "annotations": "2025-03-26",
        "title": "2025-06-18",
        "outputSchema": "2025-06-18",
        "icons": "2025-11-25",
    }
    known = {member for member, first in since.items() if revision >= first}
    assert tool.keys() == {"name", "inputSchema"} | known


def _raises(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


@in_revisions
def test_a_tool_error_is_for_the_model(mcp_client: Connect, tools: Tools, revision: str) -> None:
    tools.tool(_raises(ToolError("The printer is out of paper")))
    result = connect(mcp_client, tools, revision).call_tool("fail")
    assert (result["isError"], text_of(result)) == (True, "The printer is out of paper")


@pytest.mark.parametrize(
    "function",
    [_raises(ValueError("secret")), lambda: float("nan") and object()],
    ids=["raises", "returns no JSON"],
)
def test_other_exceptions_are_for_the_log(
    mcp_client: Connect, tools: Tools, caplog: pytest.LogCaptureFixture, function: Any
) -> None:
    tools.tool(name="fail")(function)
    result = connect(mcp_client, tools).call_tool("fail")
    assert result["isError"]
    assert text_of(result) == "The tool has failed. The log of the server has the reason"
    (record,) = caplog.records
    assert (record.getMessage(), record.name) == ("tool fail has failed", "sansmcp")
    assert record.exc_info is not None


def test_a_result_is_held_to_its_schema(
    mcp_client: Connect, tools: Tools, caplog: pytest.LogCaptureFixture
) -> None:
    result, _ = _result_of(mcp_client, tools, "2025-11-25", Place, {"street": 1})
    assert result["isError"]
    text = "what its annotation does not allow: Expected `str`, got `int` - at `$.street`"
    assert text in caplog.text


def test_an_error_of_the_protocol_goes_on(mcp_client: Connect, tools: Tools) -> None:
    tools.tool(_raises(sansmcp.JsonRpcError(-32000, "Not now", {"after": 3})))
    with pytest.raises(sansmcp.JsonRpcError, match="Not now") as raised:
        connect(mcp_client, tools).call_tool("fail")
    assert (raised.value.code, raised.value.data) == (-32000, {"after": 3})


@in_revisions
@pytest.mark.parametrize("params", [{"name": "other"}, {"name": ["give"]}, {}])
def test_an_unknown_tool_is_an_error_of_the_protocol(
    mcp_client: Connect, tools: Tools, revision: str, params: dict[str, Any]
) -> None:
    tools.tool(name="give")(lambda: 1)
    client = connect(mcp_client, tools, revision)
    if revision == "2026-07-28" and not isinstance(params.get("name"), str):
        return  # the header Mcp-Name repeats the name, so the core refuses these
    with pytest.raises(sansmcp.JsonRpcError, match="There is no tool") as raised:
        client.call("tools/call", params)
    assert raised.value.code == -32602


def test_arguments_are_an_object(mcp_client: Connect, tools: Tools) -> None:
    tools.tool(name="give")(lambda: 1)
    client = connect(mcp_client, tools)
    assert text_of(client.call("tools/call", {"name": "give", "arguments": None})) == "1"
    with pytest.raises(sansmcp.JsonRpcError, match="arguments must be an object, got") as raised:
        client.call("tools/call", {"name": "give", "arguments": [1]})
    assert raised.value.code == -32602


@in_revisions
@pytest.mark.parametrize("in_thread", [False, True])
def test_progress_and_log_messages(
    mcp_client: Connect, tools: Tools, revision: str, in_thread: bool
) -> None:
    if in_thread:

        @tools.tool(name="work")
        def work_in_thread(context: ThreadContext) -> str:
            context.progress(1, 2, "half")
            context.log("debug", "fine")
            context.log("error", {"is": "bad"}, "printer")
            return context.call.method

    else:

        @tools.tool(name="work")
        async def work(context: Context) -> str:
            await context.progress(1, 2, "half")
            await context.log("debug", "fine")
            await context.log("error", {"is": "bad"}, "printer")
            return context.call.method

    reports: list[tuple[Any, ...]] = []
    client = connect(mcp_client, tools, revision)
    meta = None
    if revision == "2026-07-28":
        meta = {"io.modelcontextprotocol/logLevel": "error"}
    else:
        client.call("logging/setLevel", {"level": "warning"})
    result = client.call_tool(
        "work",
        meta=meta,
        on_progress=lambda report: reports.append((report.progress, report.total, report.message)),
    )
    assert text_of(result) == "tools/call"
    assert reports == [(1, 2, "half")]
    heard = [
        event.notification.params for event in client.events if isinstance(event, ServerNotified)
    ]
    assert heard == [{"level": "error", "data": {"is": "bad"}, "logger": "printer"}]


def test_an_unknown_level_is_refused(mcp_client: Connect, tools: Tools) -> None:
    @tools.tool
    async def work(context: Context) -> None:
        await context.log("debug", "fine")

    client = connect(mcp_client, tools, "2025-11-25")
    with pytest.raises(sansmcp.JsonRpcError, match="level must be one of debug, info"):
        client.call("logging/setLevel", {"level": "loud"})


def test_a_plain_function_may_block(mcp_client: Connect, tools: Tools) -> None:
    """It runs in a thread, and an async one in the loop, which serves others meanwhile."""
    import threading

    open_door = threading.Event()

    @tools.tool
    def wait() -> str:
        assert open_door.wait(30)
        return "opened"

    @tools.tool
    async def open_it() -> str:
        open_door.set()
        return threading.current_thread().name

    client = connect(mcp_client, tools)
    waiting = client.start("tools/call", {"name": "wait"})
    assert text_of(client.call_tool("open_it")) == threading.main_thread().name
    assert text_of(waiting.result()) == "opened"


class Real(float):
    """A float of a library, such as ``numpy.float64``."""


class Count(int):
    """An int of a library."""


class Level(enum.IntEnum):
    LOW = 1


@numbers.Integral.register
class Scalar:
    """No int, but an integer, as ``numpy.int64`` is."""

    def __int__(self) -> int:
        return 7


@numbers.Real.register
class Single:
    """No float, but a real number, as ``numpy.float32`` is."""

    def __float__(self) -> float:
        return 2.5


class Truth:
    """What comparisons of numpy return: it is neither a bool nor a number."""

    __module__ = "numpy"

    def item(self) -> bool:
        return True


class Sample(NamedTuple):
    mean: float
    size: int


# An annotation, what is returned, and the structured content.
NUMBERS: list[tuple[Any, Any, Any]] = [
    (float, Real(2.5), 2.5),
    (int, Count(7), 7),
    (int, Level.LOW, 1),
    (float, Count(7), 7),
    (float, Single(), 2.5),
    (int, Scalar(), 7),
    (bool, Truth(), True),
    (float | None, Real(2.5), 2.5),
    (list[float], [Real(2.5), 1], [2.5, 1]),
    (list[float], (Real(2.5),), [2.5]),
    (list[bool], [Truth()], [True]),
    (tuple[int, float], (Count(7), Real(2.5)), [7, 2.5]),
    (dict[str, list[float]], {"a": [Real(2.5)]}, {"a": [2.5]}),
    (dict[str, Any], {"a": Single(), "b": Scalar(), "c": Truth()}, {"a": 2.5, "b": 7, "c": True}),
    (Sample, Sample(Real(2.5), Count(7)), [2.5, 7]),
    (Any, Real(2.5), 2.5),
    (Any, [Count(7), Truth()], [7, True]),
]


@pytest.mark.parametrize(("annotation", "value", "structured"), NUMBERS)
def test_numbers_of_libraries_are_numbers(
    mcp_client: Connect, tools: Tools, annotation: Any, value: Any, structured: Any
) -> None:
    result, _ = _result_of(mcp_client, tools, "2025-11-25", annotation, value)
    wrapped = {"result": structured}
    assert result["structuredContent"] in (structured, wrapped)
    assert json.loads(text_of(result)) == structured


def test_a_number_of_a_library_is_no_text(mcp_client: Connect, tools: Tools) -> None:
    """The schema still holds: only its own kind of number is let through."""
    result, _ = _result_of(mcp_client, tools, "2025-11-25", list[int], [Real(2.5)])
    assert result["isError"]


NAN, HALF, FILE = float("nan"), "abc\ud83d", os.fsdecode(b"caf\xe9.txt")

# An annotation, what is returned, and the place that the error names.
NOT_JSON: list[tuple[Any, Any, str]] = [
    (float, NAN, "$ is nan"),
    (dict[str, float], {"mean": NAN}, "$.mean is nan"),
    (Any, [{"most": float("-inf")}], "$[0].most is -inf"),
    (list[float | None], [None, Real("inf")], "$[1] is inf"),
    (str, HALF, "$.content[0].text"),
    (list[str], ["fine", FILE], "$[1]"),
    (dict[str, Any], {FILE: 1}, "a name in $"),
    (list[str | Image], ["fine", FILE, Image(b"")], "$.content[1].text"),
    (list[Any], [Image(b""), {"a": NAN}], "$.a is nan"),
    (Any, Image(b"", FILE), "$.content[0].mimeType"),
    (Any, EmbeddedResource("note://1", HALF), "$.content[0].resource.text"),
    (Any, ResourceLink(f"file:///{FILE}", "a"), "$.content[0].uri"),
    (Any, ToolResult(structured={"a": NAN}), "$.structuredContent.a is nan"),
    (Any, ToolResult(meta={"com.example/a": [HALF]}), "$._meta.com.example/a[0]"),
]


@in_revisions
@pytest.mark.parametrize(("annotation", "value", "place"), NOT_JSON)
def test_what_json_has_not_is_a_tool_error_that_names_the_place(
    mcp_client: Connect,
    tools: Tools,
    caplog: pytest.LogCaptureFixture,
    revision: str,
    annotation: Any,
    value: Any,
    place: str,
) -> None:
    if revision < "2025-06-18":
        if isinstance(value, ToolResult) and value.structured is not None:
            return  # these have no structured content
        place = place.replace("[0].uri", "[0].text")
    result, _ = _result_of(mcp_client, tools, revision, annotation, value)
    assert result["isError"]
    text = text_of(result)
    assert text.startswith("The result of give is not JSON: ")
    assert place in text
    (record,) = caplog.records
    assert record.exc_info is not None


@pytest.mark.parametrize("annotation", [Any, str, int, list[str]])
@pytest.mark.parametrize("is_item", [False, True])
def test_a_coroutine_is_an_await_that_is_missing(
    mcp_client: Connect, tools: Tools, annotation: Any, is_item: bool
) -> None:
    async def ask() -> str:
        raise NotImplementedError

    async def give() -> Any:
        return ["a", ask()] if is_item else ask()

    give.__annotations__ = {"return": annotation}
    tools.tool(give)
    result = connect(mcp_client, tools).call_tool("give")
    assert result["isError"]
    said = text_of(result)
    assert said.startswith("The result of give is not JSON: ")
    assert said.endswith("ask() was called without await")


def test_nulls_are_no_numbers_that_json_has_not(mcp_client: Connect, tools: Tools) -> None:
    result, _ = _result_of(mcp_client, tools, "2025-11-25", Any, {"a": None, "b": "NaN", "c": "é"})
    assert result["structuredContent"] == {"a": None, "b": "NaN", "c": "é"}


def test_a_resource_has_no_silent_null(mcp_client: Connect, tools: Tools) -> None:
    tools.resource("note://1")(lambda: {"mean": NAN})
    with pytest.raises(sansmcp.JsonRpcError, match="Internal error"):
        connect(mcp_client, tools).call("resources/read", {"uri": "note://1"})


def test_a_default_that_json_has_not_is_not_in_the_schema(
    mcp_client: Connect, tools: Tools
) -> None:
    @tools.tool
    def mean(start: float = NAN, name: str = HALF, size: int = 3) -> str:
        return f"{start} {name!r} {size}"

    client = connect(mcp_client, tools)
    (tool,) = client.list_tools()["tools"]
    properties = tool["inputSchema"]["properties"]
    assert [each.get("default") for each in properties.values()] == [None, None, 3]
    assert text_of(client.call_tool("mean")) == f"nan {HALF!r} 3"


@pytest.mark.parametrize(
    ("members", "place"),
    [
        ({"description": HALF}, "$.description"),
        ({"title": HALF}, "$.title"),
        ({"icons": [{"src": HALF}]}, "$.icons[0].src"),
        ({"icons": [{"src": {1}}]}, "$.icons[0].src"),
    ],
)
@pytest.mark.parametrize("kind", ["tool", "prompt", "resource"])
def test_a_definition_that_is_not_json_is_refused_where_it_is_made(
    tools: Tools, kind: str, members: dict[str, Any], place: str
) -> None:
    """One such definition would take the whole list away."""

    def give() -> str:
        return ""

    make: Any = getattr(tools, kind)
    uri = ("note://1",) if kind == "resource" else ()
    with pytest.raises(sansmcp.LocalProtocolError, match="give cannot be listed: ") as raised:
        make(*uri, **members)(give)
    assert place in str(raised.value)
