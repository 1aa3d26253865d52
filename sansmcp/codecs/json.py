r"""Strict JSON documents, decoded and encoded by ``jiter`` and ``msgspec`` where possible.

If two parsers read one document differently, a filter that uses one of them can be bypassed. So
every ambiguous document is refused; ``reason`` of the error names the rule that it broke:

======================  ======================================================================
``invalid_utf8``        the bytes are not UTF-8
``too_deep``            arrays and objects nest deeper than the limit
``too_many_values``     more values than the limit; an empty array or object counts as two
``duplicate_name``      an object has the same name twice
``number_too_large``    a number beyond all floats, such as 1e999; an integer of over 4,300 digits,
                        or of more than the interpreter is configured to parse
``lone_surrogate``      an escape such as ``\ud800``, which UTF-8 cannot encode
``malformed_json``      anything else that is not RFC 8259: NaN, a trailing comma, a BOM
======================  ======================================================================

Integers of up to 4,300 digits are exact. The rules are implemented once, in :func:`decode_stdlib`,
with the standard library. Where ``jiter`` and ``msgspec`` are installed (they are dependencies on
CPython) they decode the documents that certainly break no rule, and :func:`decode_stdlib` all
others. Tests check that both give the same values and errors, so that callers need not know which
one was used.
"""

from __future__ import annotations

import gc
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from types import NoneType
from typing import Any, NoReturn, TypeGuard, TypeVar, cast

from ..errors import LocalProtocolError, RemoteProtocolError, check_type

try:
    import jiter

    _parse = jiter.from_json
except ImportError:  # not CPython: decode_stdlib() does everything
    jiter = None  # type: ignore[assignment]
    _parse = cast("Any", None)
try:
    import msgspec

    _read, _write = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode
except ImportError:  # and encode_stdlib()
    msgspec = None  # type: ignore[assignment]
    _read = _write = cast("Any", None)

_Kind = TypeVar("_Kind")

UNBOUNDED = 1 << 62
"""A bound that no document reaches."""

MAX_DIGITS = 4300
"""CPython's default limit of integer strings; longer ones take quadratic time (CVE-2020-10735)."""

_BACKSLASH, _QUOTE = b'\\"'
_ESCAPED_COLON = rb"\u003"
"""How an escape of a colon begins, and those of a few other characters."""
_SHORT = 1024
"""Up to this many bytes of a document, only the simplest way to count pays off."""
_LONG = 4096
"""Up to this many bytes of a document, it does not pay off to look what is in it."""
_SOME = 32
"""So many bytes beyond ASCII, or escapes, in ``_SHORT`` bytes are what msgspec decodes faster."""
_MANY = 6
"""So many arrays and objects in ``_SHORT`` bytes are more than those around a text."""
_APART = 64
"""From this many bytes between marks on, searching each takes less time than counting all."""

SAFE_DEPTH = 1024
"""A depth to which C code can recurse on any stack: a bracket takes some 300 bytes, and threads of
web servers have stacks of 1 MB.
"""

_ASCII = bytes(range(128))

_CONTAINERS = frozenset({dict, list})
_REFER_TO_VALUES = gc.get_referents({"name": "value"}) == ["value"]
"""Whether an object with names that are strings refers to its values alone."""
_ARRAYS = {list, tuple}
_SINGLE = {str, int, bool, NoneType}
"""Types without members, except float: NaN and infinities are floats, and not JSON."""
_STRICT = {*_SINGLE, float, dict, *_ARRAYS}
_NAMES = {str}
_NO_NAMES: set[Any] = set()
_SEVERAL = 16
"""An array of more items is checked level by level."""
_NUMBERS = {int, float}
_LARGEST = 1.7976931348623157e308
"""The largest float."""
_BEGINNINGS = (b"[", b"{", b",")
_DEEPER = {ord("["): 1, ord("]"): -1}
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))
_NO_BEGINNINGS = bytes(set(range(256)) - set(b"[{,"))
_NO_BEGINNINGS_NOR_QUOTES = bytes(set(range(256)) - set(b'[{,"'))
_WINDOW = 64 * 1024
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_HIGH, _LOW = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPES = re.compile(rf"{_HIGH}{_LOW}|({_HIGH}|{_LOW})|\\.", re.DOTALL)
"""An escape in a string. The group is half a surrogate pair."""

