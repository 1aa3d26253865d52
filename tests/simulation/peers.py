"""Who takes part in a simulated world: clients with their applications, servers with theirs.

They do what hosts do: pull effects and events, keep time, and decide nothing. Checks that need no
more than one of them are made here, at once.
"""

from __future__ import annotations

import abc
import itertools
import math
import re
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from sansmcp import (
    Client,
    Idle,
    InputRequest,
    InputRequired,
    JsonRpcError,
    LocalProtocolError,
    Server,
    ServerCall,
)
from sansmcp.codecs.jsonrpc import INVALID_PARAMS
from sansmcp.effects import (
    AbortExchange,
    Authenticate,
    ClientEffect,
    CloseStdin,
    KillProcess,
    LoadCredentials,
    LockCredentials,
    MakeKey,
    OpenExchange,
    SaveCredentials,
    ServerEffect,
    SignJwt,
    StartProcess,
    TerminateProcess,
    UnlockCredentials,
    Wake,
    WriteStdin,
)
from sansmcp.errors import (
    CallError,
    Disconnected,
    RequestCancelled,
    RequestRefused,
    RequestTimeout,
    SessionLost,
)
from sansmcp.events import (
    AccessExpired,
    AuthorizationNeeded,
    CallCancelled,
    CallCompleted,
    CallFailed,
    CallReceived,
    ClientEvent,
    ClientNotified,
    ClientResponseReceived,
    Closed,
    Connected,
    InvalidLine,
    MessageUndelivered,
    ProgressReceived,
    ProtocolViolation,
    Reconnecting,
    ResponseUndelivered,
    ServerEvent,
    ServerNotified,
    ServerRequestCancelled,
    ServerRequestReceived,
    SessionClosed,
    SessionExpired,
    StandaloneStreamClosed,
    StoreFailed,
    TaskUpdated,
)
from sansmcp.http11.pool import ConnectionPool
from sansmcp.messages import ErrorResponse, Request, RequestId, Response
from sansmcp.meta_keys import LISTEN, LOG_LEVEL, UPDATED
from sansmcp.process import ProcessPart, StdoutData
from sansmcp.server.legacy.mailbox import cancellation_mailbox
from sansmcp.server.legacy.sessions import LegacySession
from sansmcp.server_call import Peer
from sansmcp.tasks import CANCEL
from sansmcp.tasks import CHANGED as TASK_CHANGED
from sansmcp.tasks import METHODS as ABOUT_TASKS
from sansmcp.types import Era

from . import authorization
from .network import Pipes, Wire
from .proxies import call_in
from .stores import NotingStore, StoreSeat
from .tasks import ATTACH

if TYPE_CHECKING:
    from .simulator import Errand, World

Script: TypeAlias = Generator[float | int, Any, Any]

_ID = re.compile(rb"^id: (.*)$", re.MULTILINE)
_SPINS = 50
"""How often a machine may have something to do at one time."""
MARK = "notifications/message"
TICK = "notifications/com.example/tick"
CHANGED = "notifications/tools/list_changed"
SUBSCRIBE, UNSUBSCRIBE = "resources/subscribe", "resources/unsubscribe"
TICKS = 5.0
"""Seconds between what instances tell all clients."""
HELLO = "notifications/com.example/hello"


class Host(abc.ABC):
    """Keeps the time of a machine."""

    def __init__(self, world: World, name: str, index: int) -> None:
        self.world = world
        self.name = name
        self.index = index
        self.offset = world.fates.pick(f"{name} clock starts at", (0.0, 0.0, 1e6))
        """By how much its clock is ahead: clocks of different machines have nothing in common."""
        self.naps_until = -1.0
        """When its application takes events again."""
        self._armed: float | None = None
        self._spun = (-1.0, 0)

    @property
    def now(self) -> float:
        """Its clock."""
        return self.world.clock.now + self.offset

    @property
    def naps(self) -> bool:
        """Whether its application takes no events."""
        return self.world.clock.now < self.naps_until

    @property
    def stands_still(self) -> bool:
        """Whether its whole process does nothing at present."""
        return False

    @property
    @abc.abstractmethod
    def machine(self) -> Client | Server:
        """What it drives."""

    @abc.abstractmethod
    def drain(self) -> None:
        """Perform all effects and take all events."""

    @abc.abstractmethod
    def _time_passes(self, now: float) -> None:
        """Tell the machine the time."""

    def touch(self) -> None:
        """Something may be to do."""
        self.world.touched[self] = None

    def jump(self, seconds: float) -> None:
        """Its clock is put forward, or back."""
        self.world.tell(f"the clock of {self.name} jumps by {seconds} s")
        self.world.reach("clock put forward" if seconds > 0 else "clock put back")
        self.offset += seconds
        self._time_passes(self.now)
        self.touch()

    def nap(self, seconds: float) -> None:
        """Its application takes no events for some seconds."""
        self.world.tell(f"{self.name} takes no events for {seconds} s")
        self.naps_until = self.world.clock.now + seconds
        self.world.clock.call_at(self.naps_until, self.touch)

    def arm(self) -> None:
        """Come back when time has to pass for the machine."""
        deadline = self.machine.next_deadline()
        if deadline is None:
            return
        when = max(deadline - self.offset, self.world.clock.now)
        if self._armed is None or when < self._armed:
            self._armed = when
            self.world.clock.call_at(when, lambda: self._due(when))

    def _due(self, when: float) -> None:
        if when != self._armed:
            return  # an earlier one was set meanwhile
        self._armed = None
        if self.stands_still:
            return
        deadline = self.machine.next_deadline()
        if deadline is not None and deadline <= self.now + 1e-6:
            when, times = self._spun
            times = times + 1 if when == self.world.clock.now else 0
            self._spun = (self.world.clock.now, times)
            if times > _SPINS:
                self.world.fail("deadlines", f"{self.name}: a deadline stays in the past")
            self._time_passes(max(self.now, deadline))
        self.touch()


@attrs.define(eq=False)
class Made:
    """A call that a client has made."""

    errand: Errand
    is_cancelled: bool = False
    end: CallCompleted | CallFailed | None = None
    reports: list[float] = attrs.field(factory=list[float])
    marks: list[tuple[int, int]] = attrs.field(factory=list[tuple[int, int]])
    heard: int = 0
    """How many messages had come of it when its connection was lost last."""
    forgotten: int = 0
    """How many messages had come of it when its session expired last."""
    made_at: float = attrs.field(default=0.0, kw_only=True)
    task_id: str | None = None
    """The id of its task, once the client has it; None again if the call is made again."""
    lost_task: bool = False
    """Whether its task has died with an instance, so that the call was made again."""
    told_end_by: int | None = None
    """The id of its subscription that has told the end of a task; None if it was not told."""

    @property
    def told(self) -> int:
        """How many messages have come of it."""
        return len(self.reports) + len(self.marks)


