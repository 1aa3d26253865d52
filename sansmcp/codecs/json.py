r"""JSON documents, strictly, and as fast as the machine allows.

Two parsers disagreeing about one document is how filters are bypassed, so every doubtful document
is refused, with a word that tells which rule it broke (``reason`` of the error):

======================  ======================================================================
``invalid_utf8``        the bytes are not UTF-8
``too_deep``            arrays and objects nest deeper than the limit
``too_many_values``     more values than the limit; an empty array or object counts as two
``duplicate_name``      an object has the same name twice
``number_too_large``    a number like 1e999, beyond all floats; an integer of over 4,300 digits, or
                        of more than the interpreter is set to read
``lone_surrogate``      an escape such as ``\ud800`` that no UTF-8 text can carry
``malformed_json``      anything else that is not RFC 8259: NaN, a trailing comma, a BOM
======================  ======================================================================

Integers of any size below that are exact. The rules are written once, in :func:`decode_stdlib`, on
the standard library. Where ``msgspec`` is installed (it is a dependency on CPython) it does the
work for documents that provably break no rule; all others take the plain path, which then decides.
Both give the same values and errors, by test; nothing outside this module knows which one ran.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Sequence
from types import NoneType
from typing import Any, NoReturn, TypeGuard, cast

from ..errors import LocalProtocolError, RemoteProtocolError, check_type

try:
    import msgspec.json as fast

    _write = fast.Encoder().encode
except ImportError:  # not CPython: everything takes the plain path
    fast = _write = None  # type: ignore[assignment]

UNBOUNDED = 1 << 62
"""More than anything can have."""

MAX_DIGITS = 4300
"""CPython's own default bound on integer strings (CVE-2020-10735: longer ones cost quadratic time).
"""

_BACKSLASH, _QUOTE = b'\\"'
_SHORT = 1024
"""Bytes of a document for which nothing but the plainest counts is worth its while."""
_FEW = 66
"""Marks that are found one by one: more than the usual ``max_json_depth``."""

SAFE_DEPTH = 1024
"""How deep C code may recurse on any stack: it takes some 300 bytes for each bracket, and threads
of web servers have stacks of 1 MB.
"""

_CONTAINERS = {dict, list}
_ARRAYS = {list, tuple}
_SINGLE = {str, int, bool, NoneType}
"""Types without members; floats are looked at, since not all of them are numbers."""
_BEGINNINGS = (b"[", b"{", b",")
_DEEPER = {ord("["): 1, ord("]"): -1}
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))
_NO_BEGINNINGS = bytes(set(range(256)) - set(b'[{,"'))
_NO_COLONS = bytes(set(range(256)) - set(b':"'))
_WINDOW = 64 * 1024
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def decode(data: bytes, max_depth: int, max_values: int = UNBOUNDED) -> Any:
    """The value of one JSON document.

    What could exhaust the stack or the memory is found by counting, before anything is made of the
    document. Raises RemoteProtocolError (400, -32700) with a ``reason`` of the table above, and
    LocalProtocolError for what is not even bytes.
    """
    if fast is not None:
        try:
            # Where there are escapes, the depth can be seen from the value with no extra work.
            has_escapes = len(data) > _SHORT and _BACKSLASH in data
            check_bounds(data, max(max_depth, SAFE_DEPTH) if has_escapes else max_depth, max_values)
            value = fast.decode(data)
            if _is_proven_strict(data, value, max_depth, has_escapes=has_escapes):
                return value
            del value  # the plain path makes another one, which is as large
        except (ValueError, RecursionError, TypeError, AttributeError):
            pass  # the plain path says which rule is broken, or that these are no bytes
    return decode_stdlib(data, max_depth, max_values)


def decode_stdlib(data: bytes, max_depth: int, max_values: int = UNBOUNDED) -> Any:
    """:func:`decode` by the standard library alone: the rules in full, slower."""
    check_bounds(data, max_depth, max_values)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise _refused(f"invalid UTF-8 at byte {error.start}", "invalid_utf8") from None
    try:
        value = _PLAIN.decode(text)
    except json.JSONDecodeError as error:
        raise _refused(f"{error.msg} at character {error.pos}", "malformed_json") from None
    except RecursionError:  # little of the stack is left where we are called
        raise _refused("nested too deep for what is left of the stack", "too_deep") from None
    if _SURROGATE_ESCAPE.search(text) is not None:
        _refuse_lone_surrogates(value)
    return value


def check_bounds(data: bytes, max_depth: int, max_values: int) -> None:
    """Count how deep a document nests and how many values it has, without recursion.

    Call it before anything recurses into a document: C code may overflow a thread's small stack
    before Python counts. Both counts are exact for JSON. For what is not JSON they are exact up to
    where that shows, which is as far as a parser gets.

    Raises RemoteProtocolError (``too_deep``, ``too_many_values``), and LocalProtocolError for what
    is not bytes.
    """
    if type(data) is not bytes:
        check_type((bytes, bytearray), data=data)
    size = len(data)
    # A bracket or a comma begins each value but the first. Those in strings count here, too, but
    # even so most documents have few.
    if (
        size >= max_values
        and sum(_count(data, mark) for mark in _BEGINNINGS) >= max_values
        and len(_outside_strings(data, _NO_BEGINNINGS)) >= max_values
    ):
        raise _refused(f"more than {max_values} values", "too_many_values")
    may_be_deeper = size > max_depth and _has_more_brackets(data, max_depth)
    if may_be_deeper and not _nests_within(data, max_depth):
        raise _refused(f"nested deeper than {max_depth}", "too_deep")


def encode(value: Any) -> bytes:
    """One JSON document on one line, UTF-8, without needless spaces.

    ``value`` is made of dict, list, tuple, str, int, float, bool and None, or of subclasses; names
    are strings. Objects with a ``model_dump`` method (pydantic models such as those of
    ``mcp-types``) are taken by what that method returns. Nothing else is taken, with msgspec or
    without: bytes, dates, sets, Decimal, UUID, dataclasses, other enumerations, and names that are
    no strings are refused, since each library writes them in ways of its own.

    Raises LocalProtocolError, which says where, for what JSON cannot carry: NaN, infinities, lone
    surrogates, other types, and what nests too deep.
    """
    if _write is not None:
        try:
            data = _write(value)  # raises for what holds itself, so that the next line ends
            if _is_strict(value):
                return data
        except Exception:  # of msgspec, or of a class that it looks into
            pass  # the plain path says what is wrong, if anything is
    return encode_stdlib(value)


def _is_strict(value: Any) -> bool:
    """Whether a value has JSON's own types only; subclasses and models are left to the plain path.

    What it finds is written by msgspec as the plain path writes it, but for exponents: 1e300 and
    1e+300 are the same number.
    """
    containers = [value]
    for each in containers:  # grows while it is walked
        if type(each) is dict:
            members: dict[Any, Any] = each  # pyright: ignore[reportUnknownVariableType]
            for name, member in members.items():
                if type(name) is not str:
                    return False
                if type(member) not in _SINGLE:
                    containers.append(member)
        elif type(each) in _ARRAYS:
            containers += [item for item in each if type(item) not in _SINGLE]
        elif type(each) is float:
            if not math.isfinite(each):
                return False
        elif type(each) not in _SINGLE:
            return False
    return True


def encode_stdlib(value: Any) -> bytes:
    """:func:`encode` by the standard library alone: the rules in full, slower.

    What it does not refuse is read back as it was, but for tuples and models.
    """
    try:
        return _ENCODER.encode(_encodable(value, "$")).encode()
    except RecursionError:
        raise _not_encodable("it", "nests too deep, or holds itself") from None


def to_json_types(value: Any, place: str = "$") -> Any:
    """A pydantic model, or what looks like one, as it says it is; any other value as it is.

    Raises LocalProtocolError if the model cannot say it.
    """
    if not hasattr(value, "model_dump"):
        return value
    try:
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    except (TypeError, ValueError) as error:
        raise _not_encodable(place, f"cannot be dumped: {error}") from error


def encode_sorted(value: Any) -> bytes:
    """A decoded value with all names in order: the same bytes for the same value on any machine."""
    return _SORTED.encode(value).encode()


def as_object(value: Any) -> dict[str, Any] | None:
    """A decoded value, if it is an object."""
    return value if is_object(value) else None


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a decoded value is an object."""
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    """Whether a decoded value is an array."""
    return isinstance(value, list)