BOM = b"\xef\xbb\xbf"
"""A byte order mark in UTF-8, which some programs write before a document."""


def decode(data: bytes, max_depth: int, max_values: int = UNBOUNDED) -> Any:
    """Decode one JSON document.

    The number of values is counted before anything is decoded, so that a document cannot exhaust
    the memory. The depth is counted before, too, or ends the decoding, so that a document cannot
    exhaust the stack.

    Raises:
        RemoteProtocolError: 400, -32700, with a ``reason`` of the table above.
        LocalProtocolError: ``data`` is not bytes.
    """
    if _can_hurry:
        try:
            if len(data) <= _SHORT:
                return _decode_short(data, max_depth, max_values)
            return _decode_long(data, max_depth, max_values)
        except _DOUBTS:
            pass  # decode_stdlib() reads it, or raises the error that names the broken rule
    return decode_stdlib(data, max_depth, max_values)


def decode_stdlib(data: bytes, max_depth: int, max_values: int = UNBOUNDED) -> Any:
    """Decode as :func:`decode` does, with the standard library alone: all rules, but slower."""
    check_bounds(data, max_depth, max_values)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise _refused(f"invalid UTF-8 at byte {error.start}", "invalid_utf8") from None
    try:
        value = _PLAIN.decode(text)
    except json.JSONDecodeError as error:
        raise _malformed(error) from None
    except RecursionError:  # the caller has used most of the stack
        raise _refused("nested too deep for the rest of the stack", "too_deep") from None
    if _SURROGATE_ESCAPE.search(text) is not None:
        _refuse_lone_surrogates(value)
    return value


def decode_tolerant(
    data: bytes, max_depth: int, max_values: int
) -> tuple[Any, tuple[RemoteProtocolError, ...]]:
    """Decode a document that :func:`decode` refuses, as far as it can be read in one way only.

    A byte order mark at the beginning is skipped. Bytes that are not UTF-8, and halves of surrogate
    pairs, become U+FFFD. NaN and the infinities are read as floats, and control characters in
    strings as they are. All other rules hold, on what was read.

    Returns:
        The value and an error for each broken rule, with its place in the document.

    Raises:
        RemoteProtocolError: as :func:`decode` does. A parser of JSON that is not strict would read
            it in another way than the next one, or not at all.
    """
    check_bounds(data, max_depth, max_values)
    faults: list[RemoteProtocolError] = []
    if data.startswith(BOM):
        data = data[len(BOM) :]
        faults.append(_refused("a byte order mark (U+FEFF) before it", "byte_order_mark"))
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        faults.append(_refused(f"invalid UTF-8 at byte {error.start}", "invalid_utf8"))
        text = data.decode("utf-8", "replace")
    if (lone := _first_lone_surrogate(text)) is not None:
        what = f"an escape of a lone surrogate at character {lone}"
        faults.append(_refused(what, "lone_surrogate"))
        text = _ESCAPES.sub(_without_lone_surrogate, text)
    constants: list[str] = []

    def constant(literal: str) -> float:
        constants.append(literal)
        return float(literal)

    decoder = json.JSONDecoder(strict=False, parse_constant=constant, **_RULES)
    try:
        value = decoder.decode(text)
    except json.JSONDecodeError as error:
        raise _malformed(error) from None
    if constants:
        try:
            encode_stdlib(value)
        except LocalProtocolError as error:
            what = f"{constants[0]} is not JSON ({error.message.partition(': ')[2]})"
            faults.append(_refused(what, "not_finite"))
    elif not faults:
        try:
            _PLAIN.decode(text)
        except json.JSONDecodeError as error:
            faults.append(_malformed(error))
    return value, tuple(faults)


def check_bounds(data: bytes, max_depth: int, max_values: int) -> None:
    """Check how deep a document nests and how many values it has, without recursion.

    Call this before anything recurses into a document: C code can overflow the small stack of a
    thread before Python notices. Both counts are exact for JSON. If the document is not JSON, they
    are exact up to the first error, and no parser gets further.

    Raises:
        RemoteProtocolError: ``too_deep`` or ``too_many_values``.
        LocalProtocolError: ``data`` is not bytes.
    """
    if type(data) is not bytes:
        check_type((bytes, bytearray), data=data)
    _check_values(data, max_values)
    if _has_more_brackets(data, max_depth) and not _nests_within(data, max_depth):
        raise _refused(f"nested deeper than {max_depth}", "too_deep")


