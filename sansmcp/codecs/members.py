"""Read the members of a JSON-RPC message with ``msgspec``: the fast path of :mod:`.envelope`."""

from __future__ import annotations

from typing import Literal, cast

import msgspec

from ..messages import RequestId


class Members(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The members of a message; a member that is absent or null is falsy."""

    jsonrpc: Literal["2.0"]
    id: RequestId | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw()
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


_DECODER = msgspec.json.Decoder(Members)
_ENCODER = msgspec.json.Encoder()


def read(data: bytes) -> Members | None:
    """Return the members of a message in the form that nearly all peers send; None for any other.

    If a name occurs twice, msgspec keeps the last member and reports nothing. But then the members
    are shorter when they are encoded again, as they are if there were escapes or spaces. Spaces
    after each colon and comma, which Python's ``json`` writes, are tried as well. msgspec does not
    check the UTF-8 of the payloads, so that is done here.
    """
    try:
        members = _DECODER.decode(data)
        again = _ENCODER.encode(members)
        is_whole = len(again) == len(data) or msgspec.json.format(again, indent=0) == data
        if not is_whole or isinstance(cast(object, data), str):  # msgspec also accepts str
            return None
        if not data.isascii():
            data.decode()
    except (ValueError, RecursionError, TypeError, AttributeError):
        return None
    return members
