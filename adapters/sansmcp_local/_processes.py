"""Server processes: their environment, and their end.

They are started with ``start_new_session=True``, so each heads a process group of its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Mapping

from sansmcp.errors import expect

_INHERITED = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
"""The variables that a server process inherits by default, as with the official SDKs.

Neither locale nor virtual environment is among them: Python writes UTF-8 without a locale, and an
interpreter finds its virtual environment by its own path.
"""


def environment_of(env: Mapping[str, str] | None, *, inherit_env: bool) -> dict[str, str]:
    """Return the environment of a server process.

    It has HOME, LOGNAME, PATH, SHELL, TERM and USER of this process, or with ``inherit_env`` all of
    its variables, and those of ``env``. Raises LocalProtocolError for an ``env`` that is no mapping
    of str to str; the error shows names, but no values.
    """
    given: Mapping[str, str] = {} if env is None else env
    expect(Mapping, env=given)
    for name, value in given.items():
        expect(str, **{"a name in env": name, f"env[{name!r}]": value})
    if inherit_env:
        return {**os.environ, **given}
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    # Bash exports functions as variables, and a shell that the server starts would run them.
    harmless = {name: value for name, value in inherited.items() if not value.startswith("()")}
    return {**harmless, **given}


def signal_group(pid: int, *, kill: bool) -> None:
    """Ask the process group of a process to end, or make it. Nothing happens if it is gone.

    Where there are no process groups only the process itself is told.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            os.kill(pid, signal.SIGTERM)
        else:
            os.killpg(pid, signal.SIGKILL if kill else signal.SIGTERM)
