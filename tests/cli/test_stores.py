"""``sansmcp serve --store``: a file, or Redis; errors to act on, without credentials."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from sansmcp_cli import _stores

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
def test_redis_out_of_reach(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    redis_library()
    monkeypatch.setattr(_stores, "_LONGEST_WAIT", 0.0)
    said = failed(run_in_process("serve", "--store", url.format(port=free_port())))
    assert "secret" not in said
    assert "127.0.0.1" in said or "/nowhere/at/all" in said


def test_redis_that_does_not_answer(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_stores, "_LONGEST_WAIT", 0.0)
    with redis_server.hanging():
        said = failed(run_in_process("serve", "--store", redis_server.url))
    assert said.startswith(f"Cannot use '{redis_server.url}' as a store: Timeout")


def test_a_wrong_password_is_said_at_once(tmp_path: Path) -> None:
    with running(tmp_path / "redis", "--save", "", "--requirepass", "secret") as server:
        said = failed(run_in_process("serve", "--store", server.url))
    assert said == f"Cannot use '{server.url}' as a store: Authentication required."


@pytest.fixture
def late_redis(tmp_path: Path) -> Generator[RedisServer, None, None]:
    """A server of Redis that does not run yet."""
    with running(tmp_path / "redis") as server:
        server.stop()
        yield server


def said_that_it_waits(server: subprocess.Popen[str], url: str) -> None:
    assert server.stderr is not None
    line = server.stderr.readline()
    assert line.startswith(f"sansmcp: waiting for '{url}', for 60 s at most: Error 111 connecting")


@pytest.mark.parametrize("workers", [(), ("--workers", "2")])
def test_redis_starts_after_the_server(late_redis: RedisServer, workers: tuple[str, ...]) -> None:
    options = ("serve", "--http", "127.0.0.1:0", "--store", late_redis.url, *workers)
    with started(*options) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        said_that_it_waits(server, late_redis.url)
        late_redis.start()
        url = server.stdout.readline().strip()
        called = run_in_process("call", url, "echo", '{"text": "late"}')
        server.terminate()
        assert server.wait(timeout=20) == 0
        assert server.stderr.read() == ""
    assert text_of(called.out) == "late"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, -15)])
def test_a_server_that_waits_for_redis_can_be_stopped(
    late_redis: RedisServer, number: signal.Signals, status: int
) -> None:
    with started("serve", "--http", "127.0.0.1:0", "--store", late_redis.url) as server:
        said_that_it_waits(server, late_redis.url)
        server.send_signal(number)
        assert server.wait(timeout=20) == status


def test_a_worker_that_waits_for_redis_ends_with_its_parent(late_redis: RedisServer) -> None:
    options = ("serve", "--http", "127.0.0.1:0", "--store", late_redis.url, "--workers", "2")
    with started(*options) as server:
        assert server.stderr is not None
        said_that_it_waits(server, late_redis.url)
        server.kill()
        rest = server.stderr.read()  # it ends when the worker has ended, too
    assert rest == "sansmcp: The process that has started this worker has ended\n"


def test_without_the_client_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    said = failed(run_in_process("serve", "--store", "redis://127.0.0.1"))
    assert said == "RedisStore needs the extra: pip install 'sansmcp[redis]'"


def test_the_client_library_is_not_imported_for_nothing(tmp_path: Path) -> None:
    """A server with a file starts where the extra is not installed, and as fast as before."""
    (tmp_path / "redis.py").write_text("raise SystemExit('imported')", "utf-8")
    options = ("serve", "--http", "127.0.0.1:0", "--store", str(tmp_path / "store.db"))
    with started(*options, cwd=tmp_path) as server:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("http://")
