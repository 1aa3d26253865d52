"""A keyword argument that Tools and its decorators do not have: the error names the nearest one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from sansmcp_tools import Tools


@pytest.mark.parametrize(
    ("function", "setting", "message"),
    [
        (Tools, "instuctions", r"^Tools\(\) .* 'instuctions'; did you mean 'instructions'\? The s"),
        (Tools, "x", r"^Tools\(\) .* 'x'\. The settings of Tools are description, icons, instruc"),
        (Tools("t").tool, "readonly", r"^tool\(\) .*; did you mean 'read_only'\?"),
        (Tools("t").resource, "mimetype", r"^resource\(\) .*; did you mean 'mime_type'\?"),
        (Tools("t").prompt, "completer", r"^prompt\(\) .*; did you mean 'complete'\?"),
        (Tools("t").skill, "descripton", r"^skill\(\) .*; did you mean 'description'\?"),
        (Tools("t").skills, "maxage", r"^skills\(\) .*; did you mean 'max_age'\?"),
        (Tools("t").handler, "restartible", r"^handler\(\) .*; did you mean 'restartable'\?"),
    ],
)
def test_the_nearest_setting_is_named(
    function: Callable[..., Any], setting: str, message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        function("name", **{setting: "x"})


def test_a_function_cannot_be_given_by_keyword() -> None:
    tool: Callable[..., Any] = Tools("t").tool
    with pytest.raises(TypeError, match=r"The settings of a tool are description, destructive,"):
        tool(function=print)


def test_signatures_are_those_of_the_source() -> None:
    assert list(inspect.signature(Tools).parameters)[:2] == ["name", "version"]
    assert "read_only" in inspect.signature(Tools("t").tool).parameters
