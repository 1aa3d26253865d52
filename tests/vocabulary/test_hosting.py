"""What hosts of a server have in common, without a host."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

import pytest

from sansmcp import (
    Access,
    App,
    Authenticator,
    BaseCall,
    ConnectionInfo,
    JsonRpcError,
    LocalProtocolError,
    MemoryStore,
    Notification,
    Peer,
    PendingResult,
    RateLimit,
    Refusal,
    RemoteProtocolError,
    RequestHead,
    ServerCall,
    ServerDriver,
    StreamKey,
)
from sansmcp.events import (
    ClientNotified,
    ClientResponseReceived,
    ServerEvent,
    SessionOpened,
    StoreFailed,
)
from sansmcp.server.calls import RunningCall

from ..server.harness import ServerHarness, initialize, methods, notification, request


class Ended(Exception):
    pass


class Stopped(BaseException):
    """What a loop raises in a task that is cancelled."""


class Handle(BaseCall[Any, None]):
    """What the handlers of these tests get: the machine's call, for the test."""

    @property
    def bare(self) -> ServerCall:
        return self._call

    def wait_for_answer(self, id: int) -> Any:
        raise NotImplementedError

    def now(self) -> float:
        raise NotImplementedError

    def run_pending(self) -> None:
        raise NotImplementedError


class Host(ServerDriver):
    """Keeps what is to be awaited until the test lets it go on."""

    def __init__(self, harness: ServerHarness, authenticate: Authenticator | None = None) -> None:
        super().__init__(harness.server, harness.store, authenticate)
        self.harness = harness
        self.waiting: list[tuple[ServerCall, Awaitable[Any]]] = []
        self.failures: list[Exception] = []
        self.seen: list[ServerEvent] = []
        self.bugs: list[Exception] = []
        self.cancelled = 0

    def cancel(self) -> None:
        self.cancelled += 1

    def let_go_on(self) -> None:
        for call, result in self.waiting:
            work: Coroutine[Any, Any, None] = self.finish(call, result)
            with pytest.raises(StopIteration):
                work.send(None)
        self.waiting.clear()

    def wait_for(self, call: ServerCall, id: int, pending: PendingResult) -> None:
        self.pending_requests[call, id] = pending

    def now(self) -> float:
        return self.harness.now

    def handle_for(self, call: ServerCall) -> Handle:
        return Handle(call)

    def start_task(self, call: ServerCall, result: Awaitable[Any]) -> None:
        call.driver = self
        self.waiting.append((call, result))

    def on_handler_error(self, call: ServerCall, error: Exception) -> None:
        self.failures.append(error)

    def unexpected(self, error: Exception) -> None:
        self.bugs.append(error)

    def authentication_failed(self, error: Exception) -> None:
        self.failures.append(error)

    def on_other_event(self, event: ServerEvent) -> None:
        self.seen.append(event)


class DriverHarness(ServerHarness):
    """A bench whose server is driven by a host, with handlers that do as their params say."""

    def __init__(self, authenticate: Authenticator | None = None, **settings: Any) -> None:
        app = App("hosting", "1")
        app.handler("tools/call")(self._at_once)
        app.handler("tools/list")(self._later)
        super().__init__(app, authentication=authenticate is not None, **settings)
        self.host = Host(self, authenticate)
        self.calls: list[ServerCall] = []

    def run_pending(self) -> None:
        if self.takes_events:
            self.host.pump()

    def _at_once(self, handle: Handle) -> Any:
        self.calls.append(handle.bare)
        if "code" in handle.params:
            raise JsonRpcError(handle.params["code"], "mine")
        if "unsayable" in handle.params:
            raise JsonRpcError(-7, "mine", object())
        if "fails" in handle.params:
            raise Ended
        if "exits" in handle.params:
            raise SystemExit(3)
        if "stops" in handle.params:
            raise Stopped
        if "header" in handle.params:
            return {"said": [handle.headers[handle.params["header"]]]}
        if "object" in handle.params:
            return object()
        return {"at": "once"}

    async def _later(self, handle: Handle) -> Any:
        return {**self._at_once(handle), "at": "last"}