class Customer(Host):
    """A client, its connections, and its application."""

    def __init__(self, world: World, name: str, index: int, client: Client, kind: str) -> None:
        super().__init__(world, name, index)
        self.client = client
        self.kind = kind
        """How it connects: by "http" without HTTP+SSE, by "sse", by "any" of both, or by a
        process of its own, on "stdio" or "stdio-v2"."""
        self.causes: set[str] = set()
        """What has happened to it that may end a call."""
        self.principal = ""
        self.follows_tasks = True
        self.undelivered: set[str] = set()
        """The tasks whose cancellation it could not send."""
        self.calls: dict[int, Made] = {}
        self.transport = ""
        self.version = ""
        self.closed: Closed | None = None
        self.listener_stopped = False
        self.has_recovered = False
        """Whether a call of the end has its result."""
        self.closes_early = False
        self.offers: tuple[str, ...] = ()
        """The revisions that it speaks."""
        self.begins_at = 0.0
        """When it is opened."""
        self.is_late = False
        """Whether it is opened when there are no accidents any more."""
        self.remembered: Era | None = None
        """What was remembered of its server when it was opened."""
        self.has_listener = False
        """Whether it opens the standalone stream."""
        self.ticks: Counter[tuple[str, int]] = Counter()
        self.changes: Counter[int | None] = Counter()
        """How often it was told of changes, by the calls that listen."""
        self.updates: Counter[str] = Counter()
        """The resources that it was told of."""
        self.subscriptions = 0
        """How often it has begun to listen at 2026-07-28."""
        self.folder = f"x://{name}"
        """What it may subscribe to."""
        self.opened_at = 0.0
        """When it has made its last request."""
        self.subscribes_at: float | None = None
        """When it has first asked to be told of it."""
        self.is_subscribed = False
        """Whether a session of the handshake revisions has said that it is."""
        self.unsubscribed_at = math.inf
        self.answered: set[tuple[Any, ...]] = set()
        """The questions that its application has answered."""
        self.questions: dict[RequestId, ServerRequestReceived] = {}
        """What servers have asked and not withdrawn: one that starts again uses its ids again."""
        self.gets: list[OpenExchange] = []
        """Requests that resume a stream."""
        self.in_session: list[OpenExchange] = []
        """Requests that name a session."""
        self.process: Pipes | None = None
        self.seat: authorization.Seat | None = None
        """Its way to tokens, in a protected world."""
        self._pool = ConnectionPool(client)
        self._wires: dict[Wire, None] = {}
        self._numbers: Iterator[int] = itertools.count()
        self._paused = False
        self._opened: set[int] = set()
        """The exchanges that it was told to open."""

    @property
    def machine(self) -> Client:
        """What it drives."""
        return self.client

    @property
    def has_process(self) -> bool:
        """Whether it has a server of its own, on pipes."""
        return self.kind in ("stdio", "stdio-v2")

    @property
    def is_paused(self) -> bool:
        """Whether it reads nothing, because its application is behind."""
        return self._paused or self.naps

    @property
    def carries(self) -> int:
        """How many exchanges are under way."""
        others = 0 if self.seat is None else self.seat.carries
        return len(self._pool.in_use) + others

    def is_open(self, exchange: int) -> bool:
        """Whether an exchange with the MCP server is under way."""
        return exchange in self._pool.in_use

    @property
    def is_done(self) -> bool:
        """Whether all its calls have ended."""
        if self.is_late and not (self.version or self.closed):
            return False
        has_made_all = self.world.clock.now >= self.begins_at + 4.0
        return has_made_all and all(made.end or made.errand.lasts for made in self.calls.values())

    @property
    def can_resume(self) -> bool:
        """Whether its streams may go on at another instance."""
        return self.kind == "http" and self.version not in ("", "2024-11-05", "2026-07-28")

    def listens(self, *, modern: bool) -> bool:
        """Whether it wants to be told what belongs to no call, at the newest revision or before."""
        if modern:
            return self.offers == ("2026-07-28",)
        has_stream = self.kind in ("sse", "stdio") or (self.kind != "any" and self.has_listener)
        return has_stream and self.offers != ("2026-07-28",) and not self.listener_stopped

    # The application

    def go(self, errand: Errand) -> None:
        """Make a call."""
        if self.closed is not None or self.client.state.name in ("NEW", "CLOSING", "CLOSED"):
            return
        if errand.method == UNSUBSCRIBE and not self.is_subscribed:
            return
        self.world.tell(f"{self.name} calls {errand.name}: {errand.method} {errand.shown}")
        if errand.method in (LISTEN, SUBSCRIBE):
            self.subscribes_at = self.world.clock.now
        handle = self._make(errand)
        self.calls[handle] = made = Made(errand, made_at=self.world.clock.now)
        if errand.method == ATTACH:
            made.task_id = (errand.params or {})["taskId"]
        elif errand.method == CANCEL:
            self.world.tasks.wants_end((errand.params or {})["taskId"], errand.name)
        if errand.cancel_after == 0.0:
            self.cancel(handle)  # before anything of it is sent
        elif errand.cancel_after is not None:
            self.world.clock.call_later(errand.cancel_after, lambda: self.cancel(handle))
        self.touch()

    def _make(self, errand: Errand) -> int:
        if errand.method == ATTACH:
            return self.client.attach((errand.params or {})["taskId"], now=self.now)
        terms = errand.task
        return self.client.call(
            errand.method,
            errand.params,
            idempotent=errand.idempotent,
            meta={LOG_LEVEL: "debug"} if terms is None or terms.wants_log else None,
            detach=terms is not None and terms.is_detached,
            wants_progress=terms is None or terms.wants_progress,
            now=self.now,
        )

    def cancel(self, handle: int) -> None:
        """The caller wants no answer any more."""
        made = self.calls[handle]
        if not made.errand.subject:
            self.world.tasks.wants_end(made.task_id, f"the caller of {made.errand.name}")
        self.world.tell(f"{self.name} cancels {made.errand.name}")
        if self.client.cancel(handle, now=self.now):
            self.world.reach("call cancelled")
            made.is_cancelled = True
            self.world.cancelled[made.errand.name] = self.world.clock.now
        else:
            self.world.reach("cancelled after the end")
        self.touch()

    def _cancel_by_name(self, name: str) -> None:
        """Cancel a call in the moment in which one of its questions is answered."""
        handles = [handle for handle, made in self.calls.items() if made.errand.name == name]
        if not handles:
            return  # it is attached to the task of another client
        (handle,) = handles
        delay = self.world.fates.pick(f"{name} is cancelled after", (0.0, 0.01, 0.1))
        self.world.clock.call_later(delay, lambda: self.cancel(handle))

    def greet(self, number: int) -> None:
        """Send a notification."""
        try:
            self.client.notify(HELLO, {"from": self.name, "number": number}, now=self.now)
        except LocalProtocolError:
            return  # the handshake is not done, or the client is closed
        self.touch()

    def goes_silent(self) -> None:
        """All its connections carry nothing any more, and neither end is told.

        A proxy may take what the servers send all the same: then they do not notice it, either. On
        HTTP+SSE a client then opens a new session; others may have two streams, of which the server
        fills the dead one.
        """
        manners = ("silent", "held", "held") if self.kind == "sse" else ("silent",)
        manner = self.world.fates.pick(f"{self.name} goes silent", manners)
        for wire in tuple(self._wires):
            if not (wire.swallows or wire.client_gone):
                self.world.reach("all connections of a client silent")
                if manner == "held":
                    self.world.reach("server keeps the connection of a silent client")
                wire.break_down(manner)

    def close(self, *, early: bool) -> None:
        """End the conversation."""
        self.closes_early = self.closes_early or early
        self.world.tell(f"{self.name} closes")
        for made in self.calls.values():
            if made.end is None and not made.errand.subject:
                self.world.tasks.wants_end(made.task_id, f"{self.name}, which has closed")
        self.client.close(now=self.now)
        self.touch()

    def _happened(self, event: ClientEvent) -> None:
        self.world.note(self.index, type(event).__name__)
        match event:
            case Connected():
                self.transport, self.version = event.transport, event.version
                self.world.reach(f"connected by {event.transport} at {event.version}")
                if self.remembered is Era.LEGACY and self.version == "2026-07-28":
                    self.world.reach("remembered era is wrong")
            case CallCompleted(handle) | CallFailed(handle):
                self._ended(self.calls[handle], event)
            case ProgressReceived():
                self._progressed(self.calls[event.call], event.progress)
            case ServerNotified(handle, notification):
                self._notified(handle, notification.method, notification.params or {})
            case ServerRequestReceived():
                self._asked(event)
            case SessionExpired():
                self.world.reach("session expired")
                self._forget_events()
                self.needs(f"{event}", *(_ANY if self.kind in ("sse", "any") else _EXPIRES))
            case Reconnecting():
                self._reconnects(event)
            case Closed(error):
                if self.closed is not None:
                    self.world.fail("one end", f"{self.name} is closed twice")
                self.closed = event
                if error is not None:
                    self.world.reach("client given up")
                    self.world.reach(f"client given up: {type(error).__name__}")
                    self._unauthorized(error)
                    self.needs(f"Closed: {error!r}", *_ANY)
            case StandaloneStreamClosed():
                self.listener_stopped = True
                self.world.reach("listener stopped")
            case ProtocolViolation() | InvalidLine():
                self.world.fail("protocol", f"{self.name}: {event}")
            case _:
                self._happened_beside(event)
        if self.closed is not None and not isinstance(event, Closed):
            self.world.fail("one end", f"{self.name}: {type(event).__name__} after Closed")

    def _forget_events(self) -> None:
        """Its session has expired: the ids of the events that it has had name nothing."""
        self.is_subscribed = False
        for made in self.calls.values():
            made.forgotten = made.told

    def _happened_beside(self, event: ClientEvent) -> None:
        if isinstance(event, TaskUpdated):
            self._task_changed(self.calls[event.call], event)
        elif isinstance(event, AuthorizationNeeded):
            assert self.seat is not None
            self.seat.ask(event.url)
        elif isinstance(event, ServerRequestCancelled):
            self.world.reach("question withdrawn")
            self.questions.pop(event.request_id, None)
        elif isinstance(event, MessageUndelivered):
            self.world.reach("notification not delivered")
            if isinstance(event.message, Request) and event.message.method == CANCEL:
                self.undelivered.add((event.message.params or {})["taskId"])
            if isinstance(event.message, Response | ErrorResponse):
                self.causes.add("unanswered")  # the server waits for it until the call times out
            if not self.closes_early and not self.world.is_closing:
                self._check_given_up(event)
                self._unauthorized(event.reason)
                self.needs(f"{event.reason}", *_ANY, "gateway", "page", "rate", "several")

    def _check_given_up(self, event: MessageUndelivered) -> None:
        """Fail if an answer is given up that another attempt could deliver.

        The attempts of a client last for two minutes, which is longer than any accident.
        """
        is_answer = isinstance(event.message, Response | ErrorResponse)
        reason = str(event.reason)
        if is_answer and not (_FINAL.search(reason) or _UNAUTHORIZED.search(reason)):
            self.world.fail("answers", f"{self.name} gives an answer up: {event.reason}")

    def _unauthorized(self, reason: object) -> None:
        """Something has failed, perhaps for lack of a token, which needs a cause of its own."""
        if _UNAUTHORIZED.search(str(reason)):
            # A server whose application takes no events reads nothing: its metadata come later.
            if not ("no response within" in str(reason) and "naps" in self.world.features):
                self.needs(f"{reason}", *_CAUSES["AuthorizationFailed"])
            self.causes.add("unauthorized")

    def needs(self, what: str, *causes: str) -> None:
        """Something may only happen for one of these causes."""
        if self.seat is not None and self.seat.has_expired:
            self.causes.add("expired")  # also if the server's application takes no events
        if not (self.causes | self.world.causes) & set(causes):
            known = sorted(self.causes | self.world.causes)
            self.world.fail("causes", f"{self.name}: without cause: {what} (of {known})")

    def _ended(self, made: Made, event: CallCompleted | CallFailed) -> None:
        errand = made.errand
        self.world.tell(f"{self.name}: {errand.name} ends: {event}")
        if made.end is not None:
            self.world.fail("one end", f"{errand.name} ends twice: {made.end} and {event}")
        made.end = event
        if isinstance(event, CallCompleted):
            self.world.check_completed(self, made, event.result)
        elif made.task_id is not None and isinstance(event.error, RequestTimeout):
            self.world.tasks.check_failure(self, made, event.error)
        elif not (made.is_cancelled or self.closes_early or self.world.is_closing):
            self._check_failure(made, event.error)

    def _task_changed(self, made: Made, event: TaskUpdated) -> None:
        if made.task_id is None:
            if made.lost_task:
                self.world.reach("task whose instance has died begun anew")
            self.world.tasks.has_handle(self, made, event.task_id)
        elif made.task_id != event.task_id:
            self.world.fail("isolation", f"{made.errand.name} has two tasks")

    def _check_failure(self, made: Made, error: CallError) -> None:
        if made.task_id is not None:
            self.world.tasks.check_failure(self, made, error)
            return
        self.world.reach(f"call failed: {type(error).__name__}")
        errand = made.errand
        if errand.method in ABOUT_TASKS:
            self._check_question(made, error)
            return
        if errand.task is not None and errand.task.rule == "required" and not self.follows_tasks:
            self.world.reach("task required of a client that follows none")
            return
        if "few tasks" in self.world.features and "This needs a task" in str(error):
            return  # there is no room for it, which is told
        if isinstance(error, JsonRpcError) and "could not become a task" in str(error):
            self.world.reach("call ends because it cannot become a task")
            self.needs(f"{errand.name} failed: {error!r}", "hiccup")
            return
        is_raised = isinstance(error, JsonRpcError) and error.code == errand.fails_with
        if is_raised or self._finds_no_room(str(error)):
            return
        if isinstance(error, JsonRpcError) and "requestState cannot be used" in str(error):
            self.world.reach("state of an unknown key refused")
            self.needs(f"{errand.name} failed: {error!r}", "keys")
        if errand.may_raise and not isinstance(error, RequestTimeout):
            return
        if (
            "unread messages on the event stream" in str(error)
            and "small limits" in self.world.features
        ):
            return  # its server wrote more in one moment than may wait, and read on
        self._unauthorized(error)
        if self.world.has_keys and errand.method == "tools/call":
            self._check_kept(made, error)
        is_away = any(kind == "disconnect" for kind, _ in errand.steps)
        if errand.name in self.world.stopped and not is_away and not self.has_process:
            self._check_last_answer(made, error)
        self.needs(f"{errand.name} failed: {error!r}", *self._causes_of(made, error))

    def _causes_of(self, made: Made, error: CallError) -> tuple[str, ...]:
        """Return what must have happened before a call may fail in this way."""
        causes = _CAUSES[type(error).__name__]
        is_hasty = "impatient" in self.causes | self.world.causes
        if not made.errand.is_safe or made.errand.lasts or is_hasty:
            # Its outcome is unknown, which is told; or there is no time for another attempt.
            causes = (*causes, "gateway", "page")
        if isinstance(error, (RequestRefused, SessionLost)) and self.kind in ("sse", "any"):
            causes = (*causes, *_ANY)  # its stream has broken, and only the server knows that yet
        if isinstance(error, RequestRefused) and "HTTP 503" in str(error):
            causes = (
                *causes,
                "crowd",
            )  # a relay had no room, and the rest of its reason was cut off
        if isinstance(error, JsonRpcError) and "run without a connection" in str(error):
            causes = ("no room",)
        if isinstance(error, RequestTimeout) and self._can_resume(made):
            causes = tuple(cause for cause in causes if cause != "silence")
        return causes

    def _check_kept(self, made: Made, error: CallError) -> None:
        """Fail if a call with a key is lost by what only happens to its connections."""
        # At other revisions its messages are in the store, from which its client resumes.
        is_unstored = self.kind == "sse" or self.version == "2026-07-28"
        loses = _LOSES_KEYS if is_unstored else _LOSES_KEYS | _LOSES
        if self.kind == "sse":
            loses = loses | {"end"}
        if self.world.shares_keys:
            loses = loses | {"cut off"}  # an instance that cannot reach the store counts as dead
        if not (self.causes | self.world.causes) & loses:
            self.world.fail("keys", f"{made.errand.name} is lost: {error!r} (of {self.causes})")

    def _finds_no_room(self, reason: str) -> bool:
        """Whether a relay had no room for a call, which happens to a client that makes many."""
        if "crowded relay" not in self.world.features or not _CROWDED.search(reason):
            return False
        if "crowd" in self.causes:
            self.world.reach("client that makes many calls refused for lack of room")
        elif not (self.causes | self.world.causes) & {*_ANY}:  # what it has lost may still run
            self.world.fail("shares", f"{self.name} is refused for the calls of others: {reason}")
        return True

    def _check_question(self, made: Made, error: CallError) -> None:
        """A single request about a task has failed."""
        is_foreign = self.world.authentication and self.principal != made.errand.principal
        is_refused = isinstance(error, JsonRpcError) and error.code == INVALID_PARAMS
        if is_refused and self.world.tasks.may_be_gone((made.errand.params or {})["taskId"]):
            return
        if is_refused != is_foreign and not isinstance(error, Disconnected | RequestRefused):
            self.needs(f"{made.errand.name} failed: {error!r}", *_ANY)
            if is_refused:
                self.world.fail("tasks", f"{made.errand.name}: the task is unknown")
        elif not is_refused:
            # What the application asks once is not repeated: a proxy may have refused it.
            proxy = ("gateway", "page") if isinstance(error, RequestRefused) else ()
            self.needs(f"{made.errand.name} failed: {error!r}", *_ANY, *proxy)

    def _can_resume(self, made: Made) -> bool:
        """Whether the client has had events of a call with ids: then no silence is for ever.

        If the session has expired since, these ids name nothing. The client sends the call anew in
        another session, and nothing tells before its timeout that no response comes to that.
        """
        is_stream = self.kind == "http" and self.version not in ("", "2026-07-28")
        return is_stream and made.told > made.forgotten and self.world.resumable

    def _check_last_answer(self, made: Made, error: CallError) -> None:
        """Fail if a call was not answered that its server has ended by a stop, and nothing else."""
        others = (self.causes | self.world.causes) - {"stop", "end by stop"}
        if self.transport == "http+sse" and isinstance(error, SessionLost):
            return  # another request was refused, on a connection that was faster than the stream
        if not others and not isinstance(error, JsonRpcError):
            self.world.fail("causes", f"{made.errand.name} gets no answer of the stop: {error!r}")

    def _progressed(self, made: Made, progress: float) -> None:
        if made.end is not None:
            self.world.fail("order", f"{made.errand.name}: progress after the end")
        # A task whose last states the store has lost is at an earlier one again.
        is_again = self.world.is_repeated(made.errand) or self.world.tasks.is_lost(made.task_id)
        if made.reports and progress <= made.reports[-1] and not is_again:
            self.world.fail(
                "order", f"{made.errand.name}: progress {progress} after {made.reports}"
            )
        made.reports.append(progress)
        expected = self.world.subject_of(made.errand).reports
        if made.task_id is not None:  # only the newest is told
            expected = [number for number in expected if number in made.reports]
        if not (is_again or self.world.may_miss(made.errand)):
            self._check_gaps(made, made.reports, expected)

    def _ticked(self, params: Any) -> None:
        """It is told what the server tells to it alone: once, and in order."""
        tick = (params["from"], params["number"])
        self.ticks[tick] += 1
        if params["to"] != self.name:
            self.world.fail("isolation", f"{self.name} is told what is for {params['to']}")
        if "store" in self.world.causes:
            return  # what a store has lost of a stream is forwarded to it again
        if self.ticks[tick] > 1:
            self.world.fail("order", f"{self.name} is told {tick} twice")
        later = [number for name, number in self.ticks if name == tick[0] and number > tick[1]]
        if later:
            self.world.fail("order", f"{self.name} is told {tick} after {later}")

    def _notified(self, handle: int | None, method: str, params: Any) -> None:
        if method == TASK_CHANGED and handle is not None:
            self.world.tasks.notified(self, self.calls[handle], params)
        if method == CHANGED:
            self.changes[handle] += 1
        if method == UPDATED:
            self._updated(params["uri"])
        if method == TICK:
            self._ticked(params)
            return
        if method != MARK:
            return
        mark = params["data"]
        owners = [made for made in self.calls.values() if made.errand.name == mark["call"]]
        if not owners:
            self.world.fail("isolation", f"{self.name} is told something of {mark['call']}")
            return
        made = owners[0]
        if handle is not None and self.calls[handle] is not made:
            self.world.fail("isolation", f"{mark} is told as of {self.calls[handle].errand.name}")
        place = (mark["run"], mark["step"])
        told = made.marks
        if self.kind == "sse":  # a safe call that is repeated may still run, on the same stream
            told = [each for each in told if each[0] == place[0]]
        if told and place <= told[-1]:
            self.world.fail("order", f"{made.errand.name}: {place} is told after {made.marks}")
        if isinstance(made.end, CallCompleted) and not self.world.is_repeated(made.errand):
            self.world.fail("order", f"{made.errand.name}: {place} is told after the end")
        made.marks.append(place)
        if not self.world.may_miss(made.errand):
            self._check_gaps(made, [step for _, step in made.marks], made.errand.marks)

    def _check_gaps(self, made: Made, told: Sequence[float], expected: Sequence[float]) -> None:
        """Fail if something that the handler has said before was left out."""
        if told != expected[: len(told)]:
            self.world.fail("gaps", f"{made.errand.name} told {told} of {expected}")

    def _updated(self, uri: str) -> None:
        """It is told of what it has subscribed to, once, and not when it has unsubscribed."""
        if uri == f"{self.folder}/" and "relay" in self.world.features:
            return  # a relay has subscribed anew to the folder, in which anything may have changed
        self.updates[uri] += 1
        if not uri.startswith(f"{self.folder}/") or self.subscribes_at is None:
            self.world.fail("isolation", f"{self.name} is told of {uri}")
        # At 2026-07-28 each instance at which it begins to listen may still have to learn of it.
        if self.updates[uri] > max(1, self.subscriptions) and "store" not in self.world.causes:
            self.world.fail("order", f"{self.name} is told of {uri} twice")
        told_at = TICKS * int(uri.rpartition("/")[2])
        if told_at > self.unsubscribed_at and not (self.causes or self.world.shared):
            self.world.fail("isolation", f"{self.name} has unsubscribed, and is told of {uri}")

    def _asked(self, event: ServerRequestReceived) -> None:
        params = event.request.params or {}
        marker = params["marker"]
        subject = "" if event.call is None else self.calls[event.call].errand.subject
        if marker[0].split(".")[0] != self.name and marker[0] != subject:
            self.world.fail("isolation", f"{self.name} is asked {marker}")
            return
        name = f"answer {marker}"
        delay = self.world.fates.pick(f"{name} after", (0.0, 0.0, 0.1, 1.0, 3.0))
        if "silent users" in self.world.features and self.world.strikes(f"{name} late", 0.4):
            self.causes.add("unanswered")
            delay = 200.0
        request_id = event.request.id

        self.questions[request_id] = event

        def answer() -> None:
            if self.closed is None and self.questions.get(request_id) is event:
                result = {"action": "accept", "content": {"marker": marker, "by": self.name}}
                if self.client.respond(request_id, result, now=self.now):
                    self.answered.add(tuple(marker))
                self.touch()
                if "cancels" in self.world.features and self.world.strikes(f"{name} in vain", 0.7):
                    self._cancel_by_name(marker[0])

        if self.world.strikes(f"{name} declined", 0.05):
            self.client.refuse_unsupported(request_id, now=self.now)
            self.causes.add("declined")
            self.touch()
        else:
            self.world.clock.call_later(delay, answer)

    def lacks_answer(self, marker: Any, seconds: float) -> None:
        """A server has waited in vain for an answer; this is no wonder if there was none."""
        if seconds > 60 and tuple(marker) in self.answered and not self.closes_early:
            # "login": it waits for a token, which a person has not allowed yet.
            causes = (*_CAUSES["RequestTimeout"], "stall", "ghost", "end", "stop", "login")
            self.needs(f"the answer to {marker} has not arrived", *causes)

    def is_ignored(self, what: str) -> None:
        """A server goes on with what its application has cancelled."""
        # "several": a kept connection may lead to another instance again and again. A notification
        # that a proxy has refused is not sent again; that it was not delivered is told.
        self.needs(what, *_ANY, "standstill", "several", "gateway", "page")

    def _reconnects(self, event: Reconnecting) -> None:
        kind = "listener" if event.call is None else "call"
        how = "polls" if event.attempt == 0 else "connects again"
        if "silent" in event.reason:
            how = "finds a dead connection"
        self.world.reach(f"{kind} {how}")
        if event.call is not None:
            made = self.calls[event.call]
            self._finds_no_room(event.reason)
            made.told_end_by = None  # a new subscription tells it again
            self.world.tasks.may_begin_anew(made, event.reason)
            if made.task_id is not None:
                self.world.reach("task asked for again")
            self._check_reconnecting(made, event)

    def _check_reconnecting(self, made: Made, event: Reconnecting) -> None:
        """Attempts are counted anew after progress, and the server's ``retry`` is waited for."""
        name, heard = made.errand.name, made.told
        # Without event ids, messages are no progress: the next stream begins anew.
        has_ids = self.version not in ("2024-11-05", "2026-07-28")
        if event.attempt > 1 and heard > made.heard and has_ids:
            self.world.fail(
                "reconnecting", f"{name}: attempt {event.attempt}, although messages have come"
            )
        made.heard = heard
        asked = [value for kind, value in made.errand.steps if kind == "disconnect"]
        waits = [value for value in (*asked, self.world.settings["retry"]) if value is not None]
        is_poll = event.attempt == 0 and "silent" not in event.reason
        if is_poll and self.world.settings["retry"] and event.delay < min(waits):
            self.world.fail(
                "reconnecting", f"{name}: polls after {event.delay} s, and not {min(waits)}"
            )

    # Connections

    def drain(self) -> None:
        """Perform all effects, take all events, and read what has arrived."""
        moved = True
        while moved:
            moved = False
            while not isinstance(effect := self.client.next_effect(), Idle):
                moved = True
                self._perform(effect)
            if not self.naps:
                while not isinstance(event := self.client.next_event(), Idle):
                    moved = True
                    if self.seat is not None:
                        self.seat.check_hides(event)
                    self._happened(event)
            if moved:
                continue
            self._paused = effect is Idle.PAUSED
            if self._paused:
                self.world.reach("client reads no more for a while")
                break
            for wire in tuple(self._wires):
                if wire.can_read:
                    moved = True
                    self._read(wire)
                    break
            if self.process is not None and self.process.can_read:
                moved = True
                self.client.receive_process_part(StdoutData(self.process.read()), now=self.now)
        self.arm()

    def lost(self, wire: Wire, reason: str) -> None:
        """A connection is broken."""
        assert wire.client is not None
        wire.client.connection_lost(reason, now=self.now)
        self._release(wire)

    def hear(self, part: ProcessPart) -> None:
        """Something has come of the process, beside its output."""
        while self.process is not None and self.process.can_read:
            self.client.receive_process_part(StdoutData(self.process.read()), now=self.now)
        self.client.receive_process_part(part, now=self.now)
        self.touch()

    def _read(self, wire: Wire) -> None:
        assert wire.client is not None
        data = wire.read()
        if data:
            wire.client.receive_data(data, now=self.now)
        else:
            wire.client.receive_eof(now=self.now)
        if wire.client.is_done:
            self._release(wire)

    def _release(self, wire: Wire) -> None:
        if wire.exchange is not None:
            self._pool.release(wire.exchange, now=self.now)
            wire.exchange = None
        if wire.client_gone:
            self._wires.pop(wire, None)
        self.touch()

    def _perform(self, effect: ClientEffect) -> None:
        match effect:
            case OpenExchange():
                self._open(effect)
            case AbortExchange(exchange=exchange) if self.seat and self.seat.abort(exchange):
                pass
            case LoadCredentials() | SaveCredentials() | LockCredentials() | UnlockCredentials():
                assert self.seat is not None
                self.seat.perform(effect)
            case AbortExchange(exchange=exchange):
                if exchange not in self._opened:
                    self.world.fail("effects", f"{self.name} aborts {exchange} before it opens it")
                connection = self._pool.in_use.get(exchange)
                self._pool.release(exchange, now=self.now)
                if connection is not None and connection.driver is not None:
                    connection.driver.exchange = None
            case StartProcess():
                instance = self.world.new_process(self)
                self.process = Pipes(self.world, f"{instance.name} pipes", instance, self)
                instance.pipes = self.process
            case WriteStdin(data):
                assert self.process is not None
                self.process.write(data)
            case CloseStdin():
                assert self.process is not None
                self.process.close()
            case TerminateProcess() | KillProcess():
                assert self.process is not None
                self.process.exit(-15)
            case MakeKey() | SignJwt():
                raise AssertionError("no client of a world has an option that signs")

    def _open(self, effect: OpenExchange) -> None:
        self.opened_at = self.world.clock.now
        if effect.head.values(b"last-event-id"):
            self.world.reach("stream resumed from a cursor")
            self.gets.append(effect)
            self._may_double(effect)
        if effect.head.values(b"mcp-session-id"):
            self.in_session.append(effect)
        if b'"method":"subscriptions/listen"' in effect.body:
            self.subscriptions += 1
        if (call := call_in(effect)) and b'"sansmcp/reclaim":"' in effect.body:
            self.world.keyed.add(call)
            self._may_be_stolen(effect)
        if b'"method":"sansmcp/reclaim"' in effect.body:
            self.world.reach("call asked for the rest of")
            self.gets.append(effect)
            self.in_session.append(effect)
        self._opened.add(effect.exchange)
        if self.seat is not None:
            if self.seat.opens(effect):
                return
            effect = self.seat.with_proof(effect)
        connection, data = self._pool.begin(effect, now=self.now)
        if connection.driver is None:
            name = f"{self.name} wire {next(self._numbers)}"
            instance = self.world.route(self, name)
            rate = self.world.rate * 0.5 * ("refusals" in self.world.features)
            if instance is None or (self.world.is_faulty and self.world.strikes(name, rate)):
                self.world.tell(f"{name} is refused")
                self.causes.add("refused")
                connection.connection_lost("connection refused", now=self.now)
                self._pool.release(effect.exchange, now=self.now)
                return
            wire = Wire(self.world, name, instance, self, connection)
            connection.driver = wire
            self._wires[wire] = None
        else:
            self.world.reach("connection used again")
        wire = connection.driver
        wire.exchange = effect.exchange
        wire.proxy.sends(effect, data, f"{self.name} proxy {effect.exchange}")
        self._may_be_delivered_twice(effect)

    def _may_be_delivered_twice(self, effect: OpenExchange) -> None:
        """A proxy may deliver a request of a call a second time, here or at another instance."""
        world, name = self.world, f"{self.name} delivered twice {effect.exchange}"
        if "doubled posts" not in world.features or effect.head.method != b"POST":
            return
        if (call := call_in(effect)) and self.version and world.strikes(name, 0.3):
            # The first may be refused by one instance and the second run by another. A call without
            # room for its key runs as one without.
            if not world.has_keys or {"several", "no room"} & world.causes:
                world.doubled.add(call)
            world.reach("call delivered twice")
            delay = world.fates.pick(f"{name} after", (0.0, 0.1, 2.0))
            world.clock.call_later(delay, lambda: world.double(self, effect, name))

    def _may_be_stolen(self, effect: OpenExchange) -> None:
        """A stranger may learn the key of a call, and use it while the server has the key."""
        world, name = self.world, f"{self.name} stolen {effect.exchange}"
        if world.authentication and world.strikes(name, 0.3):
            delay = world.fates.pick(f"{name} after", (0.05, 0.5, 2.0))
            world.clock.call_later(delay, lambda: world.steal(self, effect, name))

    def _may_double(self, effect: OpenExchange) -> None:
        """What resumes a stream may come a second time, while the first one is still open."""
        name = f"{self.name} doubles {effect.exchange}"
        if "strangers" in self.world.features and self.world.strikes(name, 0.2):
            delay = self.world.fates.pick(f"{name} after", (0.0, 0.02, 0.5))
            self.world.clock.call_later(delay, lambda: self.world.double(self, effect, name))

    def _time_passes(self, now: float) -> None:
        self.client.handle_timeout(now=now, is_reading=not self._paused)


