"""One HTTP request of a client, and what its response turns out to be.

A response is an event stream, one JSON document, an acknowledgement without content, or a refusal;
only its head tells. The exchange sorts that out, decodes, and tells its owner in terms of messages.
It also applies the brake: when the application does not take events, the bytes of event streams
stay undecoded, and with them the end of the stream, so that nothing overtakes anything.

Source: 2025-03-26 to 2026-07-28, basic/transports: Sending Messages to the Server.
"""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING, Protocol

import attrs

from ..codecs import headers, json, jsonrpc
from ..codecs.buffer import too_large
from ..codecs.headers import Headers
from ..codecs.jsonrpc import Batch
from ..codecs.sse import SseDecoder, SseEvent
from ..errors import LocalProtocolError, RemoteProtocolError
from ..http import BodyData, BodyEnd, PeerGone, ResponseHead, ResponsePart, Url
from ..messages import ErrorResponse, Message
from ..timers import Timer
from ..types import Secret, hide_credentials, never

if TYPE_CHECKING:
    from .core import ClientCore

_DIAGNOSIS_BYTES = 64 * 1024
"""How much of a refusal's body is looked at."""
_LONGEST_WAIT = 300.0
"""Seconds; a server that wants more is asked in vain now and then."""
_DENIALS = {401: "the server requires authorization", 403: "the server does not permit this"}
_CHALLENGE_CHARS = 300
"""How much of each challenge is shown in a message."""
_SECONDS = re.compile("[0-9]{1,9}")


@attrs.frozen
class Refusal:
    """A response that is no success."""

    status: int
    url: Url
    http_method: bytes
    headers: Headers
    body: bytes
    error: ErrorResponse | None
    """The JSON-RPC error in the body, if there is one."""
    session_id: Secret | None
    """The session that the request named."""

    @property
    def reason(self) -> str | None:
        """``error.data.reason``, where the server gives one."""
        data = json.as_object(self.error.data) if self.error is not None else None
        reason = data.get("reason") if data is not None else None
        return reason if isinstance(reason, str) else None

    @property
    def challenges(self) -> tuple[str, ...]:
        """The values of ``WWW-Authenticate``. Source: RFC 9110, 11.6.1."""
        values = headers.get_all(self.headers, b"www-authenticate")
        return tuple(value.decode("latin-1") for value in values)

    @property
    def retry_after(self) -> float:
        """Seconds that the server wants us to wait before we ask again; 0 if it does not say.

        Dates are not understood: there is no such clock here. Source: RFC 9110, 10.2.3.
        """
        value = headers.single(headers.get_all(self.headers, b"retry-after")) or ""
        return min(float(value), _LONGEST_WAIT) if _SECONDS.fullmatch(value) else 0.0

    @property
    def message(self) -> str:
        """What happened, for a person, with what the server says about it."""
        said = self.error.message if self.error is not None else _excerpt(self.body)
        if self.reason is not None:
            said += f" ({self.reason})"
        location = headers.get(self.headers, b"location")
        if 200 <= self.status < 300:
            without = b"content without a type" if self.body else b"no content"
            named = headers.media_type(headers.get_all(self.headers, b"content-type"))
            kind = (named or without).decode("latin-1")
            said = f"{kind} instead of JSON or an event stream" + (said and f": {said}")
            if self.status in (202, 204):
                said += "; if messages of HTTP+SSE go here, open the URL of its event stream"
        elif location is not None:
            said = f"a redirect to {_shown(location)!r}, which is not followed"
        elif self.status in _DENIALS:
            challenges = "".join(f" ({text[:_CHALLENGE_CHARS]})" for text in self.challenges)
            said = "; ".join(filter(None, (said, _DENIALS[self.status] + challenges)))
        request = f"{self.http_method.decode()} {self.url.shown}"
        return f"{request} was answered with HTTP {self.status}: {said or 'no explanation'}"


