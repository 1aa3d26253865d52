"""The programs on the page on migrating do the same, each client with each server."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ..examples.test_examples import output_of
from .documents import DOCS, blocks

THEIR_SERVER, OUR_SERVER, THEIR_CLIENT, OUR_CLIENT = blocks(DOCS / "migrating.md", "python")


@pytest.mark.parametrize("server", [THEIR_SERVER, OUR_SERVER], ids=["their-server", "our-server"])
@pytest.mark.parametrize("client", [THEIR_CLIENT, OUR_CLIENT], ids=["their-client", "our-client"])
def test_they_do_the_same(client: str, server: str, tmp_path: Path) -> None:
    programs = tmp_path / "client.py", tmp_path / "server.py"
    for program, code in zip(programs, (client, server), strict=True):
        program.write_text(code, encoding="utf-8")
    printed = output_of(programs[0], sys.executable, str(programs[1]))
    assert printed == "1 of 2\n3\n-32602 There is no tool 'subtract'\n"
