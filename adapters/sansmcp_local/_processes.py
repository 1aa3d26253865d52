"""Server processes of clients: their arguments, their process effects, and their end.

Each has no terminal, so Ctrl-C in ours does not reach it, and leads a process group of its own. On
Windows each has a console without a window, and is started suspended and put into a job object.
"""

from __future__ import annotations

import contextlib
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from subprocess import PIPE
from typing import Any, ClassVar, Generic, TypeVar

from sansmcp.effects import (
    CloseStdin,
    KillProcess,
    ProcessEffect,
    StartProcess,
    TerminateProcess,
    WriteStdin,
)
from sansmcp.errors import LocalProtocolError, check_type
from sansmcp.process import ProcessPart, ProcessStartFailed
from sansmcp.types import assert_never, hide_program

if sys.platform != "win32":
    import signal

    APART: Mapping[str, Any] = {"start_new_session": True}
    """The keyword arguments for ``Popen`` with which Ctrl-C in our terminal is not for a process.

    On Windows the process gets a console without a window, also if we have none.
    """
    _SUSPENDED = APART
else:
    from subprocess import CREATE_NO_WINDOW

    from ._jobs import Job

    _CREATE_SUSPENDED = 0x4
    APART: Mapping[str, Any] = {"creationflags": CREATE_NO_WINDOW}
    _SUSPENDED: Mapping[str, Any] = {"creationflags": CREATE_NO_WINDOW | _CREATE_SUSPENDED}

_READ_BY_CMD = frozenset('&|<>^%!"\r\n')
"""What ``cmd.exe`` reads in the arguments of a batch file."""

START_ERRORS = (OSError, ValueError, NotImplementedError, RuntimeError)
"""What starting a process raises.

ValueError is for a command with a NUL character; NotImplementedError and RuntimeError are for event
loops of asyncio that cannot start processes, or not in this thread.
"""

_INHERITED = (
    ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
    if sys.platform != "win32"
    else (
        "APPDATA",
        "COMSPEC",  # cmd.exe, which runs npx.cmd
        "HOMEDRIVE",
        "HOMEPATH",
        "LOCALAPPDATA",
        "PATH",
        "PATHEXT",
        "PROCESSOR_ARCHITECTURE",
        "PROGRAMFILES",
        "SYSTEMDRIVE",
        "SYSTEMROOT",  # no process has sockets without it
        "TEMP",
        "TMP",
        "USERNAME",
        "USERPROFILE",
    )
)
"""The variables that a server process inherits by default, as with the official SDKs.

Neither locale nor virtual environment is among them: Python writes UTF-8 without a locale, and an
interpreter finds its virtual environment by its own path.
"""


def environment_of(env: Mapping[str, str] | None, *, inherit_env: bool) -> dict[str, str]:
    """Return the environment of a server process.

    It has HOME, LOGNAME, PATH, SHELL, TERM and USER of this process (on Windows PATH, SYSTEMROOT,
    USERPROFILE and others that programs need there), or all of its variables if ``inherit_env``,
    and then those of ``env``.

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

    The caller owes a :class:`ProcessGroup`: on Windows the process does not run before.

    Raises:
        LocalProtocolError: as of :func:`environment_of`.
    """
    return {
        "stdin": PIPE,
        "stdout": PIPE,
        "stderr": PIPE,
        "env": environment_of(env, inherit_env=inherit_env),
        "cwd": cwd,
        **_SUSPENDED,
    }


def start_failure(error: Exception) -> ProcessStartFailed:
    """Return the part that reports one of :data:`START_ERRORS`."""
    if isinstance(error, NotImplementedError):
        return ProcessStartFailed(
            "the event loop of this program cannot start processes; use another one, such as "
            "asyncio's default (on Windows ProactorEventLoop, not SelectorEventLoop)"
        )
    reason = str(error) or type(error).__name__
    file = getattr(error, "filename", None)
    if isinstance(file, str):  # a "command" in a file can be a whole line, with secrets
        reason = reason.replace(repr(file), repr(hide_program(file)))
    return ProcessStartFailed(reason)


class ProcessGroup:
    """A process that was started with :func:`process_arguments`, and all that it starts.

    On POSIX that is the process group that it leads; what becomes a daemon has left it. On Windows
    it is a job object, which nothing leaves.
    """

    def __init__(self, pid: int) -> None:
        """Note a process that has just been started. On Windows, put it into a job, and let it run.

        Raises OSError on Windows, if there is no such process.
        """
        self._pid = pid
        self._is_killed = False
        if sys.platform == "win32":
            self._job = Job(pid)

    def signal(self, *, kill: bool) -> None:
        """Terminate or kill the processes. Without effect if they have ended or were killed.

        Windows knows no request to end, so both are the same there.
        """
        if sys.platform == "win32":
            self._job.end()
        elif not self._is_killed:  # after a kill, the pid may soon be that of another process
            self._is_killed = kill
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL if kill else signal.SIGTERM)


class ChildProcess(ABC):
    """A process and its pipes. A subclass does the I/O, in its own concurrency model.

    While the process leaves more than ``max_unread`` bytes unread, a subclass does not read its
    output.
    """

    max_unread: ClassVar[int] = 64 * 1024 * 1024
    """Bytes of its input. A process that reads none could have its requests answered for ever, and
    the answers would fill the memory. It is more than what waits for a server that responds to one
    call after the other: such a one reads on only when its output is read.
    """

    _group: ProcessGroup | None = None
    _is_left = False

    def __init__(self, feed: Callable[[ProcessPart], None]) -> None:
        """Set up the process; ``feed`` gets its output, and its end, as parts."""
        self._feed = feed

    @abstractmethod
    def start(self, command: tuple[str, ...]) -> None:
        """Start the process. If that raises :data:`START_ERRORS`, report :func:`start_failure`."""

    @abstractmethod
    def write(self, data: bytes | None) -> None:
        """Write to its standard input without waiting; None closes it."""

    def _has_started(self, pid: int) -> None:
        """Note the process that :meth:`signal` ends. To be called at once when it has started."""
        self._group = ProcessGroup(pid)

    def signal(self, *, kill: bool) -> None:
        """Terminate or kill the process, and all that it has started; see :class:`ProcessGroup`."""
        if self._group is not None:
            self._group.signal(kill=kill)

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


def command_on_windows(command: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
    """Return a command whose program has its path, and so its extension: ``npx`` is ``npx.cmd``.

    Args:
        command: the program, and its arguments.
        env: the variables of the process, whose PATH is searched.

    Raises:
        LocalProtocolError: the program is a batch file, and an argument has a character that
            ``cmd.exe``, which Windows runs for it, would read as its own.
    """
    import shutil  # which brings four ways to compress

    program, *arguments = command
    found = shutil.which(program, path=env.get("PATH")) or program
    check_batch_arguments(found, arguments)
    return (found, *arguments)


def check_batch_arguments(program: str, arguments: Sequence[str]) -> None:
    """Raise LocalProtocolError for an argument of a batch file that ``cmd.exe`` would read.

    There is no way to quote these characters that each version of it understands (CVE-2024-1874).
    The message does not show the argument, which may be a secret.
    """
    if not program.lower().endswith((".cmd", ".bat")):
        return
    for number, argument in enumerate(arguments, 1):
        if wrong := set(argument) & _READ_BY_CMD:
            shown = " ".join(repr(each) for each in sorted(wrong))
            raise LocalProtocolError(
                f"{program} is a batch file, and its argument {number} has {shown}, which "
                "cmd.exe would read; start the program itself, such as node with the path of a "
                "script, or give the value in an environment variable"
            )
