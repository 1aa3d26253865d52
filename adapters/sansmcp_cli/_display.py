"""What a command shows: for a person at a terminal, as plain text, or as JSON for a program.

At a terminal ``rich`` draws tables, Markdown, colours and progress bars, if it is installed (extra
``cli``). Everything else is plain text. Text of a server passes through ``escape_controls`` in both
cases: before rich sees it, so that lines have the width that is shown, and again in what rich has
drawn, since Markdown and JSON have spellings of characters of their own.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from sansmcp.codecs.json import as_object, is_array
from sansmcp.events import ProgressReceived
from sansmcp.types import escape_controls
from sansmcp_local import load_json

from ._output import columns_of, print_line

if TYPE_CHECKING:
    from markdown_it.token import Token
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.markdown import Markdown
    from rich.progress import Progress, TaskID

_MAX_DRAWN = 100_000
"""Characters of a text that rich draws. It takes a second for 300,000; more in tables."""

_MAX_MESSAGE = 1000
"""Characters of a message beside a progress bar, which is drawn ten times a second."""

_LANGUAGE = re.compile(r"[\w+#.-]{0,20}")
_LETTER = re.compile(r"[^\W_]|[^\x00-\x7f\s]")
_LOOKS_LIKE_MARKDOWN = re.compile(
    r"^(#{1,6} |[-*+] |\d+\. |> |```|\|.*\|)|\*\*[^*\n]+\*\*|\[[^][\n]+\]\([^()\n]+[()]",
    re.MULTILINE,
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
    """Print a value as one line of JSON, for programs.

    NaN and the infinities, which servers send and clients read, are no JSON: they become null.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(_without_nan(value), ensure_ascii=False, allow_nan=False)
    print_line(text)


