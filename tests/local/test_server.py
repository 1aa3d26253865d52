"""What servers are made with: where they listen, and what instances share."""

from __future__ import annotations

import errno
import socket
import time
from typing import Any

import pytest

import sansmcp
from sansmcp_local import address_of, listen, new_server, serve_plan

HOST = "127.0.0.1"


@pytest.mark.parametrize("http", [(HOST, 0), (HOST, range(8000, 8003)), (HOST, 65535)])
def test_addresses(http: tuple[str, int | range]) -> None:
    host, ports = address_of(http)
    assert host == HOST
    assert list(ports) == ([http[1]] if isinstance(http[1], int) else [8000, 8001, 8002])


@pytest.mark.parametrize(
    ("http", "said"),
    [
        ("127.0.0.1:8000", "http is a host and a port, such as .* not '127.0.0.1:8000'"),
        (8000, "not 8000"),
        ((HOST,), "is a host and a port"),
        ((HOST, "8000"), "is a host and a port"),
        ((HOST, None), "is a host and a port"),
        ((HOST, 8000, 8001), "is a host and a port"),
        ((HOST, -1), "Ports are from 0 to 65535"),
        ((HOST, 65536), "Ports are from 0 to 65535"),
        ((HOST, range(65530, 65540)), "Ports are from 0 to 65535"),
        ((HOST, range(0)), "must not be empty"),
    ],
)
def test_what_is_no_address(http: Any, said: str) -> None:
    with pytest.raises(sansmcp.LocalProtocolError, match=said):
        address_of(http)


@pytest.mark.parametrize("setting", [{"port": 8000}, {"host": HOST}])
def test_host_and_port_are_one_setting(setting: Any) -> None:
    with pytest.raises(TypeError, match=r"^serve\(\) has no host= and port=; pass http="):
        serve_plan(sansmcp.App("x"), **setting)


def test_the_first_port_that_is_free() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        (listener,) = listen((HOST, range(port, port + 20)))
        with listener:
            assert listener.getsockname()[1] > port
        with pytest.raises(OSError, match="in use"):
            listen((HOST, range(port, port + 1)))


def test_a_port_that_is_free_at_all_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    create, found = socket.create_server, socket.getaddrinfo(HOST, 0, type=socket.SOCK_STREAM)
    tried: list[int] = []

    def create_server(place: tuple[str, int], **options: Any) -> socket.socket:
        if place[1] == 0:
            return create(place, **options)
        tried.append(place[1])
        if len(tried) == 1:
            raise OSError(errno.EADDRINUSE, "in use")
        return socket.socket()

    def getaddrinfo(*_: Any, **__: Any) -> Any:
        return 2 * found

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(socket, "create_server", create_server)
    one, other = listen((HOST, 0))
    with one, other:
        assert tried[1:] == [one.getsockname()[1]]


@pytest.mark.parametrize("missing", ["store", "seal"])
def test_what_instances_share_is_to_be_set(missing: str) -> None:
    app, store = sansmcp.App("a"), sansmcp.MemoryStore(sansmcp.Limits())
    seal = sansmcp.StateSigner(keys=(bytes(16),), clock=time.time)
    new_server(app, store, resumable=True, shared_store=True, state_signer=seal)
    with pytest.raises(
        sansmcp.LocalProtocolError, match="With shared_store=True set store and state_signer"
    ):
        if missing == "store":
            new_server(app, None, resumable=True, shared_store=True, state_signer=seal)
        else:
            new_server(app, store, resumable=True, shared_store=True)
