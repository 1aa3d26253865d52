"""The ``sansmcp`` command at our protected server, with a certified authorization server."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from ..cli.conftest import CompletedCommand, run_in_process, text_of
from .authorization_server import REDIRECT, AuthorizationServer, log_in, open_browser
from .test_two_processes import serving

pytestmark = pytest.mark.node


@pytest.fixture
def url(
    issuer: AuthorizationServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Generator[str, None, None]:
    """The URL of our protected server; a person with a browser logs in."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("APPDATA", str(tmp_path))
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("webbrowser.open", open_browser)
    with serving(issuer) as url:
        yield url


def done(*arguments: str) -> CompletedCommand:
    """Run a command that succeeds."""
    ran = run_in_process(*arguments)
    assert ran.status == 0, ran
    return ran


def paste(url: str) -> str:
    """Log in on another machine."""
    return str(log_in(url))


def test_a_client_that_registers_itself(issuer: AuthorizationServer, url: str) -> None:
    assert run_in_process("call", url, "who").status == 1
    done("login", "--scope", "use read", url)
    assert text_of(done("call", url, "who").out) == f"{issuer.issuer} ada: read use"
    assert "streamable-http  yes" in done("probe", url).out
    shown = done("whoami", url).out
    assert f"issuer     {issuer.issuer}\n" in shown
    assert "scopes     use read" in shown
    done("logout", url)
    assert run_in_process("call", url, "who").status == 1


def test_a_client_that_is_known_and_no_browser(
    issuer: AuthorizationServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sansmcp_cli._credentials.print_login", paste)
    client = ("--client-id", "desktop", "--redirect-uri", REDIRECT)
    done("login", "--no-browser", *client, url)
    assert text_of(done("call", url, "who").out) == f"{issuer.issuer} ada: use"


def test_a_call_at_a_terminal_is_asked_for_more(
    issuer: AuthorizationServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second login, for the tool, is refused: the client was not registered for its scope."""
    monkeypatch.setattr("sansmcp_cli._credentials.is_at_terminal", lambda: True)
    called = done("call", url, "wipe")
    assert text_of(called.out) == f"{issuer.issuer} ada: use write"
    assert called.err.count("Log in with the browser") == 3
