"""``result_type=`` converts results, and iterators read lists to their end: in all adapters."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

from sansmcp import InvalidResponse, LocalProtocolError, ToolFailed
from sansmcp.codecs import conversion
from sansmcp.schema import CallToolResult, ListToolsResult
from sansmcp.typed_results import MAX_PAGES, TOOLS, Pages

from .conftest import LISTS, Use

Ask = Callable[[Use], Any]


class Struct(msgspec.Struct):
    sum: int
    parts: list[int]


@dataclass
class Plain:
    sum: int
    parts: list[int]


class Typed(TypedDict):
    sum: int
    parts: list[int]


class Model(pydantic.BaseModel):
    sum: int
    parts: list[int]


TYPES: list[type[Any]] = [Struct, Plain, Typed, Model]


def calling(tool: str, kind: type[Any]) -> Use:
    return lambda client: client.call_tool(tool, result_type=kind)


def test_structured_content_becomes_a_type(ask: Ask) -> None:
    for kind in TYPES:
        assert ask(calling("fits", kind)) == kind(sum=3, parts=[1, 2])


def test_what_does_not_fit_names_the_field(ask: Ask) -> None:
    for kind in TYPES:
        with pytest.raises(InvalidResponse, match=r"sum") as caught:
            ask(calling("does_not_fit", kind))
        assert kind.__name__ in str(caught.value)
        assert caught.value.method == "tools/call"


class Result(msgspec.Struct):
    result: float


@pytest.mark.parametrize(
    ("tool", "kind", "value"),
    [
        ("gives_number", float, 2.5),
        ("gives_number", float | None, 2.5),
        ("gives_number", Annotated[float, msgspec.Meta(gt=0)], 2.5),
        ("gives_number", Result, Result(2.5)),
        ("gives_number", dict[str, float], {"result": 2.5}),
        ("gives_union", Struct | int, Struct(3, [1])),
        ("gives_union", Struct, Struct(3, [1])),
        ("gives_union", Model, Model(sum=3, parts=[1])),
    ],
)
def test_what_a_server_has_wrapped_is_unwrapped(ask: Ask, tool: str, kind: Any, value: Any) -> None:
    """Structured content is an object, so a float travels as ``{"result": 2.5}``."""
    assert ask(calling(tool, kind)) == value


@pytest.mark.parametrize(
    ("tool", "kind", "error"),
    [
        ("gives_number", str, "is no str: Expected `str`, got `float`"),
        ("gives_result", float, "is no float: Expected `float`, got `object`"),
        ("fits", float, "is no float: Expected `float`, got `object`"),
    ],
)
def test_what_does_not_fit_is_one_error(ask: Ask, tool: str, kind: Any, error: str) -> None:
    with pytest.raises(InvalidResponse) as caught:
        ask(calling(tool, kind))
    assert str(caught.value) == f"The structuredContent of the tool's result {error}"
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.count("Traceback (most recent call last)") == 1


@pytest.mark.parametrize(
    ("tool", "kind", "texts"),
    [
        ("many_mistakes", Model, ["parts.0: Input should be", "; and 4980 more"]),
        ("many_mistakes", Struct, ["got `str` - at `$.parts[0]`"]),
        ("long_mistake", Literal["a"], ["Invalid enum value 'xxx", " ... xxx"]),
    ],
)
def test_the_text_for_many_mistakes_is_short(
    ask: Ask, tool: str, kind: Any, texts: list[str]
) -> None:
    with pytest.raises(InvalidResponse) as caught:
        ask(calling(tool, kind))
    assert len(str(caught.value)) < 6000
    for text in texts:
        assert text in str(caught.value)


def test_a_tool_that_fails_raises_only_with_a_type(ask: Ask) -> None:
    assert ask(lambda client: client.call_tool("fails"))["isError"] is True
    with pytest.raises(ToolFailed, match="no such city") as caught:
        ask(lambda client: client.call_tool("fails", result_type=Struct))
    assert caught.value.result["isError"] is True


@pytest.mark.parametrize("tool", ["gives_text", "gives_texts", "gives_image", "gives_nothing"])
def test_a_result_without_structured_content_is_refused(ask: Ask, tool: str) -> None:
    with pytest.raises(InvalidResponse, match="no structuredContent"):
        ask(calling(tool, Struct))


def test_json_in_a_text_becomes_a_type(ask: Ask) -> None:
    """Servers before 2025-06-18 have no other way to send a value."""
    for kind in TYPES:
        assert ask(calling("gives_json", kind)) == kind(sum=3, parts=[1, 2])
        with pytest.raises(InvalidResponse, match=r"The text of the tool's result is no .*sum"):
            ask(calling("gives_other_json", kind))


def test_a_text_becomes_a_str_as_it_is(ask: Ask) -> None:
    """A tool that returns a str has no structured content."""
    assert ask(calling("gives_text", str)) == "three"
    assert ask(calling("gives_other_json", str)) == '{"parts": []}'
    for tool in ("gives_texts", "gives_image", "gives_nothing"):
        with pytest.raises(InvalidResponse, match="no structuredContent"):
            ask(calling(tool, str))


def test_a_float_that_is_an_integer_fits_one(ask: Ask) -> None:
    """JavaScript and Go write 3.0 for 3, or the other way round."""
    for kind in TYPES:
        found = ask(calling("gives_floats", kind))
        assert found == kind(sum=3, parts=[1, 2])
        assert "3.0" not in repr(found)
        with pytest.raises(InvalidResponse, match=r"sum"):
            ask(calling("gives_half", kind))
    with pytest.raises(InvalidResponse, match=r"got `float` - at `\$.sum`"):
        ask(calling("gives_large", Struct))


def test_any_result_becomes_a_type(ask: Ask) -> None:
    found = ask(lambda client: client.call("tools/list", result_type=ListToolsResult))
    assert [tool["name"] for tool in found["tools"]] == ["t0", "t1"]
    with pytest.raises(InvalidResponse, match="sum"):
        ask(lambda client: client.call("tools/list", result_type=Struct))


@pytest.mark.parametrize("method", ["call", "call_tool"])
def test_a_type_that_cannot_be_converted_to_is_refused_before_the_call(
    ask: Ask, method: str
) -> None:
    with pytest.raises(LocalProtocolError, match=r"CallToolResult .* annotate"):
        ask(lambda client: getattr(client, method)("none such", result_type=CallToolResult))


@pytest.mark.parametrize(
    ("iterate", "method"),
    list(zip(("tools", "prompts", "resources", "resource_templates"), LISTS, strict=True)),
)
def test_lists_are_read_page_by_page(ask: Ask, iterate: str, method: str) -> None:
    assert ask(lambda client: getattr(client, iterate)()) == LISTS[method][1]


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (None, "no array of objects"),
        ({"tools": "none"}, "no array of objects"),
        ({"tools": [1]}, "no array of objects"),
        ({"tools": [], "nextCursor": 1}, "no string"),
    ],
)
def test_a_page_that_is_none_is_refused(page: Any, why: str) -> None:
    with pytest.raises(InvalidResponse, match=why):
        Pages(TOOLS).items(page)


def test_a_list_asks_for_a_page() -> None:
    assert TOOLS.page(None) == ("tools/list", None)
    assert TOOLS.page("next") == ("tools/list", {"cursor": "next"})


def test_a_list_without_end_is_refused() -> None:
    pages = Pages(TOOLS)
    pages.items({"tools": [], "nextCursor": "a"})
    with pytest.raises(InvalidResponse, match="cursor of its own"):
        pages.items({"tools": [], "nextCursor": "a"})
    pages = Pages(TOOLS)
    for number in range(MAX_PAGES - 1):
        pages.items({"tools": [], "nextCursor": str(number)})
    with pytest.raises(InvalidResponse, match="1000 pages"):
        pages.items({"tools": [], "nextCursor": "more"})


@pytest.mark.parametrize(
    "pages",
    [
        [("ab", "x"), ("ab", "x")],
        [("ab", "1"), ("ab", "2")],
        [("ab", "x"), ("c", "y"), ("bd", "x")],
        [("ab", "x"), ("", "x")],
        [("ab", "x"), ("", "y"), ("c", None)],
    ],
)
def test_a_list_whose_cursors_lead_nowhere_has_each_item_once(
    pages: list[tuple[str, str | None]],
) -> None:
    """Source: https://github.com/DeusData/codebase-memory-mcp/issues/1247 ."""
    reading = Pages(TOOLS)
    names: list[str] = []
    for tools, cursor in pages:
        assert not reading.is_done
        page: Any = {"tools": [{"name": each} for each in tools], "nextCursor": cursor}
        names += [each["name"] for each in reading.items(page)]
    assert reading.is_done
    assert names == sorted({name for tools, _ in pages for name in tools})


