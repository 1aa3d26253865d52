"""What hosts of a server share whose handlers are plain functions, each in a thread of its own.

Who carries the bytes is left open: the selector loop of :mod:`sansmcp_blocking`, or the threads of
a WSGI server under :mod:`sansmcp_wsgi`.
"""

from ._host import Call, Host, HostSettings
from ._promise import Promise

__all__ = ["Call", "Host", "HostSettings", "Promise"]
