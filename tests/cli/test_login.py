"""``sansmcp login``, ``logout`` and ``whoami``, and the commands that use stored logins."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs
import keyring
import pytest
from keyring.backends import fail

from sansmcp.addresses import AddressClass
from sansmcp.auth.saved import Saved
from sansmcp.credentials import CredentialsKey
from sansmcp_auth import FileCredentials, KeyringCredentials
from sansmcp_cli._credentials import Storage

from ..login.protected_server import Protected, protected_server
from ..login.test_adapters import browse_once
from ..login.test_keyring import TestKeyring
from ..ports import free_port
from .conftest import (
    ADAPTERS,
    CompletedCommand,
    command,
    environment,
    failed,
    run_in_process,
    started,
)


@pytest.fixture
def server() -> Generator[Protected, None, None]:
    """A protected server."""
    with protected_server() as running:
        yield running


@pytest.fixture
def browser(server: Protected, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A browser in which a person logs in at once; returns what was opened in it."""
    opened: list[str] = []

    def browse(url: str) -> bool:
        opened.append(url)
        return server.browse(url)

    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("webbrowser.open", browse)
    return opened


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process runs in a terminal."""
    monkeypatch.setattr("sansmcp_cli._credentials.is_at_terminal", lambda: True)


def done(*arguments: str) -> str:
    """Run a command that succeeds, and return its standard output."""
    ran = run_in_process(*arguments)
    assert ran.status == 0, ran
    return ran.out


def key_of(server: Protected, account: str = "") -> CredentialsKey:
    return CredentialsKey(server.url, account)


def stored(server: Protected) -> Saved:
    """What the files have of a server."""
    return Saved.parse(FileCredentials().load(key_of(server)))


def expire(server: Protected, credentials: Storage | None = None) -> None:
    """Let the stored token expire."""
    credentials = credentials or FileCredentials()
    key = key_of(server)
    saved = Saved.parse(credentials.load(key))
    assert saved.tokens is not None
    saved.tokens = attrs.evolve(saved.tokens, expires_at=0.0)
    credentials.save(key, saved.encode())


SOCKET = "http+unix://%2Frun%2Fmcp.sock/mcp"
URL = r"http://[^\s]+/authorize\?[^\s]+"


def answer(shown: str) -> str:
    """Log in, on another machine, at the URL that a command shows."""
    found = re.search(URL, shown)
    assert found is not None
    return browse_once(found[0])


def run_in_terminal(*arguments: str, answer: Callable[[str], str]) -> CompletedCommand:
    """Run the command in a terminal, and answer its question; ``err`` is what is on the screen."""
    screen, terminal = pty.openpty()
    with subprocess.Popen(
        command(*arguments),
        env=environment(),
        stdin=terminal,
        stderr=terminal,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        os.close(terminal)
        shown = ""
        while "does not load: " not in shown:
            shown += os.read(screen, 4096).decode()
        os.write(screen, f"{answer(shown)}\n".encode())
        out, _ = process.communicate(timeout=60)
        while data := _read(screen):
            shown += data.decode()
    os.close(screen)
    return CompletedCommand(process.returncode, out, shown)


def _read(screen: int) -> bytes:
    try:
        return os.read(screen, 4096)
    except OSError:  # nobody has the terminal open any more
        return b""


# Logging in and out


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_login_is_used_until_the_logout(
    server: Protected, browser: list[str], adapter: str
) -> None:
    calling = ("call", "--json", server.url, "any", "--adapter", adapter)
    assert run_in_process(*calling).err.splitlines()[1:] == [
        f"sansmcp: Log in with: sansmcp login {server.url}",
        "sansmcp: Or send credentials with --header 'Authorization: Bearer ...'",
    ]
    assert "/register" not in server.seen
    assert done("login", server.url) == f"Logged in to {server.url}\n"
    assert json.loads(done(*calling)) == {"content": []}
    assert done("probe", server.url, "--timeout", "5").startswith(
        f"{server.url}\n  streamable-http"
    )
    assert (len(browser), len(server.tokens)) == (1, 1)
    assert done("logout", server.url) == f"Logged out of {server.url}\n"
    assert run_in_process(*calling).status == 1
    assert failed(run_in_process("logout", server.url)) == (
        f"Not logged in to {server.url}; log in with: sansmcp login {server.url}"
    )


@pytest.mark.parametrize("has_refresh_tokens", [True, False])
def test_a_logout_revokes(
    server: Protected, browser: list[str], tmp_path: Path, has_refresh_tokens: bool
) -> None:
    """The refresh token, or the access token without one; with the client's authentication."""
    server.has_refresh_tokens, server.auth_method = has_refresh_tokens, "client_secret_basic"
    server.metadata["revocation_endpoint"] = f"{server.base}/revoke"
    secret = tmp_path / "secret"
    secret.write_text("sesame", "utf-8")
    done("login", "--client-id", "c", "--client-secret-file", str(secret), server.url)
    ran = run_in_process("logout", server.url)
    assert (ran.status, ran.out, ran.err) == (0, f"Logged out of {server.url}\n", "")
    kind = "refresh" if has_refresh_tokens else "access"
    token = "refresh-1" if has_refresh_tokens else "token-1"
    assert server.forms[-1] == {"token": token, "token_type_hint": f"{kind}_token"}
    assert server.headers[-1]["authorization"] == "Basic YzpzZXNhbWU="
    assert FileCredentials().load(key_of(server)) is None


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("none", "its metadata name no revocation_endpoint"),
        ("refuses", "/revoke was answered with HTTP 400"),
        ("elsewhere", "name a revocation_endpoint at another origin"),
    ],
)
def test_a_logout_without_revocation(
    server: Protected, browser: list[str], case: str, said: str
) -> None:
    """The tokens are deleted here all the same, and the command says what was not revoked."""
    done("login", server.url)
    server.revocation = 400
    endpoints = {
        "none": None,
        "refuses": f"{server.base}/revoke",
        "elsewhere": f"http://127.0.0.1:{free_port()}/revoke",
    }
    server.metadata["revocation_endpoint"] = endpoints[case]
    ran = run_in_process("logout", server.url)
    assert (ran.status, ran.out) == (0, f"Logged out of {server.url}\n")
    assert "has not revoked the refresh token, and may accept it until it expires" in ran.err
    assert said in ran.err
    assert "refresh-1" not in ran.err
    assert FileCredentials().load(key_of(server)) is None


