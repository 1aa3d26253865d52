"""A server that relays its clients to other servers, of any revision and transport.

    upstream = Upstream("files", ["python", "files.py"])
    async with sansmcp_bridge.open_bridge([upstream], http=("127.0.0.1", 8000)) as server:
        await server.stopped.wait()

Runs on asyncio. docs/bridge.md explains what is relayed; ``sansmcp bridge`` is the command.
"""

from ._bridge import Bridge, open_bridge
from ._link import Upstream

__all__ = ["Bridge", "Upstream", "open_bridge"]
