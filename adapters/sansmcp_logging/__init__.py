"""The ``logging`` module for servers: records of handlers reach the client, and name the request.

    app = sansmcp.App("greeter")
    sansmcp_logging.send_logs(app, "greeter")
    handler.addFilter(sansmcp_logging.RequestFilter())

:func:`send_logs` carries the records of a logger to the clients whose calls they belong to, as
``notifications/message``. :class:`RequestFilter` adds the request id and method to the records of
any ``logging.Handler``.
"""

from ._logging import RequestFilter, send_logs

__all__ = ["RequestFilter", "send_logs"]
