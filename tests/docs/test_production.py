"""What the page on production shows does what the page says."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

import sansmcp
import sansmcp_blocking
import sansmcp_httpx
from sansmcp.client.http_heads import NOT_RUN

from ..examples.test_examples import start
from .documents import DOCS, blocks

SERVICE, LOCAL, ENDING = blocks(DOCS / "production.md", "python")
TOKEN = {"authorization": "Bearer a-secret-of-ada"}


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that the page shows."""
    monkeypatch.setenv("MCP_STORE", str(tmp_path / "store.db"))
    module: Any = ModuleType("service")
    exec(compile(SERVICE, "production.md", "exec"), module.__dict__)
    yield module
    module.store.close()


def greeting(service: Any, host: str, headers: dict[str, str], version: str) -> str:
    """What the service says to somebody."""

    async def main() -> str:
        transport = httpx.ASGITransport(service.web)
        async with httpx.AsyncClient(transport=transport, headers=headers) as http:
            connecting = sansmcp_httpx.connect(
                f"http://{host}/mcp", http, standalone_stream=False, versions=(version,)
            )
            async with connecting as client:
                result = await client.call_tool("greet")
                text: str = result["content"][0]["text"]
                return text

    return asyncio.run(main())


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_the_service_knows_its_users(service: Any, version: str) -> None:
    assert greeting(service, "mcp.example.com", TOKEN, version) == "Hello ada"


def test_the_service_without_a_port(service: Any) -> None:
    async def main() -> Any:
        serving = asyncio.create_task(service.serve_local())
        try:
            return await service.call_local()
        finally:
            serving.cancel()
            await asyncio.wait([serving])

    with tempfile.TemporaryDirectory() as directory:  # shorter than tmp_path
        local = LOCAL
        for each in ("/run/user/1000", "%2Frun%2Fuser%2F1000"):
            place = directory if "/" in each else directory.replace("/", "%2F")
            assert each in local
            local = local.replace(each, place)
        exec(compile(local, "production.md", "exec"), service.__dict__)
        result = asyncio.run(main())
    assert result["content"][0]["text"] == f"Hello uid:{os.getuid()}"


@pytest.mark.parametrize(
    ("host", "headers", "status", "reason"),
    [
        ("mcp.example.com", {}, 401, None),
        ("mcp.example.com", {"authorization": "Bearer wrong"}, 401, None),
        ("localhost", TOKEN, 403, "host_not_allowed"),
    ],
)
def test_the_service_refuses(
    service: Any, host: str, headers: dict[str, str], status: int, reason: str | None
) -> None:
    with pytest.raises(sansmcp.RequestRefused) as raised:
        greeting(service, host, headers, "2025-11-25")
    assert (raised.value.status, raised.value.reason) == (status, reason)


def test_a_call_that_runs_is_finished(tmp_path: Path) -> None:
    script = tmp_path / "patient.py"
    script.write_text(ENDING, encoding="utf-8")
    with start(script) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        with sansmcp_blocking.connect(url, versions=("2026-07-28",)) as client:
            result = client.call_tool(
                "any", on_progress=lambda report: server.send_signal(signal.SIGTERM)
            )
        _, err = server.communicate(timeout=20)
    assert result["content"][0]["text"] == "done"
    assert (server.returncode, err) == (0, f"sansmcp: serving MCP at {url}\n")


def test_the_page_has_each_reason_with_which_a_server_has_run_nothing() -> None:
    text = (DOCS / "production.md").read_text("utf-8")
    reasons = text.partition("if the reason says that nothing was run (")[2].partition(")")[0]
    assert set(re.findall(r"`(\w+)`", reasons)) == NOT_RUN
