"""Credentials in a keyring: one of this test, and none at all."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import keyring
import pytest
import trio
from keyring.backend import KeyringBackend
from keyring.backends import fail
from keyring.errors import KeyringError, KeyringLocked, PasswordDeleteError

import sansmcp_asyncio
import sansmcp_httpx
import sansmcp_trio
from sansmcp.auth.options import Authorization
from sansmcp.credentials import CredentialsKey
from sansmcp.errors import AuthorizationFailed
from sansmcp_auth import FileCredentials, KeyringCredentials, LoopbackLogin
from sansmcp_local import ThreadPool

from .protected_server import protected_server

Answer: TypeAlias = Callable[[Callable[[float], Awaitable[Any]]], Any]
KEY = CredentialsKey("https://h/mcp", "me")


class TestKeyring(KeyringBackend):
    """Keeps secrets in memory; raises ``error`` if it is set."""

    __test__ = False
    priority = 1  # pyright: ignore

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.secrets: dict[tuple[str, str], str] = {}
        self.error: BaseException | None = None
        self.prompts = 0
        self.answered = threading.Event()
        self.answered.set()
        self.saving = threading.Event()
        self.may_save = threading.Event()
        self.may_save.set()

    def get_password(self, service: str, username: str) -> str | None:
        if not self.answered.is_set():
            self.prompts += 1
            if not self.answered.wait(60):
                raise KeyringLocked("nobody has answered")
        self._check()
        return self.secrets.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self._check()
        self.saving.set()
        assert self.may_save.wait(60)
        self.secrets[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        self._check()
        if self.secrets.pop((service, username), None) is None:
            raise PasswordDeleteError("there is none")

    def _check(self) -> None:
        if self.error is not None:
            raise self.error


@pytest.fixture
def system() -> Generator[TestKeyring, None, None]:
    """The keyring of the system during a test."""
    before, system = keyring.get_keyring(), TestKeyring()
    keyring.set_keyring(system)
    yield system
    keyring.set_keyring(before)


def test_documents_in_the_keyring(system: TestKeyring, tmp_path: Path) -> None:
    credentials = KeyringCredentials(tmp_path)
    assert credentials.load(KEY) is None
    credentials.save(KEY, "one")
    credentials.save(KEY, "zwei \u00fc")
    assert KeyringCredentials(tmp_path).load(KEY) == "zwei \u00fc"
    assert credentials.load(CredentialsKey("https://h/mcp")) is None
    credentials.save(CredentialsKey("https://h/mcp"), "other")
    assert sorted(system.secrets.values()) == ["other", "zwei \u00fc"]
    assert credentials.delete(KEY)
    assert not credentials.delete(KEY)
    assert list(system.secrets.values()) == ["other"]


def test_no_secret_is_in_the_directory(system: TestKeyring, tmp_path: Path) -> None:
    credentials = KeyringCredentials(tmp_path)
    credentials.save(KEY, "secret")
    assert credentials.try_lock(KEY)
    credentials.unlock(KEY)
    files = list(tmp_path.iterdir())
    assert [b"secret" in file.read_bytes() for file in files] == [False, False]


def test_the_servers_of_the_documents(system: TestKeyring, tmp_path: Path) -> None:
    credentials = KeyringCredentials(tmp_path)
    assert credentials.stored_keys() == []
    credentials.save(KEY, "x")
    assert credentials.stored_keys() == [KEY]
    assert FileCredentials(tmp_path).stored_keys() == []
    system.secrets.clear()  # by a program of the system
    assert not credentials.delete(KEY)
    assert credentials.stored_keys() == []


def test_the_lock_is_that_of_the_files(system: TestKeyring, tmp_path: Path) -> None:
    files = FileCredentials(tmp_path)
    first, second = KeyringCredentials(tmp_path), KeyringCredentials(tmp_path)
    assert first.try_lock(KEY)
    assert not second.try_lock(KEY)
    assert not files.try_lock(KEY)
    first.unlock(KEY)
    assert second.try_lock(KEY)
    second.unlock(KEY)


@pytest.mark.parametrize("error", [KeyringLocked("no password"), RuntimeError("no password")])
def test_a_keyring_that_fails(system: TestKeyring, tmp_path: Path, error: Exception) -> None:
    credentials = KeyringCredentials(tmp_path)
    system.error = error
    text = "The keyring of the system failed: no password"
    with pytest.raises(OSError, match=text):
        credentials.load(KEY)
    with pytest.raises(OSError, match=text):
        credentials.save(KEY, "x")
    assert credentials.stored_keys() == []


def test_a_document_that_cannot_be_deleted(
    system: TestKeyring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials = KeyringCredentials(tmp_path)
    credentials.save(KEY, "x")

    def refuse(*_: object) -> None:
        raise KeyringError("not now")

    monkeypatch.setattr(system, "delete_password", refuse)
    with pytest.raises(OSError, match="not now"):
        credentials.delete(KEY)
    assert credentials.stored_keys() == [KEY]


def test_without_a_keyring(tmp_path: Path) -> None:
    before = keyring.get_keyring()
    keyring.set_keyring(fail.Keyring())  # type: ignore[no-untyped-call]
    try:
        with pytest.raises(OSError, match="This system has no keyring, or none that runs"):
            KeyringCredentials(tmp_path).load(KEY)
    finally:
        keyring.set_keyring(before)


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else of sansmcp_auth needs it."""
    monkeypatch.setitem(sys.modules, "keyring", None)
    credentials = KeyringCredentials(tmp_path)
    assert credentials.stored_keys() == []
    with pytest.raises(OSError, match=r"pip install 'sansmcp\[keyring\]'"):
        credentials.save(KEY, "x")
    code = "import sys, sansmcp_auth; print('keyring' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


