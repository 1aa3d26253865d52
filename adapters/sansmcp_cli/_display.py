"""What a command shows: for a person at a terminal, as plain text, or as JSON for a program.

At a terminal ``rich`` draws tables, Markdown, colours and progress bars, if it is installed (extra
``cli``). Everything else is plain text. Text of a server passes through ``escape_controls`` first
in both cases.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from sansmcp.codecs.json import as_object, is_array
from sansmcp.events import ProgressReceived
from sansmcp.types import escape_controls

from ._output import print_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

_LOOKS_LIKE_MARKDOWN = re.compile(
    r"^(#{1,6} |[-*+] |\d+\. |> |```|\|.*\|)|\*\*[^*\n]+\*\*|\[[^]\n]+\]\([^)\n]+\)", re.MULTILINE
)
_NAME_WIDTH = 24


def console_of(stream: Any) -> Console | None:
    """Return a console of rich for a standard stream; None unless it is a terminal."""
    if not stream.isatty():
        return None
    try:
        from rich.console import Console
    except ModuleNotFoundError:
        return None
    return Console(file=stream, highlight=False, markup=False, emoji=False)


def show_json(value: Any) -> None:
    """Print a value as one line of JSON, for programs."""
    print_line(json.dumps(value, ensure_ascii=False))


def show_text(text: str) -> None:
    """Print text of a server, of any number of lines: as Markdown or JSON if it is that."""
    console = console_of(sys.stdout)
    if console is None:
        for line in text.expandtabs(8).splitlines() or [""]:
            print_line(line)
        return
    from rich.json import JSON
    from rich.markdown import Markdown
    from rich.text import Text

    harmless = "\n".join(map(escape_controls, text.expandtabs(8).splitlines()))
    if harmless.lstrip()[:1] in ("{", "["):
        try:
            console.print(JSON(harmless, indent=2))
        except ValueError:
            pass
        else:
            return
    if _LOOKS_LIKE_MARKDOWN.search(harmless):
        console.print(Markdown(harmless, hyperlinks=False))
    else:
        console.print(Text(harmless))


def show_value(value: Any) -> None:
    """Print a JSON value that is for a person."""
    show_text(json.dumps(value, ensure_ascii=False, indent=2))


@attrs.frozen
class Row:
    """A thing that a server offers."""

    name: str
    text: str
    """Its description."""
    details: Sequence[str] = ()
    """Further lines, such as those of its arguments."""


def show_rows(title: str, rows: Sequence[Row]) -> None:
    """Print a table of what a server offers."""
    console = console_of(sys.stdout)
    if console is None:
        print_line(f"{title}:")
        for row in rows:
            _show_plain_row(row)
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 1))
    table.add_column(style="bold cyan", no_wrap=True, max_width=console.width // 3)
    table.add_column(overflow="fold")
    for row in rows:
        text = Text(escape_controls(row.text))
        for detail in row.details:
            text.append(f"\n  {escape_controls(detail)}", style="dim")
        table.add_row(Text(escape_controls(row.name), overflow="fold"), text)
    console.print(table)


def _show_plain_row(row: Row) -> None:
    """Print a row of which each line begins with the name, so that grep and cut find it."""
    print_line(f"  {row.name:<{_NAME_WIDTH}} {row.text}".rstrip())
    for detail in row.details:
        print_line(" " * 6 + detail)


def first_sentence(text: Any) -> str:
    """Return the beginning of a description, in one line."""
    words = " ".join(text.split()) if isinstance(text, str) else ""
    return textwrap.shorten(words, 200, placeholder=" ...")


def show_content(blocks: Any) -> None:
    """Print the content of a result: texts, and for all else what it is."""
    for block in blocks if is_array(blocks) else ():
        _show_block(as_object(block) or {})


def _show_block(block: Mapping[str, Any]) -> None:
    match block.get("type"):
        case "text":
            show_text(str(block.get("text", "")))
        case "resource":
            show_contents(as_object(block.get("resource")) or {})
        case "resource_link":
            print_line(f"[{block.get('uri')} {block.get('name', '')}".rstrip() + "]")
        case kind if "data" in block:
            print_line(f"[{kind}, {block.get('mimeType')}, {_size(block['data'])}]")
        case _:
            show_value(block)


def show_contents(contents: Mapping[str, Any]) -> None:
    """Print the contents of a resource: its text, or for bytes their number."""
    if "text" in contents:
        show_text(str(contents["text"]))
    else:
        kind = contents.get("mimeType", "bytes")
        print_line(f"[{contents.get('uri')}, {kind}, {_size(contents.get('blob'))}]")


def decoded(blob: Any) -> bytes | None:
    """Return the bytes of a base64 text; None if it is none."""
    try:
        return base64.b64decode(blob, validate=True)
    except (TypeError, ValueError, binascii.Error):
        return None


def _size(blob: Any) -> str:
    data = decoded(blob)
    return "not base64" if data is None else f"{len(data)} bytes"


@attrs.define(eq=False)
class ProgressDisplay:
    """Shows the progress of a call on stderr: a bar at a terminal, else a line for each report."""

    _bar: Progress | None = None
    _task: TaskID | None = None

    def report(self, report: ProgressReceived) -> None:
        """Show a report."""
        console = console_of(sys.stderr)
        if console is None:
            total = "" if report.total is None else f" of {report.total:g}"
            message = "" if report.message is None else f": {report.message}"
            print_line(f"progress {report.progress:g}{total}{message}", sys.stderr)
            return
        if self._bar is None:
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
            self._bar = Progress(*columns, console=console, transient=True)
            self._task = self._bar.add_task("", visible=False)
        assert self._task is not None
        self._bar.update(
            self._task,
            completed=report.progress,
            total=report.total,
            description=escape_controls(report.message or "").replace("[", r"\["),
            visible=True,
        )
        self._bar.start()  # without effect if it is shown already

    def stop(self) -> None:
        """Remove the bar, since something else is to be shown. The next report shows it again."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None
