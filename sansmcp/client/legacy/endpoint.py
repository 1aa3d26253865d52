"""HTTP+SSE, the transport of 2024-11-05: where messages go.

The first event of the stream names the URI that messages are POSTed to. It must be of the same
origin as the stream, for credentials go there.

Source: 2024-11-05 basic/transports: HTTP with SSE.
"""

from __future__ import annotations

from ...codecs.sse import SseEvent
from ...errors import LocalProtocolError
from ...http import Url


def endpoint_from(event: SseEvent, stream_url: Url) -> Url | str:
    """Return the URL that the first event of a stream names, or why it cannot be used.

    Args:
        event: the first event that the standard dispatches.
        stream_url: where the stream was asked for.
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
