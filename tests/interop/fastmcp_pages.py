"""A server with a page (MCP Apps), made with fastmcp; it runs where that is installed.

It has ``_meta`` wherever it can be, as ``node/pages.mjs`` has.
"""

# pyright: basic
# Pyright runs where fastmcp is not installed, and knows nothing of its types.

from __future__ import annotations

from typing import Any

from fastmcp import FastMCP  # type: ignore[import-not-found]
from fastmcp.prompts import Message, PromptResult  # type: ignore[import-not-found]
from fastmcp.resources import ResourceContent, ResourceResult  # type: ignore[import-not-found]
from fastmcp.tools import ToolResult  # type: ignore[import-not-found]
from mcp_types import TextContent

URI, TYPE = "ui://weather/view", "text/html;profile=mcp-app"
UI = {"csp": {"connectDomains": ["https://api.example.com"]}, "prefersBorder": True}

server = FastMCP("pages")


def meta(part: str) -> dict[str, Any]:
    return {"com.example/part": part, "com.example/odd": [None, {"a": 1.5}, "\N{LINE SEPARATOR}é"]}


def show(city: str) -> ToolResult:
    """The weather of a city."""
    text = TextContent(type="text", text=city, _meta=meta("content"))
    return ToolResult([text], {"city": city, "degrees": -0.5}, meta("result"))


def view() -> ResourceResult:
    about = {"ui": UI, **meta("contents")}
    contents = ResourceContent("<!DOCTYPE html>", mime_type=TYPE, meta=about)
    return ResourceResult([contents], meta("read"))


def ask() -> PromptResult:
    """Ask."""
    return PromptResult([Message("How is it?")], meta=meta("got"))


if __name__ == "__main__":
    shown = {"resourceUri": URI, "visibility": ["model", "app"]}
    server.tool(meta={"ui": shown, **meta("tool")}, output_schema={"type": "object"})(show)
    server.resource(URI, mime_type=TYPE, title="View", meta={"ui": UI, **meta("resource")})(view)
    server.prompt(meta=meta("prompt"))(ask)
    server.run(show_banner=False)
