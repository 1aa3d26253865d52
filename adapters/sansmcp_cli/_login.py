"""``sansmcp login``, ``logout`` and ``whoami``."""

from __future__ import annotations

import argparse
import math
import time
from contextlib import suppress
from pathlib import Path

import attrs

import sansmcp
import sansmcp_blocking
from sansmcp.auth.saved import Saved
from sansmcp.auth.tokens import Tokens
from sansmcp.credentials import CredentialsKey, MemoryCredentials
from sansmcp_login import FileCredentials, KeyringCredentials

from ._credentials import (
    Storage,
    add_account,
    add_authorization,
    has_browser,
    key_of,
    locked,
    person,
    redirect_uri_of,
    storage_of,
)
from ._output import Commands, UsageError, print_line, tracer
from ._target import url_of

_CONNECT_TIMEOUT = 10.0


def add_to(commands: Commands) -> None:
    """Add the commands and their options to the parser."""
    _add_login(commands)
    command = commands.add_parser(
        "logout",
        help="forget the login to a server",
        description="Delete the stored tokens of a server. The authorization server is not told: "
        "it accepts them until they expire.",
    )
    command.add_argument("url", metavar="URL")
    add_account(command)
    command.set_defaults(run=_log_out)
    command = commands.add_parser(
        "whoami",
        help="show the stored logins",
        description="Show the stored logins: who has issued the tokens, for which scopes, and how "
        "long they are valid. The tokens are not shown, and no server is asked. The exit status "
        "is 1 if a login is missing or has expired.",
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
    )
    command.add_argument("url", metavar="URL")
    command.add_argument(
        "--no-browser",
        action="store_true",
        help="print the URL, to log in on any machine, and read the answer from the terminal",
    )
    command.add_argument(
        "--scope",
        action="append",
        default=[],
        metavar="SCOPE",
        help="request this scope, too; may be given several times (default: what the server names)",
    )
    command.add_argument(
        "--client-id",
        metavar="ID",
        help="a client that the authorization server knows (default: register one)",
    )
    command.add_argument(
        "--client-secret-file",
        type=Path,
        metavar="FILE",
        help="the file that contains the secret of that client, if it has one",
    )
    command.add_argument(
        "--redirect-uri",
        metavar="URI",
        help="the redirect URI of that client (default: any port of 127.0.0.1, /callback)",
    )
    command.add_argument(
        "--keyring",
        action="store_true",
        help="store the tokens in the keyring of the system, not in a file",
    )
    add_authorization(command)
    command.add_argument("--trace", action="store_true", help="show the conversation on stderr")
    command.set_defaults(run=_log_in)


def _log_in(options: argparse.Namespace) -> int:
    key, client = key_of(options, url_of(options.url)), _client(options)
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
        uses_browser=has_browser() and not options.no_browser,
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
        )
        _use(key, authorization, options)
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
        if options.client_secret_file is not None or options.redirect_uri is not None:
            raise UsageError("--client-secret-file and --redirect-uri need --client-id")
        return None
    file: Path | None = options.client_secret_file
    secret = None if file is None else file.read_text(encoding="utf-8").strip()
    return sansmcp.OAuthClient(client_id=options.client_id, client_secret=secret)


def _use(
    key: CredentialsKey, authorization: sansmcp.Authorization, options: argparse.Namespace
) -> None:
    """Use the server, so that it asks for a login."""
    connecting = sansmcp_blocking.connect(
        key.endpoint,
        authorization=authorization,
        name="sansmcp-login",
        version=sansmcp.__version__,
        standalone_stream=False,
        connect_timeout=_CONNECT_TIMEOUT,
        trace=tracer("client") if options.trace else None,
    )
    # Some servers let everybody connect, and ask for a login when they are used. What they respond
    # does not matter.
    with connecting as client, suppress(sansmcp.JsonRpcError):
        client.list_tools()


def _log_out(options: argparse.Namespace) -> int:
    key = key_of(options, url_of(options.url))
    storage = storage_of(key)
    with locked(storage, key):
        if not storage.delete(key):
            raise _not_logged_in(key)
    print_line(f"Logged out of {key.endpoint}")
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
