"""JSON that nests deep is refused before a parser in C recurses into it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sansmcp_local import load_json

IN_A_SMALL_STACK = """
import threading
threading.stack_size(256 << 10)
from sansmcp_local import load_json

def parse():
    for depth in (500, 501, 1_000_000):
        try:
            load_json("[" * depth + "]" * depth)
        except ValueError:
            print("refused")
        else:
            print("read")

thread = threading.Thread(target=parse)
thread.start()
thread.join()
"""


@pytest.mark.parametrize("text", ['{"a": [1, "\\ud800"]}', b'{"a": [1, "\\ud800"]}'])
def test_it_reads_what_the_standard_library_reads(text: str | bytes) -> None:
    assert load_json(text) == {"a": [1, "\ud800"]}


@pytest.mark.parametrize("text", ["", "{", "[" * 501 + "]" * 501, b"[" * 200_000])
def test_what_cannot_be_read_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"nested too deeply|Expecting"):
        load_json(text)


def test_a_small_stack_does_not_overflow() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_A_SMALL_STACK], stdout=subprocess.PIPE, encoding="ascii"
    )
    assert (done.returncode, done.stdout.split()) == (0, ["read", "refused", "refused"])
