"""A world: clients, instances of a server, stores and networks, in virtual time, from one seed.

First accidents happen; then they stop, and everything has to come to its end within a bound of
virtual time; then all clients close, and nothing may be left. What must never happen is looked for
all the time, so a world needs no expectations of its own.
"""

from __future__ import annotations

import json
import math
import signal
import traceback
import zlib
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import attrs

from sansmcp import (
    App,
    Client,
    Entry,
    KnownServers,
    Limits,
    MemoryStore,
    RateLimit,
    ReconnectPolicy,
    Server,
    ServerCall,
    StateSigner,
    StreamKey,
    httptools_parser,
)
from sansmcp.app import TaskRule
from sansmcp.codecs import jsonrpc
from sansmcp.codecs.headers import Headers
from sansmcp.codecs.jsonrpc import METHOD_NOT_FOUND, UNSUPPORTED_VERSION
from sansmcp.effects import OpenExchange
from sansmcp.errors import RequestTimeout
from sansmcp.events import CallCompleted
from sansmcp.http2.pipe_client import PipeClient
from sansmcp.http11_parser import Http11Parser
from sansmcp.messages import Request
from sansmcp.meta_keys import LISTEN
from sansmcp.reclaim import CANCEL, EXTENSION
from sansmcp.revisions import HANDSHAKE_VERSIONS, REVISIONS
from sansmcp.server.refusals import no_handshake
from sansmcp.states import ClientState
from sansmcp.tasks import METHODS as ABOUT_TASKS
from sansmcp.tasks import RESULT_TYPE
from sansmcp.testing import VirtualClock, sequential_tokens
from sansmcp.trace import Tracer

from . import authorization, kinds, relays, remains
from .batches import PRINCIPAL, VERSION, Batcher
from .fates import Fates
from .network import Wire
from .peers import SUBSCRIBE, TICKS, UNSUBSCRIBE, Customer, Host, Instance, Made
from .stores import NotingStore, Outage
from .tasks import Tasks, TaskTerms

FEATURES = {
    "cuts": 0.5,
    "silence": 0.25,
    "refusals": 0.3,
    "stalls": 0.25,
    "proxies": 0.2,
    "windows": 0.5,
    "fragments": 0.5,
    "kills": 0.3,
    "slow store": 0.5,
    "store tells": 0.5,
    "store fails": 0.25,
    "store away": 0.4,
    "fleet": 0.5,
    "tasks": 0.3,
    "small store": 0.15,
    "jumps": 0.15,
    "cancels": 0.3,
    "naps": 0.3,
    "ends": 0.15,
    "strangers": 0.3,
    "visitors": 0.15,
    "stops": 0.2,
    "small limits": 0.5,
    "impatient": 0.15,
    "silent users": 0.15,
    "batches": 0.15,
    "resources": 0.25,
    "httptools": 0.3,
    "early closes": 0.15,
    "noise": 0.2,
    "eras": 0.06,
    **authorization.FEATURES,
}
"""What a world may have, and how likely."""

_NOT_IN_A_FLEET = frozenset(
    (
        "early closes",
        "ends",
        "eras",
        "impatient",
        "jumps",
        "naps",
        "protected",
        "silence",
        "silent users",
        "small store",
        "stalls",
        "visitors",
    )
)
"""What would explain too much in worlds of instances that share a store and die."""

_NOT_WITH_TASKS = (_NOT_IN_A_FLEET | {"fleet", "batches"}) - {
    "early closes",
    "impatient",
    "silence",
    "silent users",
    "stalls",
}
"""What would explain too much in worlds of tasks."""

CHECKERS = {
    "one end": "a call ends once, and nothing follows Closed",
    "end in time": "once there are no accidents, each call ends within a bound of virtual time",
    "causes": "a call or a session fails only if something has happened that explains it",
    "executions": "a handler runs, or goes on, once for each call that may not be repeated",
    "results": "a result is that of its own call, which has run",
    "answers": "a handler gets the answers to its own questions",
    "order": "progress and notifications of a call come in order, none twice, none after the end",
    "gaps": "a call that ran once, and completed, has told everything that it had to tell",
    "isolation": "nothing of another principal, session or call",
    "protocol": "no client sees a violation, or noise, of our own server",
    "reconnecting": "attempts are counted anew after progress, and a poll waits for `retry`",
    "stored first": "an event id is sent only when the store has its entry",
    "keep-alive": "a connection that can be used again is not closed before its time",
    "readers": "an open event stream waits for something, and ends when its log does",
    "stores": "a store adds to a log only the number after its last",
    "effects": "a client breaks off only requests that it has made",
    "bounds": "unsent bytes, stores and rounds stay within their limits",
    "listening": "who listens is told, once there are no accidents",
    "openings": "a client that is opened once there are no accidents connects",
    "recovery": "a client that is connected can make calls once there are no accidents",
    "deadlines": "no deadline stays in the past",
    "timers": "nothing that has ended has a timer",
    "quiet": "machines do not keep themselves or each other busy for ever",
    "no exceptions": "machines raise nothing",
    "kept": "what a store has not done is done again until it works",
    "woken": "a log is read soon of whose change the store has told",
    "leases": "only the dead are taken for dead, and clients that wait for them are told soon",
    "tasks": "an end of a task never changes, an answer counts once, a cancellation ends it",
    "keys": "a call with a key is lost only with its server, or if the server has no room for it",
    "shares": "a client of a relay that makes few calls finds room, however many others make",
    "handles": "a call whose client has the handle of a task ends as the task does",
    "nothing left": "when all clients have left, servers and clients hold nothing",
    **authorization.CHECKERS,
}
"""What is looked for, by name."""

SOMETIMES = (
    "answer lost",
    "append behind",
    "append fails: before",
    "append fails: done",
    "append fails: late",
    "append fails: loses its end",
    "append overtaken",
    "append recognised by its token",
    "batch answered",
    "batch answered by a stream",
    "batch of lines",
    "call became a task",
    "call cancelled",
    "call connects again",
    "call ends because it cannot become a task",
    "call failed: Disconnected",
    "call failed: JsonRpcError",
    "call failed: RequestRefused",
    "call failed: RequestTimeout",
    "call failed: SessionLost",
    "call finds a dead connection",
    "call goes on at another instance",
    "call goes on with answers",
    "call made again",
    "call polls",
    "cancelled after the end",
    "client given up",
    "client given up: ProcessEnded",
    "client opened after a change of era",
    "client reads no more for a while",
    "clock put back",
    "clock put forward",
    "connected by http+sse at 2024-11-05",
    "connected by stdio at 2024-11-05",
    "connected by stdio at 2025-03-26",
    "connected by stdio at 2025-06-18",
    "connected by stdio at 2025-11-25",
    "connected by stdio at 2026-07-28",
    "connected by streamable-http at 2025-03-26",
    "connected by streamable-http at 2025-06-18",
    "connected by streamable-http at 2025-11-25",
    "connected by streamable-http at 2026-07-28",
    "connection used again",
    "entries have gone from the store",
    "handler cancelled",
    "handler lets its client go",
    "handler makes its call a task",
    "handler saves its progress",
    "handler waits",
    "initialize not known to a server of another make",
    "input required",
    "instance killed",
    "instance killed while a handler runs",
    "instance killed while the store is at work",
    "listener connects again",
    "listener finds a dead connection",
    "listener polls",
    "listener stopped",
    "listener told in the end",
    "subscriber of a resource told in the end",
    "subscriber told in the end",
    "instance stopped",
    "stranger in a session",
    "notification not delivered",
    "proxy closes a silent connection",
    "question answered",
    "question failed",
    "question timed out",
    "question withdrawn",
    "log of a dead instance goes on",
    "remembered era is wrong",
    "replay in several pages",
    "second reader",
    "server replaced by one of another era",
    "server reads no more for a while",
    "server waits for a slow reader",
    "session expired",
    "unsubscribed",
    "unused session ended for another one",
    "slow reader given up",
    "heads read by httptools",
    "store answers twice",
    "store failed",
    "store failed, message lost",
    "store out of reach",
    "store out of reach, and a reply is lost",
    "store outlives instances",
    "store tells of a change",
    "stream resumed from a cursor",
    "task answered in part",
    "task asked for again",
    "task attached to",
    "task call failed: JsonRpcError",
    "task call failed: RequestTimeout",
    "task call failed: TaskCancelled",
    "task call failed: TaskLost",
    "task cancelled by its caller",
    "task cancelled by its handle",
    "task changed by two at once",
    "task entered again after the death of an instance",
    "task failed because its instance has died",
    "task failed because its instance was stopped",
    "task followed to its result",
    "task goes on with answers",
    "task listener told of the end",
    "task read",
    "task required of a client that follows none",
    "wake-up lost",
    "watch begun again",
    *authorization.SOMETIMES,
    *kinds.SOMETIMES,
)
"""What has to be reached in some worlds, or nothing is proven about it."""

_NOTHING: tuple[str, Any] = ("", None)
_TRANSPORTS = {"http": ("streamable-http",), "sse": ("http+sse",)}

_UNASKING = ("sleep", "progress", "mark", "fail")
"""What a handler does whose client cannot be asked or sent away."""

_ROOM = Limits().max_reclaim_bytes

LAST = 99
"""The number of what is told in the end."""
_DEAFENS = frozenset(
    (
        "silence",
        "kill",
        "stop",
        "end",
        "end by stop",
        "jump",
        "ghost",
        "evicted",
        "store",
        "stall",
        "impatient",
        "sessions",
    )
)
"""After these a client may listen to what is dead, without a way to know it."""

_HIDES_DEATH = frozenset(
    ("silence", "naps", "jumps", "stalls", "windows", "small store", "early closes", "protected")
)
"""Who has these may be told later that an instance has died."""

