"""Every bound of the library in one place.

Everything that a peer can make grow is bounded. Each field explains what it bounds, why it has its
default, and what other products use. Exceeding a limit is a typed error of the message or request
concerned.
"""

from __future__ import annotations

import math

import attrs

from .errors import LocalProtocolError, check_type
from .types import Value


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Limits(Value):
    """The bounds of a client or server: bytes, seconds and counts, all above zero.

    Bytes and counts are integers. Seconds can be ``math.inf``, which means no limit.

    Raises:
        LocalProtocolError: a value is of another type or not above zero, ``max_json_depth`` is
            or ``max_response_depth`` is above 500, or ``store_poll_interval`` is infinite.
    """

    max_message_bytes: int = 32 * 1024 * 1024
    """One JSON-RPC message: an HTTP body, the data of one SSE event, one line of stdio.

    Tool results carry images and files in base64, and ``tools/list`` of large servers reaches
    megabytes: 1 MiB (an SDK's cap on one event) broke real servers, no cap at all let one peer fill
    the memory. nginx: 1 MiB; uvicorn: none.
    """

    max_request_bytes: int = 4 * 1024 * 1024
    """The same for messages that a server receives, from clients that it might not know: the body
    of a POST, a line of stdio. The smaller of the two counts there. Arguments of tools are short;
    results are large. nginx: 1 MiB; Starlette, Django: 2.5 MiB of a form; Express: 100 KiB.
    """

    max_values: int = 200_000
    """Values in one message: an empty array or object counts as two. A value takes up to 300 bytes
    of memory, whatever it takes on the wire, so bytes alone bound nothing: 32 MiB of nested arrays
    took 1.6 GiB. A result of 200,000 values has at least one MiB; those of real servers have a
    twentieth of that. Jackson: none; Go, Python: none.
    """

    max_json_depth: int = 64
    """How deep arrays and objects may nest; at most 500, half of what Python's stack holds.

    Deeper documents only serve to exhaust stacks. orjson: 1024, PostgreSQL: 6400.
    """

    max_response_depth: int = 256
    """The same for messages that a client receives; at most 500. Schemas without references and
    trees as structured results nest deeper than arguments do. The official Python SDK reads 165
    levels; System.Text.Json, which the C# SDK uses: 64.
    """

    max_head_bytes: int = 64 * 1024
    """Request line, or status line, and all header lines together. nginx: 32 KiB, Node.js: 16 KiB,
    h11: 16 KiB. A server reads a larger one to its end, or to twice this size, so that the web page
    that sent it may read the refusal.
    """

    max_headers: int = 100
    """Number of header lines of one message. HAProxy: 101, Apache httpd: 100."""

    head_timeout: float = 30.0
    """From the first byte of a request head to its last, in all and not per read. HAProxy advises
    10, nginx: 60.
    """

    body_timeout: float = 60.0
    """From the end of the head to the end of the request body, in all. nginx: 60 between two reads.
    """

    tls_handshake_timeout: float = 10.0
    """From the first byte of a TLS handshake to its last, in all, at both ends.

    It takes two round trips; a silent peer holds a socket and memory meanwhile. For a client
    ``connect_timeout`` also holds. Go's HTTP client: 10, asyncio: 60.
    """

    keep_alive_timeout: float = 75.0
    """How long a server keeps an idle connection for the next request. nginx: 75, Apache httpd: 5.
    """

    idle_connection_timeout: float = 4.0
    """How long a client reuses an idle connection: below the 5 s after which Node.js closes it."""

    max_idle_connections: int = 100
    """Idle connections that a client keeps; enough for as many calls at once. httpx: 20, Go: 100.
    """

    send_timeout: float = 60.0
    """How long a peer may read nothing before its connection is closed, if there is something to
    send. nginx: 60.
    """

    max_unsent_bytes: int = 256 * 1024
    """Bytes that wait in memory for one slow reader. Beyond it the log is read again later, or the
    handler has to wait.
    """

    max_total_unsent_bytes: int = 256 * 1024 * 1024
    """Bytes that wait in memory for all readers of a server over HTTP together: a thousand that
    have stopped reading, with ``max_unsent_bytes`` each.

    Above half of it, a handler has to wait if any bytes wait for its reader. Beyond it, the
    response with the most waiting bytes (to within a factor of two) is aborted; a stored stream can
    be resumed.
    """

    max_queued_events: int = 1024
    """Events that wait for the application. At this number reading from the peer is paused."""

    max_sessions: int = 10_000
    """Sessions of a server. Beyond it, a new session replaces one that has sent no request since
    its ``initialize``; if there is none, ``initialize`` is refused with 503. The official Python
    SDK: 10,000.
    """

    max_sessions_per_principal: int = 5_000
    """The same for one principal, so that one alone cannot use all. The empty principal, which all
    clients without authentication share, is bounded by ``max_sessions`` only. It also bounds the
    streams of HTTP+SSE, of one principal or, without authentication, of one address.
    """

    session_idle_timeout: float = 1800.0
    """A session without any request and without an open stream ends after this. The official Python
    SDK: 1,800. Where instances share a store, sessions live by ``max_stored_age`` instead.
    """

    max_calls_per_session: int = 128
    """Requests of one session that run at the same time; a further one is refused with 429."""

    max_streams_per_session: int = 8
    """Standalone (GET) streams of one session. Clients open one; two or three after broken
    connections.
    """

    max_subscriptions: int = 10_000
    """Clients that listen for changes (``subscriptions/listen``) at the same time."""

    max_subscriptions_per_client: int = 5_000
    """The same for one principal or, without authentication, for one address: one client alone
    cannot use all. Behind a proxy set ``trusted_proxies``, else the proxy counts as the client.
    """

    max_rate_buckets: int = 100_000
    """Clients that are counted at the same time, if ``rate_limit`` is set, in some 200 bytes each.
    Of more, those that have been quiet for longest may send as if they had never sent.
    """

    max_dpop_proofs: int = 100_000
    """DPoP proofs that were accepted and are remembered, in 300 to 600 bytes each, for twice
    ``ProtectedResource.dpop_max_age`` and a minute: as many as 150 requests a second make. Of more,
    the principal that has most forgets its oldest, and may use no proof that is as old. It gets 429
    if it makes so many within a minute.
    """

    max_resources_per_subscription: int = 1000
    """Resources of one subscription; the acknowledgement lists those that were accepted. A session
    of a handshake revision may subscribe to as many; ``resources/subscribe`` is refused beyond it.
    """

    max_uri_length: int = 8192
    """Characters of a resource's URI in ``resources/subscribe``; longer ones are refused, since the
    session keeps it. In the filter of ``subscriptions/listen`` they are left out. RFC 9110 (4.1)
    recommends to support 8,000 octets; Apache httpd: 8190.
    """

    max_pending_entries: int = 256
    """Messages of one stream that wait for a slow store before the handler has to wait."""

    max_stored_bytes: int = 64 * 1024 * 1024
    """Bytes of a store, in memory or in its file, for messages that clients might resume from.

    This is for all clients together; the principal that uses most loses its oldest messages first.
    """

    max_stored_entries: int = 100_000
    """The same, counted in messages."""

    max_stored_age: float = 900.0
    """How long a store keeps a message, in seconds; at least so long where little is stored, for
    the time between two uses of the store counts as a third of this at most. Longer than any client
    tries to reconnect. A session that instances share is kept for so long after its last use, give
    or take a third.
    """

    replay_page_entries: int = 128
    """Messages read from the store at once when a stream is replayed."""

    store_poll_interval: float = 0.25
    """Seconds between two reads of a log that another instance writes, for a store that does not
    tell of changes.
    """

    store_check_interval: float = 5.0
    """The same for a store that tells of changes: a safety net for those that it does not tell of.
    The intervals of different logs differ by a quarter of it.
    """

    store_retry_timeout: float = 30.0
    """How long a failed store operation of a running call or an open stream is repeated. Then the
    stream goes on without being stored. Beyond ``max_pending_entries`` its handler waits.
    """

    lease_timeout: float = 10.0
    """How long an instance that shares a store may show no sign of life, before others end the
    calls that it ran.
    """

    max_batch_messages: int = 100
    """Messages in one JSON-RPC batch (revision 2025-03-26)."""

    stream_comment_interval: float = 15.0
    """A quiet event stream carries a comment this often; proxies cut silent connections after 30 to
    60.
    """

    stream_idle_timeout: float = 45.0
    """How long an event stream that a client can resume, or make again as a subscription, may bring
    no byte before the client does so: three comments of our servers, which send one every 15 s, and
    less than the 60 s after which a call times out by default. The same holds for the response to a
    call with a key (docs/reclaim.md), from its request on. undici: 300 for bodies, Envoy: 300 for
    streams.
    """

    max_pending_calls: int = 1024
    """Requests a client has in flight or waiting for the handshake. As many notifications and
    responses of it may be under way; ``notify()`` raises LocalProtocolError beyond that.
    """

    max_open_posts: int = 16
    """POSTs of notifications, responses and cancellations that a client has open at a time; others
    wait in order. Each takes a connection on HTTP/1.1, and servers take them at once. Browsers: 6
    connections to one origin.
    """

    post_timeout: float = 30.0
    """Seconds for one of them, from the command to the end of the HTTP response. Beyond it the
    exchange is aborted: a notification is reported as MessageUndelivered, a response is sent
    again as after a lost connection. A request about a task gets as long before it is repeated.
    httpx: 5 for each step, the official Python SDK: 30.
    """

    max_cached_results: int = 1000
    """Results that a client keeps because their server allows it; those used last are kept."""

    max_cached_bytes: int = 16 * 1024 * 1024
    """The same, counted in bytes of JSON."""

    max_cached_age: float = 86_400.0
    """How long a client keeps a result, whatever time to live the server gives it."""

    max_rounds: int = 32
    """Rounds of input requests within one call. The official Python SDK: 10."""

    max_server_requests_per_call: int = 256
    """Server requests (elicitation, sampling, roots) within one call of a client, in rounds and on
    its stream. Each stops the clocks of the call while it is open; one more ends the call with
    InvalidResponse. On stdio, where a server request does not name its call, the clocks then
    continue instead. An agent that samples in a loop needs tens.
    """

    max_tasks: int = 10_000
    """Tasks whose handlers run at one instance, or that it has parked until their input comes.
    Beyond it a call keeps its connection, and becomes a task when there is room; one that needs a
    task is refused with 429. The input of a parked task is refused while as many handlers run.
    """

    max_tasks_per_principal: int = 1_000
    """The same for one principal, so that one alone cannot use all. The empty principal, which all
    clients without authentication share, is bounded by ``max_tasks`` only.
    """

    task_timeout: float = 86_400.0
    """Seconds that the handler of a task may run; then the task fails. The client of a task may be
    gone for ever, and nobody else would stop a handler that hangs.
    """

    reclaim_timeout: float = 60.0
    """How long a call of a tool runs on at the server after its connection was cut, and how long
    its response is kept unless the client confirms it. A client that does not hear of the cut asks
    after ``stream_idle_timeout`` at the latest. This is for clients that declare the extension of
    docs/reclaim.md, as those of this library do.
    """

    max_cut_calls: int = 1_000
    """Calls of one principal that run without a connection; beyond it the one cut longest ago is
    cancelled. All clients without authentication are one principal.
    """

    max_reclaim_bytes: int = 32 * 1024 * 1024
    """Bytes of a server's memory for the responses, reports and keys of such calls, and for the
    requests of those that run without a connection. The principal that uses most loses its oldest
    ones first. A key takes half a KiB until there are 65,536 of them.
    """

    input_timeout: float = 600.0
    """Seconds that a server waits for the input responses that a handler needs to continue. A user
    might have to type them.
    """

    max_seen_event_ids: int = 256
    """Event ids that a client keeps per stream, to discard events that a server replays twice."""

    max_redirects: int = 3
    """Redirects within the same origin that a client follows for one request."""

    @property
    def request_bytes(self) -> int:
        """Bytes of one message that a server accepts: the smaller of the two bounds."""
        return min(self.max_message_bytes, self.max_request_bytes)

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(Limits):
            name, value = field.name, getattr(self, field.name)
            is_count = str(field.type) == "int"
            check_type(int if is_count else (int, float), **{name: value})
            if not value > 0:  # NaN is not, either
                raise LocalProtocolError(f"{name} must be above zero, and is {value}")
        if self.store_poll_interval == math.inf:
            raise LocalProtocolError(
                "store_poll_interval must be finite: streams of other instances would stop"
            )
        for name in ("max_json_depth", "max_response_depth"):
            if (depth := getattr(self, name)) > 500:
                raise LocalProtocolError(f"{name} must be at most 500, and is {depth}")
