"""``sansmcp chaos``: what it decides, and what comes of that on sockets."""

from __future__ import annotations

import asyncio
import itertools
import re
import signal
import socket
import ssl
import struct
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp_cli._fault_proxy import Ending, FaultProxy, Link, Piece, Way
from sansmcp_cli._faults import Faults, Mean, SeededFate

from ..ports import free_port
from ..tls import contexts
from .conftest import run, run_in_process, started, text_of

TIMEOUT = 30


# What it decides


def decided(fate: SeededFate, way: Way, chunks: Sequence[bytes]) -> tuple[bytes, Ending | None]:
    """What passes of some chunks, and what comes after it."""
    passed = b""
    for chunk in chunks:
        for piece in fate.pieces(way, chunk):
            passed += piece.data
            if piece.ending is not None:
                return passed, piece.ending
    return passed, None


def chunked(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    ends = list(itertools.accumulate(sizes))
    starts = [0, *ends]
    return [*(data[start:end] for start, end in itertools.pairwise(starts)), data[starts[-1] :]]


DATA = bytes(range(256)) * 20


@given(
    seed=st.integers(0, 1000),
    number=st.integers(1, 1000),
    way=st.sampled_from(Way),
    sizes=st.lists(st.integers(1, 2000), max_size=10),
)
def test_chunks_and_other_faults_change_no_ending(
    seed: int, number: int, way: Way, sizes: list[int]
) -> None:
    ends = Faults(cut=Mean(2000, is_time=False), silence=Mean(3000, is_time=False))
    more = attrs.evolve(ends, delay=0.1, fragments=10, slow=1000)
    passed, ending = decided(SeededFate(ends, seed, number), way, [DATA])
    assert DATA.startswith(passed)
    assert (ending is None) == (passed == DATA)
    for faults in (ends, more):
        fate = SeededFate(faults, seed, number)
        chunks = [chunk for chunk in chunked(DATA, sizes) if chunk]
        assert decided(fate, way, chunks) == (passed, ending)


def test_the_same_seed_decides_the_same() -> None:
    faults = Faults(cut=Mean(9, is_time=True), delay=0.1, fragments=50, slow=10_000)

    def decisions(seed: int) -> list[object]:
        fates = [SeededFate(faults, seed, number) for number in range(1, 21)]
        return [(fate.end_by_time, *fate.pieces(way, DATA)) for fate in fates for way in Way]

    assert decisions(1) == decisions(1)
    assert len(set(map(str, decisions(1) + decisions(2)))) == 80


def test_means() -> None:
    """Of many connections with one seed; so the figures are always the same."""

    def fates(faults: Faults) -> list[SeededFate]:
        return [SeededFate(faults, 1, number) for number in range(2000)]

    def near(values: list[float], mean: float) -> bool:
        return sum(values) / len(values) == pytest.approx(mean, rel=0.1)

    by_bytes = [
        decided(fate, Way.TO_CLIENT, [bytes(10_000)])
        for fate in fates(Faults(cut=Mean(500, is_time=False)))
    ]
    assert near([len(passed) for passed, _ in by_bytes], 500)
    endings = [ending for _, ending in by_bytes]
    assert set(endings) == {Ending.CLOSE, Ending.RESET}
    assert 900 < endings.count(Ending.RESET) < 1100
    by_time = [fate.end_by_time for fate in fates(Faults(silence=Mean(3, is_time=True)))]
    assert {end[1] for end in by_time if end is not None} == {Ending.SILENCE}
    assert near([end[0] for end in by_time if end is not None], 3)
    delayed = [fate.pieces(Way.TO_SERVER, b"x") for fate in fates(Faults(delay=0.2))]
    assert near([piece.latency for pieces in delayed for piece in pieces], 0.2)
    (fate, *_) = fates(Faults(fragments=8))
    assert near([len(piece.data) for piece in fate.pieces(Way.TO_SERVER, DATA)], 8)


def test_a_limited_rate() -> None:
    pieces = list(SeededFate(Faults(slow=100), 1, 1).pieces(Way.TO_SERVER, bytes(250)))
    assert sum(len(piece.data) for piece in pieces) == 250
    assert sum(piece.pause for piece in pieces) == pytest.approx(2.5)
    assert sum(piece.latency for piece in pieces) == 0


def test_without_faults_all_passes() -> None:
    fate = SeededFate(Faults(), 1, 1)
    assert fate.end_by_time is None
    assert list(fate.pieces(Way.TO_CLIENT, DATA)) == [Piece(DATA)]


# What comes of it on sockets


@attrs.frozen
class Scripted:
    """A fate that passes so many bytes to the client before the end."""

    passes: int
    ending: Ending | None = None
    end_by_time: tuple[float, Ending] | None = None

    def pieces(self, way: Way, data: bytes) -> tuple[Piece, ...]:
        if way is Way.TO_SERVER or self.ending is None:
            return (Piece(data),)
        return (Piece(data[: self.passes], latency=0.001, ending=self.ending),)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each line by ten bytes; say goodbye at the end."""
    with suppress(OSError):
        while await reader.readline():
            writer.write(b"0123456789")
        writer.write(b"bye")
    writer.close()


@attrs.define(eq=False)
class Bench:
    """A relay before a server, and what it told of its connections."""

    relay: FaultProxy
    port: int
    links: list[Link]

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ended(self) -> Link:
        """The next connection that has ended, or fallen silent."""
        while not self.links:
            await asyncio.sleep(0.01)
        return self.links.pop(0)


@asynccontextmanager
async def bench(fate: Scripted, port: int | None = None) -> AsyncGenerator[Bench, None]:
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        upstream = ("127.0.0.1", port or server.sockets[0].getsockname()[1])
        links: list[Link] = []
        with socket.create_server(("127.0.0.1", 0)) as listener:
            relay = FaultProxy(lambda: upstream, lambda number: fate, links.append)
            running = asyncio.ensure_future(relay.run(listener))
            yield Bench(relay, listener.getsockname()[1], links)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def on_sockets(test: Callable[[], Coroutine[object, object, None]]) -> Callable[[], None]:
    """Run a test on asyncio."""

    def run_it() -> None:
        asyncio.run(asyncio.wait_for(test(), TIMEOUT))

    return run_it


@on_sockets
async def test_a_connection_of_which_one_direction_ends_first() -> None:
    async with bench(Scripted(0)) as here:
        reader, writer = await here.connect()
        writer.write(b"\n\n")
        assert await reader.readexactly(20) == 2 * b"0123456789"
        writer.write_eof()
        assert await reader.read() == b"bye"
        writer.close()
        link = await here.ended()
        assert (link.number, link.ending, link.way) == (1, Ending.ENDED, None)
        assert link.carried == {Way.TO_SERVER: 2, Way.TO_CLIENT: 23}


@on_sockets
async def test_a_cut_that_closes() -> None:
    async with bench(Scripted(4, Ending.CLOSE)) as here:
        reader, writer = await here.connect()
        writer.write(b"\n")
        assert await reader.read() == b"0123"
        writer.close()
        link = await here.ended()
        assert (link.ending, link.way, link.delays) == (Ending.CLOSE, Way.TO_CLIENT, 1)
        assert link.carried == {Way.TO_SERVER: 1, Way.TO_CLIENT: 4}


@pytest.mark.parametrize("fate", [Scripted(4, Ending.RESET), Scripted(0, None, (0, Ending.RESET))])
def test_a_cut_that_resets(fate: Scripted) -> None:
    @on_sockets
    async def test() -> None:
        async with bench(fate) as here:
            reader, writer = await here.connect()
            writer.write(b"\n")
            with pytest.raises(ConnectionResetError):
                await reader.readexactly(11)
            writer.close()
            assert (await here.ended()).ending is Ending.RESET

    test()


@on_sockets
async def test_silence_swallows_and_keeps_the_connection() -> None:
    async with bench(Scripted(4, Ending.SILENCE)) as here:
        reader, writer = await here.connect()
        writer.write(b"\n")
        assert await reader.readexactly(4) == b"0123"
        link = await here.ended()
        here.relay.is_quiet = True
        writer.write(1000 * b"x\n")  # without an answer
        await writer.drain()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.3)
        assert link.carried == {Way.TO_SERVER: 1, Way.TO_CLIENT: 4}
        writer.close()


@on_sockets
async def test_a_quiet_network_asks_no_fate() -> None:
    async with bench(Scripted(0, Ending.RESET, (0.2, Ending.RESET))) as here:
        here.relay.is_quiet = True
        reader, writer = await here.connect()
        await asyncio.sleep(0.3)
        writer.write(b"\n")
        writer.write_eof()
        assert await reader.read() == b"0123456789bye"
        writer.close()
        assert (await here.ended()).ending is Ending.ENDED


@on_sockets
async def test_an_end_that_breaks_the_connection() -> None:
    async with bench(Scripted(0)) as here:
        reader, writer = await here.connect()
        writer.write(b"\n")
        await reader.readexactly(10)
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        assert (await here.ended()).ending is Ending.BROKEN


@on_sockets
async def test_a_server_that_is_gone() -> None:
    async with bench(Scripted(0), free_port()) as here:
        reader, writer = await here.connect()
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
        assert (await here.ended()).ending is Ending.REFUSED


@on_sockets
async def test_connections_that_are_open_when_the_relay_stops() -> None:
    async with bench(Scripted(0)) as here:
        _, writer = await here.connect()
        writer.write(b"\n")
        await asyncio.sleep(0.1)
    assert (await here.ended()).ending is Ending.STOPPED
    writer.close()


# The command


@contextmanager
def server(context: ssl.SSLContext | None = None) -> Generator[int, None, None]:
    """A server that answers each line by ten bytes, at a port, in a thread."""
    loop = asyncio.new_event_loop()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)

    listening = loop.run_until_complete(start())
    running = threading.Thread(target=loop.run_forever)
    running.start()
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        running.join()
        listening.close()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


@contextmanager
def chaos(*arguments: str) -> Generator[tuple[int, Callable[[], list[str]]], None, None]:
    """Run the command; gives its port, and what stops it and returns its lines."""
    with started("chaos", "--listen", "127.0.0.1:0", *arguments) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        out, err = process.stdout, process.stderr
        first = out.readline()
        found = re.fullmatch(r"https?://127\.0\.0\.1:(\d+)/mcp\n", first)
        assert found is not None, first
        lines = [first.strip()]
        # The command prints a line for each connection, and blocks if the pipe is full: after some
        # 800 connections, which a fast machine makes in half a second.
        reading = threading.Thread(target=lambda: lines.extend(out.read().splitlines()))
        reading.start()

        def stop() -> list[str]:
            process.send_signal(signal.SIGINT)
            assert process.wait(TIMEOUT) == 0
            assert err.read() == ""
            reading.join()
            return lines

        try:
            yield int(found[1]), stop
        finally:
            process.kill()
            reading.join()


def talk(port: int) -> bytes:
    """Say a hundred lines, one after the other, and return the bytes that came back."""
    heard = b""
    with (
        socket.create_connection(("127.0.0.1", port), TIMEOUT) as connection,
        suppress(OSError),
    ):
        while len(heard) < 1000:
            connection.sendall(b"\n")
            heard += (part := connection.recv(10, socket.MSG_WAITALL))
            if len(part) < 10:
                return heard
        connection.shutdown(socket.SHUT_WR)
        heard += connection.recv(10, socket.MSG_WAITALL)
    return heard


def test_the_same_seed_breaks_the_same_connections_at_the_same_bytes() -> None:
    def happened(seed: str) -> tuple[list[str], str]:
        faults = ("--cut", "300", "--delay", "0.0001")
        with (
            server() as upstream,
            chaos(*("--upstream", f"http://127.0.0.1:{upstream}/mcp", "--seed", seed), *faults) as (
                port,
                stop,
            ),
        ):
            heard = [talk(port) for _ in range(10)]
            lines = stop()
        assert max(map(len, lines)) <= 80
        ends = [line for line in lines if re.match(r" *\d+\.\d\d ", line)]
        assert [int(line.split()[4]) for line in ends] == list(map(len, heard))
        text = " ".join(lines)
        assert text.count(f"--seed {seed}: ") == 2
        summary = text[text.rindex("--seed") :]
        counted = re.search(r"10 connections, (\d+) bytes to the server, (\d+) to the", summary)
        assert counted is not None
        assert int(counted[2]) == sum(map(len, heard))
        cuts = sum("cut: " in line for line in ends)
        assert cuts > 5
        assert f"{cuts} cuts, " in summary
        return [line[26:] for line in ends], summary

    first, again, other = happened("7"), happened("7"), happened("8")
    assert first == again
    assert first != other


def test_faults_stop() -> None:
    with server() as upstream:
        url = f"http://127.0.0.1:{upstream}/mcp"
        with chaos("--upstream", url, "--cut", "1", "--quiet-after", "5s") as (port, stop):
            while talk(port)[-3:] != b"bye":
                pass
            assert "no further faults" in stop()


def test_tls_is_passed_on_as_it_is() -> None:
    at_server, at_client = contexts()
    with (
        server(at_server) as upstream,
        chaos("--upstream", f"https://127.0.0.1:{upstream}/mcp", "--delay", "0.001") as (
            port,
            stop,
        ),
    ):
        with (
            socket.create_connection(("127.0.0.1", port), TIMEOUT) as plain,
            at_client.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            connection.sendall(b"\n")
            assert connection.recv(10) == b"0123456789"
        lines = stop()
    assert lines[0].startswith("https://")
    assert "The certificate is that of 127.0.0.1; clients" in " ".join(lines)


def test_a_call_through_chaos(url: str) -> None:
    faults = ("--delay", "0.005", "--fragments", "20", "--slow", "100000")
    with chaos("--upstream", url, *faults) as (port, stop):
        called = run("call", f"http://127.0.0.1:{port}/mcp", "echo", '{"text": "hi"}')
        assert text_of(called.out) == "hi"
        assert " 0 cuts, " in " ".join(stop())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--seed", "x"), "--seed takes a whole number, got 'x'"),
        (("--upstream", "host:80"), "Not an http or https URL: 'host:80'; write http://"),
        (("--upstream", "http://127.0.0.1:1/"), "Cannot reach the upstream http://127.0.0.1:1/: "),
        (("--listen", "9000"), "--listen takes HOST:PORT, got '9000'; write 127.0.0.1:9000"),
        (("--listen", ":9000"), "--listen takes HOST:PORT, got ':9000'"),
        (("--listen", "127.0.0.1:65536"), "--listen takes HOST:PORT, got '127.0.0.1:65536'"),
        (("--cut", "0"), "--cut takes bytes, as in 4000, or seconds, as in 2.5s, got '0'"),
        (("--cut", "0s"), "--cut takes bytes"),
        (("--silence", "nans"), "--silence takes bytes"),
        (("--delay", "-1"), "--delay takes seconds above zero, as in 0.05, got '-1'"),
        (("--quiet-after", "soon"), "--quiet-after takes seconds"),
        (("--slow", "1.5"), "--slow takes bytes a second, one or more, as in 1000, got '1.5'"),
        (("--fragments", "0"), "--fragments takes bytes, one or more"),
    ],
)
def test_what_is_wrong_is_one_line(arguments: tuple[str, str], said: str, url: str) -> None:
    usual = {"--listen": "127.0.0.1:0", "--upstream": url}
    options = {**usual, arguments[0]: arguments[1]}
    ran = run_in_process("chaos", *itertools.chain(*options.items()))
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith(f"sansmcp: {said}")
    assert ran.err.count("\n") == 1


def test_a_port_that_is_taken(url: str) -> None:
    taken = url.removeprefix("http://").removesuffix("/mcp")
    ran = run_in_process("chaos", "--listen", taken, "--upstream", url)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == (
        f"sansmcp: Cannot listen at {taken}: Address already in use; "
        "choose another address or port (0: any)\n"
    )


def test_the_help_fits_the_terminal() -> None:
    shown = run("chaos", "--help")
    assert max(map(len, shown.out.splitlines())) <= 80


def test_a_proxy_that_ends_while_a_connection_comes_raises_nothing() -> None:
    """In the same step of the loop: a callback of asyncio raised InvalidStateError then."""
    complaints: list[Any] = []

    async def main(listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, complaint: complaints.append(complaint))
        proxy = FaultProxy(lambda: ("127.0.0.1", 1), lambda number: Scripted(0))
        running = loop.create_task(proxy.run(listener))
        for _ in range(3):
            await asyncio.sleep(0)
        with socket.create_connection(listener.getsockname()):
            loop.call_soon(running.cancel)
            with pytest.raises(asyncio.CancelledError):
                await running

    with socket.create_server(("127.0.0.1", 0)) as listener:
        asyncio.run(main(listener))
    assert complaints == []
