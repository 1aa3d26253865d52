"""The page of all settings; ``python -m tests.docs.settings`` writes it anew.

It is made of the docstrings of the classes of options. Its test says when that is due.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from inspect import cleandoc

import sansmcp
from sansmcp_local import ConnectOptions, DriverOptions, ServeOptions

from .documents import DOCS

PAGE = DOCS / "settings.md"

_HEAD = """# Settings

Settings are keyword arguments: `connect(url, timeout=5)`, `serve(app, http=("127.0.0.1", 8000))`.
An unknown name raises `TypeError`, which names the closest one that exists. A value that makes no
sense raises `LocalProtocolError` before anything is opened. Bounds of bytes, seconds and counts are
fields of [`Limits`](../sansmcp/limits.py), which is one setting.

`python -m tests.docs.settings` writes this page from the docstrings of the classes that it names.
"""

_PARTS: dict[str, tuple[str, type]] = {
    "Clients": (
        "Of `connect()` in every adapter, `mcp_client` of the pytest fixtures, and "
        "`sansmcp.Client`.",
        sansmcp.ClientOptions,
    ),
    "Clients that do the I/O themselves": (
        "Of `connect()` in `sansmcp_asyncio`, `sansmcp_blocking` and `sansmcp_trio`.",
        ConnectOptions,
    ),
    "Servers": (
        "Of `serve()` in every adapter, `asgi_app()`, `WsgiApp()`, `mcp_server` of the pytest "
        "fixtures, and `sansmcp.Server`.",
        sansmcp.ServerOptions,
    ),
    "Servers in an adapter": ("Of the same, but for `sansmcp.Server`.", DriverOptions),
    "Servers that do the I/O themselves": (
        "Of `serve()` in `sansmcp_asyncio`, `sansmcp_blocking` and `sansmcp_trio`. `asgi_app()` "
        "and `mcp_server` take `graceful_timeout`, too.",
        ServeOptions,
    ),
}

_SHOWN = {repr(tuple(sansmcp.REVISIONS)): "all"}
"""Defaults that are too long for a table."""


def explanations(options: type) -> dict[str, str]:
    """What the section ``Attributes`` of a docstring says, by name, in order."""
    _, _, section = cleandoc(options.__doc__ or "").partition("\nAttributes:\n")
    found = re.findall(r"^    (\w+): (\S.*(?:\n {8}.*)*)", section, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


def page() -> str:
    """The page as it should be."""
    return "\n".join([_HEAD, *(_part(title, *part) for title, part in _PARTS.items())])


def _part(title: str, of: str, options: type) -> str:
    package = options.__module__.partition(".")[0]
    same = f"`help({package}.{options.__name__})` shows the same."
    return "\n".join([f"## {title}\n", of, f"{same}\n", *table(options), ""])


def table(options: type) -> list[str]:
    """The table of the settings of a class, in lines."""
    parameters: Mapping[str, inspect.Parameter] = inspect.signature(options).parameters
    rows = [
        f"| `{name}` | {_default(parameters[name].default)} | {_markdown(text)} |"
        for name, text in explanations(options).items()
    ]
    return ["| | default | |", "| --- | --- | --- |", *rows]


def _default(value: object) -> str:
    shown = repr(value)
    return _SHOWN.get(shown, f"`{shown}`")


def _markdown(text: str) -> str:
    text = re.sub(r":\w+:`([^`]*)`", r"``\1``", text)
    return text.replace("``", "`").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
