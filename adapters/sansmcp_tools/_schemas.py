"""JSON schemas of Python types, and values of these types from JSON and to JSON.

msgspec does both, and pydantic does for the types that are its own: models, and types annotated
with ``pydantic.Field``. Only a program that has imported pydantic can have such types, so this
module never imports it.
"""

from __future__ import annotations

import functools
import inspect
import numbers
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin

import attrs
import msgspec

from sansmcp import LocalProtocolError
from sansmcp.codecs import json
from sansmcp.codecs.conversion import mistakes_in

from ._errors import NotJsonError

JsonSchema = dict[str, Any]

_DEFINITIONS = "$defs"
_REFERENCE = "#/$defs/{name}"
_PYTHON_NUMBERS = (bool, int, float)
_PLAIN = (str, int, float, bool, NoneType, None)
_OF_PLAIN = (list, dict, tuple, set, frozenset, Union, UnionType)
_KNOWN_SCHEMAS = 1024
"""How many schemas of plain types are kept; further ones are made anew."""


@attrs.frozen
class Parameter:
    """A parameter of a function."""

    name: str
    type: Any
    """What :func:`native` has returned."""
    description: str | None
    is_required: bool


class _AnyInstance(type):
    """The class of classes that stand for a type of pydantic, so that msgspec takes its values."""

    adapter: Any

    def __instancecheck__(cls, instance: object) -> bool:
        return True


def native(annotation: Any) -> Any:
    """Return a type for msgspec: ``annotation``, or one that stands for it if it is pydantic's."""
    if is_plain(annotation) or not _is_pydantic(annotation):
        return annotation
    adapter = sys.modules["pydantic"].TypeAdapter(annotation)
    return _AnyInstance("pydantic", (), {"adapter": adapter})


def _is_pydantic(annotation: Any) -> bool:
    if hasattr(annotation, "__pydantic_core_schema__"):
        return True
    if type(annotation).__module__.partition(".")[0] == "pydantic":
        return True  # Field() in Annotated
    return any(map(_is_pydantic, get_args(annotation)))


def from_json(value: Any, type: Any, *, strict: bool = True) -> Any:
    """Return a value of a type, made from JSON.

    Args:
        value: what JSON has: dict, list, str, int, float, bool or None.
        type: what :func:`native` has returned.
        strict: False to take numbers and booleans from strings.

    Raises:
        ValueError: it does not fit; the text names the field.
    """
    try:
        return msgspec.convert(value, type, strict=strict, str_keys=True, dec_hook=_decode)
    except msgspec.ValidationError as error:
        raise ValueError(mistakes_in(error).replace("`$.", "`")) from error


def check_value(value: Any, type: Any) -> None:
    """Raise ValueError if a value of the application is not of a type.

    Instances of classes have been checked where they were made. Numbers of libraries, such as those
    of numpy, are numbers.
    """
    try:
        msgspec.convert(value, type, dec_hook=_unchanged)
    except msgspec.ValidationError as error:
        try:
            msgspec.convert(_with_numbers(value), type, dec_hook=_unchanged)
        except msgspec.ValidationError:
            text = f"The function has returned what its annotation does not allow: {error}"
            raise ValueError(text) from None


