"""``sansmcp/schema.py`` is what its generator makes, and type checkers and readers can use it."""

from __future__ import annotations

import subprocess
import sys
import typing

import pytest

from sansmcp import schema

from ..node import install_or_skip
from ..schemas.generator import MODULE, PACKAGES, generate, source


def test_it_is_what_the_generator_makes() -> None:
    install_or_skip(PACKAGES)
    assert MODULE.read_text("utf-8") == generate(), "run make schemas"


def test_importing_the_package_does_not_import_it() -> None:
    code = (
        "import sys, sansmcp, sansmcp_asyncio, sansmcp_blocking\n"
        "sansmcp_asyncio.Client, sansmcp_blocking.Client\n"
        "assert 'sansmcp.schema' not in sys.modules\n"
        "assert sansmcp.schema.Tool.__name__ == 'Tool'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", schema.__all__)
def test_every_name_can_be_read(name: str) -> None:
    value = getattr(schema, name)
    if isinstance(value, type):
        typing.get_type_hints(value)
        assert value.__doc__


def test_a_type_has_the_members_of_all_revisions() -> None:
    def tool(required: list[str], **members: object) -> dict[str, object]:
        return {"properties": members, "required": required}

    text = {"type": "string"}
    revisions = {
        "2025-01-01": {"EchoResult": tool(["a", "b"], a=text, b=text)},
        "2026-01-01": {"EchoResult": tool(["a"], a={"type": "integer"}, b=text, c={"const": "x"})},
    }
    made = source(revisions, "a-package", "1.0")
    names: dict[str, typing.Any] = {}
    made = made.replace("from .types import", "from sansmcp.types import")
    exec(compile(made, "schema.py", "exec", dont_inherit=True), names)
    result = names["EchoResult"]
    assert result.__required_keys__ == {"a"}
    assert result.__optional_keys__ == {"b", "c"}
    assert typing.get_type_hints(result)["a"] == str | int
    assert "Only at 2026-01-01: ``c``." in result.__doc__
    assert names["__all__"] == ["EchoResult"]


def test_a_type_that_needs_itself_is_refused() -> None:
    needy = {"properties": {"inner": {"$ref": "NeedyResult"}}}
    with pytest.raises(NotImplementedError, match="needs itself"):
        source({"2026-01-01": {"NeedyResult": needy}}, "a-package", "1.0")
