"""The words of the extension ``sansmcp/reclaim``, which client and server share.

A client gives each ``tools/call`` a key. If its connection is cut, the call runs on at the server,
and the client asks for the rest with the request ``sansmcp/reclaim``, which names the key and runs
nothing. docs/reclaim.md describes the wire.

A key in ``_meta`` is ``INSTANCE.COUNT.SECRET``, and after it the secrets of calls whose responses
have arrived, each after a comma. ``INSTANCE.COUNT`` is the *place* that the server has named last:
its process, and the number of keys that this had noted. Both are empty for any process. A copy of a
call that arrives after its key was forgotten names a place that is older than the forgotten key, so
it is refused instead of being run again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

EXTENSION = "sansmcp/reclaim"
"""The name of the extension, of the request, and of the member of ``_meta`` with the key."""

CANCEL = "sansmcp/cancel"
"""The notification that cancels the call whose key it has."""

RECEIVED = "received"
"""The parameter of the request: the number of messages of the call that have arrived."""

PLACE = "place"
"""The member of the server's declaration, and of the data of refusals, with its present place."""

NEVER_ARRIVED = "neverArrived"
"""The member of the data of a refusal: true if no call with the key has arrived."""

WAIT = "timeoutSeconds"
"""The member of the server's declaration: how long a call runs without a connection."""

OTHER_PLACE = "other_place"
"""The reason of the refusal of a call that is for another process, or names an old place."""

UNKNOWN_KEY = "unknown_key"
"""The reason of the refusal of a request for a key that the server does not know."""

ANY_PLACE = "."
"""The place of calls that any process may run."""

MAX_CONFIRMED = 32
"""Secrets of calls whose responses have arrived that one key names."""

_SECRET = "[A-Za-z0-9_-]{16,64}"
KEY = re.compile(
    rf"([A-Za-z0-9_-]{{0,128}})\.([0-9]{{0,15}})\.({_SECRET})((?:,{_SECRET}){{0,{MAX_CONFIRMED}}})",
    re.ASCII,
)
"""Its groups are the instance, the count, the secret, and the confirmed secrets with commas."""

_PLACE = re.compile(r"[A-Za-z0-9_-]{1,128}\.[0-9]{1,15}", re.ASCII)
_ESCAPED = re.compile(r"\\(?:u00(2[Ff]|[67][0-9A-Fa-f])|(/)|\\)")
"""Characters of the member's name as JSON may have them, and backslashes, which are kept."""
_SHOWN = re.compile(rf'("{EXTENSION}"\s*:\s*")(?:[^"\\]|\\.?)*', re.DOTALL)


def hide_key(text: str) -> str:
    """Return the JSON of messages with "..." for each key, for traces and recordings.

    ``text``: the messages from the beginning. The rest may be missing.
    """
    plain = _ESCAPED.sub(_unescaped, text) if "\\" in text else text
    return _SHOWN.sub(r"\1...", plain) if EXTENSION in plain else text


def _unescaped(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else found[2] or found[0]


def place_in(members: Mapping[str, Any]) -> str | None:
    """Return the place in a declaration, or in the data of a refusal; None if there is none."""
    place = members.get(PLACE)
    return place if isinstance(place, str) and _PLACE.fullmatch(place) else None