def to_json(value: Any) -> Any:
    """Return what JSON has for a value. Raises TypeError if it is of an unknown type."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_encode)


def encode(value: Any) -> str:
    """Return the JSON text of a value that :func:`to_json` has returned.

    Raises:
        NotJsonError: a part of it is NaN, an infinity or half a character.
    """
    try:
        text = msgspec.json.encode(value).decode()
    except ValueError:
        check_json(value)
        raise
    if "null" in text:  # msgspec writes NaN and infinities so, too
        check_json(value)
    return text


def check_json(value: Any) -> None:
    """Raise NotJsonError, with its place, for the first part of a value that is not JSON."""
    try:
        json.encode(value)
    except LocalProtocolError as error:
        raise NotJsonError(str(error).removeprefix("Not a JSON value: ")) from error


def object_schema(type: Any, what: str, *, is_output: bool = False) -> tuple[JsonSchema, bool]:
    """Return a schema whose root is an object.

    Args:
        type: what :func:`native` has returned.
        what: what the type belongs to, as errors name it.
        is_output: True for the schema of what :func:`to_json` makes, False of what
            :func:`from_json` takes. They differ for some models of pydantic.

    Returns:
        The schema, and True if values must be wrapped as ``{"result": value}`` because the type has
        no object.

    Raises:
        LocalProtocolError: the type has no JSON schema.
    """
    schema, definitions = _schema(type, what, "serialization" if is_output else "validation")
    root = _resolve(schema, definitions)
    is_wrapped = root.get("type") != "object"
    if is_wrapped:
        root = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
    return _with_used(root, definitions), is_wrapped


def parameters_schema(
    parameters: Sequence[Parameter], struct: type[msgspec.Struct], function: str
) -> JsonSchema:
    """Return the schema of the arguments of a function.

    Args:
        parameters: the parameters.
        struct: the same as the fields of a class.
        function: the name of the function, for errors.

    Raises:
        LocalProtocolError: a type has no JSON schema.
    """
    if not all(is_plain(parameter.type) for parameter in parameters):
        try:
            schema, _ = object_schema(struct, f"A parameter of {function}")
        except LocalProtocolError:
            for parameter in parameters:
                named = f"The parameter {parameter.name} of {function}"
                _schema(parameter.type, named, "validation")
            raise
        return {key: value for key, value in schema.items() if key != "title"}
    # The types of most parameters are few, and msgspec takes long for a class.
    properties: dict[str, JsonSchema] = {}
    for parameter in parameters:
        described = {} if parameter.description is None else {"description": parameter.description}
        try:
            schema = _plain_schema(parameter.type, repr(parameter.type))
        except (TypeError, NotImplementedError, ValueError) as error:
            raise without_schema(f"The parameter {parameter.name} of {function}", error) from error
        properties[parameter.name] = {**described, **schema}
    return {
        "type": "object",
        "properties": properties,
        "required": [parameter.name for parameter in parameters if parameter.is_required],
        "additionalProperties": False,
    }


def is_plain(type: Any) -> bool:
    """True for a type without classes of a program, and without words of its own."""
    if type is Any or type in _PLAIN:
        return True
    origin = get_origin(type)
    return origin is Literal or (origin in _OF_PLAIN and all(map(is_plain, get_args(type))))


def resolved(schema: JsonSchema, root: JsonSchema) -> JsonSchema:
    """Return a part of a schema, or the definition that it refers to with its own words added."""
    target = _resolve(schema, root.get(_DEFINITIONS, {}))
    return target if target is schema else {**target, **schema}


def _schema(type: Any, what: str, mode: str) -> tuple[JsonSchema, dict[str, JsonSchema]]:
    lifted: dict[str, JsonSchema] = {}
    try:
        if is_plain(type):
            return _plain_schema(type, repr(type)), {}
        (schema,), definitions = msgspec.json.schema_components(
            (type,),
            schema_hook=functools.partial(_describe, lifted, what, mode),
            ref_template=_REFERENCE,
        )
    except (TypeError, NotImplementedError, ValueError) as error:
        raise without_schema(what, error) from error
    _merge(definitions, lifted, what)
    return schema, definitions


def without_schema(what: str, error: Exception) -> LocalProtocolError:
    """Return the error for an annotation that has no JSON schema, with those that have one."""
    return LocalProtocolError(
        f"{what} has a type without a JSON schema: {error}. Types that have one are str, int, "
        "float, bool, None, list, dict, tuple, set, Literal, Enum, dates, dataclasses, TypedDict, "
        "NamedTuple, attrs classes, msgspec.Struct, models of pydantic, and unions of these"
    )


@functools.lru_cache(_KNOWN_SCHEMAS)
def _plain_schema(type: Any, order: str) -> JsonSchema:
    """Return the schema of a plain type. ``order`` tells unions apart that are equal."""
    (schema,), _ = msgspec.json.schema_components((type,))
    return schema


def _merge(definitions: dict[str, JsonSchema], more: Mapping[str, JsonSchema], what: str) -> None:
    for name, definition in more.items():
        if definitions.setdefault(name, definition) != definition:
            raise LocalProtocolError(f"{what} uses two types of the name {name}; rename one")


def _resolve(schema: JsonSchema, definitions: Mapping[str, JsonSchema]) -> JsonSchema:
    while (reference := schema.get("$ref")) is not None:
        schema = definitions[reference.rpartition("/")[2]]
    return schema


def _with_used(root: JsonSchema, definitions: Mapping[str, JsonSchema]) -> JsonSchema:
    """Return a schema with those definitions that it refers to."""
    used: dict[str, JsonSchema] = {}
    waiting: list[JsonSchema] = [root]
    while waiting:
        for name in _references(waiting.pop()):
            if name not in used:
                used[name] = definitions[name]
                waiting.append(definitions[name])
    return {**root, _DEFINITIONS: used} if used else dict(root)


def _references(schema: Any) -> Iterable[str]:
    if isinstance(schema, dict):
        members = cast("dict[str, Any]", schema)
        if isinstance(reference := members.get("$ref"), str):
            yield reference.rpartition("/")[2]
        for member in members.values():
            yield from _references(member)
    elif isinstance(schema, list):
        for member in cast("list[object]", schema):
            yield from _references(member)


def _describe(lifted: dict[str, JsonSchema], what: str, mode: str, type: Any) -> JsonSchema:
    """Return the schema of a type that msgspec does not know; its definitions go to ``lifted``."""
    schema: JsonSchema = _adapter(type).json_schema(ref_template="#/$defs/{model}", mode=mode)
    _merge(lifted, schema.pop(_DEFINITIONS, {}), what)
    return schema


def _decode(type: Any, value: Any) -> Any:
    try:
        return _adapter(type).validate_python(value)
    except ValueError as error:
        raise ValueError(mistakes_in(error)) from error


def _encode(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    if inspect.iscoroutine(value):
        value.close()  # else Python warns that it was never awaited, at no certain time
        raise NotJsonError(f"{value.__qualname__}() was called without await")
    number = _number(value)
    if number is value:
        raise TypeError(f"{type(value).__name__} has no form in JSON")
    return number


def _with_numbers(value: Any) -> Any:
    """Return a value with numbers of Python for those of libraries."""
    if json.is_object(value):
        return {name: _with_numbers(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        items = map(_with_numbers, cast("Sequence[Any]", value))
        return tuple(items) if isinstance(value, tuple) else list(items)
    return _number(value)


def _number(value: Any) -> Any:
    """Return the number of Python for one of a library; any other value unchanged."""
    if type(value) in _PYTHON_NUMBERS:
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    # The truth values of numpy are no numbers.
    is_numpy = type(value).__module__ == "numpy" and hasattr(value, "item")
    return value.item() if is_numpy else value


def _unchanged(type: Any, value: Any) -> Any:
    return value


def _adapter(type: Any) -> Any:
    """Return the TypeAdapter of a type. Raises TypeError if the type is not pydantic's."""
    if isinstance(type, _AnyInstance):
        return type.adapter
    if not _is_pydantic(type):
        raise TypeError(f"{type!r} is not supported")
    return sys.modules["pydantic"].TypeAdapter(type)
