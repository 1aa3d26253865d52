"""``sansmcp completion``, and what a shell completes: options, servers, tools, arguments.

``argcomplete`` (extra ``cli``) makes the scripts and reads the words. The shell runs this command
at each press of the key, so the names of a server's tools are kept in a file for a while.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import shlex
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import sansmcp
import sansmcp_asyncio
from sansmcp.codecs.json import as_object
from sansmcp.types import escape_controls
from sansmcp_local import ConnectSettings, load_json

from ._config import server_names
from ._credentials import authorization_for
from ._features import LISTS
from ._network import network_of
from ._output import Commands, UsageError, examples, print_line
from ._references import fields_of
from ._target import headers_of, process_of, target_of, transports_of

SHELLS = ("bash", "zsh", "fish")

_FRESH = 300.0
"""Seconds for which the tools of a server are kept."""
_PATIENCE = 2.0
"""Seconds in which a server must tell its tools. A person waits for this."""
_FEATURES = {"call": "tools", "read": "resources", "prompt": "prompts"}
"""By the command, what its second word names."""

_HOW = """\
# Completion of sansmcp in {shell}. To have it in each shell, add to {file}:
#     {line}
"""
_LINES = {
    "bash": ("~/.bashrc", 'eval "$(sansmcp completion bash)"'),
    "zsh": ("~/.zshrc, after compinit", 'eval "$(sansmcp completion zsh)"'),
    "fish": ("~/.config/fish/config.fish", "sansmcp completion fish | source"),
}


def add_to(commands: Commands) -> None:
    """Add the command and its options to the parser."""
    command = commands.add_parser(
        "completion",
        help="print the script that lets a shell complete this command",
        description="Print the script that lets a shell complete commands, options, names of "
        "servers, tools and their arguments. Its first lines say where it belongs. Needs the "
        "extra cli.",
        usage="sansmcp completion {bash,zsh,fish}",
        epilog=examples(
            "completion bash > ~/.local/share/bash-completion/completions/sansmcp",
            "completion fish > ~/.config/fish/completions/sansmcp.fish",
        ),
    )
    command.add_argument("shell", choices=SHELLS)
    command.set_defaults(run=_print_script)


def _print_script(options: argparse.Namespace) -> int:
    try:
        from argcomplete.shell_integration import shellcode
    except ModuleNotFoundError as error:
        raise UsageError(f"{error}: pip install 'sansmcp[cli]'") from error
    file, line = _LINES[options.shell]
    script = shellcode(["sansmcp"], shell=options.shell)
    for text in (_HOW.format(shell=options.shell, file=file, line=line) + script).split("\n"):
        print_line(text.expandtabs(4))
    return 0


def words_of(line: str) -> list[str]:
    """Return the words of the line that is completed, after the name of the command."""
    try:
        return shlex.split(line)[1:]
    except ValueError:  # in the middle of a quotation
        return line.split()[1:]


def complete(parser: argparse.ArgumentParser, command: str | None) -> None:
    """Print the completions of the line that the shell names, and exit."""
    import argcomplete

    def suggest(
        prefix: str,
        action: argparse.Action,
        parser: argparse.ArgumentParser,
        parsed_args: argparse.Namespace,
    ) -> Sequence[str]:
        with suppress(Exception):  # the shell shows no errors, and a person wants none here
            words = _suggestions(command, action.dest, parsed_args)
            # The shell would print such characters; escaped, the word would be another one. With
            # a dash at its beginning it would be an option, such as one that overwrites a file.
            return [
                word for word in words if escape_controls(word) == word and not word.startswith("-")
            ]
        return ()

    finder: Any = argcomplete.autocomplete  # its annotations want a completer of a class of theirs
    finder(parser, default_completer=suggest, always_complete_options=False)


def _suggestions(command: str | None, place: str, options: argparse.Namespace) -> Sequence[str]:
    if place in ("url", "to"):
        return server_names()
    if place != "words":
        return ()
    words: list[str] = options.words or []
    if not words:
        return server_names()
    if command == "list":
        return tuple(LISTS)
    kind = _FEATURES.get(command or "")
    if kind is None:
        return ()
    features = _features_of(options, words, kind)
    if len(words) == 1:
        return tuple(features)
    given = {word.partition("=")[0] for word in words[2:]}
    return [f"{name}=" for name in features.get(words[1], ()) if name not in given]


def _features_of(options: argparse.Namespace, words: list[str], kind: str) -> dict[str, list[str]]:
    """Return the names of what a server has of a kind, each with the names of its arguments."""
    options.command = []
    target = target_of(options, words[:1])
    key = hashlib.sha256(json.dumps([target, kind, options.account]).encode()).hexdigest()
    file = _cache_directory() / f"{key[:32]}.json"
    with suppress(OSError, ValueError):
        if 0 <= time.time() - file.stat().st_mtime < _FRESH:
            kept: dict[str, list[str]] = load_json(file.read_text(encoding="utf-8"))
            return kept
    found = asyncio.run(asyncio.wait_for(_ask(options, target, kind), _PATIENCE))
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_text(json.dumps(found), encoding="utf-8")
    return found


def _cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sansmcp"


async def _ask(
    options: argparse.Namespace, target: str | list[str], kind: str
) -> dict[str, list[str]]:
    settings: ConnectSettings = {
        **process_of(options),
        **network_of(options),
        "name": "sansmcp-completion",
        "version": sansmcp.__version__,
        "headers": headers_of(options),
        **transports_of(options, target),
        "connect_timeout": _PATIENCE,
        "close_timeout": 0.5,
        "standalone_stream": False,
    }
    method, member = LISTS[kind]
    with authorization_for(options, target, may_log_in=False) as authorization:
        settings["authorization"] = authorization
        async with sansmcp_asyncio.connect(target, **settings) as client:
            page = as_object(await client.call(method)) or {}
    found: dict[str, list[str]] = {}
    for each in page.get(member) or ():
        arguments = [*fields_of(each.get("inputSchema"))[0]]
        arguments += [str(argument["name"]) for argument in each.get("arguments") or ()]
        found[str(each.get("uri") or each.get("name"))] = arguments
    return found
