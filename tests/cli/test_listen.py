"""``sansmcp listen``: notifications of a server, as they come."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

import sansmcp
import sansmcp_blocking

from .conftest import run, started

CHANGED = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"

app = sansmcp.App(
    "changing",
    "1.0",
    capabilities={"tools": {"listChanged": True}, "resources": {"subscribe": True}},
)


@app.handler("tools/list", inline=True)
def list_tools(call: Any) -> dict[str, Any]:
    return {"tools": []}


@app.handler("resources/list", inline=True)
def list_resources(call: Any) -> dict[str, Any]:
    return {"resources": []}


@contextmanager
def listening(
    server: sansmcp_blocking.RunningServer, *words: str
) -> Generator[subprocess.Popen[str], None, None]:
    """Listen to a server; the subscription is open in this block."""
    with started("listen", server.url, *words) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("listening")
        yield process


@pytest.fixture
def server() -> Generator[sansmcp_blocking.RunningServer, None, None]:
    with sansmcp_blocking.serve(app, http=("127.0.0.1", 0)) as running:
        yield running


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_notifications_are_shown(server: sansmcp_blocking.RunningServer, revision: str) -> None:
    words = ("a:b", "--count", "2", "--revision", revision)
    with listening(server, *words) as process:
        server.publish(UPDATED, {"uri": "a:other"})
        server.publish(UPDATED, {"uri": "a:b"})
        server.publish(CHANGED)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    first, second = out.splitlines()
    assert first.startswith(f"{UPDATED} {{")
    assert '"uri": "a:b"' in first
    assert second.startswith(CHANGED)


def test_they_are_json_for_a_program(server: sansmcp_blocking.RunningServer) -> None:
    with listening(server, "--json", "--count", "1") as process:
        server.publish(CHANGED)
        out, _ = process.communicate(timeout=60)
    assert json.loads(out)["method"] == CHANGED


def test_a_server_that_sends_none_of_them_says_so_and_it_ends() -> None:
    quiet = sansmcp.App("quiet", capabilities={"tools": {}})
    with sansmcp_blocking.serve(quiet, http=("127.0.0.1", 0)) as server:
        done = run("listen", server.url, "a:b", "--revision", "2026-07-28")
    assert (done.status, done.out) == (1, "")
    assert done.err.endswith("\nsansmcp: the server sends none of these notifications\n")


def test_it_ends_with_ctrl_c(server: sansmcp_blocking.RunningServer) -> None:
    with listening(server) as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "")


def test_it_ends_with_the_server(server: sansmcp_blocking.RunningServer) -> None:
    with listening(server, "--revision", "2026-07-28") as process:
        server.stop()
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.startswith("sansmcp: ")
