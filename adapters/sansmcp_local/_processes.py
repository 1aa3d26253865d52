"""Server processes of clients: their arguments, their process effects, and their end.

They are started with ``start_new_session=True``, so each leads a process group of its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from subprocess import PIPE
from typing import Any, Generic, TypeVar

from sansmcp.effects import (
    CloseStdin,
    KillProcess,
    ProcessEffect,
    StartProcess,
    TerminateProcess,
    WriteStdin,
)
from sansmcp.errors import check_type
from sansmcp.process import ProcessPart
from sansmcp.types import assert_never

START_ERRORS = (OSError, ValueError)
"""What starting a process raises; ValueError if its command contains a NUL character."""

_INHERITED = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
"""The variables that a server process inherits by default, as with the official SDKs.

Neither locale nor virtual environment is among them: Python writes UTF-8 without a locale, and an
interpreter finds its virtual environment by its own path.
"""


def environment_of(env: Mapping[str, str] | None, *, inherit_env: bool) -> dict[str, str]:
    """Return the environment of a server process.

    It has HOME, LOGNAME, PATH, SHELL, TERM and USER of this process, or all of its variables if
    ``inherit_env``, and then those of ``env``.

    Raises:
        LocalProtocolError: ``env`` is not a mapping of str to str. The message shows names, but no
            values.
    """
    given: Mapping[str, str] = {} if env is None else env
    check_type(Mapping, env=given)
    for name, value in given.items():
        check_type(str, **{"a name in env": name, f"env[{name!r}]": value})
    if inherit_env:
        return {**os.environ, **given}
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    # Bash exports functions as variables, and a shell that the server starts would run them.
    harmless = {name: value for name, value in inherited.items() if not value.startswith("()")}
    return {**harmless, **given}


def process_arguments(
    env: Mapping[str, str] | None, *, inherit_env: bool, cwd: str | os.PathLike[str] | None
) -> dict[str, Any]:
    """Return the keyword arguments for ``Popen``, or a similar function, for a server process.

    Raises:
        LocalProtocolError: as of :func:`environment_of`.
    """
    return {
        "stdin": PIPE,
        "stdout": PIPE,
        "stderr": PIPE,
        "env": environment_of(env, inherit_env=inherit_env),
        "cwd": cwd,
        "start_new_session": True,
    }


class ChildProcess(ABC):
    """A process and its pipes. A subclass does the I/O, in its own concurrency model."""

    _pid: int | None = None
    """Set by the subclass once the process has started."""
    _is_left = False
    _is_killed = False

    def __init__(self, feed: Callable[[ProcessPart], None]) -> None:
        """Set up the process; ``feed`` gets its output, and its end, as parts."""
        self._feed = feed

    @abstractmethod
    def start(self, command: tuple[str, ...]) -> None:
        """Start the process. Report ProcessStartFailed if that raises :data:`START_ERRORS`."""

    @abstractmethod
    def write(self, data: bytes | None) -> None:
        """Write to its standard input without waiting; None closes it."""

    def signal(self, *, kill: bool) -> None:
        """Terminate or kill the process, and all that it has started."""
        # After a kill, the pid may soon be that of another process.
        if self._pid is not None and not self._is_killed:
            self._is_killed = kill
            signal_group(self._pid, kill=kill)

    @abstractmethod
    def leave(self) -> None:
        """End the process, without further reports. May be called twice."""

    def _report(self, part: ProcessPart) -> None:
        if not self._is_left:
            self._feed(part)


_Child = TypeVar("_Child", bound=ChildProcess)


class ServerProcess(Generic[_Child]):
    """Perform the process effects of a client machine.

    A server that exits when it is probed is started a second time, as another child.
    """

    def __init__(self, new_child: Callable[[], _Child]) -> None:
        self._new_child = new_child
        self.child: _Child | None = None
        """The child started last; None before the first."""

    def perform(self, effect: ProcessEffect) -> None:
        """Perform an effect, without waiting."""
        if isinstance(effect, StartProcess):
            self.leave()
            self.child = self._new_child()
            self.child.start(effect.command)
        elif self.child is not None:
            _perform(self.child, effect)

    def leave(self) -> None:
        """End the child, and ignore what it reports."""
        if self.child is not None:
            self.child.leave()


def _perform(
    child: ChildProcess, effect: WriteStdin | CloseStdin | TerminateProcess | KillProcess
) -> None:
    match effect:
        case WriteStdin(data):
            child.write(data)
        case CloseStdin():
            child.write(None)
        case TerminateProcess():
            child.signal(kill=False)
        case KillProcess():
            child.signal(kill=True)
        case _ as impossible:
            assert_never(impossible)


def signal_group(pid: int, *, kill: bool) -> None:
    """Terminate or kill the process group of a process; without effect if it has ended.

    Windows has no process groups of this kind: only the process itself is ended there.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            os.kill(pid, signal.SIGTERM)
        else:
            os.killpg(pid, signal.SIGKILL if kill else signal.SIGTERM)
