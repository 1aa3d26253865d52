"""Cookies: sent back to the origin that has set them, and to none else."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import ResponseHead, Url
from sansmcp.client.cookies import Cookies
from sansmcp.http import BodyEnd

from ..auth.bench import World
from .auth_harness import AuthHarness
from .harness import Asked, ClientHarness, response

HERE = "https://user.example/a/mcp?key=1"
DATE = "Wed, 21 Oct 2026 07:28:00 GMT"


def head(*cookies: str, date: str | None = DATE) -> ResponseHead:
    dates = () if date is None else ((b"date", date.encode()),)
    fields = tuple((b"set-cookie", each.encode("latin-1")) for each in cookies)
    return ResponseHead(status=200, headers=(*dates, *fields))


def sent(
    *cookies: str, first: str = HERE, then: str = HERE, after: float = 0, date: str | None = DATE
) -> str | None:
    """The cookies of a request, after a response that has set some."""
    jar = Cookies()
    jar.receive(Url.parse(first), head(*cookies, date=date), 100.0)
    found = jar.header_for(Url.parse(then), 100.0 + after)
    assert len(found) < 2
    return found[0][1].decode("latin-1") if found else None


@pytest.mark.parametrize(
    ("cookies", "header"),
    [
        (["a=1"], "a=1"),
        (["AWSALB=x/y+z==; Expires=Thu, 22 Oct 2026 07:28:00 GMT; Path=/"], "AWSALB=x/y+z=="),
        (["a=1; expires=Thu, 22-Oct-2026 07:28:00 GMT"], "a=1"),
        (['a="quoted, value"; HttpOnly; SameSite=None; Secure'], 'a="quoted, value"'),
        (["a=1", "b=2", "a=3"], "a=3; b=2"),
        (["a=1; Path=/", "b=2; Path=/a"], "b=2; a=1"),
        (["a=1; Path=/", "a=2; Path=/a"], "a=2; a=1"),
        ([" a = 1 ; PATH = / "], "a=1"),
        (["a="], "a="),
        (["a=1; Domain=example"], "a=1"),
        (["a=1; Path=/a/mcp"], "a=1"),
        (["a=1; Path=mcp"], "a=1"),
        (["a=1; Path=/a/mc"], None),
        (["a=1; Path=/b"], None),
        (["a=1; Path=/A"], None),
        (["a"], None),
        (["=1"], None),
        ([""], None),
        (["a=1\x01"], None),
        (["a=1\t2"], None),
        (["a\t=\t1 2\t"], "a=1 2"),
        (["a a=1"], "a a=1"),
        (["a=1", "a=; Max-Age=0"], None),
        (["a=1", "a=2; Max-Age=-5"], None),
        (["a=1; Max-Age=60; Expires=Thu, 01 Jan 1970 00:00:00 GMT"], "a=1"),
        (["a=1; Max-Age=x"], "a=1"),
        (["a=1", "a=; Expires=Thu, 01 Jan 1970 00:00:00 GMT"], None),
        (["a=1", "b=2", "a=; Expires=Wed, 21 Oct 2026 07:27:59 GMT"], "b=2"),
        (["a=1; Expires=tomorrow"], "a=1"),
        (["__Secure-a=1; Secure"], "__Secure-a=1"),
        (["__Secure-a=1"], None),
        (["__Host-a=1; Secure; Path=/"], "__Host-a=1"),
        (["__Host-a=1; Secure"], None),
        (["a=" + "x" * 4095], "a=" + "x" * 4095),
        (["a=" + "x" * 4096], None),
        ([f"n{i}=1" for i in range(25)], "; ".join(f"n{i}=1" for i in range(5, 25))),
        (["a=1; Path=/" + "x" * 1023], None),
        (["a=1; Path=/" + "x" * 1024], "a=1"),
        (["a=1; Max-Age=" + "0" * 1025], "a=1"),
    ],
)
def test_what_is_sent_back(cookies: list[str], header: str | None) -> None:
    assert sent(*cookies) == header


@pytest.mark.parametrize("field", ["a=x{}\tx", "a=x{}\x7f", "{}x", "a{}x", "x;{}", "x;a{}b"])
def test_blanks_take_linear_time(field: str) -> None:
    """A search that tries each way to divide them would take days."""
    assert sent(field.format(" " * 60_000)) is None


@pytest.mark.parametrize(
    ("first", "then", "is_sent"),
    [
        (HERE, "https://user.example/a/messages", True),
        (HERE, "https://user.example/a/mcp/deeper", True),
        (HERE, "https://user.example/", False),
        (HERE, "https://user.example/ab", False),
        (HERE, "http://user.example/a/mcp", False),
        (HERE, "https://user.example:8443/a/mcp", False),
        (HERE, "https://api.user.example/a/mcp", False),
        (HERE, "https://other.example/a/mcp", False),
        ("https://user.example", "https://user.example/mcp", True),
    ],
)
def test_where_it_is_sent(first: str, then: str, is_sent: bool) -> None:
    assert (sent("a=1; Domain=user.example", first=first, then=then) is not None) is is_sent


def test_a_secure_cookie_is_not_taken_without_tls() -> None:
    plain = "http://user.example/mcp"
    assert sent("a=1; Secure", "b=2", first=plain, then=plain) == "b=2"


def test_a_cookie_ends() -> None:
    assert sent("a=1; Max-Age=60", after=59) == "a=1"
    assert sent("a=1; Max-Age=60", after=60) is None
    tomorrow = "a=1; Expires=Thu, 22 Oct 2026 07:28:00 GMT"
    assert sent(tomorrow, after=86_399) == "a=1"
    assert sent(tomorrow, after=86_400) is None


def test_those_that_have_ended_go_first() -> None:
    """A balancer's cookie is set once or always; others fill the place for cookies."""
    jar = Cookies()
    jar.receive(Url.parse(HERE), head("kept=1", *(f"n{i}=1; Max-Age=9" for i in range(19))), 0.0)
    jar.receive(Url.parse(HERE), head(*(f"m{i}=1" for i in range(19))), 9.0)
    expected = "; ".join(["kept=1", *(f"m{i}=1" for i in range(19))])
    assert jar.header_for(Url.parse(HERE), 9.0) == ((b"cookie", expected.encode()),)


