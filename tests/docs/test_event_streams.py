"""The programs of the page about event streams run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from sansmcp import encode_event

from .documents import DOCS, blocks

PAGE = DOCS / "event-streams.md"


class Counter(BaseHTTPRequestHandler):
    """Sends two numbers to each connection, and ends after six."""

    def do_GET(self) -> None:
        last = int(self.headers["last-event-id"] or "0")
        self.send_response(200 if last < 6 else 204)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for number in (last + 1, last + 2) if last < 6 else ():
            self.wfile.write(encode_event(b"%d" % number, id=str(number), retry=10))

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def address() -> Generator[str, None, None]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Counter) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_every_program_runs(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"__name__": "event_streams"}
    for block in blocks(PAGE, "python"):
        exec(compile(block, PAGE, "exec"), names)
    assert capsys.readouterr().out.splitlines() == [
        "message Hello 7",
        r"b': for people\nevent: text\nid: 8\nretry: 3000\ndata: line 1\ndata: line 2\n\n'",
        r"b'id: \n\n'",
        "duplicate_name",
        r"""b'{"text":"\xc3\xa4"}'""",
        "b'=?base64?Z3LDtsOfZQ==?='",
        "größe",
        "7 Notification(method='notifications/x', params=None)",
        """b'{"jsonrpc":"2.0","id":70,"method":"tools/call","params":{"name": "add"}}'""",
    ]
    asyncio.run(names["follow"](f"http://{address}/", "2"))
    assert capsys.readouterr().out.split() == ["3", "4", "5", "6"]
    found = [event.data for event in names["follow_blocking"](address, "/")]
    assert found == ["1", "2", "3", "4", "5", "6"]