class ExchangeOwner(Protocol):
    """Who made a request, and is told what comes of it.

    After ``ended``, ``refused`` or ``garbled`` nothing more comes.
    """

    expects_messages: bool
    """Whether the response says anything; if not, every success is as good as any other."""

    def opened(self) -> None:
        """The response is an event stream."""

    def received(self, event: SseEvent) -> None:
        """A block of the event stream."""

    def answered(self, message: Message | RemoteProtocolError) -> None:
        """A message of a JSON response; an error is an element of a batch that is no message."""

    def ended(self, reason: str | None) -> None:
        """The response is complete, or (with a reason) broke off."""

    def refused(self, refusal: Refusal) -> None:
        """The response is no success."""

    def garbled(self, error: RemoteProtocolError) -> None:
        """The response cannot be read any further."""


@attrs.define(eq=False, repr=False)
class Nobody:
    """Owns a response of which nothing more is wanted."""

    expects_messages: bool = attrs.field(default=True, init=False)

    def opened(self) -> None:
        """Of no interest."""

    def received(self, event: SseEvent) -> None:
        """Of no interest."""

    def answered(self, message: Message | RemoteProtocolError) -> None:
        """Of no interest."""

    def ended(self, reason: str | None) -> None:
        """Of no interest."""

    def refused(self, refusal: Refusal) -> None:
        """Of no interest."""

    def garbled(self, error: RemoteProtocolError) -> None:
        """Of no interest."""


NOBODY = Nobody()


class _Form(enum.Enum):
    UNKNOWN = enum.auto()
    STREAM = enum.auto()
    JSON = enum.auto()
    IGNORED = enum.auto()
    REFUSAL = enum.auto()


