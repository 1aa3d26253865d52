"""Logs, spans and metrics of clients and servers: the ``logging`` module, and OpenTelemetry.

Records of handlers reach the client, and name the request::

    app = sansmcp.App("greeter")
    sansmcp_telemetry.send_logs(app, "greeter")
    handler.addFilter(sansmcp_telemetry.RequestFilter())

:func:`send_logs` carries the records of a logger to the clients whose calls they belong to, as
``notifications/message``. :class:`RequestFilter` adds the request id and method to the records of
any ``logging.Handler``. Both need nothing else.

OpenTelemetry needs the extra ``otel``, which brings its API; what is recorded goes where its SDK is
told to send it::

    client = sansmcp_asyncio.connect(url, observer=sansmcp_telemetry.ClientObserver())

    sansmcp_telemetry.trace_handlers(app)
    await sansmcp_asyncio.serve(app, http=..., observer=sansmcp_telemetry.ServerObserver())

A client makes a span for each call, and sends its context in ``_meta`` (SEP-414) and in the headers
of the HTTP request. A server makes a span for each run of a handler, below that of the client.

Source: the semantic conventions of OpenTelemetry for MCP; SEP-414.
"""

from typing import TYPE_CHECKING

from sansmcp import _lazy

if TYPE_CHECKING:
    from ._client import ClientObserver
    from ._logging import RequestFilter, send_logs
    from ._server import ServerObserver, trace_handlers
else:
    __getattr__, __dir__ = _lazy.names(
        globals(),
        {
            "._client": ("ClientObserver",),
            "._logging": ("RequestFilter", "send_logs"),
            "._server": ("ServerObserver", "trace_handlers"),
        },
        extra=("otel", "opentelemetry"),
    )

__all__ = ["ClientObserver", "RequestFilter", "ServerObserver", "send_logs", "trace_handlers"]
