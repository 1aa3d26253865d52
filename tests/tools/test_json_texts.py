"""Arguments as language models send them: read where nothing else can be meant."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sansmcp
from sansmcp_pytest import Connect
from sansmcp_tools import Accepted, Context, Tools
from sansmcp_tools._arguments import arguments_from
from sansmcp_tools._schemas import object_schema

from .conftest import accept, connect, in_revisions, text_of

of_msgspec_0_22 = pytest.mark.skipif(
    tuple(map(int, msgspec.__version__.split(".")[:2])) < (0, 22),
    reason="older versions refuse a Literal of texts and numbers",
)


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Place(TypedDict):
    street: str
    number: int


class Pair(NamedTuple):
    name: str
    amount: int


class Tree(msgspec.Struct):
    children: list[Tree]
    size: int = 0


class Size(enum.Enum):
    SMALL = 1
    LARGE = 2


class Colour(enum.Enum):
    RED = "1"


class Circle(msgspec.Struct, tag="circle"):
    radius: int


class Square(msgspec.Struct, tag="square"):
    side: int


class Item(pydantic.BaseModel):
    name: str
    price: float = 1.0


Region = Annotated[int, msgspec.Meta(extra_json_schema={"x-mcp-header": "Region"})]

# An annotation, what a model sends, and what the function gets.
READ: list[tuple[Any, Any, Any]] = [
    (int, "5", 5),
    (int, " 5\n", 5),
    (int, "5.0", 5),
    (int, "-1e2", -100),
    (float, "5", 5.0),
    (float, "0.5", 0.5),
    (bool, "true", True),
    (int | None, "5", 5),
    (int | None, "null", None),
    (int | bool, "false", False),
    (Annotated[int, msgspec.Meta(ge=1)], "5", 5),
    (Annotated[int, pydantic.Field(ge=1)], "5", 5),
    (list[str], '["a", "5"]', ["a", "5"]),
    (list[str] | None, '["a"]', ["a"]),
    (list[int], "[1, 2]", [1, 2]),
    (list[int], ["1", 2], [1, 2]),
    (list[int], '["1"]', [1]),
    (set[int], "[1]", {1}),
    (tuple[int, str], '["1", "2"]', (1, "2")),
    (tuple[int, str], ["1", "2"], (1, "2")),
    (dict[str, int], '{"a": 1}', {"a": 1}),
    (dict[str, int], {"a": "1"}, {"a": 1}),
    (list[dict[str, list[int]]], [{"a": "[1]"}], [{"a": [1]}]),
    (Point, '{"x": 1}', Point(1)),
    (Point, {"x": "1", "y": 2.0}, Point(1, 2)),
    (Point | None, '{"x": 1}', Point(1)),
    (Point | None, {"x": "1"}, Point(1)),
    (list[Point], '[{"x": 1}]', [Point(1)]),
    (Place, {"street": "5", "number": "5"}, {"street": "5", "number": 5}),
    (Pair, '["5", "5"]', Pair("5", 5)),
    (Tree, {"children": [{"children": "[]", "size": "1"}]}, Tree([Tree([], 1)])),
    (Item, '{"name": "tea"}', Item(name="tea")),
    (list[Item], '[{"name": "5", "price": "2"}]', [Item(name="5", price=2)]),
    (Circle | Square, '{"type": "square", "side": 1}', Square(1)),
    (Literal[1, 2], "2", 2),
    (Size, "2", Size.LARGE),
]


@pytest.mark.parametrize(("annotation", "sent", "got"), READ)
def test_a_text_is_read_where_the_schema_allows_none(
    mcp_client: Connect, tools: Tools, annotation: Any, sent: Any, got: Any
) -> None:
    seen = _seen(mcp_client, tools, annotation, sent)
    assert seen == [got]
    assert type(seen[0]) is type(got)


def _seen(mcp_client: Connect, tools: Tools, annotation: Any, sent: Any) -> list[Any]:
    """What a function gets that is called with an argument; nothing if that is refused."""
    seen: list[Any] = []

    def take(value: Any) -> None:
        seen.append(value)

    take.__annotations__ = {"value": annotation, "return": None}
    tools.tool(take)
    result = connect(mcp_client, tools).call_tool("take", {"value": sent})
    assert bool(result.get("isError")) is not bool(seen)
    assert seen or "value" in text_of(result)
    return seen


# An annotation that a text fits, and the text.
TEXTS: list[tuple[Any, Any, Any]] = [
    (str, "5", "5"),
    (str, "[1]", "[1]"),
    (str | int, "5", "5"),
    (str | list[str], '["a"]', '["a"]'),
    (Any, "5", "5"),
    (list[Any], ["5"], ["5"]),
    (Literal["1", "2"], "1", "1"),
    pytest.param(Literal["1", 2], "1", "1", marks=of_msgspec_0_22),
    (Colour, "1", Colour.RED),
    (bytes, "NQ==", b"5"),
    (datetime.date, "2026-07-28", datetime.date(2026, 7, 28)),
]


@pytest.mark.parametrize(("annotation", "sent", "got"), TEXTS)
def test_a_text_stays_one_where_the_schema_allows_texts(
    mcp_client: Connect, tools: Tools, annotation: Any, sent: Any, got: Any
) -> None:
    assert _seen(mcp_client, tools, annotation, sent) == [got]


# An annotation, and what is refused.
REFUSED: list[Any] = [
    (int, "five"),
    (int, "5.5"),
    (int, ""),
    (int, "0x5"),
    (int, "1_000"),
    (int, "1e999"),
    (int, "NaN"),
    (int, '"5"'),
    (int, "true"),
    (int, "\ufeff5"),
    (float, "Infinity"),
    (bool, "True"),
    (bool, "1"),
    (int, 5.5),
    (bool, 1.0),
    (str, 5.0),
    (list[int], "1"),
    (list[int], "1, 2"),
    (list[str], "[1]"),
    (dict[str, int], '{"a": 1, "a": 2}'),
    (dict[str, int], '{"a": "\\ud83d"}'),
    (list[int], "[" * 70 + "]" * 70),
    pytest.param(Literal["1", 2], "2", marks=of_msgspec_0_22),
    (Literal["a"], '"a"'),
    (Colour, "2"),
    (Annotated[int, msgspec.Meta(ge=6)], "5"),
]


@pytest.mark.parametrize(("annotation", "sent"), REFUSED)
def test_nothing_else_is_read(
    mcp_client: Connect, tools: Tools, annotation: Any, sent: Any
) -> None:
    assert _seen(mcp_client, tools, annotation, sent) == []


@pytest.mark.parametrize("json_texts", [True, False])
@pytest.mark.parametrize(("annotation", "sent"), [(int, 5.0), (list[int], [5.0]), (int, 1e20)])
def test_a_whole_float_is_an_integer(
    mcp_client: Connect, json_texts: bool, annotation: Any, sent: Any
) -> None:
    """JSON Schema makes no difference between 5 and 5.0, with the setting or without."""
    (got,) = _seen(mcp_client, Tools("x", json_texts=json_texts), annotation, sent)
    assert got == sent
    assert not isinstance(got, float)


@pytest.mark.parametrize(("annotation", "sent", "got"), READ)
def test_the_setting_refuses_them(
    mcp_client: Connect, annotation: Any, sent: Any, got: Any
) -> None:
    if annotation in (Item, list[Item]) or getattr(annotation, "__metadata__", None):
        return  # pydantic reads numbers from texts itself
    if sent != {"x": "1", "y": 2.0}:
        assert _seen(mcp_client, Tools("x", json_texts=False), annotation, sent) == []


def test_the_setting_is_a_bool() -> None:
    with pytest.raises(sansmcp.LocalProtocolError, match="json_texts must be bool, and is str"):
        Tools("x", json_texts="no")  # type: ignore[arg-type]


@in_revisions
def test_everything_before_the_function_sees_what_was_sent(
    mcp_client: Connect, tools: Tools, revision: str
) -> None:
    """Headers and scopes are checked against the request, which stays as it is."""
    seen: list[Any] = []

    @tools.tool
    async def take(region: Region, tags: list[str], context: Context) -> None:
        seen.append((region, tags, context.call.params["arguments"]))

    client = connect(mcp_client, tools, revision)
    client.list_tools()  # from which the client knows the header
    client.call_tool("take", {"region": "5", "tags": '["a"]'})
    assert seen == [(5, ["a"], {"region": "5", "tags": '["a"]'})]


@pytest.mark.parametrize("content", [{"value": 5.0}, {"value": 5}])
def test_a_whole_float_is_an_integer_in_a_form(
    mcp_client: Connect, tools: Tools, content: dict[str, Any]
) -> None:
    @tools.tool
    async def ask(context: Context) -> str:
        answer = await context.elicit(int, "How many?")
        assert isinstance(answer, Accepted)
        return repr(answer.value)

    client = connect(mcp_client, tools, answers={"elicitation/create": accept(**content)})
    assert text_of(client.call_tool("ask")) == "5"


def test_arguments_of_a_prompt_can_be_lists(mcp_client: Connect, tools: Tools) -> None:
    """Clients send all of them as texts."""

    @tools.prompt
    def plan(towns: list[str], days: int = 1, rest: bool = False) -> str:
        return f"{towns} {days} {rest}"

    arguments = {"towns": '["Tallinn"]', "days": "2", "rest": "true"}
    result: Any = connect(mcp_client, tools).get_prompt("plan", arguments)
    assert result["messages"][0]["content"]["text"] == "['Tallinn'] 2 True"


def _read(value: Any, annotation: Any) -> Any:
    struct = msgspec.defstruct("S", [("value", annotation)])
    schema, _ = object_schema(struct, "S")
    return arguments_from({"value": value}, struct, schema, json_texts=True).value


def test_the_work_for_one_call_is_bounded() -> None:
    assert _read(["1"] * 9_000, list[int]) == [1] * 9_000
    for many in (["1"] * 11_000, "[" + "[]," * 200_000 + "[]]", [json.dumps([1] * 50_000)] * 5):
        with pytest.raises(ValueError, match="value"):
            _read(many, list[int] if many[0] == "1" else list[list[int]])


def test_texts_within_texts_are_read_to_a_bounded_depth() -> None:
    value: Any = []
    for _ in range(20):
        value = json.dumps([value]) if len(str(value)) < 100_000 else [value]
    assert isinstance(_read({"children": json.dumps([{"children": "[]"}])}, Tree), Tree)
    with pytest.raises(ValueError, match="value"):
        _read(value, list[int])
    deep: Any = {"children": "[]"}
    for _ in range(70):
        deep = {"children": [deep]}
    with pytest.raises(ValueError, match="value"):
        _read(deep, Tree)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
)


@given(VALUES)
def test_what_fits_is_never_read_in_another_way(value: Any) -> None:
    assert _read(value, Any) == value
    if isinstance(value, str):
        assert _read(value, str | int) == value


@given(st.lists(st.integers() | st.booleans() | st.none()))
def test_a_text_of_json_is_read_as_its_value(value: list[Any]) -> None:
    annotation = list[int | bool | None]
    assert _read(json.dumps(value), annotation) == _read(value, annotation) == value
    assert _read([json.dumps(each) for each in value], annotation) == value
