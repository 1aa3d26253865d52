"""The heads of a client's HTTP requests, and the refusals of a server.

Source: 2025-03-26 to 2026-07-28, basic/transports: Streamable HTTP; RFC 9110.
"""

from __future__ import annotations

import re
from typing import Any

import attrs

from ..codecs import headers, json
from ..codecs.headers import Headers
from ..errors import LocalProtocolError, RequestRefused
from ..http import ResponseHead, Url
from ..messages import ErrorResponse, Params
from ..revisions import Revision
from ..types import Secret, hide_credentials

POST_HEADERS: Headers = (
    (b"content-type", b"application/json"),
    (b"accept", b"application/json, text/event-stream"),
)
GET_HEADERS: Headers = ((b"accept", b"text/event-stream"), (b"cache-control", b"no-store"))

_MAX_RETRY_AFTER = 300.0
"""Seconds. A longer ``Retry-After`` counts as this, so the client may be refused again."""
_DENIALS = {401: "the server requires authorization", 403: "the server does not permit this"}
_MAX_CHALLENGE_CHARS = 300
"""The characters of each challenge that an error text shows."""
_SECONDS = re.compile("[0-9]{1,9}")
_BEFORE_PAGE = b"\xef\xbb\xbf \t\r\n"
"""Bytes that may precede the first tag of a page: those of a byte order mark, and white space."""

_DATE = re.compile(
    "[A-Z][a-z]{2}, ([0-9]{2}) ([A-Z][a-z]{2}) ([0-9]{4}) ([0-9]{2}):([0-9]{2}):([0-9]{2}) GMT"
)
"""The form of a date that servers must send. Source: RFC 9110, 5.6.7."""
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]

_TRACE_PARENT = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_TRACE_STATE = re.compile("[!-~](?:[ !-~]{0,510}[!-~])?")
"""Up to 512 characters, as many as every implementation passes on."""

SESSION_NOT_FOUND = "session_not_found"
"""The reason with which a server of this library says that a session has ended, or an event stream
of HTTP+SSE that is one.
"""

NOT_RUN = frozenset(
    (
        "busy",
        "record_too_new",  # another process of a fleet can read it
        "runs_elsewhere",  # another process runs the call with the key
        "shutting_down",
        "store_failed",
        "too_many_sessions",
        "too_many_subscriptions",
        "unknown_key",  # another process of a fleet may know the call
    )
)
"""The reasons of status 503 with which a server says that it has run nothing of the request."""

OUT_OF_REACH = frozenset((502, 503, 504))
"""Refusals by a proxy whose server has not started, or does not respond at the moment."""


@attrs.define(eq=False)  # creating a frozen one takes more than twice as long
class HttpRequest:
    """One HTTP request of a client. Do not change it."""

    url: Url
    method: bytes
    headers: Headers
    body: bytes = b""
    names_session: bool = False
    """True if its headers or, on HTTP+SSE, its URL have the id of a session."""
    last_event_id: str = ""

    def redirected(self, head: ResponseHead, redirects: int, limit: int) -> HttpRequest | None:
        """Return the same request to the target of a redirect; None if it is not followed.

        Credentials are never sent to another origin (CVE-2022-1650). 307 and 308 keep method and
        body. The others change a POST to a GET, so they are followed for GET and DELETE only.

        Args:
            head: the head of the response.
            redirects: the number of redirects followed before.
            limit: the number of redirects allowed.
        """
        location = headers.get(head.headers, b"location")
        followed = (307, 308) if self.method == b"POST" else (301, 302, 303, 307, 308)
        if location is None or head.status not in followed or redirects >= limit:
            return None
        try:
            url = self.url.join(location.decode("latin-1"))
        except LocalProtocolError:
            return None
        return attrs.evolve(self, url=url) if url.origin == self.url.origin else None