@pytest.fixture
def harness() -> DriverHarness:
    return DriverHarness()


def test_a_handler_answers_at_once_or_later(harness: DriverHarness) -> None:
    session = harness.open_session()
    assert harness.post(request(1), session).json["result"] == {"at": "once"}
    later = harness.post(request(2, "tools/list"), session)
    assert later.head is None
    harness.host.let_go_on()
    assert later.json["result"] == {"at": "last"}


@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
def test_what_a_handler_raises(harness: DriverHarness, method: str) -> None:
    session = harness.open_session()
    refused = harness.post(request(1, method, code=-7), session)
    broken = harness.post(request(2, method, fails=True), session)
    harness.host.let_go_on()
    assert (refused.error["code"], refused.error["message"]) == (-7, "mine")
    assert broken.error["code"] == -32603
    assert [type(failure) for failure in harness.host.failures] == [Ended]


@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
def test_a_handler_that_exits_ends_its_call_alone(harness: DriverHarness, method: str) -> None:
    answered = harness.post(request(1, method, exits=True), harness.open_session())
    harness.host.let_go_on()
    assert answered.error["code"] == -32603
    (failure,) = harness.host.failures
    assert "The handler has raised SystemExit(3)" in str(failure)
    assert isinstance(failure.__cause__, SystemExit)


@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
def test_an_error_that_is_not_json(harness: DriverHarness, method: str) -> None:
    answered = harness.post(request(1, method, unsayable=True), harness.open_session())
    harness.host.let_go_on()
    assert answered.error["code"] == -32603
    assert [type(failure) for failure in harness.host.failures] == [LocalProtocolError]


def test_a_result_that_is_not_json(harness: DriverHarness) -> None:
    session = harness.open_session()
    assert harness.post(request(1, object=True), session).error["code"] == -32603
    assert [type(failure) for failure in harness.host.failures] == [LocalProtocolError]


def test_a_cancelled_call_stops_its_handler(harness: DriverHarness) -> None:
    session = harness.open_session()
    harness.post(request(1, "tools/list"), session)
    harness.post(notification("notifications/cancelled", requestId=1), session)
    assert harness.host.cancelled == 1
    harness.host.let_go_on()


def test_a_handler_that_is_cancelled_by_its_host(harness: DriverHarness) -> None:
    talk = harness.post(request(1, "tools/list", stops=True), harness.open_session())
    ((call, result),) = harness.host.waiting
    with pytest.raises(Stopped):
        harness.host.finish(call, result).send(None)
    assert talk.error["code"] == -32603
    assert harness.host.failures == []


def test_a_call_that_is_cancelled_at_once_is_not_begun(harness: DriverHarness) -> None:
    session = harness.open_session()
    harness.takes_events = False
    harness.post(request(1), session)
    harness.post(notification("notifications/cancelled", requestId=1), session)
    harness.takes_events = True
    harness.run_pending()
    assert harness.calls == []


def test_answers_are_brought_to_who_asked(harness: DriverHarness) -> None:
    session = harness.open_session(capabilities={"elicitation": {}})
    harness.post(request(1, "tools/list"), session)
    harness.post(request(2, "tools/list"), session)
    pending = PendingResult()
    running = [call for call, _ in harness.host.waiting]
    ids = [harness.run_action(call.ask, "elicitation/create", {}, timeout=9) for call in running]
    harness.host.wait_for(running[0], ids[0], pending)
    for id in ids:
        harness.post({"jsonrpc": "2.0", "id": id, "result": {"a": id}}, session)
    answered: ClientResponseReceived = pending.result()
    assert answered.result() == {"a": ids[0]}
    harness.host.let_go_on()


def test_all_else_is_observed_and_publishing_is_passed_on(harness: DriverHarness) -> None:
    session = harness.open_session()
    listener = harness.get(session)
    assert type(harness.host.seen[0]) is SessionOpened
    harness.host.publish("notifications/tools/list_changed")
    assert methods(listener) == ["notifications/tools/list_changed"]


