"""The loopback listener, the terminal and the files."""

from __future__ import annotations

import io
import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sansmcp.credentials import CredentialsKey, MemoryCredentials
from sansmcp_auth import FileCredentials, KeyringCredentials, LoopbackLogin, print_login

KEY = CredentialsKey("https://h/mcp", "me")
URL = "https://as/authorize?state=abc"

needs_posix = pytest.mark.skipif(sys.platform == "win32", reason="modes of files")


# The listener


def ask(redirect_uri: str, data: bytes) -> bytes:
    """Send bytes to the listener, and return all that it answers."""
    parts = urlsplit(redirect_uri)
    with socket.create_connection((parts.hostname, parts.port or 0), timeout=10) as browser:
        browser.sendall(data)
        browser.shutdown(socket.SHUT_WR)
        answer = b""
        while received := browser.recv(4096):
            answer += received
        return answer


def get(redirect_uri: str, query: str) -> bytes:
    parts = urlsplit(redirect_uri)
    head = f"GET {parts.path}?{query} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n"
    return ask(redirect_uri, head.encode())


def test_the_listener_waits_for_the_right_answer() -> None:
    answers: list[bytes] = []

    def browse(url: str) -> bool:
        def visit() -> None:
            answers.append(ask(login.redirect_uri, b""))
            answers.append(get(login.redirect_uri, "code=evil&state=other"))
            answers.append(get(login.redirect_uri, "code=x&state=abc"))

        threading.Thread(target=visit).start()
        return True

    with LoopbackLogin(open_browser=browse, path="/back", host="localhost") as login:
        assert login.redirect_uri.startswith("http://localhost:")
        assert login(URL) == f"{login.redirect_uri}?code=x&state=abc"
    assert answers[0] == b""
    assert answers[1].startswith(b"HTTP/1.1 400")


def test_connections_that_say_nothing_delay_no_login() -> None:
    """Browsers open some that they never use, and other programs can open any number."""
    answers: list[bytes] = []
    silent: list[socket.socket] = []

    def browse(url: str) -> bool:
        parts = urlsplit(login.redirect_uri)
        for _ in range(8):
            silent.append(socket.create_connection((parts.hostname, parts.port or 0), timeout=10))
            silent[-1].sendall(b"GET /call")
        visit = threading.Thread(
            target=lambda: answers.append(get(login.redirect_uri, "code=x&state=abc"))
        )
        visit.start()
        threads.append(visit)
        return True

    threads: list[threading.Thread] = []
    with LoopbackLogin(open_browser=browse, timeout=20) as login:
        assert login(URL) == f"{login.redirect_uri}?code=x&state=abc"
    for thread in threads:
        thread.join()
    for each in silent:
        with each:
            assert each.recv(1) == b""
    assert answers[0].startswith(b"HTTP/1.1 200")


def test_a_new_connection_ends_the_oldest_of_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sansmcp_auth._loopback._MAX_CONNECTIONS", 2)
    ends: list[bytes] = []

    def browse(url: str) -> bool:
        def visit() -> None:
            parts = urlsplit(login.redirect_uri)
            address = (parts.hostname, parts.port or 0)
            held = [socket.create_connection(address, timeout=30) for _ in range(3)]
            ends.append(held[0].recv(1))
            get(login.redirect_uri, "code=x&state=abc")
            for each in held:
                each.close()

        threading.Thread(target=visit).start()
        return True

    with LoopbackLogin(open_browser=browse) as login:
        assert login(URL) == f"{login.redirect_uri}?code=x&state=abc"
    assert ends == [b""]


def test_a_connection_is_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sansmcp_auth._loopback._PATIENCE", 0.0)
    ends: list[bytes] = []

    def browse(url: str) -> bool:
        def visit() -> None:
            parts = urlsplit(login.redirect_uri)
            with socket.create_connection((parts.hostname, parts.port or 0), timeout=30) as idle:
                ends.append(idle.recv(1))
            monkeypatch.undo()
            get(login.redirect_uri, "code=x&state=abc")

        threading.Thread(target=visit).start()
        return True

    with LoopbackLogin(open_browser=browse) as login:
        assert login(URL) == f"{login.redirect_uri}?code=x&state=abc"
    assert ends == [b""]


