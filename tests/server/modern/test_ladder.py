"""The ladder of the stateless revision: each row has its own status, error and reason."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import App, LocalProtocolError
from sansmcp.events import ClientNotified, RefusalSent
from sansmcp.server.modern.era import REMOVED, VALIDATORS

from ...handlers import nothing
from ..harness import JSON, LATEST, expect, notification
from .harness import (
    CAPABILITIES,
    LOG_LEVEL,
    MODERN,
    VERSION,
    ModernServerHarness,
    meta,
    modern,
    notification_from,
)

requirement = pytest.mark.requirement
HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", LATEST)
NEWEST_FIRST = [MODERN, *reversed(HANDSHAKE)]


def test_the_order_of_the_rows() -> None:
    assert [row.__name__ for row in VALIDATORS] == [
        "validate_meta",
        "validate_mirrored_headers",
        "validate_version",
        "validate_method",
        "validate_mirrored_arguments",
    ]


# What is no request


def test_there_is_nothing_to_answer(harness: ModernServerHarness) -> None:
    headers = {"mcp-protocol-version": MODERN}
    answers: list[dict[str, Any]] = [{"result": {}}, {"error": {"code": 1, "message": "x"}}]
    for answer in answers:
        talk = harness.post({"jsonrpc": "2.0", "id": 1, **answer}, headers=headers)
        expect(talk, 400, "unexpected_response")


@requirement("MODERN-S-002", "MODERN-B-003", "JSONRPC-B-018")
@pytest.mark.parametrize("with_meta", [True, False])
def test_a_notification_is_taken(harness: ModernServerHarness, with_meta: bool) -> None:
    message = notification_from("notifications/x") if with_meta else notification("notifications/x")
    talk = harness.ask(message, {"mcp-method": None})
    assert (talk.status, talk.body, talk.ended) == (202, b"", True)
    (event,) = harness.events
    assert isinstance(event, ClientNotified)
    assert event.peer.revision.name == MODERN
    assert event.notification.method == "notifications/x"


@requirement("MODERN-S-003", "MODERN-S-004")
@pytest.mark.parametrize("version", ["2030-01-01", "1900-01-01", LATEST, 5])
@pytest.mark.both_eras
def test_a_notification_at_a_version_that_is_not_served(
    harness: ModernServerHarness, version: Any
) -> None:
    message = notification_from("notifications/x")
    message["params"]["_meta"][VERSION] = version
    talk = harness.ask(message, {"mcp-protocol-version": str(version)})
    expect(talk, 400, "unsupported_version", -32022)
    assert talk.error["data"] == {
        "reason": "unsupported_version",
        "supported": NEWEST_FIRST,
        "requested": str(version),
    }


@requirement("HEADERS-S-001", "HEADERS-S-006")
@pytest.mark.parametrize("version", [None, LATEST, "2030-01-01"])
def test_a_notification_whose_header_is_missing_or_differs(
    harness: ModernServerHarness, version: str | None
) -> None:
    talk = harness.ask(notification_from("notifications/x"), {"mcp-protocol-version": version})
    expect(talk, 400, "header_mismatch", -32020)


@requirement("CANCEL-S-006", "CANCEL-B-008")
@pytest.mark.parametrize("id", [7, 8, None, {}])
def test_nobody_cancels_by_a_notification(harness: ModernServerHarness, id: Any) -> None:
    """Ids are anybody's choice: one caller would cancel what another one runs."""
    _, call = harness.start(modern(7))
    talk = harness.ask(notification_from("notifications/cancelled", requestId=id))
    assert (talk.status, talk.body) == (202, b"")
    assert call.is_running
    assert harness.events == []


# What has to be said


