"""Which server a command is about: a URL, the command of a server, or a state file."""

from __future__ import annotations

import argparse

from sansmcp_local import read_state

from ._say import Mistake

USAGE = "the server: a URL; or, after a double dash at the end, the command that starts one"


def add_target(parser: argparse.ArgumentParser) -> None:
    """Options that say which server is meant."""
    parser.add_argument(
        "--state-file", metavar="FILE", help="take the URL from the state file of a server"
    )
    parser.set_defaults(takes_command=True)


def target_of(options: argparse.Namespace, words: list[str]) -> str | list[str]:
    """The server that is meant; a URL is taken from the front of the words. Raises Mistake."""
    command: list[str] = options.command
    if command and options.state_file is not None:
        raise Mistake("Either a command or --state-file, not both")
    if command:
        return command
    if options.state_file is None:
        if not words:
            raise Mistake("Which server? Name a URL, --state-file FILE, or -- COMMAND ARGS")
        return words.pop(0)
    state = read_state(options.state_file)
    if state is None or state.url is None:
        raise Mistake(f"{options.state_file} names no server that is running and has a URL")
    return state.url