@attrs.define(eq=False, repr=False)
class ClientExchange:
    """One HTTP request and its response."""

    _core: ClientCore
    owner: ExchangeOwner
    url: Url
    method: bytes
    headers: Headers
    body: bytes
    _last_event_id: str
    _session_id: Secret | None
    id: int = attrs.field(default=0, init=False)
    response: ResponseHead | None = attrs.field(default=None, init=False)
    _redirects: int = attrs.field(default=0, init=False)
    _form: _Form = attrs.field(default=_Form.UNKNOWN, init=False)
    _decoder: SseDecoder = attrs.field(init=False)
    _collected: bytearray = attrs.field(factory=bytearray, init=False)
    _end: BodyEnd | PeerGone | None = attrs.field(default=None, init=False)
    last_heard: float = attrs.field(default=0.0, init=False)
    """When the request was made, or the latest part of the response came: seconds on the machine's
    clock.
    """

    @property
    def reconnection_time(self) -> int | None:
        """Milliseconds to wait before reconnecting, as this response last said; None if it did not.

        It counts as soon as its line has come, before its block is complete.
        """
        return self._decoder.reconnection_time if self._form is _Form.STREAM else None

    def send(self) -> None:
        """Make the request."""
        self.last_heard = self._core.now
        self.id = self._core.send(self)

    def receive(self, part: ResponsePart) -> None:
        """Take a part of the response."""
        self.last_heard = self._core.now
        try:
            match part:
                case ResponseHead():
                    self._head(part)
                case BodyData(data):
                    self._data(data)
                case BodyEnd() | PeerGone():
                    self._end = part
                case _ as impossible:
                    never(impossible)
        except RemoteProtocolError as error:
            self._garbled(error)
        else:
            self.go_on()

    def go_on(self) -> None:
        """Decode what has arrived, as long as the application keeps up."""
        try:
            if self._form is _Form.STREAM and not self._decode():
                return
            if self._end is not None and self._core.exchanges.pop(self.id, None) is not None:
                self._core.timers.stop(Timer.DRAIN, self)
                self._finish(self._end)
        except RemoteProtocolError as error:
            self._garbled(error)

    def _head(self, head: ResponseHead) -> None:
        self.response = head
        kind = headers.media_type(headers.get_all(head.headers, b"content-type"))
        if not 200 <= head.status < 300:
            self._form = _Form.REFUSAL
        elif not self.owner.expects_messages:
            self._form = _Form.IGNORED
            if kind == headers.EVENT_STREAM:  # it might never end
                self._core.abort(self)
                self.owner.ended(None)
        elif head.status == 200 and kind == headers.EVENT_STREAM:
            self._form = _Form.STREAM
            limit = self._core.limits.max_message_bytes
            self._decoder = SseDecoder(limit, last_event_id=self._last_event_id)
            self.owner.opened()
        else:
            self._form = _Form.JSON if kind == headers.JSON else _Form.REFUSAL

    def _data(self, data: bytes) -> None:
        if self._form is _Form.STREAM:
            self._decoder.receive_data(data)
        elif self._form is _Form.JSON:
            self._collected += data
            if len(self._collected) > self._core.limits.max_message_bytes:
                raise too_large(self._core.limits.max_message_bytes)
        elif self._form is _Form.REFUSAL:
            self._collected += data[: _DIAGNOSIS_BYTES - len(self._collected)]

    def _decode(self) -> bool:
        """Tell the owner of the blocks that have arrived.

        False if the application must take events before.
        """
        while self.id in self._core.exchanges:
            if self._core.is_full:
                return False
            event = self._decoder.next_event()
            if not isinstance(event, SseEvent):
                break
            self.owner.received(event)
        return True

    def _garbled(self, error: RemoteProtocolError) -> None:
        self._core.abort(self)
        self.owner.garbled(error)

    def _finish(self, end: BodyEnd | PeerGone) -> None:
        if self._form is _Form.REFUSAL:
            if not self._follow_redirect():
                self.owner.refused(self._refusal())
        elif isinstance(end, PeerGone):
            self.owner.ended(end.reason)
        else:
            messages = self._messages()
            owner, self.owner = self.owner, NOBODY  # else each would keep the other in memory
            for message in messages:
                owner.answered(message)
            owner.ended(None)

    def _messages(self) -> tuple[Message | RemoteProtocolError, ...]:
        """What a response in JSON says."""
        if self._form is not _Form.JSON:
            return ()
        body, self._collected = bytes(self._collected), bytearray()
        decoded = jsonrpc.decode(body, self._core.limits)
        return decoded.items if isinstance(decoded, Batch) else (decoded,)

    def _refusal(self) -> Refusal:
        assert self.response is not None
        body = bytes(self._collected)
        try:
            message = jsonrpc.decode(body, self._core.limits)
        except RemoteProtocolError:
            message = None
        error = message if isinstance(message, ErrorResponse) else None
        return Refusal(
            self.response.status,
            self.url,
            self.method,
            self.response.headers,
            body,
            error,
            self._session_id,
        )

    def _follow_redirect(self) -> bool:
        """Ask again where the server says; credentials leave the origin never (CVE-2022-1650).

        307 and 308 keep method and body; the others make a POST a GET and are followed only for
        what is one already.
        """
        assert self.response is not None
        location = headers.get(self.response.headers, b"location")
        followed = (307, 308) if self.method == b"POST" else (301, 302, 303, 307, 308)
        if location is None or self.response.status not in followed:
            return False
        try:
            url = self.url.join(location.decode("latin-1"))
        except LocalProtocolError:
            return False
        if url.origin != self.url.origin or self._redirects >= self._core.limits.max_redirects:
            return False
        self._redirects += 1
        self._core.moved(self.url, url)
        self.url = url
        self._form, self._end, self.response = _Form.UNKNOWN, None, None
        self._collected.clear()
        self.send()
        return True


def _excerpt(body: bytes) -> str:
    """The start of a body as one line of text."""
    return " ".join(body[:200].decode("utf-8", "replace").split())


def _shown(location: bytes) -> str:
    return hide_credentials(location.decode("latin-1"))