def test_a_request_in_pieces_with_the_cookies_of_other_programs() -> None:
    def browse(url: str) -> bool:
        def visit() -> None:
            parts = urlsplit(login.redirect_uri)
            cookies = "x" * 40_000
            head = (
                f"GET {parts.path}?code={'c' * 2000}&state=abc HTTP/1.1\r\nHost: {parts.netloc}\r\n"
                f"Cookie: {cookies}\r\n\r\n"
            ).encode()
            with socket.create_connection((parts.hostname, parts.port or 0), timeout=30) as browser:
                for place in range(0, len(head), 1500):
                    browser.sendall(head[place : place + 1500])
                answers.append(browser.recv(100))

        threading.Thread(target=visit).start()
        return True

    answers: list[bytes] = []
    with LoopbackLogin(open_browser=browse) as login:
        assert login(URL) == f"{login.redirect_uri}?code={'c' * 2000}&state=abc"


@pytest.mark.parametrize("junk", [b"G" * 9000, b"GET / HTTP/1.1\r\n" + b"x" * 70_000])
def test_what_is_too_long_is_refused_and_the_login_goes_on(junk: bytes) -> None:
    answers: list[bytes] = []

    def browse(url: str) -> bool:
        def visit() -> None:
            answers.append(ask(login.redirect_uri, junk))
            get(login.redirect_uri, "code=x&state=abc")

        threading.Thread(target=visit).start()
        return True

    with LoopbackLogin(open_browser=browse) as login:
        assert login(URL) == f"{login.redirect_uri}?code=x&state=abc"
    assert answers[0].startswith(b"HTTP/1.1 400")


def test_nobody_comes(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        LoopbackLogin(open_browser=lambda url: False, timeout=0.01) as login,
        pytest.raises(TimeoutError, match="the login was not completed within"),
    ):
        login(URL)
    shown = capsys.readouterr()
    assert (URL in shown.err, shown.out) == (True, "")


def test_a_second_call_ends_the_first() -> None:
    """A client may have given up the first login, whose function waits on."""
    ends: list[BaseException] = []

    def browse(url: str) -> bool:
        if url == URL:
            threading.Thread(target=get, args=(login.redirect_uri, "code=x&state=abc")).start()
        else:
            begun.set()
        return True

    def wait() -> None:
        try:
            login("https://as/first?state=first")
        except TimeoutError as error:
            ends.append(error)

    begun = threading.Event()
    with LoopbackLogin(open_browser=browse) as login:
        first = threading.Thread(target=wait)
        first.start()
        begun.wait()
        assert login(URL) == f"{login.redirect_uri}?code=x&state=abc"
        first.join()
    assert "another login" in str(*ends)


def test_no_time_at_all() -> None:
    with (
        LoopbackLogin(open_browser=lambda url: True, timeout=0.0) as login,
        pytest.raises(TimeoutError),
    ):
        login(URL)


def test_the_listener_is_reached_from_this_machine_only() -> None:
    with LoopbackLogin() as login:
        assert login._listener.getsockname()[0] == "127.0.0.1"  # noqa: SLF001  # pyright: ignore
    with pytest.raises(OSError, match=r"."):
        login(URL)


def test_the_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(" http://127.0.0.1/callback?code=x \n"))
    assert print_login(URL) == "http://127.0.0.1/callback?code=x"
    assert URL in capsys.readouterr().err


# Files


def test_documents_in_files(tmp_path: Path) -> None:
    files = FileCredentials(tmp_path / "a" / "b")
    assert files.load(KEY) is None
    files.save(KEY, "one")
    files.save(KEY, "zwei \u00fc")
    assert files.load(KEY) == FileCredentials(tmp_path / "a" / "b").load(KEY) == "zwei \u00fc"
    assert files.load(CredentialsKey("https://h/mcp", "other")) is None
    assert files.delete(KEY)
    assert not files.delete(KEY)


@needs_posix
def test_only_the_user_can_read_the_files(tmp_path: Path) -> None:
    files = FileCredentials(tmp_path / "d")
    before = os.umask(0)
    try:
        files.save(KEY, "secret")
        assert files.try_lock(KEY)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o700
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "d").iterdir()]
    assert modes == [0o600] * 3
    files.unlock(KEY)


@needs_posix
def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    files = FileCredentials(tmp_path)
    files.save(KEY, "secret")
    (path,) = tmp_path.glob("*.json")
    path.chmod(0o640)
    with pytest.raises(PermissionError, match="can be used by others"):
        files.load(KEY)
    path.chmod(0o600)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"."):
        files.load(KEY)


@needs_posix
def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = FileCredentials(tmp_path)
    files.save(KEY, "secret")
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    with pytest.raises(PermissionError, match="belongs to the user"):
        files.load(KEY)


