"""``sansmcp bench``: measure the parsers on a recorded stream (``curl -N ... > stream.txt``)."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import sansmcp

from ._output import Commands, UsageError, print_line

_ROUNDS = 5
_CHUNKS = (65536, 1460, 64)

_Result = TypeVar("_Result")


def add_to(commands: Commands) -> None:
    """Declare ``sansmcp bench``."""
    parser = commands.add_parser(
        "bench",
        help="measure the parsers on a recorded event stream, next to json.loads",
        description="Measure how long the parsers take for an event of a recorded stream. "
        "To record one: curl -N ... > stream.txt",
    )
    parser.add_argument("recording", type=Path, help="the body of a response, as it came")
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


def _best(work: Callable[[], object]) -> float:
    """Return the seconds that ``work`` takes, the minimum of several rounds."""
    times: list[float] = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)