_FAULTS_LAST = 25.0
"""Seconds."""
_MODERN = ("2026-07-28",)
_KEYED = ("2026-07-28", "2026-07-28", "2024-11-05", *REVISIONS)
"""The revisions of clients whose calls have keys: the oldest on HTTP+SSE."""
_KEYS = (b"0123456789abcdef", b"another key, too")
_WALL_CLOCKS = (0.0, 0.5, -3.0, 30.0, -30.0)
"""Seconds by which the time of day of instances is ahead."""
_NO_HANDSHAKE = no_handshake(Request(0, "initialize"), ()).message.partition(":")[0].encode()
"""In what our own server says to ``initialize`` where it serves no revision that has it."""
_SETTLING = 4000.0
"""Seconds within which all calls have to end once there are no faults: questions stop clocks."""
_LAST_REQUESTS = 100.0
"""Seconds within which the last request of clients that close has come."""
_LEAVING = 8000.0
"""Seconds within which nothing may be left once all clients have closed."""
_NOTICED = 200.0
"""Seconds after which a client has noticed that a connection is silent on which it listens."""
_ATTEMPTS = 3
"""Calls that a client may make in the end until one has its result."""
_PAUSE = 20.0
"""Seconds between them: an instance that stops has gone then."""
_AGAIN = 450.0
"""Seconds within which each of them ends."""
_STEPS = 150_000
"""Steps of a world. Most take a tenth of it at most."""
_CPU = 8.0
"""Seconds of processor time: a machine that never comes back costs so much."""


class Stuck(BaseException):
    """A world has taken too much processor time: something goes round in circles."""


class Failed(BaseException):
    """Something has happened that must not happen; the world ends."""


@attrs.frozen(kw_only=True)
class Errand:
    """A call to be made, and what its handler does."""

    name: str
    method: str
    params: dict[str, Any] | None
    idempotent: bool | None
    at: float
    cancel_after: float | None
    steps: tuple[tuple[str, Any], ...]
    size: int
    principal: str
    task: TaskTerms | None = None
    subject: str = ""
    """The call whose task it is about."""

    @property
    def shown(self) -> str:
        """What its handler does, for a report."""
        again = "" if not self.idempotent else " (idempotent)"
        return f"{list(self.steps)}{again}"

    @property
    def fails_with(self) -> int | None:
        """The code of the error that the handler raises, if it does."""
        kind, value = self.steps[-1] if self.steps else _NOTHING
        return value if kind == "fail" else None

    @property
    def may_raise(self) -> bool:
        """Whether the handler asks the client, which is not possible everywhere."""
        asks = any(kind in ("ask", "turn") for kind, _ in self.steps)
        return asks and self.task is None

    @property
    def reports(self) -> list[float]:
        """The progress that the handler reports."""
        return [n + 1 for n, (kind, _) in enumerate(self.steps) if kind == "progress"]

    @property
    def marks(self) -> list[int]:
        """The steps in which the handler sends a log message."""
        if self.task is not None and not self.task.wants_log:
            return []
        return [n for n, (kind, _) in enumerate(self.steps) if kind == "mark"]

    @property
    def is_kept(self) -> bool:
        """Whether a server keeps all of what a call with a key tells, until the client has it."""
        told = [value for kind, value in self.steps if kind in ("progress", "mark")]
        return len(told) <= 32 and sum(told) + 300 * len(told) <= 16 * 1024

    @property
    def lasts(self) -> bool:
        """Whether it listens for changes, for as long as its client does."""
        return self.method == LISTEN

    @property
    def is_safe(self) -> bool:
        """Whether it may run more than once."""
        return bool(self.idempotent) or self.method != "tools/call"


