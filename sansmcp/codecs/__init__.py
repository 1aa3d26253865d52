"""Bytes to values and back, without time and without any knowledge of conversations.

Every decoder is fed any chunks of its input and gives the same values, and the same error at the
same place, for every way of cutting; every decoder is linear in its input. They raise
:class:`~sansmcp.errors.RemoteProtocolError`.

========================  ==========================================================================
``delimited_buffer``      bytes in, whole lines out: the base of the two decoders of lines
``json``                  JSON documents, strictly
``jsonrpc``               the four kinds of message, and batches
``envelope``              the outside of a message, without a look at what it carries
``members``               its fast way, by msgspec
``sse``                   server-sent events, by the WHATWG standard
``ndjson``                one message per line, for stdio
``event_id``              the cursor that an SSE event id is
``headers``               HTTP header lists, ``Accept``, media types
``mirrored``              headers that repeat parts of a body
``http11_framing``        HTTP/1.1 on the way out
========================  ==========================================================================
"""
