"""A file that tells other processes where a server is.

It is JSON: ``url``, ``port``, ``pid``, ``transports`` and ``started`` (seconds since 1970). It
appears complete or not at all, goes away with the server, and is recognised as stale when the
server went away without it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import attrs

if TYPE_CHECKING:
    from typing import Self


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
        """Write the file. Raises OSError."""
        text = json.dumps(attrs.asdict(self._state)) + "\n"
        handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
        try:
            with open(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(name, self._path)
        except BaseException:
            os.unlink(name)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove the file, unless another server has replaced it."""
        with contextlib.suppress(OSError):
            state = _load(self._path)
            if state is not None and state.pid == os.getpid():
                self._path.unlink()


def read_state(path: str | os.PathLike[str]) -> State | None:
    """Where the server is whose state file that is; None if there is none that still runs."""
    state = _load(Path(path))
    return state if state is not None and _runs(state.pid) else None


def _load(path: Path) -> State | None:
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
        return _state_from(found)
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _state_from(found: Mapping[str, Any]) -> State:
    return State(
        url=None if found["url"] is None else str(found["url"]),
        port=None if found["port"] is None else int(found["port"]),
        pid=int(found["pid"]),
        transports=tuple(map(str, found["transports"])),
        started=float(found["started"]),
    )


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
