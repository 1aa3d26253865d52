"""Stored logins, and how a person logs in: what call, probe, login, logout and whoami share."""

from __future__ import annotations

import argparse
import os
import sys
import time
import webbrowser
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TypeAlias
from urllib.parse import SplitResult, urlsplit

import sansmcp
from sansmcp.auth.codes import scopes_of
from sansmcp.auth.options import Login
from sansmcp.auth.saved import Saved
from sansmcp.credentials import CredentialsKey
from sansmcp_auth import FileCredentials, KeyringCredentials, LoopbackLogin, print_login

from ._advice import login_command
from ._output import Options, UsageError, print_line
from ._target import headers_of

Storage: TypeAlias = FileCredentials | KeyringCredentials

_REDIRECT_URI = "http://127.0.0.1/callback"
_LISTENING = ("127.0.0.1", "localhost")
"""The hosts of redirect URIs at which a listener of this command is reached."""

_LOCK_INTERVAL = 0.1
_LOCK_ATTEMPTS = 300


def add_authorization(parser: Options) -> None:
    """Add the options of commands that use a login."""
    add_account(parser)
    add_allowed_hosts(parser)


def add_allowed_hosts(parser: Options) -> None:
    """Add the option for authorization servers in a more private network."""
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="HOST",
        help="a host of the authorization server that may be in a more private network than the "
        "server; or the server itself, if its URL is http, a proxy leads to it, and you trust the "
        "network between; may be given several times",
    )


def add_account(parser: Options) -> None:
    """Add the option that tells several logins to one server apart."""
    parser.add_argument(
        "--account", default="", metavar="NAME", help="which of several logins to this server"
    )


def key_of(options: argparse.Namespace, url: str) -> CredentialsKey:
    """Return the name of the login to a server.

    Raises:
        LocalProtocolError: the URL is malformed.
        UsageError: it is that of a Unix socket.
    """
    parsed = sansmcp.Url.parse(url)
    if parsed.socket_path is not None:
        raise UsageError(
            "Logins (OAuth 2.1) are for http and https URLs; the server at a Unix socket knows the "
            "user of the client. If it asks for a token, send it with --header 'Authorization: "
            "Bearer ...'"
        )
    return CredentialsKey(str(parsed), options.account)


def storage_of(key: CredentialsKey) -> Storage:
    """Return where a login is stored: in the keyring if that has one already, else in files."""
    keyring = KeyringCredentials()
    return keyring if key in keyring.stored_keys() else FileCredentials()


@contextmanager
def locked(storage: Storage, key: CredentialsKey) -> Generator[None, None, None]:
    """Keep other processes from changing a login. Raises UsageError if one does not end."""
    for _ in range(_LOCK_ATTEMPTS):
        if storage.try_lock(key):
            break
        time.sleep(_LOCK_INTERVAL)
    else:
        raise UsageError("Another process has locked the stored login for 30 s")
    try:
        yield
    finally:
        storage.unlock(key)


@contextmanager
def authorization_for(
    options: argparse.Namespace, target: str | list[str], *, may_log_in: bool = True
) -> Generator[sansmcp.Authorization | None, None, None]:
    """Give the authorization with which a command uses a server; None to use it without.

    A person logs in only at a terminal, and if ``may_log_in``. Elsewhere a stored login is used;
    without one there is no authorization at all, since it would register a client that has no use.
    """
    has_header = any(name.lower() == "authorization" for name, _ in headers_of(options))
    if isinstance(target, list) or has_header or sansmcp.Url.parse(target).socket_path is not None:
        yield None
        return
    key = key_of(options, target)
    storage = storage_of(key)
    saved = Saved.parse(storage.load(key))
    redirect_uri = redirect_uri_of(saved)
    with ExitStack() as stack:
        login: Login = partial(_refuse_login, key.endpoint)
        if may_log_in and is_at_terminal():
            entered = person(redirect_uri, uses_browser=has_browser())
            login, redirect_uri = stack.enter_context(entered)
        elif saved.tokens is None:
            yield None
            return
        yield sansmcp.Authorization(
            account=key.account,
            login=login,
            redirect_uri=redirect_uri or _REDIRECT_URI,
            credentials=storage,
            allowed_hosts=options.allow_host,
        )


def redirect_uri_of(saved: Saved) -> str | None:
    """Return where the latest client was sent back to; None if there is none.

    Authorization servers know a client by it, so a client can log in again only there.
    """
    uris = [uri for client in saved.clients.values() for uri in client.redirect_uris]
    return uris[-1] if uris else None


@contextmanager
def person(
    redirect_uri: str | None, *, uses_browser: bool, is_required: bool = False
) -> Generator[tuple[Login, str], None, None]:
    """Give how a person logs in, and where the browser is sent back to.

    Args:
        redirect_uri: where it should be sent back to; None if that does not matter.
        uses_browser: True to open a browser; False to print the URL.
        is_required: True if no other redirect URI will do.

    Raises:
        OSError: the port of a required redirect URI is in use.
    """
    uri = redirect_uri or _REDIRECT_URI
    parts = urlsplit(uri)
    if not uses_browser or parts.scheme != "http" or parts.hostname not in _LISTENING:
        yield print_login, uri
        return
    with _listener(parts, is_required=is_required) as listener:
        yield listener, listener.redirect_uri


def _listener(parts: SplitResult, *, is_required: bool) -> LoopbackLogin:
    host, path = parts.hostname or "", parts.path or "/"
    try:
        return LoopbackLogin(port=parts.port or 0, path=path, host=host, open_browser=_open_browser)
    except OSError:
        if is_required:
            raise
        return LoopbackLogin(open_browser=_open_browser)  # the client will register again


def _open_browser(url: str) -> bool:
    print_line("Log in with the browser. If none has opened, open this URL:", sys.stderr)
    print_line(url, sys.stderr)
    webbrowser.open(url)
    return True


def has_browser() -> bool:
    """True if a browser with windows can be opened, and not one in this terminal."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def is_at_terminal() -> bool:
    """True if a person can be asked: standard input and error are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _refuse_login(server: str, url: str) -> str:
    command = login_command(server, scopes_of(url))
    raise RuntimeError(f"there is no terminal here; log in with: {command}")
