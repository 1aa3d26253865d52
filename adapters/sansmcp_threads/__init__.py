"""What adapters in which functions block have in common: handlers in threads, and clients.

Who carries the bytes is left open: the selector loop of :mod:`sansmcp_blocking`, the threads of a
WSGI server under :mod:`sansmcp_wsgi`, or httpx.
"""

from typing import TYPE_CHECKING

from sansmcp import later

if TYPE_CHECKING:
    from ._client import Client
    from ._host import Call, Host, HostSettings
else:
    __getattr__, __dir__ = later.names(
        globals(), {"._client": ("Client",), "._host": ("Call", "Host", "HostSettings")}
    )

__all__ = ["Call", "Client", "Host", "HostSettings"]
