"""Decode bytes to values and encode values to bytes. No codec knows the time or the session.

A decoder of a stream gives the same values, and the same error at the same place, however its input
is cut into chunks. All decoders take linear time. For invalid input they raise
:class:`~sansmcp.errors.RemoteProtocolError`.

========================  ==========================================================================
``delimited_buffer``      splits bytes at end marks; ``sse`` and ``ndjson`` use it
``json``                  strict JSON documents
``jsonrpc``               the four kinds of message, and batches
``tolerant``              messages that are not exactly right, where they can mean one thing only
``conversion``            JSON values to structs, dataclasses, typed dicts and models
``envelope``              messages whose payload stays JSON text
``members``               the fast path of ``envelope``, with msgspec
``sse``                   server-sent events (WHATWG)
``ndjson``                one message per line, for stdio
``event_id``              the ids of events: a stream and a position in it
``headers``               HTTP header lists, ``Accept``, media types
``mirrored``              headers that repeat parts of a body
``http11_framing``        HTTP/1.1 heads and chunks, encoding only
========================  ==========================================================================
"""
