"""The stateless revisions on the client: every request says all that has to be known.

Each message names its version, each request our capabilities besides; on HTTP headers repeat parts
of it, among them the tool parameters that a server has marked in its list of tools. A response that
breaks off cannot be resumed, and leaving one is how a request is cancelled.

Source: 2026-07-28 basic, basic/transports; SEP-2575, SEP-2243.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import attrs

from ...codecs import json, jsonrpc, mirrored
from ...codecs.headers import Headers
from ...codecs.jsonrpc import Batch
from ...codecs.sse import SseEvent
from ...errors import LocalProtocolError, RemoteProtocolError
from ...events import Reconnecting, ToolRejected
from ...messages import Message, Notification, Params, Request
from ...meta import CAPABILITIES, CLIENT_INFO, NAMED, VERSION
from ...timers import Timer
from ..detection import is_temporary
from ..exchange import ClientExchange, Refusal
from ..transport import RequestOwner

if TYPE_CHECKING:
    from ..core import ClientCore

_MOST_TOOLS = 1000
"""Tools whose headers are remembered; the schema of a tool that is forgotten is fetched again."""


def dress(core: ClientCore, message: Message) -> Message:
    """A message as the revision in force wants it."""
    if not core.is_modern or not isinstance(message, Request | Notification):
        return message
    assert core.revision is not None
    given = message.params or {}
    meta: dict[str, Any] = {**given.get("_meta", {}), VERSION: core.revision.name}
    params: dict[str, Any] = {**given, "_meta": meta}
    if isinstance(message, Notification):
        return Notification(message.method, params)
    meta[CAPABILITIES] = core.capabilities
    if not core.anonymous:
        meta[CLIENT_INFO] = core.info
    return Request(message.id, message.method, params)


def uses_headers(core: ClientCore) -> bool:
    """Whether headers repeat parts of messages."""
    return core.is_modern and core.url is not None


def learn_tools(core: ClientCore, result: Any) -> Any:
    """A list of tools, without those whose parameters headers cannot repeat as they should."""
    if uses_headers(core):
        result, rejected = core.tools.learn(result)
        core.events.extend(rejected)
    return result


def headers_of(core: ClientCore, message: Message) -> Headers:
    """The headers that repeat parts of a message."""
    if not uses_headers(core) or not isinstance(message, Request | Notification):
        return ()
    params = message.params or {}
    found = [(b"mcp-method", mirrored.encode(message.method))]
    name = params.get(NAMED.get(message.method, ""))
    if isinstance(name, str):
        found.append((b"mcp-name", mirrored.encode(name)))
    for header, value in _repeated(core, message.method, params):
        text = mirrored.text_of(value)
        if text is not None:
            found.append((b"mcp-param-" + header.lower().encode(), mirrored.encode(text)))
    return tuple(found)


def check_repeated(core: ClientCore, method: str, params: Params | None) -> None:
    """Raises LocalProtocolError for an argument that its header could not repeat exactly."""
    for header, value in _repeated(core, method, params or {}):
        if mirrored.is_too_large(value):
            raise LocalProtocolError(
                f"{value} is too large for the header Mcp-Param-{header}, which has to repeat it: "
                "integers there lie between -(2**53 - 1) and 2**53 - 1"
            )


def _repeated(core: ClientCore, method: str, params: Params) -> Iterator[tuple[str, Any]]:
    """The arguments of a tool that headers repeat, by header."""
    if method == "tools/call" and uses_headers(core):
        arguments = json.as_object(params.get("arguments")) or {}
        for header, path in core.tools.headers_of(params.get("name")).items():
            yield header, mirrored.argument_at(arguments, path)


@attrs.define(eq=False, repr=False)
class ToolHeaders:
    """The tool parameters that headers repeat, learnt from lists of tools."""

    _known: dict[str, dict[str, tuple[str, ...]]] = attrs.field(
        factory=dict[str, dict[str, tuple[str, ...]]], init=False
    )

    def headers_of(self, tool: object) -> dict[str, tuple[str, ...]]:
        """The headers of a tool, and the paths of the arguments that they repeat."""
        return self._known.get(tool, {}) if isinstance(tool, str) else {}

    def learn(self, result: Any) -> tuple[Any, list[ToolRejected]]:
        """A list of tools without those whose definition cannot be used, and why not those."""
        listed = json.as_object(result)
        tools = listed.get("tools") if listed is not None else None
        if listed is None or not json.is_array(tools):
            return result, []
        good: list[Any] = []
        rejected: list[ToolRejected] = []
        for each in tools:
            tool = json.as_object(each) or {}
            name, schema = str(tool.get("name")), json.as_object(tool.get("inputSchema"))
            self._known.pop(name, None)
            try:
                headers = mirrored.parameters(schema or {})
            except ValueError as error:
                rejected.append(ToolRejected(name, str(error)))
                continue
            good.append(each)
            if headers:
                self._remember(name, headers)
        return {**listed, "tools": good}, rejected

    def _remember(self, name: str, headers: dict[str, tuple[str, ...]]) -> None:
        self._known[name] = headers
        if len(self._known) > _MOST_TOOLS:
            del self._known[next(iter(self._known))]


@attrs.define(eq=False, repr=False)
class StatelessCarrier:
    """Carries one request, and what belongs to it back."""

    _core: ClientCore
    _owner: RequestOwner
    _call: int | None
    expects_messages: bool = attrs.field(default=True, init=False)
    response_headers: Headers = attrs.field(default=(), init=False)
    """They say nothing that a client needs."""
    _exchange: ClientExchange | None = attrs.field(default=None, init=False)
    _attempts: int = attrs.field(default=0, init=False)
    _opened: float | None = attrs.field(default=None, init=False)
    """When the response turned out to be an event stream."""
    _is_closed: bool = attrs.field(default=False, init=False)

    def post(self, request: Request) -> None:
        """Send the request, or another one in its place."""
        self._opened = None
        self._exchange = self._core.post(self, request)

    def close(self, *, complete: bool = False) -> None:
        """Nothing more is wanted; unless it is complete, that cancels the request."""
        self._is_closed = True
        self._core.timers.stop(Timer.RECONNECT, self)
        if complete:
            self._core.let_end(self._exchange)
        else:
            self._core.abort(self._exchange)

    def retry_due(self) -> None:
        """The delay before the next attempt is over."""
        self._owner.restart()

    # What comes of the HTTP request

    def opened(self) -> None:
        """The response is an event stream."""
        self._opened = self._core.now

    def received(self, event: SseEvent) -> None:
        """An event; ids mean nothing here."""
        if event.data and event.event == "message":
            self._decode(event.data.encode())

    def answered(self, message: Message | RemoteProtocolError) -> None:
        """A message."""
        if isinstance(message, RemoteProtocolError):
            self._owner.violated(message)
        else:
            self._owner.message(message)

    def ended(self, reason: str | None) -> None:
        """The response is over; if the answer was not in it, nobody knows what has happened.

        Attempts are counted until a stream has lasted: what it says is no progress, for the next
        one begins from the beginning.
        """
        if self._is_closed:
            return
        if self._opened is not None and self._core.now - self._opened > self._core.reconnect.cap:
            self._attempts = 0
        why = reason or "the server closed the stream before the answer"
        if not self._tries_again(why):
            self._owner.lost(why, complete=reason is None)

    def refused(self, refusal: Refusal) -> None:
        """The server said no; while a broken stream is replaced, that may pass."""
        may_pass = is_temporary(refusal.status) and refusal.error is None
        wait = refusal.retry_after
        if not (self._attempts and may_pass and self._tries_again(refusal.message, wait)):
            self._owner.refused(refusal)

    def _tries_again(self, why: str, wait: float = 0.0) -> bool:
        """Let the request be made again after a while, if that may be and is of any use.

        ``wait``: seconds that the server wants us to wait at least.
        """
        policy = self._core.reconnect
        self._attempts += 1
        if not self._owner.restarts or self._attempts > policy.attempts:
            return False
        delay = policy.delay(self._attempts, wait, self._core.jitter())
        self._core.timers.set(Timer.RECONNECT, self, self._core.now + delay)
        self._core.events.append(
            Reconnecting(call=self._call, delay=delay, attempt=self._attempts, reason=why)
        )
        return True

    def garbled(self, error: RemoteProtocolError) -> None:
        """The response cannot be read."""
        self._owner.garbled(error)

    def _decode(self, data: bytes) -> None:
        try:
            decoded = jsonrpc.decode(data, self._core.limits)
        except RemoteProtocolError as error:
            self._owner.violated(error)
            return
        for item in decoded.items if isinstance(decoded, Batch) else (decoded,):
            self.answered(item)
