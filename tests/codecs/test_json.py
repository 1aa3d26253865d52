"""JSON: strict rules, and two implementations that cannot be told apart."""

from __future__ import annotations

import importlib
import json as standard
import math
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import LocalProtocolError, RemoteProtocolError
from sansmcp.codecs import json

requirement = pytest.mark.requirement
Outcome = tuple[str, Any]

DIGITS = min(json.MAX_DIGITS, sys.get_int_max_str_digits() or json.MAX_DIGITS)
"""How many digits a number may have, which ``PYTHONINTMAXSTRDIGITS`` may lower."""

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)


def outcome(decode: Callable[[bytes, int], Any], data: bytes, depth: int = 64) -> Outcome:
    try:
        return "value", decode(data, depth)
    except RemoteProtocolError as error:
        assert error.jsonrpc_code == -32700
        return "refused", error.reason


def both(data: bytes, depth: int = 64) -> Outcome:
    """What both implementations say, which has to be the same."""
    fast, plain = outcome(json.decode, data, depth), outcome(json.decode_stdlib, data, depth)
    assert repr(fast) == repr(plain)
    return fast


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff", "invalid_utf8"),
        (b'"\xed\xa0\x80"', "invalid_utf8"),
        (b'{"a":"\xc3"}', "invalid_utf8"),
        (b"", "malformed_json"),
        (b" ", "malformed_json"),
        (b"{", "malformed_json"),
        (b"[[", "malformed_json"),
        (b"nul", "malformed_json"),
        (b"NaN", "malformed_json"),
        (b"[Infinity]", "malformed_json"),
        (b"-Infinity", "malformed_json"),
        (b"{} {}", "malformed_json"),
        (b'{"a":1,}', "malformed_json"),
        (b"[1,]", "malformed_json"),
        (b"{'a':1}", "malformed_json"),
        (b"{a:1}", "malformed_json"),
        (b"01", "malformed_json"),
        (b"1.", "malformed_json"),
        (b".5", "malformed_json"),
        (b"+1", "malformed_json"),
        (b"0x1", "malformed_json"),
        (b'"a\x00b"', "malformed_json"),
        (b'"a\nb"', "malformed_json"),
        (b'"\\x"', "malformed_json"),
        (b'"\\u12g4"', "malformed_json"),
        (b"\xef\xbb\xbf{}", "malformed_json"),
        (b"\xa0", "invalid_utf8"),
        ("\u00a01".encode(), "malformed_json"),
        (b'"\\ud800"', "lone_surrogate"),
        (b'"\\uD800"', "lone_surrogate"),
        (b'"\\uDfFf"', "lone_surrogate"),
        (b'["\\udc00 \\ud83d"]', "lone_surrogate"),
        (b'{"\\ud800":1}', "lone_surrogate"),
        (b'{"\\uD800":1}', "lone_surrogate"),
        (b'{"a":1,"a":2}', "duplicate_name"),
        (b'{"a" :1,"a" :2}', "duplicate_name"),
        (b'[{"x":{"a":1,"b":2,"a":{}}}]', "duplicate_name"),
        (b'{"a":1,"\\u0061":2}', "duplicate_name"),
        (b'{"a":1,"a":"\\u003a"}', "duplicate_name"),
        (b'{"a":1,"a":"\\u003A"}', "duplicate_name"),
        (b'{"a":"\\"b\\":1","a":1}', "duplicate_name"),
        (b'{"\\\\":1,"\\\\":2}', "duplicate_name"),
        (b"1e999", "number_too_large"),
        (b"[-1e999]", "number_too_large"),
        (b"9" * 4301, "number_too_large"),
        (b"-" + b"9" * 4300, "number_too_large"),
        (b"9" * 400 + b".5", "number_too_large"),
        (b"[" * 65 + b"]" * 65, "too_deep"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "too_deep"),
        (b"[" * 100_000, "too_deep"),
        (b"[" * 100_000 + b"]" * 100_000, "too_deep"),
        (b'[{"a":' * 50_000, "too_deep"),
        (b'["' + b"x" * 2000 + b'",' + b"[" * 64 + b"]" * 65, "too_deep"),
        (b'["[' + b"x" * 2000 + b'",' + b"[" * 64 + b"]" * 65, "too_deep"),
        (b'["\\n' + b"x" * 2000 + b'",' + b"[" * 64 + b"]" * 65, "too_deep"),
    ],
)
@requirement("JSONRPC-B-023", "JSONRPC-B-002")
def test_doubtful_documents_are_refused(data: bytes, reason: str) -> None:
    assert both(data) == ("refused", reason)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b" {} ", {}),
        (b"[" * 64 + b"]" * 64, None),
        (b'["[[[[{{{{",{"\\"[[[":"]"}]', ["[[[[{{{{", {'"[[[': "]"}]),
        (b'["' + b"[" * 2000 + b'"]', ["[" * 2000]),
        (b'["\\n' + b"[" * 2000 + b'"]', ["\n" + "[" * 2000]),
        (
            b'{"a":{"a":{"a":1}},"b":[{"a":1},{"a":2}]}',
            {"a": {"a": {"a": 1}}, "b": [{"a": 1}, {"a": 2}]},
        ),
        (b'{"text":"{\\"a\\":1,\\"a\\":2}"}', {"text": '{"a":1,"a":2}'}),
        (b'{ "a" : 1 ,\n"b"\t:[ ":" , ":\\"" ]}', {"a": 1, "b": [":", ':"']}),
        (b'{"A":1,"a":2}', {"A": 1, "a": 2}),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"\\u2028\\u0000"', "\u2028\0"),
        (b"9" * DIGITS, 10**DIGITS - 1),
        (b"18446744073709551616", 2**64),
        (b"-0", 0),
        (b"1E5", 1e5),
        (b"1e-999", 0.0),
        (b"0." + b"1" * 5000, 1 / 9),
        (b"1.0", 1.0),
        (b"[true,false,null]", [True, False, None]),
    ],
)
def test_sound_documents_are_read_exactly(data: bytes, value: Any) -> None:
    kind, read = both(data)
    assert kind == "value"
    if value is not None:
        assert read == value