def test_no_token_is_shown(server: Protected, browser: list[str]) -> None:
    ran = [
        run_in_process("login", "--trace", server.url),
        run_in_process("call", "--trace", server.url, "any"),
        run_in_process("whoami"),
    ]
    for one in ran:
        assert one.status == 0
        assert "token-1" not in one.out + one.err
        assert "refresh-1" not in one.out + one.err
    assert "/token" in ran[0].err


def test_a_login_without_a_browser(server: Protected) -> None:
    with started("login", server.url, stdin=subprocess.PIPE) as process:
        assert process.stderr is not None
        shown = "".join(process.stderr.readline() for _ in range(4))
        out, _ = process.communicate(answer(shown), timeout=60)
    assert (process.returncode, out) == (0, f"Logged in to {server.url}\n")


def test_the_browser_is_not_used_if_that_is_wanted(
    server: Protected, browser: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sansmcp_cli._credentials.print_login", browse_once)
    done("login", "--no-browser", server.url)
    assert browser == []
    assert stored(server).clients[server.base].redirect_uris == ("http://127.0.0.1/callback",)


def test_a_login_that_nobody_answers(server: Protected) -> None:
    ran = run_in_process("login", server.url)  # standard input is empty here
    assert ran.status == 1
    assert "Authorization failed at the login: " in ran.err


def test_the_next_login_uses_the_same_client(server: Protected, browser: list[str]) -> None:
    for _ in range(2):
        done("login", server.url)
    assert server.seen.count("/register") == 1
    assert stored(server).tokens is not None
    first, second = (re.search(r"redirect_uri=([^&]+)", url) for url in browser)
    assert first is not None
    assert second is not None
    assert first[1] == second[1]


def test_another_client_is_registered_if_the_port_is_in_use(
    server: Protected, browser: list[str]
) -> None:
    done("login", server.url)
    (uri,) = stored(server).clients[server.base].redirect_uris
    with socket.create_server(("127.0.0.1", urlsplit(uri).port or 0)):
        done("login", server.url)
    assert server.seen.count("/register") == 2


def test_a_login_that_fails_leaves_the_stored_one(server: Protected, browser: list[str]) -> None:
    done("login", server.url)
    server.error = "access_denied"
    said = failed_login(server)
    assert said == (
        "Authorization failed at the login: the authorization server refused: access_denied"
    )
    tokens = stored(server).tokens
    assert tokens is not None
    assert tokens.access_token == "token-1"


def failed_login(server: Protected, *options: str) -> str:
    """The error of a login for which the browser was opened."""
    ran = run_in_process("login", *options, server.url)
    assert (ran.status, ran.out) == (1, "")
    return ran.err.splitlines()[2].removeprefix("sansmcp: ")


def test_a_given_client_is_used_and_kept(
    server: Protected, browser: list[str], tmp_path: Path
) -> None:
    """Also by the commands that refresh its tokens later."""
    secret = tmp_path / "secret"
    secret.write_text("sesame\n", encoding="utf-8")
    server.auth_method = "client_secret_post"
    given = ("--client-id", "fixed", "--client-secret-file", str(secret))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        uri = f"http://localhost:{listener.getsockname()[1]}/back"
        assert "in use" in failed(
            run_in_process("login", *given, "--redirect-uri", uri, server.url)
        )
    done("login", *given, "--redirect-uri", uri, server.url)
    expire(server)
    done("call", server.url, "any")
    assert "/register" not in server.seen
    grants = [form["grant_type"] for form in server.forms]
    assert grants == ["authorization_code", "refresh_token"]
    for form in server.forms:
        assert (form["client_id"], form["client_secret"]) == ("fixed", "sesame")
    assert stored(server).clients[server.base].redirect_uris == (uri,)


def test_a_program_logs_in_without_a_person(
    server: Protected, browser: list[str], tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("sesame\n", encoding="utf-8")
    server.auth_method, server.has_refresh_tokens = "client_secret_post", False
    given = ("--client-id", "robot", "--client-secret-file", str(secret))
    done("login", "--client-credentials", *given, server.url)
    assert browser == []
    (form,) = server.forms
    assert (form["grant_type"], form["client_id"]) == ("client_credentials", "robot")
    assert json.loads(done("call", "--json", server.url, "any")) == {"content": []}
    uri = ("--redirect-uri", "http://127.0.0.1/callback")
    for wrong in ((), given[:2], (*given, "--authorize-param", "a=b"), (*given, *uri)):
        ran = run_in_process("login", "--client-credentials", *wrong, server.url)
        assert ran.status == 1
        assert "--client-credentials" in ran.err


def test_parameters_of_a_provider(server: Protected, browser: list[str]) -> None:
    more = ("--authorize-param", "prompt=consent")
    done("login", "--authorize-param", "audience=a b", *more, server.url)
    assert "audience=a+b" in browser[0]
    assert "prompt=consent" in browser[0]
    assert "resource=" in browser[0]
    ran = run_in_process("login", "--authorize-param", "audience", server.url)
    assert (ran.status, ran.err) == (1, "sansmcp: --authorize-param takes NAME=VALUE\n")


def test_the_resource_can_be_left_out(server: Protected, browser: list[str]) -> None:
    ran = run_in_process("login", "--no-resource", server.url)
    assert ran.status == 0
    assert "The token will be bound to no server" in ran.err
    assert "resource=" not in browser[0]
    assert "resource" not in server.forms[0]
    expire(server)
    done("call", server.url, "any")
    assert "resource" not in server.forms[1]


def test_who_refuses_the_resource_is_asked_without_it(
    server: Protected, browser: list[str]
) -> None:
    server.error = "invalid_target"
    ran = run_in_process("login", server.url)
    assert "sansmcp login --no-resource" in ran.err


def test_a_redirect_to_elsewhere_is_pasted(
    server: Protected, browser: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sansmcp_cli._credentials.print_login", browse_once)
    uri = "https://client.example/callback"
    done("login", "--client-id", "fixed", "--redirect-uri", uri, server.url)
    assert browser == []


def test_scopes(server: Protected, browser: list[str]) -> None:
    done("login", "--scope", "read", "--scope", "write more", server.url)
    assert "scope=read+write+more" in browser[0]
    tokens = stored(server).tokens
    assert tokens is not None
    assert tokens.granted == ("read", "write", "more")


def test_a_server_that_asks_when_it_is_used(server: Protected, browser: list[str]) -> None:
    server.open_to = "connecting"
    assert done("login", server.url) == f"Logged in to {server.url}\n"


LAZY: dict[str, dict[str, Any]] = {
    "at calls": {"open_to": "listing"},
    "403": {"refusal": 403, "challenge": None},
    "400": {"refusal": 400},
    "400 without a challenge": {"refusal": 400, "challenge": None},
    "another challenge": {"refusal": 403, "challenge": 'Basic realm="x"'},
}


@pytest.mark.parametrize("behaviour", LAZY.values(), ids=LAZY)
def test_a_server_that_asks_late_or_in_other_ways(
    server: Protected, browser: list[str], behaviour: dict[str, Any]
) -> None:
    """The metadata say where to log in, though no request was refused with 401."""
    for name, value in behaviour.items():
        setattr(server, name, value)
    assert done("login", server.url) == f"Logged in to {server.url}\n"
    assert json.loads(done("call", "--json", server.url, "any")) == {"content": []}
    assert len(browser) == 1


@pytest.mark.parametrize(("status", "challenge"), [(403, None), (403, "Bearer"), (400, "Bearer")])
def test_who_is_refused_without_a_login_can_log_in(
    server: Protected, status: int, challenge: str | None
) -> None:
    server.refusal, server.challenge = status, challenge
    ran = run_in_process("call", server.url, "any")
    assert f"sansmcp: Log in with: sansmcp login {server.url}\n" in ran.err


def test_a_server_that_refuses_and_says_nothing(server: Protected, browser: list[str]) -> None:
    """Its user is not sent round in a circle."""
    server.refusal, server.challenge, server.has_metadata = 403, None, False
    ran = run_in_process("login", server.url)
    assert ran.status == 1
    assert "says nowhere how to log in" in ran.err
    assert "sansmcp login" not in ran.err
    assert browser == []


def test_a_url_without_a_server(server: Protected) -> None:
    server.refusal, server.challenge, server.has_metadata = 404, None, False
    ran = run_in_process("login", server.url)
    assert (ran.status, "404" in ran.err) == (1, True)


def test_a_server_that_does_not_ask(url: str) -> None:
    assert done("login", url) == f"{url} requires no login\n"


def test_a_call_without_a_scope_says_which_to_log_in_for(
    server: Protected, browser: list[str]
) -> None:
    """The next login asks for it; the same login again would change nothing."""
    done("login", "--scope", "read", server.url)
    server.needed_scopes = "write$(x)"
    ran = run_in_process("call", server.url, "any")
    assert ran.status == 1
    wanted = f"sansmcp login --scope read --scope 'write$(x)' {server.url}"
    assert wanted in ran.err
    _, *words = shlex.split(wanted)
    done(*words)
    done("call", server.url, "any")


def test_a_scope_that_was_granted_and_is_not_enough(
    server: Protected, browser: list[str], terminal: None
) -> None:
    done("login", "--scope", "read", server.url)
    server.needed_scopes, server.scopes = "read", ""
    ran = run_in_process("call", server.url, "any")
    assert (ran.status, len(browser)) == (1, 1)
    assert "refuses a token for which 'read'" in ran.err


def test_a_missing_scope_of_other_credentials(server: Protected) -> None:
    server.tokens.add("mine")
    server.needed_scopes = "write"
    ran = run_in_process("call", "--header", "Authorization: Bearer mine", server.url, "any")
    assert f"sansmcp login --scope write {server.url}\n" in ran.err


def forbidden(handler: BaseHTTPRequestHandler) -> None:
    handler.send_error(403)


@pytest.mark.parametrize(
    ("change", "advised"),
    [
        ({"registers": False}, "--client-id ID"),
        ({"attacks": {"/register": forbidden}}, "--client-id ID"),
        ({"metadata": {"code_challenge_methods_supported": None}}, "--assume-pkce"),
    ],
)
def test_what_to_do_at_a_server_that_lacks_something(
    server: Protected, browser: list[str], change: dict[str, Any], advised: str
) -> None:
    for name, value in change.items():
        setattr(server, name, value)
    ran = run_in_process("login", server.url)
    assert ran.status == 1
    assert advised in ran.err.splitlines()[-1]
    assert browser == []


def test_a_server_that_is_known_to_support_pkce(server: Protected, browser: list[str]) -> None:
    server.metadata = {"code_challenge_methods_supported": None}
    done("login", "--assume-pkce", server.url)


def test_a_login_that_is_not_refreshed(server: Protected, browser: list[str]) -> None:
    server.metadata = {"scopes_supported": ["offline_access"]}
    done("login", server.url)
    done("login", "--no-refresh", server.url)
    assert ["offline_access" in url for url in browser] == [True, False]


def test_a_client_of_another_issuer_is_not_shown_to_the_server(
    server: Protected, browser: list[str]
) -> None:
    given = ("--client-id", "fixed", "--issuer")
    ran = run_in_process("login", *given, "https://login.example", server.url)
    assert (ran.status, browser) == (1, [])
    assert "'https://login.example'" in ran.err
    done("login", *given, server.base, server.url)
    said = failed(run_in_process("login", "--issuer", server.base, server.url))
    assert said == "--client-secret-file, --redirect-uri and --issuer need --client-id"


def test_a_client_of_a_server_that_is_its_own_issuer(server: Protected, browser: list[str]) -> None:
    server.has_metadata = False
    server.attacks = {
        f"/.well-known/oauth-protected-resource{path}": lambda handler: handler.send_error(404)
        for path in ("", "/mcp")
    }
    ran = run_in_process("login", "--client-id", "fixed", server.url)
    assert (ran.status, browser) == (1, [])
    assert "--issuer" in ran.err
    done("login", "--client-id", "fixed", "--issuer", server.base, server.url)


def test_accounts(server: Protected, browser: list[str]) -> None:
    done("login", server.url)
    done("login", "--account", "work", server.url)
    assert len(server.tokens) == 2
    done("logout", server.url)
    assert run_in_process("call", server.url, "any").status == 1
    done("call", "--account", "work", server.url, "any")
    assert "account    work\n" in done("whoami")


def test_a_login_of_a_newer_release(server: Protected) -> None:
    files = FileCredentials()
    files.save(key_of(server), '{"version": 2}')
    said = failed(run_in_process("login", server.url))
    assert said == (
        f"The stored login to {server.url} was written by a newer release of sansmcp; "
        f"sansmcp logout {server.url} deletes it"
    )
    done("logout", server.url)
    assert files.load(key_of(server)) is None


def test_a_login_that_another_process_has_locked(
    server: Protected, browser: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sansmcp_cli._credentials._LOCK_INTERVAL", 0.0)
    other = FileCredentials()
    assert other.try_lock(key_of(server))
    assert failed_login(server) == "Another process has locked the stored login for 30 s"
    other.unlock(key_of(server))
    done("login", server.url)


# Showing logins


def test_logins_are_shown(server: Protected, browser: list[str]) -> None:
    said = "Not logged in to any server; log in with: sansmcp login URL"
    assert failed(run_in_process("whoami")) == said
    server.lifetime = 3540
    done("login", "--scope", "read", server.url)
    shown = done("whoami", server.url)
    assert shown == done("whoami")
    assert shown.splitlines() == [
        server.url,
        f"    issuer     {server.base}",
        "    client     c",
        "    scopes     read",
        "    token      valid for 59 min, will be refreshed",
        "    stored in  a file",
    ]
    assert failed(run_in_process("whoami", f"{server.url}/other")).startswith("Not logged in to ")


@pytest.mark.parametrize(
    ("lifetime", "has_refresh_token", "shown", "status"),
    [
        (-60, True, "expired, will be refreshed", 0),
        (-60, False, "expired", 1),
        (60, False, "valid for 1 min", 0),
        (None, True, "valid, as far as is known", 0),
    ],
)
def test_how_long_a_login_is_valid(
    server: Protected,
    browser: list[str],
    lifetime: int | None,
    has_refresh_token: bool,
    shown: str,
    status: int,
) -> None:
    server.lifetime, server.has_refresh_tokens = lifetime, has_refresh_token
    done("login", server.url)
    if lifetime == -60:
        expire(server)
    ran = run_in_process("whoami")
    assert f"    token      {shown}\n" in ran.out
    assert ran.status == status


def test_a_registration_is_not_a_login(
    server: Protected, browser: list[str], terminal: None
) -> None:
    server.error = "access_denied"
    assert run_in_process("call", server.url, "any").status == 1
    assert stored(server).clients != {}
    assert failed(run_in_process("whoami")).startswith("Not logged in to any server")


# The commands that use a server


def test_an_expired_token_is_refreshed(server: Protected, browser: list[str]) -> None:
    done("login", server.url)
    expire(server)
    done("call", server.url, "any")
    done("call", server.url, "any")
    assert [form.get("refresh_token") for form in server.forms] == [None, "refresh-1"]


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_call_at_a_terminal_logs_in(
    server: Protected, browser: list[str], terminal: None, adapter: str
) -> None:
    ran = run_in_process("call", "--json", server.url, "any", "--adapter", adapter)
    assert (ran.status, json.loads(ran.out)) == (0, {"content": []})
    assert ran.err == (
        f"Log in with the browser. If none has opened, open this URL:\n{browser[0]}\n"
    )
    done("call", server.url, "any", "--adapter", adapter)
    assert len(browser) == 1


@pytest.mark.parametrize("arguments", [("call", "any", "--json"), ("probe",)])
def test_a_terminal_without_a_browser(server: Protected, arguments: tuple[str, ...]) -> None:
    name, *tool = arguments
    ran = run_in_terminal(name, server.url, *tool, answer=answer)
    assert ran.status == 0
    assert "Open this URL in a browser" in ran.err
    assert ("streamable-http  yes" if name == "probe" else '{"content": []}') in ran.out
    assert len(server.tokens) == 1


def test_a_browser_of_the_environment(server: Protected, monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import sys, urllib.request as r; r.urlopen(sys.argv[1]).read()"
    monkeypatch.setenv("BROWSER", f"{sys.executable} -c '{program}' %s &")
    with started("login", server.url) as process:
        out, _ = process.communicate(timeout=60)
    assert out == f"Logged in to {server.url}\n"


def test_a_person_who_refuses_is_not_asked_again(
    server: Protected, browser: list[str], terminal: None
) -> None:
    server.error = "access_denied"
    ran = run_in_process("probe", server.url, "--timeout", "5")
    assert ran.status == 1
    assert "access_denied" in ran.out
    assert "http+sse" not in ran.out
    assert len(browser) == 1


def test_a_stored_login_that_has_ended_where_nobody_can_log_in(
    server: Protected, browser: list[str]
) -> None:
    server.has_refresh_tokens = False
    done("login", server.url)
    server.tokens.clear()
    ran = run_in_process("call", server.url, "any")
    assert ran.err == (
        "sansmcp: Authorization failed at the login: there is no terminal here; log in with: "
        f"sansmcp login {server.url}\n"
    )
    assert server.seen.count("/register") == 1


def test_a_header_replaces_the_login(server: Protected, browser: list[str], terminal: None) -> None:
    ran = run_in_process("call", server.url, "any", "--header", "authorization: Bearer x")
    assert ran.status == 1
    assert browser == []
    assert "HTTP 401" in ran.err


def test_the_secrets_of_a_url_are_not_in_the_advice(server: Protected) -> None:
    ran = run_in_process("call", f"{server.url}?key=sesame", "any")
    assert "Log in with: sansmcp login URL\n" in ran.err
    assert "sesame" not in ran.err


def test_a_host_in_a_private_network(
    server: Protected, browser: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server counts as a public one, and this machine, where it sends the client, does not."""

    def always_public(address: str) -> AddressClass:
        return AddressClass.PUBLIC

    monkeypatch.setattr("sansmcp.auth.reach.classify_address", always_public)
    ran = run_in_process("login", server.url)
    assert ran.err.splitlines()[1] == (
        "sansmcp: If you trust that host, allow it with --allow-host HOST"
    )
    done("login", "--allow-host", "127.0.0.1", server.url)


def test_a_server_that_registers_nobody(server: Protected, browser: list[str]) -> None:
    server.registers = False
    ran = run_in_process("login", server.url)
    assert ran.err.splitlines()[1] == (
        "sansmcp: Register a client there, and log in with: sansmcp login --client-id ID URL"
    )


# The keyring


@pytest.fixture
def system() -> Generator[TestKeyring, None, None]:
    """The keyring of the system during a test."""
    before, system = keyring.get_keyring(), TestKeyring()
    keyring.set_keyring(system)
    yield system
    keyring.set_keyring(before)


def test_a_login_in_the_keyring(
    server: Protected, browser: list[str], system: TestKeyring, config: Path
) -> None:
    done("login", server.url)
    done("login", "--keyring", server.url)
    expire(server, KeyringCredentials())
    assert FileCredentials().load(key_of(server)) is None
    assert len(system.secrets) == 1
    assert "stored in  the keyring\n" in done("whoami")
    done("call", server.url, "any")
    done("login", server.url)  # it stays there
    assert [b"token-" in file.read_bytes() for file in config.iterdir()] == [False, False]
    assert KeyringCredentials().load(key_of(server)) is not None
    done("logout", server.url)
    assert system.secrets == {}
    assert run_in_process("call", server.url, "any").status == 1


def test_a_system_without_a_keyring(server: Protected, browser: list[str]) -> None:
    before = keyring.get_keyring()
    keyring.set_keyring(fail.Keyring())  # type: ignore[no-untyped-call]
    try:
        said = failed(run_in_process("login", "--keyring", server.url))
    finally:
        keyring.set_keyring(before)
    assert said == "This system has no keyring, or none that runs"
    assert browser == []


# Wrong usage


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("login", "localhost"), "Not a URL, nor the name of a server: 'localhost'"),
        (("whoami", "localhost"), "Not a URL, nor the name of a server: 'localhost'"),
        (("logout", "http://user:secret@localhost/"), "must not contain a user name"),
        (("login", SOCKET), "Logins (OAuth 2.1) are for http and https URLs"),
        (("logout", SOCKET), "Logins (OAuth 2.1) are for http and https URLs"),
        (("whoami", SOCKET), "If it asks for a token, send it with --header"),
        (
            ("login", "--redirect-uri", "http://localhost/", "http://localhost/"),
            "--client-secret-file, --redirect-uri and --issuer need --client-id",
        ),
        (
            ("login", "--client-id", "a", "--client-secret-file", "nosuch", "http://localhost/"),
            "No such file or directory: 'nosuch'",
        ),
        (("login", "--scope", "\u00e9", "http://localhost/"), "scopes must be words"),
        (("login", "http://127.0.0.1:1/mcp"), "Connection refused"),
        (("login", "http://localhost/", "--", "server"), "What is 'server' for?"),
    ],
)
def test_wrong_usage_is_explained_in_one_line(arguments: tuple[str, ...], said: str) -> None:
    assert said in failed(run_in_process(*arguments))
