"""HTTP/1.1 on a byte stream: bytes to message parts and back, for raw sockets.

A ``ServerConnection`` serves an accepted connection, one request after the other. A
``ClientConnection`` sends the exchanges of a client, one at a time, and a ``ConnectionPool``
chooses the connection of the next one. They turn bytes into the parts that the machines receive, so
a driver that uses an HTTP library does not need this package. Heads are parsed by
``sansmcp.h11_parser``, or by the setting ``http11`` of the machine (such as
``sansmcp.httptools_parser``). Everything else is parsed, and all is written, here.

Slow and hostile peers are handled here, because only this layer sees bytes:

* A request head must be complete within a total time, not per read; so must a body.
* The size of a head counts all bytes sent, in however many pieces they arrive.
* While one request is handled, only about 64 KiB of the next ones are read.
* After a refusal before the end of the request, the connection lingers: it reads and discards for
  up to 2 seconds. Closing at once would reset the connection, and the peer could lose the
  response.

Source: RFC 9112; CVE-2007-6750, CVE-2025-43859.
"""