def test_the_depth_limit_is_exact() -> None:
    for depth in (1, 2, 64, 200):
        sound = b"[" * depth + b"]" * depth
        assert both(sound, depth)[0] == "value"
        assert both(b"[" + sound + b"]", depth) == ("refused", "too_deep")


DEEP = [
    b"[" * 5000,
    b"[" * 5000 + b"]" * 5000,
    b'{"":' * 5000,
    b'["\\n]]]]",' * 5000,
    b'["]]]]]",' * 5000 + b"1" + b"]" * 5000,
    b'["\\"]]]]","\\\\",' * 5000,
    b"[]" * 3000 + b"[" * 5000,
]


@pytest.mark.parametrize("data", DEEP)
def test_nothing_recurses_before_brackets_are_counted(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C code overflowed the stacks of threads on CPython 3.13."""

    def recurse(*_: object) -> None:
        raise AssertionError("a parser was asked")

    monkeypatch.setattr(json, "_read", recurse)
    monkeypatch.setattr(json, "_PLAIN", None)
    assert both(data) == ("refused", "too_deep")


@pytest.mark.parametrize(
    ("data", "values"),
    [
        (b"[1,2,3]", 4),
        (b'{"a":1,"b":[2]}', 4),
        (b"[[],{}]", 5),
        (b'["[,,,{", "\\",[,{", "\\\\"]', 4),
        (b'["[,,,{", "' + b"x[" * 70_000 + b',[,{", 1]', 4),
        (b'"' + b",[" * 100_000 + b'"', 1),
        (b'["' + b'\\",[' * 50_000 + b'",1]', 3),
    ],
)
def test_values_are_counted_exactly(data: bytes, values: int) -> None:
    """Bytes alone bound neither work nor memory."""
    for decode in (json.decode, json.decode_stdlib):
        with pytest.raises(RemoteProtocolError) as caught:
            decode(data, 64, values - 1)
        assert (caught.value.reason, caught.value.jsonrpc_code) == ("too_many_values", -32700)
        try:
            decode(data, 64, values)
        except RemoteProtocolError as error:
            assert error.reason == "malformed_json"


def test_an_interpreter_that_reads_fewer_digits_refuses_more() -> None:
    """PYTHONINTMAXSTRDIGITS=640 let a peer raise out of a machine."""
    digits = sys.get_int_max_str_digits()
    try:
        for most, accepted in ((640, 640), (0, 4300)):
            sys.set_int_max_str_digits(most)
            assert both(b"[%b]" % (b"9" * accepted))[0] == "value"
            for more in (accepted + 1, 4301, 10_000):
                for sign in (b"", b"-"):
                    number = sign + b"9" * more
                    assert both(number) == ("refused", "number_too_large")
                    assert both(b'{"id":%b,"id":1}' % number)[0] == "refused"
    finally:
        sys.set_int_max_str_digits(digits)


def test_a_stack_that_is_almost_used_up_is_no_crash() -> None:
    def at_the_bottom() -> Outcome:
        try:
            return at_the_bottom()
        except RecursionError:
            return outcome(json.decode, b"[" * 400 + b"]" * 400, 500)

    # From Python 3.12 on, what C code needs of the stack is counted apart.
    expected = "value" if sys.version_info >= (3, 12) else "refused"
    assert at_the_bottom()[0] == expected


@given(VALUES)
def test_values_survive(value: Any) -> None:
    data = json.encode(value)
    assert b"\n" not in data
    assert repr(both(data, 100)) == repr(("value", value))
    assert both(json.encode_stdlib(value), 100) == ("value", value)
    assert both(standard.dumps(value).encode(), 100) == ("value", value)
    assert both(standard.dumps(value, indent=1, ensure_ascii=False).encode(), 100) == (
        "value",
        value,
    )


@given(VALUES, st.data())
def test_both_implementations_agree_on_damaged_documents(value: Any, data: st.DataObject) -> None:
    text = bytearray(json.encode(value))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(text)))
        text[place : place + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from(
                [
                    b"",
                    b'"',
                    b"\\",
                    b"{",
                    b"}",
                    b"[",
                    b"]",
                    b",",
                    b":",
                    b" ",
                    b"\xff",
                    b"9",
                    b'"a":1,',
                ]
            )
        )
    both(bytes(text))


ROW = b'{"a":[1,2.5,null,"x"]},'
BESIDE = [
    b'"' + b"y" * 3000 + b'",',
    '"\u5b57\\n\\"",'.encode() * 300,
    b'"{\\"a\\": [1, 2]}", [' + b"[1], " * 10 + b"1]," + b'"\\n",' * 300,
    ROW * 100,
    ROW * 600,
    b'{"b": "\\u0021"}, ' * 1100,
    '"\u5b57\u8282",'.encode() * 700,
    b'"' + "\u5b57\u8282, \u5b57: ".encode() * 400 + b'",',
    b'"' + b"\\u5b57" * 1000 + b'",',
    b'"' + b"\\u5b57, \\u5b57:" * 500 + b'", {}, [],',
]
"""What makes a document text or structure, or too large for a count of its brackets to suffice.

Text is in letters beyond ASCII or in escapes, with marks of JSON in it or without.
"""


@given(VALUES, st.sampled_from(BESIDE), st.data())
def test_both_implementations_agree_on_damaged_long_documents(
    value: Any, beside: bytes, data: st.DataObject
) -> None:
    text = bytearray(json.encode(value))
    place = data.draw(st.integers(0, len(text)))
    damage = st.sampled_from(
        [b"", b'"', b"\\", b"[", b"]", b"{", b"}", b'"a":1,', b"1e999", b"[" * 63, b"\\ud800"]
    )
    text[place : place + data.draw(st.integers(0, 2))] = data.draw(damage)
    both(b"[" + beside + text + b"]")
    both(b"[" + text + b"," + beside + b"0]")


@given(st.binary(max_size=30))
def test_both_implementations_agree_on_garbage(data: bytes) -> None:
    both(data)


@pytest.mark.parametrize("missing", [["jiter"], ["msgspec"], ["jiter", "msgspec"]])
def test_without_a_library_the_plain_path_is_taken(
    missing: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    try:
        importlib.reload(json)
        assert json.decode(b'{"a":1}', 64) == {"a": 1}
        assert json.encode({"a": 1}) == b'{"a":1}'
        with pytest.raises(LocalProtocolError):
            json.encode(math.nan)
    finally:
        monkeypatch.undo()
        importlib.reload(json)


def test_a_jiter_that_nests_deeper_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own limit is what protects the stack."""
    pytest.importorskip("jiter")

    def from_json(data: bytes, **_: object) -> Any:
        return standard.loads(data)

    monkeypatch.setattr("jiter.from_json", from_json)
    try:
        importlib.reload(json)
        assert both(b"[" * 65 + b"]" * 65) == ("refused", "too_deep")
        assert both(b'[{"a":1,"a":2}, 1]') == ("refused", "duplicate_name")
    finally:
        monkeypatch.undo()
        importlib.reload(json)


TEXTS = {
    "ASCII": b"a line of text " * 500,
    "ASCII, quotes": b'he said: \\"yes\\", she said: \\"no\\" ' * 200,
    "letters": "\u6a21\u578b".encode() * 1000,
    "letters and marks": "\u6a21\u578b, {\u6a21}: ".encode() * 500,
    "letters and quotes": '\u6a21\u578b, \\"\u6a21\\": '.encode() * 500,
    "escapes": b"\\u6a21\\u578b" * 600,
    "escapes and marks": b"\\u6a21\\u578b, {\\u6a21}: " * 300,
    "escaped marks": b"\\u6a21\\u578b" * 600 + b"\\u003a\\u0022\\u002c\\u007b",
}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(
    "around",
    [
        b'{"content":[{"type":"text","text":"%b"}]}',
        b'{ "a": [], "b": {}, "text": "%b" }',
        b'["%b"]',
        b'"%b"',
    ],
)
def test_texts_are_not_decoded_twice(
    text: str, around: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jiter")
    data = around % TEXTS[text]
    expected = json.decode_stdlib(data, 64)
    with monkeypatch.context() as patch:
        if text != "escaped marks":
            patch.setattr(json, "decode_stdlib", None)
        assert json.decode(data, 64) == expected


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(
    "members",
    [
        b'"a":1,"a":2',
        b'"a":1,"\\u0061":2',
        b'"a":":","a":2',
        b'"a":"\\"","a":2',
        b'"a":1,"a":"\\u003a"',
        b'"a":1,"a":"\\u002c"',
        b'"a":1,"a":"\\u0022"',
        b'"a":1,"a":"\\u0022\\u0022\\u003a\\u002c"',
        b'"a":[],"a":{},"b":[1]',
        b'"a":[1,2],"a":[1]',
    ],
)
def test_a_repeated_name_beside_text_is_refused(text: str, members: bytes) -> None:
    for data in (b'{%b,"text":"%b"}', b'[{%b},"%b"]', b'[[{%b}],[],{}, ["%b"]]'):
        assert both(data % (members, TEXTS[text])) == ("refused", "duplicate_name")


def test_objects_that_refer_to_their_names_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "_REFER_TO_VALUES", False)
    for text in TEXTS.values():
        assert both(b'{"a":1,"text":"%b"}' % text)[0] == "value"
        assert both(b'{"a":1,"a":2,"text":"%b"}' % text) == ("refused", "duplicate_name")


@pytest.mark.parametrize("text", TEXTS)
def test_a_document_of_many_arrays_and_text_is_read(text: str) -> None:
    """More arrays than the stack holds, one beside the other."""
    data = b'{"rows":[' + b"[1]," * 2000 + b'{"a":1%b}],"text":"' + TEXTS[text] + b'"}'
    assert both(data % b"")[0] == "value"
    assert both(data % b',"a":2') == ("refused", "duplicate_name")
    assert both(data % (b"," + b'"b":[[[' + b"[" * 60 + b"]" * 63)) == ("refused", "too_deep")


def test_brackets_that_are_not_counted_hide_no_name() -> None:
    """Of many brackets only those at the beginning are counted."""
    text = "\u5b57".encode() * 30_000
    rows = b"[1]," * 2000
    for members, kind in ((b'"a":[[[1]]],"a":[1]', "refused"), (b'"a":[[[1]]],"b":[1]', "value")):
        assert both(b'{"rows":[%b1],"a text":"%b",%b,"text":"%b"}' % (rows, text, members, text))[
            0
        ] == (kind)


@pytest.mark.parametrize("gap", [0, 1, 20, 61, 62, 63, 64, 65, 500, 70_000])
@pytest.mark.parametrize("size", [0, 1, 63, 64, 1000, 65_536, 65_537, 200_000])
def test_marks_are_counted_wherever_they_are(gap: int, size: int) -> None:
    data = b"x" * gap + b":"
    data = (data * (1 + size // len(data)))[:size]
    found = data.count(b":")
    count = json._count  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    assert count(data, b":") == found
    for most in (0, found - 1, found):
        assert (count(data, b":", most) > most) == (found > most)


MANY = b"[" + ROW * 70


@pytest.mark.parametrize(
    "text",
    [b'"x"', b'"\\n"', b'"' + b"y" * 70_000 + b'"', b'"' + "ä".encode() * 5000 + b'",{"":{}}'],
)
@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (b"1]", None),
        (b"1.50]", None),
        (b"%d]" % 2**80, None),
        (b"-1e300]", None),
        (b"1e999]", "number_too_large"),
        (b"-1e999]", "number_too_large"),
        (b"[" * 63 + b"]" * 64, None),
        (b"[" * 64 + b"]" * 65, "too_deep"),
        (b"[" * 63 + b"1" + b"]" * 64, None),
        (b'{"":' * 64 + b"1" + b"}" * 64 + b"]", "too_deep"),
        (b'{"a":1,"\\u0061":1}]', "duplicate_name"),
        (b'{"a":1,"a":1}]', "duplicate_name"),
        (b"1],[1]", "malformed_json"),
        (b"1]]", "malformed_json"),
        (b"1]],[[1]", "malformed_json"),
    ],
)
def test_the_end_of_large_documents_is_checked(text: bytes, end: bytes, reason: str | None) -> None:
    for start in (b"[", MANY):
        kind, found = both(start + text + b"," + end)
        assert kind == ("value" if reason is None else "refused")
        assert reason is None or found == reason


def test_type_helpers() -> None:
    assert json.as_object({"a": 1}) == {"a": 1}
    assert json.as_object([1]) is None
    assert json.is_array([1])
    assert not json.is_array({})
