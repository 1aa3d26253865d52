"""Options for the server of a command: a URL, a name, a command or a state file; headers."""

from __future__ import annotations

import argparse

import sansmcp
from sansmcp.types import HTTP_SSE, STDIO_V2, STREAMABLE_HTTP
from sansmcp_local import ConnectSettings, read_state

from ._config import named_server
from ._output import Options, UsageError

_TRANSPORTS = {"http": STREAMABLE_HTTP, "sse": HTTP_SSE}

USAGE = (
    "the server: a URL, or its name in the configuration file; or, after a double dash at the end, "
    "the command that starts one"
)


def add_target(parser: Options) -> None:
    """Add the options that name the server."""
    parser.add_argument(
        "--state-file", metavar="FILE", help="take the URL from the state file of a server"
    )
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set this environment variable for the command that starts a server, which inherits "
        "only a few such as PATH and HOME; may be given several times",
    )
    parser.add_argument(
        "--inherit-env", action="store_true", help="let that command inherit all variables"
    )
    parser.set_defaults(takes_command=True, cwd=None, transports=None)


def add_transport(parser: Options) -> None:
    """Add the option that allows only one transport for a URL."""
    parser.add_argument(
        "--transport",
        choices=(*_TRANSPORTS, STDIO_V2),
        help="http for Streamable HTTP, sse for the HTTP+SSE of 2024-11-05 "
        "(default: what the server answers to); stdio-v2 for a command whose process speaks HTTP/2",
    )


def transports_of(options: argparse.Namespace, target: str | list[str]) -> ConnectSettings:
    """Return the setting for the transport that was named; empty if none was. Raises UsageError."""
    if options.transport == STDIO_V2:
        if isinstance(target, str):
            raise UsageError("--transport stdio-v2 is for a command; a URL has http or sse")
        return {"transport": STDIO_V2}
    if options.transport is not None:
        if not isinstance(target, str):
            raise UsageError("--transport http or sse is for a URL; a command has stdio-v2")
        return {"transports": (_TRANSPORTS[options.transport],)}
    return {} if options.transports is None else {"transports": options.transports}


def target_of(options: argparse.Namespace, words: list[str]) -> str | list[str]:
    """Return the server's URL or command; removes a URL or a name from ``words``.

    The headers, environment and transport of a named server become options. Raises UsageError.
    """
    command: list[str] = options.command
    if command and options.state_file is not None:
        raise UsageError("Either a command or --state-file, not both")
    if command:
        return command
    if options.state_file is None:
        if not words:
            raise UsageError("Which server? Name a URL, --state-file FILE, or -- COMMAND ARGS")
        return _looked_up(options, words.pop(0), words)
    state = read_state(options.state_file)
    if state is None or state.url is None:
        raise UsageError(
            f"No running server with a URL in the state file {options.state_file!r}; "
            f"start one with: sansmcp serve --state-file {options.state_file}"
        )
    return state.url


def url_of(word: str) -> str:
    """Return a URL, or that of a named server. Raises UsageError."""
    target = word if "://" in word else named_server(word).target
    if isinstance(target, list):
        raise UsageError(f"{word} is started by a command, and has no URL")
    return target


def _looked_up(options: argparse.Namespace, word: str, later: list[str]) -> str | list[str]:
    if "://" in word:
        return word
    server = named_server(word, later)
    given = {text.partition(":")[0].strip().lower() for text in options.header}
    options.header = [
        *(f"{name}: {value}" for name, value in server.headers if name.lower() not in given),
        *options.header,
    ]
    options.transports = server.transports
    if isinstance(server.target, list):
        options.command, options.cwd = server.target, server.cwd
        if server.is_v2:
            options.transport = STDIO_V2
        options.env = [*(f"{name}={value}" for name, value in server.env.items()), *options.env]
    return server.target


def process_of(options: argparse.Namespace) -> ConnectSettings:
    """Return the settings for a server process. Raises UsageError."""
    if (options.env or options.inherit_env) and not options.command:
        raise UsageError("--env and --inherit-env are for a command, and there is none after --")
    return {
        "env": dict(_variable(text) for text in options.env),
        "inherit_env": options.inherit_env,
        "cwd": options.cwd,
    }


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:  # the text is not shown, since it may contain a secret
        raise UsageError("--env takes NAME=VALUE")
    return name, value


def add_headers(parser: Options) -> None:
    """Add the option for further headers."""
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="send this with every HTTP request, too; may be given several times",
    )


def headers_of(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Return the headers that were given. Raises UsageError."""
    return [_header(text) for text in options.header]


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        # The text is not shown, since it may contain a secret.
        raise UsageError("--header takes 'Name: value', and this has no name or no colon")
    return name.strip(), value.strip()


def add_revision(parser: Options) -> None:
    """Add the option that allows only one revision."""
    parser.add_argument(
        "--revision",
        choices=tuple(sansmcp.REVISIONS),
        metavar="REVISION",
        help="speak this revision only: %(choices)s (default: the newest that both sides know)",
    )


def versions_of(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the allowed revisions."""
    return tuple(sansmcp.REVISIONS) if options.revision is None else (options.revision,)