def _without_nan(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    members = as_object(value)
    if members is not None:
        return {name: _without_nan(each) for name, each in members.items()}
    return [_without_nan(each) for each in value] if is_array(value) else value


def show_text(text: str) -> None:
    """Print text of a server, of any number of lines: as Markdown or JSON if it is that."""
    console = console_of(sys.stdout) if len(text) <= _MAX_DRAWN else None
    if console is None:
        for line in text.expandtabs(8).splitlines() or [""]:
            print_line(line)
        return
    from rich.highlighter import JSONHighlighter
    from rich.text import Text

    harmless = "\n".join(map(escape_controls, text.expandtabs(8).splitlines()))
    drawn: RenderableType = Text(harmless)
    indented = _indented(harmless)
    if indented is not None:
        drawn = JSONHighlighter()(Text(indented))
    elif _LOOKS_LIKE_MARKDOWN.search(harmless):
        drawn = markdown_of(harmless, console) or drawn
    console.print(_Harmless(drawn))


def markdown_of(text: str, console: Console) -> Markdown | None:
    """Return Markdown, drawn; None if a part of it would not be seen, which can be the whole text.

    Parser and rich leave out HTML, the addresses of images (and cut the text after them), titles,
    definitions, what is nested deeply or is not in one of as many columns as fit. So the letters
    and digits are counted that are there, and that are drawn.
    """
    from markdown_it import MarkdownIt
    from rich.markdown import Markdown

    markdown = Markdown("", hyperlinks=False)
    definitions: dict[str, Any] = {}
    parser = MarkdownIt().enable("strikethrough").enable("table")  # as rich has it
    tokens = markdown.parsed = parser.parse(text, definitions)
    if definitions.get("references") or _columns(tokens) > console.width:
        return None
    named = "".join(each.info for each in tokens if _LANGUAGE.fullmatch(each.info))
    for each in tokens:
        each.info = ""  # else it would name a lexer of Pygments, some of which take quadratic time
    drawn = "".join(each.text for each in console.render(markdown) if not each.control)
    missing = _letters(text) - _letters(drawn) - _letters(named)
    return None if missing else markdown


def _columns(tokens: Sequence[Token]) -> int:
    """Return the most columns that a table has: rich takes long for thousands."""
    most = columns = 0
    for each in tokens:
        columns = columns + 1 if each.type == "th_open" else columns * (each.type != "tr_open")
        most = max(most, columns)
    return most


def _letters(text: str) -> Counter[str]:
    """Count the letters, and the digits together: rich numbers lists by itself."""
    return Counter("0" if each.isdigit() else each for each in _LETTER.findall(text))


def _indented(text: str) -> str | None:
    """Return a text that is a JSON object or array on a line for each value; None for others."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value = load_json(text)
    except ValueError:
        return None
    return _json_lines(value)


@attrs.frozen
class _Harmless:
    """Draws something with rich, and escapes the characters that a terminal acts on in the result.

    Sequences of rich itself, such as those for colours, are no text of a segment, and stay.
    """

    _drawn: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment

        for segment in console.render(self._drawn, options):
            if segment.control:
                yield segment
            else:
                lines = segment.text.split("\n")
                yield Segment("\n".join(map(escape_controls, lines)), segment.style)


def show_value(value: Any) -> None:
    """Print a JSON value that is for a person."""
    show_text(_json_lines(value))


def _json_lines(value: Any) -> str:
    """Return a value as JSON on several lines. No text in it begins one (U+2028)."""
    lines = json.dumps(value, ensure_ascii=False, indent=2).split("\n")
    return "\n".join(map(escape_controls, lines))


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
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    if any(columns_of(escape_controls(row.name)) > console.width // 3 for row in rows):
        # Names in a column would be cut, or leave no room for texts.
        console.print(Text(title, style="italic"))
        for row in rows:
            name = Text(escape_controls(row.name), style="bold cyan", overflow="fold")
            texts = [escape_controls(each) for each in (row.text, *row.details)]
            text = Text("\n".join(texts).rstrip(), overflow="fold")
            console.print(_Harmless(Padding(name, (0, 0, 0, 1))))
            console.print(_Harmless(Padding(text, (0, 0, 0, 4))))
        return
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 1))
    table.add_column(style="bold cyan", no_wrap=True, max_width=console.width // 3)
    table.add_column(overflow="fold")
    for row in rows:
        text = Text(escape_controls(row.text))
        for detail in row.details:
            text.append(f"\n  {escape_controls(detail)}", style="dim")
        table.add_row(Text(escape_controls(row.name), overflow="fold"), text)
    console.print(_Harmless(table))


def _show_plain_row(row: Row) -> None:
    """Print a row of which each line begins with the name, so that grep and cut find it."""
    print_line(f"  {row.name:<{_NAME_WIDTH}} {row.text}".rstrip())
    for detail in row.details:
        print_line(" " * 6 + detail)


def first_sentence(text: Any) -> str:
    """Return the beginning of a description, in one line."""
    words = " ".join(text.split()) if isinstance(text, str) else ""
    return textwrap.shorten(words, 200, placeholder=" ...")


def show_result(result: Mapping[str, Any]) -> None:
    """Print the result of a tool: its content, and its structured content if that says more."""
    content = result.get("content", result.get("toolResult"))  # the latter in 2024-10-07
    show_content(content)
    structured = result.get("structuredContent")
    if structured is not None and not _is_shown(structured, content):
        show_value(structured)


def _is_shown(structured: Any, content: Any) -> bool:
    """True if a text of the content is the structured content, or the one value in it."""
    members = as_object(structured) or {}
    values = [structured, members["result"]] if members.keys() == {"result"} else [structured]
    for block in content if is_array(content) else ():
        text = (as_object(block) or {}).get("text")
        if isinstance(text, str) and (text in values or _parsed(text) in values):
            return True
    return False


def _parsed(text: str) -> Any:
    try:
        return load_json(text)
    except ValueError:
        return text


def show_content(content: Any) -> None:
    """Print the content of a result or message: texts, and for all else what it is.

    It is a list of blocks, or where a server sends one block or text alone, that.
    """
    for block in content if is_array(content) else [content]:
        members = as_object(block)
        if members is not None:
            _show_block(members)
        elif block is not None:
            _show_any(block)


def _show_any(value: Any) -> None:
    """Print a text; print JSON for a value of another type."""
    if isinstance(value, str):
        show_text(value)
    elif value is not None:
        show_value(value)


def _show_block(block: Mapping[str, Any]) -> None:
    kind, resource = block.get("type"), as_object(block.get("resource"))
    if kind == "resource" and resource:
        show_contents(resource)
    elif kind == "resource_link":
        print_line(f"[{block.get('uri')} {block.get('name', '')}".rstrip() + "]")
    elif "data" in block:
        print_line(f"[{kind}, {block.get('mimeType')}, {_size(block['data'])}]")
    elif "text" in block or kind == "text":
        _show_any(block.get("text"))
    else:
        show_value(block)


def show_contents(contents: Mapping[str, Any]) -> None:
    """Print the contents of a resource: its text, or for bytes their number."""
    if "text" in contents:
        _show_any(contents["text"])
    else:
        kind = contents.get("mimeType", "bytes")
        print_line(f"[{contents.get('uri')}, {kind}, {_size(contents.get('blob'))}]")


_OF_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_LIKE_BASE64 = str.maketrans("-_", "+/", " \t\r\n")


def decoded(blob: Any) -> bytes | None:
    """Return the bytes of a base64 text; None if it is none.

    Servers also send it in lines, as MIME has it, in the alphabet for URLs, without the padding, or
    within a ``data:`` URL.
    """
    if not isinstance(blob, str):
        return None
    if blob.startswith("data:"):
        blob = blob.partition(",")[2]
    text = blob.translate(_LIKE_BASE64)
    if not _OF_BASE64.fullmatch(text):
        return None
    try:
        return base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4))
    except binascii.Error:
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

            text = TextColumn("{task.description}", markup=False)
            columns = (text, BarColumn(), TaskProgressColumn())
            self._bar = Progress(*columns, console=console, transient=True)
            self._task = self._bar.add_task("", visible=False)
        assert self._task is not None
        self._bar.update(
            self._task,
            completed=report.progress,
            total=report.total,
            description=escape_controls((report.message or "")[:_MAX_MESSAGE]),
            visible=True,
        )
        self._bar.start()  # without effect if it is shown already

    def stop(self) -> None:
        """Remove the bar, since something else is to be shown. The next report shows it again."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None
