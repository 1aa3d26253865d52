"""Connections and pipes of the simulated world: bytes that are late, in pieces, cut off, or lost.

What may happen to a connection is drawn when it is made, and happens only as long as the world has
faults; what has gone silent by then stays silent, since no network tells of that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from sansmcp import ConnectionInfo, Idle, ServerConnection, ServerPipe
from sansmcp.effects import CloseConnection, SendBytes
from sansmcp.http2.server_connection import ServerConnection as Http2Connection
from sansmcp.http11.client_connection import ClientConnection
from sansmcp.process import ProcessExited, StderrClosed, StderrData, StdoutClosed

from .gathering import Gatherer
from .proxies import Proxy

if TYPE_CHECKING:
    from .peers import Customer, Instance
    from .simulator import World

_ENDS = ("reset", "end", "server late", "client late", "silent")
"""How a connection breaks: both sides know at once, in order or not; one side, or none, does."""
_HELD = 1500.0
"""Seconds for which a proxy keeps the connection of a server open whose client has gone silent."""


@attrs.frozen(kw_only=True)
class Trouble:
    """What happens to one connection."""

    latency: float = 0.001
    fragments: bool = False
    window: int = 64 * 1024
    """Bytes under way to the client before the server has to wait."""
    cut_after: int | None = None
    """Bytes, counted in both directions."""
    manner: str = "reset"
    stalls_after: int | None = None
    """Bytes after which the client takes nothing for ``stall`` seconds."""
    stall: float = 0.0
    pace: float = 0.0
    """Seconds that the client needs for what it has taken before it takes more."""
    held: float = 0.0
    """Seconds for which a proxy collects what comes from the server."""
    idle: float | None = None
    """Seconds of silence after which a proxy closes the connection."""
    patience: float = 60.0
    """Seconds after which an end that sends into silence is told so."""


def trouble_of(world: World, name: str) -> Trouble:
    """Draw what happens to a connection."""
    fates, features = world.fates, world.features
    latency = world.latency * (0.5 + fates.number(f"{name} latency"))
    if not world.is_faulty:
        return Trouble(latency=latency)
    rate = world.rate
    cut = fates.strikes(f"{name} cut", rate * ("cuts" in features or "silence" in features))
    manners = [
        *(_ENDS[:2] if "cuts" in features else ()),
        *(_ENDS[2:] if "silence" in features else ()),
    ]
    stalls = fates.strikes(f"{name} stall", rate * ("stalls" in features))
    is_held = fates.strikes(f"{name} proxy", rate * ("proxies" in features))
    is_narrow = fates.strikes(f"{name} narrow", 2 * rate * ("windows" in features))
    return Trouble(
        latency=latency,
        fragments=fates.strikes(f"{name} fragments", 0.7 * ("fragments" in features)),
        window=fates.pick(f"{name} window", (1, 100, 500)) if is_narrow else 64 * 1024,
        pace=fates.pick(f"{name} pace", (0.0, 0.02, 0.1, 0.5)) if is_narrow else 0.0,
        cut_after=int(4000 * fates.number(f"{name} cut after") ** 2) if cut else None,
        manner=fates.pick(f"{name} manner", manners) if cut else "reset",
        stalls_after=int(2000 * fates.number(f"{name} stalls after")) if stalls else None,
        stall=fates.pick(f"{name} stall for", (1.0, 10.0, 70.0)),
        held=fates.pick(f"{name} held", (0.0, 0.3, 2.0)) if is_held else 0.0,
        idle=fates.pick(f"{name} idle", (2.0, 8.0, None)) if is_held else None,
        patience=fates.pick(f"{name} patience", (20.0, 60.0)),
    )


@attrs.define(eq=False)
class Wire:
    """A connection between a client, or a stranger who reads nothing, and an instance."""

    world: World
    name: str
    instance: Instance
    owner: Customer | None
    client: ClientConnection | None
    trouble: Trouble = attrs.field(init=False)
    server: ServerConnection = attrs.field(init=False)
    proxy: Proxy = attrs.field(init=False)
    """Something in between that may answer by itself."""
    exchange: int | None = attrs.field(default=None, init=False)
    """What the client's end carries."""
    arrived: deque[bytes] = attrs.field(factory=deque[bytes], init=False)
    """What the client's end could read."""
    seen: bytes = attrs.field(default=b"", init=False)
    """What has come to a stranger."""
    client_gone: bool = attrs.field(default=False, init=False)
    """The client's end is closed, or knows that the connection is."""
    server_gone: bool = attrs.field(default=False, init=False)
    swallows: bool = attrs.field(default=False, init=False)
    """What is sent arrives nowhere."""
    swallows_response: bool = attrs.field(default=False, init=False)
    """What the server sends arrives nowhere: something else has answered in its place."""
    _is_held: bool = attrs.field(default=False, init=False)
    """Something in between takes all that the server sends, and keeps its connection open."""
    _underway: int = attrs.field(default=0, init=False)
    _taken: int = attrs.field(default=0, init=False)
    """Bytes that have reached the client."""
    _carried: int = attrs.field(default=0, init=False)
    _reading: bool = attrs.field(default=True, init=False)
    _unread: deque[bytes] = attrs.field(factory=deque[bytes], init=False)
    """What has reached the server's host and was not read."""
    _up_at: float = attrs.field(default=0.0, init=False)
    _down_at: float = attrs.field(default=0.0, init=False)
    _armed: float | None = attrs.field(default=None, init=False)
    _blocked: bool = attrs.field(default=False, init=False)
    _stalled_until: float = attrs.field(default=-1.0, init=False)
    _busy_until: float = attrs.field(default=0.0, init=False)
    """When the client's end takes more."""
    _last: float = attrs.field(default=0.0, init=False)
    """When anything was sent."""

    def __attrs_post_init__(self) -> None:
        self.trouble = trouble_of(self.world, self.name)
        self.proxy = Proxy(self)
        self.server = ServerConnection(self.instance.server, driver=self, now=self.instance.now)
        self.instance.wires[self] = None
        self._last = self.world.clock.now
        if self.trouble.idle is not None:
            self.world.clock.call_later(self.trouble.idle, self._look_idle)
        self._arm()

    @property
    def connection(self) -> ConnectionInfo:
        """What the server is told of it: the address of its client, where that matters."""
        if self.owner is None or "crowded relay" not in self.world.features:
            return ConnectionInfo()
        return ConnectionInfo(peer=(f"192.0.2.{self.owner.index}", 1))

    # The client's end

    @property
    def is_readable(self) -> bool:
        """True if something has come that was not read; for the client's pool."""
        return self.client_gone or bool(self.arrived)

    def close(self) -> None:
        """The client closes its end."""
        if self.client_gone:
            return
        self.client_gone = True
        self.arrived.clear()
        if not self.swallows:
            self.world.clock.call_at(
                self._next_up(), lambda: self.instance.when_awake(self._server_eof)
            )

    @property
    def is_blocked(self) -> bool:
        """Whether the server's end waits for the client's to take something."""
        return self._blocked

    def send(self, data: bytes) -> None:
        """Carry bytes to the server."""
        self._carry(data, up=True)

    @property
    def can_read(self) -> bool:
        """Whether the client's end may read something."""
        is_ready = self.world.clock.now >= max(self._stalled_until, self._busy_until)
        return bool(self.arrived) and is_ready

    def read(self) -> bytes:
        """Take what has arrived; nothing is the end."""
        data = self.arrived.popleft()
        self.client_gone = self.client_gone or not data
        self._underway -= len(data)
        self._taken += len(data)
        if self.trouble.pace and self.world.is_faulty:
            self._busy_until = self.world.clock.now + self.trouble.pace
            self.world.clock.call_at(self._busy_until, self._nudge)
        stalls = self.trouble.stalls_after
        if stalls is not None and self._taken >= stalls and self._stalled_until < 0:
            self._stalled_until = self.world.clock.now
            if self.world.is_faulty:
                self.blame("stall")
                self.world.tell(f"{self.name} stalls for {self.trouble.stall} s")
                self._stalled_until += self.trouble.stall
                self.world.clock.call_at(self._stalled_until, self._nudge)
        if self._blocked and not self.server_gone:
            self.pull()
            self.instance.touch()
        return data

    def lose(self, reason: str) -> None:
        """The client's end learns that the connection is broken."""
        if not self.client_gone:
            self.client_gone = True
            self.arrived.clear()
            if self.owner is not None:
                self.owner.lost(self, reason)

    # The server's end

    def wake(self) -> None:
        """The server has something for this connection."""
        self.pull()

    def pull(self) -> None:
        """Send what there is to send, and read what was not read if the server wants it."""
        while not self.server_gone and self.instance.is_alive and not self.instance.stands_still:
            if self._underway >= self.trouble.window:
                self._block()
                return
            effect = self.server.next_effect()
            if isinstance(effect, SendBytes):
                self.instance.sends(effect.data)
                self._carry(self.world.words_of(effect.data), up=False)
            elif isinstance(effect, CloseConnection):
                self._check_close()
                self._leave_server()
                self.world.clock.call_at(self._next_down(), self._client_eof)
                return
            else:
                self._blocked = False
                self._reading = effect is Idle.NEED_DATA
                if not (self._reading and self._unread):
                    if self._unread:
                        self.world.reach("server reads no more for a while")
                    break
                self.server.receive_data(self._unread.popleft(), now=self.instance.now)
                self.instance.touch()
        self._arm()

    def _check_close(self) -> None:
        """Fail if the server closes a connection early that has carried complete exchanges.

        What a slow reader takes late is pulled without a time, so its connection is older for the
        server.
        """
        if self.owner is None or self.client is None:
            return
        is_idle = self.client.is_reusable and not self.client_gone
        quiet_for = self.world.clock.now - self._last
        is_early = quiet_for < self.instance.server.limits.keep_alive_timeout - 1.0
        if is_idle and is_early and not {"jump", "slow"} & (self.owner.causes | self.world.causes):
            text = f"{self.instance.name} closes {self.name} after {quiet_for:.1f} s without use"
            self.world.fail("keep-alive", text)

    def server_lost(self) -> None:
        """The server's end learns that the connection is broken."""
        self.instance.when_awake(self._server_is_told)

    def _server_is_told(self) -> None:
        if not self.server_gone and self.instance.is_alive:
            self._leave_server()
            self.server.connection_lost(now=self.instance.now)
            self.instance.touch()

    def blame(self, cause: str) -> None:
        """Note what has happened to whose connection it is."""
        if self.owner is not None:
            self.owner.causes.add(cause)

    # In between

    def answer(self, data: bytes) -> None:
        """Something in between answers in place of the server, and closes both connections."""
        self.swallows = self.swallows_response = True
        self.world.clock.call_at(self._next_down(), lambda: self._answered(data))
        self.world.clock.call_at(self._next_up(), self.server_lost)

    def _answered(self, data: bytes) -> None:
        if not self.client_gone and self.owner is not None:
            self._underway += len(data)
            self.arrived.append(data)
            self._client_eof()

    def break_down(self, manner: str) -> None:
        """The connection breaks."""
        self.world.tell(f"{self.name} breaks: {manner}")
        self.swallows = True
        later = self.world.clock.call_later
        match manner:
            case "reset":
                self.blame("cut")
                self.world.clock.call_at(self._next_down(), lambda: self.lose("connection reset"))
                self.world.clock.call_at(self._next_up(), self.server_lost)
            case "end":
                self.blame("cut")
                self.world.clock.call_at(self._next_down(), self._client_eof)
                self.world.clock.call_at(self._next_up(), self.server_lost)
            case "server late":
                self.blame("cut")
                self.blame("silence")
                self.world.clock.call_at(self._next_down(), lambda: self.lose("connection reset"))
                later(self.trouble.patience, self.server_lost)
            case "client late":
                self.blame("silence")
                self.world.clock.call_at(self._next_up(), self.server_lost)
                later(self.trouble.patience, lambda: self.lose("timed out"))
            case "held":
                self.blame("silence")
                self._is_held = True
                later(_HELD, self.server_lost)
            case _:
                self.blame("silence")

    def _carry(self, data: bytes, *, up: bool) -> None:
        self._last = self.world.clock.now
        if not up:
            self._underway += len(data)
        if self._is_held and not up:
            self._underway -= len(data)
            return
        if self.swallows:
            lost = (lambda: self.lose("timed out")) if up else self.server_lost
            self.world.clock.call_later(self.trouble.patience, lost)
            return
        self._carried += len(data)
        after = self.trouble.cut_after
        breaks = after is not None and self._carried >= after and self.world.is_faulty
        if breaks and after is not None:
            data = data[: max(len(data) - (self._carried - after), 0)]
        for piece in self._pieces(data):
            arrive = self._reach_server if up else self._reach_client
            when = self._next_up() if up else self._next_down()
            self.world.clock.call_at(when, lambda arrive=arrive, piece=piece: arrive(piece))  # type: ignore[misc]
        if breaks:
            self.break_down(self.trouble.manner)

    def _pieces(self, data: bytes) -> list[bytes]:
        if not self.trouble.fragments or len(data) < 2:
            return [data] if data else []
        cut = 1 + int(self.world.fates.number(f"{self.name} {self._carried}") * (len(data) - 1))
        return [data[:cut], data[cut:]]

    def _next_up(self) -> float:
        self._up_at = max(self._up_at, self.world.clock.now + self.trouble.latency)
        return self._up_at

    def _next_down(self) -> float:
        held = self.trouble.held if self.world.is_faulty else 0.0
        self._down_at = max(self._down_at, self.world.clock.now + self.trouble.latency + held)
        return self._down_at

    def _reach_server(self, data: bytes) -> None:
        if self.server_gone or not self.instance.is_alive:
            return
        if self._reading and not self.instance.stands_still:
            self.server.receive_data(data, now=self.instance.now)
        else:
            self._unread.append(data)
        self.pull()
        self.instance.touch()

    def _reach_client(self, data: bytes) -> None:
        if self.client_gone or self.swallows_response or self.proxy.takes_response():
            self._underway -= len(data)
        elif self.owner is None:
            self.seen += data
            self._underway -= len(data)
            self.pull()
            self.instance.touch()
        else:
            self.arrived.append(data)
            self.owner.touch()

    def _client_eof(self) -> None:
        if not self.client_gone and self.owner is not None:
            self.arrived.append(b"")
            self.owner.touch()

    def _server_eof(self) -> None:
        if not self.server_gone and self.instance.is_alive:
            self._leave_server()
            self.server.receive_eof(now=self.instance.now)
            self.instance.touch()

    def _leave_server(self) -> None:
        self.server_gone = True
        self.instance.wires.pop(self, None)

    def _block(self) -> None:
        """The server's end has to wait for the client's to take something."""
        if not self._blocked:
            self._blocked = True
            self.blame("slow")
            self.world.reach("server waits for a slow reader")
            self._watch(self._taken)

    def _watch(self, taken: int) -> None:
        def look() -> None:
            if self.server_gone:
                return
            if self.instance.stands_still:
                self._watch(taken)
            elif self._blocked and self._taken == taken:
                self.world.reach("slow reader given up")
                self.blame("stall")
                self.break_down("reset")
                self.server_lost()
            elif self._blocked:
                self._watch(self._taken)

        self.world.clock.call_later(self.instance.server.limits.send_timeout, look)

    def _nudge(self) -> None:
        if self.owner is not None:
            self.owner.touch()

    def _look_idle(self) -> None:
        idle = self.trouble.idle
        if idle is None or not self.world.is_faulty or self.swallows or self.client_gone:
            return
        due = self._last + idle
        if self.world.clock.now >= due:
            self.world.reach("proxy closes a silent connection")
            self.break_down("end")
        else:
            self.world.clock.call_at(due, self._look_idle)

    def _arm(self) -> None:
        """Let time pass for the server's end."""
        deadline = None if self.server_gone else self.server.next_deadline()
        if deadline is not None and deadline != self._armed:
            self._armed = deadline
            when = deadline - self.instance.offset
            self.world.clock.call_at(when, lambda: self._due(deadline))

    def _due(self, armed: float) -> None:
        if armed != self._armed:
            return  # another one was set meanwhile
        self._armed = None
        if self.server_gone or self._blocked or not self.instance.is_alive:
            return
        if self.instance.stands_still:
            return  # it looks at the time when it goes on
        deadline = self.server.next_deadline()
        if deadline is not None and deadline <= self.instance.now + 1e-6:
            self.server.handle_timeout(now=max(self.instance.now, deadline))
            self.instance.touch()
        self.pull()


