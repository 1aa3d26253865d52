"""``sansmcp login``, ``logout`` and ``whoami``."""

from __future__ import annotations

import argparse
import math
import sys
import time
from contextlib import suppress
from pathlib import Path

import attrs

import sansmcp
import sansmcp_blocking
from sansmcp.auth.saved import Saved
from sansmcp.auth.tokens import Tokens
from sansmcp.credentials import CredentialsKey, MemoryCredentials
from sansmcp_auth import FileCredentials, KeyringCredentials
from sansmcp_local import ConnectSettings

from ._advice import is_denied, was_refused
from ._credentials import (
    Storage,
    add_account,
    add_allowed_hosts,
    has_browser,
    key_of,
    locked,
    person,
    redirect_uri_of,
    storage_of,
)
from ._network import add_network, network_of
from ._output import Commands, UsageError, add_trace, examples, print_line, tracer
from ._target import url_of

_CONNECT_TIMEOUT = 10.0

_UNBOUND = (
    "The token will be bound to no server (--no-resource): this server can use it at all others "
    "that accept tokens of the same authorization server"
)


def add_to(commands: Commands) -> None:
    """Add the commands and their options to the parser."""
    _add_login(commands)
    command = commands.add_parser(
        "logout",
        help="forget the login to a server",
        description="Delete the stored tokens of a server, and have the authorization server "
        "revoke them. They are deleted even if it does not; the command then says so.",
        usage="sansmcp logout [options] URL",
        epilog=examples(
            "logout https://mcp.example.com/mcp",
            "logout https://mcp.example.com/mcp --account work",
        ),
    )
    command.add_argument("url", metavar="URL")
    add_account(command)
    add_allowed_hosts(command)
    add_network(command)
    add_trace(command, "the conversation")
    command.set_defaults(run=_log_out)
    command = commands.add_parser(
        "whoami",
        help="show the stored logins",
        description="Show the stored logins: who has issued the tokens, for which scopes, and how "
        "long they are valid. The tokens are not shown, and no server is asked. The exit status "
        "is 1 if a login is missing or has expired.",
        usage="sansmcp whoami [options] [URL]",
        epilog=examples("whoami", "whoami https://mcp.example.com/mcp"),
    )
    command.add_argument("url", nargs="?", metavar="URL", help="default: all servers")
    add_account(command)
    command.set_defaults(run=_show_logins)


def _add_login(commands: Commands) -> None:
    command = commands.add_parser(
        "login",
        help="log in to a server that requires authorization",
        description="Log in to a server, and store the tokens for call and probe, which refresh "
        "them. The browser is opened, or, if there is none, the URL is printed.",
        usage="sansmcp login [options] URL",
        epilog=examples(
            "login https://mcp.example.com/mcp",
            "login https://mcp.example.com/mcp --no-browser --scope files:read",
        ),
    )
    command.add_argument("url", metavar="URL")
    person = command.add_argument_group("the login")
    person.add_argument(
        "--no-browser",
        action="store_true",
        help="print the URL, to log in on any machine, and read the answer from the terminal",
    )
    person.add_argument(
        "--scope",
        action="append",
        default=[],
        metavar="SCOPE",
        help="request this scope, too; may be given several times (default: what the server names)",
    )
    person.add_argument(
        "--keyring",
        action="store_true",
        help="store the tokens in the keyring of the system, not in a file",
    )
    add_account(person)
    client = command.add_argument_group("a client that is registered already")
    client.add_argument(
        "--client-id",
        metavar="ID",
        help="a client that the authorization server knows (default: register one)",
    )
    client.add_argument(
        "--client-secret-file",
        type=Path,
        metavar="FILE",
        help="the file that contains the secret of that client, if it has one",
    )
    client.add_argument(
        "--redirect-uri",
        metavar="URI",
        help="the redirect URI of that client (default: any port of 127.0.0.1, /callback)",
    )
    client.add_argument(
        "--client-credentials",
        action="store_true",
        help="log in as that client itself, a program, with its secret and without a person",
    )
    provider = command.add_argument_group("the authorization server")
    provider.add_argument(
        "--issuer",
        metavar="URL",
        help="the authorization server that knows that client, and no other is to see it "
        "(default: the first one that the server names)",
    )
    provider.add_argument(
        "--assume-pkce",
        action="store_true",
        help="use an authorization server that does not say if it supports PKCE with S256, "
        "because you know that it does",
    )
    provider.add_argument(
        "--no-refresh",
        action="store_true",
        help="do not request offline_access, where the authorization server lists it",
    )
    provider.add_argument(
        "--authorize-param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="add this parameter to the URL that the browser opens, such as prompt=consent or "
        "audience=...; may be given several times",
    )
    provider.add_argument(
        "--no-resource",
        action="store_true",
        help="do not name the server in the requests for a token, for an authorization server that "
        "refuses that; the token is then good for other servers, too",
    )
    add_allowed_hosts(provider)
    rest = command.add_argument_group("the network, and what is shown")
    add_network(rest)
    add_trace(rest, "the conversation")
    command.set_defaults(run=_log_in)


