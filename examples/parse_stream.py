"""The parsers alone: read a recorded event stream, print the JSON-RPC messages in it.

curl -N ... > stream.txt
python examples/parse_stream.py stream.txt
"""

from __future__ import annotations

import sys
from pathlib import Path

from sansmcp import Limits, RemoteProtocolError, SseDecoder, decode_message


def main(path: Path) -> None:
    """Print one line for each event, however the file is cut into chunks."""
    limits = Limits()
    decoder = SseDecoder(limits.max_message_bytes)
    with path.open("rb") as file:
        while chunk := file.read(4096):
            for event in decoder.feed(chunk):
                if not event.data:
                    print(f"id {event.id}, no message")
                    continue
                try:
                    print(decode_message(event.data.encode(), limits))
                except RemoteProtocolError as error:
                    print(f"not a message: {error.message}")
    print(f"a client would come back with Last-Event-ID: {decoder.last_event_id}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
