"""What whoever runs a server finds in its log."""

from __future__ import annotations

import logging

import pytest

import sansmcp
import sansmcp_blocking
from sansmcp.events import BadRequest, ServerEvent, StoreFailed
from sansmcp_local import log_event

BAD_REQUEST = BadRequest(sansmcp.RemoteProtocolError("no", reason="no"))


@pytest.mark.parametrize(
    ("event", "level", "text"),
    [
        (StoreFailed("disk full", lost=True), "WARNING", "messages are lost: disk full"),
        (StoreFailed("disk full", lost=False), "WARNING", "unable to resume: disk full"),
        (BAD_REQUEST, "DEBUG", "BadRequest"),
    ],
)
def test_what_is_worth_a_warning(
    caplog: pytest.LogCaptureFixture, event: ServerEvent, level: str, text: str
) -> None:
    with caplog.at_level(logging.DEBUG, logger="sansmcp"):
        log_event(event)
    (record,) = caplog.records
    assert record.levelname == level
    assert text in record.getMessage()


class FullDisk(sansmcp.MemoryStore):
    """Keeps nothing."""

    def append(
        self, key: sansmcp.StreamKey, entries: tuple[sansmcp.Entry, ...], *, now: float
    ) -> bool:
        raise OSError("disk full")


def test_a_server_whose_store_fails(caplog: pytest.LogCaptureFixture) -> None:
    app = sansmcp.App("teller", "1")

    @app.handler("tools/call")
    def call_tool(call: sansmcp_blocking.Call) -> dict[str, object]:
        call.progress(1)
        return {"content": []}

    with (
        sansmcp_blocking.serve(app, http=("127.0.0.1", 0), store=FullDisk()) as serving,
        sansmcp_blocking.connect(serving.url, versions=("2025-11-25",)) as client,
    ):
        assert client.call_tool("any") == {"content": []}
    assert "the store has failed" in caplog.text
