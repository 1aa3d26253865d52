"""Recordings: what is in them and what is not, and both sides of a conversation played again."""

from __future__ import annotations

import json
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from .conftest import command, failed, run, run_in_process, serving, started

ADD = ("add", "a=1", "b=2")
SLOW = ("slow", "steps=4", "delay=0.05")


@pytest.fixture(scope="module")
def http_sse() -> Generator[str, None, None]:
    with serving("--http-sse") as url:
        yield url.replace("/mcp", "/sse")


def record(file: Path, *words: str) -> list[dict[str, Any]]:
    """Record a command. Return the lines of the recording."""
    done = run_in_process(words[0], "--record", str(file), *words[1:])
    assert done.status == 0, done.err
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


@contextmanager
def played(file: Path) -> Generator[str, None, None]:
    """Serve a recording; gives the URL."""
    with started("replay", str(file), "--serve", "--http", "127.0.0.1:0") as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_the_format(url: str, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("older")
    head, *lines = record(file, "call", url, *ADD)
    assert (head["recording"], head["redacted"], head["target"]) == (1, True, url)
    assert file.stat().st_mode & 0o777 == 0o600
    times = [line["t"] for line in lines]
    assert times == sorted(times)
    first = [line for line in lines if line["exchange"] == 1]
    assert [line["from"] for line in first] == ["client"] * 3 + ["server"] * 3
    assert (first[0]["method"], first[0]["target"]) == ("POST", "/mcp")
    assert json.loads(first[1]["body"])["method"] == "server/discover"
    assert (first[3]["status"], first[2]["end"], first[5]["end"]) == (200, True, True)


def test_no_credentials_are_recorded(http_sse: str, tmp_path: Path) -> None:
    file, open_file = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    words = ("call", f"{http_sse}?key=sesame", *ADD, "--revision", "2024-11-05")
    headers = ("--header", "Authorization: Bearer sesame", "--header", "X-Key: sesame")
    lines = record(file, *words, *headers)
    text = file.read_text()
    assert "sesame" not in text
    assert '["authorization", "REDACTED"]' in text
    record(open_file, *words, *headers, "--record-secrets")
    assert open_file.read_text().count("sesame") >= 3
    (endpoint,) = (line["body"] for line in lines if "event: endpoint" in line.get("body", ""))
    assert "data: /sse?REDACTED\n" in endpoint or "?REDACTED" in endpoint


def test_no_session_is_recorded(url: str, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    record(file, "call", url, *ADD, "--revision", "2025-11-25")
    assert '["mcp-session-id", "REDACTED"]' in file.read_text()


def test_a_recording_is_shown(url: str, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    record(file, "call", url, *ADD)
    shown = run_in_process("replay", str(file)).out
    assert " #1 > POST /mcp\n" in shown
    assert " #1 < 200\n" in shown
    assert max(map(len, shown.splitlines())) < 150


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", "2026-07-28"])
def test_a_server_that_answers_as_before(url: str, tmp_path: Path, revision: str) -> None:
    file = str(tmp_path / "a.jsonl")
    record(Path(file), "call", url, *SLOW, "--revision", revision)
    replayed = run_in_process("replay", file, "--to", url)
    assert replayed.status == 0, replayed.out
    lines = replayed.out.splitlines()
    assert all(line.endswith(": same") for line in lines)
    assert any("tools/call" in line for line in lines)


def test_over_the_deprecated_transport(http_sse: str, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    record(file, "call", http_sse, *SLOW, "--revision", "2024-11-05")
    replayed = run_in_process("replay", str(file), "--to", http_sse)
    assert (replayed.status, "different" in replayed.out) == (0, False), replayed.out
    with played(file) as url:
        assert run_in_process("call", url, *SLOW, "--revision", "2024-11-05").out == (
            "4 steps done\n"
        )


def test_a_server_that_asks_gets_the_recorded_answer(tmp_path: Path) -> None:
    """Its ids and its signed state are others than in the recording."""
    file = tmp_path / "a.jsonl"
    for revision in ("2025-11-25", "2026-07-28"):
        with serving("tests.cli.asking") as url:
            look = ("call", url, "look", "--root", str(tmp_path), "--revision", revision)
            record(file, *look)
        with serving("tests.cli.asking") as url:
            replayed = run_in_process("replay", str(file), "--to", url)
        assert (replayed.status, "different" in replayed.out) == (0, False), replayed.out


def test_a_server_that_answers_otherwise(url: str, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    record(file, "call", url, *ADD)
    text = file.read_text().replace('\\"text\\":\\"3\\"', '\\"text\\":\\"4\\"')
    file.write_text(text.replace('"status": 200', '"status": 201', 1))
    replayed = run_in_process("replay", str(file), "--to", url)
    assert replayed.status == 1
    assert "#1 POST server/discover: different\n    status is 200, was 201\n" in replayed.out
    assert replayed.out.endswith(
        '#3 POST tools/call: different\n    result.content[0].text is "3", was "4"\n'
    )
    replayed = run_in_process("replay", str(file), "--to", url, "--ignore", "text")
    assert "#3 POST tools/call: same\n" in replayed.out


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_client_gets_what_the_server_sent(url: str, tmp_path: Path, revision: str) -> None:
    file = tmp_path / "a.jsonl"
    record(file, "call", url, *SLOW, "--revision", revision)
    with played(file) as replayed:
        called = run_in_process("call", replayed, *SLOW, "--revision", revision)
        assert (called.status, called.out) == (0, "4 steps done\n")
        assert called.err.count("progress") == 4


def test_a_client_with_other_ids_gets_it_as_well(url: str, tmp_path: Path) -> None:
    """``call`` with JSON does not read the list of tools first, so its ids are others."""
    file = tmp_path / "a.jsonl"
    record(file, "call", url, *SLOW)
    with played(file) as replayed:
        called = run_in_process("call", replayed, "slow", '{"steps": 4, "delay": 0.05}')
        assert (called.status, called.out) == (0, "4 steps done\n")
        assert called.err.count("progress") == 4
        again = run_in_process("call", replayed, "slow", "{}")
        assert "The recording has no further request of this kind" in again.err


def test_on_stdio(tmp_path: Path) -> None:
    file, server = tmp_path / "a.jsonl", command("serve", "--stdio")
    lines = record(file, "call", *SLOW, "--", *server)
    assert {line.get("exchange") for line in lines} == {None}
    assert lines[-1]["exit"] == 0
    replayed = run("replay", str(file), "--", *server)
    assert (replayed.status, replayed.out) == (0, "stdio: same\n")
    player = command("replay", str(file), "--serve")
    called = run("call", "slow", '{"steps": 4, "delay": 0.05}', "--", *player)
    assert (called.status, called.out) == (0, "4 steps done\n")
    text = file.read_text().replace("4 steps done", "5 steps done")
    file.write_text(text)
    replayed = run("replay", str(file), "--", *server)
    assert replayed.status == 1
    assert 'result.content[0].text is "4 steps done", was "5 steps done"' in replayed.out


def test_the_times_can_be_kept(url: str, tmp_path: Path) -> None:
    """How long that takes is not asserted, since it depends on the machine."""
    file = tmp_path / "a.jsonl"
    lines = record(file, "call", url, *ADD)
    last = max(line["exchange"] for line in lines[1:])
    for line in lines[1:]:
        line["t"] += 2.0 if line["exchange"] == last else 0.0
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run_in_process("replay", str(file), "--to", url, "--keep-times").status == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nosuch.jsonl",), "Cannot read 'nosuch.jsonl'"),
        (("setup.cfg",), "is no recording of this release"),
        (("{file}", "--to", "http://a/", "--serve"), "Either --serve or a server, not both"),
        (("{file}", "--to", "http://a/", "--", "x"), "One server: --to URL"),
        (("{file}", "--", "x"), "was recorded over HTTP; name a URL with --to"),
        (("{file}", "--serve", "--http", "x"), "--http takes HOST:PORT, got 'x'"),
        (("{broken}",), "Line 2 of "),
    ],
)
def test_wrong_usage_is_explained_in_one_line(
    url: str, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    file, broken = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    record(file, "list", url, "tools")
    broken.write_text('{"recording": 1}\n{"t": 1}\n')
    names = {"{file}": str(file), "{broken}": str(broken)}
    end = words.index("--") if "--" in words else len(words)
    given = [*(names.get(word, word) for word in words[:end]), *words[end:]]
    assert said in failed(run_in_process("replay", *given))


def test_a_recording_that_cannot_be_written(url: str, tmp_path: Path) -> None:
    said = failed(run_in_process("call", url, *ADD, "--record", str(tmp_path)))
    assert said.startswith("Cannot record to ")


def test_a_server_that_has_gone(tmp_path: Path, url: str) -> None:
    file = tmp_path / "a.jsonl"
    record(file, "list", url, "tools")
    replayed = run_in_process("replay", str(file), "--to", "http://127.0.0.1:1/mcp")
    assert replayed.status == 1
    assert "no complete response: " in replayed.out
