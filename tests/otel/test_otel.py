"""A call is one trace over client and server, and the metrics count what happened."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, Span, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import sansmcp
import sansmcp_asyncio
from sansmcp.revisions import HANDSHAKE_VERSIONS, REVISIONS
from sansmcp_telemetry import ClientObserver, ServerObserver, trace_handlers
from sansmcp_tools import Tools

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Telemetry:
    """Providers that keep in memory what is recorded."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader])

    def spans(self, kind: trace.SpanKind) -> dict[str, ReadableSpan]:
        return {
            span.name: span for span in self._exporter.get_finished_spans() if span.kind is kind
        }

    def metric(self, name: str) -> dict[Any, float]:
        """The value of a metric by the value of its last attribute; the count of a histogram."""
        found: dict[Any, float] = {}
        data: Any = self._reader.get_metrics_data()
        for resource in data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.name == name:
                        for point in metric.data.data_points:
                            values: list[str] = [*(point.attributes or {}).values()]
                            found[tuple(sorted(values))] = _value_of(point)
        return found


def _value_of(point: Any) -> float:
    value: float = point.count if hasattr(point, "count") else point.value
    return value


def _span_id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


async def tool(call: Any) -> Any:
    # On HTTP+SSE the headers are those of the request that opened the event stream.
    if call.peer.revision.name != "2024-11-05":
        assert call.headers["traceparent"] == call.params["_meta"]["traceparent"]
    if call.params["name"] == "fails":
        raise sansmcp.JsonRpcError(-32602, "no")
    if call.params["name"] == "breaks":
        raise ValueError("a secret")
    return {"content": []}


def plain_tool(call: Any) -> Any:
    return asyncio.run(tool(call))


@pytest.mark.parametrize("version", REVISIONS)
@pytest.mark.parametrize("handler", [tool, plain_tool])
def test_one_trace(version: str, handler: Callable[..., Any]) -> None:
    telemetry = Telemetry()
    app = sansmcp.App("traced")
    current: list[int] = []

    @app.handler("tools/list", inline=True)
    def list_tools(call: Any) -> Any:
        current.append(trace.get_current_span().get_span_context().span_id)
        return {"tools": []}

    trace_handlers(app, telemetry.tracers, telemetry.meters)
    app.handler("tools/call")(handler)

    async def main() -> None:
        observer = ServerObserver(telemetry.meters)
        http: Any = {"http": ("127.0.0.1", 0), "http_sse": "/sse"}
        async with sansmcp_asyncio.serve(app, **http, observer=observer) as server:
            url = server.url.replace("/mcp", "/sse") if version == "2024-11-05" else server.url
            client_observer = ClientObserver(telemetry.tracers, telemetry.meters)
            async with sansmcp_asyncio.connect(
                url, versions=(version,), observer=client_observer
            ) as client:
                await client.call("tools/list")
                await client.call_tool("works", meta={"com.example/a": 1})
                for name in ("fails", "breaks"):
                    with pytest.raises(sansmcp.JsonRpcError):
                        await client.call_tool(name)
                await client.call_tool("works", meta={"traceparent": PARENT})

    asyncio.run(asyncio.wait_for(main(), 30))
    of_client = telemetry.spans(trace.SpanKind.CLIENT)
    of_server = telemetry.spans(trace.SpanKind.SERVER)
    names = {"tools/list", "tools/call works", "tools/call fails", "tools/call breaks"}
    assert of_client.keys() == of_server.keys() == names
    for name in names - {"tools/call works"}:
        parent = of_server[name].parent
        assert parent is not None
        assert parent.span_id == _span_id(of_client[name])
    assert current == [_span_id(of_server["tools/list"])]
    overridden = of_server["tools/call works"].parent  # the application's own context stays
    assert overridden is not None
    assert f"{overridden.span_id:016x}" == PARENT.split("-")[2]
    failed = of_server["tools/call fails"]
    assert dict(failed.attributes or {})["error.type"] == "-32602"
    assert dict(failed.attributes or {})["mcp.protocol.version"] == version
    assert dict(of_client["tools/call breaks"].attributes or {})["error.type"] == "-32603"
    counted = {
        (version, "tools/list"): 1,
        (version, "tools/call", "works"): 2,
        ("-32602", version, "fails", "tools/call"): 1,
    }
    for side in ("client", "server"):
        counts = telemetry.metric(f"mcp.{side}.operation.duration")
        assert counted.items() <= counts.items()
    assert sum(telemetry.metric("mcp.server.operation.duration").values()) == 5
    assert telemetry.metric("sansmcp.server.io")[("receive",)] > 0
    is_session = version in HANDSHAKE_VERSIONS
    assert list(telemetry.metric("sansmcp.server.sessions").values()) == [0] * is_session


def test_context_of_http_headers_and_refusals() -> None:
    telemetry = Telemetry()
    app = sansmcp.App("traced")

    @app.handler("tools/call")
    async def call_tool(call: Any) -> Any:
        return {"content": []}

    trace_handlers(app, telemetry.tracers, telemetry.meters)

    async def main() -> None:
        observer = ServerObserver(telemetry.meters)
        async with sansmcp_asyncio.serve(app, http=("127.0.0.1", 0), observer=observer) as server:
            headers = {"traceparent": PARENT}
            async with sansmcp_asyncio.connect(server.url, headers=headers) as client:
                await client.call_tool("of headers")
                await client.call_tool("of meta", meta={"traceparent": OTHER})
                await client.call_tool("of both", meta={"baggage": "a=1"})
                with pytest.raises(sansmcp.JsonRpcError):
                    await client.call("prompts/get", {"name": "x"})

    asyncio.run(asyncio.wait_for(main(), 30))
    spans = telemetry.spans(trace.SpanKind.SERVER)
    for name, parent in (("headers", PARENT), ("meta", OTHER), ("both", PARENT)):
        found = spans[f"tools/call of {name}"].parent
        assert found is not None
        assert f"{found.trace_id:032x}" == parent.split("-")[1]
    assert sum(telemetry.metric("sansmcp.server.refusals").values()) == 1