def _log_in(options: argparse.Namespace) -> int:
    key, client = key_of(options, url_of(options.url)), _client(options)
    is_program, extra = _is_program(options), dict(map(_parameter, options.authorize_param))
    if options.no_resource:
        print_line(_UNBOUND, sys.stderr)
    storage = KeyringCredentials() if options.keyring else storage_of(key)
    saved = Saved.parse(storage.load(key))
    if not saved.may_overwrite:
        text = f"The stored login to {key.endpoint} was written by a newer release of sansmcp"
        raise UsageError(f"{text}; sansmcp logout {key.endpoint} deletes it")
    redirect_uri = options.redirect_uri or redirect_uri_of(saved)
    # A login that fails leaves the stored one as it is.
    memory = MemoryCredentials()
    saved.tokens = None
    memory.save(key, saved.encode())
    with person(
        redirect_uri,
        uses_browser=has_browser() and not options.no_browser and not is_program,
        is_required=options.redirect_uri is not None,
    ) as (login, redirect_uri):
        authorization = sansmcp.Authorization(
            account=key.account,
            client=client,
            login=login,
            redirect_uri=redirect_uri,
            scopes=" ".join(options.scope),
            credentials=memory,
            allowed_hosts=options.allow_host,
            assume_pkce=options.assume_pkce,
            wants_refresh=not options.no_refresh,
            extra=extra,
            names_resource=not options.no_resource,
            grant=sansmcp.ClientCredentials() if is_program else None,
        )
        _obtain(key, authorization, options)
    saved = Saved.parse(memory.load(key))
    if saved.tokens is None:
        print_line(f"{key.endpoint} requires no login")
        return 0
    if client is not None:  # call and probe will refresh its tokens
        known = attrs.evolve(client, redirect_uris=(redirect_uri,))
        saved.add_client(saved.tokens.issuer, known)
    with locked(storage, key):
        storage.save(key, saved.encode())
        if isinstance(storage, KeyringCredentials):
            FileCredentials().delete(key)
    print_line(f"Logged in to {key.endpoint}")
    return 0


def _client(options: argparse.Namespace) -> sansmcp.OAuthClient | None:
    """Return the client that the options name. Raises UsageError."""
    if options.client_id is None:
        if any((options.client_secret_file, options.redirect_uri, options.issuer)):
            raise UsageError("--client-secret-file, --redirect-uri and --issuer need --client-id")
        return None
    file: Path | None = options.client_secret_file
    secret = None if file is None else file.read_text(encoding="utf-8").strip()
    return sansmcp.OAuthClient(
        client_id=options.client_id, client_secret=secret, issuer=options.issuer
    )


def _is_program(options: argparse.Namespace) -> bool:
    """True to log in without a person. Raises UsageError if a program cannot do so."""
    if not options.client_credentials:
        return False
    if options.client_id is None or options.client_secret_file is None:
        raise UsageError("--client-credentials needs --client-id and --client-secret-file")
    if options.redirect_uri is not None or options.authorize_param:
        raise UsageError(
            "--redirect-uri and --authorize-param are for the browser, which "
            "--client-credentials does not open"
        )
    return True