def request_headers(
    method: bytes,
    mirrored: Headers,
    session_id: Secret | None,
    revision: Revision,
    last_event_id: str,
    further: Headers,
) -> Headers:
    """Return the headers of an HTTP request, in the order in which they are sent.

    Args:
        method: ``b"POST"``, ``b"GET"`` or ``b"DELETE"``.
        mirrored: the headers that repeat parts of the message.
        session_id: the session id; None if there is none.
        revision: the negotiated revision.
        last_event_id: the event id to resume a stream from; empty if none is resumed.
        further: the headers that the application has set.
    """
    found = [*(POST_HEADERS if method == b"POST" else GET_HEADERS), *mirrored]
    if session_id is not None:
        found.append((b"mcp-session-id", session_id.reveal().encode()))
    if revision.version_header:
        found.append((b"mcp-protocol-version", revision.name.encode()))
    if last_event_id:
        found.append((b"last-event-id", last_event_id.encode()))
    return (*found, *further)


def trace_headers(params: Params, further: Headers) -> Headers:
    """Return the headers that repeat the trace context in ``_meta`` of a message.

    Proxies and HTTP servers read it there. A value that is not as W3C Trace Context has it stays in
    ``_meta`` alone; so does all of it if the application has set a header of its own.

    Args:
        params: the parameters of the message.
        further: the headers that the application has set.

    Source: SEP-414; W3C Trace Context, 3.2 and 3.3.
    """
    meta = json.as_object(params.get("_meta")) or {}
    parent = _header_value(_TRACE_PARENT, meta.get("traceparent"))
    state = _header_value(_TRACE_STATE, meta.get("tracestate"))
    if parent is None or headers.get(further, b"traceparent") is not None:
        return ()
    found = (b"traceparent", parent)
    return (found,) if state is None else (found, (b"tracestate", state))


def _header_value(pattern: re.Pattern[str], value: Any) -> bytes | None:
    """Return a string that matches as the value of a header; None if it is something else."""
    is_match = isinstance(value, str) and pattern.fullmatch(value) is not None
    return value.encode() if is_match else None