def test_notifications_reach_their_handlers(harness: DriverHarness) -> None:
    session = harness.open_session()
    seen: list[tuple[str, Any]] = []
    app = harness.server.app

    @app.on_notification("com.example/told")
    def told(peer: Peer, notification: Notification) -> None:
        seen.append(("told", notification.params))
        assert peer in harness.server.sessions

    @app.on_notification()
    def other(peer: Peer, notification: Notification) -> None:
        seen.append((notification.method, None))
        raise Broken

    for method in ("com.example/told", "notifications/roots/list_changed"):
        harness.post(notification(method, a=1), session)
    assert seen == [("told", {"a": 1}), ("notifications/roots/list_changed", None)]
    assert [type(bug) for bug in harness.host.bugs] == [Broken]


def test_notifications_without_a_handler_are_events(harness: DriverHarness) -> None:
    harness.post(notification("com.example/told"), harness.open_session())
    told = [each for each in harness.host.seen if isinstance(each, ClientNotified)]
    assert [each.notification.method for each in told] == ["com.example/told"]


class Broken(Exception):
    """What no machine raises."""


def breaking(count: int = 1) -> Callable[..., Any]:
    """A function that raises so many times, and does nothing afterwards."""
    left = [count]

    def act(*_: Any, **__: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise Broken

    return act


def test_a_driver_that_raises_costs_its_exchange(
    harness: DriverHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So with all of these tests."""
    session = harness.open_session()
    later = harness.post(request(1, "tools/list"), session)
    exchange = later.exchange
    driver, exchange.driver = exchange.driver, type("Driver", (), {"wake": breaking()})()
    harness.host.let_go_on()
    assert [type(bug) for bug in harness.host.bugs] == [Broken]
    exchange.driver = driver
    assert harness.post(request(2), session).json["result"] == {"at": "once"}


def test_connections_are_woken_once_all_events_are_handled(harness: DriverHarness) -> None:
    session = harness.open_session()
    later = harness.post(request(1, "tools/list"), session)
    ((call, _),) = harness.host.waiting
    woken: list[tuple[str, int]] = []

    def driver(name: str) -> Any:
        def wake(_: object) -> None:
            woken.append((name, len(harness.host.seen)))

        return type("Driver", (), {"wake": wake})()

    before = len(harness.host.seen)
    later.exchange.driver = driver("has something to send")
    call.respond({"at": "last"}, now=1.0)
    harness.server.refuse(
        harness.server.open_exchange(), RemoteProtocolError("no", reason="no"), now=1.0
    )  # which is an event
    harness.host.pump(driver("was fed"))
    assert woken == [("was fed", before + 1), ("has something to send", before + 1)]
    harness.host.let_go_on()


def test_a_completion_that_raises_is_a_failure_of_the_store(
    harness: DriverHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = harness.open_session()
    harness.post(request(1, "tools/list"), session)
    monkeypatch.setattr(harness.server, "perform_store_effect", breaking())
    ((call, _),) = harness.host.waiting
    call.notify("notifications/message", {"level": "info", "data": 1}, now=1.0)
    harness.host.pump()
    assert [type(bug) for bug in harness.host.bugs] == [Broken]
    assert any(isinstance(event, StoreFailed) for event in harness.host.seen)
    harness.host.let_go_on()


def test_an_event_that_cannot_be_taken_ends_its_call(
    harness: DriverHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = harness.open_session()
    monkeypatch.setattr(harness.host, "start_handler", breaking())
    assert harness.post(request(1), session).json["error"]["code"] == -32603
    monkeypatch.setattr(harness.host, "on_other_event", breaking())
    harness.server.refuse(
        harness.server.open_exchange(),
        RemoteProtocolError("no", reason="no"),
        now=0.0,
    )
    harness.host.pump()
    assert [type(bug) for bug in harness.host.bugs] == [Broken, Broken]


def test_an_answer_that_cannot_be_given_is_given_up(
    harness: DriverHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = harness.open_session()
    monkeypatch.setattr(RunningCall, "respond_exception", breaking(2))
    assert harness.post(request(1, "tools/call", fails=True), session).head is None
    assert [type(each) for each in harness.host.failures] == [Ended, Broken, Broken]


def test_a_machine_that_raises_is_driven_on(
    harness: DriverHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = harness.open_session()
    drive = harness.server.drive
    breaks = breaking(3)

    def failing(*arguments: Any) -> None:
        breaks()
        drive(*arguments)

    monkeypatch.setattr(harness.server, "drive", failing)
    assert harness.post(request(1), session).json["result"] == {"at": "once"}
    monkeypatch.setattr(harness.server, "drive", breaking(1000))
    harness.server.refuse(
        harness.server.open_exchange(), RemoteProtocolError("no", reason="no"), now=0.0
    )  # which is an event to pull
    harness.host.pump()
    assert len(harness.host.bugs) == 103


def test_time_goes_on_after_a_while(
    harness: DriverHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert harness.host.next_deadline() == math.inf
    monkeypatch.setattr(harness.server, "next_deadline", breaking())
    soon = harness.host.next_deadline()
    assert 0.0 < soon < 1.0
    monkeypatch.setattr(harness.server, "handle_timeout", breaking())
    monkeypatch.setattr(harness.server, "next_deadline", lambda: -1.0)
    harness.host.handle_timeout()
    assert harness.host.next_deadline() == soon
    assert [type(bug) for bug in harness.host.bugs] == [Broken, Broken]


def test_what_is_done_safely(harness: DriverHarness) -> None:
    assert harness.host.safely(lambda: 1) == 1
    assert harness.host.safely(breaking()) is None
    assert [type(bug) for bug in harness.host.bugs] == [Broken]


def test_a_handler_sees_the_headers_of_its_request(harness: DriverHarness) -> None:
    message = request(1, header="x-one")
    talk = harness.post(message, harness.open_session(), headers={"x-one": "two"})
    assert talk.json["result"] == {"said": ["two"]}


def test_standalone_streams_are_closed_at_request(harness: DriverHarness) -> None:
    listener = harness.get(harness.open_session())
    assert harness.host.disconnect_streams(retry=1.0) == 1
    assert listener.ended
    assert harness.host.disconnect_streams() == 0


@pytest.mark.parametrize("result", [{"at": "last"}, Ended()])
def test_what_a_handler_in_a_thread_has_done_concludes_its_call(
    harness: DriverHarness, result: dict[str, Any] | Ended
) -> None:
    talk = harness.post(request(1, "tools/list"), harness.open_session())
    ((call, awaited),) = harness.host.waiting
    harness.host.waiting.clear()
    cast("Coroutine[Any, Any, Any]", awaited).close()

    def work() -> dict[str, Any]:
        if isinstance(result, Ended):
            raise result
        return result

    harness.host.conclude(call, work)
    harness.run_pending()
    if isinstance(result, Ended):
        assert talk.error["code"] == -32603
        assert harness.host.failures == [result]
    else:
        assert talk.json["result"] == result


def test_authenticate_and_a_machine_that_asks_belong_together(harness: DriverHarness) -> None:
    with pytest.raises(LocalProtocolError, match="belong together"):
        Host(harness, lambda head, connection: "ada")


def by_header(head: RequestHead, connection: ConnectionInfo) -> str | Refusal:
    (token,) = head.values(b"authorization")
    if token == b"broken":
        raise Ended
    return "ada" if token == b"right" else Refusal(403)


@pytest.mark.parametrize(("token", "status"), [("right", 200), ("wrong", 403), ("broken", 500)])
def test_a_plain_authenticate_is_called_in_place(token: str, status: int) -> None:
    harness = DriverHarness(by_header)
    harness.takes_events = True
    talk = harness.post(initialize("2025-11-25", {}), headers={"authorization": token})
    assert talk.status == status
    assert len(harness.host.failures) == (token == "broken")
    assert harness.host.bugs == []


class Knowing:
    """Knows two tokens by heart."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, head: RequestHead, connection: ConnectionInfo) -> str | Refusal:
        self.asked += 1
        return by_header(head, connection)

    def find_known(self, head: RequestHead, connection: ConnectionInfo) -> Access | Refusal | None:
        (token,) = head.values(b"authorization")
        if token == b"wrong by heart":
            raise Ended
        if token == b"known":
            return Access("ada")
        return Refusal(401) if token == b"bad" else None


@pytest.mark.parametrize(
    ("token", "status", "asked"),
    [("known", 200, 0), ("bad", 401, 0), ("right", 200, 1), ("wrong", 403, 1)],
)
def test_what_authenticate_knows_is_not_asked(token: str, status: int, asked: int) -> None:
    authenticate = Knowing()
    harness = DriverHarness(authenticate)
    talk = harness.post(initialize("2025-11-25", {}), headers={"authorization": token})
    assert (talk.status, authenticate.asked) == (status, asked)


def test_an_authenticate_that_fails_to_know_is_contained() -> None:
    harness = DriverHarness(Knowing())
    headers = {"authorization": "wrong by heart"}
    assert harness.post(initialize("2025-11-25", {}), headers=headers).status == 500
    assert len(harness.host.failures) == 1


def test_an_async_authenticate_needs_an_event_loop() -> None:
    async def authenticate(head: RequestHead, connection: ConnectionInfo) -> str:
        return "ada"

    harness = DriverHarness(authenticate)
    talk = harness.post(initialize("2025-11-25", {}))
    assert talk.status == 500
    (problem,) = harness.host.bugs
    assert "plain function" in str(problem)


# Stores that tell of changes, and those that do not


class TellingStore(MemoryStore):
    """Keeps the functions to call when a log has new entries."""

    def __init__(self) -> None:
        super().__init__()
        self.watches: dict[StreamKey, Callable[[], None]] = {}

    def watch(self, key: StreamKey, changed: Callable[[], None]) -> Callable[[], None]:
        self.watches[key] = changed

        def end() -> None:
            del self.watches[key]

        return end


def test_a_store_that_tells_of_changes_needs_an_event_loop() -> None:
    store = TellingStore()
    harness = DriverHarness(store=store, shared_store=True)
    harness.open_session()
    (changed,) = store.watches.values()
    with pytest.raises(LocalProtocolError, match="must have no watch"):
        changed()


def test_a_store_that_cannot_watch_is_a_bug_of_the_store_and_is_asked_now_and_then() -> None:
    class Unable(TellingStore):
        def watch(self, key: StreamKey, changed: Callable[[], None]) -> Callable[[], None]:
            raise RuntimeError("no room for a watch")

    harness = DriverHarness(store=Unable(), shared_store=True)
    harness.open_session()
    (problem,) = harness.host.bugs
    assert str(problem) == "no room for a watch"


def test_the_watches_of_a_store_end_with_the_server() -> None:
    store = TellingStore()
    harness = DriverHarness(store=store, shared_store=True)
    harness.open_session()
    assert len(store.watches) == 1
    harness.host.end_watches()
    assert store.watches == {}
    harness.host.end_watches()


class UncountingStore:
    """A store that counts no requests for a rate limit."""

    def __init__(self) -> None:
        memory = MemoryStore()
        self.append, self.read, self.drop = memory.append, memory.read, memory.drop


def test_a_store_that_counts_no_requests_leaves_that_to_the_instance() -> None:
    limit = RateLimit(1, burst=2)
    harness = DriverHarness(store=UncountingStore(), shared_store=True, rate_limit=limit)
    statuses = [harness.post(initialize()).status for _ in range(3)]
    assert statuses == [200, 200, 429]


def test_a_store_that_does_not_tell_is_read_from_time_to_time() -> None:
    harness = DriverHarness(shared_store=True)
    assert harness.host.next_deadline() == math.inf
    harness.open_session()
    assert harness.host.bugs == []
    assert harness.host.next_deadline() <= harness.server.limits.store_poll_interval
