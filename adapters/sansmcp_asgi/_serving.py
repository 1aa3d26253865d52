"""The server of one event loop: where its handlers and its clock are at home, and its end."""

from __future__ import annotations

from collections.abc import Callable

import sansmcp_loop
from sansmcp_local import ServerParts
from sansmcp_loop import Loop


class Serving(sansmcp_loop.Serving):
    """A machine, and what runs for it: tasks that belong to the event loop itself.

    So it makes no difference who called us, for how long, or whether anybody told us that the
    application begins: a handler goes on when its request is gone, and ends with the loop.
    """

    def __init__(
        self,
        parts: ServerParts,
        loop: Loop,
        forget: Callable[[], object],
    ) -> None:
        super().__init__(
            parts.core, parts.store, loop, threads=parts.threads, authenticate=parts.authenticate
        )
        self.requests = 0
        """How many are being answered."""
        self._until_end = loop.spawn(self._wait_for_end, forget)

    async def stop(self, grace: float) -> None:
        """Take nothing new, give running calls some seconds, and end all."""
        await self.shut_down(grace)
        await self.flush(lambda: not self.requests)
        self._until_end.cancel()

    async def _wait_for_end(self, forget: Callable[[], object]) -> None:
        """Wait until :meth:`stop`, or the end of the loop, cancels this."""
        try:
            await self.loop.event().wait()
        finally:
            self.scheduler.stop()
            forget()
            self.leave_threads()  # the loop ends, and nothing that they wait for comes any more
