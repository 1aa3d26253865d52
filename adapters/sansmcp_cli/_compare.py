"""Compare the messages of a recording with those of today, and translate what differs by nature.

Ids, states and event ids are chosen anew in each conversation. :class:`Translation` learns them
from pairs of messages that correspond, so that a recorded message can be sent again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

import sansmcp
from sansmcp.codecs.json import as_object, is_array
from sansmcp.reclaim import CANCEL, EXTENSION
from sansmcp_local import load_json

Message: TypeAlias = Mapping[str, Any]

Compared: TypeAlias = tuple[str, list[Message], list[Message], list[str]]
"""What was compared, the recorded messages, those of today, and other differences."""

_CHOSEN_ANEW = ("requestState", "taskId")
"""Members of results that a server chooses anew each time, and that a client sends back."""

LONGEST = 1 << 26
"""Bytes of an event stream."""
_DEEPEST = 200
"""Levels of a message. What is nested more deeply is compared as if it were no message."""


@attrs.define
class Translation:
    """What stands today for a word of the recording."""

    ids: dict[str, Any] = attrs.field(factory=dict[str, Any])
    """Ids of requests, by the JSON text of the recorded ones."""
    texts: dict[str, str] = attrs.field(factory=dict[str, str])
    """States, event ids and targets."""

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
        """Return a recorded message as it must be today, which is without a key of a call."""
        translated: dict[str, Any] = without_key(message)
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


def without_key(message: Message) -> dict[str, Any]:
    """Return a message without the key of a call (docs/reclaim.md)."""
    params = as_object(message.get("params")) or {}
    meta = as_object(params.get("_meta")) or {}
    if EXTENSION not in meta:
        return dict(message)
    rest = {name: value for name, value in meta.items() if name != EXTENSION}
    return {**message, "params": {**params, "_meta": rest}}


def needs_key(message: Message) -> bool:
    """Return True if a message says nothing without a key, which no recording has."""
    return message.get("method") in (EXTENSION, CANCEL)


def progress_token(message: Message) -> Any:
    """Return the token that a request chose for its progress; None if it chose none."""
    params = as_object(message.get("params")) or {}
    return (as_object(params.get("_meta")) or {}).get("progressToken")


def messages_in(body: bytes, content_type: str) -> list[Message]:
    """Return the messages of a body: JSON, or an event stream. What is no message is left out."""
    if "event-stream" in content_type:
        return [each for event in events_in(body) for each in parse_messages(event.data or "")]
    return parse_messages(body)


def events_in(body: bytes) -> list[sansmcp.SseEvent]:
    """Return the events of a stream."""
    decoder = sansmcp.SseDecoder(LONGEST)
    try:
        return list(decoder.feed(body))
    except sansmcp.RemoteProtocolError:
        return []


def parse_messages(text: str | bytes) -> list[Message]:
    """Return the message, or the messages of a batch; none if the text has none."""
    try:
        document = load_json(text) if text else None
    except ValueError:
        return []
    if not _is_shallow(document):
        return []
    batch = document if is_array(document) else [document]
    return [message for message in map(as_object, batch) if message is not None]


def _is_shallow(document: Any) -> bool:
    level: list[Any] = [document]
    for _ in range(_DEEPEST):
        deeper: list[Any] = []
        for value in level:
            members = as_object(value)
            if members is not None:
                deeper += members.values()
            elif is_array(value):
                deeper += value
        if not deeper:
            return True
        level = deeper
    return False


def pairs(
    recorded: Sequence[Message], now: Sequence[Message]
) -> Iterator[tuple[Message | None, Message | None]]:
    """Iterate over the messages that correspond: responses by their ids, others by their order.

    A message without a counterpart comes with None.
    """
    left = list(now)
    for old in recorded:
        found = next((new for new in left if _key(new) == _key(old)), None)
        if found is not None:
            left.remove(found)
        yield old, found
    for new in left:
        yield None, new


def _key(message: Message) -> tuple[object, object]:
    if "method" in message:
        return ("method", message["method"])
    return ("id", json.dumps(message.get("id")))


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
            place = f"{path}.{name}" if path else name
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
    """Return a line for each difference between two lists of messages."""
    lines: list[str] = []
    for old, new in pairs(recorded, now):
        if new is None:
            lines.append(f"missing: {_short(old)}")
        elif old is None:
            lines.append(f"not in the recording: {_short(new)}")
        else:
            # The id of a server request is chosen anew; those of responses correspond already.
            one, other = ({**message, "id": None} for message in (old, new))
            found = differences(one, other, (*ignored, *_CHOSEN_ANEW))
            lines += [f"{place} {text}" for place, text in found]
    return lines


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else f"{text[:100]}..."