def encode(value: Any) -> bytes:
    """Encode a value as one JSON document on one line, in UTF-8, without optional spaces.

    ``value`` consists of dict, list, tuple, str, int, float, bool and None, or of subclasses; names
    are strings. An object with a ``model_dump`` method (a pydantic model such as those of
    ``mcp-types``) is replaced by the result of that method. Everything else is refused, with
    msgspec or without: bytes, dates, sets, Decimal, UUID, dataclasses, other enumerations, and
    names that are not strings. Each library would write them in its own way.

    Raises:
        LocalProtocolError: a part of the value is NaN, an infinity, a lone surrogate, of another
            type, or nests too deep; the message contains its place.
    """
    if _write is not None:
        try:
            data = _write(value)  # raises for reference cycles, on which _is_strict() never ends
            if _is_strict(value):
                return data
        except Exception:  # from msgspec, or from a class that it inspects
            pass  # encode_stdlib() raises the error, if the value is wrong
    try:
        return encode_stdlib(value)
    except LocalProtocolError as error:
        # Without the frames of the recursion, which say nothing to the caller.
        raise error.with_traceback(None) from None


def _is_strict(value: Any) -> bool:
    """Return True if a value consists of JSON's own types, without subclasses and models.

    msgspec and the standard library encode such a value alike, except for exponents: 1e300 and
    1e+300 are the same number.
    """
    containers = [value]
    for each in containers:  # the loop appends to it
        if type(each) is dict:
            members: dict[Any, Any] = each  # pyright: ignore[reportUnknownVariableType]
            for name, member in members.items():
                if type(name) is not str:
                    return False
                if type(member) not in _SINGLE:
                    containers.append(member)
        elif type(each) in _ARRAYS:
            if len(each) > _SEVERAL:
                if not _are_strict(each):
                    return False
            else:
                containers += [item for item in each if type(item) not in _SINGLE]
        elif type(each) is float:
            if not math.isfinite(each):
                return False
        elif type(each) not in _SINGLE:
            return False
    return True


def _are_strict(level: Sequence[Any]) -> bool:
    """Return True if many values and all their parts are of JSON's own types.

    The values are taken level by level, and a level by few calls of functions in C.
    """
    while not (types := set(map(type, level))) <= _SINGLE:
        if not types <= _STRICT:
            return False
        if float in types:
            floats = _of_type(float, level)
            # A sum is finite only if all its parts are, and is found faster.
            if not math.isfinite(sum(floats)) and not all(map(math.isfinite, floats)):
                return False
        members = _members(level)
        # Objects refer to their names, too, unless all of these are strings, of no subclass.
        is_one_kind = _REFER_TO_MEMBERS and len(types) == 1
        if dict in types and not (is_one_kind and len(members) == sum(map(len, level))):
            objects: list[dict[Any, Any]] = _of_type(dict, level)
            # A name of a subclass may be hidden by an equal string, and is written like that.
            if not _NAMES.issuperset(map(type, _NO_NAMES.union(*objects))):
                return False
        level = members
    return True


def _of_type(kind: type[_Kind], values: Sequence[Any]) -> list[_Kind]:
    return [each for each in values if type(each) is kind]


def _members(level: Sequence[Any]) -> Sequence[Any]:
    """Return the members of all objects and arrays among values."""
    if _REFER_TO_MEMBERS:
        return gc.get_referents(*level)  # strings, numbers and so on refer to nothing
    found: list[Any] = []
    for each in level:
        if type(each) is dict or type(each) in _ARRAYS:
            found += _values(each)
    return found


def encode_stdlib(value: Any) -> bytes:
    """Encode as :func:`encode` does, with the standard library alone: all rules, but slower.

    Decoding the result gives an equal value, except for tuples and models.
    """
    try:
        return _ENCODER.encode(_encodable(value, "$")).encode()
    except RecursionError:
        raise _not_encodable("it", "nests too deep, or contains itself") from None


def to_json_types(value: Any, place: str = "$") -> Any:
    """Return what ``model_dump`` returns, for a pydantic model; return any other value unchanged.

    Raises LocalProtocolError if ``model_dump`` fails.
    """
    if not hasattr(value, "model_dump"):
        return value
    try:
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    except (TypeError, ValueError) as error:
        raise _not_encodable(place, f"cannot be dumped: {error}") from error


