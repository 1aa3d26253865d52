"""One request and its response."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, TypeAlias

import sansmcp
from sansmcp import Idle
from sansmcp.effects import Abort, ExchangeEffect, SendBody, SendEnd, SendHead
from sansmcp.http import quoted_path
from sansmcp.types import never

if TYPE_CHECKING:
    from sansmcp.http import RequestPart
    from sansmcp_loop import Task

    from ._serving import Serving

_logger = logging.getLogger("sansmcp")

Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

_LINGER = 2.0
"""Seconds for a client that is refused to send the rest of its request. nginx: 5."""

_START = "http.response.start"
_BODY = "http.response.body"


def request_head(scope: Scope) -> sansmcp.RequestHead:
    """The start of a request, as ASGI tells it.

    The path is that below the place where we are mounted. Some say both together in ``path``, as
    the specification has it, others leave the place away.
    """
    root, path = scope.get("root_path", "").rstrip("/"), scope["path"]
    if f"{path}/".startswith(f"{root}/"):
        path = path[len(root) :]
    target = quoted_path((path or "/").encode())
    query = scope["query_string"]
    return sansmcp.RequestHead(
        method=scope["method"].encode(),
        target=target + b"?" + query if query else target,
        headers=tuple((name.lower(), value) for name, value in scope["headers"]),
        root=quoted_path(root.encode()),
    )


class Exchange:
    """Drives one request: reads it, then sends what there is to send, until it is answered.

    Only where the answer takes its time it looks, in a task beside, whether the client is still
    there: ASGI tells that to those who wait for it.
    """

    def __init__(self, serving: Serving, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._serving = serving
        self._loop = serving.loop
        self._limits = serving.core.limits
        self._receive = receive
        self._send = send
        self._exchange = serving.core.open_exchange(self)
        self._is_asking = True
        self._woken = self._loop.event()
        self._watch: Task | None = None

    def wake(self) -> None:
        self._woken.set()

    @property
    def connection(self) -> sansmcp.ConnectionInfo:
        """What the server tells of the connection."""
        client = self._scope.get("client")
        return sansmcp.ConnectionInfo(
            peer=None if client is None or client[1] is None else (client[0], client[1]),
            is_tls=self._scope.get("scheme") == "https",
            environ=self._scope,
        )

    async def run(self) -> None:
        self._serving.requests += 1
        try:
            self._feed(request_head(self._scope))
            while await self._perform(self._serving.core.next_effect_of(self._exchange)):
                pass
        finally:
            if self._watch is not None:
                self._watch.cancel()
            self._serving.requests -= 1
            self._feed(sansmcp.PeerGone())

    async def _perform(self, effect: ExchangeEffect | Idle) -> bool:
        """Do what is to be done next; False once nothing will be."""
        match effect:
            case SendHead(head):
                return await self._sent(_START, status=head.status, headers=list(head.headers))
            case SendBody(data):
                return await self._sent(_BODY, body=data, more_body=True)
            case SendEnd():
                await self._loop.within(_LINGER, self._read_rest)
                await self._sent(_BODY, more_body=False)
                return False
            case Abort():
                return False  # the server breaks off what we leave incomplete
            case Idle() if self._exchange.is_done:
                return False
            case Idle():
                await self._wait()
                return True
            case _ as impossible:
                never(impossible)

    async def _sent(self, type: str, **fields: Any) -> bool:
        """Send a message; False if the client takes nothing, or has gone."""
        message = {"type": type, **fields}
        try:
            return await self._loop.within(self._limits.send_timeout, self._send, message)
        except OSError as error:
            _logger.debug("connection lost: %s", error)
            return False

    async def _wait(self) -> None:
        """Wait for more of the request, or for something to send."""
        # This takes all events, so the machine is never too full to be fed.
        self._serving.run_pending()
        if self._is_asking:
            self._take(await self._receive())
            return
        if self._watch is None and not self._woken.is_set():
            self._watch = self._loop.spawn(self._watch_client)
        await self._woken.wait()
        self._woken = self._loop.event()

    async def _read_rest(self) -> None:
        """Read what is not wanted: some servers break off with it what the client is to be told."""
        while self._is_asking:
            self._take(await self._receive())

    async def _watch_client(self) -> None:
        while not self._exchange.is_done:
            self._take(await self._receive())
        self.wake()

    def _take(self, message: Message) -> None:
        """The client has sent something, or has gone."""
        if message["type"] == "http.disconnect":
            self._is_asking = False
            self._feed(sansmcp.PeerGone())
        elif self._is_asking:
            self._feed(sansmcp.BodyData(message.get("body", b"")))
            if not message.get("more_body", False):
                self._is_asking = False
                self._feed(sansmcp.BodyEnd())

    def _feed(self, part: RequestPart) -> None:
        self._serving.core.receive(self._exchange, part, now=self._loop.now())
        self._serving.run_pending()
