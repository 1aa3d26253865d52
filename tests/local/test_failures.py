"""Why a connection could not be opened: by the errors that the system and the libraries raise."""

from __future__ import annotations

import errno
import os
import socket
import ssl

import pytest

from sansmcp.http import Unsent
from sansmcp.http11.proxy import Proxy
from sansmcp_local import connect_failure, number_of, text_of

URL = "https://mcp.example:8443/mcp"
REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")


def wrapped(*causes: BaseException) -> Exception:
    """An error as trio and httpx raise it."""
    outer = OSError("all attempts to connect have failed")
    outer.__cause__ = causes[0] if len(causes) == 1 else Several(causes)
    return outer


class Several(Exception):
    """Several errors at once, like an ExceptionGroup of Python 3.11."""

    def __init__(self, exceptions: tuple[BaseException, ...]) -> None:
        super().__init__("several")
        self.exceptions = exceptions


def of_asyncio(*numbers: int) -> Exception:
    """The error of asyncio if several addresses of a name have failed differently."""
    texts = ", ".join(f"[Errno {number}] Connect call failed ('::1', 1)" for number in numbers)
    return OSError(f"Multiple exceptions: {texts}")


def of_windows(number: int) -> OSError:
    """The error of its proactor, whose ``errno`` is that of a wrong argument."""
    error = OSError(errno.EINVAL, "Invalid argument")
    error.winerror = number  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize(
    ("error", "unsent"),
    [
        (REFUSED, Unsent.REFUSED),
        (wrapped(REFUSED), Unsent.REFUSED),
        (of_windows(1225), Unsent.REFUSED),
        (of_windows(1231), Unsent.UNREACHABLE),
        (of_windows(10), Unsent.UNREACHABLE),
        (wrapped(REFUSED, REFUSED), Unsent.REFUSED),
        (of_asyncio(errno.ECONNREFUSED, errno.ECONNREFUSED), Unsent.REFUSED),
        (of_asyncio(errno.ECONNREFUSED, errno.ENETUNREACH), Unsent.UNREACHABLE),
        (FileNotFoundError(errno.ENOENT, "No such file", "/run/mcp.sock"), Unsent.REFUSED),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), Unsent.UNREACHABLE),
        (TimeoutError("timed out"), Unsent.UNREACHABLE),
        (OSError("of no number"), Unsent.UNREACHABLE),
        (ssl.SSLEOFError(8, "EOF occurred in violation of protocol"), Unsent.UNREACHABLE),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), Unsent.UNREACHABLE),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), Unsent.PERMANENT),
        (UnicodeError("label empty or too long"), Unsent.PERMANENT),
        (ssl.SSLCertVerificationError(1, "self-signed certificate"), Unsent.PERMANENT),
        (wrapped(ssl.SSLError(1, "wrong version number")), Unsent.PERMANENT),
    ],
)
def test_what_another_attempt_is_good_for(error: Exception, unsent: Unsent) -> None:
    assert connect_failure(error, "text", URL)[1] is unsent


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (ssl.SSLCertVerificationError(1, "self-signed certificate"), "SSL_CERT_FILE"),
        (ssl.SSLError(1, "wrong version number"), "write http:// instead of https://"),
        (socket.gaierror(socket.EAI_NONAME, "unknown"), "no host has the name 'mcp.example'"),
    ],
)
def test_what_to_change(error: Exception, advice: str) -> None:
    text, _ = connect_failure(wrapped(error), "text", URL)
    assert text.startswith("text; ")
    assert advice in text


def test_behind_a_proxy_no_plain_connection_is_advised() -> None:
    """A proxy that answers in place of the server would get the request, and its token."""
    error = ssl.SSLError(1, "wrong version number")
    text, unsent = connect_failure(error, "text", URL, Proxy.parse("http://proxy.corp:3128"))
    assert "or the proxy answers in its place" in text
    assert "write http://" not in text
    assert unsent is Unsent.PERMANENT


def test_a_circle_of_causes() -> None:
    first, second = OSError("a"), OSError("b")
    first.__cause__, second.__context__ = second, first
    assert connect_failure(first, "text", URL) == ("text", Unsent.UNREACHABLE)


def test_a_text_for_a_number_of_any_platform() -> None:
    assert number_of(of_windows(1225)) == errno.ECONNREFUSED
    assert number_of(of_windows(10)) == errno.EINVAL
    assert number_of(OSError("of no number")) is None
    assert text_of(errno.ECONNREFUSED) == "Connection refused"
    assert text_of(errno.ENOENT) == os.strerror(errno.ENOENT)
    for number in (errno.ECONNRESET, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT):
        assert text_of(number) == os.strerror(number)