def _has_more_brackets(data: bytes, most: int) -> bool:
    """Whether more brackets open in a document, those in its strings among them."""
    if len(data) <= _SHORT:
        return data.count(b"{") + data.count(b"[") > most
    found = _count(data, b"{", most)
    return found > most or found + _count(data, b"[", most - found) > most


def _count(data: bytes, mark: bytes, most: int = UNBOUNDED) -> int:
    """``data.count(mark)``, or ``most`` + 1 if it is more.

    To count is slow where there are few, and to find each is slow where there are many.
    """
    found = -1
    for count in range(min(most + 1, _FEW)):
        found = data.find(mark, found + 1)
        if found < 0:
            return count
    return most + 1 if most < _FEW else _FEW + data.count(mark, found + 1)


def _nests_within(data: bytes, max_depth: int) -> bool:
    """Whether brackets outside strings nest no deeper."""
    brackets = _outside_strings(data, _NO_BRACKETS).translate(_ONE_KIND)
    left = brackets
    for _ in range(max_depth):
        size, left = len(left), left.replace(b"[]", b"")
        if len(left) == size:
            break
    if not left:
        return True
    # Deeper, or no JSON: then what counts are the brackets before one that closes nothing.
    depths = itertools.accumulate(map(_DEEPER.__getitem__, brackets))
    return next((depth for depth in depths if not 0 <= depth <= max_depth), 0) <= 0