def encode_sorted(value: Any) -> bytes:
    """Encode a decoded value with sorted names: the same bytes for equal values everywhere."""
    return _SORTED.encode(value).encode()


def as_object(value: Any) -> dict[str, Any] | None:
    """Return a decoded value if it is an object, else None."""
    # Not is_object(), which would be a second call, a dozen times in a request.
    return value if isinstance(value, dict) else None  # pyright: ignore[reportUnknownVariableType]


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Return True if a decoded value is an object."""
    return isinstance(value, dict)


def is_finite(value: Any) -> TypeGuard[float]:
    """Return True if a decoded value is a number that a float can hold; no other one is finite."""
    return type(value) in _NUMBERS and -_LARGEST <= value <= _LARGEST


def is_array(value: Any) -> TypeGuard[list[Any]]:
    """Return True if a decoded value is an array."""
    return isinstance(value, list)


def _decode_long(data: bytes, max_depth: int, max_values: int) -> Any:
    """Decode a document that breaks no rule; raise one of ``_DOUBTS`` if that is not certain."""
    size = len(data)
    is_text = is_for_jiter = False
    if size > _LONG:
        is_text, is_for_jiter = _is_text(data)
    # translate() counts marks that are close together faster.
    if size >= max_values and (is_text or len(data.translate(None, _NO_BEGINNINGS)) >= max_values):
        _check_values(data, max_values)
    if is_for_jiter:
        return _decode_with_jiter(data, max_depth)
    brackets = _count(data, b"{", SAFE_DEPTH) + _count(data, b"[", SAFE_DEPTH)
    if brackets > SAFE_DEPTH:
        if _BACKSLASH in data:  # which makes it slow to find the brackets outside strings
            return _decode_with_jiter(data, max_depth)
        if not _nests_within(data, max_depth):
            raise ValueError("nested too deep")
        is_text = False
    value = _read(data)
    # msgspec reads the last member of a name.
    if not ((is_text and _has_all_members(value, data, brackets)) or _has_all_names(value, data)):
        raise ValueError("perhaps a repeated name")
    if max_depth < brackets <= SAFE_DEPTH:
        _check_depth(value, max_depth)
    return value


def _decode_short(data: bytes, max_depth: int, max_values: int) -> Any:
    """Decode as :func:`_decode_long` does, with the simplest checks: brackets are few enough."""
    if max_values <= _SHORT:
        _check_values(data, max_values)
    value = _read(data)
    again = _write(value)
    if again != data and (
        (_BACKSLASH in data and _ESCAPED_COLON in data) or again.count(b":") != data.count(b":")
    ):
        raise ValueError("perhaps a repeated name")
    if data.count(b"{") + data.count(b"[") > max_depth:
        _check_depth(value, max_depth)
    return value


def _check_depth(value: Any, max_depth: int) -> None:
    """Raise ValueError if a decoded value nests deeper than ``max_depth``."""
    for _ in _levels(value, max_depth):
        pass


def _has_all_members(value: Any, data: bytes, brackets: int) -> bool:
    """Return True if the value of a document, which has few parts, certainly lacks no member.

    A document has at least as many marks as its value needs, and more if a name is repeated or
    there are such marks in strings.
    """
    if _REFER_TO_VALUES:
        # Each value but the first follows a bracket or a comma.
        count, level = 0, [value]
        while level := gc.get_referents(*level):
            count += len(level)
        if count == brackets + _count(data, b","):
            return True
    # Each name and each string has two quotes.
    count = int(type(value) is str)
    containers = [value] if type(value) in _CONTAINERS else []
    for each in containers:  # the loop appends to it
        members = _values(each)
        count += len(each) if members is not each else 0
        for member in members:
            if type(member) is str:
                count += 1
            elif type(member) in _CONTAINERS:
                containers.append(member)
    return 2 * count == _count(data, b'"')


def _values(container: Any) -> Iterable[Any]:
    """Return the values of an object, and an array as it is."""
    # Not `type(container) is dict`, from which type checkers conclude less.
    return container.values() if isinstance(container, dict) else container  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


def _has_all_names(value: Any, data: bytes) -> bool:
    """Return True if the value of a document certainly has all its names.

    Without one it has fewer colons. Encoded, it has those of its strings, too.
    """
    again = _write(value)
    if again == data:
        return True
    if _BACKSLASH in data and _ESCAPED_COLON in data:  # the first is found faster
        return False
    return _count(again, b":") == _count(data, b":")


def _decode_with_jiter(data: bytes, max_depth: int) -> Any:
    """Decode a document with ``jiter``; raise one of ``_DOUBTS`` if it perhaps breaks a rule.

    ``jiter`` refuses repeated names, lone surrogates, NaN, and what nests too deep for the stack.
    """
    value = _parse(data, allow_inf_nan=False, catch_duplicate_keys=True, cache_mode="keys")
    levels = _levels(value, max_depth)
    numbers = [each for level in levels for each in level if type(each) in _NUMBERS]
    # Each integer between these has few enough digits, each float is finite.
    if numbers and not -1e300 < min(numbers) <= max(numbers) < 1e300:
        raise OverflowError
    return value


def _is_text(data: bytes) -> tuple[bool, bool]:
    r"""Return whether the end of a long document is text, and whether ``jiter`` decodes it faster.

    That is text in ASCII, and with quotes. Other text has letters beyond ASCII, or escapes of them
    (``\u4f60``). The end of a result says more than its beginning.
    """
    end = data[-_SHORT:]
    # replace() finds marks that are far apart faster than count().
    escapes = _SHORT - len(end.replace(b"\\", b""))
    brackets = 2 * _SHORT - len(end.replace(b"{", b"")) - len(end.replace(b"[", b""))
    if brackets >= _MANY and escapes <= brackets:
        return False, False
    if escapes > _SOME and 4 * (_SHORT - len(end.replace(b'"', b""))) > escapes:
        return True, True
    if escapes > _SOME and rb"\u" in end:
        return True, False
    return True, end.isascii() or len(end.translate(None, _ASCII)) < _SOME


def _levels(value: Any, max_depth: int) -> Iterator[list[Any]]:
    """Yield all parts of a decoded value, level by level.

    Raises ValueError if it nests deeper than ``max_depth``.
    """
    # Arrays and objects refer to their members and names; strings, numbers and so on to nothing.
    level = [value]
    for _ in range(max_depth):
        yield level
        level = gc.get_referents(*level)
        if not level:
            return
    if not _CONTAINERS.isdisjoint(map(type, level)):
        raise ValueError("nested too deep")
    yield level


def _check_values(data: bytes, max_values: int) -> None:
    """Raise RemoteProtocolError if a document has more than ``max_values`` values.

    Each value but the first follows a bracket or a comma. The first count includes those in
    strings, which take more time to find, and is low enough for most documents.
    """
    if (
        len(data) >= max_values
        and sum(_count(data, mark) for mark in _BEGINNINGS) >= max_values
        and len(_outside_strings(data, _NO_BEGINNINGS_NOR_QUOTES)) >= max_values
    ):
        raise _refused(f"more than {max_values} values", "too_many_values")


def _has_more_brackets(data: bytes, most: int) -> bool:
    """Return True if more than ``most`` brackets open in a document, including its strings."""
    if len(data) <= _SHORT:
        return data.count(b"{") + data.count(b"[") > most
    found = _count(data, b"{", most)
    return found > most or found + _count(data, b"[", most - found) > most


def _count(data: bytes, mark: bytes, most: int = UNBOUNDED) -> int:
    """Return ``data.count(mark)``, or a number above ``most`` if it is more.

    ``count()`` looks at each byte. ``replace()`` goes from mark to mark, which takes less time if
    these are far apart.
    """
    size = len(data)
    if size <= _WINDOW:
        few = size // _APART
        found = size - len(data.replace(mark, b"", few))
        return found if found < few else data.count(mark)
    count = 0
    for start in range(0, size, _WINDOW):
        window = data[start : start + _WINDOW]
        few = len(window) // _APART
        found = len(window) - len(window.replace(mark, b"", few))
        count += found if found < few else window.count(mark)
        if count > most:
            break
    return count


def _nests_within(data: bytes, max_depth: int) -> bool:
    """Return True if the brackets outside strings nest no deeper than ``max_depth``."""
    brackets = _outside_strings(data, _NO_BRACKETS).translate(_ONE_KIND)
    left = brackets
    for _ in range(max_depth):
        size, left = len(left), left.replace(b"[]", b"")
        if len(left) == size:
            break
    if not left:
        return True
    # Deeper, or not JSON; then only the brackets before the first unmatched closing one count.
    depths = itertools.accumulate(map(_DEEPER.__getitem__, brackets))
    return next((depth for depth in depths if not 0 <= depth <= max_depth), 0) <= 0


def _outside_strings(data: bytes, dropped: bytes) -> bytes:
    """Return a document without its strings, and without the bytes in ``dropped``.

    It is split in windows, because each piece that ``split()`` returns takes 40 bytes of memory.
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


