"""One request and its response, as ASGI has them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

import sansmcp
from sansmcp.http import quoted_path
from sansmcp_loop import HttpExchange, HttpServing

Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

_START = "http.response.start"
_BODY = "http.response.body"
_DISCONNECT = "http.disconnect"


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


class Exchange(HttpExchange):
    """Receives and sends the messages of ASGI.

    A response that is left incomplete is broken off by the server.
    """

    def __init__(self, serving: HttpServing, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(serving)
        self._scope = scope
        self._receive = receive
        self._send_message = send
        self._has_more = True

    @property
    def connection(self) -> sansmcp.ConnectionInfo:
        """What the server tells of the connection."""
        client = self._scope.get("client")
        return sansmcp.ConnectionInfo(
            peer=None if client is None or client[1] is None else (client[0], client[1]),
            is_tls=self._scope.get("scheme") == "https",
            environ=self._scope,
        )

    async def receive_body(self) -> bytes:
        while self._has_more:
            message = await self._receive()
            if message["type"] == _DISCONNECT:
                raise ConnectionResetError("The client has disconnected")
            self._has_more = message.get("more_body", False)
            data: bytes = message.get("body", b"")
            if data:
                return data
        return b""

    async def send_head(self, head: sansmcp.ResponseHead) -> None:
        message = {"type": _START, "status": head.status, "headers": list(head.headers)}
        await self._send_message(message)

    async def send_body(self, data: bytes) -> None:
        await self._send_message({"type": _BODY, "body": data, "more_body": True})

    async def send_end(self) -> None:
        await self._send_message({"type": _BODY, "more_body": False})

    async def wait_disconnected(self) -> None:
        while (await self._receive())["type"] != _DISCONNECT:
            pass
