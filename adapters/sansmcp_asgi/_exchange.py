"""One request and its response, as ASGI has them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

import sansmcp
from sansmcp.http import quoted_path
from sansmcp_local import HttpExchange, HttpServing

Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

_START = "http.response.start"
_BODY = "http.response.body"
_DISCONNECT = "http.disconnect"


def request_head(scope: Scope) -> sansmcp.RequestHead:
    """Return the head of a request.

    Its path is relative to where the application is mounted. By the ASGI specification,
    ``scope["path"]`` includes ``root_path``; some servers and frameworks leave it out.
    """
    root, path = scope.get("root_path", "").rstrip("/"), scope["path"]
    if f"{path}/".startswith(f"{root}/"):
        path = path[len(root) :]
    target = quoted_path((path or "/").encode())
    query = scope["query_string"]
    return sansmcp.RequestHead(
        method=scope["method"].encode(),
        target=target + b"?" + query if query else target,
        headers=tuple([(name.lower(), value) for name, value in scope["headers"]]),
        root=quoted_path(root.encode()) if root else b"",
    )


class Exchange(HttpExchange):
    """Receives and sends ASGI messages for one HTTP exchange.

    If the application returns before the response is complete, the ASGI server aborts it.
    """

    def __init__(self, serving: HttpServing, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(serving)
        self._scope = scope
        self._receive = receive
        self._send_message = send
        self._has_more = True

    @property
    def connection(self) -> sansmcp.ConnectionInfo:
        """The ASGI server's information about the connection."""
        client = self._scope.get("client")
        return sansmcp.ConnectionInfo(
            peer=None if client is None or client[1] is None else (client[0], client[1]),
            is_tls=self._scope.get("scheme") == "https",
            environ=self._scope,
        )

    @property
    def is_read(self) -> bool:
        return not self._has_more

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
        await self.send_last(b"")

    async def send_last(self, data: bytes) -> None:
        await self._send_message({"type": _BODY, "body": data, "more_body": False})

    async def wait_disconnected(self) -> None:
        while (await self._receive())["type"] != _DISCONNECT:
            pass
