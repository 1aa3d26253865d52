"""A relay: what the clients of a server ask is asked of one upstream server, and answered.

A :class:`Relay` stands between a :class:`~sansmcp.Server` and a :class:`~sansmcp.Client`, of any
revisions and transports. It takes the events of both machines and gives commands to both; it has no
I/O and no clock. docs/decisions/relay.md says what is relayed, and what is not.

=================  =================================================================================
``relay``          passes the events of each machine to the parts, and calls to the upstream server
``relay_app``      the App of the server: what the upstream server says of itself
``ends``           the upstream server with its log level; the clients that are served
``pairings``       the running calls of clients, each with its upstream call; shares of them
``questions``      server requests of the upstream server, and their responses
``subscriptions``  subscriptions to lists and resources, at the upstream server and of the clients
``translation``    parameters and results, as the other end's revision has them
``tool_filter``    which tools the clients may use; the schemas of those that need headers
=================  =================================================================================
"""

from .relay import Relay
from .relay_app import relay_app
from .tool_filter import ToolFilter

__all__ = ["Relay", "ToolFilter", "relay_app"]
