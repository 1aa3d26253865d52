"""What the command shows at a terminal of 80 columns, as a picture and in its page.

``make screenshots`` runs all of it, and writes

* ``docs/terminal.svg``: the command with the server of the tutorial
* ``docs/demo.svg``: ``sansmcp demo``, animated
* the sessions in docs/command.md with a comment ``recorded`` above them: what follows each command
"""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.text import Text

from ..cli.conftest import serving
from ..cli.terminal import at_terminal
from .demonstration import DEMONSTRATION, animated, demonstrated
from .documents import DOCS, blocks

PICTURE = DOCS / "terminal.svg"
PAGE = DOCS / "command.md"

_URL = "http://127.0.0.1:8000/mcp"
_PORTS = "127.0.0.1:8000-8999"
"""As many digits as in the page: lines break at the same places."""

_PICTURED = (
    ("sansmcp list -- python server.py", ()),
    (
        "sansmcp call brew drink=tea cups=2 -- python server.py",
        (("value: ", "yes"),),
    ),
    ("sansmcp call brew drink=tea cups=many -- python server.py", ()),
    ("sansmcp call brew drink=milk -- python server.py", ()),
)
"""Commands, and for each question what the person answers."""

_RECORDED = re.compile(r"(?<=<!-- recorded -->\n\n```console\n).*?(?=^```$)", re.M | re.S)
_ERASED = re.compile(r"[^\n]*\n(?:\x1b\[\?25h)?\r\x1b\[1A\x1b\[2K")
"""A line that is erased once it is complete: a progress bar."""
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.S)


def _shown(command: str, answers: tuple[tuple[str, str], ...], folder: Path) -> str:
    """What remains on the terminal after a command, with its styles."""
    _, *arguments = shlex.split(command, comments=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    settings = {"PATH": path, "XDG_CONFIG_HOME": str(folder), "COLORTERM": "truecolor"}
    with at_terminal(*arguments, cwd=folder, **settings) as terminal:
        for question, answer in answers:
            terminal.answer(question, answer)
        terminal.end()
    return _ERASED.sub("", terminal.raw.replace("\r\n", "\n"))


def picture() -> str:
    """The picture: SVG that loads no fonts."""
    console = Console(record=True, width=80, file=io.StringIO())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = blocks(DOCS / "tutorial.md", "python")[0]
        (folder / "server.py").write_text(program, encoding="utf-8")
        for command, answers in _PICTURED:
            console.print(Text.assemble(("$ ", "bold green"), command))
            console.print(Text.from_ansi(_shown(command, answers, folder)))
    svg = console.export_svg(title="sansmcp", unique_id="terminal")
    return _FONTS.sub("", svg).replace("Fira Code, monospace", "monospace")


def text_of(svg: str) -> list[str]:
    """The pieces of text in a picture."""
    found = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return [each.text or "" for each in found]


def recorded(text: str) -> str:
    """The text of the page with what its recorded commands print now."""
    with tempfile.TemporaryDirectory() as folder, serving("--http", _PORTS) as url:

        def session(block: re.Match[str]) -> str:
            commands = re.findall(r"^\$ .*", block[0], re.M)
            return "".join(f"{each}\n{_plain(each, url, Path(folder))}" for each in commands)

        return _RECORDED.sub(session, text)


def _plain(command: str, url: str, folder: Path) -> str:
    shown = Text.from_ansi(_shown(command[2:].replace(_URL, url), (), folder)).plain
    lines = (line.rstrip() for line in shown.replace(url, _URL).splitlines())
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    DEMONSTRATION.write_text(animated(demonstrated()), encoding="utf-8")
    PAGE.write_text(recorded(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
