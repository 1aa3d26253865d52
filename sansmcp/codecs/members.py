"""The members of a JSON-RPC message, read by ``msgspec``: the fast path of :mod:`.envelope`."""

from __future__ import annotations

from typing import Literal, cast

import msgspec

from ..messages import RequestId


class Members(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A message; what is absent, or null, is falsy."""

    jsonrpc: Literal["2.0"]
    id: RequestId | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw()
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


_DECODER = msgspec.json.Decoder(Members)
_ENCODER = msgspec.json.Encoder()


def read(data: bytes) -> Members | None:
    """The members of a message as nearly all peers write it; None if it may be anything else.

    Of equal names msgspec keeps the last. But then what it has kept is shorter when it is written
    again, and so it is where there were escapes, or spaces; those after each colon and comma, which
    Python writes, are written again, too. It does not look at the UTF-8 inside.
    """
    try:
        members = _DECODER.decode(data)
        again = _ENCODER.encode(members)
        is_whole = len(again) == len(data) or msgspec.json.format(again, indent=0) == data
        if not is_whole or isinstance(cast(object, data), str):  # msgspec takes text, too
            return None
        if not data.isascii():
            data.decode()
    except (ValueError, RecursionError, TypeError, AttributeError):
        return None
    return members