def _refuse_lone_surrogates(value: Any) -> None:
    try:
        _ENCODER.encode(value).encode()
    except UnicodeEncodeError:
        raise _refused("an escape of a lone surrogate", "lone_surrogate") from None


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        name = next(name for name, _ in pairs if members.pop(name, pairs) is pairs)
        raise _refused(f"the name {name[:50]!r} occurs twice in one object", "duplicate_name")
    return members


def _integer(literal: str) -> int:
    if len(literal) > MAX_DIGITS:
        raise _refused(f"an integer of more than {MAX_DIGITS} digits", "number_too_large")
    try:
        return int(literal)
    except ValueError:  # the interpreter can have a lower limit (PYTHONINTMAXSTRDIGITS)
        raise _refused(f"an integer of {len(literal)} digits", "number_too_large") from None


def _float(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise _refused("a number too large for a float", "number_too_large")
    return number


def _no_constant(literal: str) -> NoReturn:
    raise _refused(f"{literal} is not JSON", "malformed_json")


def _encodable(value: Any, place: str) -> Any:
    """Return a value with all models dumped. Raise LocalProtocolError for what is not JSON."""
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
    """Return the place of a member. Raise LocalProtocolError if it cannot have this name."""
    if not isinstance(name, str):
        kind = type(name).__name__
        raise _not_encodable(place, f"has the name {name!r:.50}, which is of type {kind}, not str")
    _check_single(name, f"a name in {place}")
    return f"{place}.{name:.50}"


def _check_single(value: Any, place: str) -> None:
    """Raise LocalProtocolError for a value without members that is not JSON."""
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
                hint = "; write it as text with isoformat()" if hasattr(value, "isoformat") else ""
                raise _not_encodable(place, f"is of type {type(value).__name__}{hint}")
    except ValueError as error:  # a lone surrogate, or thousands of digits
        raise _not_encodable(place, str(error)) from None


def _not_encodable(place: str, what: str) -> LocalProtocolError:
    return LocalProtocolError(f"Not a JSON value: {place} {what}")


def _malformed(error: json.JSONDecodeError) -> RemoteProtocolError:
    return _refused(f"{error.msg} at character {error.pos}", "malformed_json")


def _first_lone_surrogate(text: str) -> int | None:
    """Return the place of the first escape of half a surrogate pair; None if there is none."""
    if _SURROGATE_ESCAPE.search(text) is None:
        return None
    places = (found.start() for found in _ESCAPES.finditer(text) if found[1] is not None)
    return next(places, None)


def _without_lone_surrogate(escape: re.Match[str]) -> str:
    return escape[0] if escape[1] is None else "\\ufffd"


def _refused(what: str, reason: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"Not valid JSON: {what}", reason=reason, jsonrpc_code=-32700)


_RULES: Any = {
    "object_pairs_hook": _unique_names,
    "parse_int": _integer,
    "parse_float": _float,
}
_PLAIN = json.JSONDecoder(parse_constant=_no_constant, **_RULES)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_SORTED = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)


class _Holder:
    def __init__(self) -> None:
        self.name = "value"


_holder = _Holder()
_REFER_TO_MEMBERS = gc.get_referents(vars(_holder), {1: "value"}) == ["value", "value", 1]
"""Whether all objects refer to their values, and to their names only if one is no string.

Since 3.13 ``vars()`` of a living object refers to nothing.
"""


def _has_own_limit() -> bool:
    """Return True if ``jiter`` refuses what nests too deep for the stack."""
    depth = SAFE_DEPTH // 4
    try:
        _parse(b"[" * depth + b"]" * depth)
    except ValueError:
        return True
    return False


_can_hurry = jiter is not None and msgspec is not None and _has_own_limit()
_DOUBTS = (ValueError, RecursionError, TypeError, AttributeError, OverflowError)
