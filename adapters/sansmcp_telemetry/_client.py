"""The spans and metrics of a client."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import attrs
from opentelemetry import metrics, propagate, trace
from opentelemetry.trace import SpanKind, StatusCode

import sansmcp
from sansmcp.events import (
    CallCompleted,
    CallFailed,
    ClientEvent,
    Connected,
    Reconnecting,
    ServerEvent,
)
from sansmcp.messages import Params

from ._names import ERROR, Series, error_type, span_of


@attrs.frozen
class _Running:
    span: trace.Span
    attributes: Mapping[str, str]
    started: float


class ClientObserver(sansmcp.Observer):
    """Makes a span for each call of one client, and measures its duration.

    The span is a child of the current one, and its context is sent in ``_meta``. Metrics:
    ``mcp.client.operation.duration`` in seconds, and ``sansmcp.client.reconnects``.

    Pass it as ``observer=`` to one client; make another one for the next.
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        """Create an observer; the providers are the global ones by default."""
        self._tracer = trace.get_tracer("sansmcp", sansmcp.__version__, tracer_provider)
        meter = metrics.get_meter("sansmcp", sansmcp.__version__, meter_provider)
        self._duration = meter.create_histogram(
            "mcp.client.operation.duration",
            "s",
            "The duration of a call, from its start to its end",
        )
        self._reconnects = meter.create_counter(
            "sansmcp.client.reconnects", "{reconnect}", "Connections that were made again"
        )
        self._series = Series()
        self._running: dict[int, _Running] = {}
        self._version = ""

    def call_started(self, call: int, method: str, params: Params | None) -> Mapping[str, Any]:
        name, attributes = span_of(method, params)
        if self._version:
            attributes["mcp.protocol.version"] = self._version
        span = self._tracer.start_span(name, kind=SpanKind.CLIENT, attributes=attributes)
        self._running[call] = _Running(span, attributes, perf_counter())
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        return carrier

    def event_pulled(self, event: ClientEvent | ServerEvent) -> None:
        match event:
            case CallCompleted(call):
                self._end(call, None)
            case CallFailed(call, error):
                self._end(call, error)
            case Connected():
                self._version = event.version
            case Reconnecting():
                self._reconnects.add(1, {"sansmcp.is_poll": event.attempt == 0})
            case _:
                pass

    def _end(self, call: int, error: sansmcp.CallError | None) -> None:
        running = self._running.pop(call, None)
        if running is None:
            return
        kind = None if error is None else error_type(error)
        if error is not None:
            running.span.set_attribute(ERROR, error_type(error))
            running.span.set_status(StatusCode.ERROR, str(error))
        running.span.end()
        elapsed = perf_counter() - running.started
        self._duration.record(elapsed, self._series.attributes(running.attributes, kind))
