"""A file from which other processes learn the URL of a running server.

It is JSON: ``url``, ``port``, ``unix``, ``pid``, ``transports`` and ``started`` (seconds since
1970). It is created atomically, and removed when the server stops.

If the server crashed, the file is left behind, and is recognised as stale: no process has its
``pid``, or (on Linux) the one that has it began after ``started``, so the pid was used again. On
other systems a pid that is used again looks like the server; remove the file by hand then.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import attrs

from sansmcp import RemoteProtocolError
from sansmcp.codecs.json import decode
from sansmcp.types import Self

_DEPTH = 8
"""Maximum nesting depth of a state file; those that servers write have a depth of two."""

_SLACK = 2.0
"""Seconds by which the start of a process may seem later than ``started``, due to clock steps."""


@attrs.frozen(kw_only=True)
class State:
    """The URL and the process of a running server."""

    url: str | None
    """That of the port, if it serves on one, else that of the Unix socket; None without HTTP."""
    port: int | None
    pid: int
    transports: tuple[str, ...]
    started: float
    unix: str | None = None
    """The path of its Unix socket; None if there is none."""


class StateFile:
    """A context manager that writes the state file of this process, and removes it at the end."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        url: str,
        transports: tuple[str, ...],
        unix: str | None = None,
    ) -> None:
        """Set up the file.

        Args:
            path: of the file.
            url: that of the MCP endpoint, or empty without HTTP.
            transports: their names.
            unix: the path of the Unix socket; None if there is none.
        """
        self._path = Path(path)
        self._state = State(
            url=url or None,
            port=urlsplit(url).port,
            unix=unix,
            pid=os.getpid(),
            transports=transports,
            started=time.time(),
        )

    def __enter__(self) -> Self:
        """Write the file.

        Raises:
            FileExistsError: the file belongs to another server that is running.
            OSError: the file cannot be written.
        """
        text = json.dumps(attrs.asdict(self._state)) + "\n"
        handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
        try:
            with open(handle, "w", encoding="utf-8") as file:
                file.write(text)
            self._put(name)
        except BaseException:
            os.unlink(name)
            raise
        return self

    def _put(self, name: str) -> None:
        """Give the file its name, unless that belongs to another server that is running."""
        try:
            os.link(name, self._path)  # never replaces what another server writes at this moment
        except FileExistsError:
            living = read_state(self._path)
            if living is not None:
                raise FileExistsError(
                    errno.EEXIST,
                    f"The state file belongs to a server that runs (pid {living.pid}); stop that "
                    "server, or use another file",
                    str(self._path),
                ) from None
            os.replace(name, self._path)
        except OSError:  # a file system without links
            os.replace(name, self._path)
        else:
            os.unlink(name)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove the file, unless another server has replaced it."""
        with contextlib.suppress(OSError):
            if _load(self._path) == self._state:
                self._path.unlink()


def read_state(path: str | os.PathLike[str]) -> State | None:
    """Return the state in a file, or None if there is no file or its server no longer runs."""
    state = _load(Path(path))
    if state is None or not _runs(state.pid):
        return None
    began = _began(state.pid)
    # Clocks of processes tick in hundredths of a second, and the time since 1970 is set at times.
    is_another = began is not None and began > state.started + _SLACK
    return None if is_another else state


def _load(path: Path) -> State | None:
    try:
        # json.loads() would overflow the C stack of CPython 3.13 where a file nests deep.
        return _state_from(decode(path.read_bytes(), _DEPTH))
    except (OSError, RemoteProtocolError, ValueError, KeyError, TypeError, OverflowError):
        return None


def _state_from(found: Mapping[str, Any]) -> State:
    return State(
        url=None if found["url"] is None else str(found["url"]),
        port=None if found["port"] is None else int(found["port"]),
        unix=None if found.get("unix") is None else str(found["unix"]),
        pid=int(found["pid"]),
        transports=tuple(map(str, found["transports"])),
        started=float(found["started"]),
    )


def _began(pid: int) -> float | None:
    """Return when a process began, in seconds since 1970; None if the system does not say."""
    if sys.platform != "linux":
        return None
    with contextlib.suppress(OSError, ValueError, IndexError, StopIteration):
        # The name of the command, in parentheses, may contain anything.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        lines = Path("/proc/stat").read_text().splitlines()
        booted = next(int(line.split()[1]) for line in lines if line.startswith("btime "))
        return booted + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return None


def _runs(pid: int) -> bool:
    if pid <= 0:
        return False  # os.kill() would signal a group of processes
    if sys.platform == "win32":
        return True  # os.kill() would end the process there, whatever the signal
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