@needs_posix
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o1702])
def test_a_directory_that_others_can_write_is_refused(
    tmp_path: Path, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They could give the tokens of one server to another one, by the name of a file."""
    import grp

    def group_of(group: int) -> grp.struct_group:
        return grp.struct_group(("staff", "", group, ["eve"]))

    monkeypatch.setattr(grp, "getgrgid", group_of)
    for storage in (FileCredentials(tmp_path), KeyringCredentials(tmp_path)):
        tmp_path.chmod(0o700)
        assert storage.try_lock(KEY)
        storage.unlock(KEY)
        tmp_path.chmod(mode)
        with pytest.raises(PermissionError, match=rf"\(mode {mode:04o}\).*chmod 700 {tmp_path}"):
            storage.try_lock(KEY)
        with pytest.raises(PermissionError, match="can be written by others"):
            storage.stored_keys()
    files = FileCredentials(tmp_path)
    with pytest.raises(PermissionError, match="can be written by others"):
        files.load(KEY)
    with pytest.raises(PermissionError, match="can be written by others"):
        files.save(KEY, "x")
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


@needs_posix
def test_a_directory_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = FileCredentials(tmp_path)
    files.save(KEY, "x")
    real = tmp_path.stat()
    foreign = os.stat_result((*real[:4], real.st_uid + 1, *real[5:10]))

    def stat(path: Path, **more: object) -> os.stat_result:
        return foreign

    monkeypatch.setattr(os, "stat", stat)
    with pytest.raises(PermissionError, match="The folder of the credentials belongs to the user"):
        files.load(KEY)


@needs_posix
@pytest.mark.parametrize("name", ["json", "login", "lock"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path, name: str) -> None:
    files = FileCredentials(tmp_path)
    files.save(KEY, "x")
    assert files.try_lock(KEY)
    files.unlock(KEY)
    (path,) = tmp_path.glob(f"*.{name}")
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(PermissionError, match="is no regular file"):
        if name == "json":
            files.load(KEY)
        elif name == "login":
            files.stored_keys()
        else:
            files.try_lock(KEY)


def test_a_crash_leaves_the_old_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = FileCredentials(tmp_path)
    files.save(KEY, "old")

    def crash(descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", crash)
    with pytest.raises(OSError, match="no space left"):
        files.save(KEY, "new")
    assert files.load(KEY) == "old"
    assert len(list(tmp_path.iterdir())) == 2


def test_the_default_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("APPDATA", str(tmp_path))
    FileCredentials().save(KEY, "x")
    assert (tmp_path / "sansmcp" / "credentials").is_dir()


def test_a_lock_excludes_other_objects_and_itself(tmp_path: Path) -> None:
    first, second = FileCredentials(tmp_path), FileCredentials(tmp_path)
    assert first.try_lock(KEY)
    assert not first.try_lock(KEY)
    assert not second.try_lock(KEY)
    assert second.try_lock(CredentialsKey("https://h/mcp"))
    second.unlock(KEY)  # which it does not have
    first.unlock(KEY)
    assert second.try_lock(KEY)
    second.unlock(KEY)


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    program = f"""if True:
        from sansmcp.credentials import CredentialsKey
        from sansmcp_auth import FileCredentials
        assert FileCredentials({str(tmp_path)!r}).try_lock(CredentialsKey("https://h/mcp", "me"))
        print("locked", flush=True)
        input()
    """
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        files = FileCredentials(tmp_path)
        assert not files.try_lock(KEY)
        other.kill()
        other.wait()
        assert files.try_lock(KEY)
        files.unlock(KEY)


def test_the_servers_of_the_documents(tmp_path: Path) -> None:
    files = FileCredentials(tmp_path / "not yet")
    assert files.stored_keys() == []
    other = CredentialsKey("http://127.0.0.1:8000/mcp", "a\nb")
    for key in (KEY, other, KEY):
        files.save(key, "x")
    assert files.stored_keys() == [other, KEY]
    files.delete(KEY)
    assert files.stored_keys() == [other]


def test_documents_in_memory() -> None:
    memory = MemoryCredentials()
    assert memory.load(KEY) is None
    memory.save(KEY, "x")
    assert memory.load(KEY) == "x"
    assert memory.try_lock(KEY)
    assert not memory.try_lock(KEY)
    memory.unlock(KEY)
    assert memory.try_lock(KEY)
