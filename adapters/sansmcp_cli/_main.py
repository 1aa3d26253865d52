"""Parse the arguments, and run the command."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
import textwrap
from collections.abc import Mapping
from typing import Any

import attrs

import sansmcp
from sansmcp_local import unknown_options

from ._advice import advice
from ._arguments import nearest
from ._output import (
    Formatter,
    UsageError,
    prepare_streams,
    print_error,
    print_line,
    print_wrapped,
    without_value_of_trace,
)

_DESCRIPTION = """\
Serve an MCP application, use a server, find out what it speaks, put it on
another transport, log in, or try what a broken network does to a conversation.
"""
_EXIT_STATUS = """
A server is named by its URL, by its name in the configuration (config.toml or
mcp.json in ~/.config/sansmcp), or by the command that starts it, after -- at
the end.

exit status:
  0    done
  1    failed; stderr says why. call: also if the tool reports an error;
       replay: also if the server answers differently
  2    the command line does not make sense to the parser of options;
       check-store, check-adapter: also if nothing could be checked;
       chaos: also if it could not begin
  130  ended by Ctrl-C
"""

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Use a server": {
        "list": "_features",
        "call": "_call",
        "read": "_features",
        "prompt": "_features",
        "skills": "_skills",
        "raw": "_features",
        "listen": "_listen",
        "probe": "_probe",
    },
    "Log in to a server": {"login": "_login", "logout": "_login", "whoami": "_login"},
    "Serve": {"serve": "_serve", "bridge": "_bridge"},
    "For developers": {
        "replay": "_replay",
        "demo": "_demo",
        "chaos": "_chaos",
        "bench": "_bench",
        "check-store": "_check",
        "check-adapter": "_check",
    },
    "For your shell": {"completion": "_completion"},
}
"""The commands in the order of the help, each with its module.

Only the module that is needed is imported, which halves the time.
"""

_MODULES = {name: module for group in GROUPS.values() for name, module in group.items()}


def run(arguments: list[str] | None) -> int:
    """Run the command. Returns the exit status: 0, 1 for a failure, or 2 for wrong usage."""
    words = sys.argv[1:] if arguments is None else arguments
    prepare_streams()
    if "_ARGCOMPLETE" in os.environ:  # a shell completes a line, and shows nothing else
        complete_line()
        return 0
    # The words after a double dash are the command of a server, not our options.
    end = words.index("--") if "--" in words else len(words)
    if not words:
        parser_of([]).print_help(sys.stderr)
        return 2
    given = [*map(without_value_of_trace, words[:end])]
    options = _parsed(given)
    options.command = words[end + 1 :]
    options.given = given
    _set_up_logging()
    try:
        if options.command and not options.takes_command:
            words_of_server = " ".join(options.command)
            raise UsageError(
                f"What is {words_of_server!r} for? Only commands that use a server take it"
            )
        status: int = options.run(options)
    except (sansmcp.CallError, sansmcp.LocalProtocolError, UsageError, OSError) as error:
        print_error(error)
        for sentence in advice(error):
            print_wrapped(f"sansmcp: {sentence}")
        return 1
    except ModuleNotFoundError as error:
        if not isinstance(error.__cause__, ModuleNotFoundError):
            raise
        print_error(error)  # it names the extra that has the module
        return 1
    return status


def _parsed(given: list[str]) -> argparse.Namespace:
    """Parse the words of the command line; a misspelt one ends the program, naming a near one."""
    parser = parser_of(given[:1])
    name = given[0] if given else ""
    if name and not name.startswith("-") and name not in _MODULES:
        parser.error(f"there is no command {name!r}{nearest(name, [*_MODULES])}")
    options, unknown = parser.parse_known_args(given)
    if unknown:
        command: argparse.ArgumentParser = options.parser
        what = {"call": "; arguments of a tool", "prompt": "; arguments of a prompt"}.get(name)
        otherwise = f"{what} are written without dashes, NAME=VALUE" if what else ""
        command.error(unknown_options(unknown, command.format_help(), otherwise))
    return options


def complete_line() -> None:
    """Print the completions of the line that a shell has put into the environment."""
    from ._completion import complete, words_of

    first = words_of(os.environ.get("COMP_LINE", ""))[:1]
    complete(parser_of(first), first[0] if first else None)


def _set_up_logging() -> None:
    """Log warnings and errors to stderr; commands that serve print their URL themselves."""
    logger = logging.getLogger("sansmcp")
    if not logger.hasHandlers():
        logger.addHandler(StderrHandler(logging.WARNING))


class StderrHandler(logging.Handler):
    """Prints log records like the other lines of this command: control characters are escaped."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record: its text on one line, and the lines of its traceback, if it has one."""
        text = record.getMessage()
        print_line(text, sys.stderr)
        for line in self.format(record).removeprefix(text).split("\n")[1:]:
            print_line(line, sys.stderr)


def parser_of(first: list[str]) -> argparse.ArgumentParser:
    """Return the parser of the command that is the first word.

    Of ``--version``, the parser of no command; of anything else, that of all.
    """
    parser = argparse.ArgumentParser(
        prog="sansmcp",
        usage="sansmcp COMMAND [options] ...",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(takes_command=False)
    parser.add_argument("--version", action="version", version=f"sansmcp {sansmcp.__version__}")
    commands = _Commands(
        parser.add_subparsers(prog="sansmcp", required=True, metavar="COMMAND", help=_SEE)
    )
    modules = [_MODULES[word] for word in first if word in _MODULES]
    if not modules and first != ["--version"]:
        modules = [*_MODULES.values()]
    for name in dict.fromkeys(modules):
        importlib.import_module(f".{name}", __package__).add_to(commands)
    parser.epilog = _list_of(commands.texts) + _EXIT_STATUS
    return parser


_SEE = "one of the commands below; sansmcp COMMAND --help lists its options"


@attrs.define
class _Commands:
    """Adds commands to a parser, and keeps their texts, which argparse would list in one row."""

    _parsers: Any
    texts: dict[str, str] = attrs.field(factory=dict[str, str], init=False)

    def add_parser(self, name: str, **settings: Any) -> argparse.ArgumentParser:
        """Add a command, and return its parser."""
        self.texts[name] = settings.pop("help")
        settings.setdefault("formatter_class", Formatter)
        parser: argparse.ArgumentParser = self._parsers.add_parser(name, **settings)
        parser.set_defaults(parser=parser)
        return parser


def _list_of(texts: Mapping[str, str]) -> str:
    lines: list[str] = []
    for title, names in GROUPS.items():
        lines.append(f"{title}:")
        for name in names:
            text = textwrap.wrap(texts.get(name, ""), 60)
            lines += [f"  {name:<15} {line}" for line in text[:1]]
            lines += [" " * 18 + line for line in text[1:]]
        lines.append("")
    return "\n".join(lines)
