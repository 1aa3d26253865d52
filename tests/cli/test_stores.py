"""``sansmcp serve --store``: a file, or Redis; errors to act on, without credentials."""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from ..ports import free_port
from ..stores.redis_server import RedisServer, redis_library, running
from .conftest import ADAPTERS, failed, run_in_process, serving, started, text_of


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[RedisServer, None, None]:
    with running(tmp_path_factory.mktemp("redis")) as server:
        yield server


def test_a_file_that_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("these are no streams, and no sessions" * 100)
    ran = run_in_process("serve", "--store", str(tmp_path / "notes.txt"))
    assert "notes.txt' as a store: " in failed(ran)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_redis_keeps_the_sessions(redis_server: RedisServer, adapter: str) -> None:
    with serving("--store", redis_server.url, "--adapter", adapter) as url:
        called = run_in_process("call", url, "echo", '{"text": "kept"}')
    assert text_of(called.out) == "kept"
    assert redis_server.client.keys("*")


def test_a_url_of_something_else() -> None:
    said = failed(run_in_process("serve", "--store", "postgres://ada:secret@db.example.org/x"))
    assert said == (
        "--store takes a file, or a URL that begins with redis://, rediss:// or unix://, got "
        "'postgres://...@db.example.org/x'"
    )


@pytest.mark.parametrize(
    "url",
    [
        "redis://ada:secret@127.0.0.1:nonsense/0",
        "redis://ada:secret@127.0.0.1/0?socket_timeout=secret",
        "redis://ada:secret@127.0.0.1/0?no_such_setting=secret",
        "redis://ada:secret@127.0.0.1:{port}/0",
        "unix:///nowhere/at/all?password=secret",
    ],
)
def test_redis_out_of_reach(url: str) -> None:
    redis_library()
    said = failed(run_in_process("serve", "--store", url.format(port=free_port())))
    assert "secret" not in said
    assert "127.0.0.1" in said or "/nowhere/at/all" in said


def test_redis_that_does_not_answer(redis_server: RedisServer) -> None:
    with redis_server.hanging():
        said = failed(run_in_process("serve", "--store", redis_server.url))
    assert said.startswith(f"Cannot use '{redis_server.url}' as a store: Timeout")


def test_without_the_client_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    said = failed(run_in_process("serve", "--store", "redis://127.0.0.1"))
    assert said == "RedisStore needs the extra: pip install sansmcp[redis]"


def test_the_client_library_is_not_imported_for_nothing(tmp_path: Path) -> None:
    """A server with a file starts where the extra is not installed, and as fast as before."""
    (tmp_path / "redis.py").write_text("raise SystemExit('imported')", "utf-8")
    options = ("serve", "--http", "127.0.0.1:0", "--store", str(tmp_path / "store.db"))
    with started(*options, cwd=tmp_path) as server:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("http://")