@attrs.define(eq=False)
class Pipes:
    """The standard input and output of a server process."""

    world: World
    name: str
    instance: Instance
    owner: Customer
    pipe: ServerPipe | Http2Connection = attrs.field(init=False)
    arrived: deque[bytes] = attrs.field(factory=deque[bytes], init=False)
    is_over: bool = attrs.field(default=False, init=False)
    _window: int = attrs.field(init=False)
    _underway: int = attrs.field(default=0, init=False)
    _reading: bool = attrs.field(default=True, init=False)
    _unread: deque[bytes] = attrs.field(factory=deque[bytes], init=False)
    _eof: bool = attrs.field(default=False, init=False)
    _armed: float | None = attrs.field(default=None, init=False)
    _closing: bool = attrs.field(default=False, init=False)
    _up: Gatherer = attrs.field(init=False)
    _down: Gatherer = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._up = Gatherer(self.world, self._send_up)
        self._down = Gatherer(self.world, self._send_down)
        machine = Http2Connection if self.owner.kind == "stdio-v2" else ServerPipe
        self.pipe = machine(self.instance.server, driver=self, now=self.instance.now)
        narrow = self.world.fates.strikes(f"{self.name} narrow", 0.4 * self.world.is_faulty)
        self._window = 50 if narrow else 64 * 1024
        self.pull()

    # The client's end

    @property
    def can_read(self) -> bool:
        """Whether the client may read something."""
        return bool(self.arrived)

    def read(self) -> bytes:
        """Take what has arrived."""
        data = self.arrived.popleft()
        self._underway -= len(data)
        self.pull()
        return data

    def write(self, data: bytes) -> None:
        """Carry bytes to the server."""
        self._up.add(data, at_once=not self._gathers)

    @property
    def _gathers(self) -> bool:
        """Whether something between the two makes batches of their messages."""
        is_known = self.owner.kind == "stdio" and self.owner.version == "2025-03-26"
        return is_known and self.world.is_faulty and "batches" in self.world.features

    def _send_up(self, data: bytes) -> None:
        cut = int(self.world.fates.number(f"{self.name} {len(data)}") * len(data))
        for piece in (data[:cut], data[cut:]):
            if piece:
                self._later(lambda piece=piece: self._reach(piece))  # type: ignore[misc]

    def close(self) -> None:
        """The client closes the server's input."""
        self._up.flush()
        self._later(self._end)

    def exit(self, status: int) -> None:
        """The process is gone."""
        if self.is_over:
            return
        self.is_over = True
        self.instance.die()
        self._down.flush()
        for part in (StdoutClosed(), StderrClosed(), ProcessExited(status)):
            self._later(lambda part=part: self.owner.hear(part))  # type: ignore[misc]

    # The server's end

    def wake(self) -> None:
        """The server has something for this connection."""
        self.pull()

    def pull(self) -> None:
        """Send what there is to send, and read what was not read if the server wants it."""
        while not (self.is_over or self._closing) and self.instance.is_alive:
            if self._underway >= self._window:
                return
            effect = self.pipe.next_effect()
            if isinstance(effect, SendBytes):
                self._down.add(effect.data, at_once=not self._gathers)
            elif isinstance(effect, CloseConnection):
                self._closing = True
                self._later(lambda: self.exit(0))
                return
            else:
                self._reading = effect is Idle.NEED_DATA
                if not (self._reading and (self._unread or self._eof)):
                    break
                if self._unread:
                    self.pipe.receive_data(self._unread.popleft(), now=self.instance.now)
                else:
                    self._eof = False
                    self.pipe.receive_eof(now=self.instance.now)
                self.instance.touch()
        self._arm()

    def _later(self, act: Callable[[], None]) -> None:
        self.world.clock.call_later(self.world.latency, act)

    def _send_down(self, data: bytes) -> None:
        self._underway += len(data)
        self._later(lambda: self._arrive(data))

    def _arrive(self, data: bytes) -> None:
        is_whole = data.startswith(b"{") or self.owner.kind == "stdio-v2"
        if self.world.is_faulty and "noise" in self.world.features and is_whole:
            self.owner.hear(StderrData(b"a line of the log\n"))
        self.arrived.append(data)
        self.owner.touch()

    def _reach(self, data: bytes) -> None:
        if not self.is_over:
            self._unread.append(data)
            self.pull()
            self.instance.touch()

    def _end(self) -> None:
        if not self.is_over:
            self._eof = True
            self.pull()
            self.instance.touch()

    def _arm(self) -> None:
        deadline = self.pipe.next_deadline()
        if deadline is not None and deadline != self._armed:
            self._armed = deadline
            when = deadline - self.instance.offset
            self.world.clock.call_at(when, lambda: self._due(deadline))

    def _due(self, armed: float) -> None:
        if armed != self._armed:
            return  # another one was set meanwhile
        self._armed = None
        if not self.is_over and self.instance.is_alive:
            deadline = self.pipe.next_deadline()
            if deadline is not None and deadline <= self.instance.now + 1e-6:
                self.pipe.handle_timeout(now=max(self.instance.now, deadline))
                self.instance.touch()
            self.pull()
