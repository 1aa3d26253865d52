"""A function of the application: its parameters as a schema, and its call with JSON."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from types import FunctionType, NoneType
from typing import Annotated, Any, cast

import attrs
import msgspec

from sansmcp import LocalProtocolError
from sansmcp.app import is_async
from sansmcp.types import elide

from ._arguments import arguments_from
from ._context import Context, ThreadContext
from ._docstrings import parse_docstring
from ._errors import NotJsonError
from ._schemas import (
    JsonSchema,
    Parameter,
    check_json,
    is_plain,
    native,
    parameters_schema,
    resolved,
    to_json,
    without_schema,
)

_EMPTY = inspect.Parameter.empty


@attrs.frozen(kw_only=True)
class Function:
    """A function, and what its signature and docstring say.

    Attributes:
        call: the function.
        name: the name by which clients know it, for errors, too.
        is_async: True for an async function, which runs in the event loop.
        text: the docstring without the descriptions of the parameters.
        schema: the schema of the parameters.
        returns: the annotation of the result; None without one, or if it is None.
        struct: the parameters as the fields of a class.
        context: the name of the parameter for a context; None without one.
        is_strict: False if numbers and booleans are taken from strings.
        json_texts: True if texts are read as JSON where the schema allows no text.
    """

    call: Callable[..., Any]
    name: str
    is_async: bool
    text: str
    schema: JsonSchema
    returns: Any
    struct: type[msgspec.Struct]
    context: str | None
    is_strict: bool
    json_texts: bool

    @property
    def parameters(self) -> dict[str, JsonSchema]:
        """The schema of each parameter."""
        found: dict[str, JsonSchema] = self.schema.get("properties", {})
        return {name: resolved(schema, self.schema) for name, schema in found.items()}

    @property
    def required(self) -> list[str]:
        """The names of the parameters without a default."""
        found: list[str] = self.schema.get("required", [])
        return found

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments, converted to the types of the parameters.

        Raises:
            ValueError: they do not fit; the text names the field.
        """
        values = arguments_from(
            dict(given),
            self.struct,
            self.schema,
            json_texts=self.json_texts,
            strict=self.is_strict,
        )
        found = {name: getattr(values, name) for name in values.__struct_fields__}
        return {name: value for name, value in found.items() if value is not msgspec.UNSET}

    def with_context(
        self, arguments: dict[str, Any], make: Callable[[], Context | ThreadContext]
    ) -> dict[str, Any]:
        """Return the arguments, and the context if the function has a parameter for it."""
        return arguments if self.context is None else {**arguments, self.context: make()}


def inspect_function(
    function: Callable[..., Any],
    name: str | None,
    *,
    are_strings: bool = False,
    json_texts: bool = True,
) -> Function:
    """Return what a function's signature and docstring say.

    Args:
        function: the function, plain or async.
        name: the name by which clients know it; None is that of the function.
        are_strings: True if clients send all arguments as strings: numbers and booleans are then
            taken from them.
        json_texts: True to read texts as JSON where the schema allows no text.

    Raises:
        LocalProtocolError: a parameter or its annotation cannot be used; the text says why.
    """
    if not callable(function):
        is_name = isinstance(cast(object, function), str)
        advice = f"; for a name write name={function!r}" if is_name else ""
        raise LocalProtocolError(f"Decorate a function, and not {elide(function)}{advice}")
    _check_no_class(function)
    _check_no_method(function)
    _check_no_generator(function)
    own = getattr(function, "__name__", type(function).__name__)
    hints = _hints(function, own)
    documentation = parse_docstring(inspect.getdoc(function))
    context: str | None = None
    fields: list[Any] = []
    parameters: list[Parameter] = []
    defaults: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        annotation = hints.get(parameter.name, Any)
        if annotation in (Context, ThreadContext):
            if context is not None:
                raise LocalProtocolError(f"{own} has two parameters for a context; keep one")
            context = parameter.name
            _check_context(annotation, function, own)
            continue
        _check_kind(parameter, own)
        plain, described = native(annotation), documentation.parameters.get(parameter.name)
        is_required = parameter.default is _EMPTY
        parameters.append(Parameter(parameter.name, plain, described, is_required))
        try:
            has_words = described is not None or not is_plain(plain)
            kind = _described(plain, described) if has_words else plain
        except (AttributeError, TypeError) as error:  # it is no type, as 5 in ``def f(a: 5)``
            raise without_schema(f"The parameter {parameter.name} of {own}", error) from error
        if is_required:
            fields.append((parameter.name, kind))
        else:
            fields.append((parameter.name, kind | msgspec.UnsetType, msgspec.UNSET))
            defaults[parameter.name] = parameter.default
    struct = msgspec.defstruct(own, fields, kw_only=True, forbid_unknown_fields=True)
    schema = parameters_schema(parameters, struct, own)
    _add_defaults(schema, defaults)
    return Function(
        call=function,
        name=own if name is None else name,
        is_async=is_async(function),
        text=documentation.text,
        schema=schema,
        returns=_returns(hints),
        struct=struct,
        context=context,
        is_strict=not are_strings,
        json_texts=json_texts,
    )


