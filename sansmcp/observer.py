"""What can watch a machine: everything that it sends, receives and reports.

An :class:`Observer` is the setting ``observer`` of a client or server. A machine without one pays a
comparison for each part. :class:`~sansmcp.trace.Tracer` is one that writes lines;
``sansmcp_telemetry`` has one for OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from .effects import ClientEffect, ExchangeEffect
from .events import ClientEvent, ServerEvent
from .http import RequestPart, ResponsePart
from .messages import ErrorResponse, Params
from .process import ProcessPart
from .server_call import ServerCall
from .types import Value


class Observer:
    """Watches a machine; override the methods that you need.

    They are called synchronously, from within the machine: they must not block, raise, or call the
    machine. One observer may watch several machines of one thread.
    """

    def part_received(self, exchange: int, part: RequestPart | ResponsePart) -> None:
        """A part of an HTTP message has arrived.

        Args:
            exchange: the number of the HTTP request and its response.
            part: the part; of a server's request or of a client's response.
        """

    def part_sent(self, exchange: int, effect: ExchangeEffect) -> None:
        """A server sends a part of an HTTP response, or aborts it."""

    def effect_pulled(self, effect: ClientEffect) -> None:
        """A client begins or aborts an HTTP request, or uses its server process."""

    def process_part_received(self, part: ProcessPart) -> None:
        """A client's server process has written something, or ended."""

    def lines_received(self, lines: bytes) -> None:
        """A server on stdio has received complete lines."""

    def lines_sent(self, lines: bytes) -> None:
        """A server on stdio sends complete lines."""

    def event_pulled(self, event: ClientEvent | ServerEvent) -> None:
        """The machine reports an event: received and ended calls, sessions, retries, refusals."""

    def call_started(
        self, call: int, method: str, params: Params | None
    ) -> Mapping[str, Any] | None:
        """A client has been given a call; the event CallCompleted or CallFailed ends it.

        Args:
            call: the handle of the call.
            method, params: the request.

        Returns:
            Members for ``_meta`` of the request, such as trace context; None for none. Those that
            the application has set itself stay.
        """
        return None

    def call_ended(self, call: ServerCall, error: ErrorResponse | None) -> None:
        """A server responds to a call.

        Calls that are cancelled end with the event CallCancelled instead.

        Args:
            call: the call.
            error: the error response; None for a result.
        """


@attrs.frozen(eq=False, repr=False)
class _Both(Observer, Value):
    """Two observers of one machine."""

    first: Observer
    second: Observer

    def part_received(self, exchange: int, part: RequestPart | ResponsePart) -> None:
        self.first.part_received(exchange, part)
        self.second.part_received(exchange, part)

    def part_sent(self, exchange: int, effect: ExchangeEffect) -> None:
        self.first.part_sent(exchange, effect)
        self.second.part_sent(exchange, effect)

    def effect_pulled(self, effect: ClientEffect) -> None:
        self.first.effect_pulled(effect)
        self.second.effect_pulled(effect)

    def process_part_received(self, part: ProcessPart) -> None:
        self.first.process_part_received(part)
        self.second.process_part_received(part)

    def lines_received(self, lines: bytes) -> None:
        self.first.lines_received(lines)
        self.second.lines_received(lines)

    def lines_sent(self, lines: bytes) -> None:
        self.first.lines_sent(lines)
        self.second.lines_sent(lines)

    def event_pulled(self, event: ClientEvent | ServerEvent) -> None:
        self.first.event_pulled(event)
        self.second.event_pulled(event)

    def call_started(
        self, call: int, method: str, params: Params | None
    ) -> Mapping[str, Any] | None:
        found = self.first.call_started(call, method, params)
        return {**(found or {}), **(self.second.call_started(call, method, params) or {})}

    def call_ended(self, call: ServerCall, error: ErrorResponse | None) -> None:
        self.first.call_ended(call, error)
        self.second.call_ended(call, error)


def both(first: Observer | None, second: Observer | None) -> Observer | None:
    """Return an observer that calls two, either of which may be None."""
    if first is None or second is None:
        return first or second
    return _Both(first, second)
