"""An application whose tools are async functions that a test writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import sansmcp
from sansmcp_local import Call

Tool: TypeAlias = Callable[[Call], Awaitable[Any]]


class ToolApp:
    """The application, its tools by name, and the tool ``echo``, which returns its arguments."""

    def __init__(self) -> None:
        self.app = sansmcp.App("tests", "1")
        self.tools: dict[str, Tool] = {}
        self.app.handler("tools/call")(self._call_tool)
        self.app.handler("tools/list")(self._list_tools)
        self.tool(echo)

    def tool(self, function: Tool) -> Tool:
        self.tools[function.__name__] = function
        return function

    def _list_tools(self, call: Call) -> dict[str, Any]:
        return {"tools": [{"name": name} for name in self.tools]}

    async def _call_tool(self, call: Call) -> Any:
        return await self.tools[call.params["name"]](call)


async def echo(call: Call) -> dict[str, Any]:
    return {"echo": call.params["arguments"]}
