"""Secrets hide themselves, and long values are cut."""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from typing import Any

import attrs
import pytest

from sansmcp import RequestHead, ResponseHead, Secret
from sansmcp.effects import OpenExchange, StartProcess
from sansmcp.types import (
    Shown,
    Value,
    elide,
    escape_controls,
    hide_arguments,
    hide_credentials,
    hide_program,
    hide_secrets,
    redact,
)


def test_a_secret_shows_its_length_only() -> None:
    secret = Secret("hunter2")
    assert "hunter2" not in f"{secret} {secret!r} {[secret]}"
    assert "7" in repr(secret)
    assert secret.reveal() == "hunter2"


def test_secrets_compare_by_value() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert {Secret("ä"): 1}[Secret("ä")] == 1


def test_redact() -> None:
    assert redact("abc") == "<secret of 3 characters>"
    assert redact(b"abc") == "<secret of 3 characters>"
    assert redact(None) == "None"


@pytest.mark.parametrize("value", ["x" * 1000, b"x" * 1000, ["x" * 1000], bytearray(1000)])
def test_long_values_are_cut(value: object) -> None:
    assert len(elide(value)) < 350


def test_short_values_are_shown() -> None:
    assert elide({"a": 1}) == "{'a': 1}"


@pytest.mark.requirement("SESSION-C-001")
def test_headers_that_hold_secrets_are_not_shown() -> None:
    headers = (
        (b"authorization", b"Bearer xyz"),
        (b"mcp-session-id", b"xyz"),
        (b"last-event-id", b"xyz"),
        (b"cookie", b"xyz"),
        (b"host", b"here"),
    )
    for head in (
        RequestHead(method=b"GET", target=b"/", headers=headers),
        ResponseHead(status=200, headers=headers),
    ):
        assert "xyz" not in repr(head)
        assert "here" in repr(head)


def test_only_harmless_headers_show_their_values() -> None:
    """A credential may be in a header of any name, and in the query."""
    headers = ((b"x-api-key", b"xyz"), (b"content-type", b"text/plain"))
    for head in (
        RequestHead(method=b"GET", target=b"/mcp?key=xyz", headers=headers),
        ResponseHead(status=200, headers=headers),
    ):
        shown = repr(OpenExchange(exchange=1, url="http://h/mcp?key=xyz", head=head, body=b""))  # type: ignore[arg-type]
        assert "xyz" not in shown
        assert "x-api-key" in shown
        assert "text/plain" in shown
    assert "b'/mcp?...'" in repr(RequestHead(method=b"GET", target=b"/mcp?key=xyz", headers=()))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://localhost:8000/mcp", "http://localhost:8000/mcp"),
        ("http://h/mcp?key=//secret#part", "http://h/mcp?..."),
        ("/messages?session_id=secret", "/messages?..."),
        ("/mcp#secret", "/mcp#..."),
        ("http://a-host-with-a-long-name-1.example/mcp", None),
        ("/messages/5f0c9a7e5f0c9a7e5f0c9a7e/x", "/messages/.../x"),
        ("/messages/AbcdefghIjklmnopQrstuv", "/messages/..."),
        ("/internationalization-of-names", None),
    ],
)
def test_urls_for_people(url: str, shown: str | None) -> None:
    assert hide_secrets(url) == (shown or url)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://user:pass/w?rd@h/mcp", "http://...@h/mcp"),
        ("user:password@h", "...@h"),
        ("SECRET:@h", "...@h"),
        ("SECRET:@h:8080/mcp", "...@h:8080/mcp"),
        ("http.SECRET:@h", "...@h"),
        ("SECRET://x@h/mcp", "...@h/mcp"),
        ("httpsSECRET://x@h", "...@h"),
        ("http+unix://%2Frun@h", "http+unix://...@h"),
        ("redis://:secret@h", "redis://...@h"),
        ("https:user:secret@h", "https:...@h"),
        ("Socks5h:user:secret@h", "Socks5h:...@h"),
        ("ftp://h/x?secret", "ftp://h/x?..."),
    ],
)
def test_what_was_meant_as_a_url(text: str, shown: str) -> None:
    assert hide_credentials(text) == shown


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("python -m server", None),
        ("npx -y @modelcontextprotocol/server-filesystem /home/me/notes.d", None),
        ("docker run -i --rm -e KEY=secret mcp/git", "docker run -i --rm -e ... mcp/git"),
        ("uvx server --api-key secret run", "uvx server --api-key ... run"),
        ("uvx server --api-key=secret run", "uvx server --api-key=... run"),
        ("env API_KEY=secret server", "env API_KEY=... server"),
        ("server -psecret -k secret", "server -... -k ..."),
        ("server --=secret --secret5ecret", "server --=... -..."),
        ("server postgres://me:secret@h/db?key=secret", "server postgres://...@h/db?..."),
        ("server me:secret@h", "server ...@h"),
        ("server secret://x@h", "server ...@h"),
        ("server https://h/aSecretOfTwentyLetters", "server https://h/..."),
        ("server /mnt/aSecretOfTwentyLetters/x", "server /mnt/.../x"),
        ("server sk-5ecret", "server ..."),
        ('server {"key":"secret"}', "server ..."),
        ("server -- word", None),
        ("npx run", None),
    ],
)
def test_commands_for_people(command: str, shown: str | None) -> None:
    """Configuration files have credentials among the arguments of servers."""
    words = tuple(command.split(" "))
    assert hide_arguments(words) == (shown or command)
    assert repr(StartProcess(words)) == f"StartProcess(command={shown or command!r})"


