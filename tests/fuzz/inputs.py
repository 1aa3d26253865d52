"""What the bytes of an input mean: a seed, and parts.

The first two bytes seed all choices that are not data: settings, what handlers do, where the input
is cut. The rest is one document, or several, with a line of their own between them. Words in
capitals stand for what only a peer can know while the input is fed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import attrs

from .mutations import Mutator, with_length

CORPUS = Path(__file__).with_name("corpus")
"""Initial inputs, and inputs that once failed, in a folder for each target."""

MARK = b"\n----\n"
"""Separates the parts of an input."""

_MOST_PARTS = 24


def seeded(data: bytes) -> tuple[int, bytes]:
    """Return the seed of an input, and the rest of it."""
    return int.from_bytes(data[:2], "big"), data[2:]


def in_parts(data: bytes) -> tuple[int, list[bytes]]:
    """Return the seed of an input, and its first 24 parts."""
    seed, rest = seeded(data)
    return seed, rest.split(MARK)[:_MOST_PARTS]


def joined(seed: int, *parts: bytes) -> bytes:
    """Return an input of a seed and parts."""
    return seed.to_bytes(2, "big") + MARK.join(parts)


def mutated(data: bytes, random: Mutator, others: Sequence[bytes]) -> bytes:
    """Return an input with another seed, a mutated part, or other parts."""
    seed, parts = in_parts(data)
    place = random.randrange(len(parts))
    _, foreign = in_parts(random.choice(others))
    match random.randrange(12):
        case 0 | 1:
            seed = random.randrange(1 << 16)
        case 2:
            parts.insert(place, random.choice(foreign))
        case 3:
            parts.insert(place, parts[place])
        case 4:
            del parts[place]
        case _:
            parts[place] = random.mutated(parts[place], foreign)
    return joined(seed, *parts)


RECORDED = {
    b"SESSION": re.compile(rb"mcp-session-id: ([!-~]+)"),
    b"CURSOR": re.compile(rb"\nid: ([!-~]+)"),
    b"STATE": re.compile(rb'"requestState":"([^"]*)"'),
    b"QUESTION": re.compile(rb'"id":"([^"]+)","method"'),
    b"LOCATION": re.compile(rb"session_id=([!-~]+)"),
}


@attrs.define
class RecordedValues:
    """The latest values from a server that its clients have to repeat."""

    words: dict[bytes, bytes] = attrs.field(factory=dict[bytes, bytes])

    def record(self, output: bytes) -> None:
        """Record the last of each value in bytes that the server sent."""
        for word, pattern in RECORDED.items():
            if found := pattern.findall(output):
                self.words[word] = found[-1]

    def filled(self, part: bytes) -> bytes:
        """Return a part with the placeholders replaced by the recorded values."""
        for word, value in self.words.items():
            if word in part:
                part = with_length(part.replace(word, value))
        return part


def corpus_of(target: str) -> Sequence[bytes]:
    """Return the inputs of the repository for a target."""
    return [path.read_bytes() for path in sorted((CORPUS / target).iterdir())]
