"""Forms: the questions of elicitation, made from types, and the answers as values of these types.

A form is flat: clients show a field for each member, of the types string, number, integer, boolean,
or a choice. Source: 2025-06-18 and later client/elicitation: Requested Schema.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any, Generic, TypeAlias, TypeVar, cast

import attrs
import msgspec

from sansmcp import LocalProtocolError
from sansmcp.codecs.json import as_object
from sansmcp.types import elide

from ._arguments import arguments_from
from ._errors import ToolError
from ._schemas import JsonSchema, native, object_schema, resolved

T = TypeVar("T")

_KEPT = frozenset(
    (
        "default",
        "description",
        "enum",
        "format",
        "items",
        "maxItems",
        "maxLength",
        "maximum",
        "minItems",
        "minLength",
        "minimum",
        "title",
        "type",
    )
)
"""The members that the schema of a field may have."""

_ANSWER = "Your answer?"
_FORMATS = frozenset(("date", "date-time", "email", "uri"))
_SIMPLE = frozenset(("boolean", "integer", "number", "string"))


@attrs.frozen
class Accepted(Generic[T]):
    """The user has answered, with a value of the type that was asked for."""

    value: T


@attrs.frozen
class Declined:
    """The user has refused to answer."""


@attrs.frozen
class Cancelled:
    """The user has closed the form without a choice."""


Elicited: TypeAlias = Accepted[T] | Declined | Cancelled
"""The outcome of a question to the user."""


class Form:
    """A question for a value of a type.

    Args:
        type: a struct, dataclass, TypedDict, attrs class or pydantic model with simple fields, or a
            simple type such as ``int`` or ``Literal["a", "b"]``.
        message: the question; None takes the docstring of a type with fields, or its name.

    Raises:
        LocalProtocolError: a field of the type is not simple.
    """

    def __init__(self, type: Any, message: str | None) -> None:
        self._type, self._is_wrapped = _fields_of(type)
        name = getattr(type, "__name__", str(type))
        self._schema = schema = object_schema(self._type, f"The form {name}")[0]
        properties = {
            field: _simple(resolved(given, schema), schema, f"{name}.{field}")
            for field, given in cast("JsonSchema", schema.get("properties", {})).items()
        }
        required = [field for field in schema.get("required", ()) if field in properties]
        wanted: JsonSchema = {"type": "object", "properties": properties}
        if required:
            wanted["required"] = required
        question = message or (_ANSWER if self._is_wrapped else _message_of(type, name))
        self.params = {"message": question, "requestedSchema": wanted}
        """The parameters of the request."""

    def read(self, response: Any) -> Elicited[Any]:
        """Return what the user did.

        Raises:
            ToolError: the answer does not fit the type.
        """
        answer = as_object(response) or {}
        match answer.get("action"):
            case "accept":
                try:
                    content: Any = answer.get("content") or {}
                    value = arguments_from(content, self._type, self._schema, json_texts=False)
                except ValueError as error:
                    raise ToolError(f"The user's answer does not fit the form: {error}") from error
                return Accepted(value.value if self._is_wrapped else value)
            case "decline":
                return Declined()
            case _:
                return Cancelled()


def _fields_of(type: Any) -> tuple[Any, bool]:
    """Return a type with fields, and True if it has one field for a type that has none."""
    if isinstance(type, str):
        raise LocalProtocolError(
            f"The type of a form comes first, and then the question: elicit(type, {elide(type)})"
        )
    kind = native(type)
    schema, is_wrapped = object_schema(kind, f"The form {type}")
    if is_wrapped or "properties" not in schema:  # a dict has no fields to show
        return msgspec.defstruct("Answer", [("value", kind)]), True
    return kind, False


def _simple(schema: JsonSchema, root: JsonSchema, name: str) -> JsonSchema:
    """Return the schema of a field, reduced to what clients can show."""
    options = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    if len(options) == 1:
        schema = {**resolved(options[0], root), **schema}
    found = {key: value for key, value in schema.items() if key in _KEPT}
    if found.get("default", ...) is None:
        del found["default"]
    if found.get("format") not in _FORMATS:
        found.pop("format", None)
    if "enum" in found and all(isinstance(each, str) for each in found["enum"]):
        found["type"] = "string"
    if found.get("type") == "array":
        found["items"] = _simple(resolved(schema.get("items", {}), root), root, name)
        is_simple = "enum" in found["items"]
    else:
        is_simple = found.get("type") in _SIMPLE
    if not is_simple:
        raise LocalProtocolError(
            f"{name} cannot be a field of a form. Fields are str, int, float, bool, a date, a "
            "Literal or Enum of strings, or a list of such a choice"
        )
    return found


def _message_of(type: Any, name: str) -> str:
    own: object = cast("Mapping[str, object]", getattr(type, "__dict__", {})).get("__doc__")
    if isinstance(own, str) and not own.startswith(f"{name}("):  # which dataclasses write
        return inspect.cleandoc(own).partition("\n\n")[0]
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
