"""The programs of the guide to embedding run, and pass the published checks."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

import sansmcp
import sansmcp_local
from sansmcp_pytest import (
    Check,
    ClientUnderTest,
    ServerUnderTest,
    client_checks,
    server_checks,
)

from ..examples.test_examples import start, wait_for
from ..ports import free_port
from .documents import DOCS, blocks

GUIDE = DOCS / "embedding.md"


def _code() -> str:
    return "\n".join(blocks(GUIDE, "python"))


@pytest.fixture(scope="module")
def code() -> dict[str, Any]:
    """All that the guide defines."""
    names: dict[str, Any] = {"__name__": "embedding"}
    exec(compile(_code(), GUIDE, "exec"), names)
    return names


@pytest.mark.parametrize("check", client_checks(), ids=str)
def test_the_client_passes_the_checks(code: dict[str, Any], check: Check[ClientUnderTest]) -> None:
    check(code["HttpSubject"]())


@pytest.mark.parametrize("check", server_checks(), ids=str)
def test_the_server_passes_the_checks(code: dict[str, Any], check: Check[ServerUnderTest]) -> None:
    check(code["AiohttpSubject"]())


def test_the_programs_talk_until_ctrl_c(code: dict[str, Any], tmp_path: Path) -> None:
    port = free_port()
    program = tmp_path / "server.py"
    program.write_text(f"{_code()}\nmain({port})\n")
    with start(program) as server:
        wait_for(port)
        result = code["add"](f"http://127.0.0.1:{port}/mcp", 1, 2)
        server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=20)
    assert result["content"] == [{"type": "text", "text": "3"}]
    assert (server.returncode, out, err) == (0, "", "")


def test_fetch_makes_no_processes() -> None:
    def fetch(*_: Any) -> Any:
        raise NotImplementedError

    command: Any = ["python", "server.py"]
    with pytest.raises(sansmcp.LocalProtocolError, match="starts no process"):
        sansmcp_local.connect_fetch(command, fetch)


def test_fetch_must_block() -> None:
    async def wait(*_: Any) -> Any:
        raise NotImplementedError

    fetch: Any = wait
    with pytest.raises(sansmcp.LocalProtocolError, match="async function"):
        sansmcp_local.connect_fetch("http://localhost/mcp", fetch)


def test_requests_are_aborted_by_who_makes_them() -> None:
    with pytest.raises(sansmcp.LocalProtocolError, match="runs none"):
        sansmcp_local.on_abort(None)
