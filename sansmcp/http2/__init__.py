"""HTTP/2 on a pair of pipes: the transport ``stdio-v2``, a preview that may change.

MCP has no wire format for HTTP over standard input and output yet. The transports working group
recommends HTTP/2 for investigation, under the name ``stdio-v2``, and this package is a prototype of
it. ``client_connection`` and ``server_connection`` turn the bytes of one connection into the parts
of many HTTP messages and back, as :mod:`sansmcp.http11` does for one message at a time.
``pipe_client`` is the client machine of a server process that speaks it. They need the package
``h2`` (the extra ``http2``).

``h2`` frames messages, compresses headers and counts windows. What it leaves open is bounded here,
because only this layer sees frames: the bytes of a header block before it is complete, frames that
carry nothing, and the bytes that one turn of the connection sends.

Source: RFC 9113; transports-wg, proposals/http-over-stdio; CVE-2019-9511 to CVE-2019-9518,
CVE-2023-44487, CVE-2024-27316.
"""
