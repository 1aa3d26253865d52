"""The frontmatter of skills: YAML that every reader reads alike, as JSON."""

from __future__ import annotations

from typing import Any, cast

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sansmcp_local import parse_frontmatter


def test_what_every_reader_reads_alike_has_a_type_and_the_rest_is_text() -> None:
    text = """\
name: refunds
description: >-
  Two
  lines
day: 2026-11-28
octal: 010
also-octal: 0o10
hexadecimal: 0x10
time: 1:30
answer: yes
infinite: .inf
true: true
empty:
none: ~
number: -12
fraction: 1.5
quoted: "12"
list: [1, b, {c: d}]
1: one
<<: {a: b}
"""
    assert parse_frontmatter(f"---\n{text}---\nBody") == {
        "name": "refunds",
        "description": "Two lines",
        "day": "2026-11-28",
        "octal": "010",
        "also-octal": "0o10",
        "hexadecimal": "0x10",
        "time": "1:30",
        "answer": "yes",
        "infinite": ".inf",
        "true": True,
        "empty": None,
        "none": None,
        "number": -12,
        "fraction": 1.5,
        "quoted": "12",
        "list": [1, "b", {"c": "d"}],
        "1": "one",
        "<<": {"a": "b"},
    }


@pytest.mark.parametrize(
    "text", ["---\na: 1\n---", "\ufeff---\r\na: 1\r\n---\r\nBody", "--- \na: 1\n---\n---\n"]
)
def test_how_it_is_marked(text: str) -> None:
    assert parse_frontmatter(text) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "does not begin with frontmatter"),
        ("# Title\n---\na: 1\n---\n", "does not begin with frontmatter"),
        ("---\na: 1\n", "does not begin with frontmatter"),
        (f"---\na: {'x' * 40_000}\n---\n", "more than 32768 characters"),
        ("---\n---\n", "not a mapping"),
        ("---\n- 1\n---\n", "not a mapping"),
        ("---\na: 1\na: 2\n---\n", "has the key 'a' twice"),
        ("---\n? [a]\n: 1\n---\n", "a key is not a text"),
        ("---\na: &b 1\nc: *b\n---\n", "aliases are not supported"),
        ("---\na: !!python/name:os.system\n---\n", "tags are not supported"),
        ("---\na: !!bool maybe\n---\n", "tags are not supported"),
        ("---\na: " + "[" * 10_000 + "\n---\n", "nests more than 32 levels"),
        ("---\na: \x01\n---\n", "cannot be read"),
        ("---\na: [\n---\n", "cannot be read"),
        ('---\na: "\\UFFFFFFFF"\n---\n', "cannot be read"),
        ('---\na: "\\uD800"\n---\n', "surrogates"),
        ('---\n"\\uD800": a\n---\n', "surrogates"),
    ],
)
def test_what_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_frontmatter(text)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**17), 10**17)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=4))
def test_what_is_dumped_is_read_back(members: dict[str, Any]) -> None:
    dump = cast("Any", yaml).safe_dump
    dumped = dump(members, default_style='"', allow_unicode=False)
    try:
        found = parse_frontmatter(f"---\n{dumped}---\n")
    except ValueError as error:
        assert "tags are not supported" in str(error)
        return
    assert found == members


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = parse_frontmatter(f"---\n{text}\n---\n")
    except ValueError:
        return
    assert all(isinstance(key, str) for key in found)
