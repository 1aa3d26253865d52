"""The example of a driver does what a server has to do, by the published checks."""

from __future__ import annotations

import importlib.util
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import sansmcp
from sansmcp_pytest import Check, Feature, Running, ServerUnderTest, server_checks

from ..ports import free_port
from .test_examples import output_of, start, wait_for

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> ModuleType:
    """Import an example."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


embed_selectors = load("embed_selectors")
ON_SOCKETS = "the example has only sockets"


class OnSelectors:
    """The example on bare sockets, in a thread."""

    lacks: Mapping[Feature, str] = {
        Feature.STDIO: ON_SOCKETS,
        Feature.UNIX: "the example serves at a port",
        Feature.AT_ONCE: "the example writes between two turns of its handlers",
        Feature.THREADS: "all that the example runs is in its loop",
    }
    is_async = True

    def sleep(self, call: Any, seconds: float) -> Any:
        return call.sleep(seconds)

    def serve(self, app: sansmcp.App, **settings: Any) -> Running:
        return _Selecting(embed_selectors.SelectorServer(app, ("127.0.0.1", 0), **settings))

    def stdio_command(self, stdio: Any = True) -> list[str]:
        raise NotImplementedError


class _Selecting:
    def __init__(self, server: Any) -> None:
        self.url: str = server.url
        self._server = server
        self._thread = threading.Thread(target=server.run)
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._server.stop()
        self._thread.join()


@pytest.mark.parametrize("check", server_checks(), ids=str)
def test_it_does_what_a_server_has_to_do(check: Check[ServerUnderTest]) -> None:
    check(OnSelectors())


def test_it_runs_as_it_is_shown() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    with start(EXAMPLES / "embed_selectors.py", str(port)) as server:
        wait_for(port)
        client = EXAMPLES / "client.py"
        lines = output_of(client, url, "nap", '{"seconds": 0.1}').splitlines()
        server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=20)
    assert lines[1:] == ["1 of 2", "slept for 0.1 s"]
    assert (server.returncode, out, err) == (0, f"{url}\n", "")
