"""JSON values to the types of an application: structs, dataclasses, typed dicts, models.

Types with ``model_validate``, such as those of pydantic, convert themselves. ``msgspec`` converts
to all others.
"""

from __future__ import annotations

from typing import Any

from ..errors import LocalProtocolError

try:
    import msgspec
except ImportError:  # not CPython
    msgspec = None  # type: ignore[assignment]


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

    Raises:
        NotConvertible: the value does not fit.
    """
    try:
        if hasattr(result_type, "model_validate"):
            return result_type.model_validate(value)
        assert msgspec is not None
        return msgspec.convert(value, result_type)
    except ValueError as error:  # the errors of pydantic and of msgspec are such
        raise NotConvertible(f"{_name(result_type)}: {error}") from error


def _name(result_type: Any) -> str:
    return getattr(result_type, "__name__", None) or repr(result_type)
