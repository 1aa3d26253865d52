"""Results as the types of an application, and lists page by page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from .codecs import json
from .codecs.conversion import NotConvertible, convert
from .errors import InvalidResponse, ToolFailed
from .messages import Params
from .types import elide

CALL_TOOL = "tools/call"

MAX_PAGES = 1000
"""Pages of one list; a server that has more, or goes on forever, is refused."""

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
        raise InvalidResponse(f"The result is no {error}", method=method) from error


def typed_tool_result(result: Any, result_type: Any) -> Any:
    """Return the structured content of a tool's result as a value of a type.

    Raises:
        ToolFailed: the tool failed.
        InvalidResponse: there is no structured content, or it does not fit.
    """
    members = json.as_object(result) or {}
    if members.get("isError"):
        text = _text_of(members) or "it gave no text"
        raise ToolFailed(f"The tool failed: {text}", result=members, method=CALL_TOOL)
    if "structuredContent" not in members:
        raise InvalidResponse(
            "The tool's result has no structuredContent, which result_type needs; call the tool "
            "without result_type, and read its content",
            method=CALL_TOOL,
        )
    try:
        return convert(members["structuredContent"], result_type)
    except NotConvertible as error:
        text = f"The structuredContent of the tool's result is no {error}"
        raise InvalidResponse(text, method=CALL_TOOL) from error


def _text_of(result: dict[str, Any]) -> str:
    """Return the beginning of a tool's text content."""
    content: Any = result.get("content")
    blocks = [json.as_object(block) or {} for block in content] if json.is_array(content) else []
    texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
    return " ".join(texts)[:_MAX_TEXT]


@attrs.frozen
class Listing:
    """A list of a server: its method, the member of a page with its items, and the capability."""

    method: str
    member: str
    capability: str


TOOLS = Listing("tools/list", "tools", "tools")
PROMPTS = Listing("prompts/list", "prompts", "prompts")
RESOURCES = Listing("resources/list", "resources", "resources")
RESOURCE_TEMPLATES = Listing("resources/templates/list", "resourceTemplates", "resources")


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
        self._count = 0

    def items(self, result: Any) -> Iterator[dict[str, Any]]:
        """Return the items of a page, and go on to the next one.

        Raises:
            InvalidResponse: the result is no page of this list, the server gave the same cursor
                again, or there are more than :data:`MAX_PAGES` pages.
        """
        page = json.as_object(result) or {}
        found: Any = page.get(self._member)
        cursor = page.get("nextCursor")
        if not json.is_array(found) or not all(map(json.is_object, found)):
            raise self._refused(f"{self._member} is no array of objects: {elide(found)}")
        if not isinstance(cursor, str | None):
            raise self._refused(f"nextCursor is no string: {elide(cursor)}")
        self._count += 1
        if cursor is not None and self.params == {"cursor": cursor}:
            raise self._refused("a page has the cursor of its own as nextCursor")
        if cursor is not None and self._count >= MAX_PAGES:
            raise self._refused(f"it has more than {MAX_PAGES} pages")
        self.params = {"cursor": cursor}
        self.is_done = cursor is None
        return iter(found)

    def _refused(self, why: str) -> InvalidResponse:
        return InvalidResponse(f"Not a valid list: {why}", method=self.method)
