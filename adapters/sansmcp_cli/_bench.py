"""``sansmcp bench``: measure the parsers on a recorded stream (``curl -N ... > stream.txt``)."""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import sansmcp

from ._output import Commands, UsageError, examples, print_line

_ROUNDS = 5
_CHUNKS = (65536, 1460, 64)

_Result = TypeVar("_Result")

_Reader: TypeAlias = Callable[[list[bytes]], Iterable[str]]
_STREAM = {"content-type": "text/event-stream"}


def add_to(commands: Commands) -> None:
    """Declare ``sansmcp bench``."""
    parser = commands.add_parser(
        "bench",
        help="measure the parsers on a recorded event stream, next to json.loads",
        description="Measure how long the parsers take for an event of a recorded stream. "
        "To record one: curl -N ... > stream.txt",
        usage="sansmcp bench [options] RECORDING",
        epilog=examples("bench stream.txt", "bench stream.txt --with httpx-sse"),
    )
    parser.add_argument("recording", type=Path, help="the body of a response, as it came")
    parser.add_argument(
        "--with",
        dest="others",
        metavar="NAMES",
        help="compare with other libraries that are installed: " + ",".join(_OTHERS),
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the time to parse an event and its message, for several sizes of chunks."""
    data: bytes = options.recording.read_bytes()
    limits = sansmcp.Limits(max_message_bytes=len(data) + 1)
    messages = _read([data], limits, bytes)
    if not messages:
        raise UsageError(
            f"There is no event with data in {str(options.recording)!r}; record an event stream "
            "with: curl -N ... > stream.txt"
        )
    _read([data], limits, partial(sansmcp.decode_message, limits=limits))
    others = _others(options.others)
    print_line(f"{len(messages)} events, {len(data)} bytes; microseconds for each event:")
    for name, read in (
        ("events", bytes),
        ("and their envelopes", partial(sansmcp.decode_envelope, limits=limits)),
        ("and their messages", partial(sansmcp.decode_message, limits=limits)),
    ):
        for size in _CHUNKS:
            chunks = [data[start : start + size] for start in range(0, len(data), size)]
            seconds = _best(partial(_read, chunks, limits, read))
            print_line(f"{name + ',':20} chunks of {size:5}: {seconds / len(messages) * 1e6:8.2f}")
    for name, (reader, decode) in others.items():
        for what, each in (("events", bytes), ("and their messages", decode)):
            for size in _CHUNKS:
                chunks = [data[start : start + size] for start in range(0, len(data), size)]
                seconds = _best(partial(_read_by, reader, chunks, each))
                micros = seconds / len(messages) * 1e6
                print_line(f"{name}: {what + ',':20} chunks of {size:5}: {micros:8.2f}")
    seconds = _best(lambda: [json.loads(message) for message in messages])
    print_line(f"json.loads alone, for comparison:   {seconds / len(messages) * 1e6:8.2f}")
    return 0


def _read(
    chunks: list[bytes], limits: sansmcp.Limits, read: Callable[[bytes], _Result]
) -> list[_Result]:
    """Read an event stream. Raises UsageError if an event is not a message."""
    decoder = sansmcp.SseDecoder(limits.max_message_bytes)
    try:
        return [
            read(event.data.encode())
            for chunk in chunks
            for event in decoder.feed(chunk)
            if event.data
        ]
    except sansmcp.RemoteProtocolError as error:
        raise UsageError(f"The recording cannot be read: {error.message}") from error


def _read_by(reader: _Reader, chunks: list[bytes], read: Callable[[bytes], object]) -> None:
    """Read an event stream with another library."""
    for data in reader(chunks):
        if data:
            read(data.encode())


def _by_httpx_sse() -> tuple[_Reader, Callable[[bytes], object]]:
    """The reader for httpx, with ``json.loads``."""
    httpx: Any = importlib.import_module("httpx")
    httpx_sse: Any = importlib.import_module("httpx_sse")

    def read(chunks: list[bytes]) -> Iterable[str]:
        response = httpx.Response(200, headers=_STREAM, content=iter(chunks))
        return (event.data for event in httpx_sse.EventSource(response).iter_sse())

    return read, json.loads


def _by_mcp() -> tuple[_Reader, Callable[[bytes], object]]:
    """What the official SDK reads streams and messages with."""
    httpx2: Any = importlib.import_module("httpx2")
    adapter: Any = importlib.import_module("mcp_types").jsonrpc_message_adapter

    def read(chunks: list[bytes]) -> Iterable[str]:
        request = httpx2.Request("GET", "http://localhost")
        response = httpx2.Response(200, headers=_STREAM, content=iter(chunks), request=request)
        return (event.data for event in httpx2.EventSource(response))

    return read, partial(adapter.validate_json, by_name=False)


_OTHERS = {"httpx-sse": _by_httpx_sse, "mcp": _by_mcp}


def _others(names: str | None) -> dict[str, tuple[_Reader, Callable[[bytes], object]]]:
    """Return how other libraries read. Raises UsageError for one that cannot be compared with."""
    found: dict[str, tuple[_Reader, Callable[[bytes], object]]] = {}
    for name in names.split(",") if names else ():
        if name not in _OTHERS:
            raise UsageError(f"--with takes {', '.join(_OTHERS)}, got {name!r}")
        try:
            found[name] = _OTHERS[name]()
        except ImportError as error:
            raise UsageError(f"--with {name}: {error}; install it with pip") from error
    return found


def _best(work: Callable[[], object]) -> float:
    """Return the seconds that ``work`` takes, the minimum of several rounds."""
    times: list[float] = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)
