"""Settings that make no sense are refused before anything is done with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sansmcp import App, Client, LocalProtocolError, Server
from sansmcp.effects import OpenExchange
from sansmcp.process import StdoutClosed
from sansmcp.testing import sequential_tokens


def client(**settings: Any) -> Client:
    return Client("http://localhost/mcp", jitter=lambda: 0.5, **settings)


def server(**settings: Any) -> Server:
    return Server(App("a", "1"), new_token=sequential_tokens(), **settings)


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer x", "x-empty": ""},
        {"AUTHORIZATION": b"Bearer x", "X-Empty": "\t"},
        {b"authorization": b"Bearer x", b"X-EMPTY": b""},
        [("authorization", "Bearer x"), (b"x-empty", b"")],
        ((b"authorization", b" Bearer x "), ("x-empty", " ")),
        iter([("authorization", "Bearer x"), ["x-empty", ""]]),
        {"authorization": "Bearer x", "x-empty": ""}.items(),
    ],
)
def test_headers_may_be_given_in_every_usual_way(headers: Any) -> None:
    """A dict, str and upper case were refused one after the other."""
    made = client(headers=headers)
    made.start(now=0.0)
    effect = made.next_effect()
    assert isinstance(effect, OpenExchange)
    assert effect.head.headers[-2:] == ((b"authorization", b"Bearer x"), (b"x-empty", b""))


@pytest.mark.parametrize("header", [(b"authorization", b"Bearer a\tb"), (b"x-empty", b"")])
def test_headers_of_the_application_are_sent(header: tuple[bytes, bytes]) -> None:
    client(headers=(header,))


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ((b"a b", b"secret"), "header name .*, got 'a b'"),
        ((b"", b"secret"), "header name .*, got ''"),
        (("a\n", "secret"), "header name"),
        (("ä", "secret"), "header name"),
        ((b"\xff", "secret"), "header name"),
        ((b"host", b"secret"), "'host' is set by the client"),
        (("Host", "secret"), "'host' is set by the client"),
        ((b"mcp-session-id", b"secret"), "set by the client"),
        ((b"x", b"secret\r\nb: c"), "value of the header 'x'"),
        (("X-Key", "secret\0"), "value of the header 'x-key'"),
        ((b"x", b"secret\n"), "value of the header 'x'"),
        (("Authorization", "secret\n"), "value of the header 'authorization'"),
        (("X", "secret \u20ac"), "value of the header 'x'"),
        (("x", 5), "value of the header 'x' must be str or bytes, got int"),
        (("x", None), "value of the header 'x' must be str or bytes, got NoneType"),
    ],
)
def test_headers_that_cannot_be_added(header: tuple[Any, Any], message: str) -> None:
    """The error names the header, never its value."""
    with pytest.raises(LocalProtocolError, match=message) as caught:
        client(headers=(header,))
    assert "secret" not in str(caught.value)


@pytest.mark.requirement("VERS-B-001")
@pytest.mark.parametrize(
    "name", ["example", "/x", "com.example/", "com..example/x", "1a/x", "a/b/"]
)
def test_extensions_have_a_prefix(name: str) -> None:
    several: dict[str, Any] = {"com.example/x": {}, name: {}}
    for extensions in ({name: several[name]}, several):
        with pytest.raises(LocalProtocolError, match="needs a prefix"):
            client(capabilities={"extensions": extensions})
        app = App("a", capabilities={"extensions": extensions})
        with pytest.raises(LocalProtocolError, match="needs a prefix"):
            Server(app, new_token=sequential_tokens())
    good: dict[str, Any] = {
        "extensions": {"com.example/x": {}, "io.modelcontextprotocol/a-b.c_d": {}}
    }
    client(capabilities=good)
    Server(App("a", capabilities=good), new_token=sequential_tokens())


@pytest.mark.parametrize("names", [(), ("stdio",), ("streamable-http", "carrier-pigeon")])
def test_transports_are_known_ones(names: tuple[str, ...]) -> None:
    with pytest.raises(LocalProtocolError, match="streamable-http, http\\+sse"):
        client(transports=names)


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
@pytest.mark.parametrize(
    "setting", ["timeout", "total_timeout", "connect_timeout", "close_timeout"]
)
def test_times_are_above_zero(setting: str, seconds: float) -> None:
    with pytest.raises(LocalProtocolError, match="seconds above zero"):
        client(**{setting: seconds})


def test_times_of_a_call_are_above_zero() -> None:
    with pytest.raises(LocalProtocolError, match="seconds above zero"):
        client().call("ping", timeout=0, now=0.0)
    with pytest.raises(LocalProtocolError, match="seconds above zero"):
        client().call("ping", total_timeout=-1, now=0.0)


@pytest.mark.parametrize("make", [client, server])
def test_versions_are_known_ones(make: Any) -> None:
    with pytest.raises(LocalProtocolError, match=r"'2024-01-01'; known are 2024-11-05, "):
        make(versions=("2024-01-01",))
    with pytest.raises(LocalProtocolError, match="versions must name at least one"):
        make(versions=())
    with pytest.raises(LocalProtocolError, match="a tuple of str, got the str '2025-11-25'"):
        make(versions="2025-11-25")


@pytest.mark.parametrize(
    ("make", "name", "message"),
    [
        (client, "time_out", r"Client\(\) .* argument 'time_out'; did you mean 'timeout'\? The s"),
        (
            server,
            "standalone_stream",
            r"Server\(\) .* argument 'standalone_stream'; did you mean 'standalone_streams'\?",
        ),
        (server, "x", r"^Server\(\) .* argument 'x'\. The settings of a server are assume_multi_"),
    ],
)
def test_a_setting_that_there_is_not(make: Any, name: str, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make(**{name: True})


@pytest.mark.parametrize("path", ["/", "/mcp", "/a/b;c=%20d"])
def test_paths_of_the_endpoint(path: str) -> None:
    assert server(path=path).path == path


@pytest.mark.parametrize("path", ["", "mcp", "/a b", "/a?b", "/a#b", "/ä", "/a\n"])
def test_what_is_no_path(path: str) -> None:
    with pytest.raises(LocalProtocolError, match="must be a path"):
        server(path=path)


@pytest.mark.parametrize(
    "headers",
    [
        "secret",
        b"secret",
        ["secret"],
        [("a", "b", "secret")],
        [5],
        5,
        None,
        [(5, "secret")],
        {5: "secret"},
    ],
)
def test_headers_that_are_no_pairs(headers: Any) -> None:
    with pytest.raises(LocalProtocolError, match="headers must be a mapping or pairs") as caught:
        client(headers=headers)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("seconds", [0, -1.5, float("nan"), None, "3"])
def test_times_that_are_none(seconds: Any) -> None:
    with pytest.raises(LocalProtocolError, match="must be a number of seconds above zero, got "):
        client(connect_timeout=seconds)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (None, "got None"),
        (7, "got 7"),
        (b"http://localhost/", "got b'http://localhost/'"),
        ([], "got \\[\\]"),
        ([""], "got \\[''\\]"),
        (Path("server.py"), r"got \w+Path\('server.py'\); .* \['python', 'server.py'\]$"),
        (["python", Path("x")], r"got \['python', \w+Path\('x'\)\]; .* str\(path\)"),
        ("server.py", r"got 'server.py'; write \['python', 'server.py'\]$"),
        ("python  server.py", r"got 'python  server.py'; write \['python', 'server.py'\]$"),
        ("localhost:8000/mcp", "got 'localhost:8000/mcp'; .* 'http://localhost:8000/mcp'"),
        ("", "got ''"),
    ],
)
def test_targets_that_are_none(target: Any, message: str) -> None:
    """The error says what to write."""
    text = r"^target must be a URL \(str\) or a command \(sequence of str\), "
    with pytest.raises(LocalProtocolError, match=text + message):
        Client(target, jitter=lambda: 0.5)


@pytest.mark.parametrize("params", [[1], "text", 7, object()])
def test_parameters_that_are_no_object(params: Any) -> None:
    with pytest.raises(LocalProtocolError, match="The parameters must be an object"):
        client().call("tools/call", params, now=0.0)


@pytest.mark.parametrize("transports", [(), ("stdio",), "streamable-http"])
def test_transports_that_there_are_not(transports: Any) -> None:
    with pytest.raises(
        LocalProtocolError, match="transports must be a tuple of some of "
    ) as caught:
        client(transports=transports)
    assert str(caught.value).endswith(f"got {transports!r}")


def test_a_process_that_there_is_not() -> None:
    with pytest.raises(LocalProtocolError, match="has no process"):
        client().receive_process_part(StdoutClosed(), now=0.0)


def test_a_call_before_the_start() -> None:
    with pytest.raises(LocalProtocolError, match=r"not connected\. Write await connect\(\.\.\.\)"):
        client().call("tools/list", now=0.0)
