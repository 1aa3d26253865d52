"""What machines still hold: the one place of the simulator that looks into them."""

# What must not be left is not to be seen from outside: that is what makes it a leak.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Iterator
from typing import Any

from sansmcp import Client, Server, ServerCall, StreamKey
from sansmcp.server.calls import RunningCall
from sansmcp.server.exchange import ServerExchange
from sansmcp.server.keyed_calls import KeyedCall
from sansmcp.server.legacy.sessions import LegacySession
from sansmcp.server.logs import LogReader, ReaderState
from sansmcp.server.modern.running_task import RunningTask
from sansmcp.server.modern.task_listening import TaskWatch
from sansmcp.states import ClientState, ExchangeState, LogState, SessionState
from sansmcp.timers import Timer

from .network import Wire


def unsent_bytes(server: Server) -> int:
    """Bytes that wait for all readers."""
    return server._core.unsent.total  # noqa: SLF001


def running_tasks(server: Server) -> int:
    """Return how many tasks have handlers that run here."""
    return len(server._tasks._running)  # noqa: SLF001


def has_room_for_tasks(server: Server) -> bool:
    """Return whether the handler of another task may run here."""
    table = server._tasks  # noqa: SLF001
    taken = table._principals.total + table._appends.claims.total  # noqa: SLF001
    return taken < table._core.limits.max_tasks  # noqa: SLF001


def timers_of_the_ended(machine: Client | Server) -> Iterator[str]:
    """Timers of what has ended: they keep it in memory, and may do something to it."""
    timers = machine._timers if isinstance(machine, Client) else machine._core.timers  # noqa: SLF001
    for timer, key in (*timers._entries, *timers._unplaced):  # noqa: SLF001
        if isinstance(machine, Client):
            if key not in _alive(machine, timer):
                yield f"a timer ({timer.name}) of what has ended"
            continue
        match timer, key:
            case _, LegacySession(state=SessionState.ENDED):
                yield "a timer of a session that has ended"
            case Timer.CLIENT_RESPONSE, (LegacySession(pending_requests=asked), int(id)) if (
                id not in asked
            ):
                yield "a timer of a question that is answered"
            case Timer.TASK, RunningCall(is_running=False):
                yield "a timer of a call that has ended"
            case Timer.RECLAIM, KeyedCall(responder=None):
                yield "a timer of a call that has ended"
            case Timer.STORED, RunningTask() if key not in machine._tasks._running.values():  # noqa: SLF001
                yield "a timer of a task that has ended"
            case _:
                pass


def _alive(client: Client, timer: Timer) -> Container[Hashable]:
    """Return the keys that a timer of a client may have."""
    match timer:
        case Timer.REQUEST | Timer.TASK_POLL:
            return client._requests.calls  # noqa: SLF001
        case Timer.REPEAT:
            return {**client._requests.calls, **client._requests.own}  # noqa: SLF001
        case Timer.RECONNECT | Timer.STREAM_IDLE:
            requests = (*client._requests.calls.values(), *client._requests.own.values())  # noqa: SLF001
            streams = [each.number for each in requests if each.stream is not None]
            is_silent = client._http._standalone is None and client._http._http_sse is None  # noqa: SLF001
            return streams if is_silent else [*streams, 0]
        case Timer.DISCARD_RESPONSE:
            return client._http.exchanges.open_exchanges  # noqa: SLF001
        case Timer.POST:
            return client._http.posts._all  # noqa: SLF001
        case _:
            return () if client.state is ClientState.CLOSED else (0,)


def of_server(server: Server) -> Iterator[str]:
    """What a server has that nobody wants any more, once all clients have left."""
    core, legacy = server._core, server._legacy  # noqa: SLF001
    if server.is_busy:
        yield "is busy"
    for what, left in (
        ("unsent bytes", core.unsent.total),
        ("paused exchanges", core.paused),
        ("requests of unknown principals", server._authenticating),  # noqa: SLF001
        ("stateless calls", core.stateless),
        ("sessions", server.sessions),
        ("open pipes", core.sinks),
        ("tasks", server._tasks._running),  # noqa: SLF001
        ("instances that it follows", server._peers._peers),  # noqa: SLF001
    ):
        if left:
            yield f"has {what}: {left}"
    if server.next_deadline() is not None:
        yield f"has timers: {list(core.timers._entries)[:3]}"  # noqa: SLF001
    if legacy is not None and legacy.streams._streams:  # noqa: SLF001
        yield f"has streams: {list(legacy.streams._streams)[:3]}"  # noqa: SLF001
    logs = server._logs  # noqa: SLF001
    if logs._pending or logs._failed:  # noqa: SLF001
        yield "waits for the store"
    if logs._watches:  # noqa: SLF001
        yield f"has watches: {list(logs._watches)[:3]}"  # noqa: SLF001


def leave_publications(server: Server) -> None:
    """Follow the publications of other instances no more, which ends only when a server stops."""
    if server._legacy is not None:  # noqa: SLF001
        server._legacy.publications.leave()  # noqa: SLF001


def open_responses(wires: Iterable[Wire]) -> set[ServerExchange]:
    """Requests whose responses have not ended, although their readers are not slow."""
    open_states = (ExchangeState.DECIDING, ExchangeState.STREAMING)
    exchanges = (wire.server.exchange for wire in wires if not wire.is_blocked)
    return {exchange for exchange in exchanges if exchange.state in open_states}


