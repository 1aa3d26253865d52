"""The spans and metrics of a server."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from opentelemetry import metrics, propagate, trace
from opentelemetry.trace import SpanKind, StatusCode

import sansmcp
from sansmcp.codecs import json
from sansmcp.effects import ExchangeEffect, SendBody
from sansmcp.events import (
    CallCancelled,
    ClientEvent,
    RefusalSent,
    ServerEvent,
    SessionClosed,
    SessionOpened,
)
from sansmcp.http import RequestPart, ResponsePart

from ._names import ERROR, Series, error_type, is_known_tool, span_of


def trace_handlers(
    app: sansmcp.App,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
) -> None:
    """Make a span for each run of a handler of an App, and measure its duration.

    The span is current in the handler. Its parent is the span of the client, from ``_meta`` of the
    request or, if that names none, from the HTTP headers. Metric: ``mcp.server.operation.duration``
    in seconds. A handler that returns InputRequired runs, and is measured, again.

    Args:
        app: the application; handlers that are registered later are traced, too.
        tracer_provider, meter_provider: the global ones by default.
    """
    tracer = trace.get_tracer("sansmcp", sansmcp.__version__, tracer_provider)
    meter = metrics.get_meter("sansmcp", sansmcp.__version__, meter_provider)
    duration = meter.create_histogram(
        "mcp.server.operation.duration", "s", "The duration of a run of a handler"
    )

    series = Series()

    @contextmanager
    def traced(call: sansmcp.BaseCall[Any, Any]) -> Generator[None, None, None]:
        name, attributes = span_of(call.method, call.params)
        began = perf_counter()
        kind = None
        attributes["mcp.protocol.version"] = call.peer.revision.name
        span = tracer.start_span(
            name, context=_parent_of(call), kind=SpanKind.SERVER, attributes=attributes
        )
        span.set_attribute("jsonrpc.request.id", str(call.request_id)[:200])
        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                yield
        except BaseException as error:
            kind = error_type(error)
            span.set_attribute(ERROR, kind)
            span.set_status(StatusCode.ERROR)
            if not isinstance(error, sansmcp.JsonRpcError):
                span.record_exception(error)
            raise
        finally:
            span.end()
            is_known = is_known_tool(app.input_schema, attributes)
            kept = series.attributes(attributes, kind, is_known=is_known)
            duration.record(perf_counter() - began, kept)

    app.around(traced)


def _parent_of(call: sansmcp.BaseCall[Any, Any]) -> Any:
    """Return the context of the client's span."""
    carrier = json.as_object(call.params.get("_meta")) or {}
    fields = propagate.get_global_textmap().fields
    found = {name: carrier[name] for name in fields if isinstance(carrier.get(name), str)}
    return propagate.extract(found, propagate.extract(dict(call.headers)))


class ServerObserver(sansmcp.Observer):
    """Counts sessions, refusals, cancelled calls, and bytes of a server.

    Metrics: ``sansmcp.server.sessions`` that are open, ``sansmcp.server.refusals`` by their reason,
    ``sansmcp.server.cancellations``, and ``sansmcp.server.io`` in bytes by direction (bodies of
    HTTP, and lines of stdio).
    """

    def __init__(self, meter_provider: metrics.MeterProvider | None = None) -> None:
        """Create an observer; the provider is the global one by default."""
        meter = metrics.get_meter("sansmcp", sansmcp.__version__, meter_provider)
        self._sessions = meter.create_up_down_counter(
            "sansmcp.server.sessions", "{session}", "Sessions that are open"
        )
        self._refusals = meter.create_counter(
            "sansmcp.server.refusals", "{request}", "Requests that were refused"
        )
        self._cancellations = meter.create_counter(
            "sansmcp.server.cancellations", "{call}", "Calls that were cancelled"
        )
        self._io = meter.create_counter(
            "sansmcp.server.io", "By", "Bytes of bodies and lines, sent and received"
        )

    def event_pulled(self, event: ClientEvent | ServerEvent) -> None:
        match event:
            case SessionOpened():
                self._sessions.add(1)
            case SessionClosed():
                self._sessions.add(-1)
            case RefusalSent(error):
                self._refusals.add(1, {ERROR: error.reason})
            case CallCancelled():
                self._cancellations.add(1)
            case _:
                pass

    def part_received(self, exchange: int, part: RequestPart | ResponsePart) -> None:
        if isinstance(part, sansmcp.BodyData):
            self._io.add(len(part.data), _RECEIVED)

    def part_sent(self, exchange: int, effect: ExchangeEffect) -> None:
        if isinstance(effect, SendBody):
            self._io.add(len(effect.data), _SENT)

    def lines_received(self, lines: bytes) -> None:
        self._io.add(len(lines), _RECEIVED)

    def lines_sent(self, lines: bytes) -> None:
        self._io.add(len(lines), _SENT)


_RECEIVED = {"network.io.direction": "receive"}
_SENT = {"network.io.direction": "transmit"}