@attrs.frozen
class Refusal:
    """An HTTP response that is not a success, or not of a type that was requested."""

    request: HttpRequest
    head: ResponseHead
    body: bytes
    error: ErrorResponse | None
    """The JSON-RPC error in the body, if there is one."""

    @property
    def is_page(self) -> bool:
        """True if it is a page of HTML with status 200, which a proxy shows in place of a response.

        A web framework may send its default type, which is that of HTML, with an empty body or a
        word: that is no page.
        """
        kind = headers.response_media_type(self.head.headers)
        begins = self.body.lstrip(_BEFORE_PAGE)[:1]
        return self.status == 200 and kind == headers.HTML and begins == b"<"

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.head.status

    @property
    def is_retryable(self) -> bool:
        """True if the refusal is temporary: the server is busy, has failed or is out of reach."""
        return is_temporary(self.status) or self.is_page

    @property
    def was_not_run(self) -> bool:
        """True if it is certain that the server has run nothing, and may take the request later.

        A bare 503 can be from a proxy whose server broke the connection in the middle of a call.
        Source: RFC 6585 section 4.
        """
        return self.status == 429 or (self.status == 503 and self.reason in NOT_RUN)

    @property
    def leaves_unknown(self) -> bool:
        """True if a proxy may have lost its server while that ran the request."""
        is_of_proxy = self.status in OUT_OF_REACH or self.is_page
        return is_of_proxy and self.error is None and not self.was_not_run

    @property
    def ends_session(self) -> bool:
        """True if the server does not know the session of the request.

        On HTTP+SSE the specification names no status; servers send this one for a URL of a session
        that they have forgotten. Many servers answer 400 instead of 404, with an error without an
        id that names the session: they have run nothing, and would refuse all later requests, too.
        Source: 2025-11-25, basic/transports, Session Management.
        """
        if not self.request.names_session:
            return False
        error = self.error
        names_it = error is not None and error.id is None and "session" in error.message.lower()
        return self.status == 404 or (self.status == 400 and names_it)

    @property
    def reason(self) -> str | None:
        """``error.data.reason`` of the body; None if there is none."""
        data = json.as_object(self.error.data) if self.error is not None else None
        reason = data.get("reason") if data is not None else None
        return reason if isinstance(reason, str) else None

    @property
    def challenges(self) -> tuple[str, ...]:
        """The values of ``WWW-Authenticate``. Source: RFC 9110, 11.6.1."""
        values = headers.get_all(self.head.headers, b"www-authenticate")
        return tuple(value.decode("latin-1") for value in values)

    @property
    def retry_after(self) -> float:
        """``Retry-After`` in seconds; 0 if the server sent none."""
        return retry_after(self.head)

    @property
    def message(self) -> str:
        """The request, the status, and the explanation of the server, as text for an error."""
        detail = self.error.message if self.error is not None else _excerpt(self.body)
        if self.reason is not None:
            detail += f" ({self.reason})"
        location = headers.get(self.head.headers, b"location")
        if 200 <= self.status < 300:
            without = b"content without a type" if self.body else b"no content"
            named = headers.response_media_type(self.head.headers)
            kind = (named or without).decode("latin-1")
            detail = f"{kind} instead of JSON or an event stream" + (detail and f": {detail}")
            if self.status in (202, 204):
                detail += "; if messages of HTTP+SSE go here, open the URL of its event stream"
        elif location is not None:
            shown = hide_credentials(location.decode("latin-1"))
            detail = f"a redirect to {shown!r}, which is not followed"
        elif self.status in _DENIALS:
            challenges = "".join(f" ({text[:_MAX_CHALLENGE_CHARS]})" for text in self.challenges)
            detail = "; ".join(filter(None, (detail, _DENIALS[self.status] + challenges)))
        request_line = f"{self.request.method.decode()} {self.request.url.shown}"
        return f"{request_line} was answered with HTTP {self.status}: {detail or 'no explanation'}"

    def as_error(self, method: str, request_id: int | None) -> RequestRefused:
        """Return the exception for a request that ends with this refusal."""
        what = "was refused"
        if self.leaves_unknown:
            came = "a web page instead of a response" if self.is_page else "no response"
            what = f"got {came}"
            if self.request.method == b"POST":
                what += ", and its outcome is unknown"
        return RequestRefused(
            f"{method} {what}: {self.message}",
            status=self.status,
            http_method=self.request.method.decode(),
            url=str(self.request.url),
            reason=self.reason,
            challenges=self.challenges,
            body=self.body,
            method=method,
            request_id=request_id,
        )


def is_temporary(status: int) -> bool:
    """Return True if the server is busy, has failed or is out of reach."""
    return status in (408, 425, 429) or status >= 500


def retry_after(head: ResponseHead) -> float:
    """Return ``Retry-After`` in seconds, at most five minutes; 0 if the server sent none.

    The machine has no calendar clock. So a date counts from that of the response, and as none if
    the response has no date. Source: RFC 9110, 10.2.3.
    """
    value = headers.single(headers.get_all(head.headers, b"retry-after")) or ""
    if _SECONDS.fullmatch(value):
        return min(float(value), _MAX_RETRY_AFTER)
    sent = headers.single(headers.get_all(head.headers, b"date")) or ""
    until, since = seconds_of(value), seconds_of(sent)
    if until is None or since is None:
        return 0.0
    return min(max(float(until - since), 0.0), _MAX_RETRY_AFTER)


def seconds_of(date: str) -> int | None:
    """Return the seconds from some fixed time to a date; None if it is not one."""
    match = _DATE.fullmatch(date)
    if match is None or match[2] not in _MONTHS:
        return None
    day, year, hour, minute, second = (int(match[group]) for group in (1, 3, 4, 5, 6))
    # The year begins in March here, so that a leap day is its last one.
    month = (_MONTHS.index(match[2]) - 2) % 12
    year -= month >= 10
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day
    return ((days * 24 + hour) * 60 + minute) * 60 + second


def _excerpt(body: bytes) -> str:
    """Return the start of a body as one line of text."""
    return " ".join(body[:200].decode("utf-8", "replace").split())
