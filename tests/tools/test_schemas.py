"""The schema of a tool's arguments follows from annotations, and arguments are held to it."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict, Union

import attrs
import msgspec
import pydantic
import pytest
from msgspec import Meta

import sansmcp
from sansmcp.codecs.json import as_object
from sansmcp_pytest import Connect
from sansmcp_tools import Context, ThreadContext, Tools

from .conftest import connect, text_of


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Size:
    width: int
    height: int = 1


class Place(TypedDict):
    street: str


class Order(msgspec.Struct):
    id: int
    place: Place


class Point(NamedTuple):
    x: int
    y: int


@attrs.frozen
class Box:
    content: str


class Item(pydantic.BaseModel):
    name: str
    price: Annotated[float, pydantic.Field(gt=0)] = 1.0


class Basket(pydantic.BaseModel):
    items: list[Item]


class Tree(msgspec.Struct):
    children: list[Tree]


INTEGER = {"type": "integer"}
STRING = {"type": "string"}
ITEM = {
    "title": "Item",
    "type": "object",
    "properties": {
        "name": {"title": "Name", "type": "string"},
        "price": {"default": 1.0, "exclusiveMinimum": 0, "title": "Price", "type": "number"},
    },
    "required": ["name"],
}

# An annotation, its schema, a value from a client and what the function gets, a wrong value and
# what the error says.
TABLE: list[tuple[Any, dict[str, Any], Any, Any, Any, str]] = [
    (int, INTEGER, 3, 3, "3", "Expected `int`, got `str`"),
    (int, INTEGER, 3, 3, 3.5, "Expected `int`, got `float`"),
    (int, INTEGER, 3, 3, True, "Expected `int`, got `bool`"),
    (float, {"type": "number"}, 3, 3.0, None, "Expected `float`, got `null`"),
    (bool, {"type": "boolean"}, True, True, 1, "Expected `bool`, got `int`"),
    (str, STRING, "é", "é", 1, "Expected `str`, got `int`"),
    (list[int], {"type": "array", "items": INTEGER}, [1], [1], [1, "2"], "`value[1]`"),
    (Sequence[str], {"type": "array", "items": STRING}, ["a"], ["a"], "a", "got `str`"),
    (
        dict[str, int],
        {"type": "object", "additionalProperties": INTEGER},
        {"a": 1},
        {"a": 1},
        {"a": "b"},
        "`value[...]`",
    ),
    (
        Optional[int],  # noqa: UP045
        {"anyOf": [INTEGER, {"type": "null"}]},
        None,
        None,
        "x",
        "Expected `int | null`",
    ),
    (Union[int, str], {"anyOf": [INTEGER, STRING]}, "x", "x", 1.5, "Expected `int | str`"),  # noqa: UP007
    (Literal["a", "b"], {"enum": ["a", "b"]}, "a", "a", "c", "Invalid enum value 'c'"),
    (
        Annotated[int, Meta(ge=1, le=9, description="how many")],
        {"type": "integer", "minimum": 1, "maximum": 9, "description": "how many"},
        9,
        9,
        10,
        "Expected `int` <= 9",
    ),
    (
        Annotated[str, Meta(pattern="^x")],
        {"type": "string", "pattern": "^x"},
        "xy",
        "xy",
        "y",
        "matching regex",
    ),
    (
        datetime.date,
        {"type": "string", "format": "date"},
        "2026-07-28",
        datetime.date(2026, 7, 28),
        "28.7.",
        "Invalid RFC3339",
    ),
    (Any, {}, [1, None], [1, None], ..., ""),
    (
        Colour,
        {"$ref": "#/$defs/Colour"},
        "red",
        Colour.RED,
        "green",
        "Invalid enum value 'green'",
    ),
    (Size, {"$ref": "#/$defs/Size"}, {"width": 2}, Size(2), {}, "missing required field `width`"),
    (Place, {"$ref": "#/$defs/Place"}, {"street": "A"}, {"street": "A"}, {"street": 1}, "street"),
    (
        Order,
        {"$ref": "#/$defs/Order"},
        {"id": 1, "place": {"street": "A"}},
        Order(1, {"street": "A"}),
        {"id": 1, "place": {"street": 2}},
        "`value.place.street`",
    ),
    (Box, {"$ref": "#/$defs/Box"}, {"content": "c"}, Box("c"), {"content": 1}, "`value.content`"),
    (Tree, {"$ref": "#/$defs/Tree"}, {"children": []}, Tree([]), {}, "`children`"),
    (Item, ITEM, {"name": "tea"}, Item(name="tea"), {"name": 1}, "name: Input should be"),
    (
        list[Item],
        {"type": "array", "items": {"$ref": "#/$defs/Item"}},
        [{"name": "tea", "price": 2}],
        [Item(name="tea", price=2)],
        [{"name": "tea", "price": 0}],
        "0.price: Input should be greater than 0",
    ),
    (
        Optional[Basket],  # noqa: UP045
        {"anyOf": [{"$ref": "#/$defs/Basket"}, {"type": "null"}]},
        {"items": []},
        Basket(items=[]),
        {"items": 1},
        "items: Input should be a valid list",
    ),
    (
        Annotated[int, pydantic.Field(ge=1, description="how many")],
        {"type": "integer", "minimum": 1, "description": "how many"},
        1,
        1,
        0,
        "Input should be greater than or equal to 1",
    ),
]


@pytest.mark.parametrize(
    ("annotation", "schema", "sent", "received", "wrong", "error"),
    TABLE,
    ids=[f"{number}-{getattr(row[0], '__name__', '')}" for number, row in enumerate(TABLE)],
)
def test_an_annotation_is_schema_and_check(
    mcp_client: Connect,
    annotation: Any,
    schema: dict[str, Any],
    sent: Any,
    received: Any,
    wrong: Any,
    error: str,
) -> None:
    got: list[Any] = []

    def take(value: Any) -> None:
        got.append(value)

    take.__annotations__ = {"value": annotation, "return": None}
    tools = Tools("under test", json_texts=False)
    tools.tool(take)
    client = connect(mcp_client, tools)
    (tool,) = client.list_tools()["tools"]
    shown = tool["inputSchema"]
    # Python 3.10 takes a union for the same one in another order, if that came before.
    assert _sorted(shown["properties"]) == _sorted({"value": schema})
    assert (shown["type"], shown["required"]) == ("object", ["value"])
    assert shown["additionalProperties"] is False
    references = set(re.findall(r"#/\$defs/(\w+)", json.dumps(shown)))
    assert shown.get("$defs", {}).keys() == references
    assert client.call_tool("take", {"value": sent})["content"] == []
    assert got == [received]
    assert type(got[0]) is type(received)
    if wrong is ...:
        return
    refused = client.call_tool("take", {"value": wrong})
    assert refused["isError"]
    assert "value" in text_of(refused)
    assert error in text_of(refused)
    assert len(got) == 1


def _sorted(schema: Any) -> Any:
    """Return a schema whose alternatives are in one order."""
    members = as_object(schema)
    if members is not None:
        return {
            name: sorted(map(_sorted, value), key=str) if name == "anyOf" else _sorted(value)
            for name, value in members.items()
        }
    return schema


def test_nested_types_bring_their_definitions(tools: Tools) -> None:
    @tools.tool
    def take(order: Order, tree: Tree, basket: Basket) -> None:
        """Take."""

    definitions = _schema_of(tools)["$defs"]
    assert definitions.keys() == {"Order", "Place", "Tree", "Item"}
    assert definitions["Item"] == ITEM


def _schema_of(tools: Tools, name: str = "take") -> Any:
    assert tools.app.input_schema is not None
    return tools.app.input_schema(name)


def test_names_defaults_and_descriptions(mcp_client: Connect, tools: Tools) -> None:
    marker = object()
    got: list[Any] = []

    @tools.tool(
        name="take.it",
        title="Take it",
        description="Take",
        icons=[{"src": "https://example.com/icon.png"}],
        read_only=False,
        destructive=True,
        idempotent=True,
        open_world=False,
    )
    def take(
        a: Annotated[int, Meta(description="own")],
        b: list[int] = [1],  # noqa: B006
        c: Any = marker,
        *,
        d: str = "",
    ) -> None:
        """Take some.

        Args:
            a: not this one
            b: the second
            z: not there
        """
        got.append((a, b, c, d))

    client = connect(mcp_client, tools)
    (tool,) = client.list_tools()["tools"]
    assert tool == {
        "name": "take.it",
        "title": "Take it",
        "description": "Take",
        "icons": [{"src": "https://example.com/icon.png"}],
        "annotations": {
            "readOnlyHint": False,
            "destructiveHint": True,
            "idempotentHint": True,
            "openWorldHint": False,
        },
        "inputSchema": {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "description": "own"},
                "b": {
                    "type": "array",
                    "items": INTEGER,
                    "default": [1],
                    "description": "the second",
                },
                "c": {},
                "d": {"type": "string", "default": ""},
            },
            "required": ["a"],
            "additionalProperties": False,
        },
    }
    client.call_tool("take.it", {"a": 1})
    client.call_tool("take.it", {"a": 1, "b": [], "c": None, "d": "x"})
    assert got == [(1, [1], marker, ""), (1, [], None, "x")]
    assert "unknown field `e`" in text_of(client.call_tool("take.it", {"a": 1, "e": 1}))
    assert "missing required field `a`" in text_of(client.call_tool("take.it"))


def test_docstrings_of_functions_without_annotations(tools: Tools) -> None:
    @tools.tool
    def take(a, b=1):  # type: ignore[no-untyped-def]  # pyright: ignore
        """Take anything."""

    assert _schema_of(tools)["properties"] == {"a": {}, "b": {"default": 1}}


class Unknown:
    """A class that is no type of JSON."""


def _variadic(*values: int) -> None: ...


def _positional(value: int, /) -> None: ...


def _unknown(value: Unknown) -> None: ...


def _unknown_result() -> Unknown:
    return Unknown()


def _undefined(value: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore


def _number(value: Any) -> None: ...


def _expression(value: Any) -> None: ...


_number.__annotations__["value"] = 5
_expression.__annotations__["value"] = "two words"


def _two_contexts(one: ThreadContext, two: ThreadContext) -> None: ...


def _async_in_thread(context: Context) -> None: ...


async def _thread_in_loop(context: ThreadContext) -> None: ...


async def _bad_name() -> None: ...


_bad_name.__name__ = "bad name"


_other_item: Any = pydantic.create_model("Item", other=(int, ...))


def _same_names(one: Basket, two: Any) -> None: ...


_same_names.__annotations__["two"] = list[_other_item]


REFUSED: list[tuple[Any, str]] = [
    (_variadic, r"\*values: 'int' of _variadic cannot be passed by name"),
    (_positional, "value: 'int' of _positional cannot be passed by name"),
    (_unknown, "The parameter value of _unknown has a type without a JSON schema: .*Unknown"),
    (_unknown, "Types that have one are str, int"),
    (_number, "The parameter value of _number has a type without a JSON schema: "),
    (_expression, "The annotations of _expression cannot be read: "),
    (_unknown_result, "The result of _unknown_result has a type without a JSON schema"),
    (_undefined, "The annotations of _undefined cannot be read: .*Nowhere"),
    (_two_contexts, "_two_contexts has two parameters for a context"),
    (_async_in_thread, "_async_in_thread is a plain function, so its context must be a Thread"),
    (_thread_in_loop, "_thread_in_loop is async, so its context must be a Context"),
    (_bad_name, "'bad name' cannot be the name of a tool"),
    (_same_names, "A parameter of _same_names uses two types of the name Item"),
    ("text", "Decorate a function, and not 'text'"),
]


@pytest.mark.parametrize(("function", "error"), REFUSED)
def test_a_function_that_cannot_be_a_tool_is_refused(
    tools: Tools, function: Any, error: str
) -> None:
    with pytest.raises(sansmcp.LocalProtocolError, match=error):
        tools.tool(function)
    assert tools.app.declared_capabilities() == {}


def test_a_name_is_taken_once(tools: Tools) -> None:
    @tools.tool
    def take() -> None: ...

    with pytest.raises(sansmcp.LocalProtocolError, match="'take' exists already in the tools"):
        tools.tool(take)


def test_methods_and_callable_objects(mcp_client: Connect, tools: Tools) -> None:
    class Counter:
        """Count up."""

        number = 0

        def add(self, by: int) -> int:
            """Add."""
            self.number += by
            return self.number

        async def __call__(self, times: int) -> int:
            return self.number * times

    counter = Counter()
    tools.tool(counter.add)
    tools.tool(name="times")(counter)
    client = connect(mcp_client, tools)
    assert text_of(client.call_tool("add", {"by": 3})) == "3"
    assert text_of(client.call_tool("times", {"times": 2})) == "6"


def _take(items: list[Item], by_name: dict[str, Item] | None = None) -> None: ...


MISTAKES: list[tuple[dict[str, Any], str, str]] = [
    ({"items": [{"name": 1}] * 5000}, "0.name: Input should be", " more - at `items`"),
    ({"items": [], "by_name": {"n" * 9000: 5}}, "n" * 50, " - at `by_name`"),
    ({"items": 1, "l" * 9000: 5}, "", ""),
    ({"items": []} | {"z" * 9000: 5}, "Object contains unknown field `zzz", "zzz`"),
]


@pytest.mark.parametrize(("arguments", "begins", "ends"), MISTAKES)
def test_the_text_for_many_mistakes_is_short(
    mcp_client: Connect, tools: Tools, arguments: dict[str, Any], begins: str, ends: str
) -> None:
    """The model gets the first twenty, and no text of many times the size of the arguments."""
    tools.tool(name="take")(_take)
    refused = connect(mcp_client, tools).call_tool("take", arguments)
    text = text_of(refused)
    assert refused["isError"]
    assert text.startswith(f"The arguments of take are not valid: {begins}")
    assert text.endswith(ends)
    assert len(text) < 6000


def test_without_pydantic() -> None:
    """No program that does not use pydantic imports it, so it need not be installed."""
    code = """