def _outside_strings(data: bytes, dropped: bytes) -> bytes:
    """A document without its strings, and without the bytes that are ``dropped``, quotes aside.

    It is cut into windows, since each piece of a split takes as much memory as forty bytes.
    """
    if _BACKSLASH in data:
        data = data.replace(rb"\\", b"").replace(rb"\"", b"")
    kept = data.translate(None, dropped).replace(b'""', b"")
    if _QUOTE not in kept:
        return kept
    outside: list[bytes] = []
    is_inside = 0
    for start in range(0, len(kept), _WINDOW):
        pieces = kept[start : start + _WINDOW].split(b'"')
        outside.append(b"".join(pieces[is_inside::2]))
        is_inside = (is_inside + len(pieces) - 1) % 2
    return b"".join(outside)


def _is_proven_strict(data: bytes, value: Any, max_depth: int, *, has_escapes: bool) -> bool:
    """Whether a document that msgspec accepts surely repeats no name, and nests within the limit.

    Of equal names msgspec keeps the last and cannot tell, but then the value has fewer names than
    its document. There are two ways to count both, since what is cheap for many small values is
    dear for long texts.
    """
    assert fast is not None
    if has_escapes:
        return _lines(value, max_depth) == fast.format(data, indent=1).count(b"\n")
    again = fast.encode(value)
    return again == data or _has_as_many_names(data, again)


def _lines(value: Any, max_depth: int) -> int:
    """Line feeds where a document with this value is laid out; -1 if it nests too deep.

    Each element and each member has a line of its own, and so has the bracket after them.
    """
    level, count = [value] if type(value) in _CONTAINERS else [], 0
    for _ in range(max_depth):
        members: list[Any] = []
        for each in level:
            count += len(each) + 1 if each else 0
            members += each.values() if is_object(each) else each
        level = [each for each in members if type(each) in _CONTAINERS]
        if not level:
            return count
    return -1


def _has_as_many_names(data: bytes, again: bytes) -> bool:
    """Whether a value that is written again surely has all names of its document.

    Outside strings there is one colon for each name. Those inside are the same in both, unless they
    are written as escapes.
    """
    has_escapes = _BACKSLASH in data and rb"\u003" in data  # the first is found much faster
    if not has_escapes and data.count(b":") == again.count(b":"):
        return True
    return len(_outside_strings(data, _NO_COLONS)) == len(_outside_strings(again, _NO_COLONS))


def _refuse_lone_surrogates(value: Any) -> None:
    try:
        _ENCODER.encode(value).encode()
    except UnicodeEncodeError:
        raise _refused("an escape that is half of a character", "lone_surrogate") from None


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        name = next(name for name, _ in pairs if members.pop(name, pairs) is pairs)
        raise _refused(f"the name {name[:50]!r} stands twice in one object", "duplicate_name")
    return members


def _integer(literal: str) -> int:
    if len(literal) > MAX_DIGITS:
        raise _refused(f"an integer of more than {MAX_DIGITS} digits", "number_too_large")
    try:
        return int(literal)
    except ValueError:  # the interpreter may be set to fewer (PYTHONINTMAXSTRDIGITS)
        raise _refused(f"an integer of {len(literal)} digits", "number_too_large") from None


def _float(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise _refused("a number too large to hold", "number_too_large")
    return number


def _no_constant(literal: str) -> NoReturn:
    raise _refused(f"{literal} is not JSON", "malformed_json")


def _encodable(value: Any, place: str) -> Any:
    """A value with all models dumped. Raises LocalProtocolError for what JSON cannot carry."""
    if is_object(value):
        return {name: _encodable(each, _member(place, name)) for name, each in value.items()}
    if isinstance(value, list | tuple):
        items = enumerate(cast("Sequence[Any]", value))
        return [_encodable(each, f"{place}[{index}]") for index, each in items]
    if hasattr(value, "model_dump"):
        return _encodable(to_json_types(value, place), place)
    _check_single(value, place)
    return value


def _member(place: str, name: Any) -> str:
    """Where a member is. Raises LocalProtocolError for what cannot be its name."""
    if not isinstance(name, str):
        kind = type(name).__name__
        raise _not_encodable(place, f"has the name {name!r:.50}, which is of type {kind}, not str")
    _check_single(name, f"a name in {place}")
    return f"{place}.{name:.50}"


def _check_single(value: Any, place: str) -> None:
    """Raises LocalProtocolError for a value that holds no others, and that JSON cannot carry."""
    try:
        match value:
            case str():
                value.encode()
            case int():
                int.__repr__(value)
            case float() if not math.isfinite(value):
                raise _not_encodable(place, f"is {value}")
            case float() | None:
                pass
            case _:
                raise _not_encodable(place, f"is of type {type(value).__name__}")
    except ValueError as error:  # half of a surrogate pair, or thousands of digits
        raise _not_encodable(place, str(error)) from None


def _not_encodable(place: str, what: str) -> LocalProtocolError:
    return LocalProtocolError(f"Not a JSON value: {place} {what}")


def _refused(what: str, reason: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"Not valid JSON: {what}", reason=reason, jsonrpc_code=-32700)


_PLAIN = json.JSONDecoder(
    object_pairs_hook=_unique_names,
    parse_int=_integer,
    parse_float=_float,
    parse_constant=_no_constant,
)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_SORTED = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)
