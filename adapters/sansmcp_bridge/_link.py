"""One upstream server, as one client or all clients of the bridge use it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Protocol

import attrs

import sansmcp
from sansmcp.codecs import json
from sansmcp.events import (
    AuthorizationNeeded,
    CallCancelled,
    CallCompleted,
    CallFailed,
    CallReceived,
    ClientEvent,
    ClientNotified,
    Closed,
    Connected,
    ListenReceived,
    ProgressReceived,
    ServerEvent,
    ServerNotified,
    StderrLine,
)
from sansmcp.messages import Params
from sansmcp.meta_keys import CHANGED_LISTS
from sansmcp.relay import Relay, ToolFilter
from sansmcp.relay.translation import reason_for_clients
from sansmcp.types import STDIO, STREAMABLE_HTTP, Era
from sansmcp_asyncio._client import ClientDriver
from sansmcp_local import ClientParts, ConnectSettings, Task, client_parts

from ._uris import UriOwners

_TIMEOUT = 24 * 3600.0
"""Seconds for a relayed call: the clients have timeouts of their own, and cancel."""

_MAX_SHARED_CALLS = 10_000
"""Calls that run at a time on a connection that clients share. One of them can have half."""

_LASTED = 1.0
"""Seconds after which a connection that is lost is opened again at once."""

_MAX_WAITING = 1000
"""Calls and notifications that wait for a connection, before a notification is dropped."""

_MAX_WAITING_BYTES = 1024 * 1024
"""The same, in bytes of the parameters of notifications."""

_ENDED = "the session has ended"

EVERYTHING: Mapping[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"context": {}, "tools": {}},
    "roots": {"listChanged": True},
}
"""What a connection declares that several clients share. What none of them can take is refused."""


class LinkOwner(Protocol):
    """The part of a bridge that its links use."""

    @property
    def core(self) -> sansmcp.Server:
        """The machine of the server."""
        ...

    @property
    def places(self) -> Mapping[str, asyncio.Semaphore]:
        """By server: one for each connection, and so process, that may exist at a time."""
        ...

    @property
    def starts(self) -> Mapping[str, asyncio.Semaphore]:
        """By server: one for each connection that may be opened at a time."""
        ...

    def now(self) -> float:
        """Return the time of both machines, in seconds."""
        ...

    def start(self, work: Coroutine[Any, Any, None]) -> Task:
        """Start a task that is cancelled when the server ends."""
        ...

    def pump(self) -> None:
        """Drive the server, and the clients that it has changed."""

    def log(self, line: str) -> None:
        """Log a line."""

    def upstream_changed(self, link: Link) -> None:
        """Drive the client of a link soon, since it was given commands."""

    def server_changes(self) -> None:
        """Drive the server soon, since it is given commands."""

    def upstream_was_driven(self) -> None:
        """Drive the server if that made a client change it."""


@attrs.frozen
class Upstream:
    """A server to which a bridge relays.

    Attributes:
        name: what it is called in the log, and before names that two servers have.
        target: its URL, or the command that starts it on stdio.
        settings: the settings of :func:`sansmcp_asyncio.connect`, such as ``headers``. The bridge
            sets ``name``, ``version`` and ``capabilities`` itself.
    """

    name: str
    target: str | Sequence[str]
    settings: ConnectSettings = attrs.field(factory=lambda: ConnectSettings())

    def parts(
        self,
        info: Mapping[str, Any],
        capabilities: Mapping[str, Any],
        *,
        has_handshake: bool,
        is_shared: bool,
    ) -> ClientParts:
        """Return the parts of a client for clients of this name and with these capabilities.

        Args:
            info, capabilities: what the client declares.
            has_handshake: True if the clients begin with a handshake. A server that has one, too,
                is then spoken to in that way: nothing is translated, and it can ask the clients for
                input as it would without a bridge.
            is_shared: True if several clients use the connection.

        Raises:
            LocalProtocolError: the target or a setting is wrong.
        """
        name = f"{info['name']} (via sansmcp)" if info.get("name") else "sansmcp"
        settings: ConnectSettings = {
            "timeout": _TIMEOUT,
            "total_timeout": _TIMEOUT,
            **self.settings,
            "name": name,
            "version": str(info.get("version", sansmcp.__version__)),
            "capabilities": capabilities,
        }
        if is_shared:
            settings.setdefault("limits", sansmcp.Limits(max_pending_calls=_MAX_SHARED_CALLS))
        if has_handshake:
            # As a server that was known as old: it gets a handshake first, and a probe if it has
            # none.
            known = sansmcp.KnownServers()
            if isinstance(self.target, str):
                url = str(sansmcp.Url.parse(self.target))
                known.remember(url, STREAMABLE_HTTP, Era.LEGACY)
            else:
                known.remember(" ".join(self.target), STDIO, Era.LEGACY)
            settings.setdefault("known_servers", known)
        return client_parts(self.target, **settings)


class UpstreamDriver(ClientDriver):
    """Drives a client whose events go to a link, but for those of the bridge's own calls."""

    def __init__(self, parts: ClientParts) -> None:
        super().__init__(parts, None)
        self.link: Link | None = None
        self.lost = asyncio.Event()
        """Set once the connection is lost."""

    @property
    def is_paused(self) -> bool:
        link = self.link
        must_wait = link is not None and link.must_wait and not self._pending_calls
        return super().is_paused or must_wait

    @property
    def is_behind(self) -> bool:
        """True if the server is a process that has much of its input left to read."""
        child = self._process.child
        return child is not None and child.is_behind

    def handle_event(self, event: ClientEvent) -> None:
        match event:
            case AuthorizationNeeded():
                super().handle_event(event)
                return
            case Connected():
                super().handle_event(event)
            case CallCompleted(handle) | CallFailed(handle) | ProgressReceived(call=handle):
                if handle in self._pending_calls:
                    super().handle_event(event)
                    return
            case _ if self.link is None:
                super().handle_event(event)
                return
            case _:
                pass
        if self.link is not None:
            self.link.receive_client_event(event)
        if isinstance(event, Closed):
            super().handle_event(event)

    def pump(self) -> None:
        link = self.link  # None after the client is closed, whose calls have failed then
        self.settle()
        if link is not None:
            link.bridge.upstream_was_driven()

    def settle(self) -> None:
        """Drive the machine, and leave that of the server alone."""
        super().pump()


