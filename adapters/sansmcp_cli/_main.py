"""Parse the arguments, and run the command."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys

import sansmcp

from ._advice import advice
from ._output import UsageError, print_error, print_line

_DESCRIPTION = """\
Serve an MCP application, use a server, find out what it speaks, put it on
another transport, log in, or try what a broken network does to a conversation.
"""
_EXIT_STATUS = """\
A server is named by its URL, by its name in the configuration (config.toml or
mcp.json in ~/.config/sansmcp), or by the command that starts it, after -- at
the end.

exit status:
  0    done
  1    failed; stderr says why. call: also if the tool reports an error;
       replay: also if the server answers differently
  2    the command line does not make sense to the parser of options
  130  ended by Ctrl-C
"""

_MODULES = {
    "serve": "_serve",
    "call": "_call",
    "list": "_features",
    "read": "_features",
    "prompt": "_features",
    "raw": "_features",
    "listen": "_listen",
    "replay": "_replay",
    "completion": "_completion",
    "probe": "_probe",
    "bridge": "_bridge",
    "login": "_login",
    "logout": "_login",
    "whoami": "_login",
    "bench": "_bench",
    "chaos": "_chaos",
    "check-store": "_check",
    "check-adapter": "_check",
    "demo": "_demo",
}
"""The module of each command. Only the one that is needed is imported, which halves the time."""


def run(arguments: list[str] | None) -> int:
    """Run the command. Returns the exit status: 0, 1 for a failure, or 2 for wrong usage."""
    words = sys.argv[1:] if arguments is None else arguments
    if "_ARGCOMPLETE" in os.environ:  # a shell completes a line, and shows nothing else
        complete_line()
        return 0
    # The words after a double dash are the command of a server, not our options.
    end = words.index("--") if "--" in words else len(words)
    options = _parser(words[:1]).parse_args(words[:end])
    options.command = words[end + 1 :]
    options.given = words[:end]
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
            print_line(f"sansmcp: {sentence}", sys.stderr)
        return 1
    return status


def complete_line() -> None:
    """Print the completions of the line that a shell has put into the environment."""
    from ._completion import complete, words_of

    first = words_of(os.environ.get("COMP_LINE", ""))[:1]
    complete(_parser(first), first[0] if first else None)


def _set_up_logging() -> None:
    """Log warnings and errors to stderr; commands that serve print their URL themselves."""
    logger = logging.getLogger("sansmcp")
    if logging.lastResort is not None and not logger.hasHandlers():
        logger.addHandler(logging.lastResort)


def _parser(first: list[str]) -> argparse.ArgumentParser:
    """Return the parser of the command that is the first word, or the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="sansmcp",
        description=_DESCRIPTION,
        epilog=_EXIT_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(takes_command=False)
    parser.add_argument("--version", action="version", version=f"sansmcp {sansmcp.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    modules = [_MODULES[word] for word in first if word in _MODULES] or _MODULES.values()
    for name in dict.fromkeys(modules):
        importlib.import_module(f".{name}", __package__).add_to(commands)
    return parser
