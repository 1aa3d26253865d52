"""HTTP/1.1 on a byte stream: bytes to message parts and back, for raw sockets.

A :class:`ServerConnection` is what a server does with an accepted connection, request after
request; a :class:`ClientConnection` carries a client's exchanges, one at a time, and a
:class:`ConnectionPool` says which one is to carry the next. Both kinds turn bytes into the parts
that the machines understand, so a host that brings its own HTTP library does without this module.
Heads are read by :mod:`sansmcp.h11_parser`, or by what the setting ``http11`` of the machine names
(:mod:`sansmcp.httptools_parser`); all else is read, and everything written, here.

Slow and hostile peers are dealt with here, since only here are there bytes: a request head has to
be complete within a total time, not per read; so has a body; head sizes are counted in the bytes
that were sent, whatever pieces they came in; while one request is answered, 64 KiB of the next
ones are read and no more. A request that is refused before it was read to its end gets its answer,
and then a moment in which what it still sends is thrown away: closing at once would destroy the
answer.

Source: RFC 9112; CVE-2007-6750, CVE-2025-43859.
"""
