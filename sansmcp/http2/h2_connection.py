"""The settings with which ``h2`` is used, and the GOAWAY frames that it does not handle well.

For ``h2`` a connection is closed once GOAWAY was sent or received, and nothing more can be sent,
although the streams that are open may be completed. So GOAWAY is written and read here.

Source: RFC 9113 sections 6.5.2, 6.8 and 7.
"""

from __future__ import annotations

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.settings import SettingCodes, Settings

from ..limits import Limits
from .frames import PREFACE, FrameType

MAX_STREAMS = 1280
"""Streams that a client may have open at a time: as many as a client has calls at most
(``Limits.max_pending_calls``), and some for its other messages. Node.js: no limit, nginx: 128.
"""

_STREAM_WINDOW = 1024 * 1024
"""Bytes of one message that may be under way before its receiver takes any. Node.js: 64 KiB."""
_CONNECTION_WINDOW = 16 * 1024 * 1024
"""The same of all messages together."""

_INITIAL_WINDOW = 65_535
"""The window of a connection before any update. Source: RFC 9113 section 6.9.2."""

_LAST_STREAM = 2**31 - 1


def new_connection(limits: Limits, *, is_client: bool) -> H2Connection:
    """Return a connection whose preface, or settings, wait to be sent."""
    connection = H2Connection(
        H2Configuration(
            client_side=is_client,
            header_encoding=None,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
    )
    connection.local_settings = Settings(
        client=is_client,
        initial_values={
            SettingCodes.ENABLE_PUSH: 0,
            SettingCodes.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
            SettingCodes.INITIAL_WINDOW_SIZE: _STREAM_WINDOW,
            SettingCodes.MAX_HEADER_LIST_SIZE: limits.max_head_bytes,
        },
    )
    # A peer may send heads before it has seen the settings, so the bound holds from the start.
    connection.decoder.max_header_list_size = limits.max_head_bytes
    connection.initiate_connection()
    if not is_client:
        connection.receive_data(PREFACE)  # the frame reader takes that of the client
    connection.increment_flow_control_window(_CONNECTION_WINDOW - _INITIAL_WINDOW)
    return connection


def encode_goaway(last_stream: int = _LAST_STREAM) -> bytes:
    """Return a GOAWAY frame without an error.

    Args:
        last_stream: the last stream of the peer that may still be handled; by default each.
    """
    payload = last_stream.to_bytes(4, "big") + ErrorCodes.NO_ERROR.to_bytes(4, "big")
    return b"%b%c\0\0\0\0\0%b" % (len(payload).to_bytes(3, "big"), FrameType.GOAWAY, payload)


def decode_goaway(payload: bytes) -> tuple[int, int]:
    """Return the last stream that the sender of a GOAWAY frame handles, and its error code.

    A payload that is too short names stream 0: the peer handles none.
    """
    code = int.from_bytes(payload[4:8], "big")
    return int.from_bytes(payload[:4], "big") & _LAST_STREAM, code


def code_name(code: int) -> str:
    """Return the name of an error code, or its number."""
    return next((each.name for each in ErrorCodes if each == code), str(code))
