"""Compare the messages of a recording with those of today, and translate what differs by nature.

Ids, states and event ids are chosen anew in each conversation. :class:`Translation` learns them
from pairs of messages that correspond, so that a recorded message can be sent again.
"""

from __future__ import annotations

import json
import secrets
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, TypeAlias

import attrs

import sansmcp
from sansmcp.codecs.json import as_object, is_array
from sansmcp.reclaim import ANY_PLACE, CANCEL, EXTENSION
from sansmcp_local import load_json

Message: TypeAlias = Mapping[str, Any]

Compared: TypeAlias = tuple[str, list[Message], list[Message], list[str]]
"""What was compared, the recorded messages, those of today, and other differences."""

_CHOSEN_ANEW = ("requestState", "taskId")
"""Members of results that a server chooses anew each time, and that a client sends back."""

LONGEST = 1 << 26
"""Bytes of an event stream."""
_DEEPEST, _MOST_VALUES = 200, 1_000_000
"""Levels and values of a message. What has more is compared as if it were no message."""
MOST_MESSAGES = 100_000
"""Messages, or events, of a response or of a server process."""
_MOST_LINES = 200
"""Differences that are shown of a response."""
_LONGEST_NAME = 100
"""Characters of a member's name in the place of a difference."""


@attrs.define
class Translation:
    """What stands today for a word of the recording."""

    ids: dict[str, Any] = attrs.field(factory=dict[str, Any])
    """Ids of requests, by the JSON text of the recorded ones."""
    texts: dict[str, str] = attrs.field(factory=dict[str, str])
    """States, event ids and targets."""
    makes_keys: bool = False
    """True on HTTP+SSE, where the response to a call with a key is that to its POST: each recorded
    call with a key is sent with a new one. Else it is sent without, so that its end is its
    connection's.
    """

    def learn(self, recorded: Message, now: Message) -> None:
        """Learn from two messages that correspond."""
        if "method" in recorded and "id" in recorded:
            self.ids[json.dumps(recorded["id"])] = now.get("id")
            token, token_now = progress_token(recorded), progress_token(now)
            if token is not None:
                self.ids[f"token {json.dumps(token)}"] = token_now
        old, new = as_object(recorded.get("result")), as_object(now.get("result"))
        for name in _CHOSEN_ANEW:
            pair = ((old or {}).get(name), (new or {}).get(name))
            if isinstance(pair[0], str) and isinstance(pair[1], str):
                self.texts[pair[0]] = pair[1]

    def applied(self, message: Message) -> dict[str, Any]:
        """Return a recorded message as it must be today."""
        key = f"{ANY_PLACE}.{secrets.token_hex(16)}" if self.makes_keys else None
        translated: dict[str, Any] = _with_key(message, key)
        if "id" in translated and "method" not in translated:
            translated["id"] = self.ids.get(json.dumps(message["id"]), message["id"])
        params = as_object(translated.get("params"))
        if params is not None:
            translated["params"] = {
                name: self.texts.get(value, value)
                if name in _CHOSEN_ANEW and isinstance(value, str)
                else value
                for name, value in params.items()
            }
            if "progressToken" in params:
                token = f"token {json.dumps(params['progressToken'])}"
                translated["params"]["progressToken"] = self.ids.get(token, params["progressToken"])
        return translated


def _with_key(message: Message, key: str | None) -> dict[str, Any]:
    """Return a message; if it has the key of a call (docs/reclaim.md), with this one or none."""
    params = as_object(message.get("params")) or {}
    meta = as_object(params.get("_meta")) or {}
    if EXTENSION not in meta:
        return dict(message)
    changed = {name: value for name, value in meta.items() if name != EXTENSION}
    if key is not None:
        changed[EXTENSION] = key
    return {**message, "params": {**params, "_meta": changed}}


def needs_key(message: Message) -> bool:
    """Return True if a message names an earlier call by its key, which no recording has."""
    return message.get("method") in (EXTENSION, CANCEL)


def progress_token(message: Message) -> Any:
    """Return the token that a request chose for its progress; None if it chose none."""
    params = as_object(message.get("params")) or {}
    return (as_object(params.get("_meta")) or {}).get("progressToken")