def test_one_that_is_renewed_stays() -> None:
    """It keeps its place in the header, and is not the next to go."""
    jar = Cookies()
    jar.receive(Url.parse(HERE), head("balancer=1", *(f"n{i}=1" for i in range(19))), 0.0)
    jar.receive(Url.parse(HERE), head("balancer=2", "new=1"), 0.0)
    expected = "; ".join(["balancer=2", *(f"n{i}=1" for i in range(1, 19)), "new=1"])
    assert jar.header_for(Url.parse(HERE), 0.0) == ((b"cookie", expected.encode()),)


def test_without_a_date_of_the_response_only_old_dates_delete() -> None:
    assert sent("a=1; Expires=Thu, 22 Oct 2026 07:28:00 GMT", date=None) == "a=1"
    assert sent("a=1", "a=; Expires=Thu, 01-Jan-1970 00:00:00 GMT", date=None) is None


def test_another_origin_starts_anew() -> None:
    jar = Cookies()
    jar.receive(Url.parse(HERE), head("a=1"), 0.0)
    other = Url.parse("https://other.example/mcp")
    jar.receive(other, head("b=2"), 0.0)
    assert jar.header_for(Url.parse(HERE), 0.0) == ()
    assert jar.header_for(other, 0.0) == ((b"cookie", b"b=2"),)


def test_values_are_not_shown() -> None:
    jar = Cookies()
    jar.receive(Url.parse(HERE), head("a=hunter2"), 0.0)
    assert "hunter2" not in repr(jar.found)


# The client


def begun(**settings: Any) -> tuple[ClientHarness, Asked]:
    """A client whose ``initialize`` was answered with a cookie, and its next request."""
    harness = ClientHarness(**settings)
    harness.run_command(harness.client.start)
    asked = harness.take()
    assert asked.header("cookie") is None
    result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s"}}
    asked.answer(response(asked.id, result), set_cookie="AWSALB=hunter2; Path=/")
    return harness, harness.take()


def test_a_client_stays_with_its_instance() -> None:
    harness, asked = begun(standalone_stream=True)
    assert asked.header("cookie") == "AWSALB=hunter2"
    assert "hunter2" not in repr(asked.effect)
    asked.refuse(202, set_cookie="AWSALB=2; Path=/")
    stream = harness.take("GET")
    assert stream.header("cookie") == "AWSALB=2"
    _, called = harness.call()
    assert called.header("cookie") == "AWSALB=2"
    called.refuse(307, location="/other", set_cookie="AWSALB=3; Path=/")
    again = harness.take()
    assert (again.effect.url, again.header("cookie")) == ("http://localhost:8000/other", "AWSALB=3")


@pytest.mark.parametrize("settings", [{"cookies": False}, {"headers": {"Cookie": "own=1"}}])
def test_a_client_can_do_without(settings: Any) -> None:
    harness = ClientHarness(**settings)
    harness.run_command(harness.client.start)
    asked = harness.take()
    asked.head(503, set_cookie="a=1")
    asked.feed(BodyEnd())
    harness.wait(10)
    again = harness.take()
    assert again.header("cookie") == ("own=1" if "headers" in settings else None)


def test_cookies_do_not_outlive_a_login_nor_reach_the_authorization_server() -> None:
    world = World(lifetime=100.0, gives_refresh=True)
    harness = AuthHarness(world=world)
    harness.run_command(harness.client.start)
    asked = harness.take()
    asked.refuse(401, www_authenticate="Bearer", set_cookie="a=1; Path=/")
    again = harness.take()
    assert again.header("authorization") == "Bearer token-1"
    assert again.header("cookie") is None
    again.head(503, set_cookie="a=2; Path=/")
    again.feed(BodyEnd())
    world.wall_time += 200
    harness.wait(10)
    refreshed = harness.take()
    assert refreshed.header("authorization") == "Bearer token-2"
    assert refreshed.header("cookie") == "a=2"  # a refresh is no login
    names = {name for effect in harness.exchanges for name, _ in effect.head.headers}
    assert b"cookie" not in names