class Instance(Host):
    """A server, its connections, its way to the store, and its application."""

    def __init__(
        self, world: World, name: str, index: int, server: Server, store: NotingStore | None
    ) -> None:
        super().__init__(world, name, index)
        self.server = server
        self.is_alive = True
        self.wires: dict[Wire, None] = {}
        self.pipes: Pipes | None = None
        self.scripts: dict[ServerCall, Script] = {}
        self.stops = False
        """It takes nothing new, and ends soon."""
        self.has_ended = False
        """It has ended what ran."""
        self.kill_at: int | None = None
        """Before which of its effects and events it dies."""
        self._steps = 0
        self._awaited: dict[ServerCall, int] = {}
        self._still_until = -1.0
        """When its process goes on."""
        self._held: deque[Callable[[], None]] = deque()
        """What has come while it stood still."""
        self.seat = StoreSeat(self, store)
        self._used: set[Peer] = set()
        """The sessions that have made calls here."""

    @property
    def machine(self) -> Server:
        """What it drives."""
        return self.server

    @property
    def running(self) -> set[str]:
        """The names of the calls whose handlers run."""
        return {_errand_of(call) for call in self.scripts}

    # A process that stands still

    @property
    def stands_still(self) -> bool:
        """Whether its whole process does nothing at present."""
        return self.world.clock.now < self._still_until

    @property
    def awake_since(self) -> float:
        """When it has last stood still, or does so at present until then."""
        return self._still_until

    @property
    def naps(self) -> bool:
        """Whether its application takes no events."""
        return super().naps or self.stands_still

    def stand_still(self, seconds: float) -> None:
        """Do nothing at all for so long: what comes waits, and is read then, or after the timers.

        What it has asked of its store is done meanwhile.
        """
        if not self.is_alive or self.stops:
            return
        self.world.tell(f"{self.name} stands still for {seconds} s")
        self.world.reach("instance stands still")
        self.world.causes.add("standstill")
        if self.scripts:
            self.world.reach("instance stands still while a handler runs")
        self._still_until = self.world.clock.now + seconds
        self.seat.troubled_at = self.seat.excused_at = (
            self._still_until
        )  # what it does late has this reason
        timers_first = self.world.fates.number(f"{self.name} wakes for its timers") < 0.5

        def wake() -> None:
            if not self.is_alive:
                return
            self.world.tell(f"{self.name} goes on")
            if timers_first:
                self._time_passes(self.now)
            for wire in tuple(self.wires):
                wire.pull()
            while self._held and self.is_alive:
                self._held.popleft()()
            self.touch()

        self.world.clock.call_at(self._still_until, wake)

    def when_awake(self, act: Callable[[], None]) -> None:
        """Do something now, or as soon as the process goes on."""
        if self.stands_still:
            self._held.append(act)
        else:
            act()

    def drain(self) -> None:
        """Perform all effects and take all events."""
        while self._goes_on():
            if not isinstance(effect := self.server.next_effect(), Idle):
                if self._step():
                    self._perform(effect)
            elif self.naps or isinstance(event := self.server.next_event(), Idle):
                break
            elif self._step():
                self._happened(event)
        if self.is_alive and not self.stands_still:
            self.arm()

    def _goes_on(self) -> bool:
        return self.is_alive and not self.stands_still

    def _step(self) -> bool:
        """Count something that it does; False if it dies before."""
        self._steps += 1
        if self._steps == self.kill_at and self.world.is_faulty:
            self.world.kill(self)
        return self.is_alive

    def die(self) -> None:
        """It is gone, without a word."""
        self.is_alive = False
        if self.scripts:
            self.world.reach("instance killed while a handler runs")
        for name in self.running:
            self.world.orphaned(name, self)
        if self.seat.pending:
            self.world.reach("instance killed while the store is at work")
        scripts, self.scripts = tuple(self.scripts.values()), {}
        for script in scripts:
            script.close()

    def _time_passes(self, now: float) -> None:
        if self.is_alive:
            self.server.handle_timeout(now=now)

    def _perform(self, effect: ServerEffect) -> None:
        match effect:
            case Wake(exchange):
                exchange.driver.wake()
            case Authenticate():
                self._authenticate(effect)
            case _:
                self.seat.perform(effect)

    def _authenticate(self, effect: Authenticate) -> None:
        values = effect.head.values(b"authorization")
        name = values[0].decode() if values else ""

        def tell() -> None:
            if self.is_alive:
                issuer = self.world.issuer
                outcome = name if issuer is None else issuer.access(effect.head)
                self.server.authenticated(effect, outcome, now=self.now)
                self.touch()

        delay = 0.01 * self.world.fates.number(f"{name} {self._steps}")
        if self.world.issuer is not None:
            delay += self.world.issuer.verifying_takes(f"{self.name} {self._steps}")
        self.world.clock.call_later(delay, lambda: self.when_awake(tell))

    def sends(self, data: bytes) -> None:
        """Look at what is sent: nothing is, before it is stored."""
        store = self.seat.store
        if store is not None and b"id: " in data:
            for id in _ID.findall(data):
                text = id.decode().strip()
                if not text.endswith("-0") and text not in store.ids:
                    self.world.fail("stored first", f"{self.name} sends {text} before it is stored")

    # The application

    def tick(self, number: int, *, is_last: bool = False) -> None:
        """Tell each session something that belongs to no call."""
        if not self.is_alive or self.stands_still:
            return
        for session in () if self.world.relays else self.server.sessions:
            name = session.client_info.get("name", "")
            params = {"from": self.name, "number": number, "to": name}
            if session.notify(TICK, params, now=self.now) and is_last:
                self.world.promised[name].add((self.name, number))
        self.server.publish(CHANGED, now=self.now)
        for customer in self.world.customers if "resources" in self.world.features else ():
            uri = f"{customer.folder}/{self.name}/{number}"
            self.server.publish(UPDATED, {"uri": uri}, now=self.now)
        self.touch()

    def drain_calls(self) -> None:
        """Take nothing new."""
        self.server.drain(now=self.now)
        self.touch()

    def shut_down(self) -> None:
        """End what runs."""
        self.has_ended = True
        self.server.shut_down(now=self.now)
        self.touch()

    def end_sessions(self) -> None:
        """End all sessions."""
        if self.is_alive:
            for session in self.server.sessions:
                self.world.causes.add("end")
                self.server.end_session(session, "the operator wants it", now=self.now)
            self.touch()

    def _happened(self, event: ServerEvent) -> None:
        self.world.note(self.index, type(event).__name__)
        match event:
            case CallReceived(call):
                self._used.add(call.peer)
                self._received(call)
            case SessionClosed(session, reason) if "not used" in reason:
                self.world.reach("unused session ended for another one")
                if session in self._used:
                    self.world.fail("causes", f"{self.name} ends a used session: {reason}")
            case CallCancelled(call):
                self.world.reach("handler cancelled")
                if call in self.scripts:
                    self.scripts.pop(call).close()
            case ClientResponseReceived(call, request_id) if self._awaited.get(call) == request_id:
                del self._awaited[call]
                self._go_on(call, event)
            case ClientNotified(_, notification):
                self.world.greeted(notification.params or {})
            case ResponseUndelivered():
                self.world.reach("answer lost")
            case AccessExpired(principal):
                self.world.expires(principal)
            case StoreFailed(lost=lost):
                if lost and self._loses_in_vain:
                    self.world.fail("kept", f"{self.name} loses messages: {event}")
                self.world.reach("store failed, message lost" if lost else "store failed")
            case InvalidLine():
                self.world.fail("protocol", f"{self.name}: noise {event.line!r}")
            case _:
                pass

    @property
    def _loses_in_vain(self) -> bool:
        """Whether nothing explains that messages are lost; those of a session that ends are."""
        is_ending = self.world.is_closing or "early closes" in self.world.features
        return not (is_ending or self.world.causes & _LOSES)

    def _received(self, call: ServerCall) -> None:
        method = call.request.method
        if method == "tools/list":
            call.respond({"tools": []}, now=self.now)
            return
        name = _errand_of(call)
        errand = self.world.errands[name]
        principal = call.peer.principal
        if principal not in ("", errand.principal):
            self.world.fail("isolation", f"{name} comes as of {principal!r}")
        start = 0 if call.handler_input.state is None else call.handler_input.state["step"]
        self.world.tell(f"{self.name} runs {name} from step {start}")
        is_restarted = self.world.tasks.enters(call, self)
        self.world.enters(errand, start, self, is_restarted=is_restarted)
        if start and isinstance(call.peer, LegacySession):
            self._check_not_cancelled(call, call.peer)
        if start and not self._are_answers(call, name):
            return
        self.scripts[call] = self._script(call, errand, start, self.world.entries[name])
        self._go_on(call, None)

    def _check_not_cancelled(self, call: ServerCall, session: LegacySession) -> None:
        """Fail if a call goes on whose cancellation has been in the store for long enough."""
        key = session.log_key(cancellation_mailbox(call.request.id))
        stored_at = self.world.stored_cancellations.get(key, math.inf)
        is_slow = self.world.features & {"slow store", "naps"}
        # An append that fails is repeated for that long: its instance has looked for one before.
        takes = 30.0 if is_slow or self.seat.troubled_at > self.world.clock.now - 30 else 0.0
        if stored_at + takes < self.world.clock.now:
            self.world.fail("executions", f"{_errand_of(call)} goes on after its cancellation")

    def _are_answers(self, call: ServerCall, name: str) -> bool:
        """Whether the answers are those to what was asked; else the call fails with one of them."""
        try:
            answers = dict(call.handler_input.input_responses)
        except JsonRpcError as error:
            call.respond_exception(error, now=self.now)
            return False
        for question, answer in answers.items():
            marker = [name, call.handler_input.state["turn"], question]
            if answer["action"] == "cancel" and call.is_task:
                continue  # its user has not answered
            if answer["content"]["marker"] != marker:
                self.world.fail("answers", f"{name} gets the answer {answer} to {marker}")
        if len(answers) != call.handler_input.state["questions"]:
            self.world.fail("answers", f"{name} gets {len(answers)} answers")
        return True

    def _script(self, call: ServerCall, errand: Errand, start: int, run: int) -> Script:
        """What a handler does, from one step on."""
        for number in range(start, len(errand.steps)):
            kind, value = errand.steps[number]
            self.world.check_wanted(errand, call)
            self.world.tasks.check_runs(call, self)
            if kind in ("progress", "mark"):
                while call.is_above_high_water:
                    self.world.reach("handler waits")
                    yield 0.05
            match kind:
                case "sleep":
                    yield float(value)
                case "progress":
                    call.progress(number + 1, len(errand.steps), "x" * value, now=self.now)
                case "mark":
                    mark = {"call": errand.name, "run": run, "step": number, "pad": "x" * value}
                    call.notify(MARK, {"level": "info", "data": mark}, now=self.now)
                case "disconnect":
                    if call.disconnect(retry=value, now=self.now):
                        self.world.reach("handler lets its client go")
                case "ask":
                    params = {"message": "?", "marker": [errand.name, number, ""]}
                    id = call.ask("elicitation/create", params, timeout=value, now=self.now)
                    answered = yield id
                    self._check_answer(answered, params["marker"])
                case "turn":
                    names = [f"q{each}" for each in range(value)]
                    questions = {
                        name: InputRequest(
                            "elicitation/create",
                            {"message": "?", "marker": [errand.name, number, name]},
                        )
                        for name in names
                    }
                    state = {"step": number + 1, "turn": number, "questions": value}
                    return InputRequired(questions, state)
                case "become" | "save":
                    if errand.task is not None:  # else it is the handler of another method
                        self._use_task(call, kind, number)
                    while call.is_above_high_water:
                        yield 0.05
                case _:
                    raise JsonRpcError(value, "planned")
        self.world.check_wanted(errand, call)
        return {"content": [], "call": errand.name, "pad": "x" * errand.size}

    def _use_task(self, call: ServerCall, kind: str, step: int) -> None:
        """Make a call a task, or save what its handler has done so far."""
        if kind == "become":
            if call.become_task(now=self.now):
                self.world.reach("handler makes its call a task")
            return
        state = call.handler_input.state or {"turn": -1, "questions": 0}
        if call.save_progress({**state, "step": step + 1}, now=self.now):
            self.world.reach("handler saves its progress")

    def _check_answer(self, answered: ClientResponseReceived, marker: Any) -> None:
        try:
            result = answered.result()
        except RequestTimeout as error:
            self.world.reach("question timed out")
            self.world.asked_in_vain(marker, error)
        except CallError:
            self.world.reach("question failed")
        else:
            self.world.reach("question answered")
            if result["content"]["marker"] != marker:
                self.world.fail("answers", f"{marker} is answered {result}")

    def _go_on(self, call: ServerCall, value: Any) -> None:
        """Let a script go on to its next pause, or to its end."""
        script = self.scripts.get(call)
        if script is None or not self.is_alive:
            return
        try:
            pause = script.send(value)
            if isinstance(pause, int):
                self._awaited[call] = pause
            else:
                self.world.clock.call_later(
                    pause, lambda: self.when_awake(lambda: self._go_on(call, None))
                )
        except StopIteration as end:
            del self.scripts[call]
            self._answer(call, end.value)
        except RequestCancelled:
            self.scripts.pop(call, None)  # it asks, and its call has ended or gone elsewhere
        except (JsonRpcError, LocalProtocolError) as error:
            del self.scripts[call]
            call.respond_exception(error, now=self.now)
        self.touch()

    def _answer(self, call: ServerCall, result: Any) -> None:
        if isinstance(result, InputRequired):
            self.world.reach("input required")
        try:
            call.respond(result, now=self.now)
        except LocalProtocolError as error:  # this client cannot be asked
            call.respond_exception(error, now=self.now)