def test_an_argument_with_spaces_is_hidden() -> None:
    """Headers look so, and URLs that are none."""
    for word in ("Authorization: Bearer abc", "postgres://h/a b"):
        assert hide_arguments(("server", word)) == "server ..."
    assert hide_arguments(("server", "postgres://me:a b@h")) == "server postgres://...@h"
    assert hide_arguments(()) == ""


@pytest.mark.parametrize(
    ("program", "shown"),
    [
        ("/usr/bin/python3", None),
        (r"C:\Program Files\nodejs\npx.cmd", None),
        ("npx -y server --key secret", "npx ..."),
        ("npx @a/server secret", "npx @a/server ..."),
        ("psql postgres://me:secret@h/db", "psql ..."),
    ],
)
def test_a_program_with_arguments_in_its_name(program: str, shown: str | None) -> None:
    """People write a whole line as the "command" of a configuration file."""
    assert hide_program(program) == (shown or program)


SHAPED = re.compile(
    "ARABIC (NUMBER|SIGN|FOOTNOTE|DATE|POUND|PIASTRE|END|DISPUTED)|SYRIAC|KAITHI|EGYPTIAN"
)
"""Names of format characters that have a shape, such as a sign under a number."""


def test_what_a_terminal_acts_on_or_hides_is_escaped() -> None:
    """Every control, format character, line separator and surrogate, but those with a shape."""
    hidden = [
        char
        for char in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        and not SHAPED.match(unicodedata.name(char, ""))
    ]
    assert len(hidden) > 2200
    for char in hidden:
        escaped = escape_controls(f"a{char}b")
        assert escaped.isascii()
        assert escaped.isprintable()
        assert escaped.startswith("a\\u")
        assert json.loads(f'"{escaped}"') == f"a{char}b"


IGNORABLE = (
    *(0x00AD, 0x034F, 0x061C, *range(0x115F, 0x1161), *range(0x17B4, 0x17B6)),
    *(*range(0x180B, 0x1810), *range(0x200B, 0x2010), *range(0x202A, 0x202F)),
    *(*range(0x2060, 0x2070), 0x3164, *range(0xFE00, 0xFE10), 0xFEFF, 0xFFA0),
    *(*range(0xFFF0, 0xFFF9), *range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B)),
    *range(0xE0000, 0xE1000),
)
"""DerivedCoreProperties.txt of Unicode 14 to 17: Default_Ignorable_Code_Point."""


@pytest.mark.parametrize("before", ["", "a", "ㅎ", "7", "\u202e"])
def test_what_is_shown_by_nothing_is_escaped(before: str) -> None:
    """Among others, two texts that look alike are told apart."""
    for char in map(chr, IGNORABLE):
        assert escape_controls(f"{before}{char}b").isascii() is (before != "ㅎ")
        assert char not in escape_controls(f"{before}{char}{char}b")


def test_nothing_else_is_escaped() -> None:
    ignorable = frozenset(IGNORABLE)
    kept = "".join(
        char
        for char in map(chr, range(sys.maxunicode + 1))
        if ord(char) not in ignorable
        and unicodedata.category(char) not in ("Cc", "Cs", "Zl", "Zp")
        and not "\ufff9" <= char <= "\ufffb"
    )
    assert escape_controls(kept) == kept


def test_the_selector_of_an_emoji_is_kept_once() -> None:
    for text in ("❤\ufe0f", "1\ufe0f\u20e3", "⚠\ufe0f!", "\U0001f3f3\ufe0f", "©\ufe0f"):
        assert escape_controls(text) == text
    assert escape_controls("❤\ufe0f\ufe0f") == "❤\ufe0f\\ufe0f"


@pytest.mark.parametrize("text", ["", "plain ä 漢 🙂", "שלום", "a\\b"])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert escape_controls(text) == text


# Classes of attrs without generated methods


def shown(text: str) -> str:
    return f"<{text}>"


@attrs.frozen(eq=False, repr=False)
class Ours(Value):
    a: int
    b: str = attrs.field(default="b", repr=False)
    c: str = attrs.field(default="c", repr=shown)
    d: list[int] = attrs.field(factory=list[int], eq=False)


@attrs.frozen(eq=False, repr=False)
class MoreOurs(Ours):
    e: int = 1


def generated(kind: type[Ours]) -> type[Any]:
    """A class with the same fields whose methods attrs has generated."""
    fields = {
        field.name: attrs.field(default=field.default, repr=field.repr, eq=field.eq)
        for field in attrs.fields(kind)
    }
    return attrs.make_class(kind.__name__, fields, frozen=True)


@pytest.mark.parametrize("kind", [Ours, MoreOurs])
def test_methods_of_values_do_what_those_of_attrs_do(kind: Any) -> None:
    other = generated(kind)
    for values in ((1,), (1, "x"), (1, "b", "x"), (1, "b", "c", [1]), (2, "b", "c", [1])):
        assert repr(kind(*values)) == repr(other(*values))
        for more in ((1,), (1, "x"), (1, "b", "x"), (1, "b", "c", [2])):
            is_equal = kind(*values) == kind(*more)
            assert is_equal == (other(*values) == other(*more))
            assert (kind(*values) != kind(*more)) == (not is_equal)
            assert len({kind(*values), kind(*more)}) == 2 - is_equal


def test_values_of_two_classes_are_not_equal() -> None:
    assert Ours(1) != MoreOurs(1)
    assert Ours(1).__eq__(1) is NotImplemented


def test_a_class_that_is_shown_only_is_equal_to_itself() -> None:
    @attrs.frozen(eq=False, repr=False)
    class Other(Shown):
        a: int

    one, two = Other(1), Other(1)
    assert repr(one) == repr(two) == "Other(a=1)"
    assert one != two
    assert len({one, two}) == 2
