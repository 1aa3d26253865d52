"""The targets of fuzzing by name: functions of bytes that raise if a rule is broken."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .codec_targets import (
    event_ids,
    event_streams,
    header_values,
    heads,
    http11_parsers,
    json_documents,
    lines,
    messages,
    mirrored_headers,
    response_bodies,
    signed_states,
)
from .machine_targets import (
    client_http,
    client_stdio,
    cursors,
    parked,
    server_http,
    server_stdio,
)
from .store_targets import store_files

TARGETS: Mapping[str, Callable[[bytes], None]] = {
    each.__name__: each
    for each in (
        *(server_http, server_stdio, client_http, client_stdio, cursors, parked, store_files),
        *(json_documents, messages, lines, event_streams, header_values, event_ids),
        *(mirrored_headers, signed_states, heads, http11_parsers, response_bodies),
    )
}

CORPUS = Path(__file__).with_name("corpus")
"""Initial inputs, and inputs that once failed, in a folder for each target."""


def corpus_of(target: str) -> Sequence[bytes]:
    """Return the inputs of the repository for a target."""
    return [path.read_bytes() for path in sorted((CORPUS / target).iterdir())]
