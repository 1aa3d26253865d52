"""The default parser of HTTP/1.1 heads: ``h11``, which is pure Python."""

from ..http11_parser import Http11Parser
from .heads import read_request_head, read_response_head

HTTP11 = Http11Parser(read_request_head, read_response_head)

__all__ = ["HTTP11"]
