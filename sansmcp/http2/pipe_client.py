"""The client machine of a server process that speaks HTTP/2 on its pipes.

Its calls, sessions and streams are those of Streamable HTTP; its process is that of stdio. Drivers
need nothing else than for stdio: the HTTP exchanges become writes to the process, and its output
becomes parts of their responses.

The process decides whether the connection lives. If it ends, calls fail with its exit status and
the end of its standard error, as on stdio, and nothing is repeated: no other process is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..client.client import Client
from ..client.options import ClientSettings
from ..effects import AbortExchange, ClientEffect, CloseStdin, OpenExchange, WriteStdin
from ..errors import InvalidResponse, LocalProtocolError, NegotiationFailed
from ..http import Url
from ..process import ProcessPart, StdoutData
from ..types import STDIO_V2, Idle, Unpack
from .client_connection import ClientConnection


class PipeClient(Client):
    """A client of a server process on ``stdio-v2``.

    Drive it like a :class:`sansmcp.Client` with a command. It has no effects OpenExchange and
    AbortExchange.
    """

    __slots__ = ("_connection",)

    _url_on_pipes = Url("http", "localhost", 80, "/mcp")
    _transport_on_pipes = STDIO_V2

    def __init__(
        self,
        target: Sequence[str],
        *,
        jitter: Callable[[], float],
        random_bytes: Callable[[int], bytes] | None = None,
        wall_clock: Callable[[], float] | None = None,
        **settings: Unpack[ClientSettings],
    ) -> None:
        """Create a client; :meth:`start` opens the session.

        Args:
            target: the command that starts the server, e.g. ``["python", "server.py"]``.
            jitter, random_bytes, wall_clock, settings: as for :class:`sansmcp.Client`.

        Raises:
            LocalProtocolError: ``target`` is no command, or a setting is invalid.
            TypeError: a setting is unknown.
        """
        if isinstance(target, str):
            raise LocalProtocolError(
                f"{STDIO_V2} is for a server process: target must be a command, such as "
                "['python', 'server.py']"
            )
        super().__init__(
            target, jitter=jitter, random_bytes=random_bytes, wall_clock=wall_clock, **settings
        )
        self._connection = ClientConnection(self.limits)

    def receive_process_part(self, part: ProcessPart, *, now: float) -> None:
        if not isinstance(part, StdoutData):
            super().receive_process_part(part, now=now)
            return
        self._now = now  # no observer sees the bytes: it sees the parts of responses
        self._connection.receive_data(part.data, now=now)
        self._receive_parts()
        failure = self._connection.failure
        if failure is not None and not self._opening.is_closed:
            is_mismatch = failure.reason == "not_http2"
            error = (NegotiationFailed if is_mismatch else InvalidResponse)(failure.message)
            error.__cause__ = failure
            self._fail(error)

    def next_effect(self) -> ClientEffect | Idle:
        effects = self._effects
        while effects and isinstance(effect := effects[0], OpenExchange | AbortExchange):
            super().next_effect()
            if isinstance(effect, OpenExchange):
                self._connection.begin(effect)
            else:
                self._connection.abort(effect.exchange)
            self._receive_parts()
        # Many exchanges that begin together are one write, before the input of the process closes.
        is_last = not effects or isinstance(effects[0], CloseStdin)
        if is_last and (data := self._connection.data_to_send()):
            return WriteStdin(data)
        return super().next_effect()

    def _receive_parts(self) -> None:
        while (found := self._connection.next_part()) is not None:
            exchange, part = found
            self.receive_part(exchange, part, now=self._now)

    def _closed(self) -> None:
        """Shut the process down first, unless it has ended."""
        assert self._pipes is not None, "there is a process"
        self._connection.close()
        if not self._pipes.close(self._now):
            super()._closed()
