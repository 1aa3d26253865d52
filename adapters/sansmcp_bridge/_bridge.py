"""The server of a bridge: gives the events of its clients to the links with upstream servers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import attrs

import sansmcp
import sansmcp_asyncio
from sansmcp.events import (
    CallCancelled,
    CallReceived,
    ClientNotified,
    ClientResponseReceived,
    ListenersChanged,
    ListenReceived,
    ServerEvent,
    SessionClosed,
    SessionOpened,
)
from sansmcp.relay import ToolFilter, relay_app
from sansmcp.types import Unpack, escape_controls
from sansmcp_asyncio._connection import Connection
from sansmcp_local import ServePlan, ServeSettings, StandardStreams, Task, serve_plan

from ._aggregate import Aggregate, merged
from ._link import EVERYTHING, Link, Upstream, UpstreamDriver
from ._lists import KeptLists, shared_names
from ._patience import Patience
from ._uris import UriOwners

MAX_SESSIONS = 100
"""Sessions at a time by default, if each has a connection or a process of its own."""

_STARTS = 16
"""Connections to upstream servers that are opened at a time. Each may start a process, which needs
most processor time in its first second.
"""

_STREAM_AFTER = 0.05
"""Seconds by default after which a call without a result gets an event stream. A result that comes
sooner, as most do, is sent as JSON.
"""

_logger = logging.getLogger("sansmcp")


@attrs.frozen(kw_only=True)
class _Options:
    """The arguments of :func:`open_bridge` that the bridge keeps."""

    shared: bool
    has_handshake: bool
    info: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    tools: ToolFilter | None
    first_input: bytes
    log: Callable[[str], None]


class Bridge(sansmcp_asyncio.RunningServer):
    """A running server that relays; :func:`open_bridge` makes it.

    Its drivers' :meth:`pump` and that of the upstream clients drive each other, until
    neither machine has changed.
    """

    def __init__(
        self,
        plan: ServePlan,
        upstreams: Sequence[Upstream],
        clients: Sequence[UpstreamDriver],
        options: _Options,
    ) -> None:
        super().__init__(plan)
        self._upstreams = upstreams
        self._options = options
        self._changed: dict[Link, None] = {}
        """The links whose clients must be driven."""
        self._behind: set[Link] = set()
        """The links that wait for a client of the bridge."""
        self._timed: set[Link] = set()
        """The links whose relay has a deadline."""
        self._is_server_changed = False
        self._is_settling_soon = False
        # A server that hangs, or whose process does not end, takes no place of another one.
        most, starts = self.core.limits.max_sessions + 1, max(1, _STARTS // len(upstreams))
        self.places = {each.name: asyncio.Semaphore(most) for each in upstreams}
        self.starts = {each.name: asyncio.Semaphore(starts) for each in upstreams}
        self.kept = KeptLists()
        self.patience = Patience()
        self.names = shared_names([each.name for each in upstreams])
        self.uris = UriOwners()
        self._aggregates: dict[sansmcp.Session | None, Aggregate] = {}
        """The upstream connections of each session; None has those of all other clients."""
        common = self._aggregates[None] = self._aggregate(None, options.info, options.capabilities)
        for link, client in zip(common.links, clients, strict=True):
            link.use(client)

    def _aggregate(
        self,
        session: sansmcp.Session | None,
        info: Mapping[str, Any],
        capabilities: Mapping[str, Any],
    ) -> Aggregate:
        is_one = len(self._upstreams) == 1
        links = [
            Link(
                self,
                upstream,
                info=info,
                capabilities=capabilities,
                session=session,
                has_handshake=session is not None or self._options.has_handshake,
                tools=self._options.tools if is_one else None,
                uris=None if is_one else self.uris,
            )
            for upstream in self._upstreams
        ]
        return Aggregate(self, links, self._options.tools)

    def close_links(self) -> None:
        """Part from the clients that were connected before the server."""
        for link in self._aggregates[None].links:
            link.close()

    def _serve_stdio(self, streams: StandardStreams) -> Connection:
        connection = super()._serve_stdio(streams)
        if self._options.first_input:
            connection.data_received(self._options.first_input)
        return connection

    # The events of the server

    def handle_event(self, event: ServerEvent) -> None:
        match event:
            case SessionOpened(session) if not self._options.shared:
                aggregate = self._aggregate(
                    session, session.client_info, session.client_capabilities
                )
                self._aggregates[session] = aggregate
                for link in aggregate.links:
                    link.connect()
            case SessionClosed(session) if session in self._aggregates:
                for link in self._aggregates.pop(session).links:
                    link.close()
            case CallReceived(call) | CallCancelled(call) | ClientResponseReceived(call):
                self._aggregate_of(call.peer).receive_server_event(event)
            case ClientNotified(peer):
                self._aggregate_of(peer).receive_server_event(event)
            case SessionClosed() | ListenersChanged() | ListenReceived():
                self._aggregates[None].receive_server_event(event)
            case _:
                super().handle_event(event)

    def _aggregate_of(self, peer: sansmcp.Peer) -> Aggregate:
        session = peer if isinstance(peer, sansmcp.Session) else None
        return self._aggregates.get(session) or self._aggregates[None]

    # Driving

    def pump(self, connection: Any = None) -> None:
        super().pump(connection)
        self._behind = {link for link in self._behind if not self._has_caught_up(link)}
        if not self._changed and not self._is_server_changed:
            return
        if all(not link.is_busy for link in self._changed):
            self._settle_all()
        elif not self._is_settling_soon:
            # Other connections may have calls, too: one write has those of all.
            self._is_settling_soon = True
            asyncio.get_running_loop().call_soon(self._settle_all)

    def _settle_all(self) -> None:
        self._is_settling_soon = False
        while self._changed or self._is_server_changed:
            changed, self._changed = self._changed, {}
            for link in changed:
                self._settle(link)
            if self._is_server_changed:
                self._is_server_changed = False
                super().pump()

    def _has_caught_up(self, link: Link) -> bool:
        if link.must_wait:
            return False
        self._changed[link] = None
        return True

    def _settle(self, link: Link) -> None:
        if link.client is not None:
            link.client.settle()
        if link.must_wait:
            self._behind.add(link)
        if link.relay is not None and link.relay.next_deadline() is not None:
            self._timed.add(link)
        else:
            self._timed.discard(link)

    def next_deadline(self) -> float:
        own = super().next_deadline()
        if not self._timed:
            return own
        times = [link.relay.next_deadline() for link in self._timed if link.relay is not None]
        return min([own, *(time for time in times if time is not None)])

    def handle_timeout(self) -> None:
        for link in tuple(self._timed):
            if link.relay is not None:
                link.relay.handle_timeout(now=self.now())
                self.upstream_changed(link)
        super().handle_timeout()

    # For links

    def start(self, work: Coroutine[Any, Any, None]) -> Task:
        """Run a coroutine in a task that is cancelled when the server ends."""
        return self._tasks.start(work)

    def upstream_changed(self, link: Link) -> None:
        """Drive the client of a link soon, since it was given commands."""
        self._changed[link] = None

    def server_changes(self) -> None:
        """Drive the server soon, since it is given commands."""
        self._is_server_changed = True

    def upstream_was_driven(self) -> None:
        """Drive the server if that made a client change it."""
        self._settle_all()

    def log(self, line: str) -> None:
        """Log a line; it may have text of a peer."""
        self._options.log(escape_controls(line))


def open_bridge(
    upstreams: Sequence[Upstream],
    *,
    shared: bool = False,
    has_handshake: bool = False,
    client_info: Mapping[str, Any] | None = None,
    client_capabilities: Mapping[str, Any] | None = None,
    tools: ToolFilter | None = None,
    first_input: bytes = b"",
    log: Callable[[str], None] = _logger.info,
    **settings: Unpack[ServeSettings],
) -> AbstractAsyncContextManager[Bridge]:
    """Connect to upstream servers, and relay clients to them until the block ends.

    With one upstream server, the clients see its name, capabilities and instructions. With several,
    they see one server with all that those offer; a server that cannot be reached is left out.

    Args:
        upstreams: the servers, with different names.
        shared: True if all clients share one connection to each upstream server. False gives each
            session, which clients have until 2025-11-25, connections of its own; the other clients
            share one. Clients that share a connection share the login and what the server keeps
            for a session: do not let different users share one.
        has_handshake: True if the clients of the shared connection begin with a handshake, as all
            do until 2025-11-25. The upstream server then gets one, too, if it has one, as it always
            does for a session with connections of its own: a server may be able to ask for input
            in this way only.
        client_info, client_capabilities: name, version and capabilities that the shared connection
            declares; by default all capabilities that a client can have.
        tools: which tools the clients may see and call; None for all.
        first_input: what was read from standard input already, such as the first message of a
            client, which has its name and capabilities.
        log: takes lines for a log, such as lost connections and the standard error of upstream
            processes.
        settings: the settings of :func:`sansmcp_asyncio.serve`. Unless ``shared`` or ``limits`` is
            set, at most 100 sessions are open at a time, since each may be a process. Unless
            ``stream_after`` is set, it is 0.05: a call whose connection breaks in that time, or
            while a result is read that came in it, cannot be resumed.

    Returns:
        The running server.

    Raises:
        CallError: an upstream server cannot be reached, none of them if there are several.
        LocalProtocolError: a setting is wrong, or two names are the same.
        OSError: the address cannot be bound.
    """
    if len({each.name for each in upstreams}) < max(1, len(upstreams)):
        raise sansmcp.LocalProtocolError("A bridge needs upstream servers with different names")
    if not shared:
        settings.setdefault("limits", sansmcp.Limits(max_sessions=MAX_SESSIONS))
    settings.setdefault("stream_after", _STREAM_AFTER)
    options = _Options(
        shared=shared,
        has_handshake=has_handshake,
        info=client_info or {},
        capabilities=EVERYTHING if client_capabilities is None else client_capabilities,
        tools=tools,
        first_input=first_input,
        log=log,
    )
    return _opened(upstreams, options, settings)


@asynccontextmanager
async def _opened(
    upstreams: Sequence[Upstream], options: _Options, settings: ServeSettings
) -> AsyncGenerator[Bridge, None]:
    async with AsyncExitStack() as stack:
        reached: list[tuple[Upstream, UpstreamDriver]] = []
        for upstream in upstreams:
            parts = upstream.parts(
                options.info,
                options.capabilities,
                has_handshake=options.has_handshake,
                is_shared=True,
            )
            client = UpstreamDriver(parts)
            try:
                await client.open()
            except (sansmcp.CallError, OSError) as error:
                if upstream is upstreams[-1] and not reached:
                    raise
                options.log(escape_controls(f"{upstream.name} is left out: {error}"))
            else:
                stack.push_async_callback(client.close)
                reached.append((upstream, client))
        connected = {upstream.name: client.connected for upstream, client in reached}
        app = relay_app(
            next(iter(connected.values())) if len(upstreams) == 1 else merged(connected)
        )
        bridge = Bridge(
            serve_plan(app, **settings),
            [upstream for upstream, _ in reached],
            [client for _, client in reached],
            options,
        )
        stack.callback(bridge.close_links)
        await stack.enter_async_context(bridge)
        bridge.pump()
        yield bridge