def _check_no_class(function: Callable[..., object]) -> None:
    """Raise LocalProtocolError for a class: its annotations are not those of a function."""
    if inspect.isclass(function):
        name = function.__name__
        raise LocalProtocolError(
            f"{name} is a class: decorate a function, or pass a method of an object, as in "
            f"tools.tool({name}().method)"
        )


def _check_no_method(function: Callable[..., Any]) -> None:
    """Raise LocalProtocolError for a function of a class, which needs an object first."""
    home = getattr(function, "__qualname__", "").rpartition(".")[0]
    if not inspect.isfunction(function) or home[-1:] in ("", ">"):
        return
    if next(iter(inspect.signature(function).parameters), None) in ("self", "cls"):
        name = function.__name__
        raise LocalProtocolError(
            f"{home}.{name} is a method of a class: make an object, and pass its method, as in "
            f"tools.tool({home}().{name})"
        )


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    if (found := _plain_hints(function)) is not None:
        return found
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise LocalProtocolError(
            f"The annotations of {name} cannot be read: {error}. Names in annotations must be "
            "defined in the module of the function"
        ) from error


def _plain_hints(function: Callable[..., Any]) -> dict[str, Any] | None:
    """Return the annotations of a function as ``get_type_hints()`` does, if all are plain types.

    It would evaluate each part of each. Before 3.11 it makes a type optional whose default is None.
    """
    if not isinstance(function, FunctionType) or hasattr(function, "__wrapped__"):
        return None
    if sys.version_info < (3, 11):
        defaults = *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()
        if any(default is None for default in defaults):
            return None
    found = function.__annotations__
    if not all(map(is_plain, found.values())):
        return None
    return {name: NoneType if kind is None else kind for name, kind in found.items()}


def _check_context(annotation: Any, function: Callable[..., Any], name: str) -> None:
    if is_async(function) is not (annotation is Context):
        raise LocalProtocolError(
            f"{name} is async, so its context must be a Context, whose methods are awaited"
            if is_async(function)
            else f"{name} is a plain function, so its context must be a ThreadContext, whose "
            "methods block"
        )


def _check_kind(parameter: inspect.Parameter, name: str) -> None:
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise LocalProtocolError(
            f"The parameter {parameter} of {name} cannot be passed by name; clients send "
            "arguments by name only"
        )


def _described(kind: Any, description: str | None) -> Any:
    """Return a type with the description of a docstring, unless it has one of its own."""
    metadata = getattr(kind, "__metadata__", ())
    is_described = any(isinstance(each, msgspec.Meta) and each.description for each in metadata)
    if description is None or is_described:
        return Annotated[kind, msgspec.Meta()]  # a class of pydantic's types has no operator |
    return Annotated[kind, msgspec.Meta(description=description)]


def _add_defaults(schema: JsonSchema, defaults: Mapping[str, Any]) -> None:
    for name, default in defaults.items():
        try:
            value = to_json(default)
            check_json(value)
        except (TypeError, ValueError, NotJsonError):  # an object for a missing argument, or NaN
            continue
        schema["properties"][name]["default"] = value


def _returns(hints: Mapping[str, Any]) -> Any:
    returns = hints.get("return")
    return None if returns is type(None) else cast("Any", returns)


def _check_no_generator(function: Callable[..., object]) -> None:
    """Raise LocalProtocolError for a function that yields: a call has one result."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        name = getattr(function, "__name__", None) or type(function).__name__
        raise LocalProtocolError(
            f"{name} is a generator: it yields, and a call has one result. Return a list instead"
        )
