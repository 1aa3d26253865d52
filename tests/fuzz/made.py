"""Make the part of the corpus that needs no recording: ``python -m tests.fuzz.made``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sansmcp import encode_event
from sansmcp.http2.frames import FrameType

from .client_harness import messages, responses, stream
from .http2_frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    RST_STREAM,
    header_lines,
    part,
)
from .inputs import CORPUS, joined
from .server_harness import LEGACY_MESSAGES, MODERN_MESSAGES, http_corpus, initialize, message, post
from .task_targets import TASK_META

SESSION = (b"mcp-session-id: SESSION", b"mcp-protocol-version: 2025-11-25")
ANSWER = b'{"jsonrpc":"2.0","id":%b,"result":{"action":"accept","content":{}}}'
STREAM = (
    b"\xef\xbb\xbfid: 1\nevent: e\nretry: 10\ndata: a\ndata:  b\n\n:c\n\ndata\n\nid\ndata:\r\n\r\n"
    b"id: a\0b\ndata: \xff\r\revent: x\n\nretry: 1x\ndata"
)
SCHEMA = b'{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"items":[{"enum":[1.0]}]}}}'

SERVERS = (
    b'{"mcpServers":{"a":{"url":"http://h/mcp","headers":{"X-A":"${A:-b}"}}, // c\n'
    b'"b":{"command":"python","args":["-m","x",],"env":{"K":"v"},"disabled":false}}}'
)
RECORDING = (
    b'{"recording":1}\n'
    b'{"t":0,"from":"client","exchange":1,"method":"POST","target":"/","headers":[["A","b"]]}\n'
    b'{"t":0,"from":"client","exchange":1,"body":"{}"}\n'
    b'{"t":1,"from":"server","exchange":1,"status":200,"headers":[["content-type","x"]]}\n'
    b'{"t":1,"from":"server","exchange":1,"body":{"base64":"e30="}}\n'
    b'{"t":2,"from":"server","exchange":1,"end":true}\n'
)


def made() -> Iterator[tuple[str, bytes]]:
    """Targets and inputs."""
    opening = (post(initialize("2025-11-25")), post(LEGACY_MESSAGES[4], *SESSION))
    requests = http_corpus(b"SESSION", b"CURSOR")
    for seed in range(0, len(requests), 5):
        yield "server_http", joined(seed, *opening, *requests[seed : seed + 5])
    yield "server_stdio", joined(0, *LEGACY_MESSAGES)
    yield "server_stdio", joined(1, *MODERN_MESSAGES)
    proper = [b"PROPER"] * 3
    answers = [each.replace(b'"ID"', b"ID") for each in responses("ID")]
    for seed in range(0, len(answers), 8):
        yield "client_http", joined(seed, *proper, *answers[seed : seed + 8])
    endpoint = stream(b"event: endpoint\ndata: /messages?s=1\n\n", encode_event(b"{}"))
    yield "client_http", joined(5, endpoint, *proper)
    for seed in range(3):
        output = [each.replace(b'"ID"', b"ID") for each in messages("ID")]
        yield "client_stdio", joined(seed, *proper, *output[seed::3])
    for seed in range(2):
        yield "cursors", joined(seed, b"STREAM0-0", b"STREAM1-1", b"OTHER0-1", b"STREAM2-2", b"x-1")
    answer_a, answer_b = ANSWER % b"QA", ANSWER % b"QB"
    for seed in range(2):
        yield "parked", joined(seed, answer_a, answer_a, answer_b)
        yield "parked", joined(seed, b"[%b,%b]" % (answer_a, answer_b), message("ping", 2))
    yield "store_files", joined(0, b"\3\0\0\0\0\0\4\1\0\0\0\0\5\3\0\0\0\0")
    yield "store_files", joined(1, b"\0\1\0\0\x40\4abcd\2\0\0\x20\0\0")
    for each in (*LEGACY_MESSAGES[6:], *MODERN_MESSAGES):
        yield "json_documents", joined(0, each)
        yield "messages", joined(0, each)
    yield "lines", joined(0, b"\r\n".join(LEGACY_MESSAGES[:4]) + b"\n\n \n{")
    yield "event_streams", joined(0, STREAM)
    yield "header_values", joined(0, b"text/*;q=0.5, */*\na: b\nx-y:z\nhttp://[::1]:80/a?b=c#d")
    yield "event_ids", joined(0, b"abc_-d-10")
    yield "mirrored_headers", joined(0, b"=?base64?w6k=?=\n" + SCHEMA)
    yield "mirrored_headers", joined(0, b"-1.0\n-1")
    for word in (b"VALID", b"OLD", b"OTHER", b"FOREIGN"):
        yield "signed_states", joined(0, word)
    for each in (*requests[:3], *requests[-6:]):
        yield "heads", joined(0, each)
        yield "http11_parsers", joined(0, each)
    for each in responses(1)[::4]:
        yield "heads", joined(0, each)
        yield "response_bodies", joined(0, each)
    for seed in range(0, len(requests), 8):
        yield "repeated_heads", joined(seed + seed // 8, *requests[seed : seed + 3])
    yield "configuration_files", joined(0, SERVERS)
    yield "configuration_files", joined(1, b'{"servers":{"c":{"type":"sse","url":"https://h/s"}}}')
    yield "recordings", joined(0, RECORDING)
    yield "recordings", joined(0, b'{"recording":1}\n{"t":0,"from":"server","stderr":"x"}')
    yield "patterns", joined(0, b"*read*", b"*_all", b"read_file", b"Read_All", b" x")
    yield "patterns", joined(0, b"a*b*c", b"", b"aXbYc", b"abc")
    yield (
        "tool_names",
        joined(0, b'[{"name":"bar"},{"name":"aZ"},{},7,{"name":"a=?base64?YQ==?="}]'),
    )
    guest: dict[str, Any] = {"taskId": "TASK", "_meta": TASK_META}
    foreign: dict[str, Any] = {"taskId": "FOREIGN", "_meta": TASK_META}
    accepted: dict[str, Any] = {"q": {"action": "accept", "content": {}}}
    listening = {"notifications": {"taskIds": ["TASK", "FOREIGN"]}, "_meta": TASK_META}
    yield (
        "task_requests",
        joined(
            0,
            message("tools/call", 1, name="x", arguments={}, _meta=TASK_META),
            message("tasks/get", 2, **guest),
            message("tasks/get", 3, **foreign),
            message("tasks/update", 4, inputResponses=accepted, **foreign),
            message("subscriptions/listen", 5, **listening),
            message("tasks/cancel", 6, **foreign),
            message("tasks/cancel", 7, **guest),
        ),
    )
    yield "page_cursors", joined(2, b"null", b'"CURSOR"', b'"YWZ0ZXIgOA=="', b"7", b'"YWZ0ZXI="')
    pages = [
        b'{"tools":[{"name":"%b"},{}],"nextCursor":"%b"}' % (name, name) for name in (b"a", b"b")
    ]
    yield "page_cursors", joined(3, *pages, b'{"tools":[]}')


SETTINGS, PING, WINDOW_UPDATE, PRIORITY = FrameType.SETTINGS, 0x6, 0x8, 0x2
REQUEST = {
    ":method": "POST",
    ":scheme": "http",
    ":authority": "localhost",
    ":path": "/mcp",
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
}
MODERN_REQUEST = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "x"}


def _http2() -> Iterator[tuple[str, bytes]]:
    """Targets and inputs that are frames."""

    def request(stream: int, body: bytes, **more: str) -> tuple[bytes, bytes]:
        lines = header_lines({**REQUEST, **more})
        head = part(FrameType.HEADERS, lines, flags=END_HEADERS, stream=stream)
        return head, part(FrameType.DATA, body, flags=END_STREAM, stream=stream)

    hello = part(SETTINGS, b"\0\2\0\0\0\0\0\4\0\1\0\0")
    tool, listen = MODERN_MESSAGES[1], MODERN_MESSAGES[3]
    first = request(1, tool, **MODERN_REQUEST)
    second = request(3, listen, **{**MODERN_REQUEST, "mcp-method": "subscriptions/listen"})
    cancel = part(RST_STREAM, b"\0\0\0\x08", stream=3)
    window = part(WINDOW_UPDATE, b"\0\0\4\0")
    ping = part(PING, b"12345678")
    goaway = part(FrameType.GOAWAY, b"\0\0\0\0\0\0\0\0")
    yield "server_http2", joined(1, hello, *first, *second, ping, window, cancel, goaway)
    yield "server_http2", joined(2, hello, *request(3, initialize("2025-11-25")), *first, cancel)
    narrow = part(SETTINGS, b"\0\4\0\0\0\1")
    wide = part(WINDOW_UPDATE, b"\0\0\4\0", stream=1)
    yield "server_http2", joined(3, narrow, *first, wide, window, part(SETTINGS, flags=ACK))
    calls = [each for n in (1, 3, 5, 7, 9, 11) for each in request(n, tool, **MODERN_REQUEST)]
    resets = [cancel[:2] + bytes((n,)) + cancel[3:] for n in (1, 3, 5, 7, 9, 11)]
    for seed in (1, 2, 3):
        yield "server_http2", joined(seed, hello, *calls, *resets)
    empty = part(FrameType.DATA, stream=1)
    endless = part(FrameType.CONTINUATION, b"x" * 99, stream=1)
    for number, each in enumerate((ping, cancel, hello, first[0], empty, endless)):
        yield "server_http2", joined(17 + number, hello, *first, *[b"MANY" + each] * 5)
    yield "server_http2", joined(0, b"RAW" + message("ping", 1) + b"\n", hello)
    continued = part(FrameType.CONTINUATION, b"x: y\r\n", flags=END_HEADERS, stream=1)
    trailers = part(FrameType.HEADERS, b"a: b\r\n", flags=END_HEADERS | END_STREAM, stream=1)
    yield "server_http2", joined(9, hello, b"\1\0\1" + first[0][3:], continued, first[1], trailers)

    status = part(FrameType.HEADERS, b":status: 200\r\n", flags=END_HEADERS, stream=255)
    stream = header_lines({":status": "200", "content-type": "text/event-stream"})
    events = part(FrameType.HEADERS, stream, flags=END_HEADERS, stream=255)
    for seed, answers in enumerate((messages("ID")[::2], messages("ID")[1::2])):
        sent: list[bytes] = []
        for each in answers:
            data = encode_event(each.replace(b'"ID"', b"ID"))
            sent += [events, part(FrameType.DATA, data, stream=255)]
            sent += [part(FrameType.DATA, flags=END_STREAM, stream=255)]
        yield "client_http2", joined(seed, b"PROPER", b"PROPER", *sent)
    ends = (part(RST_STREAM, code, stream=255) for code in (b"\0\0\0\7", b"\0\0\0\x08"))
    yield "client_http2", joined(2, hello, *[b"PROPER"] * 3, status, *ends, b"PROPER", goaway)
    yield "client_http2", joined(3, hello, b"PROPER", narrow, b"PROPER", wide, window, ping, events)
    push = part(FrameType.PUSH_PROMISE, b"\0\0\0\2" + b"x", flags=END_HEADERS, stream=1)
    yield "client_http2", joined(4, hello, b"PROPER", part(PRIORITY, b"\0\0\0\0\1"), push)
    for number, each in enumerate((ping, cancel, status, window)):
        yield "client_http2", joined(5 + number, b"PROPER", *[b"MANY" + each] * 5)
    yield "client_http2", joined(0, b"PROPER", b"RAWHello world, this is text\n", b"PROPER")
    yield "client_http2", joined(1, b"RAW" + message("ping", 1) + b"\n", b"PROPER")


def _merged() -> Iterator[tuple[str, bytes]]:
    pages = (b'{"tools":[{"name":"a"},{}],"nextCursor":"a"}', b'{"tools":[{"name":"xa"}]}')
    two = b'{"tools":[{"name":"b","inputSchema":{}},{"name":"c"}],"nextCursor":"2"}'
    yield "merged_lists", joined(4, *pages, two, b'"1"', b'"x"', b"7")
    yield "merged_lists", joined(2, pages[0], two, b'{"tools":[]}', b'"99999999999"', b"null")


def main() -> None:
    """Write the inputs."""
    for number, (target, data) in enumerate((*made(), *_http2(), *_merged())):
        folder = CORPUS / target
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"made-{number:02}").write_bytes(data)


if __name__ == "__main__":
    main()
