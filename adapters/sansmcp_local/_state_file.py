"""A file that tells other processes where a server is.

It is JSON: ``url``, ``port``, ``pid``, ``transports`` and ``started`` (seconds since 1970). It
appears complete or not at all, goes away with the server, and is recognised as stale when the
server went away without it: when no process has its ``pid``, or (on Linux) one that began after
``started``, so that the number was given to another process. Elsewhere a re-used number looks like
the server; remove the file by hand then.
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
"""How deep a state file may nest; one that a server has written nests twice."""

_SLACK = 2.0
"""Seconds by which the beginning of a process may seem to be later than that of its server."""


@attrs.frozen(kw_only=True)
class State:
    """Where a server is, and which process it is."""

    url: str | None
    """None where it has no HTTP transport."""
    port: int | None
    pid: int
    transports: tuple[str, ...]
    started: float


class StateFile:
    """The state file of this process, as long as the block lasts."""

    def __init__(
        self, path: str | os.PathLike[str], *, url: str, transports: tuple[str, ...]
    ) -> None:
        """``url``: of the MCP endpoint; empty where there is none."""
        self._path = Path(path)
        self._state = State(
            url=url or None,
            port=urlsplit(url).port,
            pid=os.getpid(),
            transports=transports,
            started=time.time(),
        )

    def __enter__(self) -> Self:
        """Write the file.

        Raises OSError; FileExistsError if a server that runs has written one of this name.
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
        """Give the file its name, unless a server that runs has taken it."""
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
    """Where the server is whose state file that is; None if there is none that still runs."""
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
        pid=int(found["pid"]),
        transports=tuple(map(str, found["transports"])),
        started=float(found["started"]),
    )


def _began(pid: int) -> float | None:
    """When a process began, in seconds since 1970; None where the system does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError, StopIteration):
        # The name of the command, in parentheses, may contain anything.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        lines = Path("/proc/stat").read_text().splitlines()
        booted = next(int(line.split()[1]) for line in lines if line.startswith("btime "))
        return booted + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return None


def _runs(pid: int) -> bool:
    if pid <= 0:
        return False  # to signal these means to signal many
    if sys.platform == "win32":
        return True  # there every signal ends the process, so nobody can be asked
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
