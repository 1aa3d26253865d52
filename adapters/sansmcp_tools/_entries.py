"""What a client can find in a list: tools, resources, templates of resources, and prompts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from sansmcp.app import TaskRule, is_async

from ._content import is_content, without_none
from ._function import Function
from ._revisions import Features
from ._schemas import JsonSchema, check_value, native, object_schema
from ._templates import Template

Completer: TypeAlias = (
    Sequence[str] | Callable[[str, Mapping[str, str]], Sequence[str] | Awaitable[Sequence[str]]]
)
"""The values of an argument: a sequence, of which clients get those that begin as the user has
begun; or a function, plain or async, of that beginning and of the arguments that are known already.
"""

Icons: TypeAlias = Sequence[Mapping[str, Any]]
"""Icons as the specification writes them: ``{"src": ..., "mimeType": ..., "sizes": [...]}``."""

_BY_FEATURE = {
    "audio_and_hints": ("annotations",),
    "structured": ("title", "outputSchema", "_meta"),
    "icons": ("icons",),
}
"""The members of a definition that clients know only with a feature."""


@attrs.frozen(kw_only=True)
class Entry:
    """An entry of a list: a function and its definition, as clients get it."""

    number: int
    function: Function
    definition: Mapping[str, Any]

    def shown(self, features: Features) -> dict[str, Any]:
        """Return the definition, without what a revision lacks."""
        unknown = {
            member
            for feature, members in _BY_FEATURE.items()
            for member in members
            if not getattr(features, feature)
        }
        return {name: value for name, value in self.definition.items() if name not in unknown}


@attrs.frozen(kw_only=True)
class Output:
    """The output of a tool whose annotation has a schema."""

    schema: JsonSchema
    is_wrapped: bool
    """True if the value is sent as ``{"result": value}``, because it is no object."""
    type: Any

    def check(self, value: Any) -> None:
        """Raise ValueError if a value does not fit the schema."""
        check_value(value, self.type)


def output_of(function: Function) -> Output | None:
    """Return the output of a function; None if its results have no schema: texts and content.

    Raises:
        LocalProtocolError: the annotation is of a type without a schema.
    """
    if function.returns in (None, str, Any) or is_content(function.returns):
        return None
    type = native(function.returns)
    schema, is_wrapped = object_schema(type, f"The result of {function.name}", is_output=True)
    return Output(schema=schema, is_wrapped=is_wrapped, type=type)


@attrs.frozen(kw_only=True)
class Tool(Entry):
    """A tool."""

    output: Output | None
    task: TaskRule
    is_restartable: bool
    scopes: Collection[str]


@attrs.frozen(kw_only=True)
class Completable(Entry):
    """An entry with arguments that can be completed."""

    complete: Mapping[str, Completer]

    def completer_of(self, argument: str) -> Completer:
        """Return the completer of an argument: its own, or the values of a Literal or an Enum."""
        schema = self.function.parameters.get(argument, {})
        return self.complete.get(argument, tuple(map(str, schema.get("enum", ()))))

    @property
    def can_complete(self) -> bool:
        """True if an argument has a completer."""
        return any(map(self.completer_of, self.function.parameters))


@attrs.frozen(kw_only=True)
class Resource(Completable):
    """A resource, or a template of resources."""

    template: Template
    mime_type: str | None
    before: str
    """A text before that which the function returns: the frontmatter of a skill."""


@attrs.frozen(kw_only=True)
class Prompt(Completable):
    """A prompt."""


def is_plain_completer(completer: Completer) -> bool:
    """True for a plain function, which may block."""
    return callable(completer) and not is_async(completer)


def tool_definition(
    function: Function,
    output: Output | None,
    hints: Mapping[str, bool | None],
    **members: Any,
) -> dict[str, Any]:
    """Return the definition of a tool; ``members`` that are None are left out."""
    given = without_none(hints)
    return without_none(
        {
            **_common(function, members),
            "inputSchema": function.schema,
            "outputSchema": None if output is None else output.schema,
            "annotations": given or None,
        }
    )


def resource_definition(
    function: Function, template: Template, mime_type: str | None, **members: Any
) -> dict[str, Any]:
    """Return the definition of a resource or a template."""
    key = "uriTemplate" if template.variables else "uri"
    common = _common(function, members)
    return without_none({key: template.text, **common, "mimeType": mime_type})


def prompt_definition(function: Function, **members: Any) -> dict[str, Any]:
    """Return the definition of a prompt."""
    arguments = [
        without_none(
            {
                "name": name,
                "description": schema.get("description"),
                "required": name in function.required,
            }
        )
        for name, schema in function.parameters.items()
    ]
    return without_none({**_common(function, members), "arguments": arguments or None})


def _common(function: Function, members: Mapping[str, Any]) -> dict[str, Any]:
    """Return the name, the description, the title and the icons."""
    return {"name": function.name, "description": function.text or None, **without_none(members)}
