"""The Inspector in Chromium, in its direct mode: its page is the client, with no server of its own.

The package is a built page with its libraries inside, so nothing but that is installed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ..node import install_or_skip
from .test_pages import PATIENCE, browser, server, site

FOLDER = Path(__file__).with_name("node")
PAGES = FOLDER / "node_modules/@modelcontextprotocol/inspector-client/dist"
SCRIPT = Path(__file__).with_name("inspector.js")


def read(path: str) -> bytes:
    """Return a file of the Inspector; its page with the script that uses it."""
    file = PAGES / ("index.html" if path == "/" else path.lstrip("/"))
    if not file.is_file():
        return b""
    script = b"<head><script>" + SCRIPT.read_bytes() + b"</script>"
    return file.read_bytes().replace(b"<head>", script) if path == "/" else file.read_bytes()


@pytest.mark.node
@pytest.mark.parametrize("is_listed", [True, False])
def test_the_inspector_in_its_direct_mode(is_listed: bool) -> None:
    install_or_skip(FOLDER)
    with site(read) as pages, site() as other:
        origin = pages.origin if is_listed else other.origin
        with (
            server("asyncio", origin) as url,
            browser(f"{pages.origin}/?transport=streamable-http&serverUrl={url}"),
        ):
            seen = pages.results.get(timeout=PATIENCE)
    if not is_listed:
        assert seen == "Connection Error"
        return
    assert sorted(seen["answers"]) == ["GET /mcp 200", *["POST /mcp 200"] * 3, "POST /mcp 202"]
    assert seen["result"] == ["Tool Result: Success", '"gr\xfc\xdfe"']
