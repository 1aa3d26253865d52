"""Ask a person for what an elicitation asks, as a conversation without a terminal.

An interview is a generator: it yields the text to show, whose last line is the prompt, and is sent
the line that the person types. It returns the result of ``elicitation/create``.

Source: 2025-06-18 to 2026-07-28, client/elicitation.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import sansmcp
from sansmcp.codecs.json import as_object, is_array
from sansmcp.types import escape_controls

from ._references import Schema, fields_of, required_in
from ._values import (
    alternatives,
    choices_of,
    convert,
    convert_list,
    describe,
    is_list,
    text_of,
    types_of,
)

Interview: TypeAlias = Generator[str, str, dict[str, Any]]

_DECLINED: Mapping[str, Any] = {"action": "decline"}


def interview(params: Mapping[str, Any], server: str, open_url: Callable[[str], None]) -> Interview:
    """Ask the person for what a server asks.

    Args:
        params: the parameters of ``elicitation/create``.
        server: where the server is, for the person.
        open_url: opens a URL, which the person has allowed.

    Returns:
        The result. A person who ends the input has cancelled, which is for the caller to say.

    Raises:
        JsonRpcError: the request cannot be shown to a person.
    """
    # Indented, so that no line of the server looks like one of this command.
    head = f"{server} asks:\n{textwrap.indent(_lines(params.get('message')), '  ')}"
    if params.get("mode") == "url":
        return _ask_for_url(params, head, open_url)
    fields, schema = fields_of(params.get("requestedSchema"))
    return _ask_for_form(fields, schema, head, server)


def _ask_for_url(
    params: Mapping[str, Any], head: str, open_url: Callable[[str], None]
) -> Interview:
    url = params.get("url")
    host = _host_of(url) if isinstance(url, str) else None
    if host is None:
        text = (
            "url must be an http or https URL without blanks and control characters, with a host "
            "in ASCII without escapes"
        )
        raise sansmcp.JsonRpcError(-32602, text)
    shown = f"{head}\nIt wants you to open this page of {host}:\n"
    is_allowed = yield from _yes_or_no(f"{shown}{url}\nOpen it?")
    if not is_allowed:
        return dict(_DECLINED)
    open_url(str(url))
    return {"action": "accept"}


def _host_of(url: str) -> str | None:
    """Return the host of a web page; None if the URL is of no web page.

    Browsers would go to another host than the one shown here: they take a backslash for a slash,
    undo escapes, and map letters and digits that look alike. Nor is it one with characters that the
    parser below leaves out, or a program cannot be given: blanks and control characters.
    """
    if escape_controls(url) != url or any(map(str.isspace, url)):
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    host = parts.netloc
    is_plain = host.isascii() and "\\" not in host and "%" not in host
    return parts.hostname if is_plain and parts.scheme in ("http", "https") else None


def _ask_for_form(
    fields: Mapping[str, Schema], schema: Schema, head: str, server: str
) -> Interview:
    required = required_in(schema)
    show = (
        f"{head}\n(Enter takes what is in brackets, Ctrl-D cancels.)\n" if fields else f"{head}\n"
    )
    while True:
        content: dict[str, Any] = {}
        for name, field in fields.items():
            answer = yield from _ask_for_field(name, field, show, is_required=name in required)
            show = ""
            if answer is not None:
                content[name] = answer
        if [types_of(field) for field in fields.values()] == [("boolean",)]:
            return {"action": "accept", "content": content}  # this question was yes or no already
        words = "yes, no or edit" if fields else "yes or no"
        word = ""
        while word not in ("yes", "y", "no", "n", *(("edit", "e") if fields else ())):
            word = yield f"{show}Send the answer to {server}? ({words}) "
            word, show = word.strip().lower(), ""
        if word[0] != "e":
            return {"action": "accept", "content": content} if word[0] == "y" else dict(_DECLINED)


def _ask_for_field(
    name: str, field: Schema, show: str, *, is_required: bool
) -> Generator[str, str, Any]:
    """Ask until the answer is valid. Return the value; None to leave the field out."""
    question = show + _explained(name, field)
    default = field.get("default")
    bracket = "" if is_required and default is None else f" [{_shown_default(field)}]"
    while True:
        text = yield f"{question}  {escape_controls(name)}{bracket}: "
        question = ""
        if not text.strip():
            if default is not None or not is_required:
                return default
            question = f"  {escape_controls(name)} is required\n"
            continue
        try:
            return _value(text.strip(), field)
        except ValueError as error:
            question = f"  {escape_controls(f'{name} {error}')}\n"


def _value(text: str, field: Schema) -> Any:
    if is_list(field, text.count(",") + 1):
        items = _items_of(field)
        texts = [_choice(part.strip(), items) for part in text.split(",")]
        return convert_list(texts, field)
    return convert(_choice(text, field), field)


def _items_of(field: Schema) -> Schema:
    """Return the schema of the items of a list."""
    for each in alternatives(field):
        if "array" in types_of(each):
            return as_object(each.get("items")) or {}
    return {}


def _choice(text: str, field: Schema) -> str:
    """Return the value that a number from the list stands for, or else the text itself."""
    choices = choices_of(field)
    if choices is None or not text.isascii() or not text.isdigit():
        return text
    if text in map(text_of, choices) or not 1 <= int(text) <= len(choices):
        return text
    return text_of(choices[int(text) - 1])


def _explained(name: str, field: Schema) -> str:
    """Return the lines above the prompt: what the field is, and the values to choose from."""
    items = _items_of(field) if is_list(field, 1) else field
    choices = choices_of(items)
    kind = describe(field) if choices is None else "choose one"
    if choices is not None and items is not field:
        kind = "choose any, separated by commas"
    title = escape_controls(str(field.get("title") or name))
    lines = [f"* {title} ({escape_controls(kind)})"]
    if isinstance(field.get("description"), str):
        lines.append(textwrap.indent(_lines(field["description"]), "  "))
    for number, (choice, label) in enumerate(zip(choices or (), _labels(items), strict=True), 1):
        text = text_of(choice)
        lines.append(escape_controls(f"  {number}) {text}" + (f": {label}" if label else "")))
    return "\n".join(lines) + "\n"


def _labels(field: Schema) -> list[str]:
    """Return a label for each of the values to choose from; empty if it has none."""
    choices = choices_of(field) or []
    titled = alternatives(field)
    if len(titled) > 1 and len(titled) == len(choices):
        return [str(each.get("title") or "") for each in titled]
    names = field.get("enumNames")  # before 2025-11-25
    if is_array(names) and len(names) == len(choices):
        return list(map(str, names))
    return [""] * len(choices)


def _shown_default(field: Schema) -> str:
    default = field.get("default")
    if default is None:
        return "leave out"
    if is_array(default):
        return escape_controls(",".join(map(text_of, default)))
    return escape_controls(text_of(default))


def _yes_or_no(question: str) -> Generator[str, str, bool]:
    word = ""
    while word not in ("yes", "y", "no", "n"):
        word = (yield f"{question} (yes or no) ").strip().lower()
        question = "Please type"
    return word[0] == "y"


def _lines(text: Any) -> str:
    lines = str(text or "").expandtabs(8).splitlines()
    return "\n".join(map(escape_controls, lines))
