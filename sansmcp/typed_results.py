"""Results as the types of an application, and lists page by page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from .codecs import json
from .codecs.conversion import NotConvertible, convert
from .errors import InvalidResponse, RemoteProtocolError, ToolFailed
from .messages import Params
from .types import Value, elide

CALL_TOOL = "tools/call"

MAX_PAGES = 1000
"""Pages of one list; a server that has more, or goes on forever, is refused."""

_MAX_DEPTH = 64
"""Levels of JSON in a text."""

_MAX_TEXT = 1000
"""Characters of a tool's text in an exception."""


def typed_result(result: Any, result_type: Any, method: str) -> Any:
    """Return the result of a method as a value of a type.

    Raises:
        InvalidResponse: it does not fit.
    """
    try:
        return convert(result, result_type)
    except NotConvertible as error:
        raise InvalidResponse(f"The result is no {error}", method=method) from None


def typed_tool_result(result: Any, result_type: Any) -> Any:
    """Return the structured content of a tool's result as a value of a type.

    Structured content is an object. So servers send another value as ``{"result": value}``, and
    for a type of such values this returns the inner one. Servers before 2025-06-18 have no
    structured content: a result with one text, which is JSON, is read instead. For ``str`` the text
    itself is returned.

    Raises:
        ToolFailed: the tool failed.
        InvalidResponse: there is neither, or it does not fit.
    """
    members = json.as_object(result) or {}
    if members.get("isError"):
        text = _text_of(members) or "it gave no text"
        raise ToolFailed(f"The tool failed: {text}", result=members, method=CALL_TOOL)
    where, values = "structuredContent", [members.get("structuredContent")]
    if "structuredContent" not in members:
        where, values = "text", _values_in_text(members, result_type)
    if not values:
        raise InvalidResponse(
            "The tool's result has no structuredContent, which result_type needs, and no text that "
            "is JSON; call the tool without result_type, and read its content",
            method=CALL_TOOL,
        )
    try:
        return _converted(values[0], result_type)
    except NotConvertible as error:
        text = f"The {where} of the tool's result is no {error}"
        raise InvalidResponse(text, method=CALL_TOOL) from None


def _values_in_text(result: dict[str, Any], result_type: Any) -> list[Any]:
    """Return the value of the one text of a tool's content: as JSON, or for ``str`` as it is.

    The list is empty if there is no such value.
    """
    content: Any = result.get("content")
    block = json.as_object(content[0]) if json.is_array(content) and len(content) == 1 else None
    text = (block or {}).get("text")
    if not isinstance(text, str):
        return []
    if result_type is str:
        return [text]
    try:
        return [json.decode(text.encode("utf-8", "replace"), _MAX_DEPTH)]
    except RemoteProtocolError:
        return []


def _converted(value: Any, result_type: Any) -> Any:
    try:
        return convert(value, result_type)
    except NotConvertible:
        members = json.as_object(value) or {}
        if members.keys() != {"result"}:
            raise
    return convert(members["result"], result_type)


def _text_of(result: dict[str, Any]) -> str:
    """Return the beginning of a tool's text content."""
    content: Any = result.get("content")
    blocks = [json.as_object(block) or {} for block in content] if json.is_array(content) else []
    texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
    return " ".join(texts)[:_MAX_TEXT]


@attrs.frozen(eq=False, repr=False)
class Listing(Value):
    """A list of a server.

    Attributes:
        method: its method.
        member: the member of a page with its items.
        capability: the capability of servers that have it.
        key: the member by which its items are told apart.
    """

    method: str
    member: str
    capability: str
    key: str = "name"

    def page(self, cursor: str | None) -> tuple[str, Params | None]:
        """Return the method and the parameters that ask for a page; None for the first one."""
        return self.method, None if cursor is None else {"cursor": cursor}


TOOLS = Listing("tools/list", "tools", "tools")
PROMPTS = Listing("prompts/list", "prompts", "prompts")
RESOURCES = Listing("resources/list", "resources", "resources", "uri")
RESOURCE_TEMPLATES = Listing(
    "resources/templates/list", "resourceTemplates", "resources", "uriTemplate"
)


class Pages:
    """Reads a list: call ``method`` with ``params``, pass the result to :meth:`items`, repeat.

    Attributes:
        method: the method of the list.
        params: the parameters for the next page.
        is_done: True after the last page.
    """

    def __init__(self, listing: Listing) -> None:
        self.method = listing.method
        self.params: Params | None = None
        self.is_done = False
        self._member = listing.member
        self._key = listing.key
        self._count = 0
        self._cursors: set[str] = set()
        self._keys: set[str] = set()
        """Those of the items of earlier pages, as far as they are strings."""

    def items(self, result: Any) -> Iterator[dict[str, Any]]:
        """Return the items of a page, and go on to the next one.

        Some servers ignore the cursor, or their cursors run in circles. Their list ends with the
        first page that only repeats items, or with the first cursor that they have given before;
        what a page repeats of earlier ones is left out.

        Raises:
            InvalidResponse: the result is no page of this list, a cursor came again and no item
                before, or there are more than :data:`MAX_PAGES` pages.
        """
        page = json.as_object(result) or {}
        found: Any = page.get(self._member)
        cursor = page.get("nextCursor")
        if not json.is_array(found) or not all(map(json.is_object, found)):
            raise self._refused(f"{self._member} is no array of objects: {elide(found)}")
        if not isinstance(cursor, str | None):
            raise self._refused(f"nextCursor is no string: {elide(cursor)}")
        self._count += 1
        keys = [item.get(self._key) for item in found]
        new = [
            item
            for item, key in zip(found, keys, strict=True)
            if not isinstance(key, str) or key not in self._keys
        ]
        self._keys.update(key for key in keys if isinstance(key, str))
        is_repeated = cursor in self._cursors or (bool(found) and not new)
        if cursor is not None and is_repeated and not self._keys:
            raise self._refused("a page has the cursor of its own as nextCursor, or an earlier one")
        if cursor is not None and not is_repeated and self._count >= MAX_PAGES:
            raise self._refused(f"it has more than {MAX_PAGES} pages")
        self._cursors.add(cursor or "")
        self.params = {"cursor": cursor}
        self.is_done = cursor is None or is_repeated
        return iter(new)

    def _refused(self, why: str) -> InvalidResponse:
        return InvalidResponse(f"Not a valid list: {why}", method=self.method)