@attrs.define(eq=False)
class BodyReader:
    """Reads the messages of a body as it comes: JSON, or an event stream.

    What is no message is left out. The work grows with the bytes, however they are cut.
    """

    is_stream: bool
    messages: list[Message] = attrs.field(factory=list[Message], init=False)
    events: list[sansmcp.SseEvent] = attrs.field(factory=list["sansmcp.SseEvent"], init=False)
    """Of an event stream."""
    _decoder: sansmcp.SseDecoder = attrs.field(init=False)
    _body: bytearray = attrs.field(factory=bytearray, init=False)
    _tried: int = attrs.field(default=0, init=False)
    """The bytes of a body of JSON at the last attempt to parse it."""

    @classmethod
    def of(cls, content_type: str) -> BodyReader:
        """Return a reader for a body of this media type."""
        return cls("event-stream" in content_type)

    def __attrs_post_init__(self) -> None:
        self._decoder = sansmcp.SseDecoder(LONGEST)

    def receive(self, data: bytes) -> None:
        """Receive a piece of the body.

        Raises:
            OSError: it has too many messages, or an event is too long.
        """
        if not self.is_stream:
            self._body += data
            if len(self._body) >= 2 * self._tried:
                self.end()
            return
        try:
            new = list(self._decoder.feed(data))
        except sansmcp.RemoteProtocolError as error:
            raise OSError(str(error)) from error
        self.events += new
        self.messages += [each for event in new for each in parse_messages(event.data or "")]
        if max(len(self.events), len(self.messages)) > MOST_MESSAGES:
            raise OSError(f"the response has more than {MOST_MESSAGES} messages")

    def end(self) -> None:
        """Parse a body of JSON as far as it has come."""
        if not self.is_stream:
            self._tried = len(self._body)
            self.messages = parse_messages(bytes(self._body))


def read_body(body: bytes, content_type: str) -> BodyReader:
    """Return a reader that has read a body; one that it refuses has no further messages."""
    reader = BodyReader.of(content_type)
    with suppress(OSError):
        reader.receive(body)
    reader.end()
    return reader


def parse_messages(text: str | bytes) -> list[Message]:
    """Return the message, or the messages of a batch; none if the text has none."""
    try:
        document = load_json(text, max_depth=_DEEPEST, max_values=_MOST_VALUES) if text else None
    except ValueError:
        return []
    batch = document if is_array(document) else [document]
    return [message for message in map(as_object, batch) if message is not None]


def pairs(
    recorded: Sequence[Message], now: Sequence[Message]
) -> Iterator[tuple[Message | None, Message | None]]:
    """Iterate over the messages that correspond: responses by their ids, others by their order.

    A message without a counterpart comes with None.
    """
    left: dict[object, deque[Message]] = {}
    for new in now:
        left.setdefault(_key(new), deque()).append(new)
    for old in recorded:
        same = left.get(_key(old))
        yield old, same.popleft() if same else None
    for same in left.values():
        yield from ((None, new) for new in same)


def _key(message: Message) -> str:
    name = "method" if "method" in message else "id"
    return f"{name} {json.dumps(message.get(name))}"


def differences(
    old: Any, new: Any, ignored: Sequence[str], path: str = ""
) -> Iterator[tuple[str, str]]:
    """Iterate over the places where two JSON values differ, and what is there.

    ``ignored``: names of members that may differ.
    """
    one, other = as_object(old), as_object(new)
    if one is not None and other is not None:
        for name in dict.fromkeys([*one, *other]):
            if name in ignored:
                continue
            place = f"{path}.{name[:_LONGEST_NAME]}" if path else name[:_LONGEST_NAME]
            if name not in other:
                yield place, "is missing"
            elif name not in one:
                yield place, f"is new: {_short(other[name])}"
            elif name != EXTENSION:  # its declaration names the process
                yield from differences(one[name], other[name], ignored, place)
    elif is_array(old) and is_array(new) and len(old) == len(new):
        for number, pair in enumerate(zip(old, new, strict=True)):
            yield from differences(*pair, ignored, f"{path}[{number}]")
    elif old != new or isinstance(old, bool) != isinstance(new, bool):
        yield path, f"is {_short(new)}, was {_short(old)}"


def difference_lines(
    recorded: Sequence[Message], now: Sequence[Message], ignored: Sequence[str]
) -> list[str]:
    """Return a line for each difference between two lists of messages, as far as they are few."""
    lines = list(islice(_difference_lines(recorded, now, ignored), _MOST_LINES + 1))
    return [*lines[:_MOST_LINES], "and more"] if len(lines) > _MOST_LINES else lines


def _difference_lines(
    recorded: Sequence[Message], now: Sequence[Message], ignored: Sequence[str]
) -> Iterator[str]:
    for old, new in pairs(recorded, now):
        if new is None:
            yield f"missing: {_short(old)}"
        elif old is None:
            yield f"not in the recording: {_short(new)}"
        else:
            # The id of a server request is chosen anew; those of responses correspond already.
            one, other = ({**message, "id": None} for message in (old, new))
            for place, text in differences(one, other, (*ignored, *_CHOSEN_ANEW)):
                yield f"{place} {text}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else f"{text[:100]}..."