async def _asyncio_client(url: str, authorization: Authorization, answer: Answer) -> Any:
    answering = asyncio.create_task(answer(asyncio.sleep))
    async with sansmcp_asyncio.connect(url, authorization=authorization) as client:
        listed = await client.list_tools()
    await answering
    return listed


async def _trio_client(url: str, authorization: Authorization, answer: Answer) -> Any:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer, trio.sleep)
        async with sansmcp_trio.connect(url, authorization=authorization) as client:
            return await client.list_tools()


async def _httpx_client(url: str, authorization: Authorization, answer: Answer) -> Any:
    answering = asyncio.create_task(answer(asyncio.sleep))
    async with (
        httpx.AsyncClient() as http,
        sansmcp_httpx.connect(url, http, authorization=authorization) as client,
    ):
        listed = await client.list_tools()
    await answering
    return listed


def _on_asyncio(url: str, authorization: Authorization, answer: Answer) -> Any:
    return asyncio.run(_asyncio_client(url, authorization, answer))


def _on_trio(url: str, authorization: Authorization, answer: Answer) -> Any:
    return trio.run(_trio_client, url, authorization, answer)


def _on_httpx(url: str, authorization: Authorization, answer: Answer) -> Any:
    return asyncio.run(_httpx_client(url, authorization, answer))


RUNS = {"asyncio": _on_asyncio, "trio": _on_trio, "httpx": _on_httpx}


@pytest.mark.parametrize("name", RUNS)
def test_a_keyring_that_asks_for_its_password_blocks_no_loop(
    name: str, system: TestKeyring, tmp_path: Path
) -> None:
    """Its answer comes from another task of the loop, which a call in the loop would hold up."""
    system.answered.clear()

    async def answer(sleep: Callable[[float], Awaitable[Any]]) -> None:
        while not system.prompts:
            await sleep(0.01)
        system.answered.set()

    credentials = KeyringCredentials(tmp_path)
    with protected_server() as server, LoopbackLogin(open_browser=server.browse) as login:
        authorization = Authorization(login=login, credentials=credentials)
        for logins in (1, 1):
            assert RUNS[name](server.url, authorization, answer) == {"tools": []}
            assert server.seen.count("/authorize") == logins
    assert len(system.secrets) == 1
    (key,) = credentials.stored_keys()
    assert credentials.try_lock(key)  # the lock was released last


@pytest.mark.parametrize("error", [KeyringError("no bus"), SystemExit(1)])
def test_a_keyring_that_fails_in_its_thread_ends_the_login(
    system: TestKeyring, tmp_path: Path, error: BaseException
) -> None:
    system.error = error

    async def answer(sleep: Callable[[float], Awaitable[Any]]) -> None:
        await sleep(0)

    with protected_server() as server:
        authorization = Authorization(login=str, credentials=KeyringCredentials(tmp_path))
        with pytest.raises(AuthorizationFailed, match="cannot be read"):
            asyncio.run(_asyncio_client(server.url, authorization, answer))


