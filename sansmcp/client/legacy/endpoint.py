"""The endpoint event of HTTP+SSE, the transport of 2024-11-05.

The first event of the stream contains the URI to which messages are POSTed. It must have the same
origin as the stream, because the client sends its credentials there.

Source: 2024-11-05 basic/transports: HTTP with SSE.
"""

from __future__ import annotations

from ...codecs.sse import SseEvent
from ...errors import LocalProtocolError
from ...http import Url


def endpoint_from(event: SseEvent, stream_url: Url) -> Url | str:
    """Return the URL from the first event of a stream, or the reason why it cannot be used.

    Args:
        event: the first event that is dispatched.
        stream_url: the URL of the stream.
    """
    if event.event != "endpoint" or not event.data:
        return "brought another event than endpoint first"
    try:
        url = stream_url.join(event.data)
    except LocalProtocolError as error:
        return f"failed: {error}"
    if url.origin != stream_url.origin:
        origin = f"{url.scheme}://{url.authority}"
        return f"named an endpoint of another origin, {origin}, which is not trusted"
    return url