def test_items_without_a_name_are_not_told_apart() -> None:
    reading = Pages(TOOLS)
    tools: list[dict[str, Any]] = [{"name": []}, {}]
    for cursor in ("a", "b"):
        page: Any = {"tools": tools, "nextCursor": cursor}
        assert len(list(reading.items(page))) == 2


def test_without_msgspec_models_still_convert(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "msgspec", None)
    conversion.check_convertible(Model)
    assert conversion.convert({"sum": 1, "parts": []}, Model) == Model(sum=1, parts=[])
    with pytest.raises(LocalProtocolError, match="needs msgspec"):
        conversion.check_convertible(Struct)


def test_the_module_can_be_imported_without_msgspec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgspec", None)
    found = spec_from_file_location("sansmcp.codecs.plain_conversion", conversion.__file__)
    assert found is not None
    assert found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    assert module.msgspec is None


MISTAKES: list[tuple[Any, str | None]] = [
    ({"sum": 1, "parts": []}, None),
    ({"sum": 1, "parts": [], "more": None}, None),
    ({"sum": 1.0, "parts": [1]}, None),
    ({"sum": None, "parts": []}, "sum"),
    ({"sum": 1, "parts": [{}]}, "parts"),
    ([None], "array"),
]


@pytest.mark.parametrize(("value", "place"), MISTAKES, ids=str)
def test_a_mistake_in_a_value_is_named(value: Any, place: str | None) -> None:
    found = conversion.mistake_in(value, Struct)
    assert (found is None) == (place is None)
    assert (place or "") in (found or "")


def test_without_msgspec_no_mistake_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "msgspec", None)
    assert conversion.mistake_in([], Struct) is None
