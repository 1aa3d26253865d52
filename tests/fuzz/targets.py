"""The targets of fuzzing by name: functions of bytes that raise if a rule is broken."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .auth_targets import access_tokens, challenges, metadata, token_responses
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
    repeated_heads,
    response_bodies,
    signed_states,
)
from .file_targets import configuration_files, patterns, recordings, tool_names
from .http2_targets import client_http2, server_http2
from .list_targets import merged_lists, page_cursors
from .machine_targets import (
    client_http,
    client_stdio,
    cursors,
    parked,
    server_http,
    server_stdio,
)
from .store_targets import store_files
from .task_targets import task_requests

TARGETS: Mapping[str, Callable[[bytes], None]] = {
    each.__name__: each
    for each in (
        *(server_http, server_stdio, client_http, client_stdio, cursors, parked, store_files),
        *(server_http2, client_http2),
        *(task_requests, page_cursors, merged_lists),
        *(json_documents, messages, lines, event_streams, header_values, event_ids),
        *(challenges, metadata, token_responses, access_tokens),
        *(configuration_files, recordings, patterns, tool_names),
        *(mirrored_headers, signed_states, heads, http11_parsers, response_bodies),
        repeated_heads,
    )
}