def _sessions(server: Server) -> Iterator[LegacySession]:
    for session in server.sessions:
        assert isinstance(session, LegacySession)
        yield session


def of_ended_calls(server: Server) -> Iterator[str]:
    """What a server holds of calls that have ended, while their clients are still there."""
    open_states = (LogState.WRITING, LogState.UNSTORED)
    for session in _sessions(server):
        for stream in session._streams:  # noqa: SLF001
            is_of_a_call = stream not in session._standalone  # noqa: SLF001
            if is_of_a_call and not session.calls and stream.state in open_states:
                yield f"keeps the stream of a call open: {stream.key}"


def is_reader_behind(server: Server, key: StreamKey) -> bool:
    """Whether the log of that name is a stream whose reader has not been given what is stored."""
    legacy = server._legacy  # noqa: SLF001
    stream = None if legacy is None else legacy.streams._streams.get(key)  # noqa: SLF001
    if stream is None or stream.reader is None:
        return False
    return stream._position < stream._stored  # noqa: SLF001


def waits(server: Server, key: StreamKey) -> bool:
    """Whether the reader of a watched log knows all of it, and reads what is told."""
    legacy = server._legacy  # noqa: SLF001
    watches = server._logs._watches.get(key, {})  # noqa: SLF001
    if ReaderState.LISTENING in watches.values():
        return False  # it is the record of a session, which is not read while the session is idle
    if any(reader in watches for reader in _behind(server)):
        return False
    stream = None if legacy is None else legacy.streams._streams.get(key)  # noqa: SLF001
    return stream is None or stream.is_waiting


def _behind(server: Server) -> Iterator[LogReader]:
    """Those that read tasks for clients that are too slow for another notification."""
    for subscription in server._modern.subscriptions._open.values():  # noqa: SLF001
        if subscription.stream.is_above_high_water:
            for watch in subscription.watches:
                if isinstance(watch, TaskWatch):
                    yield watch._procedure  # noqa: SLF001


def writes(server: Server, key: StreamKey) -> bool:
    """Whether a server adds to a log, or has something to add to it.

    A stream whose log has failed goes on without it: others may take the log over.
    """
    legacy = server._legacy  # noqa: SLF001
    stream = None if legacy is None else legacy.streams._streams.get(key)  # noqa: SLF001
    if stream is not None and stream.is_stored and (stream.is_written or stream.is_ending):
        return True
    return key in server._tasks._running  # noqa: SLF001


def is_of_a_request(call: ServerCall) -> bool:
    """Whether a call has come by a request; else it goes on as a task that is known."""
    return not isinstance(call, RunningCall) or call.task_plan is not None


def task_of(call: ServerCall) -> StreamKey | None:
    """Return the log of the task that a call is, or becomes; None if it is none."""
    task = call._task if isinstance(call, RunningCall) else None  # noqa: SLF001
    return task.key if isinstance(task, RunningTask) else None


def name_in_logs(server: Server) -> str:
    """What other instances call it."""
    return server._core.instance  # noqa: SLF001


def stuck_readers(server: Server) -> Iterator[str]:
    """Event streams that are open and go on by nothing: no page, peer, append or timer.

    The server has performed all its effects, so what goes on by itself has done so.
    """
    for session in _sessions(server):
        for exchange, stream in session._readers.items():  # noqa: SLF001
            if exchange.is_done or exchange.unsent or is_blocked(exchange.driver):
                continue
            if stream.reader is not exchange:
                yield f"keeps a response open that nothing is sent to: {stream.key}"
            elif stream._reading is None and stream._appending is None:  # noqa: SLF001
                last = stream.next_seq - 1
                if stream in server._core.gathering:  # noqa: SLF001
                    last -= len(stream._unstored)  # noqa: SLF001 - a timer appends them
                if stream.state is LogState.REMOTE:
                    last = stream._stored  # noqa: SLF001
                if stream._position < last:  # noqa: SLF001
                    yield f"has a reader that is behind, and reads nothing: {stream.key}"
                elif stream.state in (LogState.FINISHED, LogState.CLOSED):
                    yield f"keeps a response open that has come to its end: {stream.key}"


def is_blocked(driver: Any) -> bool:
    """Whether a client must take something before more of a response is sent to it."""
    return driver.is_blocked if isinstance(driver, Wire) else bool(driver.body)


def of_client(client: Client) -> Iterator[str]:
    """What a client has that is closed."""
    if client.next_deadline() is not None:
        yield f"has a deadline: {client.next_deadline()}"
    authorizing = client._http.exchanges.authorizing  # noqa: SLF001
    for what, left in (
        ("exchanges", client._http.exchanges.open_exchanges),  # noqa: SLF001
        ("calls", client._requests.calls),  # noqa: SLF001
        ("requests of its own", client._requests.own),  # noqa: SLF001
        ("ids", client._requests.by_id),  # noqa: SLF001
        ("open server requests", client._calls._server_requests._open),  # noqa: SLF001
        ("turns", client._http._of_requests._turns),  # noqa: SLF001
        ("posts", client._http.posts._all),  # noqa: SLF001
        ("requests that wait", authorizing and authorizing.held),
        ("requests to be signed", authorizing and authorizing._signing),  # noqa: SLF001
    ):
        if left:
            yield f"has {what}: {list(left)}"
