"""What cannot be of use is refused where the mistake is made, in words that tell what to do."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from sansmcp import (
    App,
    Client,
    InputRequest,
    InputRequired,
    JsonRpcError,
    Limits,
    LocalProtocolError,
    NdjsonDecoder,
    Notification,
    ReconnectPolicy,
    Request,
    SecurityPolicy,
    Server,
    SseDecoder,
    StateSigner,
    decode_envelope,
    decode_message,
    encode_event,
    encode_line,
    encode_message,
)
from sansmcp.testing import sequential_tokens
from sansmcp_wsgi import WsgiApp

LIMITS = Limits()
MESSAGE = '{"jsonrpc":"2.0","method":"m"}'


def client(**settings: Any) -> Client:
    return Client("http://localhost/mcp", jitter=lambda: 0.5, **settings)


def opened() -> Client:
    opened = client()
    opened.start(now=0.0)
    return opened


def server(**settings: Any) -> Server:
    return Server(settings.pop("app", App("a", "1")), new_token=sequential_tokens(), **settings)


def fed(data: Any) -> None:
    decoder = SseDecoder(10)
    decoder.feed(b"x")
    decoder.feed(data)


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return {"a": value}


NO_BYTES: tuple[Any, ...] = ("text", MESSAGE, None, 1, {})
TAKE_BYTES = (fed, SseDecoder(9).receive_data, NdjsonDecoder(9).receive_data, encode_line)
DECODE: tuple[Callable[[Any], Any], ...] = (
    lambda data: decode_message(data, LIMITS),
    lambda data: decode_envelope(data, LIMITS),
)
CODECS: list[tuple[Callable[[Any], Any], Any, str]] = [
    *((take, each, "data must be bytes, and is") for take in TAKE_BYTES for each in NO_BYTES),
    *((take, each, "data must be bytes or bytearray") for take in DECODE for each in NO_BYTES),
    (DECODE[0], memoryview(MESSAGE.encode()), "data must be bytes or bytearray"),
    *((decoder, 0, "limit must be above zero") for decoder in (SseDecoder, NdjsonDecoder)),
    *((decoder, "1", "limit must be int, and is") for decoder in (SseDecoder, NdjsonDecoder)),
    (encode_event, "text", "data must be bytes or bytearray, and is str"),
    (lambda name: encode_event(b"", id=name), 3, "event id must be str, and is int"),
    (lambda retry: encode_event(b"", retry=retry), "1", "retry must be int, and is str"),
    (lambda params: encode_message(Request(1, "m", params)), [1], "an object .*, and are list"),
    (lambda method: encode_message(Notification(method)), 3, "A method must be a string"),
    (lambda params: encode_message(Request(1, "m", params)), nested(100_000), "nests too deep"),
]

SETTINGS: list[tuple[Callable[..., Any], str, Any, str]] = [
    *((make, "limits", 3, "limits must be Limits, and is int") for make in (client, server)),
    (client, "reconnect", 3, "reconnect must be ReconnectPolicy"),
    (client, "known_servers", {}, "known_servers must be KnownServers, and is dict"),
    (client, "name", None, "name must be str, and is NoneType"),
    (client, "version", 1.0, "version must be str, and is float"),
    (client, "capabilities", ["roots"], "capabilities must be Mapping, and is list"),
    (client, "capabilities", {"roots": b""}, "\\$.roots is of type bytes"),
    (server, "app", None, "app must be App, and is NoneType"),
    (server, "app", App("a", capabilities={"x": {1}}), "\\$.x is of type set"),
    (server, "state_signer", "secret", "state_signer must be StateSigner or NoneType, and is str"),
    (server, "policy", "*", "policy must be SecurityPolicy, and is str"),
    (server, "stream_after", "1", "stream_after must be int or float"),
    (server, "stream_after", -0.1, "stream_after must not be below zero, and is -0.1"),
    (server, "path", b"/mcp", "must be a path"),
    (server, "http_sse", True, "must be a path"),
    (
        partial(StateSigner, keys=(b"k" * 16,), clock=float),
        "lifetime",
        0,
        "must be a number of seconds above zero",
    ),
    (SecurityPolicy, "allowed_hosts", (b"x",), "name must be str, and is bytes"),
    (Limits, "max_batch_messages", math.nan, "max_batch_messages must be int, and is float"),
    (Limits, "max_batch_messages", "1", "max_batch_messages must be int, and is str"),
    (ReconnectPolicy, "initial_delay", "1", "seconds above zero"),
    (ReconnectPolicy, "max_attempts", None, "max_attempts must be int"),
]

COMMANDS: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
    (opened().call, (3,), "A method must be a string"),
    (opened().call, ("m", [1]), "must be an object"),
    (opened().call, ("m", nested(100_000)), "nests too deep"),
    (server().publish, ("notifications/tools/list_changed", [1]), "must be an object"),
    (server().publish, ("notifications/tools/list_changed", nested(100_000)), "nests too deep"),
]


VOCABULARY: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
    (App, (1,), "name must be str"),
    (App, ("a", "1", b""), "instructions must be str or NoneType"),
    (App, ("a", "1", None, ["tools"]), "capabilities must be Mapping"),
    (App("a").handler("x"), ("name",), "The handler of 'x' must be callable, got 'name'"),
    (JsonRpcError, ("x", "y"), "code must be int"),
    (JsonRpcError, (1, None), "message must be str"),
    (InputRequest, (1,), "A method must be a string"),
    (InputRequest, ("elicitation/create", [1]), "must be an object"),
    (InputRequired, ([],), "requests must be Mapping"),
    (InputRequired, ({"a": "roots/list"},), r"requests\['a'\] must be InputRequest"),
]


@pytest.mark.parametrize(("take", "value", "message"), CODECS)
def test_codecs(take: Callable[[Any], Any], value: Any, message: str) -> None:
    with pytest.raises(LocalProtocolError, match=message):
        take(value)


@pytest.mark.parametrize(("make", "name", "value", "message"), SETTINGS)
def test_settings(make: Callable[..., Any], name: str, value: Any, message: str) -> None:
    with pytest.raises(LocalProtocolError, match=message):
        make(**{name: value})


@pytest.mark.parametrize(("command", "arguments", "message"), COMMANDS)
def test_commands(command: Callable[..., Any], arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(LocalProtocolError, match=message):
        command(*arguments, now=0.0)


@pytest.mark.parametrize(("make", "arguments", "message"), VOCABULARY)
def test_vocabulary(make: Callable[..., Any], arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(LocalProtocolError, match=message):
        make(*arguments)


def test_a_store_is_one() -> None:
    with pytest.raises(
        TypeError, match=r"store must have the methods of .*, and str has no append"
    ):
        WsgiApp(App("a"), store="file.db")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