def _counted_names(telemetry: Telemetry, side: str) -> set[Any]:
    """The names by which calls are counted, without versions, methods and errors."""
    usual = {*REVISIONS, "tools/call", "prompts/get", "-32602", "-32601"}
    counts = telemetry.metric(f"mcp.{side}.operation.duration")
    return {name for key in counts for name in key if name not in usual}


def _call_many(app: sansmcp.App, telemetry: Telemetry, calls: list[tuple[str, Any]]) -> None:
    """Make calls, of which most are refused, by one observed client of an observed server."""
    trace_handlers(app, telemetry.tracers, telemetry.meters)

    async def main() -> None:
        async with sansmcp_asyncio.serve(app, http=("127.0.0.1", 0)) as server:
            observer = ClientObserver(telemetry.tracers, telemetry.meters)
            async with sansmcp_asyncio.connect(server.url, observer=observer) as client:
                for method, params in calls:
                    with suppress(sansmcp.JsonRpcError):
                        await client.call(method, params)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_metrics_have_no_series_for_tools_that_the_application_does_not_know() -> None:
    """A client makes up as many names as it likes, and each series is kept for ever."""
    telemetry = Telemetry()
    tools = Tools("traced")

    @tools.tool
    async def fine() -> str:
        return "ok"

    @tools.tool
    async def fails() -> str:
        raise sansmcp.JsonRpcError(-32602, "no")

    names = ["fails", *(f"made-up-{number}" for number in range(150)), "fine"]
    _call_many(tools, telemetry, [("tools/call", {"name": name}) for name in names])
    assert _counted_names(telemetry, "server") == {"fine", "fails", "_OTHER"}
    assert len(_counted_names(telemetry, "client")) <= 102
    assert {"fails", "fine"} <= _counted_names(telemetry, "client")


@pytest.mark.parametrize("method", ["tools/call", "prompts/get"])
def test_metrics_have_few_series_where_the_application_does_not_say_what_it_knows(
    method: str,
) -> None:
    telemetry = Telemetry()
    app = sansmcp.App("traced")

    @app.handler(method)
    async def call(call: Any) -> Any:
        if call.params["name"] != "late":
            raise sansmcp.JsonRpcError(-32602, "no")
        return {"content": []}

    names = [*(f"made-up-{number}" for number in range(150)), "late"]
    _call_many(app, telemetry, [(method, {"name": name}) for name in names])
    for side in ("server", "client"):
        found = _counted_names(telemetry, side)
        assert len(found) == 102
        assert {"late", "_OTHER", "made-up-0", "made-up-99"} <= found


def test_metrics_have_few_series_for_methods_and_errors_that_peers_make_up() -> None:
    telemetry = Telemetry()
    app = sansmcp.App("traced")

    @app.fallback
    async def forward(call: Any) -> Any:
        raise sansmcp.JsonRpcError(int(call.method.rpartition("/")[2]), "no")

    _call_many(app, telemetry, [(f"com.example/{number}", None) for number in range(150)])
    for side in ("server", "client"):
        found = _counted_names(telemetry, side)
        assert "_OTHER" in found
        assert len(found) == 201  # methods, and codes


def living_spans() -> int:
    gc.collect()
    return sum(isinstance(each, Span) for each in gc.get_objects())


def test_nothing_is_kept_of_calls_that_have_ended() -> None:
    """However they have ended: with a result, an error, a timeout or a cancellation."""
    app = sansmcp.App("traced")

    @app.handler("tools/call")
    async def work(call: Any) -> Any:
        if call.params["name"] == "hangs":
            await asyncio.sleep(1000)
        return await tool(call)

    tracers, meters = TracerProvider(), MeterProvider()
    trace_handlers(app, tracers, meters)
    kinds = ("works", "fails", "hangs", "is cancelled")

    async def call(client: sansmcp_asyncio.Client, kind: str) -> None:
        name = "hangs" if kind == "is cancelled" else kind
        timeout = 0.05 if kind == "hangs" else 60.0
        calling = asyncio.ensure_future(client.call_tool(name, timeout=timeout))
        if kind == "is cancelled":
            await asyncio.sleep(0)
            calling.cancel()
        with suppress(sansmcp.CallError, asyncio.CancelledError):
            await calling

    async def main() -> None:
        observers: Any = ClientObserver(tracers, meters), ServerObserver(meters)
        async with (
            sansmcp_asyncio.serve(app, http=("127.0.0.1", 0), observer=observers[1]) as server,
            sansmcp_asyncio.connect(server.url, observer=observers[0]) as client,
        ):
            for _ in range(10):
                await asyncio.gather(*(call(client, kinds[n % 4]) for n in range(100)))
            await client.ping()
            # Each call is cancelled by its key, in a request of its own.
            while living_spans() - before >= 20:
                await asyncio.sleep(0.01)

    before = living_spans()
    asyncio.run(asyncio.wait_for(main(), 60))