@requirement("MODERN-S-015", "MODERN-S-016", "MODERN-S-023")
@pytest.mark.parametrize(
    "about",
    [
        None,
        {},
        {VERSION: MODERN},
        {CAPABILITIES: {}},
        {VERSION: MODERN, CAPABILITIES: None},
        {VERSION: MODERN, CAPABILITIES: []},
        {VERSION: 1, CAPABILITIES: {}},
        {VERSION: None, CAPABILITIES: {}},
        [],
    ],
)
def test_what_has_to_be_in_every_request(harness: ModernServerHarness, about: Any) -> None:
    assert harness.ask(modern(1)).ended is False  # what has been said before counts for nothing
    message = modern(2)
    message["params"]["_meta"] = about
    talk = harness.post(message, headers={"mcp-protocol-version": MODERN})
    expect(talk, 400, "meta_required", -32602, id=2)
    assert VERSION in talk.error["message"]
    assert CAPABILITIES in talk.error["message"]


def test_no_parameters_at_all(harness: ModernServerHarness) -> None:
    message = {"jsonrpc": "2.0", "id": "a", "method": "tools/list"}
    talk = harness.post(message, headers={"mcp-protocol-version": MODERN})
    expect(talk, 400, "meta_required", -32602, id="a")


@requirement("MODERN-S-030")
@pytest.mark.parametrize("level", ["loud", "INFO", "", 3, None, []])
def test_an_unknown_log_level(harness: ModernServerHarness, level: Any) -> None:
    talk = harness.ask(modern(1, about=meta(logLevel=level)))
    expect(talk, 400, "unknown_log_level", -32602, id=1)
    assert LOG_LEVEL in talk.error["message"]


@requirement("MODERN-S-017", "MODERN-B-001")
@pytest.mark.parametrize("info", [{}, {"clientInfo": None}, {"clientInfo": [1]}])
def test_nobody_has_to_tell_a_name(harness: ModernServerHarness, info: dict[str, Any]) -> None:
    _, call = harness.start(modern(1, about=meta(**info)))
    assert call.peer.client_info == {}


# The headers that repeat it


@requirement(
    "HEADERS-S-001",
    "HEADERS-S-006",
    "HEADERS-S-010",
    "HEADERS-S-011",
    "HEADERS-S-012",
    "HEADERS-S-016",
)
@pytest.mark.parametrize("id", [1, "a"])
@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("mcp-protocol-version", None),
        ("mcp-protocol-version", LATEST),
        ("mcp-protocol-version", "2030-01-01"),
        ("mcp-method", None),
        ("mcp-method", "tools/list"),
        ("mcp-name", None),
        ("mcp-name", "other"),
        ("mcp-name", ""),
    ],
)
def test_a_header_is_missing_or_differs(
    harness: ModernServerHarness, id: Any, header: str, value: str | None
) -> None:
    talk = harness.ask(modern(id), {header: value})
    expect(talk, 400, "header_mismatch", -32020, id=id)
    assert talk.error["data"]["header"] == header


@requirement("HEADERS-S-009")
@pytest.mark.parametrize(
    ("header", "value"), [("mcp-method", "TOOLS/CALL"), ("mcp-name", "ADD"), ("mcp-method", "")]
)
def test_values_are_compared_letter_by_letter(
    harness: ModernServerHarness, header: str, value: str
) -> None:
    assert harness.refused(modern(1), **{header: value}) == (400, -32020, "header_mismatch")


@pytest.mark.parametrize("header", ["mcp-protocol-version", "mcp-method"])
def test_what_nobody_has_to_encode_is_not_decoded(
    harness: ModernServerHarness, header: str
) -> None:
    """Else somebody on the way who compares methods would be fooled."""
    encoded = {
        "mcp-protocol-version": "=?base64?MjAyNi0wNy0yOA==?=",
        "mcp-method": "=?base64?dG9vbHMvY2FsbA==?=",
    }
    expect(harness.ask(modern(1), {header: encoded[header]}), 400, "header_mismatch", -32020, id=1)


@requirement("HEADERS-S-014")
def test_spaces_around_a_value_are_not_part_of_it(harness: ModernServerHarness) -> None:
    harness.ask(
        modern(1),
        {
            "mcp-method": " tools/call\t",
            "mcp-name": "\tadd ",
            "mcp-protocol-version": f" {MODERN} ",
        },
    )
    assert harness.last_call().is_running


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"mcp-method", b"tools/call"),
        (b"mcp-protocol-version", MODERN.encode()),
        (b"mcp-name", b"add"),
    ],
)
def test_no_header_comes_twice(harness: ModernServerHarness, name: bytes, value: bytes) -> None:
    talk = harness.ask_with(modern(1), (name, value))
    expect(talk, 400, "header_mismatch", -32020, id=1)