def _errand_of(call: ServerCall) -> str:
    return str((call.request.params or {})["arguments"]["call"])


_FINAL = re.compile(r"HTTP [34]\d\d")
"""Why a message is not sent again."""
_UNAUTHORIZED = re.compile(
    "Authorization failed|The server refused the request . times|The server requires? (the|further)"
)
"""In the reason of everything that gets no token."""
_CROWDED = re.compile("Too many calls are running|max_pending_calls")
"""In the reason for which a relay begins no call."""
_ANY = (
    "cut",
    "refused",
    "silence",
    "kill",
    "end",
    "end by stop",
    "stall",
    "jump",
    "store",
    "hiccup",
    "cut off",
    "evicted",
    "ghost",
    "sessions",
    "impatient",
    "stop",
    "redirected",
    "unauthorized",
    "expired",
)
_LOSES = {"store", "evicted", "jump", "end", "stop"}
"""After these a server may give up what it has to store."""
_LOSES_KEYS = {"kill", "stop", "end by stop", "no room", "several", "silence", "stall", "impatient"}
"""After these a call with a key may be lost."""
_EXPIRES = ("kill", "end", "end by stop", "store", "evicted", "jump", "sessions", "forgotten")
_CAUSES = {
    "Disconnected": _ANY,
    "SessionLost": _EXPIRES,
    "RequestTimeout": (
        *("silence", "kill", "store", "jump", "evicted", "impatient", "unanswered"),
        "unauthorized",
    ),
    "JsonRpcError": (
        *(set(_ANY) - {"hiccup"}),
        *("unanswered", "declined", "slow", "standstill", "keys"),
    ),
    "RequestRefused": (*_EXPIRES, "stop", "rate", "hiccup", "cut off", "redirected"),
    "ProcessEnded": ("kill",),
    "RequestCancelled": (),
    "InvalidResponse": (),
    "NegotiationFailed": _ANY,
    "AuthorizationFailed": (*_ANY, *authorization.CAUSES),
}
"""What must have happened before a call may fail in this way."""
