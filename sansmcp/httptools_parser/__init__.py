"""A parser of HTTP/1.1 heads: ``httptools`` (the parser of Node.js), many times as fast as h11.

Pass ``HTTP11`` as the setting ``http11`` of a client or server: ``serve(app, ..., http11=HTTP11)``.
It is installed with the extra ``fast``. It is stricter than h11: it refuses methods that it does
not know, targets that are not a URL, folded headers, and lines that end in LF alone.
"""

from .. import _lazy
from ..http11_parser import Http11Parser

with _lazy.needing(__name__, "fast", "httptools"):
    from .heads import read_request_head, read_response_head

HTTP11 = Http11Parser(read_request_head, read_response_head)

__all__ = ["HTTP11"]
