"""The code of the guide to drivers runs, and does what the guide says of it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from sansmcp_pytest import (
    Check,
    ClientUnderTest,
    ServerUnderTest,
    client_checks,
    server_checks,
)
from sansmcp_pytest._checks.fake_server import FakeServer

from ..examples.test_examples import start, wait_for
from ..ports import free_port
from .documents import DOCS, blocks

GUIDE = DOCS / "drivers.md"


def _code() -> str:
    return "\n".join(blocks(GUIDE, "python"))


@pytest.fixture(scope="module")
def code() -> dict[str, Any]:
    """All that the guide defines."""
    names: dict[str, Any] = {"__name__": "drivers"}
    exec(compile(_code(), GUIDE, "exec"), names)
    return names


@pytest.mark.parametrize("check", client_checks(), ids=str)
def test_the_toy_does_what_a_client_has_to_do(
    code: dict[str, Any], check: Check[ClientUnderTest]
) -> None:
    check(code["ToySubject"]())


@pytest.mark.parametrize("check", server_checks(), ids=str)
def test_the_toy_does_what_a_server_has_to_do(
    code: dict[str, Any], check: Check[ServerUnderTest]
) -> None:
    """The guide has a complete server."""
    check(code["ToyServerSubject"]())


def test_the_toy_greets(code: dict[str, Any]) -> None:
    with FakeServer() as server:
        assert code["greet"](server.url) == {"text": "hello"}


def test_the_toys_talk_until_ctrl_c(code: dict[str, Any], tmp_path: Path) -> None:
    """The program of the guide serves, and stops in order."""
    port = free_port()
    program = tmp_path / "toy.py"
    program.write_text(f"{_code()}\nasyncio.run(main({port}))\n")
    with start(program) as server:
        wait_for(port)
        greeting = code["greet"](f"http://127.0.0.1:{port}/mcp")
        server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=20)
    assert greeting["content"] == [{"type": "text", "text": "hello"}]
    assert (server.returncode, out, err) == (0, "", "")