def test_a_client_closes_while_the_keyring_asks(system: TestKeyring, tmp_path: Path) -> None:
    system.answered.clear()

    async def close() -> None:
        authorization = Authorization(login=str, credentials=KeyringCredentials(tmp_path))
        connecting = sansmcp_asyncio.connect("http://127.0.0.1:9/", authorization=authorization)
        opening = asyncio.ensure_future(connecting.__aenter__())
        while not system.prompts:
            await asyncio.sleep(0.01)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    asyncio.run(close())
    system.answered.set()


async def _close_on_asyncio(
    url: str, authorization: Authorization, system: TestKeyring, pause: float
) -> None:
    async with sansmcp_asyncio.connect(url, authorization=authorization) as client:
        calling = asyncio.ensure_future(client.list_tools())
        while not system.saving.is_set():
            await asyncio.sleep(0.01)
        calling.cancel()
        asyncio.get_running_loop().call_later(pause, system.may_save.set)


async def _close_on_trio(
    url: str, authorization: Authorization, system: TestKeyring, pause: float
) -> None:
    async def let_it_save() -> None:
        await trio.sleep(pause)
        system.may_save.set()

    async with trio.open_nursery() as nursery:
        async with sansmcp_trio.connect(url, authorization=authorization) as client:
            async with trio.open_nursery() as calling:
                calling.start_soon(client.list_tools)
                while not system.saving.is_set():
                    await trio.sleep(0.01)
                calling.cancel_scope.cancel()
            nursery.start_soon(let_it_save)
        assert len(system.secrets) == 1


@pytest.mark.parametrize("name", ["asyncio", "trio"])
def test_a_client_that_closes_waits_until_a_new_token_is_saved(
    name: str, system: TestKeyring, tmp_path: Path
) -> None:
    """The program may end next, and with it the thread that saves."""
    system.may_save.clear()
    credentials = KeyringCredentials(tmp_path)
    with protected_server() as server, LoopbackLogin(open_browser=server.browse) as login:
        server.open_to = "connecting"
        authorization = Authorization(login=login, credentials=credentials)
        if name == "trio":
            trio.run(_close_on_trio, server.url, authorization, system, 0.1)
        else:
            asyncio.run(_close_on_asyncio(server.url, authorization, system, 0.1))
        assert len(system.secrets) == 1
    (key,) = credentials.stored_keys()
    assert credentials.try_lock(key)  # the lock was released, too


def test_a_client_waits_a_bounded_time_for_its_storage(
    system: TestKeyring,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sansmcp_local._loop._client_driver._SAVE_TIMEOUT", 0.01)
    system.may_save.clear()
    with protected_server() as server, LoopbackLogin(open_browser=server.browse) as login:
        server.open_to = "connecting"
        authorization = Authorization(login=login, credentials=KeyringCredentials(tmp_path))
        asyncio.run(_close_on_asyncio(server.url, authorization, system, 60))
    system.may_save.set()
    assert "the storage of credentials did not return within 0.01 s" in caplog.text


def no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no thread of a pool start."""
    start = threading.Thread.start

    def fail(thread: threading.Thread) -> None:
        if thread.name == "sansmcp":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail)


def test_a_login_ends_where_the_system_has_no_more_threads(
    system: TestKeyring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_more_threads(monkeypatch)

    async def answer(sleep: Callable[[float], Awaitable[Any]]) -> None:
        await sleep(0)

    with protected_server() as server:
        authorization = Authorization(login=str, credentials=KeyringCredentials(tmp_path))
        with pytest.raises(AuthorizationFailed, match="can't start new thread"):
            asyncio.run(_asyncio_client(server.url, authorization, answer))


def test_a_lock_is_released_where_the_system_has_no_more_threads(
    system: TestKeyring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are gone when the lock is held and the thread that has saved has ended."""
    credentials = KeyringCredentials(tmp_path)

    def refuse(pool: ThreadPool, work: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    def save(*_: object) -> None:
        monkeypatch.setattr(ThreadPool, "submit", refuse)
        raise KeyringError("full")

    monkeypatch.setattr(system, "set_password", save)

    async def answer(sleep: Callable[[float], Awaitable[Any]]) -> None:
        await sleep(0)

    with protected_server() as server, LoopbackLogin(open_browser=server.browse) as login:
        authorization = Authorization(login=login, credentials=credentials)
        with pytest.raises(AuthorizationFailed, match="cannot be stored"):
            asyncio.run(_asyncio_client(server.url, authorization, answer))
    assert credentials.try_lock(CredentialsKey(server.url))