class Link:
    """The connection of some clients of the bridge to one upstream server.

    It connects when it is first needed, and again when the connection is lost; calls wait for that.
    """

    def __init__(
        self,
        bridge: LinkOwner,
        upstream: Upstream,
        *,
        info: Mapping[str, Any],
        capabilities: Mapping[str, Any],
        session: sansmcp.Session | None,
        has_handshake: bool,
        tools: ToolFilter | None,
        uris: UriOwners | None,
    ) -> None:
        """Create a link that is not connected.

        Args:
            bridge: the server whose clients are relayed.
            upstream: the server to connect to.
            info: name and version of the client.
            capabilities: what is declared for the client.
            session: the session of the client; None if all clients share the link.
            has_handshake: True if the clients begin with a handshake.
            tools: which tools the clients may see and call; None for all.
            uris: where to note the URIs that clients get; None if there is no other server.
        """
        self.bridge = bridge
        self.upstream = upstream
        self.client: UpstreamDriver | None = None
        """The connected client; None before, and after the connection is lost."""
        self._info = info
        self._capabilities = capabilities
        self._session = session
        self._has_handshake = has_handshake
        self._tools = tools
        self._uris = uris
        self._relay: Relay | None = None
        self._waiting: dict[object, Callable[[str | None], None]] = {}
        """What to do when the connection is open, or has failed for a reason. The keys are calls of
        clients, which may be cancelled meanwhile, or objects that stand for nothing.
        """
        self._waiting_bytes = 0
        self._is_connecting = False
        self._is_closed = False
        self._connection: Task | None = None
        """Opens the connection, and closes it in the end; None for one that was open before."""
        self.changed: set[str] = set()
        """The lists, by the methods that read them, that may have changed since this was emptied.
        """
        self._since = 0.0
        """When the connection was opened."""

    @property
    def must_wait(self) -> bool:
        """True if a client is behind."""
        return self._relay is not None and self._relay.must_wait

    @property
    def is_busy(self) -> bool:
        """True if several calls are running."""
        return self._relay is not None and self._relay.running > 1

    @property
    def _is_behind(self) -> bool:
        return self.client is not None and self.client.is_behind

    @property
    def relay(self) -> Relay | None:
        """The relay; None before the first connection."""
        return self._relay

    def use(self, client: UpstreamDriver) -> None:
        """Relay by a client that is connected."""
        self.client = client
        self._since = self.bridge.now()
        if self._relay is None:
            self._relay = Relay(
                self.bridge.core,
                client.core,
                session=self._session,
                tools=self._tools,
                name=self.upstream.name,
            )
        else:
            self._relay.replace_upstream(client.core)
        client.link = self
        self.changed.update(*CHANGED_LISTS.values())
        self._relay.connected(client.connected, now=self.bridge.now())
        self.bridge.upstream_changed(self)

    def when_connected(self, work: Callable[[str | None], None], of: object = None) -> None:
        """Call ``work`` with None once the server is connected, or with a reason for clients.

        ``of``: the call of a client for which it is done, unless that is cancelled before.
        """
        if self.client is not None:
            work(None)
        elif self._is_closed:
            work(_ENDED)
        else:
            self._waiting[of or object()] = work
            self.connect()

    async def connected(self, timeout: float) -> str | None:
        """Wait until the server is connected.

        Args:
            timeout: seconds to wait at most.

        Returns:
            Why it is not connected; None if it is.
        """
        ready: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self.when_connected(lambda why: None if ready.done() else ready.set_result(why))
        self.bridge.pump()
        await asyncio.wait([ready], timeout=timeout)
        return ready.result() if ready.done() else f"{self.upstream.name}: it is not connected yet"

    def connect(self) -> None:
        """Begin to connect, unless that has begun already."""
        if not self._is_connecting and not self._is_closed and self.client is None:
            self._is_connecting = True
            self._connection = self.bridge.start(self._keep_connection())

    async def _keep_connection(self) -> None:
        """Connect, and close the connection when it is lost or this task is cancelled.

        It has its place until the process, if it is one, has ended.
        """
        try:
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(self.bridge.places[self.upstream.name])
                parts = self.upstream.parts(
                    self._info,
                    self._capabilities,
                    has_handshake=self._has_handshake,
                    is_shared=self._session is None,
                )
                client = UpstreamDriver(parts)
                async with self.bridge.starts[self.upstream.name]:
                    await client.open()
                stack.push_async_callback(client.close)
                self.use(client)
                self._finish_waiting(None)
                self.bridge.pump()
                try:
                    await client.lost.wait()
                finally:
                    client.link = None
        except (sansmcp.CallError, sansmcp.LocalProtocolError, OSError) as error:
            self.bridge.log(f"cannot connect to {self.upstream.name}: {error}")
            self._finish_waiting(f"{self.upstream.name}: {reason_for_clients(error)}")
            self.bridge.pump()

    def _finish_waiting(self, why: str | None) -> None:
        """Do what waits for the connection, which is open, or does not exist for a reason."""
        self._is_connecting = False
        waiting, self._waiting = self._waiting, {}
        for work in waiting.values():
            work(why)

    def close(self) -> None:
        """End the connection. Calls that wait for it fail."""
        self._is_closed = True
        client, self.client = self.client, None
        if client is not None:
            client.link = None
        if self._connection is not None:
            self._connection.cancel()
        self._finish_waiting(_ENDED)

    # The events of both sides

    def receive_server_event(self, event: ServerEvent) -> None:
        """Relay an event of the server that concerns a client of this link."""
        match event:
            case CallReceived(call):
                self.relay_call(call, call.request.params)
            case ClientNotified() if self.client is None:
                self._notify_later(event)
            case ClientNotified(_, notification) if self._is_behind:
                self._log_lost(f"{self.upstream.name}: {notification.method[:100]!r} is lost")
            case CallCancelled(call):
                self._waiting.pop(call, None)
                self._relay_event(event)
            case _:
                self._relay_event(event)

    def _notify_later(self, event: ClientNotified) -> None:
        """Relay a notification when the upstream server is connected, unless too much waits."""
        try:
            size = len(json.encode(event.notification.params))
        except sansmcp.LocalProtocolError:  # NaN, which no server would get
            size = _MAX_WAITING_BYTES + 1
        if len(self._waiting) >= _MAX_WAITING or self._waiting_bytes + size > _MAX_WAITING_BYTES:
            self._log_lost(f"{self.upstream.name}: {event.notification.method[:100]!r} is lost")
            return
        self._waiting_bytes += size

        def relay(why: str | None) -> None:
            self._waiting_bytes -= size
            self._relay_event(event)

        self.when_connected(relay)

    def relay_call(self, call: sansmcp.ServerCall, params: Params | None) -> None:
        """Relay a call with these parameters, as soon as the upstream server is connected."""

        def begin(why: str | None) -> None:
            now = self.bridge.now()
            if why is not None:
                text = f"The upstream server cannot be reached: {why}"
                call.respond_exception(sansmcp.JsonRpcError(-32603, text), now=now)
            elif self._is_behind:
                call.refuse_busy(now=now)
            elif call.is_running:
                assert self._relay is not None
                self._relay.relay_call(call, params, now=now)
                self.bridge.upstream_changed(self)

        self.when_connected(begin, call)

    def _relay_event(self, event: ServerEvent) -> None:
        if self._relay is not None and self.client is not None:
            self._log_lost(self._relay.receive_server_event(event, now=self.bridge.now()))
            self.bridge.upstream_changed(self)
        elif isinstance(event, ListenReceived):  # the server is away, and is asked when it is back
            event.request.acknowledge(event.request.uris, now=self.bridge.now())
        elif self._relay is not None and isinstance(event, CallCancelled):
            self._relay.receive_server_event(event, now=self.bridge.now())

    def receive_client_event(self, event: ClientEvent) -> None:
        """Relay an event of the upstream client."""
        if isinstance(event, StderrLine):
            self.bridge.log(f"{self.upstream.name}: {event.line}")
        elif self._relay is not None:
            if isinstance(event, ServerNotified):
                self.changed.update(CHANGED_LISTS.get(event.notification.method, ()))
            elif isinstance(event, CallCompleted) and self._uris is not None:
                call = self._relay.call_of(event.call)
                if call is not None:
                    self._uris.note_result(self.upstream.name, call.request, event.result)
            self.bridge.server_changes()
            self._log_lost(self._relay.receive_client_event(event, now=self.bridge.now()))
            if self._relay.next_deadline() is not None:
                self.bridge.upstream_changed(self)
        if isinstance(event, Closed):
            self._lost(event)

    def _log_lost(self, text: str | None) -> None:
        if text is not None:
            self.bridge.log(text)

    def _lost(self, closed: Closed) -> None:
        client, self.client = self.client, None
        if client is None or self._is_closed:
            return
        client.link = None
        client.lost.set()
        self.bridge.log(f"{self.upstream.name}: the connection is lost: {closed.error}")
        self.bridge.start(client.close())  # the first client has no task that closes it
        if self.bridge.now() - self._since >= _LASTED:
            self.connect()
