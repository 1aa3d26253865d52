"""What is written as JSON, and what is refused: by two implementations alike."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import json as standard
import math
import uuid
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, NamedTuple

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import LocalProtocolError
from sansmcp.codecs import json

from .test_json import DIGITS, VALUES, Outcome


class Model:
    """Looks like a pydantic model."""

    def __init__(self, x: Any = 1) -> None:
        self.x = x

    def model_dump(self, **options: Any) -> dict[str, Any]:
        assert options == {"mode": "json", "by_alias": True, "exclude_none": True}
        if isinstance(self.x, ValueError):
            raise self.x
        return {"x": self.x}


class Text(str): ...


class Number(int): ...


class Fraction(float): ...


class Array(list[Any]): ...


class Object(dict[str, Any]): ...


class Pair(NamedTuple):
    left: Any
    right: Any


class Colour(str, enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Plain(enum.Enum):
    TEXT = "text"
    NUMBER = 1


@dataclasses.dataclass
class Data:
    x: Any


@dataclasses.dataclass
class Incomparable:
    x: Any

    def __eq__(self, other: object) -> bool:
        raise AttributeError("other has no x")


@attrs.define
class Attributes:
    x: Any


class Struct(msgspec.Struct):
    x: Any


LONG = "null " * 500
TYPELESS = st.sampled_from(
    [
        *(1j, object(), ..., range(2), MappingProxyType({"a": 1}), int, Model, iter([1])),
        *(math.nan, math.inf, -math.inf, Fraction("nan"), "\ud800", Text("\udfff")),
        *(msgspec.UNSET, Model(object()), Model(ValueError("no"))),
    ]
)
OF_MSGSPEC = st.sampled_from(
    [
        *(b"bytes", bytearray(b""), memoryview(b"x"), msgspec.Raw(b"1"), Model(b"")),
        *(dt.date(2020, 1, 1), dt.datetime(2020, 1, 1, 12), dt.time(1), dt.timedelta(1)),
        *(decimal.Decimal("1.5"), uuid.UUID(int=1), Plain.TEXT, Plain.NUMBER, set[int](), {1}),
        *(frozenset({"a"}), Data(1), Incomparable(1), Attributes(1), Struct(1)),
    ]
)
"""What it writes, and JSON does not have."""
TYPED = st.sampled_from(
    [
        *(Text("a"), Number(1), Fraction(0.5), Array([1]), Object(a=1), (), (1, 2), Pair(1, "a")),
        *(Colour.RED, Level.LOW, 2**70, -(2**70), 1e16, 5e-324, -0.0, "null", LONG, "\u00e9", None),
        *(
            collections.OrderedDict[str, int](a=1),
            collections.Counter("a"),
            Model(),
            Model([Model(None)]),
        ),
    ]
)
NAMES = st.sampled_from(["a", "1", "\u00e9", Text("b"), Colour.RED])
NO_NAMES = st.sampled_from([True, None, Number(2), (1,), "\ud800"])
NAMES_OF_MSGSPEC = st.sampled_from([1, 1.5, Level.LOW, b"x", Plain.TEXT, dt.date(2020, 1, 1)])


def any_values(leaves: st.SearchStrategy[Any], names: st.SearchStrategy[Any]) -> Any:
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.lists(inner, max_size=3).map(tuple)
            | st.dictionaries(names, inner, max_size=4)
            | st.builds(Model, inner)
        ),
        max_leaves=10,
    )


def said(encode: Callable[[Any], bytes], value: Any) -> Outcome:
    try:
        return "value", standard.loads(encode(value))
    except LocalProtocolError as error:
        return "refused", error.message


@given(any_values(VALUES | TYPED | TYPELESS, NAMES | NO_NAMES))
def test_both_implementations_write_the_same_or_nothing(value: Any) -> None:
    assert repr(said(json.encode, value)) == repr(said(json.encode_stdlib, value))


@given(any_values(VALUES | TYPED, NAMES))
def test_subclasses_and_models_are_written(value: Any) -> None:
    kind, written = said(json.encode, value)
    assert kind == "value"
    assert repr(written) == repr(
        standard.loads(standard.dumps(value, default=lambda it: {"x": it.x}))
    )


@given(TYPELESS, st.sampled_from([[], [LONG], [LONG, None, 0.5]]))
def test_what_json_cannot_carry_is_refused(value: Any, beside: list[Any]) -> None:
    for encode in (json.encode, json.encode_stdlib):
        for each in (value, [value, *beside], {"a": (None, value), "b": beside}):
            with pytest.raises(LocalProtocolError, match=r"Not a JSON value: \$"):
                encode(each)


@given(NO_NAMES)
def test_names_are_text(name: Any) -> None:
    assert said(json.encode, {"a": [{name: 1}]})[0] == "refused"


@given(OF_MSGSPEC, NAMES_OF_MSGSPEC, st.sampled_from([[], [LONG], [LONG, None, 0.5]]))
def test_what_msgspec_writes_beyond_json_is_refused(
    value: Any, name: Any, beside: list[Any]
) -> None:
    """What went out depended on whether msgspec is installed."""
    for encode in (json.encode, json.encode_stdlib):
        for each in (value, [value, *beside], {"a": (value,), "b": beside}, {name: 1, "1": 2}):
            assert said(encode, each)[0] == "refused"


@given(any_values(VALUES | TYPED | TYPELESS | OF_MSGSPEC, NAMES | NO_NAMES | NAMES_OF_MSGSPEC))
def test_there_is_one_rule_for_what_is_written(value: Any) -> None:
    assert repr(said(json.encode, value)) == repr(said(json.encode_stdlib, value))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [1, {"data": 1j}]}, "$.a[1].data is of type complex"),
        ({"a": (None, math.nan)}, "$.a[1] is nan"),
        ([{"a": "\ud800"}], "$[0].a 'utf-8' codec can't encode character '\\ud800' in position 0"),
        ({"a": {"\ud800": 1}}, "a name in $.a 'utf-8' codec can't encode character '\\ud800'"),
        ({"a": {None: 2}}, "$.a has the name None, which is of type NoneType, not str"),
        ({"a": Model([1j])}, "$.a.x[0] is of type complex"),
        ([Model(ValueError("no"))], "$[0] cannot be dumped: no"),
        ([10**DIGITS], f"$[0] Exceeds the limit ({DIGITS}"),
        (object(), "$ is of type object"),
    ],
)
def test_refusals_say_where(value: Any, message: str) -> None:
    kind, said_of_it = said(json.encode, value)
    assert kind == "refused"
    assert said_of_it.startswith(f"Not a JSON value: {message}")


@pytest.mark.parametrize("value", [[LONG], [LONG, None], [LONG, 0.5], [LONG, None, 2**70]])
def test_long_values_are_written(value: list[Any]) -> None:
    assert json.encode(value) == json.encode_stdlib(value)


class Plainly:
    """An object whose attributes are written."""

    def __init__(self, a: Any, b: Any) -> None:
        self.a = a
        self.b = b


class Hidden(str):
    """A name that an equal one may hide."""


ROW: dict[str, Any] = {"a": 1, "b": [None, 2.5, "x", (True,)], "c": {"d": []}}


STRICT: list[Any] = [1, "x", 2.5, None, [], (), {}, 1e308, vars(Plainly(1, [2.5]))]
NEARLY: list[Any] = [Text("x"), Colour.RED, Level.LOW, {Hidden("a"): 1}, Model()]
WRONG: list[Any] = [
    *(math.nan, -math.inf, b"x", {1}, dt.date(2020, 1, 1), decimal.Decimal(1)),
    *({1: 2}, {"x": {True: 1}}, vars(Plainly(b"x", 1))),
]


@pytest.mark.parametrize("by_garbage_collector", [True, False])
@pytest.mark.parametrize("depth", range(4))
@pytest.mark.parametrize("number", range(len(STRICT + NEARLY + WRONG)))
def test_each_part_of_a_long_array_is_checked(
    number: int, depth: int, by_garbage_collector: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not by_garbage_collector:
        monkeypatch.setattr(json, "_REFER_TO_MEMBERS", False)
    value = (STRICT + NEARLY + WRONG)[number]
    for _ in range(depth):
        value = [value] if depth % 2 else {"a": 1, "x": value}
    for many in ([ROW] * 17 + [value], (value, *[ROW] * 17), [[1] * 17, {"a": [value] * 17}]):
        for each in (many, {"rows": [many, *[1] * 17]}):
            kind, said_of_it = said(json.encode, each)
            assert kind == ("refused" if number >= len(STRICT + NEARLY) else "value"), said_of_it
            assert said_of_it == said(json.encode_stdlib, each)[1]
            if number < len(STRICT):
                with monkeypatch.context() as patch:
                    patch.setattr(json, "encode_stdlib", None)
                    json.encode(each)  # is not checked twice


def test_members_are_found_whatever_the_garbage_collector_shows() -> None:
    """It shows the names of the first, too, and since 3.13 nothing of the second."""
    names: dict[Any, Any] = {"a": 1, "b": 2, 3: 3}
    del names[3]
    for value, kind in ((1, "value"), (b"x", "refused")):
        rows = [names, vars(Plainly(value, value))] * 20
        assert said(json.encode, rows)[0] == kind


def test_large_floats_are_written() -> None:
    """Their sum is infinite."""
    assert said(json.encode, [1e308] * 40) == ("value", [1e308] * 40)
    assert said(json.encode, [1e308, -1e308, *[1e308] * 40, math.inf])[0] == "refused"


def test_endless_values_are_refused() -> None:
    value: list[Any] = []
    value.append(value)
    for encode in (json.encode, json.encode_stdlib):
        with pytest.raises(LocalProtocolError, match="nests too deep, or contains itself"):
            encode(value)


def test_models_are_dumped() -> None:
    for encode in (json.encode, json.encode_stdlib):
        assert encode({"a": [Model()], "b": None}) == b'{"a":[{"x":1}],"b":null}'


def test_documents_are_compact_utf8_on_one_line() -> None:
    value = {"a": [1, 2.5, "ä\u2028\n"], "b": None}
    expected = '{"a":[1,2.5,"ä\u2028\\n"],"b":null}'.encode()
    assert json.encode(value) == json.encode_stdlib(value) == expected
