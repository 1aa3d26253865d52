"""OpenTelemetry for clients and servers: spans, metrics, and trace context.

    client = sansmcp_asyncio.connect(url, observer=sansmcp_otel.ClientObserver())

    sansmcp_otel.trace_handlers(app)
    await sansmcp_asyncio.serve(app, http=..., observer=sansmcp_otel.ServerObserver())

A client makes a span for each call, and sends its context in ``_meta`` (SEP-414) and in the headers
of the HTTP request. A server makes a span for each run of a handler, below that of the client. It
needs the extra ``otel``, which brings the API of OpenTelemetry; what is recorded goes where its SDK
is told to send it.

Source: the semantic conventions of OpenTelemetry for MCP; SEP-414.
"""

from sansmcp import _lazy

with _lazy.needing(__name__, "otel", "opentelemetry"):
    from ._client import ClientObserver
    from ._server import ServerObserver, trace_handlers

__all__ = ["ClientObserver", "ServerObserver", "trace_handlers"]
