"""The demonstration as an animated picture: ``docs/demo.svg``, recorded from ``sansmcp demo``.

The picture is SVG with CSS, without scripts: its lines appear one after the other, and it begins
again at its end. Readers who want no motion, and programs that know no animations, see all lines.
"""

from __future__ import annotations

import io
import re
from html import unescape

from rich.console import Console
from rich.text import Text

from ..cli.terminal import at_terminal
from .documents import DOCS

DEMONSTRATION = DOCS / "demo.svg"

_COMMAND = "sansmcp demo --seed 7 --calls 2"
_LINE = 0.4
"""Seconds after a line, unless it says itself how long it took."""
_PAUSE = 6.0
"""Seconds for which all lines are seen."""

_REVISION = re.compile(r"\d{4}-\d\d-\d\d")
_DONE = re.compile(r"done in ([\d.]+) s")
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.S)


def demonstrated() -> str:
    """Run the demonstration at a terminal, and return what it prints."""
    with at_terminal(*_COMMAND.split()[1:]) as terminal:
        assert terminal.end() == 0, terminal.shown
    return terminal.shown


def shape(text: str) -> str:
    """What all runs of the demonstration print alike.

    Times, processes and the number of disconnects are those of one run, and lines break elsewhere
    if a number has a digit more.
    """
    words = " ".join(text.split())
    words = re.sub(r"sansmcp \S+, accidents", "sansmcp VERSION, accidents", words)
    words = re.sub(r"\b(call|disconnect|execution)s\b", r"\1", words)
    words = re.sub(r", (called again|resumed)\b", "", words)
    parts = re.split(f"({_REVISION.pattern})", words)
    return "".join(
        part if _REVISION.fullmatch(part) else re.sub(r"\d+(\.\d+)?", "N", part) for part in parts
    )


def text_in(svg: str) -> str:
    """What a picture shows, without the command: a line for each line."""
    lines: dict[int, str] = {}
    for number, text in re.findall(r'url\(#demo-line-(\d+)\)">(.*?)</text>', svg, re.S):
        lines[int(number)] = lines.get(int(number), "") + text.strip("\n")
    _, *shown = (lines[number] for number in sorted(lines))
    return unescape("\n".join(shown)).replace("\N{NO-BREAK SPACE}", " ")


def animated(text: str) -> str:
    """The picture of a terminal in which the lines of the text appear one after the other."""
    lines = text.rstrip("\n").split("\n")
    console = Console(record=True, width=80, file=io.StringIO())
    console.print(Text.assemble(("$ ", "bold green"), _COMMAND))
    for line in lines[:-1]:
        console.print(Text(line))
    console.print(Text(lines[-1], "bold"))
    svg = console.export_svg(title="sansmcp", unique_id="demo")
    svg = _FONTS.sub("", svg).replace("Fira Code, monospace", "monospace")
    svg = re.sub(r'<text (class="demo-r\d+") ([^>]*url\(#demo-line-(\d+)\)")', _in_line, svg)
    return svg.replace("</style>", f"{_styles(lines)}\n    </style>", 1)


def _in_line(text: re.Match[str]) -> str:
    return f'<text {text[1][:-1]} demo-at-{text[3]}" {text[2]}'


def _styles(lines: list[str]) -> str:
    """When each line appears, as shares of the whole time."""
    times = [1.0]
    for line in lines:
        done = _DONE.search(line)
        times.append(times[-1] + (float(done[1]) if done else _LINE))
    whole = times.pop() + _PAUSE
    rules = [
        f"    @keyframes demo-{number} {{ 0% {{ opacity: 0 }} {100 * time / whole:.2f}% "
        f"{{ opacity: 1 }} }}\n"
        f"    .demo-at-{number} {{ animation: demo-{number} {whole:.1f}s step-end infinite }}"
        for number, time in enumerate(times, 1)
    ]
    inside = "\n".join(rules)
    return f"\n    @media (prefers-reduced-motion: no-preference) {{\n{inside}\n    }}"
