"""``result_type=`` converts results, and iterators read lists to their end: in all adapters."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any, TypedDict

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


def test_a_tool_that_fails_raises_only_with_a_type(ask: Ask) -> None:
    assert ask(lambda client: client.call_tool("fails"))["isError"] is True
    with pytest.raises(ToolFailed, match="no such city") as caught:
        ask(lambda client: client.call_tool("fails", result_type=Struct))
    assert caught.value.result["isError"] is True


def test_a_result_without_structured_content_is_refused(ask: Ask) -> None:
    with pytest.raises(InvalidResponse, match="no structuredContent"):
        ask(lambda client: client.call_tool("gives_text", result_type=Struct))


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
