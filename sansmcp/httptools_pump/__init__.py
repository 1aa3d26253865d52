"""HTTP/1.1 by ``httptools`` (the parser of Node.js), many times as fast as h11.

Pass it as the setting ``http11`` of a client or server: ``serve(app, ..., http11=HTTP11)``. It is
installed with the extra ``fast``. It differs from h11 in what it takes: methods and targets that no
registry knows are refused as malformed, lines must end in CR LF.
"""

from ..wire import Http11
from .heads import read_request_head, read_response_head

HTTP11 = Http11(read_request_head, read_response_head)

__all__ = ["HTTP11"]
