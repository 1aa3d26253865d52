"""What is really sent: documents as tools return them, and recordings of official servers.

The documents are generated, the same ones each time. ``recordings`` has event streams as they came
from the official servers (see ``record.py``). Streams are cut as networks cut them: :data:`CUTS`.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from sansmcp import encode_event

RECORDINGS = Path(__file__).parent / "recordings"
MANY = 300
"""Small messages of a stream; of others it has as many as have about a megabyte together."""


# Documents


def encode(**members: Any) -> bytes:
    """A message as most servers write it."""
    members = {"jsonrpc": "2.0", **members}
    return json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode()


def result(*texts: str, **members: Any) -> bytes:
    """The result of a tool, with some texts."""
    content = [{"type": "text", "text": text} for text in texts]
    return encode(id=7, result={"content": content, **members, "isError": False})


def progress(number: int) -> bytes:
    """A notification of 140 bytes, the most frequent message of all."""
    params = {
        "progressToken": 7,
        "progress": number,
        "total": 1000,
        "message": f"Reading file {number} of 1000",
    }
    return encode(method="notifications/progress", params=params)


def rows(count: int) -> list[dict[str, Any]]:
    """Rows of a database, with floats and nulls."""
    return [
        {
            "id": 1000 + number,
            "name": f"Customer {number}",
            "city": None if number % 3 else ("Zürich", "Łódź", "Oslo")[number % 9 // 3],
            "balance": number * 1.37 - 50.5,
            "rate": 1 / (number + 3),
            "active": number % 4 != 0,
            "closed_at": None,
            "tags": ["a", "b"] if number % 5 else [],
        }
        for number in range(count)
    ]


def table(count: int) -> bytes:
    """A table as a structured result, and once more as text, as the specification advises."""
    found = {"rows": rows(count), "next": None}
    return result(json.dumps(found, ensure_ascii=False), structuredContent=found)


def page(count: int) -> bytes:
    """A page of an API, which is structured only."""
    return result(structuredContent={"items": rows(count), "cursor": None, "total": 1e6})


def code(lines: int) -> str:
    """A file: line breaks, quotes, some letters beyond ASCII."""
    found = (
        "def café(x: int) -> str:\n",
        '    """Return "x" as text."""\n',
        "    if x < 0:\n",
        '\t\treturn "\\t" + naïve(x)\n',
        "    return str(x)  # see https://example.com/a?b=c&d=e\n",
    )
    return "".join(found[number % len(found)] for number in range(lines))


def search(count: int) -> bytes:
    """Results of a search: many short texts."""
    return result(
        *(
            f"{number}. How to reset a password\nhttps://docs.example.com/help/{number}?ref=search\n"
            f'… click "Forgot password": the link is valid for {number} hours …'
            for number in range(count)
        )
    )


def image(size: int) -> bytes:
    """An image in base64."""
    noise = b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(size // 43))
    content = {"type": "image", "data": base64.b64encode(noise).decode(), "mimeType": "image/png"}
    return encode(id=7, result={"content": [content]})


CHINESE = "模型上下文协议让应用程序为大型语言模型提供上下文。\n今天天气很好 ☀️ 我们去公园吧 🎉。"


def chinese(count: int) -> bytes:
    """Letters of three and four bytes."""
    return result(*[CHINESE * 5] * count)


def escaped(count: int) -> bytes:
    """The same as ``json.dumps`` writes it unless told otherwise: blanks, and escapes of ASCII."""
    return json.dumps(json.loads(chinese(count))).encode()


def pretty(count: int) -> bytes:
    """Rows with line breaks and indentation, each line of which is one of an event, too."""
    return json.dumps(json.loads(page(count)), indent=2, ensure_ascii=False).encode()


Documents: TypeAlias = Callable[[], list[bytes]]


def several(document: bytes) -> list[bytes]:
    """As many of it as have a megabyte, and 50 at most."""
    return [document] * max(1, min(50, 1_000_000 // len(document)))


KINDS: Mapping[str, Documents] = {
    "small, 140 B": lambda: [progress(number) for number in range(1, MANY + 1)],
    "table, 11 KB": lambda: several(table(34)),
    "file, 11 KB": lambda: several(result(code(320))),
    "search, 4 KB": lambda: several(search(24)),
    "page, 30 KB": lambda: several(page(205)),
    "image, 40 KB": lambda: several(image(40_000)),
    "Chinese, 6 KB": lambda: several(chinese(9)),
    "escaped, 12 KB": lambda: several(escaped(9)),
    "pretty, 11 KB": lambda: several(pretty(38)),
    "table, 2.8 MB": lambda: several(table(8400)),
}
"""Messages, by kind; the size is that of one."""


# Event streams


@attrs.frozen
class Stream:
    """An event stream and the messages in it."""

    blocks: tuple[bytes, ...]
    messages: tuple[bytes, ...]

    def cut(self, size: int | None) -> list[bytes]:
        """The stream in chunks of so many bytes, or one for each block."""
        if size is None:
            return list(self.blocks)
        body = b"".join(self.blocks)
        return [body[start : start + size] for start in range(0, len(body), size)]


CUTS: Mapping[str, int | None] = {
    "one event": None,
    "1460 B": 1460,
    "4 KiB": 4096,
    "16 KiB": 16384,
    "64 KiB": 65536,
}
"""How streams come: as they were written, in segments of TCP, by a proxy, in records of TLS, and as
much as is there after a while."""

ENDINGS: Mapping[str, bytes] = {"LF": b"\n", "CRLF": b"\r\n"}


def written(messages: list[bytes], ending: bytes) -> Stream:
    """A stream as a server with resumption writes it: a priming event, ids, keep-alives."""
    blocks = [encode_event(b"", id="aGVsbG8td29ybGQtMTIz-0")]
    for number, message in enumerate(messages, 1):
        id = f"aGVsbG8td29ybGQtMTIz-{number}"
        blocks.append(encode_event(message, event="message", id=id))
        if number % 50 == 0:
            blocks.append(b":\n\n")
    return Stream(tuple(block.replace(b"\n", ending) for block in blocks), tuple(messages))


_BLOCK = re.compile(rb"(?:[^\r\n]+\r?\n)*\r?\n")
_DATA = re.compile(rb"^data: ?([^\r\n]+)", re.MULTILINE)


def recorded(body: bytes) -> Stream:
    """A recording, each event of which has its message in one line; several times in a row.

    The event that names the endpoint of a stream of 2024-11-05 is left out: it has no message.
    """
    body *= max(1, 200_000 // len(body))
    blocks = [block for block in _BLOCK.findall(body) if b"event: endpoint" not in block]
    messages = [found[0] for block in blocks if (found := _DATA.findall(block))]
    return Stream(tuple(blocks), tuple(messages))


@functools.cache
def streams() -> dict[str, Stream]:
    """All streams, by what is in them and the line ending."""
    found: dict[str, Stream] = {}
    for kind, documents in KINDS.items():
        for name, ending in ENDINGS.items():
            found[f"{kind}, {name}"] = written(documents(), ending)
    for path in sorted(RECORDINGS.glob("*.txt")):
        found[path.stem] = recorded(path.read_bytes())
    return found
