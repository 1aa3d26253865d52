"""JSON values to the types of an application: structs, dataclasses, typed dicts, models.

Types with ``model_validate``, such as those of pydantic, convert themselves. ``msgspec`` converts
to all others.
"""

from __future__ import annotations

from typing import Any, cast

from ..errors import LocalProtocolError
from .json import is_array, is_object

try:
    import msgspec
except ImportError:  # not CPython
    msgspec = None  # type: ignore[assignment]

_EXACT = 2**53
"""The largest integer up to which a float has each one."""

_MOST_MISTAKES = 20
"""Mistakes of a value that a text names."""

_LONG = 200
"""Characters of the text for one of several mistakes, which may quote the value."""

_LONGEST = 5000
"""Characters of a whole text."""

_END = 100
"""Of these, those from its end."""


class NotConvertible(Exception):
    """A value does not fit a type. The text names the place in the value."""


def check_convertible(result_type: Any) -> None:
    """Check that :func:`convert` can make values of a type.

    Raises:
        LocalProtocolError: it cannot.
    """
    if hasattr(result_type, "model_validate"):
        return
    if msgspec is None:
        raise LocalProtocolError(
            f"result_type={_name(result_type)} needs msgspec, which this Python has not; use a "
            "pydantic model"
        )
    try:
        msgspec.json.Decoder(result_type)
    except TypeError as error:
        raise LocalProtocolError(
            f"result_type={_name(result_type)} is not a type that msgspec can convert to: {error}; "
            "to have a type without a check, annotate the variable of the result instead"
        ) from error


def convert(value: Any, result_type: Any) -> Any:
    """Return a JSON value as a value of a type that :func:`check_convertible` has accepted.

    3.0 fits an integer: in JSON both are one number, and some languages write all numbers so.

    Raises:
        NotConvertible: the value does not fit.
    """
    try:
        return _convert(value, result_type)
    except ValueError as error:  # the errors of pydantic and of msgspec are such
        try:
            return _convert(_with_integers(value), result_type)
        except ValueError:
            raise NotConvertible(f"{_name(result_type)}: {mistakes_in(error)}") from error


def mistake_in(value: Any, result_type: Any) -> str | None:
    """Return where and how a JSON value does not fit a type; None if it fits.

    Members that are null count as absent. Where msgspec is not installed, every value fits.
    """
    if msgspec is None:
        return None
    try:
        convert(_without_null(value), result_type)
    except NotConvertible as error:
        return str(error)
    return None


def _without_null(value: Any) -> Any:
    if is_object(value):
        return {name: _without_null(each) for name, each in value.items() if each is not None}
    return [_without_null(each) for each in value] if is_array(value) else value


def _convert(value: Any, result_type: Any) -> Any:
    if hasattr(result_type, "model_validate"):
        return result_type.model_validate(value)
    assert msgspec is not None
    return msgspec.convert(value, result_type)


def _with_integers(value: Any) -> Any:
    """Return a value with integers for those floats that are such, as far as floats are exact."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= _EXACT else value
    if is_object(value):
        return {name: _with_integers(each) for name, each in value.items()}
    return [_with_integers(each) for each in value] if is_array(value) else value


def mistakes_in(error: Exception) -> str:
    """Return the first mistakes that pydantic or msgspec has found in a value, on one line.

    A value can have as many mistakes as parts, and the text for each is longer than the part.
    """
    errors = getattr(error, "errors", None)
    if not callable(errors):
        return _shortened(str(error), _LONGEST)
    found = cast("list[dict[str, Any]]", errors())
    texts = [
        _shortened(f"{'.'.join(map(str, each['loc']))}: {each['msg']}".lstrip(": "), _LONG)
        for each in found[:_MOST_MISTAKES]
    ]
    if len(found) > _MOST_MISTAKES:
        texts.append(f"and {len(found) - _MOST_MISTAKES} more")
    return "; ".join(texts)


def _shortened(text: str, most: int) -> str:
    """Return a text without the middle of a long one: msgspec names the place at the end."""
    return text if len(text) <= most else f"{text[: most - _END]} ... {text[-_END:]}"


def _name(result_type: Any) -> str:
    return getattr(result_type, "__name__", None) or repr(result_type)
