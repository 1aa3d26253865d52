"""Checks of servers: calls, with every form of response, at the revisions of both eras."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sansmcp.http import Url
from sansmcp.limits import Limits

from .adapter_under_test import Feature, ServerUnderTest
from .check import expect, same, server_check
from .raw_client import POST_HEADERS, Connection, RawPeer, Response, request, result_of
from .servers import LEGACY, MODERN, OLDEST, alive, begun, serving

_WORDS = {"text": "a\u2028ä😀"}
_ASKED: dict[str, Any] = {"elicitation": {}}


@server_check()
def calls_in_a_session(subject: ServerUnderTest) -> None:
    """A client initializes a session, calls, and ends the session (2025-11-25).

    Feed the requests to the machine, run the application's handlers, and perform the effects.
    """
    with serving(subject) as (_, running), RawPeer(running.url, LEGACY) as peer:
        same(peer.connected["protocolVersion"], LEGACY, "the version")
        same(peer.call("echo", _WORDS), {"echo": _WORDS}, "the result")
        same(peer.send(peer.message("tools/list")).status, 200, "the status of a list")
        unknown = peer.send(peer.message("nope/nope")).answer()
        same(unknown["error"]["code"], -32601, "the error code of an unknown method")
        same(peer.delete().status, 200, "the status of the end of the session")
        same(peer.begin("echo").status, 404, "the status of a call in the session that has ended")


@server_check()
def calls_that_stand_alone(subject: ServerUnderTest) -> None:
    """Requests without a session get responses (2026-07-28), also beside those in sessions."""
    with (
        serving(subject) as (_, running),
        RawPeer(running.url, MODERN) as peer,
        RawPeer(running.url, LEGACY) as older,
    ):
        discovered = peer.send(peer.message("server/discover")).result()
        expect(MODERN in discovered["supportedVersions"], f"discovered: {discovered}")
        same(peer.call("echo", _WORDS), {"echo": _WORDS}, "the result")
        same(older.call("echo", _WORDS), {"echo": _WORDS}, "the result in a session")


@server_check()
def servers_without_sessions(subject: ServerUnderTest) -> None:
    """With ``sessions=False`` the server gives no session id, and calls work.

    Pass the application's settings to sansmcp.Server.
    """
    with serving(subject, sessions=False) as (_, running), RawPeer(running.url, LEGACY) as peer:
        expect("mcp-session-id" not in peer.session, "the server has given a session id")
        same(peer.call("echo", _WORDS), {"echo": _WORDS}, "the result")


def _reports(response: Response) -> tuple[list[float], Any]:
    """Return the progress that a response reports, and its result."""
    *reports, answer = response.messages()
    return [report["params"]["progress"] for report in reports], result_of(answer)


@server_check()
def progress_comes_as_it_happens(subject: ServerUnderTest) -> None:
    """Messages of a handler are sent while it runs, and not with its result.

    For Wake, let the driver of that exchange pull its effects at once.
    """
    for version in (LEGACY, MODERN):
        with serving(subject) as (tools, running), RawPeer(running.url, version) as peer:
            messages = peer.begin("wait").messages()
            same(next(messages)["params"]["progress"], 1, "the progress before the wait")
            begun(tools)
            tools.go_on.set()
            same(next(messages)["params"]["progress"], 2, "the progress after the wait")
            same(result_of(next(messages)), {"done": True}, "the result")


@server_check()
def all_that_a_handler_says_comes(subject: ServerUnderTest) -> None:
    """Progress that is reported fast arrives in order, and completely."""
    with serving(subject) as (_, running), RawPeer(running.url, LEGACY) as peer:
        found = _reports(peer.begin("count", {"to": 200}))
        same(found, (list(range(1, 201)), {"done": True}), "the progress and the result")


@server_check(Feature.OWN_HTTP, Feature.AT_ONCE)
def the_first_reports_do_not_wait(subject: ServerUnderTest) -> None:
    """A few reports leave at once, also if the handler then computes without giving way.

    Perform the effects that a call has brought about before its method returns to the handler.
    """
    for version in (LEGACY, MODERN):
        with serving(subject) as (tools, running), RawPeer(running.url, version) as peer:
            messages = peer.begin("compute", {"reports": 7}).messages()
            for number in range(1, 8):
                same(next(messages)["params"]["progress"], number, "the progress")
            tools.go_on.set()
            same(result_of(next(messages)), {"done": True}, "the result")


@server_check()
def time_passes_while_nothing_happens(subject: ServerUnderTest) -> None:
    """A call that takes long gets an event stream, with comments that keep it alive.

    Read next_deadline() after everything that changes the machine, and call handle_timeout() at
    that time, also while no bytes are received or sent.
    """
    limits = Limits(stream_comment_interval=0.05)
    with serving(subject, limits=limits) as (tools, running):
        for version in (LEGACY, MODERN):
            with RawPeer(running.url, version) as peer:
                response = peer.begin("hang")
                begun(tools)
                expect(
                    response.is_stream, f"the response is not an event stream: {response.headers}"
                )
                signs = b""
                pieces = response.pieces()
                while signs.count(b"\n:") < 2:
                    signs += b"\n" + next(pieces)


@server_check()
def many_calls_at_once(subject: ServerUnderTest) -> None:
    """Calls run concurrently, also those of one session.

    Run each handler in a task or thread of its own; no connection waits for another.
    """
    with serving(subject) as (tools, running), RawPeer(running.url, LEGACY) as peer:
        responses = [peer.begin("wait") for _ in range(4)]
        begun(tools, 4)
        same(peer.call("echo", _WORDS), {"echo": _WORDS}, "the result of a call meanwhile")
        tools.go_on.set()
        for response in responses:
            same(_reports(response), ([1, 2], {"done": True}), "the progress and the result")


@server_check()
def handlers_that_fail(subject: ServerUnderTest) -> None:
    """An exception of a handler becomes an error response without internal details.

    Call ServerCall.respond_exception(), and log every exception but JsonRpcError.
    """
    with serving(subject) as (_, running):
        for version in (LEGACY, MODERN):
            with RawPeer(running.url, version) as peer:
                wanted = {"code": -7, "message": "no", "data": [1]}
                found = peer.begin("refuse").answer()["error"]
                same(found, wanted, "the error that a handler has raised")
                for tool in ("raise", "raise what is not JSON"):
                    found = peer.begin(tool).answer()["error"]
                    same(found["code"], -32603, "the error code for a handler that failed")
                    expect(
                        "hunter2" not in str(found), f"the error shows internal details: {found}"
                    )
        alive(running)


@server_check()
def large_messages(subject: ServerUnderTest) -> None:
    """Messages of four megabytes are sent and received.

    Send all of the bytes, also if the socket accepts only a part at a time.
    """
    large = {"text": "x" * 4_000_000}
    with serving(subject) as (_, running), RawPeer(running.url, LEGACY) as peer:
        expect(peer.call("echo", large) == {"echo": large}, "the result differs")


@server_check()
def handlers_that_ask(subject: ServerUnderTest) -> None:
    """A handler sends a server request during a call, and waits for the response (2025-11-25).

    For ClientResponseReceived, resume the handler that sent the request.
    """
    with serving(subject) as (_, running), RawPeer(running.url, LEGACY, _ASKED) as peer:
        messages = peer.begin("ask").messages()
        question = next(messages)
        same(question["params"]["message"], "name?", "the server request")
        peer.respond(question["id"], {"name": "Ada"})
        same(result_of(next(messages)), {"answer": {"name": "Ada"}}, "the result")


@server_check()
def handlers_that_ask_in_rounds(subject: ServerUnderTest) -> None:
    """A handler returns InputRequired, and is called again with the responses (2026-07-28).

    Pass a state_signer to sansmcp.Server, with random keys if the application sets none.
    """
    with serving(subject) as (_, running), RawPeer(running.url, MODERN, _ASKED) as peer:
        asked = peer.begin("ask in rounds").result()
        same(list(asked["inputRequests"]), ["name"], "the input requests")
        params = {
            "name": "ask in rounds",
            "arguments": {},
            "inputResponses": {"name": {"action": "accept", "content": {"name": "Ada"}}},
            "requestState": asked["requestState"],
        }
        result = peer.send(peer.message("tools/call", params)).result()
        same(
            result["answer"]["content"], {"name": "Ada"}, "the input response that the handler got"
        )


@server_check()
def calls_over_http_sse(subject: ServerUnderTest) -> None:
    """Clients of 2024-11-05 POST to one path, and get responses on the event stream of another.

    Route all paths of the server to it, and pass the setting ``http_sse`` to sansmcp.Server.
    """
    with (
        serving(subject, http_sse="/sse") as (_, running),
        Connection(running.url) as stream,
    ):
        place = Url.parse(running.url).target.removesuffix("/mcp")
        asking = {"accept": "text/event-stream"}
        stream.send(request(running.url, "GET", asking, target=f"{place}/sse"))
        events = stream.response(to="GET").events()
        messages = str(next(events).data)

        def post(members: Mapping[str, Any]) -> None:
            with Connection(running.url) as connection:
                body = json.dumps({"jsonrpc": "2.0", **members}).encode()
                connection.send(request(running.url, "POST", POST_HEADERS, body, target=messages))
                same(connection.response().status, 202, f"the status of {members}")

        def result() -> Any:
            return result_of(json.loads(str(next(events).data)))

        info = {"name": "peer", "version": "1"}
        params = {"protocolVersion": OLDEST, "capabilities": {}, "clientInfo": info}
        post({"id": 0, "method": "initialize", "params": params})
        same(result()["protocolVersion"], OLDEST, "the version")
        post({"method": "notifications/initialized"})
        params = {"name": "echo", "arguments": _WORDS}
        post({"id": 1, "method": "tools/call", "params": params})
        same(result(), {"echo": _WORDS}, "the result")
