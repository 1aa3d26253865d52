"""The programs of the page on web frameworks serve their tools, and what else the framework has."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import fastapi
import httpx
import pytest
from starlette.routing import Route

import sansmcp
import sansmcp_asgi
import sansmcp_blocking

from ..examples.test_examples import wait_for
from ..ports import free_port
from .documents import DOCS, ROOT, blocks

TOOLS, FASTAPI, FLASK, DJANGO, METADATA = blocks(DOCS / "web-frameworks.md", "python")

SETTINGS = "SECRET_KEY = 'any'\nROOT_URLCONF = 'settings'\nurlpatterns = []\n"
"""The settings of a Django project without pages."""

COMMANDS = [
    shlex.split(command.removeprefix("$ "))
    for command in blocks(DOCS / "web-frameworks.md", "console")
]


@pytest.mark.parametrize(
    ("code", "shown"),
    list(zip((FASTAPI, FLASK, DJANGO), COMMANDS, strict=True)),
    ids=["fastapi", "flask", "django"],
)
def test_it_serves_the_tools(code: str, shown: list[str], tmp_path: Path) -> None:
    module = shown[-1].removesuffix(":web")
    files = {"kitchen.py": TOOLS, f"{module}.py": code, "settings.py": SETTINGS}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    port = free_port()
    place = {"uvicorn": f"--port={port}", "gunicorn": f"--bind=127.0.0.1:{port}"}[shown[0]]
    paths = os.pathsep.join((str(tmp_path), str(ROOT), str(ROOT / "adapters")))
    environment = {**os.environ, "PYTHONPATH": paths}
    command = [sys.executable, "-m", *shown, "--log-level=error", place]
    with subprocess.Popen(command, cwd=tmp_path, env=environment) as running:
        try:
            wait_for(port)
            with sansmcp_blocking.connect(f"http://127.0.0.1:{port}/tools/mcp") as client:
                result = client.call_tool("brew", {"drink": "tea"})
        finally:
            running.terminate()
    assert result["content"] == [{"type": "text", "text": "a cup of tea"}]


async def refuse(head: Any, connection: Any) -> sansmcp.Refusal:
    return sansmcp.Refusal(401, "Send a token")


RESOURCE = sansmcp.ProtectedResource(
    resource="http://localhost/tools/mcp", authorization_servers=("https://login.example.com",)
)


def test_the_paths_of_the_metadata() -> None:
    names: dict[str, Any] = {
        "fastapi": fastapi,
        "Route": Route,
        "sansmcp_asgi": sansmcp_asgi,
        "verifier": refuse,
        "resource": RESOURCE,
    }
    exec(compile(TOOLS + METADATA, "web-frameworks.md", "exec"), names)
    asyncio.run(check_metadata(names["web"]))


async def check_metadata(web: Any) -> None:
    """The URL that a refusal names, and that of the whole origin, have the metadata."""
    transport = httpx.ASGITransport(web)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        refused = await client.post("/tools/mcp", json={})
        place = "/.well-known/oauth-protected-resource"
        assert (
            f'resource_metadata="http://localhost{place}/tools/mcp"'
            in (refused.headers["www-authenticate"])
        )
        for path in (place, f"{place}/tools/mcp"):
            found = await client.get(path)
            assert (found.status_code, found.json()["resource"]) == (200, RESOURCE.resource)
