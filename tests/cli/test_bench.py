"""The command that measures the parsers on a recording."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sansmcp import encode_event

from .conftest import failed, run_in_process


def test_a_recording_is_measured(tmp_path: Path) -> None:
    message = b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}'
    recording = tmp_path / "stream.txt"
    recording.write_bytes(encode_event(b"", id="1") + encode_event(message, id="2") * 3)
    shown = run_in_process("bench", str(recording))
    assert (shown.status, shown.err) == (0, "")
    first, *rows = shown.out.splitlines()
    assert first.startswith("3 events, ")
    assert len(rows) == 10
    assert all(float(row.split()[-1]) > 0 for row in rows)


@pytest.mark.parametrize(
    ("recording", "reason"),
    [(b": nothing\n\n", "no event with data"), (b"data: {}\n\n", "cannot be read: Not a JSON-RPC")],
)
def test_what_is_no_recording(tmp_path: Path, recording: bytes, reason: str) -> None:
    path = tmp_path / "stream.txt"
    path.write_bytes(recording)
    assert reason in failed(run_in_process("bench", str(path)))


def test_other_libraries_are_measured_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = tmp_path / "stream.txt"
    recording.write_bytes(encode_event(b'{"jsonrpc":"2.0","method":"notifications/message"}') * 3)
    pytest.importorskip("mcp", reason="needs mcp")
    shown = run_in_process("bench", str(recording), "--with", "mcp")
    assert (shown.status, shown.err) == (0, "")
    rows = [row for row in shown.out.splitlines() if row.startswith("mcp: ")]
    assert len(rows) == 6
    assert all(float(row.split()[-1]) > 0 for row in rows)
    asked = ("bench", str(recording), "--with")
    assert "takes httpx-sse, mcp, got 'other'" in failed(run_in_process(*asked, "other"))
    monkeypatch.setitem(sys.modules, "httpx_sse", None)
    assert "--with httpx-sse: " in failed(run_in_process(*asked, "httpx-sse"))