# What is served


@requirement("VERS-S-003", "VERS-S-004", "VERS-S-005", "JSONRPC-B-016")
@pytest.mark.parametrize("version", ["1900-01-01", "2030-01-01", "", LATEST, "2026-07-28 "])
@pytest.mark.both_eras
def test_a_version_that_is_not_served(harness: ModernServerHarness, version: str) -> None:
    about = {**meta(), VERSION: version}
    talk = harness.ask(modern(1, about=about), {"mcp-protocol-version": version})
    if version == "2026-07-28 ":  # what a header says has no space around it
        expect(talk, 400, "header_mismatch", -32020, id=1)
        return
    expect(talk, 400, "unsupported_version", -32022, id=1)
    discovered = harness.ask(modern(2, "server/discover")).json["result"]["supportedVersions"]
    assert talk.error["data"]["supported"] == discovered == NEWEST_FIRST
    assert talk.error["data"]["requested"] == version


@requirement("MODERN-S-014", "SUBS-B-001", "JSONRPC-B-025", "LIFECYCLE-B-017")
@pytest.mark.parametrize(
    "method", ["foo/bar", "notifications/x", "sampling/createMessage", *sorted(REMOVED)]
)
def test_a_method_that_is_not_there(method: str) -> None:
    app = App("bench")
    app.handler("resources/subscribe")(nothing)
    app.handler("logging/setLevel")(nothing)
    harness = ModernServerHarness(app)
    for id in (1, "a"):
        talk = harness.ask(modern(id, method))
        expect(talk, 404, "method_not_found", -32601, id=id)


def test_what_the_library_answers_takes_no_handler() -> None:
    for method in ("server/discover", "subscriptions/listen"):
        with pytest.raises(LocalProtocolError):
            App("bench").handler(method)


# The order


def test_each_row_comes_before_the_next() -> None:
    """One request breaks them all; what is mended shows the next row."""
    app = App("bench", input_schema=lambda _: {"properties": {"a": {"x-mcp-header": ""}}})
    harness = ModernServerHarness(app)
    message = modern(1, about={VERSION: "2030-01-01"})
    wrong = {"mcp-method": "x"}
    assert harness.refused(message, **wrong) == (400, -32602, "meta_required")
    message["params"]["_meta"] = {**meta(), VERSION: "2030-01-01"}
    assert harness.refused(message, **wrong) == (400, -32020, "header_mismatch")
    assert harness.refused(message) == (400, -32022, "unsupported_version")
    message = modern(1)
    assert harness.refused(message) == (404, -32601, "method_not_found")
    app.handler("tools/call")(nothing)
    harness.server.drain(now=0)
    assert harness.refused(message) == (500, -32603, "bad_tool")
    app.input_schema = None
    assert harness.refused(message) == (503, -32600, "shutting_down")


def test_accept_content_type_and_json_come_first(harness: ModernServerHarness) -> None:
    expect(harness.ask(modern(1), {"accept": JSON}), 406, "not_acceptable")
    headers = {"content-type": "text/plain", "mcp-protocol-version": MODERN}
    expect(harness.post(modern(1), headers=headers), 415, "unsupported_media_type")
    headers = {"mcp-protocol-version": MODERN}
    expect(harness.post(b"{", headers=headers), 400, "malformed_json", -32700)
    expect(harness.post(b"[]", headers=headers), 400, "batch_not_allowed")
    expect(harness.post([modern(1)], headers=headers), 400, "batch_not_allowed")


# All of it


def test_refusals_are_told_to_the_application(harness: ModernServerHarness) -> None:
    harness.ask(modern(1, "foo/bar"))
    (event,) = harness.events
    assert isinstance(event, RefusalSent)
    assert event.error.http_status == 404
