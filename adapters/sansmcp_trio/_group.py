"""Several servers at once, with the clients of sansmcp_trio."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import sansmcp_local
from sansmcp_local import ConfiguredServer, ConnectSettings, StartTask

from ._client import Client, connect
from ._nursery import plain_nursery


class ClientGroup(sansmcp_local.ClientGroup):
    __doc__ = sansmcp_local.ClientGroup.__doc__

    def _connect(
        self, server: ConfiguredServer, settings: ConnectSettings
    ) -> AbstractAsyncContextManager[Client]:
        return connect(server.target, **settings)

    @asynccontextmanager
    async def _tasks(self) -> AsyncGenerator[StartTask, None]:
        async with plain_nursery() as nursery:
            yield nursery.start_soon
