"""The schemas of plain parameters are those that msgspec makes of a class with these fields."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Optional, Union, cast

import msgspec
import pytest

from sansmcp import LocalProtocolError
from sansmcp_tools._function import inspect_function
from sansmcp_tools._schemas import object_schema


def without_order(schema: Any) -> Any:
    """Return a schema with its alternatives sorted.

    Those of a union in Annotated have the order of an equal union that was made before, which
    Python keeps.
    """
    if isinstance(schema, list):
        return [without_order(item) for item in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    members = {key: without_order(value) for key, value in cast("dict[str, Any]", schema).items()}
    if "anyOf" in members:
        members["anyOf"].sort(key=repr)
    return members


TYPES: tuple[Any, ...] = (
    str,
    int,
    float,
    bool,
    None,
    Any,
    list[int],
    dict[str, list[float]],
    tuple[int, str],
    tuple[int, ...],
    set[bool],
    int | str,
    str | int,
    Union[str, int, None],  # noqa: UP007 - how older programs write it
    Optional[list[Literal["a", "b"]]],  # noqa: UP045
    Literal[1, 2],
    Annotated[int, msgspec.Meta(ge=1, description="its own")],
)


@pytest.mark.parametrize("kind", TYPES, ids=str)
@pytest.mark.parametrize("has_words", [False, True])
def test_a_schema_does_not_depend_on_how_it_was_made(kind: Any, has_words: bool) -> None:
    def function(needed: Any, optional: Any = None) -> None:
        """Do it."""

    function.__annotations__ = {"needed": kind, "optional": kind}
    if has_words:
        function.__doc__ = "Do it.\n\nArgs:\n    needed: what.\n    optional: how often.\n"
    made = inspect_function(function, None)
    expected, _ = object_schema(made.struct, "It")
    del expected["title"]
    expected["properties"]["optional"]["default"] = None
    assert without_order(made.schema) == without_order(expected)
    assert list(made.schema["properties"]) == ["needed", "optional"]


def test_a_union_keeps_the_order_of_its_types() -> None:
    def first(value: int | str) -> None: ...

    def second(value: str | int) -> None: ...

    for function, names in ((first, ["integer", "string"]), (second, ["string", "integer"])):
        schema = inspect_function(function, None).schema["properties"]["value"]
        assert schema == {"anyOf": [{"type": name} for name in names]}


def test_a_default_is_that_of_its_own_function() -> None:
    def first(value: int = 1) -> None: ...

    def second(value: int) -> None: ...

    assert inspect_function(first, None).schema["properties"]["value"]["default"] == 1
    assert inspect_function(second, None).schema["properties"]["value"] == {"type": "integer"}


def test_a_plain_type_without_a_schema_is_refused_with_its_place() -> None:
    def function(value: list[int] | set[int]) -> None: ...

    with pytest.raises(LocalProtocolError, match="The parameter value of function has a type"):
        inspect_function(function, None)
