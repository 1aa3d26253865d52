"""Processes that were started with ``start_new_session=True``: they head a group of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import sys


def signal_group(pid: int, *, kill: bool) -> None:
    """Ask the process group of a process to end, or make it. Nothing happens if it is gone.

    Where there are no process groups only the process itself is told.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            os.kill(pid, signal.SIGTERM)
        else:
            os.killpg(pid, signal.SIGKILL if kill else signal.SIGTERM)