import sys
sys.modules["pydantic"] = None
import sansmcp_tools
tools = sansmcp_tools.Tools("t")
@tools.tool
def add(a: int, b: list[dict[str, float]] | None = None) -> dict[str, int]: ...
print(sorted(tools.app.input_schema("add")["properties"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['a', 'b']\n"


class Hotel:
    def price(self, nights: int) -> int:
        return 100 * nights

    @classmethod
    def stars(cls) -> int:
        return 4

    @staticmethod
    def name() -> str:
        return "Hotel"


@pytest.mark.parametrize("decorate", ["tool", "prompt"])
def test_a_method_of_a_class_is_refused_where_it_is_decorated(tools: Tools, decorate: str) -> None:
    with pytest.raises(sansmcp.LocalProtocolError) as caught:
        getattr(tools, decorate)(Hotel.price)
    assert "Hotel.price is a method of a class" in str(caught.value)
    assert "tools.tool(Hotel().price)" in str(caught.value)
    for function in (Hotel().price, Hotel.stars, Hotel.name):
        tools.tool(function)


@pytest.mark.parametrize("decorate", ["tool", "prompt"])
def test_a_class_is_refused_where_it_is_decorated(tools: Tools, decorate: str) -> None:
    with pytest.raises(sansmcp.LocalProtocolError, match="Hotel is a class: decorate a function"):
        getattr(tools, decorate)(Hotel)


async def stream(name: str) -> AsyncIterator[str]:
    yield name


def generate(name: str) -> Iterator[str]:
    yield name


@pytest.mark.parametrize("function", [stream, generate])
def test_a_generator_is_refused_where_it_is_decorated(tools: Tools, function: Any) -> None:
    for decorate in (tools.tool, tools.prompt, tools.resource("a://{name}")):
        with pytest.raises(sansmcp.LocalProtocolError, match=f"{function.__name__} is a generator"):
            decorate(function)


@pytest.mark.parametrize("decorate", ["tool", "prompt"])
def test_a_name_without_its_keyword_is_refused(tools: Tools, decorate: str) -> None:
    with pytest.raises(sansmcp.LocalProtocolError, match="; for a name write name='greet'"):
        getattr(tools, decorate)("greet")
