"""Several servers at once, with the clients of sansmcp_asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import sansmcp_local
from sansmcp_local import ConfiguredServer, ConnectSettings, StartTask, wait_all_shielded

from ._client import Client, connect


class ClientGroup(sansmcp_local.ClientGroup):
    __doc__ = sansmcp_local.ClientGroup.__doc__

    def _connect(
        self, server: ConfiguredServer, settings: ConnectSettings
    ) -> AbstractAsyncContextManager[Client]:
        return connect(server.target, **settings)

    @asynccontextmanager
    async def _tasks(self) -> AsyncGenerator[StartTask, None]:
        tasks: list[asyncio.Task[None]] = []

        def start(work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
            tasks.append(asyncio.create_task(work(*arguments)))

        try:
            yield start
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await wait_all_shielded(tasks)
