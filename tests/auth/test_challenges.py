"""``WWW-Authenticate`` in every form that servers send."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp.auth.challenges import Challenge, find_challenge, parse_challenges

URL = "https://h.example/.well-known/oauth-protected-resource/mcp"

Forms = dict[str, tuple[list[str], list[tuple[str, dict[str, str]]]]]

FORMS: Forms = {
    "nothing but a scheme": (["Bearer"], [("bearer", {})]),
    "no parameter": (["Bearer   "], [("bearer", {})]),
    "quoted": ([f'Bearer resource_metadata="{URL}"'], [("bearer", {"resource_metadata": URL})]),
    "plain": ([f"Bearer resource_metadata={URL}"], [("bearer", {"resource_metadata": URL})]),
    "any case": (['BEARER Scope="a b"'], [("bearer", {"scope": "a b"})]),
    "comma in quotes": (
        ['Bearer realm="a, b=c", scope=x'],
        [("bearer", {"realm": "a, b=c", "scope": "x"})],
    ),
    "escapes": (
        [r'Bearer realm="a\"b\\c", scope=x'],
        [("bearer", {"realm": 'a"b\\c', "scope": "x"})],
    ),
    "spaces around =": (
        ['Bearer scope = "a" ,error = b'],
        [("bearer", {"scope": "a", "error": "b"})],
    ),
    "empty elements": (
        [', ,Bearer scope="a",, error=b,'],
        [("bearer", {"scope": "a", "error": "b"})],
    ),
    "empty value": (['Bearer scope=""'], [("bearer", {"scope": ""})]),
    "repeated": (["Bearer scope=a, scope=b, SCOPE=c"], [("bearer", {"scope": "a"})]),
    "two in a line": (
        ['Basic realm="x", Bearer scope="a"'],
        [("basic", {"realm": "x"}), ("bearer", {"scope": "a"})],
    ),
    "two lines": (["Basic", "Bearer scope=a"], [("basic", {}), ("bearer", {"scope": "a"})]),
    "a list over two lines": (
        ["Bearer scope=a", "error=b"],
        [("bearer", {"scope": "a", "error": "b"})],
    ),
    "token68": (
        ["Negotiate abc==, Bearer error=b"],
        [("negotiate", {}), ("bearer", {"error": "b"})],
    ),
    "token68 alone": (["Negotiate a/b+c=="], [("negotiate", {})]),
    "token68 without padding": (["Negotiate abc , Bearer"], [("negotiate", {}), ("bearer", {})]),
    "parameters without a scheme": (["scope=a, Bearer error=b"], [("bearer", {"error": "b"})]),
    "malformed element": (
        ["Bearer scope=a, @@@, error=b"],
        [("bearer", {"scope": "a", "error": "b"})],
    ),
    "unclosed quotes": (
        ['Bearer error=b, scope="a, resource_metadata=https://evil.example'],
        [("bearer", {"error": "b"})],
    ),
    "not ASCII": (['Bearer realm="\xe9"'], [("bearer", {"realm": "\xe9"})]),
    "nothing": ([], []),
    "empty": ([""], []),
}


@pytest.mark.requirement("AUTH-C-005")
@pytest.mark.parametrize(("lines", "expected"), FORMS.values(), ids=FORMS)
def test_forms(lines: list[str], expected: list[tuple[str, dict[str, str]]]) -> None:
    found = parse_challenges([line.encode("latin-1") for line in lines])
    assert [(each.scheme, dict(each.parameters)) for each in found] == expected


@pytest.mark.parametrize(
    ("line", "scheme"),
    [
        (b"Basic, Bearer, DPoP", "bearer"),
        (b"Basic, DPoP, Bearer", "dpop"),
        (b"Basic realm=x", None),
        (b"", None),
    ],
)
def test_the_first_of_bearer_and_dpop_counts(line: bytes, scheme: str | None) -> None:
    found = find_challenge([line])
    assert (None if found is None else found.scheme) == scheme


def test_what_a_challenge_says() -> None:
    full = find_challenge([b'Bearer error="x", scope="a b a", resource_metadata="u"'])
    assert full is not None
    assert (full.error, full.scopes, full.resource_metadata) == ("x", ("a", "b"), "u")
    bare = Challenge("bearer")
    assert (bare.error, bare.scopes, bare.resource_metadata) == ("", (), None)


@pytest.mark.parametrize("scope", [" a", "a ", "a  b", 'a\\"b', "a\tb", "\xe9", ""])
def test_a_malformed_scope_counts_as_none(scope: str) -> None:
    found = find_challenge([f'Bearer scope="{scope}"'.encode("latin-1")])
    assert found is not None
    assert found.scopes == ()


@given(st.lists(st.binary(max_size=60), max_size=4))
def test_anything_is_read(lines: list[bytes]) -> None:
    parse_challenges(lines)


_PIECES = ["Bearer ", "scope=", '"', "\\", ",", " ", "a", "=", "@", "\t"]


@given(st.lists(st.sampled_from(_PIECES), max_size=40).map("".join))
def test_almost_right_challenges_are_read(line: str) -> None:
    for each in parse_challenges([line.encode()]):
        assert each.scheme == each.scheme.lower()


@pytest.mark.parametrize("piece", ['"', "a=", 'a="', "a ", "\\", '"\\', "a,", "@ "])
def test_reading_takes_linear_time(piece: str) -> None:
    parse_challenges([b"Bearer " + piece.encode() * 100_000])  # quadratic, it would take minutes
