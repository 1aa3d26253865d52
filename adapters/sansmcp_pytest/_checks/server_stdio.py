"""Checks of servers: stdio."""

from __future__ import annotations

import json
import subprocess
from types import TracebackType
from typing import Any

from sansmcp.meta_keys import CAPABILITIES, CLIENT_INFO, VERSION
from sansmcp.types import Self

from .adapter_under_test import Feature, ServerUnderTest
from .check import MOMENT, expect, same, server_check
from .servers import LEGACY, MODERN


class _Process:
    """A server process, and the lines it reads and writes."""

    def __init__(self, subject: ServerUnderTest) -> None:
        self._command = list(subject.stdio_command())

    def __enter__(self) -> Self:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, text=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._input.close()
        self._output.close()

    def say(self, line: str) -> None:
        self._input.write(line + "\n")
        self._input.flush()

    def ask(self, id: int, method: str, params: dict[str, Any]) -> None:
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        self.say(json.dumps(message))

    def call(self, id: int, tool: str, **params: Any) -> None:
        self.ask(id, "tools/call", {"name": tool, "arguments": {}, **params})

    def hear(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._output.readline())
        return message

    def open(self) -> None:
        """Initialize the session."""
        info = {"name": "peer", "version": "1"}
        params: dict[str, Any] = {"protocolVersion": LEGACY, "capabilities": {}}
        self.ask(0, "initialize", {**params, "clientInfo": info})
        same(self.hear()["result"]["protocolVersion"], LEGACY, "the version")
        self.say('{"jsonrpc": "2.0", "method": "notifications/initialized"}')

    def end(self) -> tuple[str, int]:
        """Close its input. Return what it writes until it ends, and its exit status."""
        self._input.close()
        rest = self._output.read()
        return rest, self._process.wait(MOMENT)


@server_check(Feature.STDIO)
def calls_on_stdio(subject: ServerUnderTest) -> None:
    """Requests and responses are lines, at the revisions of both eras.

    Feed received bytes to ServerPipe, and write the bytes of its effects.
    """
    meta = {VERSION: MODERN, CAPABILITIES: {}, CLIENT_INFO: {"name": "peer", "version": "1"}}
    with _Process(subject) as server:
        server.open()
        for text in ("a\u2028ä😀", "x" * 4_000_000):
            server.call(1, "echo", arguments={"text": text})
            expect(server.hear()["result"]["echo"]["text"] == text, "the result is another one")
        server.call(2, "raise")
        same(server.hear()["error"]["code"], -32603, "the error code for a handler that failed")
        server.say("this is no message")
        same(
            server.hear()["error"]["code"],
            -32700,
            "the error code for a line that is not a message",
        )
    with _Process(subject) as server:
        server.call(1, "echo", _meta=meta)
        same(server.hear()["result"]["echo"], {}, "the result without a handshake")


@server_check(Feature.STDIO)
def handlers_that_print(subject: ServerUnderTest) -> None:
    """Text that a handler prints does not go to standard output, between the messages.

    Reserve standard output for the protocol: sansmcp_local.StandardStreams does it.
    """
    with _Process(subject) as server:
        server.open()
        server.call(1, "print")
        same(server.hear()["result"], {"done": True}, "the result")


@server_check(Feature.STDIO)
def the_end_of_the_input(subject: ServerUnderTest) -> None:
    """When its input ends, the server responds to the calls in flight, and exits with status 0.

    Call receive_eof(), keep driving until ServerPipe returns CloseConnection, then exit.
    """
    with _Process(subject) as server:
        server.open()
        server.call(1, "count", arguments={"to": 3})
        rest, status = server.end()
        expect('"done"' in rest, f"the last call got no response; the output after it was {rest!r}")
        same(status, 0, "the exit status")
