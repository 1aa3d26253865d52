"""``sansmcp replay``: show a recording, send it to a server, or play its server to a client."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import sansmcp
from sansmcp.types import hide_program
from sansmcp_local import (
    START_ERRORS,
    STOPPING,
    ProcessGroup,
    called_at,
    command_on_windows,
    from_pipe,
    listen,
    process_arguments,
    start_failure,
)

from ._compare import Compared, Message, Translation, difference_lines, parse_messages
from ._output import Commands, UsageError, examples, print_line, write_bytes
from ._recording import Recording, Step, read_recording
from ._replay_http import labels_not_sent, send_http, serve_http
from ._serve import address_of
from ._target import add_headers, add_target, headers_of, process_of, target_of
from ._with_asyncio import run

_READ = 65536
_LONGEST_LINE = 1 << 26
"""Bytes of a line of a server process, or of a client."""
_PATIENCE = 10.0
"""Seconds in which a server must send what it sent in the recording."""
_WIDTH = 100


_NOT_RECORDED = {"code": -32601, "message": "The recording has no further request of this kind"}


def add_to(commands: Commands) -> None:
    """Add the command and its options to the parser."""
    command = commands.add_parser(
        "replay",
        help="show a recorded conversation, or replay it against a server or a client",
        usage="sansmcp replay FILE\n"
        "       sansmcp replay [options] FILE --to URL\n"
        "       sansmcp replay [options] FILE -- COMMAND [ARGS ...]\n"
        "       sansmcp replay [options] FILE --serve",
        description="Show a recording that --record made. Or send what its client sent to a "
        "server, and compare the responses: the exit status is 1 if they differ. Or serve what "
        "its server sent to a client.",
        epilog=examples(
            "replay talk.jsonl",
            "replay talk.jsonl --to http://127.0.0.1:8000/mcp --ignore timestamp",
        ),
    )
    command.add_argument("file", metavar="FILE")
    what = command.add_argument_group("what is done with the recording")
    what.add_argument("--to", metavar="URL", help="send what the client sent to this server")
    what.add_argument(
        "--serve",
        action="store_true",
        help="send what the server sent to a client: over HTTP, or on stdio if it was recorded so",
    )
    what.add_argument(
        "--http",
        default="127.0.0.1:8000",
        metavar="HOST:PORT",
        help="where to serve (default: %(default)s); port 0: a free one",
    )
    what.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="serve requests for this host name, too; * for all (default: this machine only)",
    )
    what.add_argument(
        "--keep-times", action="store_true", help="make the same pauses as in the recording"
    )
    what.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="NAME",
        help="members of messages that may differ, such as a time; may be given several times",
    )
    server = command.add_argument_group("the server")
    add_target(server)
    add_headers(server)
    command.set_defaults(run=_replay)


def _replay(options: argparse.Namespace) -> int:
    recording = read_recording(options.file)
    words = [] if options.to is None else [options.to]
    if options.serve:
        if words or options.command or options.state_file is not None:
            raise UsageError("Either --serve or a server, not both")
        return _serve(options, recording)
    if not (words or options.command or options.state_file is not None):
        _show(recording)
        return 0
    if words and (options.command or options.state_file is not None):
        raise UsageError("One server: --to URL, --state-file FILE, or a command after --")
    target = target_of(options, words)
    if isinstance(target, str) != recording.is_http:
        how = "HTTP; name a URL with --to" if recording.is_http else "stdio; name a command"
        raise UsageError(f"{options.file} was recorded over {how}")
    if isinstance(target, str):
        headers = headers_of(options)
        compared = run(send_http(recording, sansmcp.Url.parse(target), headers, options.keep_times))
    else:
        compared = run(_send_stdio(recording, target, options))
    is_same = True
    for label, recorded, now, notes in compared:
        different = [*notes, *difference_lines(recorded, now, options.ignore)]
        is_same &= not different
        print_line(f"{label}: {'different' if different else 'same'}")
        for line in different:
            print_line(f"    {line}")
    for label in labels_not_sent(recording):
        print_line(f"{label}: not sent, since recordings do not have the keys of calls")
    return 0 if is_same else 1


def _serve(options: argparse.Namespace, recording: Recording) -> int:
    if not recording.is_http:
        return run(_serve_stdio(recording, keep_times=options.keep_times))

    async def main() -> int:
        stopped = asyncio.Event()
        keep_times: bool = options.keep_times
        hosts = (*sansmcp.SecurityPolicy().allowed_hosts, *options.allow_host)
        with called_at(STOPPING, stopped.set):
            try:
                listeners = listen(address_of(options.http))
            except OSError as error:
                raise UsageError(f"Cannot serve at {options.http}: {error}") from error
            await serve_http(
                recording,
                listeners,
                print_line,
                stopped,
                keep_times=keep_times,
                policy=sansmcp.SecurityPolicy(allowed_hosts=hosts),
            )
        return 0

    return run(main())


def _show(recording: Recording) -> None:
    for step in recording.steps:
        arrow = ">" if step.is_client else "<"
        number = "" if step.exchange is None else f" #{step.exchange}"
        for line in _lines(step):
            text = line if len(line) <= _WIDTH else f"{line[:_WIDTH]}... ({len(line)} characters)"
            print_line(f"{step.t:9.3f}{number} {arrow} {text}")


def _lines(step: Step) -> list[str]:
    members = step.members
    if "method" in members:
        return [f"{members['method']} {members['target']}"]
    if "status" in members:
        return [str(members["status"])]
    for name in ("body", "stderr"):
        if name in members:
            start = "" if name == "body" else "stderr: "
            return [start + line for line in step.data(name).decode(errors="replace").splitlines()]
    return [
        f"{name} {value}" if name in ("lost", "exit") else name for name, value in members.items()
    ]


def _lines_of(recording: Recording) -> list[tuple[Step, list[Message]]]:
    """Return the messages of a conversation on stdio, line by line of the recording.

    A message that is cut between two lines of the recording counts for the later one.
    """
    rest = {True: b"", False: b""}
    found: list[tuple[Step, list[Message]]] = []
    for step in recording.steps:
        if "body" not in step.members:
            continue
        *lines, rest[step.is_client] = (rest[step.is_client] + step.data()).split(b"\n")
        found.append((step, [message for line in lines for message in parse_messages(line)]))
    return found


async def _pause(before: float, step: Step, *, keep_times: bool) -> float:
    """Make the pause before a line of the recording. Return its time."""
    if keep_times:
        await asyncio.sleep(max(step.t - before, 0))
    return step.t


async def _send_stdio(
    recording: Recording, command: Sequence[str], options: argparse.Namespace
) -> list[Compared]:
    """Send the client's lines to a server process.

    Each is sent when the server has sent as many messages as it had in the recording. Returns
    what it sent, beside what it had sent.
    """
    translation, now, notes = Translation(), list[Message](), list[str]()
    recorded: list[Message] = []
    async with _started(command, options) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        before = 0.0
        for step, messages in _lines_of(recording):
            if not step.is_client:
                recorded += messages
                continue
            await _read_messages(process.stdout, now, len(recorded))
            _learn(translation, recorded, now)
            before = await _pause(before, step, keep_times=options.keep_times)
            for message in messages:
                process.stdin.write(_line(translation.applied(message)))
            try:
                await process.stdin.drain()
            except ConnectionError:
                notes.append("the server has closed its standard input")
                break
        await _read_messages(process.stdout, now, len(recorded))
        process.stdin.close()
    return [("stdio", recorded, now, notes)]


def _learn(translation: Translation, recorded: list[Message], now: list[Message]) -> None:
    for old, new in zip(recorded, now, strict=False):
        translation.learn(old, new)


def _line(message: Message) -> bytes:
    return json.dumps(message).encode() + b"\n"


async def _read_messages(stream: asyncio.StreamReader, into: list[Message], count: int) -> None:
    """Read until there are so many messages, the stream ends, or no message comes for a while."""
    loop = asyncio.get_running_loop()
    until = loop.time() + _PATIENCE
    while len(into) < count:
        await asyncio.sleep(0)  # a Ctrl-C has its turn, however much has come
        try:
            line = await asyncio.wait_for(stream.readline(), max(until - loop.time(), 0))
        except (asyncio.TimeoutError, ValueError):  # a line is longer than the buffer
            return
        if not line:
            return
        new = parse_messages(line)
        if new:
            into += new
            until = loop.time() + _PATIENCE


@asynccontextmanager
async def _started(
    command: Sequence[str], options: argparse.Namespace
) -> AsyncGenerator[asyncio.subprocess.Process, None]:
    settings = process_of(options)
    arguments: dict[str, Any] = process_arguments(
        settings.get("env"), inherit_env=settings.get("inherit_env", False), cwd=settings.get("cwd")
    )
    if sys.platform == "win32":
        command = command_on_windows(command, arguments["env"])
    try:
        process = await asyncio.create_subprocess_exec(*command, limit=_LONGEST_LINE, **arguments)
    except START_ERRORS as error:
        reason = start_failure(error).reason
        raise UsageError(f"{hide_program(command[0])!r} could not be started: {reason}") from error
    group = ProcessGroup(process.pid)
    assert process.stderr is not None
    showing = asyncio.ensure_future(_show_log(process.stderr))
    try:
        yield process
        await asyncio.wait_for(process.wait(), _PATIENCE)
    except asyncio.TimeoutError:
        pass
    finally:
        group.signal(kill=True)
        assert process.stdout is not None
        # The end of a process is told after that of its pipes, and so after what is in them.
        discarding = asyncio.ensure_future(_discard(process.stdout))
        await process.wait()
        for task in (showing, discarding):
            task.cancel()  # a child of the server may hold the pipe open
        await asyncio.wait([showing, discarding])


async def _discard(stream: asyncio.StreamReader) -> None:
    while await stream.read(_READ):
        pass


async def _show_log(stream: asyncio.StreamReader) -> None:
    """Print what a server process logs; a line that is very long in several ones."""
    rest = b""
    while data := await stream.read(_READ):
        await asyncio.sleep(0)  # a Ctrl-C has its turn, however much has come
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > _READ:
            lines, rest = [*lines, rest], b""
        for line in lines:
            print_line(f"server: {line.decode(errors='replace').rstrip()}", sys.stderr)
    if rest:
        print_line(f"server: {rest.decode(errors='replace').rstrip()}", sys.stderr)


async def _serve_stdio(recording: Recording, *, keep_times: bool) -> int:
    """Send the server's lines on standard output, each after the client's that came before it.

    A client may leave out requests, and choose other ids.
    """
    loop = asyncio.get_running_loop()
    stdin = asyncio.StreamReader(limit=_LONGEST_LINE)
    # By a thread: a loop of Windows cannot wait for the pipe that a client gives to a process.
    reading, _ = await loop.create_connection(
        lambda: asyncio.StreamReaderProtocol(stdin), sock=from_pipe(sys.stdin.fileno())
    )
    try:
        return await _play(recording, stdin, keep_times=keep_times)
    finally:
        reading.close()


async def _play(recording: Recording, stdin: asyncio.StreamReader, *, keep_times: bool) -> int:
    """Answer what is read from ``stdin``."""
    entries = [(step, each) for step, messages in _lines_of(recording) for each in messages]
    translation, left, before = Translation(), list[Message](), 0.0
    skipped: set[str] = set()
    for place, (step, message) in enumerate(entries):
        if not step.is_client:
            if "method" in message or json.dumps(message.get("id")) not in skipped:
                before = await _pause(before, step, keep_times=keep_times)
                write_bytes(_line(translation.applied(message)))
            continue
        expected = [each for later, each in entries[place:] if later.is_client]
        while not left:
            line = await stdin.readline()
            if not line:
                return 0
            for each in parse_messages(line):
                if any(_is_alike(each, other) for other in expected):
                    left.append(each)
                else:
                    _refuse(each)
        if _is_alike(left[0], message):
            translation.learn(message, left.pop(0))
        else:  # this client leaves the request out, and gets no response to it
            skipped.add(json.dumps(message.get("id")))
    while line := await stdin.readline():
        for each in parse_messages(line):
            _refuse(each)
    return 0


def _refuse(message: Message) -> None:
    """Send an error for what the recording has no response to."""
    if "method" in message and "id" in message:
        write_bytes(_line({"jsonrpc": "2.0", "id": message["id"], "error": _NOT_RECORDED}))


def _is_alike(message: Message, other: Message) -> bool:
    return message.get("method") == other.get("method")