def _parameter(text: str) -> tuple[str, str]:
    """Return the name and the value of a parameter. Raises UsageError."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError("--authorize-param takes NAME=VALUE")
    return name, value


def _obtain(
    key: CredentialsKey, authorization: sansmcp.Authorization, options: argparse.Namespace
) -> None:
    """Have the server ask for a login; if it does not, look whether it has one all the same."""
    try:
        _use(key, authorization, options)
    except sansmcp.CallError as error:
        if not was_refused(error):
            raise
    if Saved.parse(authorization.credentials.load(key)).tokens is not None:
        return
    # Some servers ask only when a tool is called, or refuse in other ways than the protocol has it.
    try:
        _use(key, attrs.evolve(authorization, log_in_first=True), options)
    except sansmcp.CallError as error:
        if isinstance(error, sansmcp.AuthorizationFailed) or not is_denied(error):
            raise
        raise UsageError(f"{error}. It says nowhere how to log in") from error


def _use(
    key: CredentialsKey, authorization: sansmcp.Authorization, options: argparse.Namespace
) -> None:
    """Use the server, so that it asks for a login."""
    settings: ConnectSettings = {
        **network_of(options),
        "authorization": authorization,
        "name": "sansmcp-login",
        "version": sansmcp.__version__,
        "standalone_stream": False,
        "connect_timeout": _CONNECT_TIMEOUT,
        "trace": tracer(options, "client"),
    }
    connecting = sansmcp_blocking.connect(key.endpoint, **settings)
    # Some servers let everybody connect, and ask for a login when they are used. What they respond
    # does not matter.
    with connecting as client, suppress(sansmcp.JsonRpcError):
        client.list_tools()


def _log_out(options: argparse.Namespace) -> int:
    key = key_of(options, url_of(options.url))
    storage = storage_of(key)
    authorization = sansmcp.Authorization(
        account=key.account, credentials=storage, allowed_hosts=options.allow_host
    )
    settings: ConnectSettings = {
        **network_of(options),
        "authorization": authorization,
        "trace": tracer(options, "client"),
    }
    failure = ""
    try:
        sansmcp_blocking.log_out(key.endpoint, **settings)
    except sansmcp.AuthorizationFailed as error:
        failure = str(error)
    with locked(storage, key):
        if not storage.delete(key):
            raise _not_logged_in(key)
    print_line(f"Logged out of {key.endpoint}")
    if failure:
        print_line(f"sansmcp: {failure}", sys.stderr)
    return 0


def _show_logins(options: argparse.Namespace) -> int:
    if options.url is not None:
        key = key_of(options, url_of(options.url))
        if (status := _show(key)) is None:
            raise _not_logged_in(key)
        return status
    keys = [*FileCredentials().stored_keys(), *KeyringCredentials().stored_keys()]
    shown = [status for key in dict.fromkeys(keys) if (status := _show(key)) is not None]
    if not shown:
        raise UsageError("Not logged in to any server; log in with: sansmcp login URL")
    return max(shown)


def _show(key: CredentialsKey) -> int | None:
    """Show a login. Return 1 if it has expired, else 0; None if there is none."""
    storage = storage_of(key)
    tokens = Saved.parse(storage.load(key)).tokens
    if tokens is None:
        return None
    validity, status = _validity(tokens, time.time())
    print_line(key.endpoint)
    rows = {
        "account": key.account,
        "issuer": tokens.issuer,
        "client": tokens.client_id,
        "scopes": " ".join(tokens.granted),
        "token": validity,
        "stored in": _place(storage),
    }
    for label, text in rows.items():
        if text:
            print_line(f"    {label:<10} {text}")
    return status


def _validity(tokens: Tokens, now: float) -> tuple[str, int]:
    """Return how long a token is valid, and the exit status for it."""
    can_refresh = tokens.refresh_token is not None
    if tokens.is_expired(now):
        return ("expired, will be refreshed", 0) if can_refresh else ("expired", 1)
    if tokens.expires_at == math.inf:
        return "valid, as far as is known", 0
    minutes = math.ceil((tokens.expires_at - now) / 60)
    return f"valid for {minutes} min" + (", will be refreshed" if can_refresh else ""), 0


def _place(storage: Storage) -> str:
    return "the keyring" if isinstance(storage, KeyringCredentials) else "a file"


def _not_logged_in(key: CredentialsKey) -> UsageError:
    return UsageError(f"Not logged in to {key.endpoint}; log in with: sansmcp login {key.endpoint}")
