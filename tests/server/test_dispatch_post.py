"""The ladder for POST: each row has its own status, error and reason."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import REVISIONS
from sansmcp.events import ClientNotified

from .harness import (
    BOTH,
    JSON,
    LATEST,
    PING,
    STREAM,
    ServerHarness,
    expect,
    initialize,
    notification,
    request,
)

requirement = pytest.mark.requirement


# POST


@requirement("SHTTP-C-003")
@pytest.mark.parametrize(
    ("accept", "missing"),
    [
        (JSON, [STREAM]),
        (STREAM, [JSON]),
        ("text/html", [JSON, STREAM]),
        (f"*/*, {JSON};q=0", [JSON]),
    ],
)
def test_post_has_to_accept_both_forms(
    harness: ServerHarness, accept: str, missing: list[str]
) -> None:
    talk = harness.post(PING, headers={"accept": accept})
    expect(talk, 406, "not_acceptable")
    names = " and ".join(missing)
    assert talk.error["message"] == (
        f"POST needs Accept: application/json, text/event-stream; {names} is missing"
    )
    assert talk.error["data"]["missing"] == missing
    assert talk.error["data"]["required"] == [JSON, STREAM]


@pytest.mark.parametrize("accept", [None, "*/*", "text/*, application/*", BOTH.upper()])
def test_wildcards_count(harness: ServerHarness, accept: str | None) -> None:
    assert harness.post(initialize(), headers={"accept": accept}).status == 200


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", ""])
def test_media_type(harness: ServerHarness, kind: str | None) -> None:
    expect(harness.post(PING, headers={"content-type": kind}), 415, "unsupported_media_type")


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON"])
def test_parameters_and_case_do_not_matter(harness: ServerHarness, kind: str) -> None:
    assert harness.post(initialize(), headers={"content-type": kind}).status == 200


@requirement("JSONRPC-B-023", "SHTTP-S-004", "JSONRPC-B-016")
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "malformed_json"),
        (b"{", "malformed_json"),
        (b"\xff", "invalid_utf8"),
        (b"[" * 9999, "too_deep"),
    ],
)
def test_not_json(harness: ServerHarness, body: bytes, reason: str) -> None:
    expect(harness.post(body, harness.open_session()), 400, reason, -32700)


@requirement("JSONRPC-B-031", "JSONRPC-B-035", "SHTTP-C-004")
@pytest.mark.parametrize(
    "batch",
    [
        [],
        [request(1), {"jsonrpc": "2.0", "id": 2, "result": {}}],
        [notification("x"), {"jsonrpc": "2.0", "id": 2, "error": {"code": 1, "message": ""}}],
        [initialize()],
        [request(1), initialize()],
    ],
)
def test_batches_that_2025_03_26_does_not_allow(harness: ServerHarness, batch: Any) -> None:
    session = harness.open_session("2025-03-26")
    expect(harness.post(batch, session, None), 400, "bad_batch")


@requirement("JSONRPC-B-039", "SHTTP-C-005")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", LATEST])
def test_arrays_are_no_messages_elsewhere(harness: ServerHarness, version: str) -> None:
    session = harness.open_session(version)
    expect(harness.post([request(1)], session, None), 400, "batch_not_allowed")
    expect(harness.post([], session, None), 400, "batch_not_allowed")


@requirement("VERS-S-001")
def test_without_a_session_the_header_decides() -> None:
    harness = ServerHarness(sessions=False)
    version = {"mcp-protocol-version": LATEST}
    expect(harness.post([request(1)], headers=version), 400, "batch_not_allowed")
    assert harness.post([notification("x")]).status == 202  # 2025-03-26 is assumed
    newer = ServerHarness(sessions=False, versions=("2025-06-18", LATEST))
    expect(newer.post([notification("x")]), 400, "batch_not_allowed")


@requirement("JSONRPC-B-024")
@pytest.mark.parametrize(
    ("message", "id"), [(1, None), ({}, None), ({"jsonrpc": "2.0", "id": 5, "method": 1}, 5)]
)
def test_no_message(harness: ServerHarness, message: Any, id: int | None) -> None:
    expect(harness.post(message, harness.open_session()), 400, "invalid_message", id=id)


@requirement("VERS-S-002", "VERS-S-003", "VERS-S-004", "VERS-S-005")
@pytest.mark.parametrize("version", ["2030-01-01", "latest", "2025-11-25, 2025-06-18", "\xff"])
def test_a_version_nobody_knows(harness: ServerHarness, version: str) -> None:
    talk = harness.post(PING, harness.open_session(), version)
    expect(talk, 400, "unsupported_version", -32022, id=7)
    assert talk.error["data"]["supported"] == list(reversed(REVISIONS))
    assert talk.error["data"]["requested"] == version


# The handshake revisions


def test_initialize_within_a_session(harness: ServerHarness) -> None:
    session = harness.open_session()
    expect(harness.post(initialize(), session), 400, "initialize_in_session", id=0)


def test_what_a_newer_client_says_in_the_header_does_not_keep_it_from_negotiating(
    harness: ServerHarness,
) -> None:
    talk = harness.post(initialize("2026-07-28"), headers={"mcp-protocol-version": "2026-07-28"})
    assert talk.status == 200
    assert talk.json["result"]["protocolVersion"] == LATEST


@requirement("VERS-S-002")
def test_a_known_version_that_is_not_served() -> None:
    harness = ServerHarness(versions=("2025-06-18", LATEST))
    talk = harness.post(PING, harness.open_session(), "2025-03-26")
    expect(talk, 400, "unsupported_version", id=7)
    assert talk.error["data"]["supported"] == ["2025-06-18", LATEST]


def test_another_served_version_is_accepted(harness: ServerHarness) -> None:
    assert harness.post(PING, harness.open_session(), "2025-06-18").status == 200
    assert harness.post(PING, harness.open_session(), None).status == 200


@requirement("SESSION-S-004", "SESSION-S-006")
def test_sessions(harness: ServerHarness) -> None:
    session = harness.open_session(principal="alice")
    expect(harness.post(PING), 400, "session_required", id=7)
    expect(harness.post(notification("notifications/initialized")), 400, "session_required")
    expect(harness.post(PING, "nope"), 404, "session_not_found", id=7)
    expect(harness.post(PING, session), 404, "session_not_found", id=7)
    expect(harness.post(notification("x"), "nope"), 404, "session_not_found")
    twice = {"mcp-session-id": f"{session}, {session}x"}
    expect(
        harness.post(PING, session, headers=twice, principal="alice"),
        404,
        "session_not_found",
        id=7,
    )
    assert harness.post(PING, session, principal="alice").status == 200


@requirement("SHTTP-S-002", "JSONRPC-B-018")
@pytest.mark.parametrize(
    "message",
    [
        notification("notifications/whatever"),
        {"jsonrpc": "2.0", "id": 99, "result": {}},
        {"jsonrpc": "2.0", "id": "x", "error": {"code": 1, "message": ""}},
        {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": ""}},
        notification("notifications/cancelled", requestId=99),
        notification("notifications/cancelled", requestId=[1]),
        notification("notifications/cancelled"),
    ],
)
def test_notifications_and_answers_are_accepted(harness: ServerHarness, message: Any) -> None:
    talk = harness.post(message, harness.open_session())
    assert (talk.status, talk.body, talk.ended) == (202, b"", True)
    assert talk.header("content-type") is None


@requirement("SHTTP-S-003")
@pytest.mark.parametrize(
    "message", [notification("notifications/x"), {"jsonrpc": "2.0", "id": 1, "result": {}}]
)
def test_notifications_and_answers_that_are_refused(harness: ServerHarness, message: Any) -> None:
    session = harness.open_session()
    expect(harness.post(message), 400, "session_required")
    expect(harness.post(message, "unknown"), 404, "session_not_found")
    expect(harness.post(message, session, "1900-01-01"), 400, "unsupported_version", -32022)
    malformed = harness.post({**message, "jsonrpc": "1.0"}, session)
    expect(malformed, 400, "invalid_message", id=message.get("id"))
    assert not any(isinstance(event, ClientNotified) for event in harness.events)


@requirement("JSONRPC-B-025")
def test_an_unknown_method_is_no_404(harness: ServerHarness) -> None:
    talk = harness.post(request(3, "nope"), harness.open_session())
    expect(talk, 200, "method_not_found", -32601, id=3)


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_null_for_no_parameters_and_a_byte_order_mark_are_taken(start: bytes) -> None:
    harness = ServerHarness()
    session = harness.open_session()
    pong = harness.post(start + b'{"jsonrpc":"2.0","id":7,"method":"ping","params":null}', session)
    assert (pong.status, pong.json) == (200, {"jsonrpc": "2.0", "id": 7, "result": {}})
    told = harness.post(start + b'{"jsonrpc":"2.0","method":"x","params":null}', session)
    assert told.status == 202
