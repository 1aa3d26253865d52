"""A person at a terminal of 80 columns: waits for what the command shows, then types."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from .conftest import ROOT, command, environment

_PATIENCE = 60.0
_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""What rich sends for colours and the cursor."""


class Terminal:
    """A terminal in which a command runs."""

    def __init__(self, process: subprocess.Popen[bytes], screen: int) -> None:
        self.process, self._screen = process, screen
        self.raw = ""
        """All that was shown, with styles."""
        self._seen = 0

    @property
    def shown(self) -> str:
        """All that was shown, without styles."""
        return _STYLE.sub("", self.raw).replace("\r\n", "\n")

    def expect(self, text: str) -> None:
        """Wait until this is shown after what was expected before."""
        while (found := self.shown.find(text, self._seen)) < 0:
            assert self._read(), f"{text!r} is not in {self.shown[self._seen :]!r}"
        self._seen = found + len(text)

    def type(self, keys: str) -> None:
        """Type these keys."""
        os.write(self._screen, keys.encode())

    def answer(self, question: str, line: str) -> None:
        """Wait for a question, and type a line."""
        self.expect(question)
        self.type(f"{line}\n")

    def end(self) -> int:
        """Wait for the end of the command. Return its exit status."""
        while self._read():
            pass
        return self.process.wait(_PATIENCE)

    def _read(self) -> bool:
        readable, _, _ = select.select([self._screen], [], [], _PATIENCE)
        assert readable, f"nothing more is shown after {self.shown!r}"
        try:
            data = os.read(self._screen, 4096)
        except OSError:  # the command has ended
            return False
        self.raw += data.decode(errors="replace")
        return data != b""


@contextmanager
def at_terminal(
    *arguments: str, cwd: Path = ROOT, **variables: str
) -> Generator[Terminal, None, None]:
    """Run the command at a terminal."""
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 80, 0, 0))
    with subprocess.Popen(
        command(*arguments),
        cwd=cwd,
        env={**environment(), "TERM": "xterm-256color", "COLUMNS": "80", **variables},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # Ctrl-C reaches it
    ) as process:
        os.close(terminal)
        try:
            yield Terminal(process, screen)
        finally:
            process.kill()
            os.close(screen)
