"""The health answer: tells load balancers if this server takes new calls.

Load balancers ask every second or so, mostly without a ``Host`` that the policy allows, and without
credentials. So the answer comes before all checks, and says nothing that a stranger may not know.

A store that fails does not make a server unhealthy. If one store is common to all servers, all of
them would turn unhealthy at once, and the load balancer would refuse what can still be served:
responses, resumed streams, requests that need no store.
"""

from __future__ import annotations

from ..codecs import json
from ..http import RequestHead
from ..states import ServerState
from . import refusals
from .core import ServerCore
from .exchange import ServerExchange
from .validation import Endpoint


def is_health_request(endpoint: Endpoint, head: RequestHead) -> bool:
    """Return True for a request to the path of the health answer."""
    return endpoint.health_path is not None and head.path.rstrip(b"/") == endpoint.health_path


def check_health_request(head: RequestHead) -> None:
    """Refuse other methods than GET and HEAD. Raises RemoteProtocolError."""
    if head.method not in (b"GET", b"HEAD"):
        raise refusals.method_not_allowed(b"GET, HEAD", "the health answer is read with GET")


def send_health(core: ServerCore, exchange: ServerExchange) -> None:
    """Send the health answer: status 200, or 503 if clients are to go elsewhere."""
    is_leaving = core.state is not ServerState.SERVING
    state = {
        "status": "draining" if is_leaving else "ok",
        "store": "failing" if core.store_health.is_failing else "ok",
    }
    headers = ((b"cache-control", b"no-store"),)
    exchange.send_response(503 if is_leaving else 200, json.encode(state), headers)
