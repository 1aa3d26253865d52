"""A server on the bench: requests in as message parts, all that it does recorded, time by hand."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sansmcp
from sansmcp import (
    App,
    BodyData,
    BodyEnd,
    ConnectionInfo,
    ConnectionLost,
    Idle,
    RemoteProtocolError,
    RequestHead,
    ResponseHead,
    Server,
    ServerCall,
    ServerSettings,
    SseDecoder,
    SseEvent,
)
from sansmcp.effects import (
    Abort,
    Authenticate,
    SendBody,
    SendEnd,
    SendHead,
    ServerEffect,
    StoreDrop,
    StoreEffect,
    StoreTake,
    StoreUnwatch,
    StoreWatch,
    Wake,
)
from sansmcp.events import CallReceived, RefusalSent, ServerEvent
from sansmcp.testing import sequential_tokens

from ..handlers import nothing
from ..messages import LATEST as LATEST
from ..messages import PING as PING
from ..messages import initialize as initialize
from ..messages import notification as notification
from ..messages import request as request
from ..timed_harness import Machine, TimedHarness

if TYPE_CHECKING:
    from sansmcp import MemoryStore, StreamKey

from sansmcp.types import Unpack

JSON = "application/json"
STREAM = "text/event-stream"
BOTH = f"{JSON}, {STREAM}"


def example_app() -> App:
    """Methods whose calls the test answers by hand."""
    app = App("bench", "1")
    for method in ("tools/call", "tools/list", "resources/read"):
        app.handler(method)(nothing)
    return app


def is_of_all(stream: StreamKey) -> bool:
    """Whether a log is a lease, or holds what belongs to no call."""
    return stream.stream in (".lease", ".notify") or stream.session == ".publish"


class RawExchange:
    """One exchange, and the response as far as it has been sent."""

    connection = ConnectionInfo()
    """What is known of its connection: nothing."""

    def __init__(self, harness: ServerHarness) -> None:
        self.harness = harness
        self.exchange = harness.server.open_exchange(self)
        self.head: ResponseHead | None = None
        self.body = b""
        self.ended = False
        self.aborted = False
        self.paused = False
        self.reads = True
        """Whether the driver pulls what is to be sent."""
        if harness.lives_on:
            harness.talks.append(self)

    @property
    def is_over(self) -> bool:
        """Whether the response was sent in full, or broken off."""
        return self.ended or self.aborted

    def feed(self, part: RequestHead | BodyData | BodyEnd | ConnectionLost) -> RawExchange:
        self.harness.server.receive_part(self.exchange, part, now=self.harness.now)
        self.pull()
        self.harness.run_pending()
        return self

    def lose_connection(self) -> RawExchange:
        return self.feed(ConnectionLost())

    def pull(self) -> None:
        """Do what a driver does: send until there is nothing to send."""
        while self.reads:
            match self.harness.server.next_effect_of(self.exchange):
                case SendHead(head):
                    assert self.head is None
                    self.head = head
                case SendBody(data):
                    assert self.head is not None
                    self.body += data
                case SendEnd():
                    self.ended = True
                case Abort():
                    self.aborted = True
                case Idle() as idle:
                    self.paused = idle is Idle.PAUSED
                    return

    wake = pull

    @property
    def status(self) -> int | None:
        return None if self.head is None else self.head.status

    def header(self, name: str) -> str | None:
        assert self.head is not None
        values = [value.decode() for key, value in self.head.headers if key == name.encode()]
        return values[0] if values else None

    @property
    def json(self) -> Any:
        assert self.header("content-type") == JSON
        assert int(self.header("content-length") or 0) == len(self.body)
        return json.loads(self.body)

    @property
    def events(self) -> list[SseEvent]:
        assert self.header("content-type") == STREAM
        return SseDecoder(10**8).feed(self.body)

    @property
    def messages(self) -> list[Any]:
        """The messages of the event stream, or the one of a JSON response, as far as sent."""
        if self.head is None:
            return []
        if self.header("content-type") == JSON:
            return [self.json] if self.body else []
        return [json.loads(event.data) for event in self.events if event.data]

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.json["error"]
        return error

    @property
    def last_id(self) -> str:
        return self.events[-1].last_event_id


class ServerHarness(TimedHarness):
    """A server, its store, its application's events, and the time."""

    def __init__(
        self,
        app: App | None = None,
        *,
        store_works: bool = True,
        store_tells: bool = False,
        store: MemoryStore | None = None,
        tokens: str = "token",
        authentication: bool = False,
        **settings: Unpack[ServerSettings],
    ) -> None:
        self.server = Server(
            app or example_app(),
            new_token=sequential_tokens(tokens),
            authentication=authentication,
            **settings,
        )
        if store is not None:
            self.store = store
        self.store_works = store_works
        self.leases_work = True
        """Whether the store does what concerns leases and publications, also if ``store_works`` is
        False.
        """
        self.store_tells = store_tells
        """Whether the store tells of changes; :meth:`tell` does."""
        self.watches: set[StreamKey] = set()
        """The logs of which it is to tell."""
        self.waiting: list[StoreEffect] = []
        """Uses of the store that are not done yet; only if ``store_works`` is False."""
        self.asked: list[Authenticate] = []
        """The requests whose principal the server wants to know."""
        self.events: list[ServerEvent] = []
        self.takes_events = True
        self.talks: list[RawExchange] = []
        """All that were begun, if the bench lives on."""
        self.ids = itertools.count(1)
        super().__init__()

    @functools.cached_property
    def store(self) -> MemoryStore:
        """What keeps the streams of sessions; there is none before it is needed."""
        return sansmcp.MemoryStore(self.server.limits)

    # Driving

    @property
    def watched(self) -> set[StreamKey]:
        """The logs of which the store is to tell, other than those that belong to no call."""
        return {stream for stream in self.watches if not is_of_all(stream)}

    def run_pending(self) -> None:
        """Do everything that there is to do."""
        if self.takes_events:
            self.server.drive(self.perform, self.events.append)
        while not isinstance(effect := self.server.next_effect(), Idle):
            self.perform(effect)

    def perform(self, effect: ServerEffect) -> None:
        if isinstance(effect, Wake):
            effect.exchange.driver.pull()
        elif isinstance(effect, Authenticate):
            self.asked.append(effect)
        elif isinstance(effect, StoreWatch):
            assert effect.stream not in self.watches
            self.watches.add(effect.stream)
            if self.store_tells:
                self.server.store_watched(effect, now=self.now)
        elif isinstance(effect, StoreUnwatch):
            self.watches.remove(effect.stream)
        elif self.store_works or self._is_of_lease(effect):
            self.perform_store_effect(effect)
        else:
            self.waiting.append(effect)

    def _is_of_lease(self, effect: StoreEffect) -> bool:
        """Whether an effect is about a lease or a publication, and is performed meanwhile."""
        if isinstance(effect, StoreDrop | StoreTake):
            return False
        return self.leases_work and is_of_all(effect.stream)

    def perform_store_effect(self, effect: StoreEffect) -> None:
        self.server.perform_store_effect(effect, self.store, now=self.now)

    def use_store_once(self) -> StoreEffect:
        """Let the store do the next thing that it was asked for."""
        effect = self.waiting.pop(0)
        self.perform_store_effect(effect)
        self.run_pending()
        return effect

    def use_store_except(self, held: StoreEffect) -> None:
        """Let the store do all that it was asked for, except one effect."""
        while others := [each for each in self.waiting if each is not held]:
            self.waiting.remove(others[0])
            self.perform_store_effect(others[0])
            self.run_pending()

    def fail_store_once(self, effect: StoreEffect | None = None) -> None:
        """Let the store fail at the next thing that it was asked for, or at this one."""
        self._fail_store(effect or self.waiting[0])

    def fail_store_for_good(self, effect: StoreEffect | None = None) -> None:
        """Let the store fail at the next effect, or at this one, until that is given up."""
        effect = effect or self.waiting[0]
        while effect in self.waiting:
            self._fail_store(effect)
            self.wait(1.0)  # it is repeated by then

    def _fail_store(self, effect: StoreEffect) -> None:
        self.waiting.remove(effect)
        self.server.store_failed(effect, "disk full", now=self.now)
        self.run_pending()

    def tell(self) -> None:
        """Let the store tell of changes of all logs of which it is to tell."""
        for stream in tuple(self.watches):
            self.server.store_changed(stream, now=self.now)
        self.run_pending()

    @property
    def machines(self) -> Sequence[Machine]:
        return (self.server,)

    def stall(self) -> None:
        """Let nobody read, and the server take nothing new."""
        self.server.drain(now=self.now)
        for talk in self.talks:
            talk.reads = False

    def stop(self) -> None:
        """Stop without grace; what has not ended by then is broken off."""
        self.takes_events = self.store_works = True
        self.server.shut_down(now=self.now)
        for talk in self.talks:
            talk.reads = True
            talk.pull()
        self.run_pending()
        while self.waiting:
            self.use_store_once()
        for talk in self.talks:
            if not talk.is_over:
                talk.lose_connection()

    def check_stopped(self) -> None:
        """No call runs, there are no sessions, and nothing is to be sent."""
        assert not self.server.is_busy
        assert self.server.sessions == ()
        assert isinstance(self.server.next_effect(), Idle)
        assert self.watched == set()
        for talk in self.talks:
            assert talk.exchange.is_done
            assert isinstance(self.server.next_effect_of(talk.exchange), Idle)

    def run_action(self, action: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Let the application do something now."""
        result = action(*arguments, now=self.now, **options)
        self.run_pending()
        return result

    # Requests

    def send(
        self,
        method: str,
        headers: Mapping[str, str | None] | None = None,
        body: bytes = b"",
        *,
        target: str = "/mcp",
        principal: str = "",
        root: str = "",
    ) -> RawExchange:
        """A whole request."""
        pairs = {"host": "localhost", **(headers or {})}
        head = RequestHead(
            method=method.encode(),
            target=target.encode(),
            headers=tuple(
                (name.lower().encode(), value.encode("latin-1"))
                for name, value in pairs.items()
                if value is not None
            ),
            principal=principal,
            root=root.encode(),
        )
        talk = RawExchange(self).feed(head)
        if body:
            talk.feed(BodyData(body))
        return talk.feed(BodyEnd())

    def post(
        self,
        message: Any,
        session: str | None = None,
        version: str | None = LATEST,
        headers: Mapping[str, str | None] | None = None,
        *,
        principal: str = "",
    ) -> RawExchange:
        """A POST of a JSON value, or of bytes."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.send(
            "POST",
            {
                "accept": BOTH,
                "content-type": JSON,
                "content-length": str(len(body)),
                "mcp-session-id": session,
                "mcp-protocol-version": version if session is not None else None,
                **(headers or {}),
            },
            body,
            principal=principal,
        )

    def get(
        self,
        session: str | None,
        last_event_id: str | None = None,
        headers: Mapping[str, str | None] | None = None,
        *,
        principal: str = "",
    ) -> RawExchange:
        """A GET for an event stream."""
        return self.send(
            "GET",
            {
                "accept": STREAM,
                "mcp-session-id": session,
                "last-event-id": last_event_id,
                **(headers or {}),
            },
            principal=principal,
        )

    def open_session(
        self,
        version: str = LATEST,
        capabilities: Mapping[str, Any] | None = None,
        *,
        principal: str = "",
    ) -> str:
        """The whole handshake; returns the session id."""
        talk = self.post(initialize(version, capabilities), principal=principal)
        assert talk.status == 200, talk.body
        session = talk.header("mcp-session-id")
        assert session is not None
        ready = self.post(
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            session,
            version,
            principal=principal,
        )
        assert ready.status == 202
        self.events.clear()
        return session

    def call(
        self,
        session: str | None,
        id: int | str | None = None,
        *,
        method: str = "tools/call",
        version: str | None = LATEST,
        token: int | str | None = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> tuple[RawExchange, ServerCall]:
        """A request, and the call that the application gets."""
        message = request(next(self.ids) if id is None else id, method)
        if token is not None:
            message["params"]["_meta"] = {"progressToken": token}
        talk = self.post(message, session, version, headers)
        return talk, self.last_call()

    def last_call(self) -> ServerCall:
        event = self.events.pop()
        assert isinstance(event, CallReceived), event
        return event.call


def methods(talk: RawExchange) -> list[str]:
    """The names of the messages on a stream; an answer is "answer"."""
    return [message.get("method", "answer") for message in talk.messages]


def report_progress_all(harness: ServerHarness, call: Any, *names: str) -> None:
    for name in names:
        harness.run_action(call.notify, name)


def expect(talk: RawExchange, status: int, reason: str, code: int = -32600, id: Any = None) -> None:
    """The refusal is one line of JSON-RPC error, and the application is told the same."""
    assert (talk.status, talk.ended) == (status, True), talk.body
    assert b"\n" not in talk.body
    answer = talk.json
    assert answer["error"]["code"] == code
    assert answer["error"]["data"]["reason"] == reason
    assert len(answer["error"]["message"].splitlines()) == 1
    assert answer.get("id") == id
    assert ("id" in answer) == (id is not None)
    event = talk.harness.events[-1]
    assert isinstance(event, RefusalSent)
    assert isinstance(event.error, RemoteProtocolError)
    assert event.error.reason == reason
