"""Standard input and output as a stream of the loop. Not on Windows."""

from __future__ import annotations

import contextlib
import math
import os
import select
import stat

from sansmcp_local import StandardStreams

from ._loop import READ, WRITE, Steps, Wait


class StdioStream:
    """Reads standard input and writes standard output.

    Both may be shared with other processes, so they are left as they are, and block: what is read
    is there, and what is written has room.
    """

    def __init__(self, streams: StandardStreams) -> None:
        self._input, self._output = streams.input, streams.output

    def reading(self, deadline: float = math.inf) -> Wait:
        """What to wait for before :meth:`receive`."""
        return _until(self._input, READ, deadline)

    def receive(self) -> bytes | None:
        """What has come; empty at the end, None if there is nothing."""
        try:
            return os.read(self._input, 65536)
        except BlockingIOError:  # those who share it have made it so
            return None

    def send(self, data: bytes, patience: float) -> Steps[None]:
        """Send it all, as patient as the reader likes. Raises OSError when nobody reads."""
        view = memoryview(data)
        while view:
            yield _until(self._output, WRITE, math.inf)
            with contextlib.suppress(BlockingIOError):
                view = view[os.write(self._output, view[: select.PIPE_BUF]) :]

    def shake_hands(self, patience: float) -> Steps[None]:
        """Nothing has to be agreed on."""
        yield from ()

    def close(self) -> None:
        """What was taken is given back by others."""


def _until(descriptor: int, events: int, deadline: float) -> Wait:
    """Pipes, sockets and terminals are waited for; a file is always ready."""
    mode = os.fstat(descriptor).st_mode
    can_wait = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)
    return Wait(descriptor if can_wait else None, events, deadline)
