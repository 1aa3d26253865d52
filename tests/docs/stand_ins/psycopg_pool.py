"""What programs of the documents use of psycopg's pools, with one answer and no database.

``DATABASE`` is the path of a file that gets a line when a pool is opened, used and closed. A query
lasts until there is a second file, with ``.go`` at its end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from sansmcp.types import Self


class _Pool:
    def __init__(self, conninfo: str, *, open: bool) -> None:
        assert not open
        self._log = Path(conninfo)
        self._is_open = False

    def _write(self, what: str) -> None:
        with self._log.open("a", encoding="utf-8") as log:
            log.write(f"{what}\n")

    def _open(self) -> None:
        self._is_open = True
        self._write("opened")

    def _close(self) -> None:
        self._is_open = False
        self._write("closed")

    def _use(self, what: str) -> None:
        self._write(what if self._is_open else f"{what} while closed")

    def _is_running(self) -> bool:
        return not self._log.with_suffix(".go").exists()


class ConnectionPool(_Pool):
    """A pool for threads."""

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *details: object) -> None:
        self._close()

    @contextmanager
    def connection(self) -> Generator[Any, None, None]:
        self._use("lent")
        try:
            yield self
        finally:
            self._use("returned")

    def execute(self, query: str, parameters: tuple[str]) -> ConnectionPool:
        assert query.count("%s") == len(parameters)
        while self._is_running():
            time.sleep(0.01)
        return self

    def fetchone(self) -> tuple[int]:
        return (3,)


class AsyncConnectionPool(_Pool):
    """A pool for asyncio."""

    async def __aenter__(self) -> Self:
        self._open()
        return self

    async def __aexit__(self, *details: object) -> None:
        self._close()

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Any, None]:
        self._use("lent")
        try:
            yield self
        finally:
            self._use("returned")

    async def execute(self, query: str, parameters: tuple[str]) -> AsyncConnectionPool:
        assert query.count("%s") == len(parameters)
        while self._is_running():
            await asyncio.sleep(0.01)
        return self

    async def fetchone(self) -> tuple[int]:
        return (3,)
