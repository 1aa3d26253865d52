"""Resources, templates, prompts and completion; pages of lists, and their changes."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Annotated, Any, Literal, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

import sansmcp
from sansmcp.codecs.mirrored import parameters
from sansmcp.events import ServerNotified
from sansmcp_pytest import Client, Connect, Serve
from sansmcp_tools import (
    Audio,
    EmbeddedResource,
    Image,
    Message,
    ResourceLink,
    ToolError,
    Tools,
)
from sansmcp_tools._templates import parse_template

from .conftest import connect, in_revisions, text_of

# Resources


def test_resources_and_templates(mcp_client: Connect, tools: Tools) -> None:
    @tools.resource("note://today", title="Today", mime_type="text/markdown")
    def today() -> str:
        """The note of the day."""
        return "# Tea"

    @tools.resource("note://{year}/{+path}{?page,full}", icons=[{"src": "data:,"}])
    async def note(year: int, path: str, page: int = 1, full: bool = False) -> dict[str, Any]:
        """A note."""
        return {"year": year, "path": path, "page": page, "full": full}

    client = connect(mcp_client, tools)
    assert client.list_resources()["resources"] == [
        {
            "uri": "note://today",
            "name": "today",
            "title": "Today",
            "description": "The note of the day.",
            "mimeType": "text/markdown",
        }
    ]
    assert client.list_resource_templates()["resourceTemplates"] == [
        {
            "uriTemplate": "note://{year}/{+path}{?page,full}",
            "name": "note",
            "description": "A note.",
            "icons": [{"src": "data:,"}],
        }
    ]
    (contents,) = client.read_resource("note://today")["contents"]
    assert contents == {"uri": "note://today", "mimeType": "text/markdown", "text": "# Tea"}
    uri = "note://2026/a/b%20c?full=true&other=1&page=2"
    (contents,) = client.read_resource(uri)["contents"]
    assert contents == {
        "uri": uri,
        "mimeType": "application/json",
        "text": '{"year":2026,"path":"a/b c","page":2,"full":true}',
    }
    (contents,) = client.read_resource("note://2026/a")["contents"]
    assert contents.get("text") == '{"year":2026,"path":"a","page":1,"full":false}'
    with pytest.raises(sansmcp.JsonRpcError, match="Expected `int`, got `str` - at `year`"):
        client.read_resource("note://year/a")


@pytest.mark.parametrize(
    ("value", "contents"),
    [
        ("text", [{"uri": "x://1", "mimeType": "text/plain", "text": "text"}]),
        (b"hi", [{"uri": "x://1", "mimeType": "application/octet-stream", "blob": "aGk="}]),
        ([1], [{"uri": "x://1", "mimeType": "application/json", "text": "[1]"}]),
        ([], [{"uri": "x://1", "mimeType": "application/json", "text": "[]"}]),
        (EmbeddedResource("x://2", "two"), [{"uri": "x://2", "text": "two"}]),
        (
            [EmbeddedResource("x://2", "two"), EmbeddedResource("x://3", b"hi", "image/png")],
            [
                {"uri": "x://2", "text": "two"},
                {"uri": "x://3", "mimeType": "image/png", "blob": "aGk="},
            ],
        ),
    ],
)
def test_contents(mcp_client: Connect, tools: Tools, value: Any, contents: Any) -> None:
    tools.resource("x://1", name="one")(lambda: value)
    assert connect(mcp_client, tools).read_resource("x://1")["contents"] == contents


@in_revisions
@pytest.mark.parametrize("uri", ["note://2", "note://a/b", 3])
def test_an_unknown_resource(mcp_client: Connect, tools: Tools, revision: str, uri: Any) -> None:
    tools.resource("note://1", name="one")(lambda: "")
    client = connect(mcp_client, tools, revision)
    if revision == "2026-07-28" and uri == 3:
        return  # the header Mcp-Name repeats the URI, so the core refuses this
    with pytest.raises(sansmcp.JsonRpcError, match="There is no resource") as raised:
        client.call("resources/read", {"uri": uri})
    assert raised.value.code == (-32602 if revision == "2026-07-28" else -32002)


def test_errors_of_resources_and_prompts(
    mcp_client: Connect, tools: Tools, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(error: Exception) -> Any:
        raise error

    tools.resource("x://told", name="told")(lambda: fail(ToolError("The disk is full")))
    tools.prompt(name="told")(lambda: fail(ToolError("No words")))
    tools.prompt(name="secret")(lambda: fail(ValueError("secret")))
    client = connect(mcp_client, tools)
    with pytest.raises(sansmcp.JsonRpcError, match="The disk is full"):
        client.read_resource("x://told")
    with pytest.raises(sansmcp.JsonRpcError, match="No words"):
        client.get_prompt("told")
    with pytest.raises(sansmcp.JsonRpcError, match="Internal error"):
        client.get_prompt("secret")
    assert "ValueError: secret" in caplog.text


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("a://b", "a://b", {}),
        ("a://b", "a://bc", None),
        ("a://{x}", "a://", None),
        ("a://{x}", "a://1", {"x": "1"}),
        ("a://{x}", "a://1/2", None),
        ("a://{x}", "a://%2F%C3%A9", {"x": "/é"}),
        ("a://{x}/c", "a://1/c", {"x": "1"}),
        ("a://{x}/c", "a://1/d", None),
        ("a://{x}/c", "a://c", None),
        ("a://{x}-{y}", "a://1-2-3", {"x": "1", "y": "2-3"}),
        ("a://{x}-{y}", "a://1", None),
        ("a://{+x}", "a://1/2?3", {"x": "1/2?3"}),
        ("a://{+x}/e/{y}", "a://1/2/e/3", {"x": "1/2", "y": "3"}),
        ("{+x}", "anything", {"x": "anything"}),
        ("a://b{?q}", "a://b", {}),
        ("a://b{?q}", "a://b?q=%20&r=1", {"q": " "}),
        ("a://{x}{?q,r}", "a://1?r=2", {"x": "1", "r": "2"}),
        ("a:.b", "a:Xb", None),
    ],
)
def test_templates(template: str, uri: str, values: Any) -> None:
    assert parse_template(template).match(uri) == values


@given(st.text("ab/-", min_size=1), st.text("ab-", min_size=1))
def test_what_a_template_matches_is_the_uri(path: str, name: str) -> None:
    """The values put into the template give the URI again."""
    template = parse_template("x://{+path}/@/{name}")
    found = template.match(f"x://{path}/@/{name}")
    assert found == {"path": path, "name": name}


@pytest.mark.parametrize(
    "template", ["a://{", "a://}", "{x}{y}", "{x}/{x}", "{x*}", "{/x}", "{?q}/a", "{x}{?x}", "{}"]
)
def test_other_templates_are_refused(tools: Tools, template: str) -> None:
    with pytest.raises(sansmcp.LocalProtocolError, match="is not supported"):
        tools.resource(template)


@pytest.mark.parametrize("uri", ["", "greeting", "notes/{name}", "/a:b", "1a:b", "ä:b"])
def test_a_uri_without_a_scheme_is_refused(tools: Tools, uri: str) -> None:
    """Clients that check URIs take none of a list that has such a one."""
    with pytest.raises(sansmcp.LocalProtocolError, match=r"has no scheme.*'note://"):
        tools.resource(uri)


@pytest.mark.parametrize("uri", ["a:b", "a+b-1.c:", "x{y}:a", "{+uri}"])
def test_a_uri_that_has_a_scheme_or_may_have_one(tools: Tools, uri: str) -> None:
    tools.resource(uri)


def test_a_resource_without_a_uri_is_refused(tools: Tools) -> None:
    def get() -> None: ...

    with pytest.raises(sansmcp.LocalProtocolError, match=r"@tools.resource\(\"note://one\"\)"):
        tools.resource(cast("str", get))


@pytest.mark.parametrize(
    ("uri", "error"),
    [
        ("a://{x}", "The variables of 'a://{x}' must be the parameters of get"),
        ("a://{x}/{y}/{z}", "the parameters are x, y"),
        ("a://{x}{?y}", "those after '\\?' need defaults"),
        ("a://b", "must be the parameters"),
    ],
)
def test_variables_are_parameters(tools: Tools, uri: str, error: str) -> None:
    def get(x: str, y: str) -> None: ...

    with pytest.raises(sansmcp.LocalProtocolError, match=error):
        tools.resource(uri)(get)


def test_a_template_that_is_a_uri_of_its_own_comes_second(
    mcp_client: Connect, tools: Tools
) -> None:
    @tools.resource("a://{x}")
    def template(x: str) -> str:
        return f"template {x}"

    tools.resource("a://b", name="exact")(lambda: "exact")
    client = connect(mcp_client, tools)
    texts = [client.read_resource(f"a://{x}")["contents"][0].get("text") for x in "bc"]
    assert texts == ["exact", "template c"]


# Prompts


def test_prompts(mcp_client: Connect, tools: Tools) -> None:
    @tools.prompt(title="Review")
    def review(code: str, lines: int = 3) -> list[Any]:
        """Review code.

        Args:
            code: what to review
        """
        return [f"Review {code!r}, {lines + 1} lines", Message("Yes", role="assistant")]

    client = connect(mcp_client, tools)
    assert client.list_prompts()["prompts"] == [
        {
            "name": "review",
            "title": "Review",
            "description": "Review code.",
            "arguments": [
                {"name": "code", "description": "what to review", "required": True},
                {"name": "lines", "required": False},
            ],
        }
    ]
    result = client.get_prompt("review", {"code": "x = 1", "lines": "8"})
    assert result.get("description") == "Review code."
    assert result["messages"] == [
        {"role": "user", "content": {"type": "text", "text": "Review 'x = 1', 9 lines"}},
        {"role": "assistant", "content": {"type": "text", "text": "Yes"}},
    ]
    for arguments, error in (
        ({}, "missing required field `code`"),
        ({"code": "", "lines": "many"}, "Expected `int`, got `str` - at `lines`"),
    ):
        with pytest.raises(sansmcp.JsonRpcError, match=error) as raised:
            client.get_prompt("review", arguments)
        assert raised.value.code == -32602
    with pytest.raises(sansmcp.JsonRpcError, match="There is no prompt 'other'"):
        client.get_prompt("other")


@pytest.mark.parametrize(
    ("content", "type"),
    [
        (Image(b"i"), "image"),
        (Audio(b"a"), "audio"),
        (EmbeddedResource("x://1", ""), "resource"),
        (ResourceLink("x://1", "one"), "resource_link"),
    ],
)
def test_content_in_prompts(mcp_client: Connect, tools: Tools, content: Any, type: str) -> None:
    tools.prompt(name="show")(lambda: Message(content))
    (message,) = connect(mcp_client, tools).get_prompt("show")["messages"]
    assert message["content"]["type"] == type


# Completion


class Language(enum.Enum):
    ENGLISH = "English"
    ESTONIAN = "Estonian"


def _town(begun: str, known: Mapping[str, str]) -> Sequence[str]:
    return [f"{begun}town in {known.get('country', 'any country')}"]


async def _street(begun: str, known: Mapping[str, str]) -> Sequence[str]:
    return [f"{begun}{number}" for number in range(250)]


@pytest.fixture
def completing(mcp_client: Connect, tools: Tools) -> Client:
    complete: dict[str, Any] = {
        "country": ["Estonia", "Ethiopia", "Finland"],
        "town": _town,
        "street": _street,
    }

    @tools.prompt(complete=complete)
    def visit(
        country: str, town: str, street: str, tongue: Language, mood: Literal["fine", "bad"]
    ) -> str:
        return ""

    @tools.resource("map://{country}", complete={"country": complete["country"]})
    def map(country: str) -> str:
        return ""

    return connect(mcp_client, tools)


PROMPT = {"type": "ref/prompt", "name": "visit"}
MAP = {"type": "ref/resource", "uri": "map://{country}"}


@pytest.mark.parametrize(
    ("reference", "argument", "begun", "values"),
    [
        (PROMPT, "country", "e", ["Estonia", "Ethiopia"]),
        (PROMPT, "country", "", ["Estonia", "Ethiopia", "Finland"]),
        (PROMPT, "tongue", "es", ["Estonian"]),
        (PROMPT, "mood", "f", ["fine"]),
        (PROMPT, "town", "Old", ["Oldtown in Estonia"]),
        (PROMPT, "other", "", []),
        (MAP, "country", "fin", ["Finland"]),
    ],
)
def test_completion(
    completing: Client, reference: Any, argument: str, begun: str, values: list[str]
) -> None:
    params = {
        "ref": reference,
        "argument": {"name": argument, "value": begun},
        "context": {"arguments": {"country": "Estonia"}},
    }
    found = completing.call("completion/complete", params)["completion"]
    assert found == {"values": values, "total": len(values), "hasMore": False}


def test_completion_is_bounded(completing: Client) -> None:
    params = {"ref": PROMPT, "argument": {"name": "street", "value": "A"}}
    found = completing.call("completion/complete", params)["completion"]
    assert found == {
        "values": [f"A{number}" for number in range(100)],
        "total": 250,
        "hasMore": True,
    }


class Counted(str):
    """A text that counts how often it is folded, which takes time for a long one."""

    folds = 0

    def __str__(self) -> str:
        return self

    def casefold(self) -> str:
        self.folds += 1
        return super().casefold()


@pytest.mark.parametrize(
    ("begun", "values", "folds"),
    [
        ("e", ["Estonia", "Ethiopia"], 1),
        ("stras", ["Straße"], 1),
        ("STRASSE", ["Straße"], 1),
        ("x" * 8, [], 1),
        ("x" * 9, [], 0),
        ("\u00df" * 1_000_000, [], 0),
    ],
)
def test_what_the_user_has_begun_is_folded_once_at_most(
    tools: Tools, begun: str, values: list[str], folds: int
) -> None:
    """A long text costs nothing for each of the values."""

    @tools.prompt(complete={"name": ["Estonia", "Ethiopia", "Straße"]})
    def visit(name: str) -> str:
        return name

    counted = Counted(begun)
    params = {"ref": PROMPT, "argument": {"name": "name", "value": counted}}
    found = tools.handlers["completion/complete"](SimpleNamespace(params=params))
    assert found["completion"]["values"] == values
    assert counted.folds == folds


class Unsplit(str):
    """A URI that must not be taken apart, because it belongs to no template."""

    def partition(self, separator: str) -> Any:
        raise AssertionError(separator)


def test_a_uri_is_taken_apart_for_its_own_template_only() -> None:
    template = parse_template("note://{name}{?page}")
    assert template.match("note://a?page=1") == {"name": "a", "page": "1"}
    assert template.match(Unsplit("map://a?page=1")) is None


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"ref": {"type": "ref/prompt", "name": "other"}, "argument": {"name": "a", "value": ""}},
        {"ref": {"type": "ref/resource", "uri": "a://b"}, "argument": {"name": "a", "value": ""}},
        {"ref": "visit", "argument": []},
    ],
)
def test_completion_of_what_is_not_there(completing: Client, params: Any) -> None:
    with pytest.raises(sansmcp.JsonRpcError, match="There is no prompt or template") as raised:
        completing.call("completion/complete", params)
    assert raised.value.code == -32602


def test_completers_are_of_parameters(tools: Tools) -> None:
    with pytest.raises(sansmcp.LocalProtocolError, match="hello has no parameter nam"):

        @tools.prompt(complete={"nam": ["Ada"]})
        def hello(name: str) -> str:
            return name


# Pages


@pytest.mark.parametrize("count", [0, 1, 3, 4, 7])
def test_pages(mcp_client: Connect, count: int) -> None:
    tools = Tools("pages", page_size=3)
    tools.prompt(name="other")(lambda: "")
    for number in range(count):
        tools.tool(name=f"tool{number}")(lambda: None)
    if count == 0:
        tools.tool(name="gone")(lambda: None)
        tools.remove_tool("gone")
    client = connect(mcp_client, tools)
    names: list[str] = []
    sizes: list[int] = []
    params: dict[str, Any] = {}
    while True:
        page = client.call("tools/list", params)
        names += [tool["name"] for tool in page["tools"]]
        sizes.append(len(page["tools"]))
        if "nextCursor" not in page:
            break
        params = {"cursor": page["nextCursor"]}
    assert names == [f"tool{number}" for number in range(count)]
    assert max(sizes) <= 3
    assert len(sizes) == max(1, -(-count // 3))


def test_a_cursor_outlives_changes(mcp_client: Connect) -> None:
    """Nothing appears twice, and what stays is not left out."""
    tools = Tools("pages", page_size=2)
    for name in "abcd":
        tools.tool(name=name)(lambda: None)
    client = connect(mcp_client, tools)
    first = client.call("tools/list")
    tools.remove_tool("b")
    tools.remove_tool("c")
    tools.tool(name="e")(lambda: None)
    second = client.call("tools/list", {"cursor": first["nextCursor"]})
    assert [tool["name"] for tool in first["tools"] + second["tools"]] == ["a", "b", "d", "e"]


@pytest.mark.parametrize("cursor", ["", "x", "YWZ0ZXIgLTE=", "YWZ0ZXIg", 7, "é", "YWZ0ZXIgwrI="])
def test_a_wrong_cursor_is_refused(mcp_client: Connect, tools: Tools, cursor: Any) -> None:
    tools.tool(name="a")(lambda: None)
    with pytest.raises(sansmcp.JsonRpcError, match="This cursor is not one of this list") as raised:
        connect(mcp_client, tools).call("tools/list", {"cursor": cursor})
    assert raised.value.code == -32602


@pytest.mark.parametrize("size", [0, -1, "3"])
def test_pages_have_a_size(size: Any) -> None:
    with pytest.raises(sansmcp.LocalProtocolError, match="page_size must be"):
        Tools("pages", page_size=size)


# Changes


def _note(id: str = "") -> str:
    return id


def _heard(client: Client) -> list[Any]:
    return [
        (event.notification.method, (event.notification.params or {}).get("uri"))
        for event in client.events
        if isinstance(event, ServerNotified)
    ]


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-06-18", "2025-11-25"])
def test_clients_are_told_of_changes(
    mcp_client: Connect, mcp_server: Serve, mcp_network: Any, tools: Tools, revision: str
) -> None:
    tools.tool(name="first")(lambda: None)
    tools.resource("note://1", name="one")(lambda: "")
    tools.resource("note://{?id}", name="other")(_note)
    tools.prompt(name="first")(lambda: "")
    server = mcp_server(tools.app)
    detach = tools.attach(server.publish)
    client = mcp_client(server, versions=(revision,))
    client.call("resources/subscribe", {"uri": "note://1"})
    mcp_network.sleep(1)
    tools.tool(name="second")(lambda: None)
    tools.remove_tool("first")
    tools.remove_resource("note://{?id}")
    tools.remove_prompt("first")
    tools.resource_updated("note://1")
    tools.resource_updated("note://2")
    mcp_network.sleep(1)
    detach()
    tools.remove_resource("note://1")
    mcp_network.sleep(1)
    assert _heard(client) == [
        ("notifications/tools/list_changed", None),
        ("notifications/tools/list_changed", None),
        ("notifications/resources/list_changed", None),
        ("notifications/prompts/list_changed", None),
        ("notifications/resources/updated", "note://1"),
    ]
    assert [tool["name"] for tool in client.list_tools()["tools"]] == ["second"]
    assert client.list_resources()["resources"] == []


@pytest.mark.parametrize("remove", ["remove_tool", "remove_resource", "remove_prompt"])
def test_what_is_not_there_cannot_be_removed(tools: Tools, remove: str) -> None:
    with pytest.raises(sansmcp.LocalProtocolError, match="'nothing' is not among the"):
        getattr(tools, remove)("nothing")


def test_capabilities_follow_from_what_there_is(mcp_client: Connect) -> None:
    changing = {"listChanged": True}
    tools = Tools("t")
    assert tools.app.declared_capabilities() == {}
    tools.tool(name="a")(lambda: None)
    assert tools.app.declared_capabilities() == {"tools": changing}
    tools.resource("a://b", name="b")(lambda: "")
    tools.prompt(name="c")(lambda: "")
    assert tools.app.declared_capabilities() == {
        "tools": changing,
        "resources": {"subscribe": True, **changing},
        "prompts": changing,
    }

    @tools.prompt
    def choose(which: Literal["a", "b"]) -> str:
        return which

    assert tools.app.declared_capabilities()["completions"] == {}


# Further options of tools


def test_a_schema_is_searched_for_headers_once(tools: Tools) -> None:
    searched: list[object] = []

    def search(schema: Any) -> dict[str, tuple[str, ...]]:
        searched.append(schema)
        return parameters(schema)

    def add(header: str) -> None:
        def find(region: str) -> str:
            return region

        found = Annotated[str, Meta(extra_json_schema={"x-mcp-header": header})]
        find.__annotations__["region"] = found
        tools.tool(find)

    add("Region")
    assert [tools.mirrored_headers("find", search) for _ in "ab"] == 2 * [{"Region": ("region",)}]
    assert len(searched) == 1
    tools.remove_tool("find")
    assert tools.mirrored_headers("find", search) == {}
    add("Place")
    assert tools.mirrored_headers("find", search) == {"Place": ("region",)}


def test_headers_of_schemas_are_checked(mcp_client: Connect, tools: Tools) -> None:
    """``x-mcp-header`` in a schema reaches the core, which checks the header."""

    @tools.tool
    def find(region: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})]) -> str:
        return region

    assert tools.app.input_schema is not None
    schema = tools.app.input_schema("find")
    assert schema is not None
    assert schema["properties"]["region"]["x-mcp-header"] == "Region"
    assert tools.app.input_schema("other") is None
    assert text_of(connect(mcp_client, tools).call_tool("find", {"region": "EU"})) == "EU"


def test_scopes_are_those_of_the_tool(tools: Tools) -> None:
    tools.tool(name="free")(lambda: None)
    tools.tool(name="paid", scopes=["pay"])(lambda: None)
    request = sansmcp.Request(1, "tools/call", {"name": "paid"})
    assert tools.app.scopes_of(request) == ("pay",)
    for params in ({"name": "free"}, {"name": "other"}, {}, None):
        assert tools.app.scopes_of(sansmcp.Request(1, "tools/call", params)) == ()
    with pytest.raises(sansmcp.LocalProtocolError):
        tools.tool(scopes=["not a scope"])


def test_tasks_are_those_of_the_tool(mcp_client: Connect, tools: Tools) -> None:
    tools.tool(name="quick")(lambda: "quick")
    assert tools.app.options["tools/call"].task is None
    tools.tool(name="slow", task=0)(lambda: "slow")
    client = connect(mcp_client, tools)
    quick, slow = client.start_task("quick"), client.start_task("slow")
    assert (quick.id, slow.id is not None) == (None, True)
    assert (text_of(quick.result()), text_of(slow.result())) == ("quick", "slow")
    with pytest.raises(sansmcp.LocalProtocolError, match="task must be"):
        tools.tool(task="sometimes")  # type: ignore[call-overload]  # pyright: ignore
