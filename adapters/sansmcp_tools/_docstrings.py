"""The text of a docstring, and its descriptions of parameters: Google, NumPy or Sphinx style."""

from __future__ import annotations

import inspect
import re

import attrs

_GOOGLE = re.compile(r"(?:Args|Arguments|Parameters):\s*")
_NUMPY = re.compile(r"(?:Parameters|Other Parameters)\s*")
_UNDERLINE = re.compile(r"-{3,}\s*")
_GOOGLE_ITEM = re.compile(r"\*{0,2}(?P<names>\w+(?:, \w+)*)\s*(?:\([^)]*\))?:\s*(?P<text>.*)")
_NUMPY_ITEM = re.compile(r"\*{0,2}(?P<names>\w+(?:, \w+)*)\s*(?::.*)?(?P<text>)")
_SPHINX_ITEM = re.compile(
    r":(?:param|parameter|arg|argument)\s+(?:[^:]*\s)?(?P<names>\w+):\s*(?P<text>.*)"
)
_SPHINX_TYPE = re.compile(r":type\s+\w+:.*")


@attrs.frozen
class Documentation:
    """The parts of a docstring."""

    text: str
    """All of it, without the descriptions of the parameters."""
    parameters: dict[str, str]
    """The description of each parameter that has one."""


def parse_docstring(docstring: str | None) -> Documentation:
    """Return the text of a docstring, and the descriptions of the parameters."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    text: list[str] = []
    parameters: dict[str, str] = {}
    position = 0
    while position < len(lines):
        line = lines[position]
        following = lines[position + 1] if position + 1 < len(lines) else ""
        if _NUMPY.fullmatch(line) and _UNDERLINE.fullmatch(following):
            end = _end_of_numpy(lines, position + 2)
            parameters |= _items(lines[position + 2 : end], _NUMPY_ITEM)
        elif _GOOGLE.fullmatch(line):
            end = _end_of_block(lines, position + 1, is_paragraph=False)
            block = inspect.cleandoc("\n".join(["", *lines[position + 1 : end]]))
            parameters |= _items(block.splitlines(), _GOOGLE_ITEM)
        elif _SPHINX_ITEM.fullmatch(line) or _SPHINX_TYPE.fullmatch(line):
            end = _end_of_block(lines, position + 1, is_paragraph=True)
            parameters |= _items(lines[position:end], _SPHINX_ITEM)
        else:
            end = position + 1
            text.append(line)
        position = end
    joined = re.sub(r"\n{3,}", "\n\n", "\n".join(text)).strip()
    return Documentation(joined, parameters)


def _end_of_block(lines: list[str], start: int, *, is_paragraph: bool) -> int:
    """Return the index of the first line that is not indented; empty ones end a paragraph."""
    for index in range(start, len(lines)):
        line = lines[index]
        if (not line and is_paragraph) or (line and not line[0].isspace()):
            return index
    return len(lines)


def _end_of_numpy(lines: list[str], start: int) -> int:
    """Return the index of the heading of the next section."""
    for index in range(start, len(lines) - 1):
        if lines[index] and _UNDERLINE.fullmatch(lines[index + 1]):
            return index
    return len(lines)


def _items(lines: list[str], pattern: re.Pattern[str]) -> dict[str, str]:
    """Return the descriptions of a section; what is indented belongs to the item before."""
    found: dict[str, list[str]] = {}
    words: list[str] = []
    for line in lines:
        item = pattern.fullmatch(line)
        if item is not None:
            words = [item["text"]]
            found |= dict.fromkeys(item["names"].split(", "), words)
        elif line[:1].isspace():
            words.append(line.strip())
    return {name: " ".join(filter(None, words)) for name, words in found.items() if any(words)}
