"""A server of the fleet as of a later version: it adds a member to each record that it stores.

It adds a word to each head, too. The arguments are those of ``server``.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

from sansmcp.server import records

_write_members, _write_head = records.write_members, records.write_head


def _with_a_member(members: Mapping[str, Any]) -> bytes:
    return _write_members(_and_inside(members))


def _and_inside(members: Mapping[str, Any]) -> dict[str, Any]:
    inside = {
        name: _and_inside(members[name]) for name in ("reentry", "request") if members.get(name)
    }
    return {**members, **inside, "com.example/later": {"deep": [{}]}}


def _with_a_word(name: str, number: int, data: bytes) -> bytes:
    head, _, rest = _write_head(name, number, data).partition(b"\n")
    return head + b" later\n" + rest


# Before the modules are imported that take these names.
records.write_members, records.write_head = _with_a_member, _with_a_word

if __name__ == "__main__":
    from .server import serve

    asyncio.run(serve(*sys.argv[1:]))
