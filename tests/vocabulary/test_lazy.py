"""Public names that are imported when they are first used."""

from __future__ import annotations

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
