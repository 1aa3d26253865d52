"""Several servers at once, with the clients of sansmcp_blocking."""

from __future__ import annotations

from contextlib import AbstractContextManager

import sansmcp_local
from sansmcp_local import ConfiguredServer, ConnectSettings

from ._client import Client, connect


class ClientGroup(sansmcp_local.ThreadClientGroup):
    __doc__ = sansmcp_local.ThreadClientGroup.__doc__

    def _connect(
        self, server: ConfiguredServer, settings: ConnectSettings
    ) -> AbstractContextManager[Client]:
        return connect(server.target, **settings)
