"""Read ``WWW-Authenticate``: the challenges with which a server refuses a request.

Several header lines are one list, and one line may hold several challenges. Servers quote values or
do not, and put commas, equals signs and spaces into quotes. Whatever does not fit the grammar is
skipped up to the next comma: a 401 starts the flow also without a challenge.

Source: RFC 9110, 11.6.1; RFC 6750, 3; RFC 9728, 5.1; RFC 9449, 7.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

import attrs

from ..scopes import parse_scope

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_SEPARATOR = re.compile(r"[ \t,]*")
_PARAMETER = re.compile(rf'({_TOKEN})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))', re.DOTALL)
_SCHEME = re.compile(rf"({_TOKEN})(?=[ \t,]|$)[ \t]*")
_TOKEN68 = re.compile(r"[A-Za-z0-9._~+/-]+=*[ \t]*(?=,|$)")
_MALFORMED = re.compile(r"[^,]*")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_OURS = ("bearer", "dpop")


@attrs.frozen
class Challenge:
    """One challenge. ``scheme`` and the names of ``parameters`` are in lower case."""

    scheme: str
    parameters: Mapping[str, str] = MappingProxyType({})
    """Of a name that is repeated, the first value."""

    @property
    def error(self) -> str:
        """The error code, such as ``insufficient_scope``; empty if there is none."""
        return self.parameters.get("error", "")

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes that the request needs; empty if none, or malformed ones, are named."""
        return parse_scope(self.parameters.get("scope"))

    @property
    def resource_metadata(self) -> str | None:
        """The URL of the protected resource metadata; None if there is none."""
        return self.parameters.get("resource_metadata") or None


def parse_challenges(values: Iterable[bytes]) -> tuple[Challenge, ...]:
    """Return all challenges in the values of ``WWW-Authenticate``, in their order."""
    found: list[Challenge] = []
    for scheme, parameters in _scan(b", ".join(values).decode("latin-1")):
        found.append(Challenge(scheme.lower(), MappingProxyType(parameters)))
    return tuple(found)


def find_challenge(values: Iterable[bytes]) -> Challenge | None:
    """Return the first challenge for Bearer or DPoP; None if there is none."""
    ours = (each for each in parse_challenges(values) if each.scheme in _OURS)
    return next(ours, None)


def _scan(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    place, scheme, parameters = 0, "", dict[str, str]()
    while (place := _end_of(_SEPARATOR, text, place)) < len(text):
        if (parameter := _PARAMETER.match(text, place)) is not None:
            name, quoted, plain = parameter.groups()
            value = plain if quoted is None else _ESCAPE.sub(r"\1", quoted)
            parameters.setdefault(name.lower(), value)
            place = parameter.end()
        elif (named := _SCHEME.match(text, place)) is not None:
            if scheme:
                yield scheme, parameters
            scheme, parameters = named[1], {}
            place = _end_of(_TOKEN68, text, named.end())
        else:
            # The rest of a value whose quotes are not closed may look like parameters.
            if '"' in text[place : (place := _end_of(_MALFORMED, text, place))]:
                break
    if scheme:
        yield scheme, parameters


def _end_of(pattern: re.Pattern[str], text: str, place: int) -> int:
    found = pattern.match(text, place)
    return place if found is None else found.end()
