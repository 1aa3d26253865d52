"""The machines of stdio-v2, which need a package that other transports do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sansmcp import _lazy

if TYPE_CHECKING:
    from sansmcp.http2.pipe_client import PipeClient
    from sansmcp.http2.server_connection import ServerConnection


def pipe_client() -> type[PipeClient]:
    """Return the class of the client. Raises ImportError if the extra is missing."""
    with _lazy.needing("stdio-v2", "http2", "h2"):
        from sansmcp.http2.pipe_client import PipeClient
    return PipeClient


def http2_connection() -> Callable[..., ServerConnection]:
    """Return the class of the server's end. Raises ImportError if the extra is missing."""
    with _lazy.needing("stdio-v2", "http2", "h2"):
        from sansmcp.http2.server_connection import ServerConnection
    return ServerConnection
