"""Several servers at once, with the clients of sansmcp_trio."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import sansmcp_loop
from sansmcp_local import ConfiguredServer, ConnectSettings

from ._client import Client, connect


class ClientGroup(sansmcp_loop.ClientGroup):
    __doc__ = sansmcp_loop.ClientGroup.__doc__

    def _connect(
        self, server: ConfiguredServer, settings: ConnectSettings
    ) -> AbstractAsyncContextManager[Client]:
        return connect(server.target, **settings)
