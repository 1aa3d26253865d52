"""What adapters in which functions block have in common: handlers in threads, and clients.

Who carries the bytes is left open: the selector loop of :mod:`sansmcp_blocking`, the threads of a
WSGI server under :mod:`sansmcp_wsgi`, or httpx.
"""

from typing import TYPE_CHECKING

from sansmcp import later

if TYPE_CHECKING:
    from sansmcp_local import HostSettings

    from ._call import Call, ThreadCall
    from ._client import Client, check_plain
    from ._host import Host
    from ._workers import Workers
else:
    __getattr__, __dir__ = later.names(
        globals(),
        {
            "._call": ("Call", "ThreadCall"),
            "._client": ("Client", "check_plain"),
            "._host": ("Host",),
            "._workers": ("Workers",),
            "sansmcp_local": ("HostSettings",),
        },
    )

__all__ = ["Call", "Client", "Host", "HostSettings", "ThreadCall", "Workers", "check_plain"]
