"""Public names that are imported when they are first used."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import pytest

from sansmcp import _lazy


def test_names_are_found_once_and_listed() -> None:
    package: dict[str, Any] = {"__name__": "sansmcp"}
    get, listed = _lazy.names(package, {".memory_store": ("MemoryStore",)}, ("schema",))
    assert listed() == ["MemoryStore", "__name__", "schema"]
    assert get("schema").__name__ == "sansmcp.schema"
    assert get("MemoryStore") is package["MemoryStore"]
    with pytest.raises(AttributeError, match="'sansmcp' has no attribute 'other'"):
        get("other")


@pytest.mark.parametrize(
    ("package", "name", "what", "library", "extra"),
    [
        ("sansmcp_auth", "JwtVerifier", "sansmcp_auth.JwtVerifier", "joserfc", "auth"),
        (
            "sansmcp_telemetry",
            "ClientObserver",
            "sansmcp_telemetry.ClientObserver",
            "opentelemetry",
            "otel",
        ),
        ("sansmcp_local", "SkillFolder", "The frontmatter of skills", "yaml", "skills"),
        ("sansmcp_trio", "serve", "sansmcp_trio.serve", "trio", "trio"),
        ("sansmcp.httptools_parser", "HTTP11", "sansmcp.httptools_parser", "httptools", "fast"),
    ],
)
def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, package: str, name: str, what: str, library: str, extra: str
) -> None:
    for module in [each for each in sys.modules if each.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, module)
    for module in [
        each for each in sys.modules if each.startswith((package, "sansmcp_local._loop._trio"))
    ]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError) as caught:
        getattr(import_module(package), name)
    assert str(caught.value) == f"{what} needs the extra: pip install 'sansmcp[{extra}]'"


def test_another_missing_module_is_told_as_it_is() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), _lazy.needing("a", "b", "c"):
        import_module("no_such_module")