class World:
    """One simulated run."""

    def __init__(
        self,
        seed: int,
        without: frozenset[str] = frozenset(),
        *,
        kind: str | None = None,
        story: bool = False,
    ) -> None:
        """Make a world; ``kind``: that of ``KINDS``, "" for none; None: it is drawn, too."""
        fates = self.fates = Fates(seed, without)
        self.story: deque[str] | None = deque(maxlen=4000) if story else None
        self.clock = VirtualClock()
        mood = fates.pick("mood", (0.3, 1.0, 1.0))
        self.features = {
            name for name, rate in FEATURES.items() if fates.strikes(f"feature {name}", mood * rate)
        }
        self.kind = kinds.draw(fates) if kind is None else kind
        self.features = kinds.features_of(self.kind, self.features, fates)
        self.has_keys = self.kind in ("keyed calls", "shared keys")
        """Whether calls have keys, by which they survive cuts."""
        self.shares_keys = self.kind == "shared keys"
        """Whether all instances have the keys of calls, in their store."""
        for name in ("bad gateway", "doubled posts", "rate limit") if self.has_keys else ():
            if fates.strikes(f"keyed calls with {name}", 0.3):
                self.features.add(name)
        if "tasks" in self.features:
            self.features -= kinds.never(self.kind, _NOT_WITH_TASKS)
        if "fleet" in self.features:
            self.features |= {"cuts"}
            self.features -= kinds.never(self.kind, _NOT_IN_A_FLEET)
        self.is_faulty = True
        self.is_closing = False
        self.is_of_another_make = False
        """Whether the servers are by others, who name no versions to those who shake hands."""
        self.problem: str | None = None
        self.checker = ""
        self.causes: set[str] = {
            name for name in ("impatient", "sessions") if name in self.features
        }
        self.touched: dict[Host, None] = {}
        self.errands: dict[str, Errand] = {}
        self.tasks = Tasks(self)
        self.cancelled: dict[str, float] = {}
        """When calls were cancelled."""
        self.stored_cancellations: dict[StreamKey, float] = {}
        """When cancellations were left in the store for another instance."""
        self.parked: dict[StreamKey, StreamKey] = {}
        """Where calls would find that they were cancelled, by the logs of answers to them."""
        self.stopped: set[str] = set()
        """Calls whose handlers were running at an instance when it stopped."""
        self.began: dict[str, float] = {}
        """When their handlers were entered first."""
        self.entered: Counter[str] = Counter()
        """How often the handlers of calls were entered from their beginning."""
        self.entries: Counter[str] = Counter()
        """How often they were entered at all."""
        self.rounds: Counter[tuple[str, int]] = Counter()
        self.restarted: set[str] = set()
        """Calls whose handlers were entered again after the death of an instance."""
        self.promised: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
        """What instances have taken in the end for clients that listen."""
        self.homes: dict[str, Instance] = {}
        self.keyed: set[str] = set()
        """Calls that were sent with a key."""
        self.doubled: set[str] = set()
        """Calls that a proxy has delivered twice: then a server may run them twice."""
        self.greetings: Counter[tuple[str, int]] = Counter()
        self.reached: set[str] = set()
        self.states: set[int] = set()
        self.schedule = 0
        self.steps = 0
        self.latency = fates.pick("latency", (0.0, 0.001, 0.01, 0.2))
        self.rate = fates.pick("rate", (0.3, 0.6) if "fleet" in self.features else (0.1, 0.3, 0.6))
        self.outages: list[Outage] = []
        self.relays: list[relays.Relaying] = []
        self._draw_servers()
        if "relay" in self.features:
            self._draw_relay()
        self._draw_clients()
        self._draw_accidents()

    # What it is made of

    def _draw_servers(self) -> None:
        fates, small = self.fates, "small limits" in self.features
        pick, has_tasks = fates.pick, "tasks" in self.features
        is_fleet = "fleet" in self.features or has_tasks
        self.resumable = is_fleet or pick("resumable", (True, True, True, False))
        self.shared = self.resumable and (is_fleet or pick("shared", (True, True, True, False)))
        self.issuer: authorization.AuthorizationServer | None = None
        if "protected" in self.features:
            self.issuer = authorization.AuthorizationServer(self)
        self.authentication = pick("authentication", (True, False)) or self.issuer is not None
        self.sessions = is_fleet or pick("sessions", (True, True, True, True, True, False))
        turns = self.resumable and pick("multi turn", (True, False))
        little = "small store" in self.features
        entries = (20, 60, 150) if "evicting fleet" in self.features else (5, 8, 20, 60, 150)
        self.are_rotated = pick("keys are rotated", (True, False))
        is_brief = "idle expiry" in self.features
        is_forgotten = is_fleet and "half-open" in self.features  # who is silent for _NOTICED
        self.limits = Limits(
            max_unsent_bytes=pick("unsent", (200, 200, 2000)) if small else 256 * 1024,
            replay_page_entries=pick("page", (1, 2, 3)) if small else 128,
            max_queued_events=pick("events", (1, 2, 5)) if small else 1024,
            max_pending_entries=pick("pending", (1, 2, 5)) if small else 256,
            max_rounds=pick("rounds", (1, 2, 32)) if small and not has_tasks else 32,
            max_seen_event_ids=pick("seen", (1, 4, 256)) if small else 256,
            max_open_posts=pick("posts", (1, 2, 16)) if small else 16,
            max_sessions=pick("most sessions", (4, 6)) if "visitors" in self.features else 10_000,
            store_poll_interval=1.0 if little else pick("follow", (0.2, 0.25, 1.0)),
            session_idle_timeout=pick("brief idle", (8.0, 30.0))
            if is_brief
            else pick("idle", (120.0, 300.0) if is_forgotten else (300.0, 1800.0)),
            lease_timeout=10.0
            if "slow store" in self.features
            else pick("lease", (10.0, 3.0, 3.0)),
            max_stored_age=pick("brief age", (30.0, 45.0, 60.0))
            if is_brief
            else pick("age", (400.0, 900.0)),
            max_stored_entries=pick("entries", entries) if little else 100_000,
            max_tasks=pick("most tasks", (1, 2, 3)) if "few tasks" in self.features else 10_000,
            input_timeout=pick("input", (5.0, 100.0)) if "silent users" in self.features else 600.0,
            max_reclaim_bytes=pick("bytes of keys", (2500, 2500, 6000, _ROOM, _ROOM, _ROOM))
            if self.has_keys
            else _ROOM,
        )
        if self.limits.max_reclaim_bytes < _ROOM:
            self.reach("call that lost its key's room")
            self.causes.add("no room")
        if little or is_brief:
            self.causes.add("evicted")
        if is_forgotten:
            self.causes.add("forgotten")
        self.settings: dict[str, Any] = {
            "versions": HANDSHAKE_VERSIONS if "eras" in self.features else tuple(REVISIONS),
            "http_sse": "/sse",
            "resumable": self.resumable,
            "shared_store": self.shared,
            "multi_turn": turns,
            "sessions": self.sessions,
            "standalone_streams": pick("listening", (True, True, False)),
            "stream_after": pick("stream after", (None, None, 0.0, 0.05, 1.0)),
            "retry": pick("retry", (None, 0.1, 1.0)),
            "authentication": self.authentication,
            "protected_resource": None if self.issuer is None else self.issuer.resource,
            "limits": self.limits,
        }
        if "rate limit" in self.features:
            self.settings["rate_limit"] = RateLimit(
                pick("requests a second", (2.0, 5.0)), pick("burst", (2, 5))
            )
            self.causes.add("rate")
        if self.shares_keys:
            self.settings.update(reclaim="store", wall_clock=lambda: self.wall_time)
        if has_tasks:
            self.settings.update(
                task_after=pick("task after", (0.0, 0.05, 0.3, 1.0, None)),
                task_poll_interval=0.2
                if "eager readers" in self.features
                else pick("task poll", (0.2, 1.0, 1.0, 5.0)),
                wall_clock=lambda: self.wall_time,
            )
        self.store: NotingStore | None = None
        """One in memory that all instances share."""
        if self.shared:
            self.store = NotingStore(MemoryStore(self.limits), self.tasks)
        self.turns = turns
        count = pick("instances", (2, 3) if is_fleet else (1, 2, 2, 3))
        if "large fleet" in self.features:
            count = pick("instances of a large fleet", (4, 5))
        if self.has_keys and count > 1 and self.shared and not self.shares_keys:
            self.causes.add("several")
        self.instances: list[Instance] = []
        self._generation = 0
        for number in range(count):
            self.instances.append(self._new_instance(f"s{number}", number))
        self.all_instances = list(self.instances)
        self.processes: list[Instance] = []

    def _draw_relay(self) -> None:
        """Draw what is between all clients and the server."""
        pick = self.fates.pick
        kind = pick("upstream kind", ("http", "stdio", "stdio"))
        versions = (pick("upstream version", tuple(REVISIONS)[kind == "http" :]),)
        upstream = relays.Upstream(self, 30, kind, versions)
        settings = {**self.settings, "shared_store": False, "authentication": False}
        settings["multi_turn"] = False
        server = self._new_server("relay", settings, relays.app_of_relay())
        relaying = relays.Relaying(self, "relay", 31, server, self._store_of("relay"), upstream)
        if self.shared:
            relaying.seat.store = NotingStore(MemoryStore(self.limits), self.tasks)
        self.relays.append(relaying)
        self.clock.call_at(0.0, lambda: self._start(upstream))

    def new_upstream_client(self, kind: str, versions: tuple[str, ...]) -> Client:
        """Return the machine of a client of a relay."""
        self._generation += 1
        name = f"upstream.{self._generation}"
        return Client(
            ["server"] if kind == "stdio" else "http://localhost/mcp",
            name="upstream",
            jitter=self.fates.stream(f"{name} jitter"),
            versions=versions,
            capabilities={"elicitation": {}},
            transports=("streamable-http",),
            standalone_stream=True,
            timeout=86_400.0,
            total_timeout=86_400.0,
            connect_timeout=300.0,
            headers={} if kind == "stdio" else {"Authorization": "alice"},
            reconnect=ReconnectPolicy(initial_delay=0.2, max_delay=2.0, max_attempts=60),
            limits=attrs.evolve(self.limits, max_pending_calls=relays.ROOM)
            if "crowded relay" in self.features
            else self.limits,
            tasks=False,
            trace=self._tracer(name),
        )

    def _new_instance(self, name: str, index: int) -> Instance:
        self._generation += 1
        full = f"{name}.{self._generation}"
        server = self._new_server(full, {**self.settings, **self._settings_of(full)})
        instance = Instance(self, full, index, server, self._store_of(full))
        if self.strikes(f"{full} kill", self.rate * ("kills" in self.features)):
            instance.kill_at = 1 + int(150 * self.fates.number(f"{full} kill at") ** 2)
        return instance

    def _settings_of(self, name: str) -> dict[str, Any]:
        """What an instance has set otherwise than the others."""
        settings: dict[str, Any] = {}
        if "clocks differ" in self.features and "tasks" in self.features:
            ahead = self.fates.pick(f"{name} wall clock is ahead", _WALL_CLOCKS)
            settings["wall_clock"] = lambda: self.wall_time + ahead
        if "other keys" in self.features:
            settings["state_signer"] = self._signer(name)
        return settings

    def _signer(self, name: str) -> StateSigner:
        """What signs the states of an instance, which may have other keys than others.

        While keys are rotated, all instances know both. Else some know one of them only.
        """
        keys: tuple[bytes, ...] = (b"0123456789abcdef",)
        if "other keys" in self.features:
            keys = self.fates.pick(f"{name} keys", (_KEYS, _KEYS[::-1]))
            if not self.are_rotated and self.fates.number(f"{name} knows one key") < 0.5:
                keys = keys[:1]
                self.causes.add("keys")
        return StateSigner(keys=keys, clock=lambda: self.clock.now, lifetime=1e6)

    def is_newer(self, name: str) -> bool:
        """Whether an instance is of a later version than others at the same store."""
        return self.fates.number(f"{name} is newer") < 0.4

    def _store_of(self, name: str) -> NotingStore | None:
        """What an instance opens when it is started; stores that are not shared are empty then."""
        if self.store is not None or not self.resumable:
            return self.store
        return NotingStore(MemoryStore(self.limits), self.tasks)

    def _new_server(
        self, name: str, settings: dict[str, Any], relay_app: App | None = None
    ) -> Server:
        app = self._new_app() if relay_app is None else relay_app
        given: dict[str, Any] = {"state_signer": self._signer(name), **settings}
        return Server(
            app,
            new_token=sequential_tokens(f"token-of-{name.replace('.', '-')}"),
            trace=self._tracer(name),
            http11=self._http11(name),
            **given,
        )

    def _new_app(self) -> App:
        app = App(
            "world",
            capabilities={"tools": {"listChanged": True}, "resources": {"subscribe": True}},
        )
        rule, is_restartable = None, False
        if "tasks" in self.features:
            rule, is_restartable = self.tasks.rule_of, self.tasks.is_restartable
        # Clients of a world sign nothing, so none can follow a challenge that names DPoP.
        has_scopes = self.issuer is not None and "proofs" not in self.features
        needed = authorization.SCOPES if has_scopes else {}
        for method in ("tools/list", "resources/read"):
            app.handler(method, scopes=needed.get(method, set()))(_unused)
        call_handler = app.handler(
            "tools/call",
            task=rule,
            restartable=is_restartable,
            scopes=needed.get("tools/call", set()),
        )
        call_handler(_unused)
        return app

    def _http11(self, name: str) -> Http11Parser | None:
        """What reads heads of HTTP; None: the default."""
        if "httptools" not in self.features or self.fates.number(f"{name} reads heads") < 0.5:
            return None
        self.reach("heads read by httptools")
        return httptools_parser.HTTP11

    def _tracer(self, name: str) -> Tracer | None:
        if self.story is None:
            return None
        return Tracer(name, lambda line: self.tell(f"    {line}"))

    def _draw_clients(self) -> None:
        fates, pick = self.fates, self.fates.pick
        self.customers: list[Customer] = []
        self.known_servers = KnownServers()
        eras = "eras" in self.features
        is_crowded = "crowded relay" in self.features
        counts = (2, 3) if is_crowded else (1, 1, 2, 2, 3)
        count = pick("clients", counts) + (self.issuer is not None)
        for index in range(count + eras):
            name = f"c{index}"
            if index and not fates.strikes(name, 1.0):
                continue
            is_fleet = "fleet" in self.features
            has_tasks = "tasks" in self.features
            follows_tasks = not has_tasks or fates.number(f"{name} follows no tasks") > 0.1
            is_plain = is_fleet or has_tasks
            is_http2 = "stdio-v2" in self.features
            kind = pick(f"{name} kind", ("http",) * 7 + ("sse", "stdio", "any") * (not is_plain))
            versions = {
                "http": _MODERN
                if has_tasks
                else (
                    pick(
                        f"{name} version",
                        _MODERN
                        if {"modern fleet", "other keys"} & self.features
                        and fates.number(f"{name} is modern") < 0.6
                        else tuple(REVISIONS)[1 : -1 if is_fleet else None],
                    ),
                ),
                "sse": ("2024-11-05",),
                "stdio": (pick(f"{name} version", tuple(REVISIONS)),),
                "any": tuple(REVISIONS)
                if pick(f"{name} all", (True, False))
                else HANDSHAKE_VERSIONS,
            }[kind]
            if eras:
                kind, versions = "any", tuple(REVISIONS)
            elif "batches" in self.features and fates.number(f"{name} batches") < 0.4:
                kind, versions = "stdio", (VERSION,)
            if "half-open" in self.features and not is_plain:
                kind = pick(f"{name} half-open kind", ("http", "sse"))
                modern = pick(f"{name} half-open is modern", (True, False))
                versions = _MODERN if modern else tuple(REVISIONS)[1:-1]
                versions = ("2024-11-05",) if kind == "sse" else (pick(f"{name} at", versions),)
            principal = pick(f"{name} principal", ("alice", "bob"))
            if self.issuer is not None:
                principal = pick(f"{name} account", ("alice", "alice", "alice", "bob"))
            if is_http2:
                kind, versions = "stdio-v2", (pick(f"{name} version", tuple(REVISIONS)[1:]),)
            if self.has_keys:
                versions = (pick(f"{name} version", _KEYED),)
                kind = "sse" if versions == ("2024-11-05",) else "http"
            if self.relays:  # a relay serves one user
                kind, principal = "http", "alice"
                versions = (pick(f"{name} version", tuple(REVISIONS)[1:]),)
            impatient = "impatient" in self.features
            timeout = pick(f"{name} timeout", (1.0, 5.0, 20.0)) if impatient else 200.0
            target: Any = "http://localhost/sse" if kind == "sse" else "http://localhost/mcp"
            has_process = kind in ("stdio", "stdio-v2")
            is_protected = self.issuer is not None and not has_process
            credentials: Any = {"headers": {} if has_process else {"Authorization": principal}}
            if self.issuer is not None and is_protected:
                credentials = authorization.settings_of(self, name, self.issuer, principal)
            if self.has_keys:
                credentials["random_bytes"] = self._random_bytes(name)
            machine = authorization.WatchedClient if is_protected else Client
            client = (PipeClient if is_http2 else machine)(
                ["server"] if has_process else target,
                name=name,
                jitter=fates.stream(f"{name} jitter"),
                versions=versions,
                capabilities={"elicitation": {}},
                transports=_TRANSPORTS.get(kind, ("streamable-http", "http+sse")),
                standalone_stream=pick(f"{name} listen", (True, False)),
                multi_turn=pick(f"{name} multi turn", (True, False)),
                timeout=timeout,
                total_timeout=2 * timeout,
                connect_timeout=pick(f"{name} connect", (5.0, 300.0)) if impatient else 300.0,
                reconnect=ReconnectPolicy(initial_delay=0.2, max_delay=2.0, max_attempts=60),
                known_servers=self.known_servers,
                limits=self.limits,
                tasks=follows_tasks,
                trace=self._tracer(name),
                http11=self._http11(name),
                **credentials,
            )
            customer = Customer(self, name, 10 + index, client, kind)
            customer.principal = principal if self.authentication else ""
            customer.follows_tasks = follows_tasks
            if self.issuer is not None and is_protected:
                customer.seat = authorization.Seat(customer, self.issuer, principal)
            customer.offers = versions
            customer.has_listener = pick(f"{name} listen", (True, False))
            customer.causes |= {"crowd"} if is_crowded and index == 0 else set[str]()
            if self.issuer is not None and index:  # some find what others have stored
                customer.begins_at = pick(f"{name} begins", (0.0, 1.0, 4.0, 8.0))
            if index == count:
                customer.is_late = True
                customer.begins_at = _FAULTS_LAST + fates.between(f"{name} begins", 0.1, 20.0)
            self.customers.append(customer)
            self._draw_errands(customer, principal)
            self.clock.call_at(customer.begins_at, lambda c=customer: self._start(c))  # type: ignore[misc]

    def _random_bytes(self, name: str) -> Callable[[int], bytes]:
        numbers = self.fates.stream(f"{name} random bytes")
        return lambda count: bytes(int(256 * numbers()) for _ in range(count))

    def _start(self, customer: Customer) -> None:
        if customer.closes_early:
            return
        customer.remembered = self.known_servers.era("http://localhost/mcp")
        customer.client.start(now=customer.now)
        customer.touch()

    def _draw_errands(self, customer: Customer, principal: str) -> None:
        fates, pick = self.fates, self.fates.pick
        counts: tuple[int, ...] = (3, 4, 5) if "few tasks" in self.features else (1, 1, 2, 3, 4)
        if "several" in self.causes:  # a client finds out by its calls that there are several
            counts = (2, 5, 8)
        is_crowd = "crowd" in customer.causes
        if "crowded relay" in self.features:
            counts = (relays.CROWD,) if is_crowd else (1, 1, 2)
        for number in range(pick(f"{customer.name} calls", counts)):
            name = f"{customer.name}.{number}"
            if (number or customer.index > 10) and not fates.strikes(name, 1.0):
                continue
            method = pick(f"{name} method", ("tools/call",) * 5 + ("resources/read", "tools/list"))
            params: dict[str, Any] | None = {"name": "t", "arguments": {"call": name}}
            if method == "resources/read":
                params = {"uri": "x:y", "arguments": {"call": name}}
            elif method == "tools/list":
                params = None
            cancels = "cancels" in self.features and fates.strikes(f"{name} cancel", 0.5)
            latest = 3.0 if self.issuer is None else 15.0  # when tokens have expired
            at = customer.begins_at + fates.between(f"{name} at", 0.0, latest)
            steps = [] if method == "tools/list" else self._draw_steps(name)
            is_long = "standstill" in self.features  # it runs on while an instance stands still
            if {"fleet", "standstill"} & self.features and fates.strikes(f"{name} goes on", 0.6):
                steps[:0] = [("mark", 0), ("sleep", 40.0 if is_long else 12.0), ("mark", 0)]
            if is_crowd:
                method, params = "tools/call", {"name": "t", "arguments": {"call": name}}
                steps = [("sleep", 40.0)]  # three rounds of them within a timeout of 200 s
            if cancels and fates.strikes(f"{name} lasts", 0.8):
                steps.insert(0, ("sleep", 40.0))  # long enough to see whether it is cancelled
            cancel_after = pick(f"{name} cancel after", (0.0, 0.01, 0.05, 0.1, 0.5, 2.0, 8.0))
            errand = Errand(
                name=name,
                method=method,
                params=params,
                idempotent=pick(f"{name} idempotent", (None, True)),
                at=at,
                cancel_after=cancel_after * (0.5 + fates.number(name)) if cancels else None,
                steps=tuple(steps),
                size=pick(f"{name} size", (0, 0, 100, 3000, 20_000)),
                principal=principal,
                task=self._draw_terms(name) if method == "tools/call" else None,
            )
            self.errands[name] = errand
            self.clock.call_at(at, lambda errand=errand: customer.go(errand))  # type: ignore[misc]

        if customer.listens(modern=True) and fates.strikes(f"{customer.name} listens", 0.6):
            self._draw_listening(customer, principal)
        has_session = customer.kind in ("stdio", "sse") or self.sessions
        is_old = customer.kind != "any" and not customer.listens(modern=True)
        if "resources" in self.features and is_old and has_session:
            self._draw_subscribing(customer, principal)

    def _draw_terms(self, name: str) -> TaskTerms | None:
        """Draw how a call may become a task."""
        if "tasks" not in self.features:
            return None
        pick = self.fates.pick
        rules: tuple[TaskRule, ...] = (0, 0, 0.05, 1.0, "optional", "required", "never", None, None)
        return TaskTerms(
            rule=pick(f"{name} rule", rules),
            is_detached=pick(f"{name} is detached", (False, False, True)),
            wants_log=pick(f"{name} wants log", (False, False, True)),
            wants_progress=pick(f"{name} wants progress", (False, False, True)),
        )

    def _draw_subscribing(self, customer: Customer, principal: str) -> None:
        """Let a client of the handshake revisions subscribe, and perhaps unsubscribe."""
        fates, at = self.fates, 0.0
        for method in (SUBSCRIBE, UNSUBSCRIBE):
            name = f"{customer.name}.{method}"
            if not fates.strikes(name, 0.7 if method == SUBSCRIBE else 0.3):
                return
            at += fates.between(f"{name} at", 0.0, 9.0)
            errand = Errand(
                name=name,
                method=method,
                params={"uri": customer.folder},
                idempotent=True,
                at=at,
                cancel_after=None,
                steps=(),
                size=0,
                principal=principal,
            )
            self.errands[name] = errand
            self.clock.call_at(at, lambda errand=errand: customer.go(errand))  # type: ignore[misc]

    def _draw_listening(self, customer: Customer, principal: str) -> None:
        errand = Errand(
            name=f"{customer.name}.listen",
            method=LISTEN,
            params={
                "notifications": {
                    "toolsListChanged": True,
                    "resourceSubscriptions": [f"{customer.folder}/"],
                }
            },
            idempotent=None,
            at=self.fates.between(f"{customer.name} listens at", 0.0, 3.0),
            cancel_after=None,
            steps=(),
            size=0,
            principal=principal,
        )
        self.errands[errand.name] = errand
        self.clock.call_at(errand.at, lambda: customer.go(errand))

    def _draw_steps(self, name: str) -> list[tuple[str, Any]]:
        fates, pick = self.fates, self.fates.pick
        steps: list[tuple[str, Any]] = []
        styles = ("plain", "plain", "chatty", "polling", "turns", "asks")
        style = pick("fashion", (None, None, None, *styles)) or pick(f"{name} style", styles)
        if "small store" in self.features and fates.number(f"{name} leaves") < 0.4:
            style = "away"  # its client misses more than is kept
        elif {"windows", "small limits"} <= self.features and fates.number(f"{name} floods") < 0.4:
            style = "chatty"  # its client is slow
        own = ["turn", "become", "become"] if "tasks" in self.features else []
        has_states = "other keys" in self.features and fates.number(f"{name} has states") < 0.5
        if "eager readers" in self.features or has_states:
            style = "turns"
        elif "few tasks" in self.features:
            style = pick(f"{name} style of few tasks", ("turns", "turns", style))
        style = "turns" if own and style == "asks" else style  # tasks are asked in turns only
        if own and self.tasks.is_restartable:
            own += ["save", "save"]
        kinds = ["sleep", "sleep", "progress", "mark", *own] + {
            "plain": ["sleep"],
            "chatty": ["sleep", "mark", "mark", "mark"],
            "polling": ["disconnect", "disconnect"],
            "away": ["disconnect", "mark", "mark"],
            "turns": ["turn"],
            "asks": ["ask"],
        }[style]
        counts = (3, 12, 24) if style in ("chatty", "away") else (0, 1, 3, 5, 8)
        for number in range(pick(f"{name} steps", counts)):
            step = f"{name} step {number}"
            if not fates.strikes(step, 1.0):
                continue
            kind = pick(f"{step} kind", kinds)
            values: dict[str, tuple[Any, ...]] = {
                "sleep": (0.02, 0.1, 0.5) if style == "chatty" else (0, 0, 0.02, 0.5, 3.0, 12.0),
                "progress": (0, 100, 500),
                "mark": (0, 100, 500, 2000),
                "disconnect": (None, 0.0, 0.3),
                "ask": (5.0, 100.0),
                "turn": (1, 1, 2),
                "become": (0,),
                "save": (0,),
            }
            if self.relays and kind == "mark":
                kind = "progress"  # what a process logs belongs to no call
            steps.append((kind, pick(f"{step} value", values[kind])))
        if pick("bursts", (False, False, True)) and pick(f"{name} bursts", (False, True)):
            # So many that the server gathers them, and lets them leave together.
            kind = "progress" if self.relays else "mark"
            place = pick(f"{name} place of a burst", (0, len(steps)))
            size = pick(f"{name} size of a burst", (9, 20, 50))
            burst: list[tuple[str, Any]] = [(kind, 0), ("sleep", 0)] * size
            if style != "asks" and pick(f"{name} leaves after a burst", (False, True)):
                burst.append(("disconnect", 0.3))
            steps[place:place] = burst
        if "few tasks" in self.features:
            steps.append(("sleep", 3.0))
        if fates.strikes(f"{name} fails", 0.05):
            steps.append(("fail", -32050))
        return steps

    def _draw_accidents(self) -> None:
        """Draw what happens at a time of its own."""
        fates, later = self.fates, self.clock.call_at
        for number in range(1, 4):
            for instance in self.instances:
                later(TICKS * number, lambda i=instance, n=number: self._current(i).tick(n))  # type: ignore[misc]
            for customer in self.customers:
                later(1.7 * number, lambda c=customer, n=number: c.greet(n))  # type: ignore[misc]
        if "eras" in self.features:
            later(fates.between("era ends", 3.0, 10.0), self._change_era)
        self._draw_outages()
        self._draw_losses()
        if "standstill" in self.features:
            for instance in self.instances:
                self._draw_standstill(instance)
        for customer in self.customers if "half-open" in self.features else ():
            self._draw_silence(customer)
        early = [customer for customer in self.customers if not customer.is_late]
        for host in (*early, *self.instances):
            for feature, act in (
                ("naps", self._nap),
                ("jumps", self._jump),
                ("ends", self._end),
                ("early closes", self._close),
                ("strangers", self._stranger),
                ("visitors", self._visit),
                ("stops", self._stop),
                ("batches", self._batch),
            ):
                name = f"{host.name} {feature}"
                if feature in self.features and fates.strikes(name, 0.6):
                    at = 15 * fates.number(f"{name} at") ** 2
                    later(at, lambda h=host, act=act: act(h))  # type: ignore[misc]

    def _draw_outages(self) -> None:
        """Draw when the store is out of reach, and for which instance."""
        fates = self.fates
        for number in range(fates.pick("outages", (1, 2)) if "store away" in self.features else 0):
            name = f"outage {number}"
            if not fates.strikes(name, 1.0):
                continue
            begins = fates.between(f"{name} begins", 0.3, 12.0)
            lasts = fates.pick(f"{name} lasts", (0.3, 4.0, 12.0))
            index = fates.pick(f"{name} for", (None, None, *range(len(self.instances))))
            ends = min(begins + lasts, _FAULTS_LAST - 0.1)
            self.outages.append(Outage(begins=begins, ends=ends, instance=index))
            if index is not None and ends - begins >= self.limits.lease_timeout / 2:
                self.causes.add("cut off")
            self.clock.call_at(ends, self._store_comes_back)
        if "full store" in self.features:
            begins = fates.between("store full from", 0.3, 8.0)
            lease = self.limits.lease_timeout
            ends = begins + fates.pick("store full for", (1.0, lease, 1.5 * lease, 16.0))
            ends = min(ends, _FAULTS_LAST - 0.1)
            self.outages.append(Outage(begins=begins, ends=ends, instance=None, is_full=True))
            self.clock.call_at(begins, lambda: self.tell("the store takes nothing more"))
            self.clock.call_at(ends, lambda: self.tell("the store takes appends again"))

    def _draw_losses(self) -> None:
        """Draw when the store loses everything, or what it got since some moment."""
        store, fates = self.store, self.fates
        if store is None:
            return
        at = fates.between("store loses at", 0.5, 18.0)
        if "lost store" in self.features:

            def lose() -> None:
                self._store_loses("everything")
                store.lose_all()
                self.tasks.lose(-math.inf)

            self.clock.call_at(at, lose)
        if "old store" in self.features:
            since = at * fates.number("store loses since")

            def keep() -> None:
                go_back = store.lose_since()

                def lose() -> None:
                    self._store_loses(f"what it got since {since:.3f}")
                    go_back()
                    self.tasks.lose(since)

                self.clock.call_at(at, lose)

            self.clock.call_at(since, keep)

    def _store_loses(self, what: str) -> None:
        self.tell(f"the store loses {what}")
        self.reach("store loses much")
        self.causes.add("store")

    def is_store_away(self, index: int, *, appends: bool = False) -> bool:
        """Whether the instances of an index cannot reach their store, or cannot append to it."""
        now = self.clock.now
        return any(outage.concerns(index, now, appends=appends) for outage in self.outages)

    @property
    def is_store_full(self) -> bool:
        """Whether the store takes nothing more from any instance."""
        full = (outage for outage in self.outages if outage.is_full)
        return any(outage.concerns(-1, self.clock.now, appends=True) for outage in full)

    def _store_comes_back(self) -> None:
        self.tell("the store is in reach again")
        for instance in self.instances:
            if not self.is_store_away(instance.index):
                instance.seat.come_back()

    # Accidents

    def _draw_silence(self, customer: Customer) -> None:
        """All connections of a client go silent at one time, as those of a laptop that sleeps."""
        name = f"{customer.name} silence"
        if self.fates.strikes(name, 0.7):
            at = self.fates.between(f"{name} at", 1.0, 20.0)
            self.clock.call_at(at, customer.goes_silent)

    def _draw_standstill(self, host: Host) -> None:
        name = f"{host.name} standstill"
        if not self.fates.strikes(name, 0.7):
            return
        lease = self.limits.lease_timeout
        at = self.fates.between(f"{name} at", 0.3, 15.0)
        seconds = self.fates.pick(f"{name} lasts", (0.5 * lease, 1.2 * lease, 2.0 * lease, 12.0))
        seconds = min(seconds, _FAULTS_LAST - 0.1 - at)
        self.clock.call_at(at, lambda: self._current(host).stand_still(seconds))

    def _nap(self, host: Host) -> None:
        host = self._current(host)
        host.nap(self.fates.pick(f"{host.name} nap", (0.5, 5.0, 20.0)))

    def _jump(self, host: Host) -> None:
        host = self._current(host)
        self.causes.add("jump")
        seconds = (1.0, 30.0, 200.0, 4000.0, -0.1, -5.0, -200.0)
        host.jump(self.fates.pick(f"{host.name} jump", seconds))

    def _end(self, host: Host) -> None:
        host = self._current(host)
        if isinstance(host, Instance):
            self.tell(f"{host.name} ends its sessions")
            host.end_sessions()

    def _close(self, host: Host) -> None:
        if isinstance(host, Customer):
            host.close(early=True)

    def _visit(self, host: Host) -> None:
        """Many open sessions that they never use, and those who work in theirs may lose none."""
        host = self._current(host)
        if not isinstance(host, Instance) or not host.is_alive:
            return
        self.tell(f"{host.name} has visitors")
        self.causes.add("sessions")
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "-"}}
        body = jsonrpc.encode(Request(0, "initialize", params))
        lines = [
            b"POST /mcp HTTP/1.1",
            b"host: localhost",
            b"accept: application/json, text/event-stream",
            b"content-type: application/json",
            b"authorization: " + self.credentials("visitor"),
            b"content-length: %d" % len(body),
        ]
        for number in range(8):
            wire = Wire(self, f"{host.name} visitor {number}", host, None, None)
            wire.send(b"\r\n".join(lines) + b"\r\n\r\n" + body)
            self.clock.call_later(3.0, wire.close)

    def _batch(self, host: Host) -> None:
        """A client of another make posts a batch."""
        host = self._current(host)
        if not isinstance(host, Instance) or not host.is_alive:
            return
        name = f"b{host.index}"
        calls: list[str] = []
        for number in range(self.fates.pick(f"{name} calls", (1, 2, 3))):
            call = f"{name}.{number}"
            steps = [step for step in self._draw_steps(call) if step[0] in _UNASKING]
            calls.append(call)
            self.errands[call] = Errand(
                name=call,
                method="tools/call",
                params=None,
                idempotent=None,
                at=self.clock.now,
                cancel_after=None,
                steps=tuple(steps),
                size=0,
                principal=PRINCIPAL,
            )
        Batcher(self, name, host, tuple(calls))

    def _stranger(self, host: Host) -> None:
        """A client's request comes a second time: a second reader of its stream, or a stranger.

        The stranger has learnt the session id, and is another principal.
        """
        if not isinstance(host, Customer):
            return
        name = f"{host.name} stranger"
        is_foreign = self.authentication and self.fates.number(name) < 0.7
        effects = host.in_session if is_foreign else host.gets
        instance = self.route(host, name)
        if instance is None or not effects:
            return
        self._repeat(host, self.fates.pick(f"{name} repeats", effects), instance, is_foreign, name)

    def double(self, host: Customer, effect: OpenExchange, name: str) -> None:
        """A request that resumes a stream comes a second time."""
        if (instance := self.route(host, name)) is not None:
            self._repeat(host, effect, instance, is_foreign=False, name=name)

    def _repeat(
        self, host: Customer, effect: OpenExchange, instance: Instance, is_foreign: bool, name: str
    ) -> None:
        if not is_foreign:
            host.causes.add("ghost")
        self.reach("stranger in a session" if is_foreign else "second reader")
        self.tell(f"a {'stranger' if is_foreign else 'second reader'} in a session of {host.name}")
        wire, mallory = Wire(self, name, instance, None, None), self.credentials("mallory")
        headers = tuple(
            (key, mallory if is_foreign and key == b"authorization" else value)
            for key, value in effect.head.headers
        )
        wire.send(_request(effect, headers))

        def leave() -> None:
            if is_foreign and wire.seen.startswith(b"HTTP/1.1 2"):
                self.fail("isolation", f"a stranger is served in a session of {host.name}")
            wire.close()

        self.clock.call_later(self.fates.pick(f"{host.name} reads", (0.1, 3.0)), leave)

    def steal(self, host: Customer, effect: OpenExchange, name: str) -> None:
        """A stranger has learnt the key and id of a call, and asks for its rest, or cancels it."""
        if (instance := self.route(host, name)) is None:
            return
        self.reach("key of another principal used")
        wire, stolen = Wire(self, name, instance, None, None), json.loads(effect.body)
        params: dict[str, Any] = {"_meta": stolen["params"]["_meta"]}
        message: dict[str, Any] = {"jsonrpc": "2.0", "params": params}
        # In sessions it is the session that is another's, which ``_stranger`` tries.
        ways = (EXTENSION, CANCEL, "notifications/cancelled")
        way = self.fates.pick(f"{name} way", ways) if host.version == "2026-07-28" else EXTENSION
        self.tell(f"a stranger sends {way} for a call of {host.name}")
        message["method"] = way
        if way == EXTENSION:
            message["id"], params["received"] = stolen["id"], 0
        elif way != CANCEL:
            del params["_meta"][EXTENSION]
            params["requestId"] = stolen["id"]
        changed = {
            b"authorization": self.credentials("mallory"),
            b"mcp-method": way.encode(),
        }
        headers = tuple(
            (key, changed.get(key, value))
            for key, value in effect.head.headers
            if key != b"mcp-name"
        )
        wire.send(_request(attrs.evolve(effect, body=json.dumps(message).encode()), headers))

        def leave() -> None:
            if b'"result"' in wire.seen or b'"notifications/' in wire.seen:
                self.fail("isolation", f"a stranger gets the response to a call of {host.name}")
            wire.close()

        self.clock.call_later(self.fates.pick(f"{name} reads", (0.1, 3.0, 30.0)), leave)

    def replay(self, host: Customer, effect: OpenExchange, name: str) -> None:
        """A request comes again of which the proof was accepted, at any instance."""
        if (instance := self.route(host, name)) is None:
            return
        self.reach("proof used again")
        self.tell(f"a request of {host.name} comes again: {effect.head.method!r}")
        wire = Wire(self, name, instance, None, None)
        wire.send(_request(effect, effect.head.headers))

        def leave() -> None:
            if wire.seen.startswith(b"HTTP/1.1 2"):
                self.fail("proofs", f"a proof of {host.name} is accepted twice")
            wire.close()

        self.clock.call_later(10.0, leave)

    def _stop(self, host: Host) -> None:
        """An instance stops as it should: it takes nothing new, and ends what runs on."""
        instance = self._current(host)
        if not isinstance(instance, Instance) or not instance.is_alive or instance.stops:
            return
        if instance.stands_still:
            return
        instance.stops = True
        self.tell(f"{instance.name} stops")
        self.reach("instance stopped")
        self.causes.add("stop")
        if not self.shared:
            self.causes.add("end by stop")
        instance.drain_calls()
        graceful_timeout = self.fates.pick(f"{instance.name} grace", (0.0, 1.0, 5.0))
        self.clock.call_later(graceful_timeout, lambda: self._shut_down(instance))

    def _change_era(self) -> None:
        """All instances stop, and those that take their places speak other versions."""
        self.tell("all instances are to be replaced by those of another era")
        self.reach("server replaced by one of another era")
        versions = self.fates.pick("era", (_MODERN, _MODERN, tuple(REVISIONS)))
        self.settings["versions"] = versions
        if versions == _MODERN:
            self.settings["http_sse"] = None  # it has no event stream that is a session
        self.is_of_another_make = self.fates.number("another make") < 0.7
        self.causes.add("end")
        for instance in tuple(self.instances):
            self._stop(instance)

    def words_of(self, data: bytes) -> bytes:
        """What a server sends; one of another make just does not know ``initialize``."""
        if self.is_of_another_make and _NO_HANDSHAKE in data:
            self.reach("initialize not known to a server of another make")
            data = data.replace(b"%d" % UNSUPPORTED_VERSION, b"%d" % METHOD_NOT_FOUND)
        return data

    def _may_stop(self, instance: Instance) -> None:
        """A handler is entered, which may be the moment in which its instance stops."""
        if instance.pipes is not None:
            return
        name = f"{instance.name} stops at {sum(self.entries.values())}"
        if "stops" in self.features and self.strikes(name, 0.3):
            delay = self.fates.pick(f"{name} after", (0.0, 0.01, 0.3, 2.0))
            self.clock.call_later(delay, lambda: self._stop(instance))

    def _may_die(self, instance: Instance) -> None:
        """A handler is entered, while which its instance may be killed."""
        name = f"{instance.name} dies at {sum(self.entries.values())}"
        if (
            "kills" in self.features
            and self.features & {"fleet", "tasks"}
            and self.strikes(name, 0.3)
        ):
            delay = self.fates.pick(f"{name} after", (0.01, 0.5, 3.0, 8.0))
            self.clock.call_later(delay, lambda: self._kill(instance))

    def _kill(self, instance: Instance) -> None:
        if instance.is_alive and self.is_faulty:
            self.kill(instance)

    def _shut_down(self, instance: Instance) -> None:
        if not instance.is_alive:
            return
        self.stopped |= instance.running
        asked = remains.open_responses(instance.wires)
        instance.shut_down()

        def look() -> None:
            if instance.scripts and instance.is_alive and not instance.naps:
                self.fail("nothing left", f"{instance.name} runs calls after its end")

        def leave() -> None:
            if instance.is_alive and instance.seat.pending:  # a host waits for its store
                self.clock.call_later(1.0, leave)
            elif instance.is_alive:
                is_left = instance.scripts or instance.server.is_busy
                if is_left and not instance.naps:
                    self.fail("nothing left", f"{instance.name} is busy after its end")
                left = asked & remains.open_responses(instance.wires)
                if left and not {"store", "hiccup"} & self.causes:
                    self.fail("nothing left", f"{instance.name} has not ended {left}")
                self.replace(instance)

        self.clock.call_later(0.001, look)
        self.clock.call_later(3.0, leave)

    def replace(self, instance: Instance) -> None:
        """An instance is gone; another one takes its place after a while."""
        instance.die()
        is_silent = "silence" in self.features and self.fates.number(f"{instance.name} dies") < 0.5
        for wire in tuple(instance.wires):
            wire.break_down("silent" if is_silent else "reset")
        delay = self.fates.pick(f"{instance.name} restarts after", (0.0, 0.5, 5.0))

        def restart() -> None:
            self.tell(f"{instance.name} is started again")
            if self.shared:
                self.reach("store outlives instances")
            fresh = self._new_instance(f"s{instance.index}", instance.index)
            self.instances[instance.index] = fresh
            self.all_instances.append(fresh)
            fresh.touch()

        self.clock.call_later(delay, restart)

    def _current(self, host: Any) -> Any:
        """The instance that has taken the place of one."""
        if isinstance(host, Instance) and host.index < len(self.instances):
            return self.instances[host.index]
        return host

    def kill(self, instance: Instance) -> None:
        """An instance is gone, without a word."""
        self.tell(f"{instance.name} is killed")
        self.reach("instance killed")
        self.causes.add("kill")
        if instance.pipes is not None:
            instance.pipes.exit(-9)
            return
        self.replace(instance)

    # What its parts want of it

    def route(self, customer: Customer, name: str) -> Instance | None:
        """Where a new connection goes; None: nowhere."""
        if self.relays and customer is not self.relays[0].upstream:
            return self.relays[0]
        alive = [instance for instance in self.instances if instance.is_alive]
        if not alive:
            return None
        is_free = self.shared and customer.transport != "http+sse" and self.sessions
        if not is_free or customer.version in ("", "2024-11-05"):
            chosen = self.instances[customer.index % len(self.instances)]
            return chosen if chosen.is_alive else None
        return self.fates.pick(f"{name} route", alive)

    def new_process(self, customer: Customer) -> Instance:
        """Start a server process."""
        self._generation += 1
        name = f"p{self._generation}"
        settings = {**self.settings, "shared_store": False, "multi_turn": False}
        settings.update(resumable=False, authentication=False, protected_resource=None)
        instance = Instance(self, name, 20, self._new_server(name, settings), None)
        if self.strikes(f"{name} kill", self.rate * ("kills" in self.features)):
            instance.kill_at = 1 + int(12 * self.fates.number(f"{name} kill at"))
        self.processes.append(instance)
        return instance

    def credentials(self, principal: str) -> bytes:
        """The value of ``Authorization`` of one who is no client of ours."""
        return (b"Bearer " if self.issuer is not None else b"") + principal.encode()

    def expires(self, principal: str) -> None:
        """An event stream ends whose token has expired, and with one of HTTP+SSE its session."""
        self.reach("token expired")
        for customer in self.customers:
            is_theirs = customer.seat is not None and customer.seat.account == principal
            if is_theirs and customer.kind in ("sse", "any"):  # it may not know its transport yet
                customer.causes.add("expired")

    def strikes(self, name: str, rate: float) -> bool:
        """Whether an accident happens now."""
        return self.is_faulty and self.fates.strikes(name, rate)

    def tell(self, text: str) -> None:
        """Note what happens, for a report."""
        if self.story is not None:
            self.story.append(f"{self.clock.now:9.3f}  {text}")

    def reach(self, what: str) -> None:
        """Note a state that is rare."""
        self.reached.add(what)

    def note(self, index: int, kind: str) -> None:
        """Note where all machines stand."""
        state = (
            index,
            len(kind),
            kind[0],
            *(
                (
                    c.client.state.name,
                    min(c.carries, 3),
                    sum(m.end is None for m in c.calls.values()),
                )
                for c in self.customers
            ),
            *(
                (
                    i.is_alive,
                    len(i.server.sessions),
                    len(i.scripts),
                    min(len(i.wires), 4),
                    i.seat.pending,
                )
                for i in self.instances
            ),
        )
        self.states.add(hash_of(state))
        self.schedule = hash_of((self.schedule, index, kind))

    def fail(self, checker: str, text: str) -> None:
        """Something has happened that must not, as one of ``CHECKERS`` says."""
        assert checker in CHECKERS, checker
        self.tell(f"FAILED: {text}")
        if self.problem is None:
            self.problem, self.checker = text, checker
        raise Failed(text)

    def enters(self, errand: Errand, start: int, instance: Instance, *, is_restarted: bool) -> None:
        """A handler begins, or goes on with the next turn, or after the death of an instance."""
        self.entries[errand.name] += 1
        self.began.setdefault(errand.name, self.clock.now)
        if is_restarted:
            self.restarted.add(errand.name)
        elif start == 0:
            self.entered[errand.name] += 1
            if self.entered[errand.name] > 1:
                self.reach("call made again")
                if not errand.is_safe and errand.name not in self.doubled:
                    self.fail("executions", f"{errand.name} runs twice")
        else:
            self.rounds[errand.name, start] += 1
            rounds = sum(1 for name, _ in self.rounds if name == errand.name)
            if rounds > self.limits.max_rounds:
                self.fail("bounds", f"{errand.name} has asked {rounds} times")
            self.reach("call goes on with answers")
            if instance is not self.homes.get(errand.name):
                self.reach("call goes on at another instance")
            again = self.rounds[errand.name, start] > self.entered[errand.name]
            is_modern = self._owner_of(errand.name).version == "2026-07-28"  # makes requests anew
            store = instance.seat.store
            has_lost = store is not None and store.lost_ends  # perhaps who has gone on with it
            is_restarted = errand.name in self.restarted | self.doubled
            if again and not has_lost and not is_restarted and not (is_modern and errand.is_safe):
                self.fail("executions", f"{errand.name} goes on twice from step {start}")
        self.homes[errand.name] = instance
        self._may_stop(instance)
        self._may_die(instance)

    def is_repeated(self, errand: Errand) -> bool:
        """Whether a call, or a round of it, was made again."""
        subject = errand.subject or errand.name
        again = [times for (name, _), times in self.rounds.items() if name == subject]
        is_again = self.entered[subject] > 1 or max(again, default=0) > 1
        return is_again or subject in self.restarted

    def may_miss(self, errand: Errand) -> bool:
        """Whether a client may not be told all that a call has told.

        Of a call with a key, the server keeps only the newest messages for a client that was cut,
        and no other instance has them.
        """
        is_lost = self.shares_keys or not errand.is_kept
        return self.is_repeated(errand) or (errand.name in self.keyed and is_lost)

    def subject_of(self, errand: Errand) -> Errand:
        """Return the call whose task a request is about; else the call itself."""
        return self.errands[errand.subject] if errand.subject else errand

    def greeted(self, params: Any) -> None:
        """A notification of a client has come."""
        greeting = (params["from"], params["number"])
        self.greetings[greeting] += 1
        if self.greetings[greeting] > 1:
            self.fail("executions", f"the notification {greeting} comes twice")

    def asked_in_vain(self, marker: Any, error: RequestTimeout) -> None:
        """A question has timed out, which its client has answered unless something has happened."""
        owner = self._owner_of(marker[0])
        ended = [made.errand.name for made in owner.calls.values() if made.end is not None]
        if self.entered[marker[0]] == 1 and marker[0] not in ended:
            owner.lacks_answer(marker, error.seconds)

    def check_wanted(self, errand: Errand, call: ServerCall) -> None:
        """A handler goes on; its call was not cancelled long ago, unless something has happened.

        Without sessions a cancellation cannot be matched, and one that is sent before its call has
        arrived may come first. A store that is slower than ``store_poll_interval`` may not yet know
        of the call when the cancellation is looked at a second time. A call that is a task goes on
        if its client has left before it got the handle.
        """
        name = errand.name
        if name not in self.cancelled:
            return
        customer, cancelled_at = self._owner_of(name), self.cancelled[name]
        if call.is_task:
            return  # ``Tasks`` looks at these
        ways = (customer, *(relaying.upstream for relaying in self.relays))
        can_be_cancelled = self.sessions or all(each.version == "2026-07-28" for each in ways)
        can_be_cancelled = can_be_cancelled and customer.seat is None  # it may wait for a login
        bound = 30.0 if self.features & {"slow store", "naps"} else 5.0
        known_at = self.began[name] + (5.0 if "slow store" in self.features else 0.0)
        if can_be_cancelled and known_at < cancelled_at < self.clock.now - bound:
            customer.is_ignored(f"{name} runs {bound} s after it was cancelled")

    def _owner_of(self, errand: str) -> Customer:
        (customer,) = [each for each in self.customers if errand.startswith(f"{each.name}.")]
        return customer

    def orphaned(self, name: str, instance: Instance) -> None:
        """The instance has died that runs a call: its client is told within the time of a lease.

        That time begins again with each request of the client, since it may have listened to no
        instance before, and with each operation that the store has not done.
        """
        customers = [each for each in self.customers if name.startswith(f"{each.name}.")]
        is_followed = self.shared and self.sessions and not self.features & _HIDES_DEATH
        if not (customers and is_followed and customers[0].can_resume):
            return
        (customer,) = customers
        (made,) = [made for made in customer.calls.values() if made.errand.name == name]
        died_at = self.clock.now
        bound = self.longest_lease + 2.0 + 10 * self.latency
        bound += 15.0 * ("slow store" in self.features) + 5.0 * ("proxies" in self.features)

        def look() -> None:
            if made.end or made.is_cancelled or self.homes[name] is not instance:
                return
            if customer.closed or self.causes & {"evicted", "store"} or "ghost" in customer.causes:
                return
            troubled_at = max(each.seat.troubled_at for each in self.all_instances)
            due = bound + max(died_at, customer.opened_at, troubled_at, self._outages_end)
            if self.clock.now >= due:
                self.fail("leases", f"{name} is not told that {instance.name} has died")
            self.clock.call_at(due, look)

        self.clock.call_later(bound, look)

    def _may_be_over(self, customer: Customer, listener: Errand) -> bool:
        """Whether there is a reason for which a server ends the stream of a listener."""
        is_of_task = bool(listener.subject)
        if is_of_task and self.authentication and customer.principal != listener.principal:
            return True  # of what it asks for, nothing is honoured
        if is_of_task and (self.tasks.is_over(listener) or self.tasks.has_expired(listener)):
            return True
        if is_of_task and "evicted" in self.causes:
            return True
        if customer.seat is not None and (customer.seat.has_expired or "jump" in self.causes):
            return True  # its token expires, perhaps on a clock that was put forward
        return "stop" in self.causes

    @property
    def wall_time(self) -> float:
        """The time of day, which all instances share."""
        return 1.7e9 + self.clock.now

    @property
    def faulty_for(self) -> float:
        """Seconds for which there are accidents from now on."""
        return _FAULTS_LAST - self.clock.now

    @property
    def longest_lease(self) -> float:
        """Seconds for which a dead instance can seem alive: its last entry may be seen late."""
        return self.limits.lease_timeout * 4 / 3

    @property
    def _outages_end(self) -> float:
        return max((outage.ends for outage in self.outages), default=0.0)

    def check_completed(self, customer: Customer, made: Made, result: Any) -> None:
        """A call has its result: it is its own, and nothing that was said before is missing."""
        errand = made.errand
        if errand.task is not None and result.get("resultType") == RESULT_TYPE:
            self.tasks.has_handle(customer, made, result["taskId"])
            return
        if made.task_id is not None:
            self.tasks.check_result(made, result)
        elif errand.subject:
            self.tasks.check_answered(customer, made, result)
        if errand.lasts and not self._may_be_over(customer, errand):
            self.fail("causes", f"{errand.name} is over, and no server has stopped")
        if errand.method in (SUBSCRIBE, UNSUBSCRIBE):
            customer.is_subscribed = errand.method == SUBSCRIBE
            if errand.method == UNSUBSCRIBE:
                self.reach("unsubscribed")
                customer.unsubscribed_at = self.clock.now
            return
        if errand.lasts or errand.method == "tools/list" or errand.method in ABOUT_TASKS:
            return
        errand = self.subject_of(errand)
        if result["call"] != errand.name or len(result["pad"]) != errand.size:
            self.fail("results", f"{errand.name} gets the result of {result['call']}")
        if not self.entries[errand.name]:
            self.fail("results", f"{errand.name} has a result and was never run")
        if errand.fails_with is not None:
            self.fail("results", f"{errand.name} has a result, and raises")
        if made.task_id is None and not self.may_miss(errand):
            if made.reports != errand.reports:
                self.fail("gaps", f"{errand.name} reported {made.reports}, not {errand.reports}")
            marks = [step for _, step in made.marks]
            if marks != errand.marks:
                self.fail("gaps", f"{errand.name} told {marks}, not {errand.marks}")

    def tell_watchers(self, writer: Instance, key: StreamKey) -> None:
        """A shared store tells all instances that watch a log; the writer, too."""
        for instance in self.all_instances if self.shared else (writer,):
            if instance.is_alive:
                instance.seat.changed(key)

    def instance_of(self, name: str) -> Instance | None:
        """The instance that has this name in logs."""
        named = (each for each in self.all_instances if remains.name_in_logs(each.server) == name)
        return next(named, None) if name else None

    def tell_drop(self, writer: Instance, principal: str, session: str) -> None:
        """The same for all logs of a session, which is deleted."""
        for instance in self.all_instances if self.shared else (writer,):
            if instance.is_alive:
                instance.seat.dropped(principal, session)

    def check_store(self, store: MemoryStore) -> None:
        """A store stays within its bounds."""
        if (
            store.count > self.limits.max_stored_entries
            or store.size > self.limits.max_stored_bytes
        ):
            self.fail("bounds", f"the store holds {store.count} entries, {store.size} bytes")

    # Running

    # At the end

    def _check_recovery(self) -> None:
        """Who is connected can make calls again once there are no accidents."""
        for customer in self.customers:
            is_of_old = customer.transport == "http+sse"
            customer.has_recovered = is_of_old and "half-open" in kinds.OFF
        for attempt in range(_ATTEMPTS):
            left: dict[int, tuple[Customer, Made]] = {}
            for customer in self.customers:
                if customer.client.state is ClientState.READY and not customer.has_recovered:
                    name = f"{customer.name}.again{attempt}"
                    errand = Errand(
                        name=name,
                        method="tools/list",
                        params=None,
                        idempotent=True,
                        at=self.clock.now,
                        cancel_after=None,
                        steps=(),
                        size=0,
                        principal=customer.principal,
                    )
                    self.errands[name] = errand
                    customer.go(errand)
                    left[customer.index] = customer, list(customer.calls.values())[-1]
            if not left:
                return
            ends = self.clock.now + _AGAIN
            self._pass(ends, lambda left=left: all(made.end for _, made in left.values()))  # type: ignore[misc]
            for customer, made in left.values():
                customer.has_recovered = isinstance(made.end, CallCompleted)
            if not all(customer.has_recovered for customer, _ in left.values()):
                self._pass(self.clock.now + _PAUSE, lambda: False)
        for customer in self.customers:
            if customer.client.state is ClientState.READY and not customer.has_recovered:
                self.fail("recovery", f"{customer.name} can make no call any more")

    def run(self) -> World:
        """Let it happen. What went wrong is in ``problem``."""
        old = signal.signal(signal.SIGPROF, _stuck)
        signal.setitimer(signal.ITIMER_PROF, _CPU)
        try:
            self._run()
        except Failed:
            pass
        except Stuck as stuck:
            self.problem, self.checker = f"goes round in circles {_place(stuck)}", "quiet"
            self.tell(traceback.format_exc())
        except Exception as error:
            self.problem = f"a machine raises {error!r} {_place(error)}"
            self.checker = "no exceptions"
            self.tell(traceback.format_exc())
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, old)
        return self

    def _run(self) -> None:
        self._pass(_FAULTS_LAST, lambda: False)
        self.tell("no accidents happen from now on")
        self.is_faulty = False
        for host in (*self.customers, *self.instances, *self.processes):
            host.naps_until = min(host.naps_until, self.clock.now)
            host.touch()
        self._pass(self.clock.now + _SETTLING, self._is_settled)
        for customer in self.customers:
            for made in customer.calls.values():
                if made.end is None and not made.errand.lasts:
                    self.fail("end in time", f"{made.errand.name} never ends")
        self._check_openings()
        if self.kind:
            self._check_recovery()
        self._check_listeners()
        for customer in self.customers:
            for made in customer.calls.values():
                self.tasks.check_cancelled(customer, made)
        linger = self.fates.pick("linger", (5.0, 5.0, 450.0))
        self._pass(self.clock.now + linger, lambda: False)
        self._check_ended_calls()
        self.is_closing = True
        for customer in self.customers:
            customer.close(early=False)
        self._pass(self.clock.now + _LAST_REQUESTS, lambda: _have_left(self.customers))
        upstreams = [relaying.upstream for relaying in self.relays]
        for upstream in upstreams:
            upstream.close(early=False)
        self._pass(self.clock.now + _LAST_REQUESTS, lambda: _have_left(upstreams))
        for instance in self.all_instances:
            remains.leave_publications(instance.server)
            instance.touch()
        if self.store is not None:
            self._others_use_the_store(self.store, 1)
        self._pass(self.clock.now + _LEAVING, lambda: False)
        self._check_nothing_left()

    def _others_use_the_store(self, store: NotingStore, seq: int) -> None:
        """Append to a log of somebody else's: the store in memory evicts by age at appends only."""
        of_others = StreamKey("", "of-others", "log")
        store.store.append(of_others, (Entry(seq, b""),), token="of-others", now=self.clock.now)
        self.clock.call_later(
            self.limits.max_stored_age / 3, lambda: self._others_use_the_store(store, seq + 1)
        )

    def _check_openings(self) -> None:
        """Who is opened once there are no accidents connects, whatever the server was before."""
        for customer in self.customers:
            if not customer.is_late:
                continue
            if customer.version:
                self.reach("client opened after a change of era")
            elif not self.causes & {"sessions", "impatient", "evicted"}:
                self.fail("openings", f"{customer.name} does not connect: {customer.closed}")

    def _check_listeners(self) -> None:
        """Who listens is told, unless it cannot know that its connection is dead."""
        is_noticed = "half-open" in self.features
        self._pass(self.clock.now + (_NOTICED if is_noticed else 60.0), lambda: False)
        heard = {customer: customer.changes.copy() for customer in self.customers}
        for instance in (*self.instances, *self.processes):
            instance.tick(LAST, is_last=True)
        self._pass(self.clock.now + 30.0, lambda: False)
        if not all(self._is_told(relaying.upstream) for relaying in self.relays):
            return
        for customer in self.customers:
            deafens = _DEAFENS - {"kill"} if self.shared and customer.can_resume else _DEAFENS
            if is_noticed:
                deafens -= {"silence", "stall"}
            if (customer.causes | self.causes) & deafens or customer.client.state.name != "READY":
                continue
            if customer.listens(modern=False) and self.sessions_of(customer):
                self.reach("listener told in the end")
                missed = self.promised[customer.name] - set(customer.ticks)
                # With small limits, an instance drops what it finds in the inbox, or among the
                # publications of all instances, while its own entries wait for the store.
                drops = "small limits" in self.features
                if missed and not drops:
                    self.fail("listening", f"{customer.name} listens, and is not told {missed}")
                is_told = customer.changes[None] > heard[customer][None]
                if not is_told and not (drops and self.shared):
                    self.fail("listening", f"{customer.name} listens, and is told of no change")
                self._check_subscribed(customer)
            for handle, made in customer.calls.items():
                if made.errand.subject:
                    self.tasks.check_told(customer, made)
                elif made.errand.lasts and made.end is None:
                    self.reach("subscriber told in the end")
                    if customer.changes[handle] == heard[customer][handle]:
                        self.fail("listening", f"{made.errand.name} is told nothing")
                    if "resources" in self.features:
                        self._check_updated(customer)

    def _check_subscribed(self, customer: Customer) -> None:
        if customer.is_subscribed:
            self.reach("subscriber of a resource told in the end")
            self._check_updated(customer)

    def _check_updated(self, customer: Customer) -> None:
        is_told = any(uri.endswith(f"/{LAST}") for uri in customer.updates)
        if not is_told and "small limits" not in self.features:  # a full buffer loses them
            self.fail("listening", f"{customer.name} has subscribed, and is told nothing")

    def _is_told(self, upstream: Customer) -> bool:
        """Whether the client of a relay is told of what belongs to no call."""
        is_ready = upstream.client.state is ClientState.READY and not upstream.listener_stopped
        return is_ready and (upstream.version == "2026-07-28" or self.sessions_of(upstream))

    def sessions_of(self, customer: Customer) -> bool:
        """Whether a server has something for a client that belongs to no call."""
        has_streams = self.sessions and bool(self.settings["standalone_streams"])
        return customer.kind not in ("http", "stdio-v2") or has_streams

    def _is_settled(self) -> bool:
        return all(customer.is_done for customer in self.customers)

    def _pass(self, until: float, is_over: Callable[[], bool]) -> None:
        """Let time pass until then, or until nothing happens any more."""
        while True:
            self._settle()
            if is_over():
                return
            when = self.clock.next_time
            if when is None or when > until:
                self.clock.now = until
                return
            self.steps += 1
            if self.steps > _STEPS:
                self.fail("quiet", f"still busy after {_STEPS} steps, at {self.clock.now:.1f} s")
            self.clock.run_next()

    def _settle(self) -> None:
        turns = 0
        while self.touched:
            turns += 1
            if turns > _STEPS:
                self.fail("quiet", "the machines keep each other busy for ever")
            host = next(iter(self.touched))
            del self.touched[host]
            host.drain()
            for left in remains.timers_of_the_ended(host.machine):
                self.fail("timers", f"{host.name} has {left}")
            self._check_bounds(host)

    def _check_bounds(self, host: Host) -> None:
        if isinstance(host, Instance) and host.is_alive:
            unsent = remains.unsent_bytes(host.server)
            if unsent > self.limits.max_total_unsent_bytes:
                self.fail("bounds", f"{host.name}: {unsent} bytes wait")
            if remains.running_tasks(host.server) > self.limits.max_tasks:
                self.fail("bounds", f"{host.name} runs more tasks than it may")
            if not remains.has_room_for_tasks(host.server):
                host.seat.full_at = self.clock.now
            for stuck in remains.stuck_readers(host.server):
                self.fail("readers", f"{host.name} {stuck}")

    def _check_ended_calls(self) -> None:
        for instance in (*self.instances, *self.processes):
            for left in remains.of_ended_calls(instance.server) if instance.is_alive else ():
                self.fail("nothing left", f"{instance.name} {left}")

    def _check_nothing_left(self) -> None:
        upstreams = [relaying.upstream for relaying in self.relays]
        for customer in (*self.customers, *upstreams):
            if customer.closed is None:
                self.fail("nothing left", f"{customer.name} does not close")
            if customer.carries:
                self.fail("nothing left", f"{customer.name} has connections in use after its end")
            for left in remains.of_client(customer.client):
                self.fail("nothing left", f"{customer.name} {left} after its end")
        if self.issuer is not None:
            self.issuer.check_nothing_left()
        for instance in (*self.all_instances, *self.processes, *self.relays):
            if not instance.is_alive:
                continue
            if instance.scripts:
                self.fail(
                    "nothing left", f"{instance.name} runs handlers: {list(instance.scripts)}"
                )
            if instance.wires:
                self.fail("nothing left", f"{instance.name} has connections")
            for left in remains.of_server(instance.server):
                self.fail("nothing left", f"{instance.name} {left} after all clients have left")


def _have_left(customers: Iterable[Customer]) -> bool:
    return all(each.closed is not None and not each.carries for each in customers)


def _request(effect: OpenExchange, headers: Headers) -> bytes:
    """A request as one that has seen it sends it, with these headers."""
    lines = [b"%b %b HTTP/1.1" % (effect.head.method, effect.head.target), b"host: localhost"]
    lines += [b"%b: %b" % header for header in headers]
    if effect.body:
        lines.append(b"content-length: %d" % len(effect.body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + effect.body


def hash_of(value: Any) -> int:
    """A number that is the same in every process."""
    return zlib.crc32(repr(value).encode())


def _unused(call: Any) -> None:
    raise AssertionError("machines call no handlers")


def _stuck(signum: int, frame: FrameType | None) -> None:
    raise Stuck


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    last = [frame for frame in frames if "/sansmcp/" in frame.filename] or frames
    return f"at {last[-1].filename.rpartition('/sansmcp/')[2]}:{last[-1].lineno}"
